//! States that are carried over an edit of the policies.

use std::format;
use std::string::String;

use tidegate_core::{Micros, Timestamp};

use super::super::{KeyHasher, Table, TableError};
use super::{policy, table};
use crate::limit::Operation;
use crate::policy::Policy;

/// Carries all states of a table over an edit.
fn edited(table: &mut Table, from: &Policy, to: &Policy) -> Table {
    let mut next = Table::new(1 << 20, KeyHasher::new(2));
    for state in table.close().into_carried(from, to, Timestamp::EPOCH) {
        assert!(next.adopt(state));
    }
    next
}

#[test]
fn an_edit_keeps_the_states_that_a_store_would_keep() {
    let policy = |limit: u64, rest: &str| {
        let text = format!(
            "limits = [{{ algorithm = 'fixed_window', limit = {limit}, period = '1d' }}]\n{rest}"
        );
        Policy::parse("p", &text).unwrap()
    };
    let remaining = |table: &mut Table, policy: &Policy| {
        table.decide(policy, "k", Timestamp(1), 0).unwrap().remaining()
    };
    let reset = "on_change = 'reset'";
    for (from, to, left) in [
        (policy(10, reset), policy(10, "on_change = 'reset'\non_error = 'open'"), 7),
        (policy(10, reset), policy(5, reset), 5),
        (policy(10, ""), policy(5, "on_error = 'open'"), 2),
        (policy(10, ""), policy(20, "on_change = 'proportional'"), 14),
        (policy(10, reset), policy(5, ""), 5),
    ] {
        let mut table = table();
        assert!(table.decide(&from, "k", Timestamp(0), 3).unwrap().is_allowed());
        let mut next = edited(&mut table, &from, &to);
        assert_eq!(remaining(&mut next, &to), left, "{from:?} {to:?}");
        // a request that was under way grants nothing more by the old policy
        let late = table.decide(&from, "k", Timestamp(1), 1);
        assert_eq!(late, Err(TableError::Full { max_bytes: 0 }));
    }
}

/// What a smaller limit cannot count stays with the record that counts it, as it does in a store.
#[test]
fn an_edit_to_a_smaller_limit_and_back_gives_nothing_back() {
    for limit in [
        "algorithm = 'sliding_log', rates = ['N/h']",
        "algorithm = 'token_bucket', capacity = N, rate = 'N/d'",
    ] {
        let revisions = ["100", "10", "10", "12", "100"].map(|number| {
            let limit = limit.replace('N', number);
            Policy::parse("p", &format!("limits = [{{ {limit} }}]")).unwrap()
        });
        let mut table = table();
        assert!(table.decide(&revisions[0], "k", Timestamp(0), 100).unwrap().is_allowed());
        for (from, to) in revisions.iter().zip(&revisions[1..]) {
            table = edited(&mut table, from, to);
            let limited = table.limited(to, Timestamp(0), 0).0;
            assert_eq!(limited.len(), 1, "{to:?}");
            assert!(!table.decide(to, "k", Timestamp(0), 1).unwrap().is_allowed());
            table.sweep(Timestamp(0));
        }
        let [.., last] = &revisions;
        assert_eq!(table.decide(last, "k", Timestamp(0), 0).unwrap().remaining(), 0);
    }
}

#[test]
fn a_limit_that_is_renamed_refuses_by_its_new_name() {
    let policy = |name: &str| {
        let limit =
            format!("name = '{name}', algorithm = 'fixed_window', limit = 1, period = '1d'");
        Policy::parse("p", &format!("limits = [{{ {limit} }}]")).unwrap()
    };
    let (from, to, mut table) = (policy("old"), policy("new"), table());
    assert!(table.decide(&from, "k", Timestamp(0), 1).unwrap().is_allowed());
    let (limited, _) = edited(&mut table, &from, &to).limited(&to, Timestamp(1), 0);
    let names: std::vec::Vec<_> = limited.iter().map(|each| each.limit.as_deref()).collect();
    assert_eq!(names, [Some("new")]);
}

#[test]
fn a_block_and_a_state_beyond_the_bound_are_carried_over_too() {
    let (from, to) = (policy(), policy());
    let mut table = table();
    for key in 0..1_000 {
        assert!(table.decide(&from, &format!("{key}"), Timestamp(0), 2).unwrap().is_allowed());
    }
    table.operate(&from, "7", Timestamp(0), Operation::Block(Micros::SECOND)).unwrap();
    let mut next = edited(&mut table, &from, &to);
    next.set_max_bytes(Table::least_bytes(&to));
    for key in 0..1_000 {
        let refused = next.decide(&to, &format!("{key}"), Timestamp(600_000), 1).unwrap();
        assert_eq!(refused.is_allowed(), key != 7, "{key}");
    }
    assert!(next.decide(&to, "new", Timestamp(0), 1).is_err());
}

#[test]
fn limits_that_come_back_go_on_with_their_states() {
    let reset = "on_change = 'reset'";
    let policy = |rest: &str, own: Option<u64>| {
        let own = own
            .map_or_else(String::new, |own| format!("overrides = {{ k = {{ limit = {own} }} }}"));
        let text = format!(
            "limits = [{{ algorithm = 'fixed_window', limit = 10, period = '1d' }}]\n{rest}\n{own}"
        );
        Policy::parse("p", &text).unwrap()
    };
    for (rest, first, again, left) in
        [(reset, 7, 7, 0), (reset, 7, 9, 9), ("", 7, 7, 0), ("", 7, 9, 2), ("", 9, 8, 0)]
    {
        let revisions = [Some(first), None, None, Some(again)].map(|own| policy(rest, own));
        let mut table = table();
        assert!(table.decide(&revisions[0], "k", Timestamp(0), first).unwrap().is_allowed());
        for (from, to) in revisions.iter().zip(&revisions[1..]) {
            table = edited(&mut table, from, to);
            table.sweep(Timestamp(1));
        }
        let [.., last] = &revisions;
        let said = table.decide(last, "k", Timestamp(1), 0).unwrap();
        assert_eq!(said.remaining(), left, "{rest} {first} {again}");
    }
}
