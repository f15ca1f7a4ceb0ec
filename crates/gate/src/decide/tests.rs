mod answers;
mod histories;
mod kinds;
mod payers;
mod reservations;
mod shadows;
mod warnings;

use std::format;
use std::vec;
use std::vec::Vec;

use crate::decide::Limits;
use crate::limit::{Operation, OperationError, Request};
use crate::policy::Policy;
use proptest::prelude::*;
use tidegate_core::lease::Id;
use tidegate_core::{CostExceedsCapacity, Decision, Micros, Timestamp};

const THREE: &str = r#"
limits = [
  { algorithm = "token_bucket", capacity = 4, rate = "2/ms" },
  { algorithm = "fixed_window", limit = 6, period = "2ms" },
  { algorithm = "sliding_window", limit = 10, period = "6ms", segments = 3 },
]"#;

fn limits() -> Limits {
    Policy::parse("three", THREE).unwrap().limits().clone()
}

fn time_to_live(limits: &Limits, words: &[u64], now: Timestamp) -> Micros {
    limits.split(words).map(|(part, words)| part.time_to_live(words, now)).max().unwrap()
}

fn accepts(limits: &Limits, words: &[u64]) -> bool {
    words.len() == limits.words()
        && limits.split(words).all(|(part, words)| part.accepts(words).is_ok())
}

#[test]
fn a_refusal_by_one_consumes_nothing_of_the_others() {
    let limits = limits();
    let mut words = vec![0; limits.words()];
    assert!(limits.decide(&mut words, Timestamp(0), &Request::of(3)).unwrap().is_allowed());
    let verdict = limits.operate(&mut words, Timestamp(0), &2_u64.into()).unwrap();
    // the bucket has 1 of 4 left, the window 3 of 6, the sliding window 7 of 10
    assert_eq!(
        verdict.decision,
        Decision::Deny {
            limit: 4,
            remaining: 1,
            retry_after: Micros(500),
            reset_after: Micros(8_000),
        }
    );
    let remaining: Vec<_> = verdict.limits.iter().map(|limit| limit.remaining()).collect();
    let allowed: Vec<_> = verdict.limits.iter().map(Decision::is_allowed).collect();
    assert_eq!((remaining, allowed), (vec![1, 3, 7], vec![false, true, true]));
    assert!(
        limits.decide(&mut words, Timestamp(0), &Request::of(1)).unwrap().is_allowed(),
        "a light one passes"
    );
}

#[test]
fn a_cost_that_one_limit_can_never_grant_is_an_error() {
    let limits = limits();
    let mut words = vec![0; limits.words()];
    let error = limits.decide(&mut words, Timestamp(0), &Request::of(5)).unwrap_err();
    let expected = CostExceedsCapacity { cost: 5, capacity: 4 };
    assert_eq!((error, limits.capacity()), (OperationError::Cost(expected), 4));
    assert_eq!(words, vec![0; limits.words()]);
}

#[test]
fn limits_that_hold_leases_refuse_to_decide_without_one() {
    for limit in [
        "algorithm = 'concurrency', capacity = 1, time_to_live = '1m'",
        "algorithm = 'connections', limit = 1",
        "algorithm = 'fleet_usage', capacity = 2, reserve = '50%', time_to_live = '1m'",
    ] {
        let beside = "{ algorithm = 'fixed_window', limit = 9, period = '1m', name = 'w' }";
        for text in [std::format!("{{ {limit} }}"), std::format!("{beside}, {{ {limit} }}")] {
            let policy = Policy::parse("p", &std::format!("limits = [{text}]")).unwrap();
            let limits = policy.limits();
            let mut words = vec![0; limits.words()];
            let no_lease = Request::of(1);
            let error = limits.decide(&mut words, Timestamp(0), &no_lease).unwrap_err();
            assert_eq!(error, OperationError::NeedsLease, "{text}");
            let error = limits.operate(&mut words, Timestamp(0), &no_lease.into()).unwrap_err();
            assert_eq!(error, OperationError::NeedsLease, "{text}");
            assert_eq!(words, vec![0; limits.words()], "nothing has changed");
            assert!(limits.decide(&mut words, Timestamp(0), &Request::of(0)).unwrap().is_allowed());
        }
    }
}

#[test]
fn a_state_of_another_length_grants_nothing() {
    let limits = limits();
    for length in (0..30).filter(|&length| length < limits.words()) {
        assert!(limits.decide(&mut vec![0; length], Timestamp(0), &Request::of(1)).is_err());
        assert!(!accepts(&limits, &vec![0; length]));
    }
}

#[test]
fn a_clock_at_its_end_still_keeps_the_state() {
    let limits = limits();
    let mut words = vec![0; limits.words()];
    let _ = limits.decide(&mut words, Timestamp(u64::MAX), &Request::of(1)).unwrap();
    assert!(time_to_live(&limits, &words, Timestamp(u64::MAX)) > Micros::ZERO);
}

proptest! {
    #[test]
    fn several_limits_together_are_as_strict_as_the_strictest(
        steps in proptest::collection::vec((0..9_000_u64, any::<bool>(), 0..5_u64), 1..80),
    ) {
        let limits = limits();
        let mut words = vec![0; limits.words()];
        let mut alone: Vec<Vec<u64>> =
            limits.iter().map(|limit| vec![0; limit.limit.words()]).collect();
        let mut now = 1_000_000_u64;
        for (by, ahead, cost) in steps {
            now = if ahead { now + by } else { now - by };
            let newest = Timestamp(words[1]);
            let at = Timestamp(now);
            let taken = at.taken_after(newest, Micros(6_000)); // the longest period
            let before = words.clone();
            let mut unexplained = words.clone();
            let decision = limits.decide(&mut unexplained, at, &Request::of(cost)).unwrap();
            let verdict = limits.operate(&mut words, at, &cost.into()).unwrap();
            prop_assert_eq!((verdict.decision, &words), (decision, &unexplained));
            let each: Vec<Decision> = limits.iter().zip(&alone)
                .map(|(limit, words)| limit.limit.peek(words, taken, &Request::of(cost)).unwrap()).collect();
            let allowed = each.iter().all(Decision::is_allowed);
            prop_assert_eq!(verdict.decision.is_allowed(), allowed);
            prop_assert_eq!(
                verdict.decision.retry_after(),
                each.iter().map(Decision::retry_after).max().unwrap()
            );
            if cost == 0 {
                prop_assert_eq!(&words, &before, "a peek changes nothing");
            }
            for ((limit, words), said) in limits.iter().zip(&mut alone).zip(&verdict.limits) {
                if allowed {
                    prop_assert_eq!(limit.limit.decide(words, taken, &Request::of(cost)).unwrap(), *said);
                } else {
                    let grants = limit.limit.grants(words, taken, &Request::of(cost)).unwrap();
                    let (told, _) = limit.limit.refuse(words, taken, &Request::of(cost), grants).unwrap();
                    prop_assert_eq!(told, *said);
                    prop_assert_eq!(limit.limit.peek(words, taken, &Request::of(0)).unwrap().remaining(), said.remaining());
                }
            }
            prop_assert_eq!(words.as_slice(), alone.concat());
            prop_assert!(accepts(&limits, &words));
            let most = verdict.limits.iter().map(Decision::reset_after).max().unwrap();
            prop_assert_eq!(verdict.decision.reset_after(), most);
            if let Decision::Deny { retry_after, .. } = verdict.decision {
                let then = taken.saturating_add(retry_after);
                let mut words = words.clone();
                let sooner = Timestamp(then.0 - 1);
                prop_assert!(!limits.decide(&mut words.clone(), sooner, &Request::of(cost)).unwrap().is_allowed());
                prop_assert!(limits.decide(&mut words, then, &Request::of(cost)).unwrap().is_allowed());
            }
        }
    }

    #[test]
    fn after_its_time_to_live_a_state_equals_a_fresh_one(
        steps in proptest::collection::vec((0..3_000_u64, 1..5_u64), 1..20),
        (later, cost) in (0..10_000_u64, 1..5_u64),
    ) {
        let limits = limits();
        let mut words = vec![0; limits.words()];
        let mut now = Timestamp(0);
        for (by, cost) in steps {
            now = now.saturating_add(Micros(by));
            let _ = limits.decide(&mut words, now, &Request::of(cost)).unwrap();
        }
        let end = now.saturating_add(time_to_live(&limits, &words, now));
        prop_assert_eq!(time_to_live(&limits, &words, end), Micros::ZERO);
        let at = end.saturating_add(Micros(later));
        let mut fresh = vec![0; limits.words()];
        prop_assert_eq!(
            limits.operate(&mut words, at, &cost.into()).unwrap(),
            limits.operate(&mut fresh, at, &cost.into()).unwrap()
        );
        prop_assert_eq!(words, fresh);
    }
}

#[test]
fn words_of_other_limits_are_no_state() {
    let policy = "limits = [
      { algorithm = 'fixed_window', name = 'a', limit = 5, period = '1m' },
      { algorithm = 'token_bucket', name = 'b', capacity = 5, rate = '1/s' },
    ]";
    let policy = Policy::parse("api", policy).unwrap();
    let limits = policy.limits();
    for length in [0, limits.words() - 1, limits.words() + 1, limits.words() * 2] {
        let mut words = vec![0; length];
        let invalid = Err(OperationError::InvalidState);
        assert_eq!(limits.decide(&mut words, Timestamp(7), &Request::of(1)), invalid);
        let operated = limits.operate(&mut words, Timestamp(7), &Operation::from(1));
        assert_eq!(operated.map(|said| said.decision), Err(OperationError::InvalidState));
        assert!(words.iter().all(|word| *word == 0), "nothing has changed");
    }
}

#[test]
fn words_of_other_limits_do_not_expire() {
    let policy = "limits = [
      { algorithm = 'fixed_window', name = 'a', limit = 5, period = '1m' },
      { algorithm = 'token_bucket', name = 'b', capacity = 5, rate = '1/s' },
    ]";
    let policy = Policy::parse("api", policy).unwrap();
    let [record] = policy.limits().records() else { panic!("both count by the whole key") };
    for length in 0..record.words() {
        for now in [0, 7, 1_700_000_000_000_000, u64::MAX].map(Timestamp) {
            assert!(record.time_to_live(&vec![0; length], now) > Micros::ZERO, "{length} words");
        }
    }
}
