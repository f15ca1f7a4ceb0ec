use std::borrow::ToOwned;
use std::format;
use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;
use tidegate_core::Timestamp;
use tidegate_core::lease::Id;

use super::{BLOCK_BYTES, BLOCKED, BlobError, encode, name};
use crate::decide::Record;
use crate::limit::Request;
use crate::policy::{Policy, Rule};

/// Reads bytes as of their newest time.
fn decode(policy: &Policy, record: &Record, bytes: &[u8]) -> Result<Vec<u64>, BlobError> {
    super::decode(policy, record, bytes, Timestamp::EPOCH)
}

fn policy(limits: &str) -> Policy {
    Policy::parse("p", &std::format!("on_change = 'reset'\nlimits = [{limits}]")).unwrap()
}

fn record(limits: &str) -> Record {
    policy(limits).limits().records()[0].clone()
}

const BUCKET: &str = "{ algorithm = 'token_bucket', capacity = 5, rate = '1/s' }";
const THREE: &str = "
  { algorithm = 'token_bucket', capacity = 5, rate = '1/s' },
  { algorithm = 'fixed_window', limit = 9, period = '1s' },
  { algorithm = 'sliding_window', limit = 9, period = '2s', segments = 2 }";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| std::format!("{byte:02x}")).collect()
}

/// Golden bytes: what is stored today must be readable, or refused, by every later version.
#[test]
fn the_bytes_are_these() {
    let policy = policy(THREE);
    let limits = policy.limits();
    let record = &limits.records()[0];
    let mut words = vec![0; limits.words()];
    let now = Timestamp(1_700_000_000_123_456);
    assert!(limits.decide(&mut words, now, &Request::of(2)).unwrap().is_allowed());
    let bytes = encode(&policy, record, &words);
    let newest = "40222018240a0600";
    assert_eq!(hex(&now.0.to_le_bytes()), newest);
    let fingerprint = hex(&record.fingerprint().to_le_bytes());
    let two = "0200000000000000";
    let none = "0000000000000000";
    let start = hex(&1_700_000_000_000_000_u64.to_le_bytes()); // of the sliding window's segment
    let spent = hex(&2_000_000_u64.to_le_bytes());
    assert_eq!(
        hex(&bytes),
        ["03", &fingerprint, &spent, newest, two, newest, newest, &start, two, two, none, none]
            .concat()
    );
    assert_eq!(decode(&policy, record, &bytes), Ok(words));
    assert_eq!(
        name(&policy, record, "user:42"),
        std::format!("tidegate:{{p:user:42}}:{:016x}", record.fingerprint())
    );
}

/// Windows that start at the first grant have a word more, and another fingerprint.
#[test]
fn the_bytes_of_a_window_that_starts_at_the_first_grant_are_these() {
    let text = "{ algorithm = 'fixed_window', limit = 9, period = '1s', start = 'first' }";
    let policy = policy(text);
    let record = &policy.limits().records()[0];
    let mut words = vec![0; record.words()];
    for (now, cost) in [(1_700_000_000_123_456, 2), (1_700_000_000_123_466, 1)] {
        let decision = policy.limits().decide(&mut words, Timestamp(now), &Request::of(cost));
        assert!(decision.unwrap().is_allowed());
    }
    let bytes = encode(&policy, record, &words);
    let word = |word: u64| hex(&word.to_le_bytes());
    let words_written = [3, 1_700_000_000_123_466, 999_990].map(word).concat();
    assert_eq!(hex(&bytes), ["03", "7a41714251f58605", &words_written].concat());
    assert_eq!(decode(&policy, record, &bytes), Ok(words));
}

/// The fingerprint of a calendar has the name of its time zone, and nothing of what the zone does. So the states go on with the
/// next version of the time zone database.
#[test]
fn the_bytes_of_a_calendar_are_these() {
    let text = "algorithm = 'calendar', limit = 9, period = 'month', anchor = 31, timezone = 'Europe/Madrid'";
    let policies = [
        format!("{{ {text} }}"),
        format!("{{ {text}, zone_data = '2026b 1672531200+3600 1735689600' }}"),
        format!("{{ {text}, zone_data = '2030a 1672531200+10800 1672617600+3600 1735689600' }}"),
    ];
    for policy in policies.map(|limits| policy(&limits)) {
        let record = &policy.limits().records()[0];
        let mut words = vec![0; record.words()];
        let now = Timestamp(1_700_000_000_123_456);
        let decision = policy.limits().decide(&mut words, now, &Request::of(2)).unwrap();
        assert!(decision.is_allowed());
        let bytes = encode(&policy, record, &words);
        let written = [2, now.0].map(|word: u64| hex(&word.to_le_bytes())).concat();
        assert_eq!(hex(&bytes), ["03", "1777060a182c3ba5", &written].concat());
        assert_eq!(decode(&policy, record, &bytes), Ok(words));
    }
}

#[test]
fn what_is_truncated_foreign_or_impossible_is_refused() {
    let bucket = record(BUCKET);
    let good = encode(&policy(BUCKET), &bucket, &[5_000_000, 7]);
    assert!(decode(&policy(BUCKET), &bucket, &good).is_ok());
    for length in 0..good.len() {
        let expected = good.len();
        assert_eq!(
            decode(&policy(BUCKET), &bucket, &good[..length]),
            Err(BlobError::Length { found: length, expected }),
        );
    }
    let blocked = [&[good[0] | BLOCKED], &good[1..]].concat();
    let (found, expected) = (good.len(), good.len() + BLOCK_BYTES);
    let failure = BlobError::Length { found, expected };
    assert_eq!(decode(&policy(BUCKET), &bucket, &blocked), Err(failure), "a block is missing");
    let longer = [&good[..], &[0]].concat();
    assert!(matches!(decode(&policy(BUCKET), &bucket, &longer), Err(BlobError::Length { .. })));
    assert_eq!(
        decode(&policy(BUCKET), &bucket, b"hello"),
        Err(BlobError::Version { found: b'h', expected: 3 })
    );
    for found in [0, 1, 2, 4, 5, 255] {
        let other = [&[found], &good[1..]].concat();
        assert_eq!(
            decode(&policy(BUCKET), &bucket, &other),
            Err(BlobError::Version { found, expected: 3 })
        );
    }
    let other = encode(
        &policy(BUCKET),
        &record("{ algorithm = 'token_bucket', capacity = 6, rate = '1/s' }"),
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
        let record = &limits.records()[0];
        prop_assert!(decode(&policy, record, &bytes).is_err());
        // with a right header, what is read is what is written, and it never panics the core
        let mut bytes = encode(&policy, record, &vec![0; record.words()]);
        let at = 9 + flip.index(bytes.len() - 9);
        bytes[at] = 0xff;
        if let Ok(mut words) = decode(&policy, record, &bytes) {
            prop_assert_eq!(encode(&policy, record, &words), bytes);
            let _ = limits.operate(&mut words, Timestamp(5), &1_u64.into()).unwrap();
        }
    }
}

const LEASES: &str = "{ algorithm = 'concurrency', capacity = 100, time_to_live = '1m' }";

#[test]
fn a_large_state_is_stored_without_its_zeros() {
    let policy = policy(LEASES);
    let (limits, now) = (policy.limits(), Timestamp(1_700_000_000_123_456));
    let record = &limits.records()[0];
    let mut words = vec![0; limits.words()];
    assert_eq!(encode(&policy, record, &words).len(), 11);
    for (held, bytes) in [(1, 97), (2, 147), (100, 4_000)] {
        let request = Request { lease: Some(Id([held, 7])), ..Request::of(1) };
        assert!(limits.decide(&mut words, now, &request).unwrap().is_allowed());
        let encoded = encode(&policy, record, &words);
        assert!(encoded.len() <= bytes, "{held} leases in {} bytes", encoded.len());
        assert_eq!(decode(&policy, record, &encoded).unwrap(), words);
        for length in 0..encoded.len() {
            assert!(decode(&policy, record, &encoded[..length]).is_err(), "cut to {length} bytes");
        }
        let longer = [&encoded[..], &[1, 0, 0, 0]].concat();
        assert_eq!(decode(&policy, record, &longer), Err(BlobError::Invalid), "zeros at the end");
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

/// The slot of a name in a Redis Cluster: <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>.
fn slot(name: &str) -> u16 {
    let tag = name.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    let hashed = tag.map_or(name, |(tag, _)| if tag.is_empty() { name } else { tag });
    hashed.bytes().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    }) % 16_384
}

#[test]
fn slots_are_those_of_the_specification() {
    for (name, expected) in
        [("123456789", 0x31c3), ("foo", 12_182), ("foo{}{bar}", 8_363), ("{foo}x", 12_182)]
    {
        assert_eq!(slot(name), expected, "{name}");
    }
}

const ODD: [&str; 18] = [
    "a", "a}b", "a}c", "a%7Db", "a%257Db", "{", "}", "{}", "}{", "{a}", "a{b}c", "%", "a/b",
    "a}/b", "a/b}", "/", "}/", "é}/ü",
];

/// All states of one decision are in one slot. No key chooses another's, and no two keys share a name.
#[test]
fn a_key_cannot_break_out_of_its_name() {
    for depths in [&["depth = 0", "depth = 1", "depth = 2", ""][..], &["depth = 1", ""], &[""]] {
        let limits: Vec<_> =
            depths.iter().map(|depth| BUCKET.replace('}', &std::format!(", {depth} }}"))).collect();
        let limits = limits.join(",").replace(",  }", " }");
        for on_change in ["reset", "keep"] {
            let text = std::format!("on_change = '{on_change}'\nlimits = [{limits}]");
            let policy = Policy::parse("p", &text).unwrap();
            let mut counted: std::collections::BTreeMap<_, (u8, &str)> = Default::default();
            for key in ODD {
                let names =
                    policy.limits().records().iter().map(|record| name(&policy, record, key));
                let names: Vec<_> = names.collect();
                let (tag, _) =
                    names[0].strip_prefix("tidegate:{").unwrap().split_once('}').unwrap();
                for (place, own) in names.iter().enumerate() {
                    assert_eq!(slot(own), slot(&std::format!("{{{tag}}}")), "{own}");
                    let record = &policy.limits().records()[place];
                    let counts = (u8::try_from(place).unwrap(), record.depth().of(key));
                    assert_eq!(*counted.entry(own.clone()).or_insert(counts), counts, "{own}");
                }
            }
            let tag = |key| {
                let name = name(&policy, &policy.limits().records()[0], key);
                name.split_once('}').unwrap().0.to_owned()
            };
            for (one, other) in ODD.iter().flat_map(|one| ODD.map(|other| (*one, other))) {
                let together = policy.partition(one) == policy.partition(other);
                assert_eq!(tag(one) == tag(other), together, "{one} and {other}");
            }
        }
    }
}

#[test]
fn the_names_are_these() {
    let text = "on_change = 'keep'\nlimits = [
      { algorithm = 'token_bucket', capacity = 5, rate = '1/s', depth = 0 },
      { algorithm = 'token_bucket', capacity = 5, rate = '1/s' },
    ]\noverrides.vip = { limits = [{ algorithm = 'token_bucket', capacity = 9, rate = '1/s', depth = 2 }] }";
    let policy = Policy::parse("api", text).unwrap();
    let names = |key: &str| -> Vec<_> {
        let Rule::Limited(limits, _) = policy.rule(key) else { panic!("{key} is on a list") };
        let records = limits.records().iter();
        records.map(|record| name(&policy, record, key)).collect()
    };
    assert_eq!(
        names("acme/{bob}"),
        ["tidegate:{api:}:2032dd643620252e", "tidegate:{api:}acme/{bob}:af64724c8602eb6e"]
    );
    assert_eq!(names("vip"), ["tidegate:{api:}vip:42005a78cc2dc15f"]);
    let whole = Policy::parse("api", &format!("on_change = 'reset'\nlimits = [{BUCKET}]")).unwrap();
    assert_eq!(
        name(&whole, &whole.limits().records()[0], "a}b%c"),
        "tidegate:{api:a%7Db%25c}:2cd8df4df0e07950"
    );
}

/// Golden bytes of a state that brings its limits along.
#[test]
fn the_bytes_of_a_state_that_outlives_edits_are_these() {
    let text = "on_change = 'keep'\nlimits = [
      { name = 'user', algorithm = 'token_bucket', capacity = 5, rate = '1/s' },
      { algorithm = 'fixed_window', limit = 9, period = '1s' },
    ]";
    let policy = Policy::parse("p", text).unwrap();
    let record = &policy.limits().records()[0];
    let bytes = encode(&policy, record, &[2_000_000, 7, 2, 7]);
    let word = |word: u64| hex(&word.to_le_bytes());
    let numbers = |numbers: &[u64]| numbers.iter().map(|number| word(*number)).collect::<String>();
    assert_eq!(
        hex(&bytes),
        [
            "04",
            "4d659eaaaf2fea65", // of the rule and all up to the words
            "0c00",
            &numbers(&[5, 1, 5, 1, 1_000_000, 0]),
            &word(crate::fnv::fnv1a(*b"user")),
            &numbers(&[3, 2, 9, 1_000_000, 0]), // without a name
            &numbers(&[2_000_000, 7, 2, 7]),
        ]
        .concat()
    );
    assert_eq!(decode(&policy, record, &bytes), Ok(vec![2_000_000, 7, 2, 7]));
}

#[test]
fn a_state_is_read_under_its_own_rule_alone() {
    for on_change in ["reset", "keep"] {
        let text = std::format!(
            "on_change = '{on_change}'\nlimits = [{BUCKET}]\noverrides.vip = {{ capacity = 5 }}"
        );
        let policy = Policy::parse("p", &text).unwrap();
        let [own, vip] = [policy.limits(), &policy.overrides()[0].1].map(|own| &own.records()[0]);
        assert_eq!(own.limits(), vip.limits());
        let bytes = encode(&policy, own, &[1, 7]);
        let refused = decode(&policy, vip, &bytes).unwrap_err();
        assert!(matches!(refused, BlobError::Fingerprint { .. }));
        let said = refused.to_string();
        assert!(said.ends_with("of other limits or another rule"), "{said}");
    }
}
