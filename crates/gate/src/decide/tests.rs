mod answers;

use std::format;
use std::vec;
use std::vec::Vec;

use crate::decide::Limits;
use crate::limit::{Budget, Offered, Operation, OperationError, Request, Settlement, Unspent};
use crate::policy::Policy;
use proptest::prelude::*;
use tidegate_core::lease::Id;
use tidegate_core::shed::utilization::Class;
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
fn a_penalty_begins_when_the_other_limits_refused_often_enough() {
    let policy = "limits = [
        { algorithm = 'fixed_window', limit = 1, period = '1s' },
        { algorithm = 'penalty', refusals = 3, within = '1m', duration = '5m' },
    ]";
    let limits = Policy::parse("p", policy).unwrap().limits().clone();
    let mut words = vec![0; limits.words()];
    let mut decide = |seconds: u64| {
        let now = Timestamp(seconds * 1_000_000);
        let decision = limits.decide(&mut words, now, &Request::of(1)).unwrap();
        (decision.is_allowed(), decision.limit(), decision.retry_after().0)
    };
    assert_eq!(decide(0), (true, 1, 0));
    for _ in 0..2 {
        assert_eq!(decide(0), (false, 1, 1_000_000), "by the window");
    }
    assert_eq!(decide(1), (true, 1, 0), "what passes is not counted");
    assert_eq!(decide(1), (false, 1, 300_000_000), "the third begins it");
    assert_eq!(decide(2), (false, 1, 299_000_000), "by the penalty");
    assert_eq!(decide(300), (false, 1, 1_000_000));
    assert_eq!(decide(301), (true, 1, 0));
    assert!(
        Policy::parse(
            "p",
            "limits = [{ algorithm = 'penalty', refusals = 3, within = '1m', duration = '5m' }]"
        )
        .is_err()
    );
}

#[test]
fn a_log_counts_a_refused_request_whoever_refused_it() {
    let policy = "limits = [
        { algorithm = 'token_bucket', capacity = 2, rate = '1/s' },
        { algorithm = 'sliding_log', rates = ['3/10s'], count_denied = true },
    ]";
    let limits = Policy::parse("p", policy).unwrap().limits().clone();
    let mut words = vec![0; limits.words()];
    let mut ask = |seconds: u64| {
        let now = Timestamp(seconds * 1_000_000);
        let verdict = limits.operate(&mut words, now, &1_u64.into()).unwrap();
        assert!(accepts(&limits, &words), "{words:?}");
        let decision = verdict.decision;
        let remaining: Vec<_> = verdict.limits.iter().map(Decision::remaining).collect();
        (decision.is_allowed(), remaining, decision.retry_after().0, decision.reset_after().0)
    };
    assert_eq!(ask(0), (true, vec![1, 2], 0, 10_000_000));
    assert_eq!(ask(0), (true, vec![0, 1], 0, 10_000_000));
    // the bucket alone refuses and has a token again 1 s later, but the log is full by then
    assert_eq!(ask(0), (false, vec![0, 0], 10_000_000, 10_000_000));
    assert_eq!(ask(9), (false, vec![2, 0], 1_000_000, 10_000_000), "by the log alone");
    assert_eq!(ask(18), (true, vec![1, 1], 0, 10_000_000));
}

#[test]
fn a_log_that_counts_refusals_decides_alike_whoever_refuses_first() {
    let log = "{ algorithm = 'sliding_log', rates = ['5/2ms', '3/1ms'], count_denied = true }";
    let window = "{ algorithm = 'fixed_window', limit = 2, period = '500us' }";
    let of = |policy: &str| Policy::parse("p", policy).unwrap().limits().clone();
    let (one, other) =
        (format!("limits = [{log}, {window}]"), format!("limits = [{window}, {log}]"));
    let (one, other) = (of(&one), of(&other));
    let (mut words, mut others) = (vec![0; one.words()], vec![0; other.words()]);
    // as the log alone would have it, if it were told of each request that came
    let mut actions: Vec<u64> = Vec::new();
    let mut now = 0;
    for k in 0..400_u64 {
        let cost = 1 + k % 2;
        now += k * k % 331;
        let asked = Request::of(cost);
        let decided = one.decide(&mut words, Timestamp(now), &asked).unwrap();
        assert_eq!(decided, other.decide(&mut others, Timestamp(now), &asked).unwrap());
        let full = |limit, period| {
            let inside = actions.iter().filter(|&&at| at + period > now).count();
            u64::try_from(inside).unwrap() + cost > limit
        };
        let by_log = !full(5, 2_000) && !full(3, 1_000);
        assert!(by_log || !decided.is_allowed(), "{k}");
        actions.extend((0..cost).map(|_| now));
        if !decided.is_allowed() {
            let before = Timestamp(now + decided.retry_after().0 - 1);
            let at = Timestamp(now + decided.retry_after().0);
            for (now, allowed) in [(before, false), (at, true)] {
                let later = one.decide(&mut words.clone(), now, &asked).unwrap();
                assert_eq!(later.is_allowed(), allowed, "{k}: retry_after is exact");
            }
        }
    }
}

#[test]
fn a_report_from_ahead_counts_now_and_moves_no_clock() {
    let policy = "limits = [
        { algorithm = 'suppression', rate = '1/s' },
        { algorithm = 'fixed_window', limit = 1, period = '1h' },
    ]";
    let limits = Policy::parse("p", policy).unwrap().limits().clone();
    let mut words = vec![0; limits.words()];
    let now = Timestamp(60_000_000);
    let mut report = |at: Option<u64>| {
        let at = at.map(Timestamp);
        let report = Operation::Report(Offered { at, admitted: 1, suppressed: 0 });
        let verdict = limits.operate(&mut words, now, &report).unwrap();
        assert!(accepts(&limits, &words), "{words:?}");
        // of the part in progress, and of the one before
        (verdict.at.0, [words[1], words[3]])
    };
    assert_eq!(report(None), (60_000_000, [1, 0]));
    assert_eq!(report(Some(59_000_000)), (60_000_000, [1, 1]));
    assert_eq!(report(Some(61_000_000)), (60_000_000, [2, 1]));
    assert_eq!(report(Some(u64::MAX)), (60_000_000, [3, 1]));
}

#[test]
fn suppression_counts_what_a_request_came_to_and_nothing_of_budgets() {
    let policy = "limits = [
        { algorithm = 'suppression', rate = '10/s' },
        { algorithm = 'fixed_window', limit = 50, period = '1h' },
        { algorithm = 'budget', most = 20, time = '1m' },
    ]";
    let limits = Policy::parse("p", policy).unwrap().limits().clone();
    let mut words = vec![0; limits.words()];
    // what passed in the part in progress, and in the one before
    let mut passed = |seconds: u64, asked: Operation| {
        limits.operate(&mut words, Timestamp(seconds * 1_000_000), &asked).unwrap();
        assert!(accepts(&limits, &words), "{words:?}");
        [words[1], words[3]]
    };
    let settle = |reserved, actual| {
        let granted_at = Timestamp(60_000_000);
        Operation::Settle(Settlement { granted_at, reserved, actual })
    };
    assert_eq!(passed(60, 20_u64.into()), [20, 0]);
    assert_eq!(passed(61, settle(20, 5)), [5, 0]);
    assert_eq!(passed(66, settle(5, 3)), [0, 3]);
    assert_eq!(passed(67, settle(3, 7)), [4, 3], "what was needed beyond counts now");
    let budget = |unspent| Operation::Budget(Budget { holder: Id([1, 0]), wants: 9, unspent });
    assert_eq!(passed(68, budget(None)), [4, 3]);
    let unspent = Some(Unspent { granted_at: Timestamp(68_000_000), left: 9 });
    assert_eq!(passed(69, budget(unspent)), [4, 3]);
}

#[test]
fn a_budget_counts_its_reset_from_the_time_that_is_asked_at() {
    let policy = "limits = [
        { algorithm = 'token_bucket', capacity = 10, rate = '10/s' },
        { algorithm = 'budget', most = 5, time = '2s' },
    ]";
    let limits = Policy::parse("p", policy).unwrap().limits().clone();
    let mut words = vec![0; limits.words()];
    let budget = Budget { holder: Id([1, 0]), wants: 5, unspent: None };
    let lent = limits.operate(&mut words, Timestamp(0), &Operation::Budget(budget)).unwrap();
    assert_eq!(lent.effect.allowance().unwrap().left, 5);
    for (at, reset_after) in [(0, 2_000_000), (1_500_000, 500_000), (2_000_000, 0), (9_000_000, 0)]
    {
        let now = Timestamp(at);
        let peeked = limits.operate(&mut words, now, &0_u64.into()).unwrap();
        assert_eq!(peeked.limits[1].reset_after(), Micros(reset_after));
        let decided = limits.operate(&mut words.clone(), now, &1_u64.into()).unwrap();
        assert_eq!(decided.decision.reset_after().0, reset_after.max(100_000), "of the bucket");
    }
}

#[test]
fn who_is_never_refused_moves_the_clock_of_a_fleet_too() {
    let policy = "limits = [
        { algorithm = 'fleet_usage', capacity = 10, reserve = '20%', time_to_live = '1s' },
        { algorithm = 'fixed_window', limit = 5, period = '1h' },
    ]";
    let limits = Policy::parse("p", policy).unwrap().limits().clone();
    let mut words = vec![0; limits.words()];
    let low = Request { lease: Some(Id([1, 0])), ..Request::of(1) };
    assert!(limits.decide(&mut words, Timestamp(7), &low).unwrap().is_allowed());
    let high = Request { class: Class::CRITICAL, ..Request::of(1) };
    assert!(limits.decide(&mut words, Timestamp(2_000_000), &high).unwrap().is_allowed());
    assert!(accepts(&limits, &words), "{words:?}");
}

#[test]
fn while_a_penalty_lasts_nothing_remains() {
    let policy = "limits = [
        { algorithm = 'fixed_window', limit = 2, period = '1s' },
        { algorithm = 'penalty', refusals = 1, within = '1m', duration = '5m' },
    ]";
    let limits = Policy::parse("p", policy).unwrap().limits().clone();
    let mut words = vec![0; limits.words()];
    let mut remains = |seconds: u64, cost: u64| {
        let now = Timestamp(seconds * 1_000_000);
        let verdict = limits.operate(&mut words, now, &cost.into()).unwrap();
        let (decision, window) = (verdict.decision, verdict.limits[0]);
        (decision.is_allowed(), decision.limit(), decision.remaining(), window.remaining())
    };
    assert_eq!(remains(0, 1), (true, 2, 1, 1));
    assert_eq!(remains(0, 2), (false, 2, 0, 1), "this one begins it");
    assert_eq!(remains(9, 1), (false, 2, 0, 2));
    assert_eq!(remains(9, 0), (true, 2, 0, 2), "to look is free");
    assert_eq!(remains(300, 0), (true, 2, 2, 2));
}

#[test]
fn who_is_under_a_penalty_is_granted_no_budget() {
    let policy = "limits = [
        { algorithm = 'fixed_window', limit = 9, period = '1s' },
        { algorithm = 'budget', most = 9, time = '1s' },
        { algorithm = 'penalty', refusals = 1, within = '1m', duration = '5m' },
    ]";
    let limits = Policy::parse("p", policy).unwrap().limits().clone();
    let mut words = vec![0; limits.words()];
    let mut granted = |at: u64, asked: Operation| {
        let verdict = limits.operate(&mut words, Timestamp(at), &asked).unwrap();
        verdict.effect.allowance().map(|allowance| allowance.left)
    };
    let holder = Id([1, 1]);
    let asked = Operation::Budget(Budget { holder, wants: 4, unspent: None });
    assert_eq!(granted(0, asked), Some(4));
    assert_eq!(granted(1, Request::of(6).into()), None, "refused, and penalised for it");
    let elsewhere = Operation::Budget(Budget { holder: Id([2, 2]), wants: 4, unspent: None });
    assert_eq!(granted(2_000_000, elsewhere), Some(0));
    assert_eq!(granted(301_000_000, elsewhere), Some(4));
}

#[test]
fn a_lease_lives_only_if_all_limits_that_hold_it_still_do() {
    let policy = "limits = [
        { algorithm = 'concurrency', capacity = 2, time_to_live = '2s' },
        { algorithm = 'concurrency', capacity = 3, time_to_live = '60s' },
    ]";
    let limits = Policy::parse("p", policy).unwrap().limits().clone();
    let mut words = vec![0; limits.words()];
    let mut live = |seconds: u64, asked: Operation| {
        limits.operate(&mut words, Timestamp(seconds * 1_000_000), &asked).unwrap().effect.live()
    };
    let id = Id([1, 0]);
    assert_eq!(live(0, Request { lease: Some(id), ..Request::of(1) }.into()), None);
    assert_eq!(live(1, Operation::Heartbeat(id)), Some(true));
    assert_eq!(live(4, Operation::Heartbeat(id)), Some(false), "the first has let it go");
    assert_eq!(live(4, Operation::Release(id)), Some(true), "the second had it still");
    assert_eq!(live(4, Operation::Release(id)), Some(false));
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
