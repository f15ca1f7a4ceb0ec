//! Reads any bytes as the stored state of any policy. The result is an error, or words that are written as they
//! were read and that can be decided on. Also reads any words as an operation: the result is `None`, or an
//! operation that is written as it was read.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::{Corpus, fuzz_target};
use tidegate_fuzz::{Amount, Parameters, RULES, limits as any};
use tidegate_gate::{Operation, Policy, Record, Request, Timestamp, blob};

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    limits: [Parameters; 3],
    /// The parameters of the limits that wrote the state.
    old: [Parameters; 3],
    rule: u8,
    /// Whether to write the right version and fingerprint, which chance would never find.
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
    let Some(limits) = any(&input.limits) else { return Corpus::Reject };
    let [record] = limits.records() else { return Corpus::Reject };
    let old = any(&input.old).unwrap_or_else(|| limits.clone());
    let old = &old.records()[0];
    let rule = &RULES[usize::from(input.rule) % RULES.len()];
    let mut bytes = if input.has_header { header(rule, old) } else { Vec::new() };
    bytes.extend(input.bytes);
    match blob::decode(rule, record, &bytes, Timestamp::EPOCH) {
        Ok(mut words) => {
            if bytes.starts_with(&header(rule, record)) {
                assert_eq!(blob::encode(rule, record, &words), bytes);
            }
            let request = Request::of(input.cost.value());
            let _ = limits.decide(&mut words, Timestamp(input.now.value()), &request);
            assert!(record.accepts(&words).is_ok());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    Corpus::Keep
});

/// The bytes before the words.
fn header(rule: &Policy, record: &Record) -> Vec<u8> {
    let mut bytes = blob::encode(rule, record, &[]);
    let runs = if record.words() > 16 { 2 } else { 0 }; // the number of runs of words
    bytes.truncate(bytes.len() - runs);
    bytes
}
