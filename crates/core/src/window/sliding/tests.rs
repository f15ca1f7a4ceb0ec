use proptest::prelude::*;
use tidegate_reference::{Oracle, Rule};

use super::{Config, MAX_SEGMENTS};
use crate::exhaustive::{every_sequence, triples};
use crate::hold::reservable::Reservable;
use crate::properties::{Subject, fresh};
use crate::window::Refund;
use crate::{ConfigError, Limiter, MAX_QUANTITY, Micros, RateLimiter, Timestamp, properties};

fn config(limit: u64, period_us: u64, segments: u64) -> Config {
    Config::new(limit, Micros(period_us), segments).unwrap()
}

impl Subject for Config {
    type Oracle = Oracle;
    fn oracle(self) -> Oracle {
        Oracle::new(Rule::SlidingWindow {
            limit: self.limit(),
            period: self.period().0,
            segments: u64::try_from(self.segments()).unwrap(),
        })
    }
}

#[test]
fn decides_as_worked_out_by_hand() {
    // 10 per second in 2 segments. Rows: time, cost, (allowed, remaining, retry after, reset after)
    let config = config(10, 1_000_000, 2);
    let mut state = fresh(config);
    for (now, cost, expected) in [
        (0, 0, (true, 10, 0, 0)),
        (400_000, 6, (true, 4, 0, 1_100_000)),
        (600_000, 4, (true, 0, 0, 1_400_000)),
        // at 1 s all 6 of the trailing segment count; one of them has left after 1/6 of 0.5 s
        (999_999, 1, (false, 0, 83_335, 1_000_001)),
        (1_083_333, 1, (false, 0, 1, 916_667)),
        (1_083_334, 1, (true, 0, 0, 1_416_666)),
        (1_000_000, 1, (false, 0, 83_333, 1_416_666)), // back in time: taken as at 1.083334 s
        (1_500_000, 6, (false, 5, 125_000, 1_000_000)), // 4 trailing + 1: one of the 4 must go
        (1_562_500, 6, (false, 5, 62_500, 937_500)),
        (1_625_000, 6, (true, 0, 0, 1_375_000)),
    ] {
        let decision = config.decide(&mut state, Timestamp(now), cost).unwrap();
        assert_eq!(properties::tuple(decision), expected, "at {now}, cost {cost}");
    }
}

#[test]
fn every_sequence_equals_the_oracle() {
    for (limit, segment, segments) in triples(1..=3, 1..=3, 1..=3) {
        let period = Micros(segment * segments);
        every_sequence(Config::new(limit, period, segments).unwrap());
    }
}

#[test]
fn a_refund_counts_in_the_segment_of_its_grant() {
    let config = config(10, 1_000, 10);
    let mut state = fresh(config);
    assert!(config.decide(&mut state, Timestamp(50), 6).unwrap().is_allowed());
    assert!(config.decide(&mut state, Timestamp(150), 4).unwrap().is_allowed());
    config.refund(&mut state, Refund { granted_at: Timestamp(50), cost: 9 });
    assert_eq!(config.peek(&state, Timestamp(150), 0).unwrap().remaining(), 6);
    config.refund(&mut state, Refund { granted_at: Timestamp(2_000), cost: 1 });
    assert_eq!(config.peek(&state, Timestamp(150), 0).unwrap().remaining(), 6);
}

#[test]
fn an_inexact_configuration_is_an_error_that_names_the_nearest_exact_one() {
    let error = Config::new(5, Micros(1_000_000), 7).unwrap_err();
    let ConfigError::UnevenSegments { nearest, .. } = error else { panic!("{error}") };
    assert_eq!(nearest, Micros(999_999));
    assert!(Config::new(5, nearest, 7).is_ok());

    for (period, nearest) in [(1_000_005, 1_000_006), (1_000_002, 999_999), (3, 7)] {
        let error = Config::new(5, Micros(period), 7).unwrap_err();
        let expected = ConfigError::UnevenSegments {
            period: Micros(period),
            segments: 7,
            nearest: Micros(nearest),
        };
        assert_eq!(error, expected);
    }

    for segments in [1, 7] {
        let longest = MAX_QUANTITY / (segments + 1) * segments;
        let error = Config::new(1, Micros(longest + segments), segments).unwrap_err();
        let ConfigError::ScaleTooFine { nearest, .. } = error else { panic!("{error}") };
        assert_eq!(nearest, longest);
        assert!(Config::new(1, Micros(nearest), segments).is_ok());
    }

    let day = Micros(86_400_000_000);
    let error = Config::new(MAX_QUANTITY, day, 1).unwrap_err();
    let ConfigError::ScaleTooFine { nearest, .. } = error else { panic!("{error}") };
    assert!(Config::new(nearest, day, 1).is_ok());
    assert!(Config::new(nearest + 1, day, 1).is_err());

    assert!(Config::new(5, Micros(1_000), 0).is_err());
    assert!(Config::new(5, Micros(MAX_SEGMENTS + 1), MAX_SEGMENTS + 1).is_err());
    assert!(Config::new(5, Micros(3), 7).is_err());
    assert!(Config::new(0, Micros(3), 1).is_err());
    assert!(Config::new(1, Micros::MAX, 1).is_err()); // it would expire after 570 years
}

#[test]
fn a_jump_ahead_and_back_locks_for_no_longer_than_the_period() {
    for segments in [1, 4, 10] {
        let config = config(5, 1_000_000, segments);
        // the newest grants leave one segment after their period, as they do without a jump
        let period = Micros(1_000_000 + 1_000_000 / segments);
        properties::a_jump_and_back_locks_for_no_longer_than_a_period(config, period, 5);
    }
}

#[test]
fn a_true_cost_leads_to_a_debt_of_at_most_the_limit() {
    let config = config(5, 100, 2);
    for (granted_at, counted, words) in [
        (151, 2, [157, 150, 10, 7, 3, 4]), // 7 beside the 3 of the segment before
        (100, 3, [157, 150, 10, 2, 8, 4]),
        (60, 4, [157, 150, 5, 2, 3, 10]), // the trailing segment is bounded by itself
        (49, 1, [157, 150, 5, 2, 3, 4]),  // it counts no more
    ] {
        let mut state = config.state([157, 150, 5, 2, 3, 4]).unwrap();
        config.correct(&mut state, Timestamp(granted_at), counted, 1_000);
        assert_eq!(state.words(), words, "granted at {granted_at}");
        assert_eq!(config.accepts(&state), Ok(()));
    }
}

#[test]
fn a_foreign_state_is_noticed() {
    let config = config(5, 100, 2);
    let accepts = |sum, counts: [u64; 3]| {
        let [current, last, trailing] = counts;
        config.accepts(&config.state([57, 50, sum, current, last, trailing]).unwrap()).is_ok()
    };
    assert!(accepts(10, [7, 3, 10]), "in debt");
    assert!(!accepts(4, [2, 3, 5]), "the sum must be that of the counters");
    assert!(!accepts(11, [8, 3, 5]), "more than twice the limit");
    assert!(!accepts(5, [2, 3, 11]), "more than twice the limit in the trailing segment");
    assert!(!accepts(0, [u64::MAX, 1, 0]), "overflow");
    let start = config.state([57, 49, 5, 2, 3, 5]).unwrap();
    assert!(config.accepts(&start).is_err(), "no segment begins at that time");
    assert!(config.state([0; 5]).is_err(), "a counter short");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_500))] // of 30 operations: 135,000

    #[test]
    fn equals_the_oracle(
        (limit, segment, segments, steps) in (1..20_u64, 1..500_u64, 1..8_u64).prop_flat_map(
            |(limit, segment, n)| {
                (Just(limit), Just(segment), Just(n), properties::history(segment * n, limit))
            },
        ),
    ) {
        properties::equals_the_oracle(config(limit, segment * segments, segments), steps)?;
    }

    #[test]
    fn what_is_charged_ahead_is_never_granted_twice(
        (limit, segment, segments, steps, crash) in (1..20_u64, 1..500_u64, 1..8_u64).prop_flat_map(
            |(limit, segment, n)| {
                let steps = properties::history(segment * n, limit);
                (Just(limit), Just(segment), Just(n), steps, properties::crash(segment * n, limit))
            },
        ),
    ) {
        let config = config(limit, segment * segments, segments);
        properties::what_is_charged_ahead_is_never_granted_twice(config, steps, &crash)?;
    }
}

proptest! {
    #[test]
    fn retry_after_is_the_first_microsecond_that_grants(
        (limit, segment, segments) in (50..500_u64, 1..1_000_000_u64, 1..MAX_SEGMENTS),
        requests in properties::requests(500_000, 50),
    ) {
        let config = config(limit, segment * segments, segments);
        properties::retry_after_is_the_first_microsecond_that_grants(config, requests)?;
    }

    #[test]
    fn a_refusal_consumes_nothing(
        (limit, segment, segments) in (10..50_u64, 1..1_000_u64, 1..20_u64),
        requests in properties::requests(2_000, 10),
    ) {
        let config = config(limit, segment * segments, segments);
        properties::a_refusal_consumes_nothing(config, requests)?;
    }

    #[test]
    fn from_expires_at_on_it_equals_a_fresh_one(
        (limit, segment, segments) in (10..50_u64, 1..1_000_u64, 1..20_u64),
        requests in properties::requests(2_000, 10),
        later in 0..10_000_u64,
    ) {
        let config = config(limit, segment * segments, segments);
        properties::from_expires_at_on_it_equals_a_fresh_one(config, requests, Micros(later))?;
    }

    #[test]
    fn segments_in_a_row_grant_at_most_the_limit_and_any_span_twice_that(
        (limit, segment, segments) in (10..20_u64, 1..1_000_u64, 1..8_u64),
        requests in properties::requests(500, 10),
    ) {
        let period = segment * segments;
        let grants = properties::grants(config(limit, period, segments), requests);
        let total = |within: &dyn Fn(u64) -> bool| -> u64 {
            grants.iter().filter(|grant| within(grant.0)).map(|grant| grant.1).sum()
        };
        for &(at, _) in &grants {
            let first = at / segment;
            prop_assert!(total(&|t| (first..first + segments).contains(&(t / segment))) <= limit);
            prop_assert!(total(&|t| t >= at && t < at + period) <= 2 * limit);
            // the estimate at the moment of the grant, computed from the grants alone
            let full = total(&|t| t <= at && t / segment + segments > first);
            let trailing = total(&|t| t / segment + segments == first);
            let covered = segment - at % segment;
            prop_assert!(full * segment + trailing * covered <= limit * segment
                || grants.iter().filter(|grant| grant.0 == at).count() > 1);
        }
    }
}
