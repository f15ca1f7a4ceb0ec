//! The guarantees of every rate limiter, as properties that each limiter's tests call.

use core::hash::Hash;
use std::vec::Vec;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use tidegate_reference::{Oracle, Outcome};

use crate::window::{Refund, calendar};
use crate::{CostExceedsCapacity, Decision, Limiter, Micros, RateLimiter, State, Timestamp};

type Answer = Result<Decision, CostExceedsCapacity>;

/// An oracle as the properties see it.
pub(crate) trait Model: Clone + Eq + Hash + core::fmt::Debug {
    fn decide(&mut self, now: u64, cost: u64) -> Option<Outcome>;
    fn refund(&mut self, granted_at: u64, cost: u64);
    fn charge(&mut self, now: u64, cost: u64);
    /// The facts that determine every later answer.
    fn essence(&self) -> Vec<i128>;
}

macro_rules! model {
    ($oracle:ty) => {
        impl Model for $oracle {
            fn decide(&mut self, now: u64, cost: u64) -> Option<Outcome> {
                <$oracle>::decide(self, now, cost)
            }
            fn refund(&mut self, granted_at: u64, cost: u64) {
                <$oracle>::refund(self, granted_at, cost);
            }
            fn charge(&mut self, now: u64, cost: u64) {
                <$oracle>::charge(self, now, cost);
            }
            fn essence(&self) -> Vec<i128> {
                <$oracle>::essence(self)
            }
        }
    };
}

model!(Oracle);
model!(tidegate_reference::log::Log);

/// A limiter as the properties see it, with its oracle. Each limiter's tests implement it.
pub(crate) trait Subject: RateLimiter + Copy + Eq + Hash + core::fmt::Debug {
    type Oracle: Model;
    fn oracle(self) -> Self::Oracle;
}

/// Calendar windows with these boundaries, in µs.
pub(crate) type Listed = calendar::Config<calendar::Instants<&'static [Timestamp]>>;

pub(crate) fn listed(limit: u64, boundaries: &[u64]) -> Listed {
    let boundaries: Vec<Timestamp> = boundaries.iter().copied().map(Timestamp).collect();
    let boundaries = calendar::Instants::new(&*boundaries.leak()).unwrap();
    calendar::Config::new(limit, boundaries).unwrap()
}

/// The state of a key never seen.
pub(crate) fn fresh<L: Limiter + Copy>(limiter: L) -> State<L, Vec<u64>> {
    limiter.state(std::vec![0; limiter.words()]).unwrap()
}

/// One step of a random history: how the time changes from the last step.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Ahead(u64),
    Back(u64),
    To(u64),
    /// The time is at (true) or just before (false) the moment that the last refusal named.
    Retry(bool),
    /// The time stays, and this many units of the last grant are refunded.
    Refund(u64),
    /// The time stays, and this many units are charged, whether the limiter has room or not.
    Charge(u64),
}

/// Histories with steps of the order of `period` µs and costs up to `most` + 1.
pub(crate) fn history(period: u64, most: u64) -> impl Strategy<Value = Vec<(Step, u64)>> {
    let step = prop_oneof![
        6 => (0..=period).prop_map(Step::Ahead),
        2 => (0..=period * 2).prop_map(Step::Back),
        1 => prop_oneof![Just(0), Just(u64::MAX), 0..1_u64 << 40].prop_map(Step::To),
        4 => any::<bool>().prop_map(Step::Retry),
        1 => (0..=most).prop_map(Step::Refund),
        1 => (0..=most * 2).prop_map(Step::Charge),
    ];
    proptest::collection::vec((step, 0..=most + 1), 1..60)
}

pub(crate) fn equals_the_oracle(
    subject: impl Subject,
    steps: Vec<(Step, u64)>,
) -> Result<(), TestCaseError> {
    let mut oracle = subject.oracle();
    let mut state = fresh(subject);
    let (mut now, mut retry, mut last_grant) = (1_000_000_u64, 0, Timestamp(0));
    for (step, cost) in steps {
        match step {
            Step::Ahead(by) => now = now.saturating_add(by),
            Step::Back(by) => now = now.saturating_sub(by),
            Step::To(time) => now = time,
            Step::Retry(at) => now = now.saturating_add(retry).saturating_sub(u64::from(!at)),
            Step::Refund(cost) => {
                subject.refund(&mut state, Refund { granted_at: last_grant, cost });
                oracle.refund(last_grant.0, cost);
            }
            Step::Charge(cost) => {
                subject.charge(&mut state, Timestamp(now), cost);
                oracle.charge(now, cost);
            }
        }
        let before = state.clone();
        let expected = oracle.decide(now, cost);
        let peeked = outcome(subject.peek(&state, Timestamp(now), cost));
        prop_assert_eq!(&state, &before, "a peek changes nothing");
        let decided = outcome(subject.decide(&mut state, Timestamp(now), cost));
        prop_assert_eq!(decided, expected, "{:?} at {} cost {}", before, now, cost);
        prop_assert_eq!(peeked, expected, "peek, {:?} at {} cost {}", before, now, cost);
        prop_assert!(subject.accepts(&state).is_ok(), "{:?}", state);
        retry = expected.map_or(0, |outcome| outcome.retry_after);
        if expected.is_some_and(|outcome| outcome.allowed) && cost > 0 {
            last_grant = state.newest();
        }
    }
    Ok(())
}

pub(crate) fn outcome(answer: Answer) -> Option<Outcome> {
    answer.ok().map(|decision| Outcome {
        allowed: decision.is_allowed(),
        remaining: decision.remaining(),
        retry_after: decision.retry_after().0,
        reset_after: decision.reset_after().0,
    })
}

/// What a process does after it has stored a state that was charged ahead, and what another does on this
/// state after the first has died.
#[derive(Clone, Debug)]
pub(crate) struct Crash {
    pub(crate) units: u64,
    pub(crate) span: Micros,
    /// (µs since the last request, cost)
    pub(crate) before: Vec<(u64, u64)>,
    /// The first (false) or last (true) time is that of the stored state.
    pub(crate) goes_back: bool,
    pub(crate) after: Vec<(u64, u64)>,
}

/// A gap until the moment from which the charged units cover nothing.
const TO_THE_END: u64 = u64::MAX;

pub(crate) fn crash(period: u64, most: u64) -> impl Strategy<Value = Crash> {
    let gap = move || prop_oneof![0..=period / 8, 0..=period];
    let before = (prop_oneof![4 => gap(), 1 => Just(TO_THE_END)], 1..=most);
    let before = proptest::collection::vec(before, 1..20);
    let after = proptest::collection::vec((gap(), 1..=most), 1..20);
    let parts = (0..=most * 2, 0..=period * 2, before, any::<bool>(), after);
    parts.prop_map(|(units, span, before, goes_back, after)| Crash {
        units,
        span: Micros(span),
        before,
        goes_back,
        after,
    })
}

/// The stored state refuses whatever the lost state would have refused, and goes on doing so after the same
/// grants.
pub(crate) fn what_is_charged_ahead_is_never_granted_twice(
    subject: impl Subject,
    steps: Vec<(Step, u64)>,
    crash: &Crash,
) -> Result<(), TestCaseError> {
    let (mut now, mut state) = (Timestamp(1_700_000_000_000_000), fresh(subject));
    for (step, cost) in steps {
        match step {
            Step::Ahead(by) => now = now.saturating_add(Micros(by)),
            Step::Back(by) => now = Timestamp(now.0 - by),
            Step::Charge(cost) => subject.charge(&mut state, now, cost),
            _ => {}
        }
        let _ = subject.decide(&mut state, now, cost);
    }
    let mut stored = state.clone();
    let Some(ahead) = subject.charge_ahead(&mut stored, crash.units, crash.span) else {
        prop_assert_eq!(stored, state, "nothing has changed");
        return Ok(());
    };
    prop_assert!(subject.accepts(&stored).is_ok(), "{:?}", stored);
    prop_assert_eq!(stored.newest(), state.newest(), "its time stays");
    prop_assert!(ahead.units <= crash.units && ahead.until >= state.newest());
    let (mut left, mut now) = (ahead.units, state.newest());
    for &(gap, cost) in &crash.before {
        now = if gap == TO_THE_END { ahead.until } else { now.saturating_add(Micros(gap)) };
        let cost = cost.min(left.max(1)); // so that all units are often used up
        let before = state.clone();
        let decided = subject.decide(&mut state, now, cost).unwrap();
        match left.checked_sub(cost) {
            // a refusal that the clock forgets may have opened a segment in which more would count later
            _ if !decided.is_allowed() && (!crash.goes_back || state.newest() < ahead.until) => {}
            Some(less) if decided.is_allowed() && state.newest() < ahead.until => left = less,
            _ => state = before, // another state must be stored first
        }
    }
    let mut now = if crash.goes_back { stored.newest() } else { now };
    for &(gap, cost) in &crash.after {
        now = now.saturating_add(Micros(gap));
        // as soon as the stored state grants the request, the lost one would have granted it
        let granted_at =
            now.saturating_add(subject.peek(&stored, now, cost).unwrap().retry_after());
        let said = subject.peek(&state, granted_at, cost).unwrap();
        prop_assert!(said.is_allowed(), "{:?} {:?} {} at {:?}", stored, state, cost, granted_at);
        if granted_at == now {
            let _ = subject.decide(&mut stored, now, cost).unwrap();
            let _ = subject.decide(&mut state, now, cost).unwrap();
        }
    }
    Ok(())
}

/// Requests as (µs since the last one, cost from 1 to `most`).
pub(crate) fn requests(gap: u64, most: u64) -> impl Strategy<Value = Vec<(u64, u64)>> {
    proptest::collection::vec((0..=gap, 1..=most), 1..60)
}

pub(crate) fn retry_after_is_the_first_microsecond_that_grants(
    subject: impl Subject,
    requests: Vec<(u64, u64)>,
) -> Result<(), TestCaseError> {
    let mut state = fresh(subject);
    let mut now = Timestamp(0);
    for (gap, cost) in requests {
        now = now.saturating_add(Micros(gap));
        if let Decision::Deny { retry_after, .. } = subject.decide(&mut state, now, cost).unwrap() {
            let at = now.saturating_add(retry_after);
            prop_assert!(!subject.peek(&state, Timestamp(at.0 - 1), cost).unwrap().is_allowed());
            prop_assert!(subject.peek(&state, at, cost).unwrap().is_allowed());
        }
    }
    Ok(())
}

/// After a refusal, the state equals one that was only advanced to the same time.
pub(crate) fn a_refusal_consumes_nothing(
    subject: impl Subject,
    requests: Vec<(u64, u64)>,
) -> Result<(), TestCaseError> {
    let mut state = fresh(subject);
    let mut now = Timestamp(0);
    for (gap, cost) in requests {
        now = now.saturating_add(Micros(gap));
        let mut advanced = state.clone();
        subject.advance(&mut advanced, now);
        if !subject.decide(&mut state, now, cost).unwrap().is_allowed() {
            prop_assert_eq!(&state, &advanced);
        }
    }
    Ok(())
}

pub(crate) fn from_expires_at_on_it_equals_a_fresh_one(
    subject: impl Subject,
    requests: Vec<(u64, u64)>,
    later: Micros,
) -> Result<(), TestCaseError> {
    let mut state = fresh(subject);
    let mut now = Timestamp(0);
    let mut last_cost = 1;
    for (gap, cost) in requests {
        now = now.saturating_add(Micros(gap));
        last_cost = cost;
        let _ = subject.decide(&mut state, now, cost).unwrap();
    }
    let expires = subject.expires_at(&state);
    if expires > now {
        let before = subject.peek(&state, Timestamp(expires.0 - 1), 0).unwrap();
        prop_assert!(before.reset_after() > Micros::ZERO, "a microsecond sooner it is not fresh");
    }
    let mut fresh = fresh(subject);
    let at = expires.saturating_add(later);
    prop_assert_eq!(
        subject.decide(&mut state, at, last_cost).unwrap(),
        subject.decide(&mut fresh, at, last_cost).unwrap()
    );
    prop_assert_eq!(state, fresh);
    Ok(())
}

/// The grants, as (time, cost), to requests at a clock that only goes forward.
pub(crate) fn grants(subject: impl Subject, requests: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    let mut state = fresh(subject);
    let mut now = Timestamp(0);
    let mut grants = Vec::new();
    for (gap, cost) in requests {
        now = now.saturating_add(Micros(gap));
        if subject.decide(&mut state, now, cost).unwrap().is_allowed() {
            grants.push((now.0, cost));
        }
    }
    grants
}

/// After a clock has jumped ahead and returned, all that was granted is paid off within one period
/// of the return.
pub(crate) fn a_jump_and_back_locks_for_no_longer_than_a_period(
    subject: impl Subject,
    period: Micros,
    most: u64,
) {
    for ahead in [period.0 + 1, 1 << 40, u64::MAX - 1_000_000_000] {
        let mut state = fresh(subject);
        let sane = Timestamp(1_000_000_000);
        let jumped = sane.saturating_add(Micros(ahead));
        assert!(subject.decide(&mut state, jumped, most).unwrap().is_allowed());
        assert!(!subject.decide(&mut state, sane, most).unwrap().is_allowed(), "{ahead}");
        let later = sane.saturating_add(period);
        assert!(subject.decide(&mut state, later, 1).unwrap().is_allowed(), "{ahead}");
    }
}

/// A decision as the tables write it: (allowed, remaining, retry after, reset after).
pub(crate) fn tuple(decision: Decision) -> (bool, u64, u64, u64) {
    let (retry, reset) = (decision.retry_after().0, decision.reset_after().0);
    (decision.is_allowed(), decision.remaining(), retry, reset)
}
