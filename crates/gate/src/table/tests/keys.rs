//! The tests set the units that a key has used, list the limited keys, and explain answers.

use std::string::{String, ToString};
use std::sync::Arc;
use std::vec::Vec;

use tidegate_core::lease::Id;
use tidegate_core::shed::{Draw, Share};
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
        ("algorithm = 'connections', limit = 1", lease, true),
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
        let (found, _) = table.limited(&policy, NOW.saturating_add(Micros(6_000_000)), 0);
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
        let (found, next) = table.limited(&policy, at, from);
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
    assert_eq!((table.len(), table.limited(&policy, at, 0)), (0, (Vec::new(), None)));
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
        "The key is on the list `deny`, so its requests are refused and are not counted."
    );
    assert_eq!(
        text("good", None),
        "The key is on the list `allow`, so its requests pass and are not counted."
    );
    let block = Operation::Block(Micros(90_000_000));
    assert_eq!(text("b", Some(block)), "The key is blocked for another 1 m 30 s.");
}

/// The explanation of a request of cost `cost`, after requests of these costs at the same time.
fn text_after(limits: &str, costs: &[u64], cost: u64) -> Explanation {
    let (policy, mut table) = (policy(limits), table());
    for cost in costs {
        let request = Request { lease: Some(Id([1, *cost])), ..Request::of(*cost) };
        let _ = table.operate(&policy, "k", NOW, Operation::Decide(request)).unwrap();
    }
    explained_at(&mut table, &policy, "k", NOW, cost).0
}

const IN_SHADOW: &str =
    "The request passes, because the policy is in shadow. Otherwise it would be refused: ";

#[test]
fn an_explanation_in_shadow_says_that_the_request_passes_and_what_would_refuse_it() {
    let (policy, mut table) = (
        policy(
            "shadow = true\ndeny = ['bad']\nlimits = [{ algorithm = 'fixed_window', limit = 5, period = '1m' }]",
        ),
        table(),
    );
    let mut text = |key, cost| explained_at(&mut table, &policy, key, NOW, cost).0.text;
    assert_eq!(
        text("k", 5),
        "The request passes. After it `p` has the least left (5 in every aligned 1 m): 0 of 5."
    );
    let refuses = "`p` refuses (5 in every aligned 1 m): 5 of 5 are left and the request costs 6; it never passes.";
    assert_eq!(text("k", 6), [IN_SHADOW, refuses].concat());
    let deny = "The key is on the list `deny`, so its requests are refused and are not counted.";
    assert_eq!(text("bad", 1), [IN_SHADOW, deny].concat());
    table.operate(&policy, "k", NOW, Operation::Block(Micros(7_000_000))).unwrap();
    let text = explained_at(&mut table, &policy, "k", NOW, 1).0.text;
    assert_eq!(text, [IN_SHADOW, "The key is blocked for another 7 s."].concat());
}

#[test]
fn an_explanation_names_the_limit_in_shadow_that_would_refuse_what_passes() {
    let two = "limits = [{ name = 'now', algorithm = 'fixed_window', limit = 9, period = '1h', start = 'first' },
        { name = 'planned', algorithm = 'fixed_window', limit = 2, period = '1m', start = 'first', shadow = true }]";
    let why = text_after(two, &[2], 1);
    assert_eq!(
        why.text,
        "The request passes, because `planned` is in shadow. Otherwise it would be refused: `planned` refuses \
         (2 in 1 m from a key's first request on): 0 of 2 are left and the request costs 1; it passes in 1 m."
    );
    assert_eq!(why.limit.as_deref(), Some("planned"));
    assert!(text_after(two, &[2, 7], 1).text.starts_with("`now` refuses ("));
    assert!(text_after(two, &[], 2).text.starts_with("The request passes. After it `now` has"));
}

#[test]
fn an_explanation_of_what_passes_names_the_limit_whose_numbers_the_answer_has() {
    let day = "{ name = 'day', algorithm = 'fixed_window', limit = 100, period = '24h', start = 'first' }";
    for beside in [
        "{ name = 'load', algorithm = 'utilization' }",
        "{ name = 'pen', algorithm = 'penalty', refusals = 2, within = '1m', duration = '10m' }",
        "{ name = 'one', algorithm = 'fleet_usage', capacity = 4, reserve = '50%', time_to_live = '1m' }",
        "{ name = 'lent', algorithm = 'budget', most = 1, time = '1s' }",
        "{ name = 'planned', algorithm = 'fixed_window', limit = 95, period = '1h', shadow = true }",
        "{ name = 'two', algorithm = 'sliding_log', rates = ['200/h'] }",
    ] {
        for limits in [[beside, day], [day, beside]] {
            let why = text_after(&std::format!("limits = [{}]", limits.join(", ")), &[90], 1);
            assert_eq!(
                why.text,
                "The request passes. After it `day` has the least left (100 in 1 d from a key's first request on): 9 of 100.",
                "{beside}"
            );
        }
    }
    let only = text_after("limits = [{ name = 'load', algorithm = 'utilization' }]", &[], 1);
    assert_eq!((only.limit.as_deref(), &*only.text), (Some("load"), "The request passes."));
}

#[test]
fn a_penalty_is_no_chance_and_counts_no_cost() {
    let limits = "limits = [{ name = 'one', algorithm = 'fixed_window', limit = 1, period = '1m', start = 'first' },
        { name = 'pen', algorithm = 'penalty', refusals = 2, within = '1m', duration = '10m' }]";
    let terms = "after 2 refusals within 1 m refuses everything for 10 m, twice as long each time up to 10 m; \
                 forgives after 10 m";
    let refused = text_after(limits, &[1, 1, 1], 1);
    assert_eq!(refused.text, std::format!("`pen` refuses ({terms}); it passes in 10 m."));
    let peeked = text_after(limits, &[1, 1, 1], 0);
    assert!(peeked.text.starts_with("The request passes. After it `one` has"), "{}", peeked.text);
    let wide = limits.replace("limit = 1,", "limit = 3,");
    let nothing = text_after(&wide, &[1, 3, 3], 0);
    assert_eq!(nothing.limit.as_deref(), Some("pen"), "under a penalty nothing is left");
}

#[test]
fn chance_decides_where_a_limit_sheds_and_nothing_else_refuses() {
    let load = "{ name = 'load', algorithm = 'utilization' }";
    let one =
        "{ name = 'one', algorithm = 'fixed_window', limit = 1, period = '1ms', start = 'first' }";
    let policy = policy(&std::format!("classes = ['bulk', 'vital']\nlimits = [{load}, {one}]"));
    let mut table = table();
    let mut shed = |later: u64, takes: bool| {
        let at = NOW.saturating_add(Micros(later));
        if takes {
            let request = Request { signal: Some(Share::WHOLE), ..Request::of(1) };
            let request = Request { draw: Draw(u32::MAX), ..request };
            assert!(
                table
                    .operate(&policy, "k", at, Operation::Decide(request))
                    .unwrap()
                    .decision
                    .is_allowed()
            );
        }
        explained_at(&mut table, &policy, "k", at, 1).0
    };
    for second in 0..6 {
        let _ = shed(second * 8_000_000, true);
    }
    let terms = policy.limits().iter().next().unwrap().limit.describe();
    let why = shed(60_000_000, false);
    assert_eq!(why.text, std::format!("`load` may refuse ({terms}); chance decides."));
    let both = shed(60_000_000, true);
    assert_eq!(
        both.text,
        "`one` refuses (1 in 1 ms from a key's first request on): 0 of 1 are left and the request costs 1; \
         it passes in 1 ms at the earliest."
    );
}

#[test]
fn a_lease_takes_one_place_whatever_the_request_costs() {
    let jobs = "{ name = 'jobs', algorithm = 'concurrency', capacity = 2, time_to_live = '90s' }";
    let why = text_after(&std::format!("limits = [{jobs}]"), &[1, 2], 5);
    assert_eq!(
        why.text,
        "`jobs` refuses (2 at once, each for 90 s unless renewed): 0 of 2 places are left; it passes in 1 m 30 s, \
         unless places are released or renewed."
    );
    let rate = "{ name = 'log', algorithm = 'sliding_log', rates = ['3/h'] }";
    let why = text_after(&std::format!("limits = [{jobs}, {rate}]"), &[1, 2], 1);
    assert!(why.text.ends_with("it passes in 1 h at the earliest."), "{}", why.text);
}

#[test]
fn a_wait_is_told_in_whole_seconds_and_exactly_below_one() {
    for (wait, words) in [
        (0, "0 d"),
        (1, "1 µs"),
        (1_500, "1500 µs"),
        (999_000, "999 ms"),
        (999_999, "999999 µs"),
        (1_000_000, "1 s"),
        (1_000_001, "2 s"),
        (59_000_001, "1 m"),
        (599_999_184, "10 m"),
        (3_092_867_895_086, "35 d 19 h 7 m 48 s"),
        (3_155_760_000_000_000, "36525 d"),
    ] {
        assert_eq!(crate::limit::wait(Micros(wait)), words, "{wait}");
    }
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
