//! Does any operations at any times, on any state that any policy accepts.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::{Corpus, fuzz_target};
use tidegate_fuzz::{Key, Parameters, Step, limits};

#[derive(Arbitrary, Debug)]
struct Input {
    limits: [Parameters; 3],
    steps: Vec<Step>,
}

fuzz_target!(|input: Input| -> Corpus {
    let Some(limits) = limits(&input.limits) else { return Corpus::Reject };
    let mut key = Key::new(limits);
    input.steps.iter().for_each(|step| key.step(step));
    Corpus::Keep
});
