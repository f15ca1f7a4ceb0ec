//! The promises that every limiter makes, as properties that each limiter's tests call.

use core::hash::Hash;
use std::vec::Vec;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use tidegate_reference::{Oracle, Outcome, Rule};

use crate::window::{Refund, fixed, log, sliding};
use crate::{CostExceedsCapacity, Decision, InvalidState, Micros, Timestamp, bucket};

type Answer = Result<Decision, CostExceedsCapacity>;

/// An oracle as the properties see it.
pub(crate) trait Model: Clone + Eq + Hash + core::fmt::Debug {
    fn decide(&mut self, now: u64, cost: u64) -> Option<Outcome>;
    fn refund(&mut self, granted_at: u64, cost: u64);
    fn charge(&mut self, now: u64, cost: u64);
    /// What alone decides every later answer.
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

/// A limiter as the properties see it.
pub(crate) trait Subject: Copy {
    type State: Clone + Eq + Hash + core::fmt::Debug;
    type Oracle: Model;
    fn oracle(self) -> Self::Oracle;
    fn fresh(self) -> Self::State;
    fn newest(state: &Self::State) -> Timestamp;
    fn decide(self, state: &mut Self::State, now: Timestamp, cost: u64) -> Answer;
    fn peek(self, state: &Self::State, now: Timestamp, cost: u64) -> Answer;
    fn refund(self, state: &mut Self::State, refund: Refund);
    fn charge(self, state: &mut Self::State, now: Timestamp, cost: u64);
    fn advance(self, state: &mut Self::State, now: Timestamp);
    fn expires_at(self, state: &Self::State) -> Timestamp;
    fn accepts(self, state: &Self::State) -> Result<(), InvalidState>;
}

macro_rules! subject {
    ($config:ty, $state:ty, $oracle:ty, fresh: $fresh:expr, oracle: $new:expr, refund: $refund:expr) => {
        impl Subject for $config {
            type State = $state;
            type Oracle = $oracle;
            fn oracle(self) -> Self::Oracle {
                $new(self)
            }
            fn fresh(self) -> Self::State {
                $fresh(self)
            }
            fn newest(state: &Self::State) -> Timestamp {
                state.newest()
            }
            fn decide(self, state: &mut Self::State, now: Timestamp, cost: u64) -> Answer {
                <$config>::decide(&self, state, now, cost)
            }
            fn peek(self, state: &Self::State, now: Timestamp, cost: u64) -> Answer {
                <$config>::peek(&self, state, now, cost)
            }
            fn refund(self, state: &mut Self::State, refund: Refund) {
                $refund(self, state, refund)
            }
            fn charge(self, state: &mut Self::State, now: Timestamp, cost: u64) {
                <$config>::charge(&self, state, now, cost);
            }
            fn advance(self, state: &mut Self::State, now: Timestamp) {
                <$config>::advance(&self, state, now);
            }
            fn expires_at(self, state: &Self::State) -> Timestamp {
                <$config>::expires_at(&self, state)
            }
            fn accepts(self, state: &Self::State) -> Result<(), InvalidState> {
                <$config>::accepts(&self, state)
            }
        }
    };
}

subject!(
    bucket::Config,
    bucket::State,
    Oracle,
    fresh: |_| bucket::State::default(),
    oracle: |config: Self| Oracle::new(Rule::TokenBucket {
        capacity: config.capacity(),
        units: config.rate().0,
        period: config.rate().1.0,
        starts_empty: config.starts_empty(),
    }),
    refund: |config: Self, state: &mut _, refund: Refund| {
        bucket::Config::refund(&config, state, refund.cost)
    }
);
subject!(
    fixed::Config,
    fixed::State,
    Oracle,
    fresh: |_| fixed::State::default(),
    oracle: |config: Self| Oracle::new(Rule::FixedWindow {
        limit: config.limit(),
        period: config.period().0,
    }),
    refund: |config: Self, state: &mut _, refund| fixed::Config::refund(&config, state, refund)
);
subject!(
    sliding::Config,
    sliding::State<Vec<u64>>,
    Oracle,
    fresh: |config: Self| config.state(std::vec![0; config.segments() + 1]).unwrap(),
    oracle: |config: Self| Oracle::new(Rule::SlidingWindow {
        limit: config.limit(),
        period: config.period().0,
        segments: u64::try_from(config.segments()).unwrap(),
    }),
    refund: |config: Self, state: &mut _, refund| sliding::Config::refund(&config, state, refund)
);
subject!(
    log::Config,
    log::State<Vec<u64>>,
    tidegate_reference::log::Log,
    fresh: |config: Self| config.state(std::vec![0; config.words()]).unwrap(),
    oracle: |config: Self| tidegate_reference::log::Log::new(
        config.windows().iter().map(|window| (window.limit, window.period.0)).collect(),
        config.min_gap().0,
        config.denied() == log::Denied::Counted,
    ),
    refund: |config: Self, state: &mut _, refund| log::Config::refund(&config, state, refund)
);

/// One step of a random history: where the time goes from the last one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Ahead(u64),
    Back(u64),
    To(u64),
    /// To just before (false) or at (true) the moment that the last refusal named.
    Retry(bool),
    /// The same, and so much of the last grant comes back.
    Refund(u64),
    /// The same, and so much more is spent, whether it is there or not.
    Charge(u64),
}

/// Histories whose steps are of the order of `period` µs, and whose costs go up to `most`.
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
    let mut state = subject.fresh();
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
            last_grant = newest(subject, &state);
        }
    }
    Ok(())
}

fn newest<S: Subject>(_: S, state: &S::State) -> Timestamp {
    S::newest(state)
}

pub(crate) fn outcome(answer: Answer) -> Option<Outcome> {
    answer.ok().map(|decision| Outcome {
        allowed: decision.is_allowed(),
        remaining: decision.remaining(),
        retry_after: decision.retry_after().0,
        reset_after: decision.reset_after().0,
    })
}

/// Requests as (µs since the last one, cost from 1 to `most`).
pub(crate) fn requests(gap: u64, most: u64) -> impl Strategy<Value = Vec<(u64, u64)>> {
    proptest::collection::vec((0..=gap, 1..=most), 1..60)
}

pub(crate) fn retry_after_is_the_first_microsecond_that_grants(
    subject: impl Subject,
    requests: Vec<(u64, u64)>,
) -> Result<(), TestCaseError> {
    let mut state = subject.fresh();
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

/// What a refusal leaves is what time alone would have left.
pub(crate) fn a_refusal_consumes_nothing(
    subject: impl Subject,
    requests: Vec<(u64, u64)>,
) -> Result<(), TestCaseError> {
    let mut state = subject.fresh();
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
    let mut state = subject.fresh();
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
        prop_assert!(before.reset_after() > Micros::ZERO, "not a microsecond sooner");
    }
    let mut fresh = subject.fresh();
    let at = expires.saturating_add(later);
    prop_assert_eq!(
        subject.decide(&mut state, at, last_cost).unwrap(),
        subject.decide(&mut fresh, at, last_cost).unwrap()
    );
    prop_assert_eq!(state, fresh);
    Ok(())
}

/// What was granted, as (time, cost), of requests at a clock that only goes forward.
pub(crate) fn grants(subject: impl Subject, requests: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    let mut state = subject.fresh();
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

/// After a jump ahead and a return, what the limiter had granted is paid off within its period,
/// counted from the return.
pub(crate) fn a_jump_and_back_locks_for_no_longer_than_a_period(
    subject: impl Subject,
    period: Micros,
    most: u64,
) {
    for ahead in [period.0 + 1, 1 << 40, u64::MAX - 1_000_000_000] {
        let mut state = subject.fresh();
        let sane = Timestamp(1_000_000_000);
        let jumped = sane.saturating_add(Micros(ahead));
        assert!(subject.decide(&mut state, jumped, most).unwrap().is_allowed());
        assert!(!subject.decide(&mut state, sane, most).unwrap().is_allowed(), "{ahead}");
        let later = sane.saturating_add(period);
        assert!(subject.decide(&mut state, later, 1).unwrap().is_allowed(), "{ahead}");
    }
}

/// A decision as the tables write it: allowed, remaining, retry after, reset after.
pub(crate) fn tuple(decision: Decision) -> (bool, u64, u64, u64) {
    let (retry, reset) = (decision.retry_after().0, decision.reset_after().0);
    (decision.is_allowed(), decision.remaining(), retry, reset)
}
