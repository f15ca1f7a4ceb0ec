use std::vec;
use std::vec::Vec;

use proptest::prelude::*;
use tidegate_core::{Decision, Micros, Timestamp};

use crate::limits::Limits;
use crate::policy::Policy;

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
    assert!(limits.decide(&mut words, Timestamp(0), 3).unwrap().is_allowed());
    let verdict = limits.decide_and_explain(&mut words, Timestamp(0), 2).unwrap();
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
    assert!(limits.decide(&mut words, Timestamp(0), 1).unwrap().is_allowed(), "a light one passes");
}

#[test]
fn a_cost_that_one_limit_can_never_grant_is_an_error() {
    let limits = limits();
    let mut words = vec![0; limits.words()];
    let error = limits.decide(&mut words, Timestamp(0), 5).unwrap_err();
    assert_eq!((error.cost, error.capacity, limits.most_at_once()), (5, 4, 4));
    assert_eq!(words, vec![0; limits.words()]);
}

#[test]
fn a_state_of_another_length_grants_nothing() {
    let limits = limits();
    for length in (0..30).filter(|&length| length < limits.words()) {
        assert!(limits.decide(&mut vec![0; length], Timestamp(0), 1).is_err());
        assert!(!accepts(&limits, &vec![0; length]));
    }
}

#[test]
fn a_clock_at_its_end_still_keeps_the_state() {
    let limits = limits();
    let mut words = vec![0; limits.words()];
    let _ = limits.decide(&mut words, Timestamp(u64::MAX), 1).unwrap();
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
            let decision = limits.decide(&mut unexplained, at, cost).unwrap();
            let verdict = limits.decide_and_explain(&mut words, at, cost).unwrap();
            prop_assert_eq!((verdict.decision, &words), (decision, &unexplained));
            let each: Vec<Decision> = limits.iter().zip(&alone)
                .map(|(limit, words)| limit.limit.peek(words, taken, cost).unwrap()).collect();
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
                    prop_assert_eq!(limit.limit.decide(words, taken, cost).unwrap(), *said);
                } else {
                    limit.limit.advance(words, taken);
                    prop_assert_eq!(limit.limit.peek(words, taken, 0).unwrap().remaining(), said.remaining());
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
                prop_assert!(!limits.decide(&mut words.clone(), sooner, cost).unwrap().is_allowed());
                prop_assert!(limits.decide(&mut words, then, cost).unwrap().is_allowed());
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
            let _ = limits.decide(&mut words, now, cost).unwrap();
        }
        let end = now.saturating_add(time_to_live(&limits, &words, now));
        prop_assert_eq!(time_to_live(&limits, &words, end), Micros::ZERO);
        let at = end.saturating_add(Micros(later));
        let mut fresh = vec![0; limits.words()];
        prop_assert_eq!(
            limits.decide_and_explain(&mut words, at, cost).unwrap(),
            limits.decide_and_explain(&mut fresh, at, cost).unwrap()
        );
        prop_assert_eq!(words, fresh);
    }
}
