//! The tests set the units that a key has used, list the limited keys, and explain answers.

use std::string::{String, ToString};
use std::sync::Arc;
use std::vec::Vec;

use tidegate_core::lease::Id;
use tidegate_core::shed::Draw;
use tidegate_core::{Micros, Timestamp};

use super::super::{KeyHasher, Table};
use super::table;
use crate::ask::{Ask, CheckForm};
use crate::decide::{Explanation, Verdict};
use crate::limit::{Operation, Request};
use crate::policy::Policy;
use tidegate_form::Bounded;

const NOW: Timestamp = Timestamp(1_700_000_000_000_000);

fn policy(text: &str) -> Arc<Policy> {
    Arc::new(Policy::parse("p", text).unwrap())
}

#[test]
fn every_limit_on_units_takes_over_what_is_set() {
    for limit in [
        "algorithm = 'token_bucket', capacity = 5, rate = '1/h'",
        "algorithm = 'token_bucket', capacity = 5, rate = '1/h', start = 'empty'",
        "algorithm = 'fixed_window', limit = 5, period = '1h'",
        "algorithm = 'fixed_window', limit = 5, period = '1h', start = 'first'",
        "algorithm = 'sliding_window', limit = 5, period = '1h', segments = 4",
        "algorithm = 'sliding_log', rates = ['5/h']",
    ] {
        let policy = policy(&std::format!("limits = [{{ {limit} }}]"));
        let mut table = table();
        for used in [3, 1, 5, 0, 2, 9, 4] {
            let said = table.set_used(&policy, "k", NOW, used).unwrap().decision;
            assert_eq!(said.remaining(), 5_u64.saturating_sub(used), "{limit}: {used}");
            let passes = table.decide(&policy, "k", NOW, 1).unwrap().is_allowed();
            assert_eq!(passes, used < 5, "{limit}: {used}");
        }
    }
}

#[test]
fn leases_stay_as_they_are_when_units_are_set() {
    let text = "limits = [{ algorithm = 'concurrency', capacity = 2, time_to_live = '1m' },
                          { algorithm = 'fixed_window', limit = 5, period = '1h' }]";
    let (policy, mut table) = (policy(text), table());
    let request = Request { lease: Some(Id([1, 1])), ..Request::of(1) };
    table.operate(&policy, "k", NOW, request).unwrap();
    let said = table.set_used(&policy, "k", NOW.saturating_add(Micros(9)), 2).unwrap();
    let remaining: Vec<u64> = said.limits.iter().map(|said| said.remaining()).collect();
    assert_eq!(remaining, [1, 3]);
}

#[test]
fn a_key_is_limited_by_its_leases_and_by_no_chance() {
    let lease = Request { lease: Some(Id([1, 1])), ..Request::of(1) };
    for (limit, request, is_limited) in [
        ("algorithm = 'concurrency', capacity = 1, time_to_live = '1m'", lease, true),
        ("algorithm = 'concurrency', capacity = 2, time_to_live = '1m'", lease, false),
        // at three times its limit it suppresses some requests
        (
            "algorithm = 'suppression', rate = '1/s'",
            Request { draw: Draw(u32::MAX), ..Request::of(30) },
            false,
        ),
    ] {
        let policy = policy(&std::format!("limits = [{{ {limit} }}]"));
        let mut table = table();
        let _ = table.operate(&policy, "k", NOW, request).unwrap();
        let (found, _) = table.limited(NOW.saturating_add(Micros(6_000_000)), 0);
        assert_eq!(!found.is_empty(), is_limited, "{limit}");
    }
}

#[test]
fn the_keys_that_are_limited_are_found_in_all_places() {
    let text = "limits = [{ name = 'all', algorithm = 'fixed_window', limit = 2, period = '1h' },
                          { name = 'gap', algorithm = 'sliding_log', rates = ['9/h'], min_gap = '5s' }]
                deny = ['bad']";
    let policy = policy(text);
    let mut table = Table::new(1 << 26, KeyHasher::new(1));
    for key in 0..30_000_u64 {
        let later = NOW.saturating_add(Micros(if key % 3 == 0 { 5_000_000 } else { 0 }));
        let _ = table.decide(&policy, &std::format!("key-{key}"), later, 1).unwrap();
    }
    table.operate(&policy, "key-1", NOW, Operation::Block(Micros(60_000_000))).unwrap();
    let _ = table.decide(&policy, "key-2", NOW.saturating_add(Micros(5_000_000)), 1).unwrap();
    let at = NOW.saturating_add(Micros(5_000_001));
    let (mut all, mut place, mut calls) = (Vec::new(), Some(0), 0);
    while let Some(from) = place {
        let (found, next) = table.limited(at, from);
        all.extend(found);
        (place, calls) = (next, calls + 1);
    }
    assert!(calls > 1, "a call looks at a part alone");
    let limit = |key: &str| {
        let found = all.iter().find(|limited| limited.key == key)?;
        Some((found.limit.clone(), found.retry_after.0))
    };
    assert_eq!(all.len(), 10_000 + 2);
    assert_eq!(limit("key-0"), Some((Some("gap".to_string()), 4_999_999)));
    assert_eq!(limit("key-1"), Some((None, 54_999_999)));
    assert_eq!(limit("key-2").unwrap().0, Some("all".to_string()));
    assert_eq!(limit("key-4"), None);
    table.clear();
    assert_eq!((table.len(), table.limited(at, 0)), (0, (Vec::new(), None)));
}

#[test]
fn an_explanation_names_the_limit_and_its_rate_or_gap() {
    let text = "limits = [{ name = 'burst', algorithm = 'token_bucket', capacity = 3, rate = '3/s' },
                          { name = 'log', algorithm = 'sliding_log', rates = ['2/s', '4/m'], min_gap = '100ms' }]
                deny = ['bad']
                allow = ['good']";
    let (policy, mut table) = (policy(text), table());
    let mut explained = |later: u64, takes: u64, cost: u64| {
        let at = NOW.saturating_add(Micros(later));
        for _ in 0..takes {
            assert!(table.decide(&policy, "k", at, 1).unwrap().is_allowed());
        }
        let before = table.words(policy.limits(), "k");
        let (why, verdict) = explained_at(&mut table, &policy, "k", at, cost);
        assert_eq!(table.words(policy.limits(), "k"), before);
        let peeked = table.operate(&policy, "k", at, Operation::Peek(Request::of(cost))).unwrap();
        assert_eq!(Verdict { effect: peeked.effect, ..verdict }, peeked);
        (why.limit.unwrap(), why.bound, why.text)
    };
    let of = |limit: &str, bound: &str, text: &str| -> (String, String, String) {
        (limit.into(), bound.into(), text.into())
    };
    assert_eq!(
        explained(0, 0, 1),
        of(
            "log",
            "2 in any 1 s and 4 in any 1 m, 100 ms apart",
            "The request passes. After it `log` has the least left (2 in any 1 s and 4 in any 1 m, 100 ms apart): \
             0 of 2."
        )
    );
    assert_eq!(
        explained(0, 1, 1),
        of(
            "log",
            "requests at least 100 ms apart",
            "`log` refuses (requests at least 100 ms apart): 0 of 2 are left and the request costs 1; it passes \
             in 100 ms."
        )
    );
    assert_eq!(explained(100_000, 1, 1).1, "2 in any 1 s");
    explained(1_100_000, 1, 1);
    assert_eq!(explained(1_200_000, 1, 1).1, "4 in any 1 m");
    let mut text = |key: &str, operation: Option<Operation>| {
        operation.map(|operation| table.operate(&policy, key, NOW, operation).unwrap());
        explained_at(&mut table, &policy, key, NOW, 1).0.text
    };
    assert_eq!(
        text("bad", None),
        "The key is on the list `deny`, so its requests are not counted."
    );
    assert_eq!(
        text("good", None),
        "The key is on the list `allow`, so its requests are not counted."
    );
    let block = Operation::Block(Micros(90_000_000));
    assert_eq!(text("b", Some(block)), "The key is blocked for another 90 s.");
}

#[test]
fn an_explanation_in_shadow_says_what_would_happen_without() {
    let shadow =
        "shadow = true\nlimits = [{ algorithm = 'fixed_window', limit = 5, period = '1m' }]";
    assert_eq!(
        explained_at(&mut table(), &policy(shadow), "k", NOW, 6).0.text,
        "`p` refuses (5 in every aligned 1 m): 5 of 5 are left and the request costs 6; it never passes."
    );
}

/// Why a request of this cost passes or not, and the verdict.
fn explained_at(
    table: &mut Table,
    policy: &Arc<Policy>,
    key: &str,
    at: Timestamp,
    cost: u64,
) -> (Explanation, Verdict) {
    let form = CheckForm { cost: Bounded::new(cost), ..CheckForm::default() };
    let asked = Ask::Explain(form).resolve(policy, key, &mut || None).unwrap();
    let verdict = asked.said(table.ask(asked.resolved(), at, &asked.operation()).unwrap());
    (asked.explain(&verdict).unwrap(), verdict)
}
