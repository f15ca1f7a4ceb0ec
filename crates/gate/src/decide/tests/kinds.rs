//! Limits of several kinds beside each other: what each counts of a request that another limit decides.

use super::*;
use crate::decide::Effect;
use crate::limit::{Budget, Grant, Offered, Unspent};
use crate::table::{KeyHasher, Table};
use std::string::ToString;
use tidegate_core::lease::budget::Allowance;
use tidegate_core::shed::utilization::Class;

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
    let refund =
        |unused, units| Operation::RefundOf(Grant { at: Timestamp(60_000_000), units }, unused);
    assert_eq!(passed(60, 20_u64.into()), [20, 0]);
    assert_eq!(passed(61, refund(15, 20)), [5, 0]);
    assert_eq!(passed(66, refund(2, 5)), [0, 3]);
    assert_eq!(passed(67, Operation::Charge(4)), [4, 3], "a charge counts now");
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
fn a_lease_is_released_if_any_limit_holds_it_and_lives_if_all_do() {
    let policy = "limits = [
        { name = 'a', algorithm = 'concurrency', capacity = 2, time_to_live = '1m' },
        { name = 'b', algorithm = 'concurrency', capacity = 3, time_to_live = '9s' },
    ]";
    let limits = Policy::parse("p", policy).unwrap().limits().clone();
    let (id, mut words) = (Id([0, 1]), vec![0; limits.words()]);
    let mut effect = |seconds: u64, operation| {
        let now = Timestamp(seconds * 1_000_000);
        limits.operate(&mut words, now, &operation).unwrap().effect
    };
    let acquire = Operation::Decide(Request { lease: Some(id), ..Request::of(1) });
    for (seconds, operation, live) in [
        (1, Operation::Heartbeat(id), true),
        (2, Operation::Release(id), true),
        (2, Operation::Release(id), false),
    ] {
        if seconds == 1 {
            effect(0, acquire);
        }
        assert_eq!(effect(seconds, operation), Effect::Lease { live }, "{operation:?}");
    }
    effect(2, acquire);
    assert_eq!(
        effect(12, Operation::Heartbeat(id)),
        Effect::Lease { live: false },
        "b has lost it"
    );
    assert_eq!(effect(12, Operation::Release(id)), Effect::Lease { live: true }, "a had it");
}

#[test]
fn a_lease_is_renewed_three_times_in_its_shortest_life() {
    let lease = |name, time| {
        format!(
            "{{ name = '{name}', algorithm = 'concurrency', capacity = 2, time_to_live = '{time}' }}"
        )
    };
    let window = "{ algorithm = 'fixed_window', limit = 5, period = '1s' }";
    for (limits, every) in [
        (window.to_string(), None),
        (format!("{window}, {}", lease("a", "60s")), Some(20_000_000)),
        (format!("{}, {}", lease("a", "60s"), lease("b", "10s")), Some(3_333_333)),
    ] {
        let policy = Policy::parse("p", &format!("limits = [{limits}]")).unwrap();
        assert_eq!(policy.limits().renew_every().map(|span| span.0), every, "{limits}");
    }
}

#[test]
fn units_that_a_holder_gives_back_return_to_the_limits_once() {
    let policy = "limits = [
        { algorithm = 'fixed_window', limit = 50, period = '1h' },
        { algorithm = 'budget', most = 20, time = '1m' },
    ]";
    let limits = Policy::parse("p", policy).unwrap().limits().clone();
    let mut words = vec![0; limits.words()];
    let mut ask = |wants, left: Option<u64>| {
        let unspent = left.map(|left| Unspent { granted_at: Timestamp(7), left });
        let budget = Operation::Budget(Budget { holder: Id([1, 0]), wants, unspent });
        let verdict = limits.operate(&mut words, Timestamp(7), &budget).unwrap();
        let Effect::Budget { returned, allowance } = verdict.effect else { panic!("{verdict:?}") };
        (returned, allowance, verdict.decision.remaining())
    };
    let (granted_at, expires_at) = (Timestamp(7), Timestamp(60_000_007));
    assert_eq!(ask(9, None), (None, Allowance { left: 9, granted_at, expires_at }, 41));
    let nothing = Allowance::default();
    assert_eq!(ask(0, Some(9)), (Some(true), nothing, 50));
    assert_eq!(ask(0, Some(9)), (Some(false), nothing, 50));
    limits.set_used(&mut words, Timestamp(7), 50);
    let budget = Operation::Budget(Budget { holder: Id([1, 0]), wants: 9, unspent: None });
    let lent = limits.operate(&mut words, Timestamp(8), &budget).unwrap();
    assert_eq!(lent.effect.allowance(), Some(nothing), "a grant of nothing has no time");
}

#[test]
fn a_state_with_words_too_many_is_none() {
    let limits = limits();
    let record = &limits.records()[0];
    for (more, accepted) in [(0, true), (1, false), (2, false)] {
        let words = vec![0; limits.words() + more];
        assert_eq!(record.accepts(&words).is_ok(), accepted, "{more}");
    }
}

#[test]
fn a_policy_that_is_read_again_goes_on_with_its_states() {
    let [first, second] = [THREE; 2].map(|text| Policy::parse("three", text).unwrap());
    let mut table = Table::new(1 << 16, KeyHasher::new(1));
    assert!(table.decide(&first, "k", Timestamp(0), 4).unwrap().is_allowed());
    assert!(!table.decide(&second, "k", Timestamp(0), 1).unwrap().is_allowed());
    assert_eq!(table.len(), 1);
}

#[test]
fn each_effect_has_numbers_of_its_own() {
    let (granted_at, expires_at, until) = (Timestamp(2), Timestamp(3), Timestamp(4));
    let allowance = Allowance { left: 1, granted_at, expires_at };
    for (effect, kind, numbers) in [
        (Effect::Decision, 0, [0; 3]),
        (Effect::Lease { live: false }, 1, [0; 3]),
        (Effect::Lease { live: true }, 2, [0; 3]),
        (Effect::Budget { returned: None, allowance }, 3, [1, 2, 3]),
        (Effect::Budget { returned: Some(false), allowance }, 4, [1, 2, 3]),
        (Effect::Budget { returned: Some(true), allowance }, 5, [1, 2, 3]),
        (Effect::Reserved { units: 5, until, by: None }, 6, [5, 4, 0]),
        (Effect::Reserved { units: 5, until, by: Some(0) }, 6, [5, 4, 1]),
        (Effect::Committed { charged: 6, late: false, by: None }, 7, [6, 0, 0]),
        (Effect::Committed { charged: 6, late: true, by: Some(2) }, 8, [6, 3, 0]),
        (Effect::Paid { by: 2 }, 9, [3, 0, 0]),
        (Effect::OtherRequest, 10, [0; 3]),
        (Effect::Bound { part: 2 }, 11, [2, 0, 0]),
        (Effect::Blocked { left: Micros(9) }, 12, [9, 0, 0]),
        (Effect::Full { limit: 0, by: None }, 13, [0; 3]),
        (Effect::Full { limit: 1, by: Some(2) }, 13, [1, 3, 0]),
    ] {
        assert_eq!(effect.to_numbers(), (kind, numbers), "{effect:?}");
        assert_eq!(Effect::of_numbers(kind, numbers).as_ref(), Some(&effect));
    }
    for (kind, numbers) in [
        (0, [1, 0, 0]),
        (7, [6, 257, 0]), // no place of a payer
        (9, [0; 3]),
        (10, [0, 0, 1]),
        (11, [256, 0, 0]),
        (13, [256, 0, 0]),
        (13, [0, 0, 1]),
        (14, [0; 3]),
    ] {
        assert_eq!(Effect::of_numbers(kind, numbers), None, "{kind} {numbers:?}");
    }
}
