//! Limits in shadow beside limits that refuse.

use std::format;
use std::string::{String, ToString};
use std::sync::Arc;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;
use tidegate_core::{Decision, Micros, Timestamp};

use crate::decide::{Effect, Limits, Verdict};
use crate::limit::{Operation, Request};
use crate::policy::{Policy, Resolved};
use crate::{Ask, Id};

const TWO: &str = "limits = [
  { name = 'now', algorithm = 'fixed_window', limit = 3, period = '1m' },
  { name = 'planned', algorithm = 'fixed_window', limit = 2, period = '1m', shadow = true },
]";

fn limits(text: &str) -> Limits {
    Policy::parse("p", text).unwrap_or_else(|error| panic!("{error}: {text}")).limits().clone()
}

fn each(verdict: &Verdict) -> Vec<(bool, u64)> {
    verdict.limits.iter().map(|said| (said.is_allowed(), said.remaining())).collect()
}

#[test]
fn a_limit_in_shadow_refuses_nothing_and_takes_nothing_that_it_would_refuse() {
    let limits = limits(TWO);
    let mut words = vec![0; limits.words()];
    for (cost, allowed, remaining, said, would_refuse) in [
        (1, true, 2, [(true, 2), (true, 1)], false),
        (2, true, 0, [(true, 0), (false, 1)], true),
        (1, false, 0, [(false, 0), (true, 1)], false), // a refusal takes nothing from either
        (3, false, 0, [(false, 0), (false, 1)], true), // a cost that the limit in shadow can never grant
    ] {
        let verdict = limits.operate(&mut words, Timestamp(7), &cost.into()).unwrap();
        let decision = verdict.decision;
        assert_eq!((decision.is_allowed(), decision.remaining()), (allowed, remaining), "{cost}");
        assert_eq!(each(&verdict), said, "{cost}");
        let soft = limits.softness(&verdict);
        assert_eq!(soft.would_refuse(), would_refuse, "{cost}");
        assert_eq!(soft.would_allow(allowed), Some(allowed && !would_refuse), "{cost}");
        let flags: Vec<_> = soft.each().take(3).collect();
        assert_eq!(
            flags,
            [(false, false), (true, false), (false, false)],
            "the second is in shadow"
        );
        assert_eq!(decision.limit(), 3, "the numbers are those of the limit that refuses");
        let looked = limits.operate(&mut words, Timestamp(7), &Operation::Peek(Request::of(0)));
        let left: Vec<_> = each(&looked.unwrap()).into_iter().map(|(_, left)| left).collect();
        assert_eq!(left, said.map(|(_, left)| left), "{cost}");
    }
    let open = self::limits(&TWO.replace(", shadow = true", ""));
    let verdict = open.operate(&mut vec![0; open.words()], Timestamp(7), &1_u64.into()).unwrap();
    assert_eq!(open.softness(&verdict).would_allow(true), None, "no limit is in shadow");
    assert!(limits.are_soft() && !open.are_soft());
    assert_eq!(limits.capacity(), 3, "the cost is bounded by what refuses");
    let never = limits.operate(&mut words, Timestamp(7), &3_u64.into()).unwrap().limits[1];
    assert_eq!(never.retry_after(), Micros::MAX);
}

#[test]
fn a_state_stays_when_a_limit_leaves_the_shadow() {
    let enforced = TWO.replace(", shadow = true", "");
    let [in_shadow, enforced] = [TWO, &enforced].map(limits);
    let [one, other] = [&in_shadow, &enforced].map(|limits| &limits.records()[0]);
    assert_eq!((one.identity(), one.fingerprint()), (other.identity(), other.fingerprint()));
    let mut words = vec![0; in_shadow.words()];
    let _ = in_shadow.operate(&mut words, Timestamp(7), &2_u64.into()).unwrap();
    assert!(!enforced.decide(&mut words, Timestamp(7), &Request::of(1)).unwrap().is_allowed());
}

#[test]
fn limits_in_numbers_say_which_are_in_shadow() {
    let own = limits(TWO);
    let read = Policy::of_parameters(&own.parameters()).unwrap();
    assert_eq!(read.limits().parameters(), own.parameters());
    assert_eq!(read.limits().shadows(), 0b10);
    let enforced = limits(&TWO.replace(", shadow = true", ""));
    assert_ne!(enforced.parameters(), own.parameters());
    assert!(Policy::of_parameters(&[1, 200]).is_err(), "a shadow of nothing");
    assert!(Policy::of_parameters(&[7, 200, 200, 1, 2, 3, 1_000_000, 0]).is_err());
}

#[test]
fn a_limit_in_shadow_stands_beside_one_that_refuses() {
    let window = "algorithm = 'fixed_window', limit = 2, period = '1m'";
    for (policy, expected) in [
        (
            format!("limits = [{{ {window}, shadow = true }}]"),
            "`shadow`: expected a limit beside it that refuses",
        ),
        (
            format!(
                "limits = [{{ {window}, shadow = true }}, {{ algorithm = 'penalty', refusals = 1, within = '1m', duration = '1m' }}]"
            ),
            "expected a limit whose refusals `penalty` counts",
        ),
        (
            format!(
                "limits = [{{ {window} }}, {{ {window}, shadow = true }}]\nlocal = {{ most = 1, time = '1s' }}"
            ),
            "`shadow`: expected no budget beside it and no `suppression`, because a node that spends units or goes by a factor asks no limit; found `local`",
        ),
        (
            format!(
                "limits = [{{ {window} }}, {{ algorithm = 'suppression', rate = '9/s', shadow = true }}]"
            ),
            "asks no limit; found `limit-2`",
        ),
        (
            format!(
                "limits = [{{ {window}, shadow = true }}, {{ algorithm = 'concurrency', capacity = 1, time_to_live = '1m' }}]\nreservations = {{}}"
            ),
            "`reservations`: expected a limit on units over time beside it",
        ),
        (format!("limits = [{{ {window}, shadow = 1 }}]"), "expected a boolean"),
    ] {
        let error = Policy::parse("p", &policy).unwrap_err().to_string();
        assert!(error.contains(expected), "{policy}: {error}");
    }
}

#[test]
fn an_override_may_put_a_limit_in_shadow() {
    let text = format!(
        "{TWO}\noverrides = {{ a = {{ limits = [
      {{ name = 'now', algorithm = 'fixed_window', limit = 9, period = '1m' }},
      {{ name = 'planned', algorithm = 'fixed_window', limit = 2, period = '1m', shadow = true }},
    ] }} }}"
    );
    let policy = Arc::new(Policy::parse("p", &text).unwrap());
    let own = Resolved::new(&policy, "a").unwrap();
    assert_eq!((own.limits().unwrap().capacity(), own.limits().unwrap().shadows()), (9, 0b10));
}

#[test]
fn a_penalty_counts_no_refusal_of_a_limit_in_shadow() {
    let limits = limits(&TWO.replace(
        "\n]",
        "\n  { algorithm = 'penalty', refusals = 1, within = '1m', duration = '1m' },\n]",
    ));
    let mut words = vec![0; limits.words()];
    let passed = limits.operate(&mut words, Timestamp(7), &3_u64.into()).unwrap();
    assert!(limits.softness(&passed).would_refuse() && passed.limits[2].is_allowed());
    let refused = limits.operate(&mut words, Timestamp(7), &1_u64.into()).unwrap();
    assert!(!refused.limits[2].is_allowed(), "a refusal by the limit that refuses counts");
}

/// Asks a policy with a store of words.
struct Key(Arc<Policy>, Vec<u64>);

impl Key {
    fn of(policy: &str) -> Self {
        let policy = Arc::new(Policy::parse("p", policy).unwrap());
        let words = vec![0; policy.limits().words()];
        Self(policy, words)
    }

    fn ask(&mut self, at: u64, json: &str) -> Verdict {
        let Self(policy, words) = self;
        let asked = Ask::parse(json).unwrap().resolve(policy, "k", &mut || None).unwrap();
        let at = Timestamp(at * 1_000_000);
        let verdict = policy.limits().operate(words, at, &asked.operation());
        asked.said(verdict.unwrap())
    }

    fn left(&mut self, at: u64) -> Vec<u64> {
        self.ask(at, r#"{"peek":{}}"#).limits.iter().map(Decision::remaining).collect()
    }
}

#[test]
fn a_limit_in_shadow_refuses_no_reservation_and_takes_nothing_at_its_commit() {
    let mut key = Key::of(&format!(
        "{}\nreservations = {{ time_to_live = '10s', remember = '5s' }}",
        TWO.replace("limit = 3", "limit = 30").replace("limit = 2", "limit = 20")
    ));
    let reserved = |verdict: &Verdict| matches!(verdict.effect, Effect::Reserved { units: 15, .. });
    let first = key.ask(1, r#"{"reserve":{"cost":15,"id":"a"}}"#);
    assert!(first.decision.is_allowed() && reserved(&first));
    let second = key.ask(2, r#"{"reserve":{"cost":15,"id":"b"}}"#);
    assert!(second.decision.is_allowed() && reserved(&second), "{second:?}");
    assert_eq!((each(&second), key.left(2)), ([(true, 0), (false, 5)].into(), [0, 5].into()));
    let committed = key.ask(3, r#"{"commit":{"id":"b","actual":4}}"#);
    assert_eq!(committed.effect, Effect::Committed { charged: 4, late: false, by: None });
    assert_eq!(key.left(3), [11, 5], "the limit in shadow has not held it");
    for at in [4, 5] {
        let committed = key.ask(at, r#"{"commit":{"id":"a","actual":3}}"#);
        assert_eq!(committed.effect, Effect::Committed { charged: 3, late: false, by: None });
        assert_eq!(key.left(at), [23, 17]);
    }
    let late = key.ask(6, r#"{"commit":{"id":"c","actual":2}}"#);
    assert_eq!(late.effect, Effect::Committed { charged: 2, late: true, by: None });
    assert_eq!(key.left(6), [21, 17]);
}

#[test]
fn a_limit_on_leases_in_shadow_ends_no_lease() {
    let mut key = Key::of("limits = [
      { name = 'units', algorithm = 'fixed_window', limit = 30, period = '1m' },
      { name = 'places', algorithm = 'concurrency', capacity = 1, time_to_live = '1m', shadow = true },
    ]");
    let live = |verdict: Verdict| verdict.effect.live();
    assert!(key.ask(1, r#"{"check":{"lease":"a"}}"#).decision.is_allowed());
    let second = key.ask(1, r#"{"check":{"lease":"b"}}"#);
    assert_eq!(
        (second.decision.is_allowed(), each(&second)),
        (true, [(true, 28), (false, 0)].into())
    );
    for lease in ["a", "b"] {
        assert_eq!(live(key.ask(1, &format!(r#"{{"renew":{{"lease":"{lease}"}}}}"#))), Some(true));
    }
    for (lease, held) in [("b", false), ("a", true)] {
        assert_eq!(
            live(key.ask(1, &format!(r#"{{"release":{{"lease":"{lease}"}}}}"#))),
            Some(held)
        );
    }
    assert_eq!(key.left(1), [28, 1]);
}

#[test]
fn a_refund_returns_nothing_that_a_limit_in_shadow_cannot_have_taken() {
    let mut key = Key::of(TWO);
    assert!(key.ask(1, r#"{"check":{"cost":2}}"#).decision.is_allowed());
    key.ask(1, r#"{"refund":{"units":3}}"#);
    assert_eq!(key.left(1), [3, 0]);
    key.ask(1, r#"{"refund":{"units":2}}"#);
    assert_eq!(key.left(1), [3, 2], "the limit in shadow can have taken 2");
}

/// Limits of every kind that may be in shadow.
const KINDS: [&str; 8] = [
    "algorithm = 'token_bucket', capacity = 4, rate = '2/ms'",
    "algorithm = 'fixed_window', limit = 3, period = '2ms'",
    "algorithm = 'sliding_window', limit = 5, period = '6ms', segments = 3",
    "algorithm = 'sliding_log', rates = ['3/3ms'], min_gap = '50us'",
    "algorithm = 'sliding_log', rates = ['3/3ms'], count_denied = true",
    "algorithm = 'concurrency', capacity = 2, time_to_live = '3ms'",
    "algorithm = 'fleet_usage', capacity = 4, reserve = '50%', time_to_live = '3ms'",
    "algorithm = 'penalty', refusals = 2, within = '3ms', duration = '2ms'",
];

proptest! {
    #[test]
    fn limits_in_shadow_change_no_decision_and_count_as_if_each_decided_alone(
        enforced in 0..5_usize,
        shadows in proptest::collection::vec(0..KINDS.len(), 1..4),
        steps in proptest::collection::vec((0..2_000_u64, 0..5_u64, 0..4_u8), 1..60),
    ) {
        let shadow: String = shadows.iter().map(|kind| format!(", {{ {}, shadow = true }}", KINDS[*kind])).collect();
        // the longest period is that of a limit that refuses, so that all have the same clock
        let own = format!("{{ {} }}, {{ algorithm = 'fixed_window', limit = 9, period = '6ms' }}", KINDS[enforced]);
        let with = limits(&format!("limits = [{own}{shadow}]"));
        let without = limits(&format!("limits = [{own}]"));
        let (mut all, mut few) = (vec![0; with.words()], vec![0; without.words()]);
        let mut alone: Vec<Vec<u64>> =
            with.iter().skip(2).map(|named| vec![0; named.limit.words()]).collect();
        let mut now = 1_000_000;
        for (by, cost, lease) in steps {
            now += by;
            let at = Timestamp(now);
            let request = Request { lease: Some(Id([lease.into(), 1])), ..Request::of(cost.min(without.capacity())) };
            let looked = with.operate(&mut all.clone(), at, &Operation::Peek(request)).unwrap();
            let said = with.operate(&mut all, at, &Operation::Decide(request)).unwrap();
            let expected = without.operate(&mut few, at, &Operation::Decide(request)).unwrap();
            prop_assert_eq!(said.decision.is_allowed(), expected.decision.is_allowed());
            prop_assert_eq!((said.decision.limit(), said.decision.remaining()), (expected.decision.limit(), expected.decision.remaining()));
            prop_assert_eq!(said.decision.retry_after(), expected.decision.retry_after());
            prop_assert_eq!(&said.limits[..2], &expected.limits[..]);
            let mut decided = all.clone();
            let mut explained = with.decide(&mut decided, at, &Request::of(0)).unwrap();
            prop_assert_eq!(explained.remaining(), with.operate(&mut decided, at, &Operation::Peek(Request::of(0))).unwrap().decision.remaining());
            explained = said.decision;
            let passes = explained.is_allowed();
            for ((named, words), said) in with.iter().skip(2).zip(&mut alone).zip(&said.limits[2..]) {
                let limit = &named.limit;
                if request.cost == 0 {
                    continue;
                }
                let grants = limit.grants(words, at, &request);
                match grants {
                    Ok(true) if passes => prop_assert_eq!(*said, limit.decide(words, at, &request).unwrap()),
                    Ok(grants) => prop_assert_eq!(*said, limit.refuse(words, at, &request, grants).unwrap().0),
                    Err(_) => {
                        limit.advance(words, at);
                        prop_assert_eq!(said.retry_after(), Micros::MAX);
                    }
                }
            }
            if request.cost > 0 {
                prop_assert_eq!(&all[without.words()..], &alone.concat()[..]);
                prop_assert_eq!(&all[..without.words()], &few[..]);
            }
            if passes {
                prop_assert_eq!(looked.limits, said.limits, "a peek answers as the request");
            }
            prop_assert!(with.split(&all).all(|(record, words)| record.accepts(words).is_ok()));
        }
    }
}
