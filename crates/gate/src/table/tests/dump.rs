//! Dumps: they are read as they were written, or refused.

use std::format;
use std::string::ToString;
use std::sync::Arc;
use std::vec::Vec;

use proptest::prelude::*;
use tidegate_core::lease::Id;
use tidegate_core::{Micros, Timestamp};

use super::super::{CallLimits, DumpError, KeyHasher, Table, TableError};
use super::table;
use crate::fnv::fnv1a;
use crate::key::MAX_KEY_BYTES;
use crate::limit::{Operation, Request};
use crate::policy::Policy;

const NOW: Timestamp = Timestamp(1_700_000_000_000_000);

const SEVERAL: &str = "
    overrides = { 'vip*' = { limits = [{ algorithm = 'fixed_window', limit = 9, period = '1h' },
                                       { algorithm = 'concurrency', capacity = 40, time_to_live = '1m' }] } }
    limits = [{ algorithm = 'token_bucket', capacity = 5, rate = '1/s', depth = 1 },
              { algorithm = 'concurrency', capacity = 40, time_to_live = '1m' }]";

fn policy(text: &str) -> Arc<Policy> {
    Arc::new(Policy::parse("p", text).unwrap())
}

/// A table on which callers gave limits, and its policy.
fn filled(policy: &Arc<Policy>, steps: &[(u8, u64, u64)]) -> (Table, CallLimits, Arc<Policy>) {
    let (mut table, policy) = table().counting_apart(policy).unwrap().unwrap();
    let own =
        "{\"limits\":[{\"algorithm\":\"token_bucket\",\"capacity\":7,\"rate\":\"1/s\",\"depth\":1},
                {\"algorithm\":\"concurrency\",\"capacity\":4,\"time_to_live\":\"1m\"}]}";
    let mut call_limits = CallLimits::default();
    let own = call_limits.policy(&mut table, &policy, own, NOW).unwrap();
    for (number, (key, later, cost)) in (1..).zip(steps) {
        let at = NOW.saturating_add(Micros(*later));
        let key = format!("{}{}/{key}", if key % 3 == 0 { "vip" } else { "team" }, key % 5);
        let policy = if cost % 5 == 4 { &own } else { &policy };
        let request = Request { lease: Some(Id([number, 1])), ..Request::of(cost % 4) };
        let operation = match cost % 7 {
            6 => Operation::Block(Micros(1 << 20)),
            _ => Operation::Decide(request),
        };
        table.operate(policy, &key, at, operation).unwrap();
    }
    (table, call_limits, policy)
}

/// All that a table says of its keys.
fn said(table: &mut Table, policy: &Policy, at: Timestamp) -> Vec<std::string::String> {
    let keys = (0..40_u8)
        .map(|key| format!("{}{}/{key}", if key % 3 == 0 { "vip" } else { "team" }, key % 5));
    let look = |key: std::string::String| format!("{:?}", table.operate(policy, &key, at, 0));
    keys.map(look).collect()
}

/// The bytes with the hash that belongs to them.
fn hashed(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.len() >= 9 {
        let hash = fnv1a(bytes[9..].iter().copied()).to_le_bytes();
        bytes[1..9].copy_from_slice(&hash);
    }
    bytes
}

fn steps() -> impl Strategy<Value = Vec<(u8, u64, u64)>> {
    proptest::collection::vec((0..40_u8, 0..90_000_000_u64, 0..100_u64), 0..60)
}

proptest! {
    #[test]
    fn a_dump_is_read_as_it_was_written(steps in steps(), later in 0..90_000_000_u64) {
        for rule in ["reset", "keep"] {
            let written = policy(&format!("on_change = '{rule}'{SEVERAL}"));
            let (mut table, call_limits, policy) = filled(&written, &steps);
            let bytes = table.dump(&policy, &call_limits).unwrap();
            let (mut restored, _, of_dump) = table.restored(&written, &bytes).unwrap();
            prop_assert_eq!(&of_dump, &policy);
            prop_assert_eq!((restored.len(), restored.bytes() <= 1 << 20), (table.len(), true));
            let at = NOW.saturating_add(Micros(later));
            prop_assert_eq!(said(&mut restored, &policy, at), said(&mut table, &policy, at));
        }
    }

    #[test]
    fn a_dump_that_was_changed_is_refused_and_a_forged_one_does_no_harm(
        steps in steps(),
        at: prop::sample::Index,
        bits in 1..=255_u8,
        cut: prop::sample::Index,
        any: Vec<u8>,
    ) {
        let policy = policy(SEVERAL);
        let (table, call_limits, apart) = filled(&policy, &steps);
        let dump = table.dump(&apart, &call_limits).unwrap();
        let mut changed = dump.clone();
        changed[at.index(dump.len())] ^= bits;
        prop_assert!(table.restored(&policy, &changed).is_err());
        prop_assert!(table.restored(&policy, &dump[..cut.index(dump.len())]).is_err());
        prop_assert!(table.restored(&policy, &any).is_err());
        for forged in [changed, dump[..cut.index(dump.len())].to_vec(), [&[2; 9], &any[..]].concat()] {
            if let Ok((mut table, _, policy)) = table.restored(&policy, &hashed(forged)) {
                said(&mut table, &policy, NOW);
            }
        }
    }
}

#[test]
fn a_dump_of_other_limits_is_refused_unless_the_policy_keeps_states() {
    let of = |rule: &str, limit: u64| {
        let limit = format!("{{ algorithm = 'fixed_window', limit = {limit}, period = '1h' }}");
        policy(&format!("on_change = '{rule}'\nlimits = [{limit}]"))
    };
    for (rule, expected) in [("keep", Ok(6)), ("reset", Err(()))] {
        let (five, nine) = (of(rule, 5), of(rule, 9));
        let mut table = table();
        let _ = table.decide(&five, "k", NOW, 3).unwrap();
        let restored = table.restored(&nine, &table.dump(&five, &CallLimits::default()).unwrap());
        let left = restored
            .map(|(mut table, _, nine)| table.decide(&nine, "k", NOW, 0).unwrap().remaining());
        assert_eq!(left.map_err(|_| ()), expected, "{rule}");
    }
}

#[test]
fn a_table_takes_no_key_that_is_too_long_for_a_dump() {
    let five = policy("limits = [{ algorithm = 'fixed_window', limit = 5, period = '1h' }]");
    let (longest, longer) = ("k".repeat(MAX_KEY_BYTES), "k".repeat(MAX_KEY_BYTES + 1));
    let mut table = table();
    let too_long = TableError::KeyLength { bytes: MAX_KEY_BYTES + 1 };
    assert_eq!(too_long.to_string(), "`key`: expected 1 to 512 bytes, found 513");
    for cost in [3, 0] {
        assert_eq!(table.decide(&five, &longer, NOW, cost), Err(too_long));
        assert_eq!(table.operate(&five, &longer, NOW, cost), Err(too_long));
    }
    let block = Operation::Block(Micros::SECOND);
    assert_eq!(table.operate(&five, &longer, NOW, block), Err(too_long));
    assert_eq!(table.set_used(&five, &longer, NOW, 3), Err(too_long));
    let explain = Operation::Explain(Request::of(1));
    assert_eq!(table.operate(&five, &longer, NOW, explain), Err(too_long));
    assert!(table.is_empty());
    assert!(table.decide(&five, &longest, NOW, 3).unwrap().is_allowed());
    let (mut restored, ..) =
        table.restored(&five, &table.dump(&five, &CallLimits::default()).unwrap()).unwrap();
    assert_eq!(restored.decide(&five, &longest, NOW, 0).unwrap().remaining(), 2);
}

#[test]
fn what_is_wrong_with_a_dump_is_said() {
    let of = |limit: u64| {
        let limit = format!("{{ algorithm = 'fixed_window', limit = {limit}, period = '1h' }}");
        policy(&format!("on_change = 'reset'\nlimits = [{limit}]"))
    };
    let five = of(5);
    let mut table = table();
    for key in ["a", "b"] {
        let _ = table.decide(&five, key, NOW, 3).unwrap();
    }
    let dump = table.dump(&five, &CallLimits::default()).unwrap();
    let error = |policy: &Arc<Policy>, bytes: &[u8]| {
        table.restored(policy, bytes).map(|_| ()).unwrap_err().to_string()
    };
    assert_eq!(error(&five, b""), "`dump`: expected bytes, found none");
    assert_eq!(error(&five, b"{}"), "`dump`: expected version 2, found 123");
    assert_eq!(
        error(&five, &dump[..20]),
        "`dump`: expected the bytes of `dump`, found changed ones"
    );
    let said = error(&of(9), &dump);
    assert!(said.starts_with("`dump`: expected states of these limits, found one of others on \""));
    // the words of the last state begin 16 bytes before the end
    let mut spent = dump.clone();
    let count_at = dump.len() - 16;
    spent[count_at] = 11;
    let said = error(&five, &hashed(spent));
    assert!(
        said.ends_with("stored state: expected no more than these limits can grant, found more")
    );
    let small = Table::new(100, KeyHasher::new(1));
    assert_eq!(small.restored(&five, &dump).map(|_| ()), Err(DumpError::Full { max_bytes: 100 }));
    // a key that is no part by which the limit counts
    let by_team =
        policy("limits = [{ algorithm = 'fixed_window', limit = 5, period = '1h', depth = 1 }]");
    let mut teams = self::table();
    let _ = teams.decide(&by_team, "acme/bob", NOW, 3).unwrap();
    let dump_of_teams = teams.dump(&by_team, &CallLimits::default()).unwrap();
    let at = dump_of_teams.windows(4).position(|bytes| bytes == b"acme").unwrap();
    let mut forged = dump_of_teams.clone();
    forged[at + 2] = b'/';
    assert!(teams.restored(&by_team, &dump_of_teams).is_ok());
    assert_eq!(teams.restored(&by_team, &hashed(forged)).map(|_| ()), Err(DumpError::Damaged));
    // a state that comes twice
    let state = 2 + 1 + 8 + 4 + 25;
    let mut twice = [&dump[..], &dump[dump.len() - state..]].concat();
    twice[14] = 3;
    assert_eq!(table.restored(&five, &hashed(twice)).map(|_| ()), Err(DumpError::Damaged));
}
