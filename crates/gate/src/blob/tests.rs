use std::vec;
use std::vec::Vec;

use proptest::prelude::*;
use tidegate_core::Timestamp;

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
    let bytes = encode(part, &words);
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
    assert_eq!(decode(part, &bytes), Ok(words));
    assert_eq!(
        name(&policy, part, "user:42"),
        std::format!("tidegate:p:{:016x}:user:42", part.fingerprint())
    );
}

#[test]
fn what_is_truncated_foreign_or_impossible_is_refused() {
    let bucket = part(BUCKET);
    let good = encode(&bucket, &[5_000_000, 7]);
    assert!(decode(&bucket, &good).is_ok());
    for length in 0..good.len() {
        let expected = good.len();
        assert_eq!(
            decode(&bucket, &good[..length]),
            Err(BlobError::Length { found: length, expected }),
        );
    }
    let longer = [&good[..], &[0]].concat();
    assert!(matches!(decode(&bucket, &longer), Err(BlobError::Length { .. })));
    assert_eq!(decode(&bucket, b"hello"), Err(BlobError::Version { found: b'h' }));
    let newer = [&[2], &good[1..]].concat();
    assert_eq!(decode(&bucket, &newer), Err(BlobError::Version { found: 2 }));
    let other =
        encode(&part("{ algorithm = 'token_bucket', capacity = 6, rate = '1/s' }"), &[0, 7]);
    assert!(matches!(decode(&bucket, &other), Err(BlobError::Fingerprint { .. })));
    assert_eq!(decode(&bucket, &encode(&bucket, &[10_000_001, 7])), Err(BlobError::Invalid));
}

proptest! {
    #[test]
    fn random_bytes_are_never_misread(bytes: Vec<u8>, flip in any::<prop::sample::Index>()) {
        let limits = policy(THREE).limits().clone();
        let part = &limits.parts()[0];
        prop_assert!(decode(part, &bytes).is_err());
        // with a right header, what is read is what is written, and it never panics the core
        let mut bytes = encode(part, &vec![0; part.words()]);
        let at = 9 + flip.index(bytes.len() - 9);
        bytes[at] = 0xff;
        if let Ok(mut words) = decode(part, &bytes) {
            prop_assert_eq!(encode(part, &words), bytes);
            let _ = limits.operate(&mut words, Timestamp(5), &1_u64.into()).unwrap();
        }
    }
}
