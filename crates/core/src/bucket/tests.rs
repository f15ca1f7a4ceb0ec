use proptest::prelude::*;
use tidegate_reference::{Oracle, Rule};

use super::{Config, State};
use crate::exhaustive::{every_sequence, triples};
use crate::properties::Subject;
use crate::{
    ConfigError, Decision, Limiter, MAX_QUANTITY, Micros, Rate, RateLimiter, Timestamp, properties,
};

fn config(capacity: u64, units: u64, period_us: u64) -> Config {
    Config::new(capacity, Rate::new(units, Micros(period_us)).unwrap()).unwrap()
}

impl Subject for Config {
    type Oracle = Oracle;
    fn oracle(self) -> Oracle {
        Oracle::new(Rule::TokenBucket {
            capacity: self.capacity(),
            units: self.rate().0,
            period: self.rate().1.0,
            starts_empty: self.starts_empty(),
        })
    }
}

#[test]
fn decides_as_worked_out_by_hand() {
    // 5 tokens, 2 per second. Rows: time, cost, (allowed, remaining, retry after, reset after)
    let config = config(5, 2, 1_000_000);
    let mut state = State::default();
    let start = 1_700_000_000_000_000;
    for (after, cost, expected) in [
        (0, 5, (true, 0, 0, 2_500_000)),
        (0, 1, (false, 0, 500_000, 2_500_000)),
        (499_999, 1, (false, 0, 1, 2_000_001)),
        (500_000, 1, (true, 0, 0, 2_500_000)),
        (1_750_000, 3, (false, 2, 250_000, 1_250_000)),
        (1_750_000, 2, (true, 0, 0, 2_250_000)),
        (1_000_000, 1, (false, 0, 250_000, 2_250_000)), // back in time: taken as at 1.75 s
        (2_000_000, 1, (true, 0, 0, 2_500_000)),
        (9_000_000, 0, (true, 5, 0, 0)),
    ] {
        let decision = config.decide(&mut state, Timestamp(start + after), cost).unwrap();
        assert_eq!(properties::tuple(decision), expected, "after {after} µs, cost {cost}");
    }
}

#[test]
fn every_sequence_equals_the_oracle() {
    for (capacity, units, period) in triples(1..=3, 1..=2, 1..=4) {
        let rate = Rate::new(units, Micros(period)).unwrap();
        let bucket = Config::new(capacity, rate).unwrap();
        every_sequence(bucket);
        every_sequence(bucket.starting_empty());
    }
}

#[test]
fn five_million_grants_leave_exactly_what_arithmetic_says() {
    // 3 per second: a third of a second is no whole number of microseconds
    let config = config(2, 3, 1_000_000);
    let mut state = State::default();
    let mut now = Timestamp(0);
    let mut granted = 0_u64;
    while granted < 5_000_000 {
        match config.decide(&mut state, now, 1).unwrap() {
            Decision::Allow { .. } => granted += 1,
            Decision::Deny { retry_after, .. } => {
                assert!(retry_after > Micros::ZERO, "a wait is never 0");
                now = now.saturating_add(retry_after);
            }
        }
    }
    // two pass at once, and then the k-th at ⌈k/3 s⌉
    assert_eq!(now, Timestamp((4_999_998_u64 * 1_000_000).div_ceil(3)));
}

#[test]
fn a_capacity_that_does_not_fit_is_an_error_that_names_the_largest_that_fits() {
    let a_day = |units| Rate::new(units, Micros(86_400_000_000)).unwrap();
    let rate = a_day(7);
    // of 7, the time until a bucket is full sets the bound; of more than 2^11, the width of a state
    for (rate, expected) in [(rate, 729_749), (a_day(10_007), 213_503_982)] {
        let Err(ConfigError::ScaleTooFine { nearest, found, .. }) = Config::new(MAX_QUANTITY, rate)
        else {
            panic!("2^53 tokens at a few a day need 90 bits");
        };
        assert_eq!((found, nearest), (MAX_QUANTITY, expected));
        assert!(Config::new(nearest, rate).is_ok());
        assert!(Config::new(nearest + 1, rate).is_err());
    }
    assert!(Rate::new(0, Micros(1)).is_err());
    assert!(Rate::new(1, Micros(0)).is_err());
    assert!(Rate::new(MAX_QUANTITY + 1, Micros(1)).is_err());
    assert!(Config::new(0, rate).is_err());
}

#[test]
fn a_jump_ahead_and_back_locks_for_no_longer_than_the_fill_time() {
    let config = config(5, 1, 1_000_000);
    properties::a_jump_and_back_locks_for_no_longer_than_a_period(config, config.period(), 5);
}

#[test]
fn a_bucket_that_starts_empty_fills_from_the_first_request_on_and_is_never_forgotten() {
    let config = config(2, 1, 1_000_000).starting_empty();
    let mut state = State::default();
    let never = Micros::MAX.0;
    for (now, cost, expected) in [
        (50, 0, (true, 0, 0, never)), // a peek does not start the filling
        (70, 2, (false, 0, 2_000_000, never)),
        (1_000_070, 1, (true, 0, 0, never)),
        (9_000_070, 2, (true, 0, 0, never)),
        (90_000_070, 0, (true, 2, 0, never)),
    ] {
        let decision = config.decide(&mut state, Timestamp(now), cost).unwrap();
        assert_eq!(properties::tuple(decision), expected, "at {now}, cost {cost}");
    }
}

#[test]
fn a_debt_is_paid_off_before_anything_is_granted() {
    let config = config(5, 1, 1_000_000);
    let mut state = State::default();
    assert!(config.decide(&mut state, Timestamp(0), 4).unwrap().is_allowed());
    config.charge(&mut state, Timestamp(0), 3); // 7 of 5 are spent
    let refused = config.decide(&mut state, Timestamp(0), 1).unwrap();
    assert_eq!(properties::tuple(refused), (false, 0, 3_000_000, 7_000_000));
    config.charge(&mut state, Timestamp(0), 99);
    let looked = config.peek(&state, Timestamp(0), 0).unwrap();
    assert_eq!(
        properties::tuple(looked),
        (true, 0, 0, 10_000_000),
        "the debt is at most one capacity"
    );
}

#[test]
fn a_bucket_goes_on_with_the_share_that_was_spent_rounded_up() {
    let (three, seven) = (config(3, 1, 1_000_000), config(7, 7, 3_000_000));
    for (bucket, span) in [(three, (3_000_000, 1)), (seven, (3_000_000, 1))] {
        assert_eq!(bucket.exact_fill_time(), span);
    }
    assert_eq!(config(10, 3, 2).exact_fill_time(), (20, 3), "6 ⅔ µs");
    let now = Timestamp(1_700_000_000_000_000);
    let mut state = State::default();
    assert!(seven.decide(&mut state, now, 1).unwrap().is_allowed());
    three.go_on_from(&mut state, &seven);
    assert_eq!(state.words(), [428_572, now.0], "3/7 of a token");
    seven.go_on_from(&mut state, &three);
    assert_eq!(state.words(), [3_000_004, now.0], "never less than before");
    let mut indebted = State::default();
    seven.charge(&mut indebted, now, 100);
    three.go_on_from(&mut indebted, &seven);
    assert_eq!(three.accepts(&indebted), Ok(()));
    assert_eq!(three.used(&indebted), 6, "a debt of one capacity");
}

#[test]
fn a_foreign_state_is_noticed() {
    let config = config(5, 1, 1_000_000);
    assert!(config.accepts(&config.state([10_000_000, 7]).unwrap()).is_ok(), "in debt");
    assert!(config.accepts(&config.state([10_000_001, 7]).unwrap()).is_err());
}

#[test]
fn a_state_is_sixteen_bytes() {
    assert_eq!(size_of::<State>(), 16);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_500))] // of 30 operations: 135,000

    #[test]
    fn equals_the_oracle(
        (capacity, units, period, steps) in (1..20_u64, 1..50_u64, 1..2_000_u64).prop_flat_map(
            |(capacity, units, period)| {
                (Just(capacity), Just(units), Just(period), properties::history(period * 2, capacity))
            },
        ),
    ) {
        let config = config(capacity, units, period);
        properties::equals_the_oracle(config, steps.clone())?;
        properties::equals_the_oracle(config.starting_empty(), steps)?;
    }

    #[test]
    fn what_is_charged_ahead_is_never_granted_twice(
        (capacity, units, period, steps, crash) in (1..20_u64, 1..50_u64, 1..2_000_u64).prop_flat_map(
            |(capacity, units, period)| {
                let fill = (capacity * period).div_ceil(units);
                let steps = properties::history(fill, capacity);
                (Just(capacity), Just(units), Just(period), steps, properties::crash(fill, capacity))
            },
        ),
    ) {
        let config = config(capacity, units, period);
        properties::what_is_charged_ahead_is_never_granted_twice(config, steps.clone(), &crash)?;
        properties::what_is_charged_ahead_is_never_granted_twice(config.starting_empty(), steps, &crash)?;
    }
}

proptest! {
    #[test]
    fn retry_after_is_the_first_microsecond_that_grants(
        (capacity, units, period) in (50..1_000_u64, 1..5_000_u64, 1..5_000_000_u64),
        requests in properties::requests(2_000_000, 50),
    ) {
        let config = config(capacity, units, period);
        properties::retry_after_is_the_first_microsecond_that_grants(config, requests)?;
    }

    #[test]
    fn a_refusal_consumes_nothing(
        (capacity, units, period) in (10..50_u64, 1..500_u64, 1..5_000_u64),
        requests in properties::requests(2_000, 10),
    ) {
        properties::a_refusal_consumes_nothing(config(capacity, units, period), requests)?;
    }

    #[test]
    fn from_expires_at_on_it_equals_a_fresh_one(
        (capacity, units, period) in (10..50_u64, 1..500_u64, 1..5_000_u64),
        requests in properties::requests(2_000, 10),
        later in 0..10_000_u64,
    ) {
        let config = config(capacity, units, period);
        properties::from_expires_at_on_it_equals_a_fresh_one(config, requests, Micros(later))?;
    }

    #[test]
    fn no_span_grants_more_than_capacity_and_inflow(
        (capacity, units, period) in (10..20_u64, 1..50_u64, 1..2_000_u64),
        requests in properties::requests(500, 10),
    ) {
        let grants = properties::grants(config(capacity, units, period), requests);
        for (i, first) in grants.iter().enumerate() {
            let mut granted = 0;
            for last in &grants[i..] {
                granted += last.1;
                prop_assert!(granted * period <= capacity * period + units * (last.0 - first.0));
            }
        }
    }
}
