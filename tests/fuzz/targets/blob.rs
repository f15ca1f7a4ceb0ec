//! Any bytes as the stored state of any policy: an error, or words that are written as they were
//! read and can be decided on. And any words as an operation: none, or one that is written as it was
//! read.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::{Corpus, fuzz_target};
use tidegate_fuzz::{Amount, Parameters, limits};
use tidegate_gate::{Operation, Request, Timestamp, blob};

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    limits: [Parameters; 3],
    /// Whether version and fingerprint are right: chance would never find them.
    has_header: bool,
    now: Amount,
    cost: Amount,
    bytes: &'a [u8],
}

fuzz_target!(|input: Input<'_>| -> Corpus {
    let words: Vec<u64> =
        input.bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    if let Some(operation) = Operation::from_words(&words) {
        assert_eq!(operation.to_words(), words);
    }
    let Some(limits) = limits(&input.limits) else { return Corpus::Reject };
    let [part] = limits.parts() else { return Corpus::Reject };
    let mut bytes = if input.has_header { blob::encode(part, &[]) } else { Vec::new() };
    bytes.extend(input.bytes);
    match blob::decode(part, &bytes) {
        Ok(mut words) => {
            assert_eq!(blob::encode(part, &words), bytes);
            let request = Request::of(input.cost.value());
            let _ = limits.decide(&mut words, Timestamp(input.now.value()), &request);
            assert!(part.accepts(&words).is_ok());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    Corpus::Keep
});
