use std::vec;
use std::vec::Vec;

use proptest::prelude::*;
use tidegate_core::Timestamp;
use tidegate_core::lease::Id;

use super::{BlobError, decode, encode, name};
use crate::limits::Part;
use crate::policy::Policy;
use crate::request::Request;

fn policy(limits: &str) -> Policy {
    Policy::parse("p", &std::format!("limits = [{limits}]")).unwrap()
}

fn part(limits: &str) -> Part {
    policy(limits).limits().parts()[0].clone()
}

const BUCKET: &str = "{ algorithm = 'token_bucket', capacity = 5, rate = '1/s' }";
const THREE: &str = "
  { algorithm = 'token_bucket', capacity = 5, rate = '1/s' },
  { algorithm = 'fixed_window', limit = 9, period = '1s' },
  { algorithm = 'sliding_window', limit = 9, period = '2s', segments = 2 }";

fn hex(bytes: &[u8]) -> std::string::String {
    bytes.iter().map(|byte| std::format!("{byte:02x}")).collect()
}

/// Golden bytes: what is stored today must be readable, or refused, by every later version.
#[test]
fn the_bytes_are_these() {
    let policy = policy(THREE);
    let limits = policy.limits();
    let part = &limits.parts()[0];
    let mut words = vec![0; limits.words()];
    let now = Timestamp(1_700_000_000_123_456);
    assert!(limits.decide(&mut words, now, &Request::of(2)).unwrap().is_allowed());
    let bytes = encode(&policy, part, &words);
    let newest = "40222018240a0600";
    assert_eq!(hex(&now.0.to_le_bytes()), newest);
    let fingerprint = hex(&part.fingerprint().to_le_bytes());
    let two = "0200000000000000";
    let none = "0000000000000000";
    let start = hex(&1_700_000_000_000_000_u64.to_le_bytes()); // of the sliding window's segment
    let spent = hex(&2_000_000_u64.to_le_bytes());
    assert_eq!(
        hex(&bytes),
        ["01", &fingerprint, &spent, newest, two, newest, newest, &start, two, two, none, none]
            .concat()
    );
    assert_eq!(decode(&policy, part, &bytes), Ok(words));
    assert_eq!(
        name(&policy, part, "user:42"),
        std::format!("tidegate:p:{:016x}:user:42", part.fingerprint())
    );
}

#[test]
fn what_is_truncated_foreign_or_impossible_is_refused() {
    let bucket = part(BUCKET);
    let good = encode(&policy(BUCKET), &bucket, &[5_000_000, 7]);
    assert!(decode(&policy(BUCKET), &bucket, &good).is_ok());
    for length in 0..good.len() {
        let expected = good.len();
        assert_eq!(
            decode(&policy(BUCKET), &bucket, &good[..length]),
            Err(BlobError::Length { found: length, expected }),
        );
    }
    let longer = [&good[..], &[0]].concat();
    assert!(matches!(decode(&policy(BUCKET), &bucket, &longer), Err(BlobError::Length { .. })));
    assert_eq!(
        decode(&policy(BUCKET), &bucket, b"hello"),
        Err(BlobError::Version { found: b'h', expected: 1 })
    );
    let newer = [&[2], &good[1..]].concat();
    assert_eq!(
        decode(&policy(BUCKET), &bucket, &newer),
        Err(BlobError::Version { found: 2, expected: 1 })
    );
    let other = encode(
        &policy(BUCKET),
        &part("{ algorithm = 'token_bucket', capacity = 6, rate = '1/s' }"),
        &[0, 7],
    );
    assert!(matches!(decode(&policy(BUCKET), &bucket, &other), Err(BlobError::Fingerprint { .. })));
    assert_eq!(
        decode(&policy(BUCKET), &bucket, &encode(&policy(BUCKET), &bucket, &[10_000_001, 7])),
        Err(BlobError::Invalid)
    );
}

proptest! {
    #[test]
    fn random_bytes_are_never_misread(bytes: Vec<u8>, flip in any::<prop::sample::Index>()) {
        let policy = policy(THREE);
        let limits = policy.limits();
        let part = &limits.parts()[0];
        prop_assert!(decode(&policy, part, &bytes).is_err());
        // with a right header, what is read is what is written, and it never panics the core
        let mut bytes = encode(&policy, part, &vec![0; part.words()]);
        let at = 9 + flip.index(bytes.len() - 9);
        bytes[at] = 0xff;
        if let Ok(mut words) = decode(&policy, part, &bytes) {
            prop_assert_eq!(encode(&policy, part, &words), bytes);
            let _ = limits.operate(&mut words, Timestamp(5), &1_u64.into()).unwrap();
        }
    }
}

const LEASES: &str = "{ algorithm = 'concurrency', capacity = 100, time_to_live = '1m' }";

#[test]
fn a_large_state_is_stored_without_its_zeros() {
    let policy = policy(LEASES);
    let (limits, now) = (policy.limits(), Timestamp(1_700_000_000_123_456));
    let part = &limits.parts()[0];
    let mut words = vec![0; limits.words()];
    assert_eq!(encode(&policy, part, &words).len(), 11);
    for (held, bytes) in [(1, 97), (2, 147), (100, 4_000)] {
        let request = Request { lease: Some(Id([held, 7])), ..Request::of(1) };
        assert!(limits.decide(&mut words, now, &request).unwrap().is_allowed());
        let encoded = encode(&policy, part, &words);
        assert!(encoded.len() <= bytes, "{held} leases in {} bytes", encoded.len());
        assert_eq!(decode(&policy, part, &encoded).unwrap(), words);
        for length in 0..encoded.len() {
            assert!(decode(&policy, part, &encoded[..length]).is_err(), "cut to {length} bytes");
        }
        let longer = [&encoded[..], &[1, 0, 0, 0]].concat();
        assert_eq!(decode(&policy, part, &longer), Err(BlobError::Invalid), "zeros at the end");
    }
}

proptest! {
    #[test]
    fn runs_are_read_as_they_were_written(
        runs in prop::collection::vec((0..40_usize, prop::collection::vec(any::<u64>(), 0..5)), 0..9),
        cut: prop::sample::Index,
        bytes: Vec<u8>,
    ) {
        let mut words = Vec::new();
        for (zeros, run) in runs {
            words.extend(core::iter::repeat_n(0, zeros));
            words.extend(run);
        }
        let mut written = Vec::new();
        super::write_runs(&words, &mut written);
        prop_assert_eq!(super::read_runs(&written, words.len()), Some(words.clone()));
        let shorter = &written[..cut.index(written.len())];
        prop_assert_eq!(super::read_runs(shorter, words.len()), None);
        if let Some(read) = super::read_runs(&bytes, words.len()) {
            let mut again = Vec::new();
            super::write_runs(&read, &mut again);
            prop_assert_eq!(again, bytes);
        }
    }
}
