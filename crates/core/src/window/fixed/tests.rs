use core::ops::Range;

use proptest::prelude::*;
use tidegate_reference::{Oracle, Rule};

use super::{Config, State};
use crate::exhaustive::{every_sequence, triples};
use crate::properties::{self, Subject, fresh};
use crate::window::Refund;
use crate::{Limiter, MAX_QUANTITY, Micros, RateLimiter, Timestamp};

fn config(limit: u64, period_us: u64) -> Config {
    Config::new(limit, Micros(period_us)).unwrap()
}

/// A limit of either kind of windows, with other values that depend on its numbers.
fn configs<T: core::fmt::Debug>(
    limits: Range<u64>,
    periods: Range<u64>,
    others: impl Fn(u64, u64) -> BoxedStrategy<T>,
) -> impl Strategy<Value = (Config, T)> {
    (limits, periods, any::<bool>()).prop_flat_map(move |(limit, period, first)| {
        let config = config(limit, period);
        let config = if first { config.starting_at_first() } else { config };
        (Just(config), others(limit, period))
    })
}

impl Subject for Config {
    type Oracle = Oracle;
    fn oracle(self) -> Oracle {
        Oracle::new(Rule::FixedWindow {
            limit: self.limit(),
            period: self.period().0,
            first: self.starts_at_first(),
        })
    }
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
fn every_sequence_equals_the_oracle() {
    for (limit, period, _) in triples(1..=3, 1..=6, 1..=1) {
        let window = config(limit, period);
        every_sequence(window);
        every_sequence(window.starting_at_first());
    }
}

#[test]
fn a_window_that_starts_at_the_first_grant_decides_as_worked_out_by_hand() {
    // 5 per second. Rows: time, cost, (allowed, remaining, retry after, reset after)
    let config = config(5, 1_000_000).starting_at_first();
    let mut state = fresh(config);
    for (now, cost, expected) in [
        (900_000, 0, (true, 5, 0, 0)), // a peek begins no window
        (900_010, 3, (true, 2, 0, 1_000_000)),
        (900_020, 3, (false, 2, 999_990, 999_990)),
        (900_030, 2, (true, 0, 0, 999_980)),
        (900_020, 1, (false, 0, 999_980, 999_980)), // back in time: taken as at 900,030
        (1_000_000, 1, (false, 0, 900_010, 900_010)), // no window begins at a whole second
        (1_900_009, 1, (false, 0, 1, 1)),
        (1_900_010, 0, (true, 5, 0, 0)),
        (2_500_000, 4, (true, 1, 0, 1_000_000)), // the next window begins with this grant
        (2_400_000, 2, (false, 1, 1_000_000, 1_000_000)),
        (1_499_999, 2, (false, 1, 1_000_000, 1_000_000)), // believed again: it ends as long after
        (2_499_999, 5, (true, 0, 0, 1_000_000)),
    ] {
        let decision = config.decide(&mut state, Timestamp(now), cost).unwrap();
        assert_eq!(properties::tuple(decision), expected, "at {now}, cost {cost}");
    }
}

#[test]
fn a_window_of_its_own_stays_open_if_all_its_units_come_back() {
    let config = config(5, 100).starting_at_first();
    let mut state = fresh(config);
    assert!(config.decide(&mut state, Timestamp(50), 5).unwrap().is_allowed());
    config.refund(&mut state, Refund { granted_at: Timestamp(50), cost: 5 });
    let reset = |state: &_, now| config.peek(state, Timestamp(now), 0).unwrap().reset_after();
    assert_eq!((reset(&state, 60), reset(&state, 150)), (Micros(90), Micros::ZERO));
    assert!(config.decide(&mut state, Timestamp(149), 5).unwrap().is_allowed());
    assert!(config.decide(&mut state, Timestamp(150), 5).unwrap().is_allowed());
}

#[test]
fn other_numbers_leave_the_beginning_of_a_window_where_it_is() {
    let old = config(5, 100).starting_at_first();
    let mut held = fresh(old);
    assert!(old.decide(&mut held, Timestamp(1_000), 4).unwrap().is_allowed());
    old.advance(&mut held, Timestamp(1_030));
    for (limit, period, units, words) in [
        (9, 100, 4, [4, 1_030, 70]),
        (1, 100, 4, [2, 1_030, 70]), // no more than twice the limit
        (9, 31, 4, [4, 1_030, 1]),
        (9, 30, 4, [0, 1_030, 0]), // it is over by now
    ] {
        let new = config(limit, period).starting_at_first();
        let mut state = fresh(new);
        assert!(new.adopt(&mut state, &old, &held, units));
        assert_eq!(state.words(), words);
        assert!(new.accepts(&state).is_ok());
    }
    old.advance(&mut held, Timestamp(1_100)); // over
    let (longer, mut state) = (config(9, 1_000).starting_at_first(), fresh(old));
    assert!(longer.adopt(&mut state, &old, &held, 0));
    assert_eq!(state.words(), [0, 1_100, 0], "a longer window does not open it again");

    let mut unchanged = fresh(old);
    assert!(!old.adopt(&mut unchanged, &config(5, 100), &State::from([3, 1_030]), 3));
    assert_eq!(unchanged, fresh(old));
}

#[test]
fn a_refund_counts_in_its_own_window_only() {
    for config in [config(5, 100), config(5, 100).starting_at_first()] {
        let mut state = fresh(config);
        let granted_at = Timestamp(50);
        assert!(config.decide(&mut state, granted_at, 5).unwrap().is_allowed());
        config.refund(&mut state, Refund { granted_at, cost: 2 });
        assert_eq!(config.peek(&state, Timestamp(60), 0).unwrap().remaining(), 2);
        assert!(config.decide(&mut state, Timestamp(150), 5).unwrap().is_allowed());
        config.refund(&mut state, Refund { granted_at, cost: 3 });
        assert_eq!(config.peek(&state, Timestamp(160), 0).unwrap().remaining(), 0);
    }
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
    for config in [config(5, 1_000_000), config(5, 1_000_000).starting_at_first()] {
        properties::a_jump_and_back_locks_for_no_longer_than_a_period(config, config.period(), 5);
    }
}

#[test]
fn a_foreign_state_is_noticed() {
    assert!(config(5, 100).accepts(&config(5, 100).state([10, 7]).unwrap()).is_ok(), "in debt");
    assert!(config(5, 100).accepts(&config(5, 100).state([11, 7]).unwrap()).is_err());
    let first = config(5, 100).starting_at_first();
    for (words, fits) in [
        ([10, 7, 100], true),
        ([0, 7, 1], true),
        ([0, 7, 0], true),
        ([11, 7, 100], false),
        ([1, 7, 101], false),
        ([1, 7, 0], false), // units count in a window alone
    ] {
        assert_eq!(first.accepts(&first.state(words).unwrap()).is_ok(), fits, "{words:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_500))] // of 30 operations: 135,000

    #[test]
    fn equals_the_oracle(
        (config, steps) in configs(1..20, 1..2_000, |limit, period| {
            properties::history(period, limit).boxed()
        }),
    ) {
        properties::equals_the_oracle(config, steps)?;
    }

    #[test]
    fn what_is_charged_ahead_is_never_granted_twice(
        (config, (steps, crash)) in configs(1..20, 1..2_000, |limit, period| {
            (properties::history(period, limit), properties::crash(period, limit)).boxed()
        }),
    ) {
        properties::what_is_charged_ahead_is_never_granted_twice(config, steps, &crash)?;
    }
}

proptest! {
    #[test]
    fn retry_after_is_the_first_microsecond_that_grants(
        (config, requests) in configs(50..1_000, 1..5_000_000, |_, _| {
            properties::requests(200_000, 50).boxed()
        }),
    ) {
        properties::retry_after_is_the_first_microsecond_that_grants(config, requests)?;
    }

    #[test]
    fn a_refusal_consumes_nothing(
        (config, requests) in configs(10..50, 1..5_000, |_, _| properties::requests(2_000, 10).boxed()),
    ) {
        properties::a_refusal_consumes_nothing(config, requests)?;
    }

    #[test]
    fn from_expires_at_on_it_equals_a_fresh_one(
        (config, requests) in configs(10..50, 1..5_000, |_, _| properties::requests(2_000, 10).boxed()),
        later in 0..10_000_u64,
    ) {
        properties::from_expires_at_on_it_equals_a_fresh_one(config, requests, Micros(later))?;
    }

    #[test]
    fn a_window_grants_at_most_the_limit_and_any_span_twice_that(
        (config, requests) in configs(10..20, 1..2_000, |_, _| properties::requests(500, 10).boxed()),
    ) {
        let (limit, period) = (config.limit(), config.period().0);
        let grants = properties::grants(config, requests);
        let total = |within: &dyn Fn(u64) -> bool| -> u64 {
            grants.iter().filter(|grant| within(grant.0)).map(|grant| grant.1).sum()
        };
        let mut ends = 0;
        for &(at, _) in &grants {
            if at >= ends {
                ends = if config.starts_at_first() { at } else { at - at % period } + period;
            }
            prop_assert!(total(&|t| t < ends && t + period >= ends) <= limit);
            prop_assert!(total(&|t| t >= at && t < at + period) <= 2 * limit);
        }
    }
}
