//! A table whose entries are in several parts.

use std::collections::BTreeSet;
use std::format;
use std::string::String;
use std::sync::Arc;

use tidegate_core::Timestamp;

use super::super::{CallLimits, KeyHasher, Table, TableError};
use super::policy;
use crate::limit::{Operation, Request};
use crate::policy::Policy;

/// More than seven full parts hold.
const KEYS: u64 = 110_000;

fn key(number: u64) -> String {
    format!("key-{number}")
}

/// A table in which each of the first keys has taken both of its units.
fn filled(policy: &Policy, keys: u64) -> Table {
    let mut table = Table::new(1 << 30, KeyHasher::new(1));
    for number in 0..keys {
        let decided = table.decide(policy, &key(number), Timestamp(0), 2);
        assert!(decided.unwrap().is_allowed(), "key {number}");
    }
    table
}

fn refuses(table: &mut Table, policy: &Policy, number: u64, now: u64) -> bool {
    !table.decide(policy, &key(number), Timestamp(now), 1).unwrap().is_allowed()
}

#[test]
fn a_table_of_several_parts_keeps_its_first_hasher() {
    let policy = policy();
    let mut table = filled(&policy, 20_000);
    table.seed(KeyHasher::new(2));
    assert_eq!(table.hasher.hash("a"), KeyHasher::new(1).hash("a"));
    assert!((0..20_000).all(|number| refuses(&mut table, &policy, number, 0)));
}

#[test]
fn every_key_is_found_once_however_many_there_are() {
    let policy = policy();
    let mut table = filled(&policy, KEYS);
    assert_eq!(table.len(), usize::try_from(KEYS).unwrap());
    let bytes = table.bytes();
    table.sweep(Timestamp(1));
    assert_eq!(table.bytes(), bytes, "all are in use");
    for number in 0..KEYS {
        assert!(refuses(&mut table, &policy, number, 0), "key {number}");
    }
    let (mut found, mut place, mut calls) = (BTreeSet::new(), Some(0), 0);
    while let Some(from) = place {
        calls += 1;
        let (limited, next) = table.limited(&policy, Timestamp(0), from);
        for each in limited {
            assert!(found.insert(each.key), "no key twice");
        }
        place = next;
    }
    assert_eq!((found.len(), calls), (table.len(), 8), "a call for each part");
    let restored = table
        .restored(&Arc::new(policy.clone()), &table.dump(&policy, &CallLimits::default()).unwrap());
    let (mut restored, ..) = restored.unwrap();
    assert_eq!((restored.len(), restored.bytes()), (table.len(), table.bytes()));
    assert!((0..KEYS).all(|number| refuses(&mut restored, &policy, number, 0)));
}

/// The parts are split one by one, so that the table takes at most one part more than its entries need.
#[test]
fn a_large_table_grows_by_parts_and_shrinks_by_parts() {
    let policy = policy();
    let part = filled(&policy, 10_000).bytes() / 2;
    let mut table = filled(&policy, KEYS);
    assert_eq!(table.bytes() / part, 9, "eight parts, and one for a moment");
    // at 1 s all are as fresh ones but those that were used at 0.9 s
    for number in (0..KEYS).step_by(100) {
        assert!(table.decide(&policy, &key(number), Timestamp(900_000), 1).unwrap().is_allowed());
    }
    table.sweep(Timestamp(1_000_000));
    assert_eq!(table.len(), usize::try_from(KEYS).unwrap() / 100);
    assert!(table.bytes() <= part, "{} bytes, {part} a part", table.bytes());
    for number in 0..KEYS {
        let peek = Operation::Peek(Request::of(2));
        let peeked = table.operate(&policy, &key(number), Timestamp(1_000_000), peek).unwrap();
        assert_eq!(peeked.decision.is_allowed(), number % 100 != 0, "key {number}");
    }
}

#[test]
fn a_large_table_keeps_to_its_bound_and_loses_no_key() {
    let policy = policy();
    let most = 6 << 20;
    let mut table = Table::new(most, KeyHasher::new(1));
    let mut known = 0;
    while let Ok(decision) = table.decide(&policy, &key(known), Timestamp(0), 2) {
        assert!(decision.is_allowed() && table.bytes() <= most);
        known += 1;
    }
    assert!(known > 40_000, "{known} keys");
    let full = table.decide(&policy, &key(known), Timestamp(0), 2);
    assert_eq!(full, Err(TableError::Full { max_bytes: most }));
    assert!((0..known).all(|number| refuses(&mut table, &policy, number, 1)));
    // a second later the keys are as fresh ones, and are forgotten
    for number in 0..100_000 {
        let now = Timestamp(1_000_000 + number * 20);
        let _ = table.decide(&policy, &format!("later-{number}"), now, 2);
        assert!(table.bytes() <= most, "at {number}");
    }
    assert!(table.decide(&policy, "another", Timestamp(4_500_000), 1).unwrap().is_allowed());
}
