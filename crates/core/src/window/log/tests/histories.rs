//! What holds of any rates and any requests.

use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::super::{Config, Denied};
use super::config;
use crate::properties::{self, Subject, fresh};
use crate::window::Refund;
use crate::{Limiter, Micros, RateLimiter, Timestamp};

/// Up to `windows` rates with limits from `least`, with or without a gap, and both kinds of
/// [`Denied`].
fn configs(least: u64, windows: usize, period: u64) -> impl Strategy<Value = Config> {
    let rates = prop::collection::vec((least..least + 12, 1..period), 1..=windows);
    let min_gap = prop_oneof![Just(0), 1..period];
    let denied = prop_oneof![Just(Denied::Forgotten), Just(Denied::Counted)];
    (rates, min_gap, denied).prop_map(|(rates, min_gap, denied)| config(&rates, min_gap, denied))
}

/// Words as a store might hold them: valid states, nearly valid states, and random words.
fn words() -> impl Strategy<Value = Vec<u64>> {
    let sorted = (1_000..1_100_u64, prop::collection::vec(0..60_u64, 0..=4)).prop_map(
        |(newest, mut ages)| {
            ages.sort_unstable();
            let len = u64::try_from(ages.len()).unwrap();
            let mut words = vec![newest, len];
            words.extend(ages.iter().map(|age| newest - age));
            words.resize(6, 0);
            words
        },
    );
    let foreign = prop::collection::vec(any::<u64>(), 6);
    let small = prop::collection::vec(0..6_u64, 6);
    let spoilt = (sorted.clone(), 0..6_usize, any::<u64>()).prop_map(|(mut words, i, word)| {
        words[i] = word;
        words
    });
    prop_oneof![4 => sorted, 1 => foreign, 2 => small, 2 => spoilt]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_500))] // of 30 operations: 135,000

    #[test]
    fn equals_the_oracle(
        (config, steps) in configs(1, 8, 2_000).prop_flat_map(|config| {
            (Just(config), properties::history(config.period().0, config.limit()))
        }),
    ) {
        properties::equals_the_oracle(config, steps)?;
    }
}

proptest! {
    /// Refusals of the log itself and of other limiters come in any order.
    #[test]
    fn refusals_by_others_are_remembered_as_the_oracle_has_it(
        config in configs(1, 3, 2_000),
        steps in prop::collection::vec((0..900_u64, 0..9_000_u64, 0..=12_u64, any::<bool>()), 1..60),
    ) {
        let mut oracle = config.oracle();
        let mut state = fresh(config);
        let mut now = 1_000_000_u64;
        for (ahead, back, cost, by_another) in steps {
            now = (now + ahead).saturating_sub(if back > 8_000 { back } else { 0 });
            let cost = cost.min(config.limit());
            if by_another {
                let wait = config.refused(&mut state, Timestamp(now), cost);
                prop_assert_eq!(wait.0, oracle.refused(now, cost));
            } else {
                let decided = config.decide(&mut state, Timestamp(now), cost);
                prop_assert_eq!(properties::outcome(decided), oracle.decide(now, cost));
            }
            prop_assert!(config.accepts(&state).is_ok());
        }
    }

    #[test]
    fn retry_after_is_the_first_microsecond_that_grants(
        config in configs(10, 8, 5_000_000),
        requests in properties::requests(500_000, 10),
    ) {
        properties::retry_after_is_the_first_microsecond_that_grants(config, requests)?;
    }

    #[test]
    fn from_expires_at_on_it_equals_a_fresh_one(
        config in configs(10, 8, 5_000),
        requests in properties::requests(2_000, 10),
        later in 0..10_000_u64,
    ) {
        properties::from_expires_at_on_it_equals_a_fresh_one(config, requests, Micros(later))?;
    }

    #[test]
    fn a_refusal_consumes_nothing_unless_it_counts(
        config in configs(10, 8, 5_000),
        requests in properties::requests(500, 10),
    ) {
        if config.denied() == Denied::Forgotten {
            properties::a_refusal_consumes_nothing(config, requests)?;
        }
    }

    /// This holds also if grants are refunded after refusals have pushed older grants out of the
    /// memory.
    #[test]
    fn every_span_of_every_rate_grants_at_most_its_limit(
        config in configs(4, 8, 2_000),
        requests in prop::collection::vec((0..300_u64, 1..=4_u64, 0..8_usize), 1..60),
    ) {
        let mut state = fresh(config);
        let mut now = Timestamp(0);
        let mut grants = Vec::new();
        for (gap, cost, given_back) in requests {
            now = now.saturating_add(Micros(gap));
            if config.decide(&mut state, now, cost).unwrap().is_allowed() {
                let newest = grants.last().map_or(0, |&(at, _)| at);
                prop_assert!(grants.is_empty() || now.0 - newest >= config.min_gap().0);
                grants.push((now.0, cost));
            }
            for window in config.windows() {
                let inside = grants.iter().filter(|&&(at, _)| at + window.period.0 > now.0);
                prop_assert!(inside.map(|grant| grant.1).sum::<u64>() <= window.limit);
            }
            if given_back < grants.len() {
                let (at, cost) = grants.remove(grants.len() - 1 - given_back);
                config.refund(&mut state, Refund { granted_at: Timestamp(at), cost });
            }
        }
    }

    /// Compares with the source's own algorithm, whose sets keep every action: to remember the
    /// newest N units is enough.
    #[test]
    fn counted_refusals_decide_as_sorted_sets_do(
        (limit, period, min_gap) in (1..12_u64, 300..2_000_u64, 0..=300_u64),
        gaps in prop::collection::vec(0..400_u64, 1..60),
    ) {
        let config = config(&[(limit, period)], min_gap, Denied::Counted);
        let mut state = fresh(config);
        let (mut now, mut actions) = (1_000_000, Vec::new());
        for gap in gaps {
            now += gap;
            actions.retain(|action| action + period > now);
            let too_many = u64::try_from(actions.len()).unwrap() >= limit;
            let too_close = actions.last().is_some_and(|last| now - last < min_gap);
            let decided = config.decide(&mut state, Timestamp(now), 1).unwrap().is_allowed();
            prop_assert_eq!(decided, !too_many && !too_close);
            actions.push(now);
        }
    }

    #[test]
    fn random_words_are_refused_or_hold_the_guarantee(
        words in words(),
        counted: bool,
        min_gap in prop_oneof![Just(0), 1..50_u64],
        steps in prop::collection::vec((0..40_u64, 0..100_u64, 0..=2_u64), 1..30),
    ) {
        let denied = if counted { Denied::Counted } else { Denied::Forgotten };
        let config = config(&[(4, 50), (2, 10)], min_gap, denied);
        let mut state = config.state(words).unwrap();
        let foreign = config.accepts(&state).is_err();
        let mut now = state.newest();
        let mut grants = Vec::new();
        for (ahead, back, cost) in steps {
            now = Timestamp(now.0.saturating_add(ahead).saturating_sub(back / 80 * back));
            let decision = config.decide(&mut state, now, cost).unwrap();
            config.refund(&mut state, Refund { granted_at: Timestamp(now.0 ^ back), cost: 0 });
            if foreign {
                continue; // it did not panic
            }
            prop_assert!(config.accepts(&state).is_ok());
            prop_assert!(decision.retry_after() <= config.period());
            prop_assert!(decision.reset_after() <= config.period());
            let taken = state.newest().0;
            if grants.last().is_some_and(|&(at, _)| at > taken) {
                grants.clear(); // the clock is believed again
            }
            if decision.is_allowed() {
                grants.push((taken, cost));
            }
            for window in config.windows() {
                let inside = grants.iter().filter(|&&(at, _)| taken - at < window.period.0);
                prop_assert!(inside.map(|grant| grant.1).sum::<u64>() <= window.limit);
            }
        }
    }
}
