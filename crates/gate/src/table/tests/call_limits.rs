//! Limits that callers give with their requests.

use std::format;
use std::string::{String, ToString};
use std::sync::Arc;
use std::vec::Vec;

use proptest::prelude::*;
use tidegate_core::lease::Id;
use tidegate_core::{Micros, Timestamp};

use super::super::{CallLimitsError, MAX_CALL_LIMITS, Table};
use super::table;
use crate::key::Depth;
use crate::policy::Policy;
use crate::request::{Operation, Request};

const NOW: Timestamp = Timestamp(1_700_000_000_000_000);

fn policy(text: &str) -> Arc<Policy> {
    Arc::new(Policy::parse("p", text).unwrap())
}

fn five() -> Arc<Policy> {
    policy("deny = ['bad']\nlimits = [{ algorithm = 'fixed_window', limit = 5, period = '1h' }]")
}

fn of(limit: u64) -> String {
    format!(
        "{{\"limits\":[{{\"algorithm\":\"fixed_window\",\"limit\":{limit},\"period\":\"1h\"}}]}}"
    )
}

/// What is left of a key after a request, and whether the request passed.
fn ask(table: &mut Table, policy: &Arc<Policy>, limit: u64, cost: u64) -> (bool, u64) {
    let policy = match limit {
        0 => Arc::clone(policy),
        limit => table.with_limits(policy, &of(limit), NOW).unwrap(),
    };
    let said = table.decide(&policy, "k", NOW, cost).unwrap();
    (said.is_allowed(), said.remaining())
}

#[test]
fn what_was_used_stays_used_under_other_limits_and_without_them() {
    let (mut table, policy) = (table(), five());
    assert_eq!(ask(&mut table, &policy, 0, 4), (true, 1));
    assert_eq!(ask(&mut table, &policy, 9, 3), (true, 2));
    assert_eq!(ask(&mut table, &policy, 9, 3), (false, 2));
    assert_eq!(ask(&mut table, &policy, 0, 1), (false, 0));
    assert_eq!(ask(&mut table, &policy, 8, 1), (true, 0));
    assert_eq!(table.len(), 1, "one state, under whichever limits");
    assert_eq!(ask(&mut table, &policy, 5, 0), (true, 0), "limits equal to the policy's own");
    let own = table.with_limits(&policy, &of(9), NOW).unwrap();
    assert!(!table.decide(&own, "bad", NOW, 1).unwrap().is_allowed(), "lists stay");
}

/// Whoever may choose between limits could otherwise start afresh as often as it likes.
#[test]
fn going_back_and_forth_between_limits_loses_nothing() {
    let day =
        "{ \"algorithm\": \"fixed_window\", \"name\": \"day\", \"limit\": 3, \"period\": \"1d\" }";
    let others = [
        "{ \"algorithm\": \"fixed_window\", \"name\": \"minute\", \"limit\": 100, \"period\": \"1m\" }",
        "{ \"algorithm\": \"token_bucket\", \"name\": \"x\", \"capacity\": 1, \"rate\": \"1/d\", \"start\": \"empty\" }",
        "{ \"algorithm\": \"concurrency\", \"name\": \"day\", \"capacity\": 9, \"time_to_live\": \"1h\" }",
        "{ \"algorithm\": \"sliding_log\", \"name\": \"day\", \"rates\": [\"100/m\"] }",
        "{ \"algorithm\": \"fixed_window\", \"name\": \"day\", \"limit\": 1, \"period\": \"1s\" }",
    ];
    let text = |limits: &str| format!("{{\"limits\":[{limits}]}}");
    for other in others {
        for other in [text(other), text(&format!("{other}, {}", day.replace("day", "month")))] {
            let (mut table, policy) = (table(), policy(&text(day)));
            let mut passed = 0;
            for _ in 0..20 {
                passed += u64::from(table.decide(&policy, "k", NOW, 1).unwrap().is_allowed());
                let other = table.with_limits(&policy, &other, NOW).unwrap();
                let lease = Some(Id([7, 7]));
                let request = Request { lease, ..Request::of(1) };
                let _ = table.operate(&other, "k", NOW, request).unwrap();
            }
            assert!((1..=3).contains(&passed), "{passed} passed: {other}");
            assert!(table.len() <= 3);
            table.operate(&policy, "k", NOW, Operation::Reset(Depth::Parts(0))).unwrap();
            assert_eq!(table.decide(&policy, "k", NOW, 3).map(|said| said.is_allowed()), Ok(true));
        }
    }
}

/// A window of an hour under this name.
fn named(name: &str, limit: u64) -> String {
    of(limit).replace("\"limit\"", &format!("\"name\":\"{name}\",\"limit\""))
}

fn cost(table: &mut Table, policy: &Arc<Policy>, text: &str, cost: u64) -> (bool, u64) {
    let own = table.with_limits(policy, text, NOW).unwrap();
    let said = table.decide(&own, "k", NOW, cost).unwrap();
    (said.is_allowed(), said.remaining())
}

/// A small limit cannot count what a large one has counted. A third one takes over what counts most, not what came last.
#[test]
fn small_limits_in_between_loosen_no_other_limits() {
    let unnamed: fn(u64) -> String = of;
    for (text, policy) in [
        (unnamed, five()),
        (|limit| named("x", limit), five()),
        (
            of,
            policy(
                "on_change = 'keep'\nlimits = [{ algorithm = 'fixed_window', limit = 5, period = '1h' }]",
            ),
        ),
    ] {
        let mut table = table();
        assert_eq!(cost(&mut table, &policy, &text(100), 100), (true, 0));
        for _ in 0..3 {
            assert_eq!(cost(&mut table, &policy, &text(4), 1), (false, 0));
            let small = table.with_limits(&policy, &text(4), NOW).unwrap();
            table.operate(&small, "k", NOW, Operation::Refund(1)).unwrap(); // leaves a state
        }
        assert_eq!(cost(&mut table, &policy, &text(101), 101), (false, 1));
        let mut passed = 100;
        for limit in 100..300 {
            let _ = cost(&mut table, &policy, &text(4), 1);
            let (passes, left) = cost(&mut table, &policy, &text(limit), limit - 8);
            passed += if passes { limit - 8 } else { 0 };
            let (passes, _) = cost(&mut table, &policy, &text(limit), left.max(1));
            passed += if passes { left } else { 0 };
        }
        assert!(passed <= 299, "{passed} units passed");
    }
}

#[test]
fn another_name_in_between_loosens_no_limit_and_a_dump_keeps_names_apart() {
    let (mut table, policy) = (
        table(),
        policy(
            "on_change = 'keep'\nlimits = [{ algorithm = 'fixed_window', name = 'x', limit = 20, period = '1h' }]",
        ),
    );
    assert_eq!(cost(&mut table, &policy, &named("y", 100), 100), (true, 0));
    let other = table.with_limits(&policy, &named("x", 100), NOW).unwrap();
    table.operate(&other, "k", NOW, Operation::Refund(1)).unwrap(); // leaves a state
    assert_eq!(cost(&mut table, &policy, &named("y", 101), 101), (false, 1));
    let mut restored = table.restored(&policy, &table.dump(&policy).unwrap()).unwrap();
    for text in [named("x", 150), named("y", 150), named("z", 150)] {
        assert_eq!(cost(&mut table, &policy, &text, 0), cost(&mut restored, &policy, &text, 0));
    }
}

#[test]
fn of_two_blocks_the_one_that_ends_later_stays() {
    for spans in [[9, 5], [5, 9]] {
        let (mut table, policy) = (table(), five());
        let own = ["x", "y"].map(|name| table.with_limits(&policy, &named(name, 7), NOW).unwrap());
        for own in &own {
            assert!(table.decide(own, "k", NOW, 1).unwrap().is_allowed()); // each name has a state
        }
        for (own, span) in own.iter().zip(spans) {
            table.operate(own, "k", NOW, Operation::Block(Micros(span * 1_000_000))).unwrap();
        }
        let third = table.with_limits(&policy, &named("x", 8), NOW).unwrap();
        let said = table.decide(&third, "k", NOW, 1).unwrap();
        assert_eq!((said.is_allowed(), said.retry_after()), (false, Micros(9_000_000)));
    }
}

/// Otherwise a blocked caller could keep others from being asked under their limits.
#[test]
fn refusals_under_other_limits_take_no_room() {
    let (mut table, policy) = (Table::new(1 << 22, super::KeyHasher::new(1)), five());
    table.operate(&policy, "k", NOW, Operation::Block(Micros(9_000_000))).unwrap();
    for limit in 1_000..3_500 {
        assert!(!cost(&mut table, &policy, &of(limit), 1).0);
    }
    assert_eq!(table.len(), 1);
    let own = table.with_limits(&policy, &of(7), NOW).unwrap();
    assert!(table.decide(&own, "other", NOW, 1).unwrap().is_allowed());
}

#[test]
fn a_peek_under_other_limits_changes_nothing() {
    let (mut table, policy) = (table(), five());
    ask(&mut table, &policy, 0, 5);
    let before = table.words(policy.limits(), "k");
    assert_eq!(ask(&mut table, &policy, 1, 0), (true, 0), "it would forget a part");
    assert_eq!(ask(&mut table, &policy, 9, 0), (true, 4));
    assert_eq!((table.words(policy.limits(), "k"), table.len()), (before, 1));
}

#[test]
fn a_block_stays_under_other_limits_and_a_sweep_keeps_what_counts() {
    let (mut table, policy) = (table(), five());
    ask(&mut table, &policy, 9, 1);
    let block = Operation::Block(Micros(10));
    table.operate(&policy, "k", NOW, block).unwrap();
    assert!(!ask(&mut table, &policy, 9, 1).0);
    table.sweep(&policy, NOW);
    assert_eq!(table.len(), 1);
    table.sweep(&policy, NOW.saturating_add(Micros(7_200_000_000)));
    assert_eq!(table.len(), 0);
}

#[test]
fn a_shared_state_is_carried_too() {
    let text = "limits = [{ algorithm = 'fixed_window', limit = 5, period = '1h', depth = 1 }]";
    let (mut table, policy) = (table(), policy(text));
    assert!(table.decide(&policy, "acme/ann", NOW, 5).unwrap().is_allowed());
    let other = of(7).replace("\"limit\"", "\"depth\":1,\"limit\"");
    let other = table.with_limits(&policy, &other, NOW).unwrap();
    assert_eq!(table.decide(&other, "acme/bob", NOW, 1).unwrap().remaining(), 1);
    assert!(!table.decide(&policy, "acme/ann", NOW, 1).unwrap().is_allowed());
}

#[test]
fn the_number_of_different_limits_is_bounded() {
    let (mut table, policy) = (Table::new(1 << 22, super::KeyHasher::new(1)), five());
    let mut last = NOW;
    let mut add = |limit: u64, later: u64| {
        last = NOW.saturating_add(Micros(later));
        let own = table.with_limits(&policy, &of(limit), last)?;
        assert!(table.decide(&own, &format!("key-{limit}"), last, 1).unwrap().is_allowed());
        Ok(table.len())
    };
    let most = u64::try_from(MAX_CALL_LIMITS).unwrap();
    for limit in 10..10 + most {
        add(limit, 0).unwrap();
    }
    assert_eq!(add(7, 0), Err(CallLimitsError::TooMany), "every one is in use");
    assert_eq!(add(10, 0), Ok(MAX_CALL_LIMITS), "a known one");
    assert_eq!(add(7, 3_600_000_000), Ok(1), "all others have expired");
}

/// Otherwise a caller whose requests all fail could keep others from being asked under their limits.
#[test]
fn limits_without_a_state_take_no_room_from_others() {
    let (mut table, policy) = (Table::new(1 << 22, super::KeyHasher::new(1)), five());
    let empty = table.dump(&policy).unwrap();
    for limit in 1..2_500 {
        let own = table.with_limits(&policy, &of(limit), NOW).unwrap();
        assert!(table.decide(&own, "k", NOW, 1_000_000).is_err());
        assert!(table.decide(&own, "k", NOW, 0).unwrap().is_allowed());
    }
    assert_eq!(table.dump(&policy).unwrap(), empty);
    assert_eq!(ask(&mut table, &policy, 7_777, 1), (true, 7_776));
    for limit in 1..2_500 {
        table.with_limits(&policy, &of(limit), NOW).unwrap();
    }
    assert_eq!(ask(&mut table, &policy, 7_777, 1), (true, 7_775), "they have a state");
    let restored = table.restored(&policy, &table.dump(&policy).unwrap());
    assert_eq!(ask(&mut restored.unwrap(), &policy, 0, 3), (true, 0), "2 were used before");
}

#[test]
fn limits_that_cannot_be_read_or_are_too_long_are_refused() {
    let (mut table, policy) = (table(), five());
    for text in ["", "{", "{\"limits\":[]}", "{\"limits\":[],\"shadow\":true}", "[]", "\0"] {
        let error = table.with_limits(&policy, text, NOW).unwrap_err();
        assert!(matches!(error, CallLimitsError::Policy(_)), "{text:?}: {error}");
    }
    let long = of(5) + &" ".repeat(4_096);
    let error = table.with_limits(&policy, &long, NOW).unwrap_err();
    assert_eq!(error, CallLimitsError::Length(long.len()));
    assert!(error.to_string().starts_with("`limits`: expected at most 4096 bytes, found 4"));
}

#[test]
fn an_edit_leaves_states_under_callers_limits_alone() {
    let (mut table, old) = (table(), five());
    ask(&mut table, &old, 9, 6);
    let new = policy("limits = [{ algorithm = 'fixed_window', limit = 4, period = '1h' }]");
    let mut edited = super::table();
    edited.know_limits_of(&table, &new);
    for carried in table.into_carried(&old, &new) {
        assert!(edited.adopt(carried));
    }
    assert_eq!(ask(&mut edited, &new, 9, 3), (true, 0));
    assert_eq!(ask(&mut edited, &new, 0, 1), (false, 0));
}

proptest! {
    /// Limits of which none is smaller than half of another forget nothing.
    #[test]
    fn a_window_counts_every_unit_once_however_its_limit_changes(
        steps in proptest::collection::vec((0..=9_u64, 0..=4_u64), 1..60),
    ) {
        let (mut table, policy) = (table(), five());
        let mut used = 0;
        for (choice, cost) in steps {
            let limit = if choice == 0 { 5 } else { choice.max(5) };
            let (allowed, remaining) = ask(&mut table, &policy, choice.max(5) * u64::from(choice > 0), cost);
            let fits = cost == 0 || used + cost <= limit;
            prop_assert_eq!(allowed, fits);
            used += if fits { cost } else { 0 };
            prop_assert_eq!(remaining, limit.saturating_sub(used));
        }
        let asked: Vec<_> = (5..=9).map(|limit| ask(&mut table, &policy, limit, 0).1).collect();
        prop_assert_eq!(asked, (5..=9_u64).map(|limit| limit.saturating_sub(used)).collect::<Vec<_>>());
    }
}
