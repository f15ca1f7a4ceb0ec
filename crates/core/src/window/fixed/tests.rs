use proptest::prelude::*;

use super::{Config, State};
use crate::window::Refund;
use crate::{Limiter, MAX_QUANTITY, Micros, RateLimiter, Timestamp, properties};

fn config(limit: u64, period_us: u64) -> Config {
    Config::new(limit, Micros(period_us)).unwrap()
}

#[test]
fn decides_as_worked_out_by_hand() {
    // 5 per second. Rows: time, cost, (allowed, remaining, retry after, reset after)
    let config = config(5, 1_000_000);
    let mut state = State::default();
    for (now, cost, expected) in [
        (0, 0, (true, 5, 0, 0)),
        (10, 3, (true, 2, 0, 999_990)),
        (20, 3, (false, 2, 999_980, 999_980)),
        (30, 2, (true, 0, 0, 999_970)),
        (20, 1, (false, 0, 999_970, 999_970)), // back in time: taken as at 30
        (999_999, 1, (false, 0, 1, 1)),
        (1_000_000, 5, (true, 0, 0, 1_000_000)),
        (900_000, 1, (false, 0, 1_000_000, 1_000_000)), // the earlier window does not come back
        (2_500_000, 1, (true, 4, 0, 500_000)),
    ] {
        let decision = config.decide(&mut state, Timestamp(now), cost).unwrap();
        assert_eq!(properties::tuple(decision), expected, "at {now}, cost {cost}");
    }
}

#[test]
fn a_refund_counts_in_its_own_window_only() {
    let config = config(5, 100);
    let mut state = State::default();
    assert!(config.decide(&mut state, Timestamp(50), 5).unwrap().is_allowed());
    config.refund(&mut state, Refund { granted_at: Timestamp(50), cost: 2 });
    assert_eq!(config.peek(&state, Timestamp(60), 0).unwrap().remaining(), 2);
    assert!(config.decide(&mut state, Timestamp(100), 5).unwrap().is_allowed());
    config.refund(&mut state, Refund { granted_at: Timestamp(50), cost: 3 });
    assert_eq!(config.peek(&state, Timestamp(110), 0).unwrap().remaining(), 0);
}

#[test]
fn zero_and_more_than_javascript_can_count_are_refused() {
    assert!(Config::new(0, Micros(1)).is_err());
    assert!(Config::new(1, Micros(0)).is_err());
    assert!(Config::new(MAX_QUANTITY + 1, Micros(1)).is_err());
    assert!(Config::new(MAX_QUANTITY, Micros::MAX).is_ok());
}

#[test]
fn a_jump_ahead_and_back_locks_for_no_longer_than_the_period() {
    let config = config(5, 1_000_000);
    properties::a_jump_and_back_locks_for_no_longer_than_a_period(config, config.period(), 5);
}

#[test]
fn a_foreign_state_is_noticed() {
    assert!(config(5, 100).accepts(&config(5, 100).state([10, 7]).unwrap()).is_ok(), "in debt");
    assert!(config(5, 100).accepts(&config(5, 100).state([11, 7]).unwrap()).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_500))] // of 30 operations: 135,000

    #[test]
    fn equals_the_oracle(
        (limit, period, steps) in (1..20_u64, 1..2_000_u64).prop_flat_map(|(limit, period)| {
            (Just(limit), Just(period), properties::history(period, limit))
        }),
    ) {
        properties::equals_the_oracle(config(limit, period), steps)?;
    }

    #[test]
    fn what_is_charged_ahead_is_never_granted_twice(
        (limit, period, steps, crash) in (1..20_u64, 1..2_000_u64).prop_flat_map(|(limit, period)| {
            let steps = properties::history(period, limit);
            (Just(limit), Just(period), steps, properties::crash(period, limit))
        }),
    ) {
        let config = config(limit, period);
        properties::what_is_charged_ahead_is_never_granted_twice(config, steps, &crash)?;
    }
}

proptest! {
    #[test]
    fn retry_after_is_the_first_microsecond_that_grants(
        (limit, period) in (50..1_000_u64, 1..5_000_000_u64),
        requests in properties::requests(200_000, 50),
    ) {
        let config = config(limit, period);
        properties::retry_after_is_the_first_microsecond_that_grants(config, requests)?;
    }

    #[test]
    fn a_refusal_consumes_nothing(
        (limit, period) in (10..50_u64, 1..5_000_u64),
        requests in properties::requests(2_000, 10),
    ) {
        properties::a_refusal_consumes_nothing(config(limit, period), requests)?;
    }

    #[test]
    fn from_expires_at_on_it_equals_a_fresh_one(
        (limit, period) in (10..50_u64, 1..5_000_u64),
        requests in properties::requests(2_000, 10),
        later in 0..10_000_u64,
    ) {
        let config = config(limit, period);
        properties::from_expires_at_on_it_equals_a_fresh_one(config, requests, Micros(later))?;
    }

    #[test]
    fn an_aligned_window_grants_at_most_the_limit_and_any_span_twice_that(
        (limit, period) in (10..20_u64, 1..2_000_u64),
        requests in properties::requests(500, 10),
    ) {
        let grants = properties::grants(config(limit, period), requests);
        let total = |within: &dyn Fn(u64) -> bool| -> u64 {
            grants.iter().filter(|grant| within(grant.0)).map(|grant| grant.1).sum()
        };
        for &(at, _) in &grants {
            prop_assert!(total(&|t| t / period == at / period) <= limit);
            prop_assert!(total(&|t| t >= at && t < at + period) <= 2 * limit);
        }
    }
}
