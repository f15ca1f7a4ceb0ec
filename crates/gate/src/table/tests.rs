use std::format;
use std::string::String;

use tidegate_core::Timestamp;

use super::{KeyHasher, Table, TableError};
use crate::policy::Policy;

fn policy() -> Policy {
    let text = "limits = [{ algorithm = 'token_bucket', capacity = 2, rate = '2/s' }]";
    Policy::parse("p", text).unwrap()
}

#[test]
fn keys_are_counted_apart() {
    let (policy, mut table) = (policy(), Table::new(100, KeyHasher::new(1)));
    for key in ["a", "b", "", "a longer key than fits anywhere inline, surely"] {
        assert!(table.decide(&policy, key, Timestamp(0), 2).unwrap().is_allowed());
        assert!(!table.decide(&policy, key, Timestamp(0), 1).unwrap().is_allowed());
    }
    assert_eq!(table.len(), 4);
}

#[test]
fn a_peek_or_an_impossible_cost_remembers_no_key() {
    let (policy, mut table) = (policy(), Table::new(100, KeyHasher::new(1)));
    assert!(table.decide(&policy, "a", Timestamp(0), 0).unwrap().is_allowed());
    assert!(matches!(table.decide(&policy, "a", Timestamp(0), 3), Err(TableError::Cost(_))));
    assert!(table.is_empty() && table.words("a").is_none());
}

#[test]
fn a_full_table_learns_no_key_until_one_expires_and_loosens_no_limit() {
    let (policy, mut table) = (policy(), Table::new(3, KeyHasher::new(1)));
    for key in ["a", "b", "c"] {
        assert!(table.decide(&policy, key, Timestamp(0), 2).unwrap().is_allowed());
    }
    let at = |seconds: u64| Timestamp(seconds * 500_000);
    assert_eq!(table.decide(&policy, "d", at(1), 1), Err(TableError::Full { max_keys: 3 }));
    assert!(!table.decide(&policy, "a", at(1), 2).unwrap().is_allowed(), "a is remembered");
    assert!(table.decide(&policy, "d", at(2), 1).unwrap().is_allowed(), "all were full again");
    assert_eq!(table.len(), 1);
}

#[test]
fn a_flood_of_new_keys_keeps_the_table_at_its_size() {
    let (policy, mut table) = (policy(), Table::new(1_000, KeyHasher::new(1)));
    let mut refused = 0;
    for i in 0..100_000_u64 {
        // 10 µs apart: 100,000 keys in a second, each in use for half a second
        let key: String = format!("key-{i}");
        refused += u64::from(table.decide(&policy, &key, Timestamp(i * 10), 1).is_err());
        assert!(table.len() <= 1_000);
    }
    assert_eq!(refused, 99_000);
}

#[test]
fn sweeping_forgets_what_equals_a_fresh_state_and_nothing_else() {
    let (policy, mut table) = (policy(), Table::new(100, KeyHasher::new(1)));
    assert!(table.decide(&policy, "a", Timestamp(0), 2).unwrap().is_allowed());
    assert!(table.decide(&policy, "b", Timestamp(0), 1).unwrap().is_allowed());
    table.sweep(&policy, Timestamp(499_999));
    assert_eq!(table.len(), 2);
    table.sweep(&policy, Timestamp(500_000));
    assert!(table.words("a").is_some() && table.words("b").is_none());
    table.sweep(&policy, Timestamp(1_000_000));
    assert!(table.is_empty());
}
