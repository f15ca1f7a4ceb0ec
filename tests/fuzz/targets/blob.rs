//! Any bytes as the stored state of any policy: an error, or words that are written as they were
//! read and can be decided on.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::{Corpus, fuzz_target};
use tidegate_fuzz::{Amount, Parameters, policy};
use tidegate_gate::{Timestamp, blob};

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
    let Some(policy) = policy(&input.limits) else { return Corpus::Reject };
    let mut bytes = if input.has_header { blob::encode(&policy, &[]) } else { Vec::new() };
    bytes.extend(input.bytes);
    match blob::decode(&policy, &bytes) {
        Ok(mut words) => {
            assert_eq!(blob::encode(&policy, &words), bytes);
            let _ = policy.decide(&mut words, Timestamp(input.now.value()), input.cost.value());
            assert!(policy.accepts(&words).is_ok());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    Corpus::Keep
});
