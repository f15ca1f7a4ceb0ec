//! Histories of decisions, refusals and pardons, compared with the oracle and with the guarantees.

use core::ops::RangeInclusive;
use std::vec::Vec;

use proptest::prelude::*;
use tidegate_reference::penalty::Penalty;

use super::{config, oracle};
use crate::exhaustive::Graph;
use crate::properties;
use crate::properties::fresh;
use crate::shed::penalty::{Config, State};
use crate::{Limiter, Micros, Timestamp};

/// An operation on a penalty.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Decide,
    Refused,
    Forgive,
}

/// Does the same operation on both and compares their answers.
fn compare(
    config: Config,
    state: &mut State<Vec<u64>>,
    oracle: &mut Penalty,
    (operation, now): (Operation, u64),
) {
    let before = state.clone();
    let at = Timestamp(now);
    match operation {
        Operation::Decide => {
            let peeked = config.peek(state, at);
            assert_eq!(*state, before, "a peek changes nothing");
            let decided = config.decide(state, at);
            assert_eq!(peeked, decided, "{before:?} at {now}");
            let expected = oracle.decide(now);
            assert_eq!(properties::outcome(Ok(decided)), Some(expected), "{before:?} at {now}");
        }
        Operation::Refused => {
            let begins = config.refused(state, at).map(|lasts| lasts.0);
            assert_eq!(begins, oracle.refused(now), "{before:?} at {now}");
        }
        Operation::Forgive => {
            config.forgive(state);
            oracle.forgive();
        }
    }
    assert!(config.accepts(state).is_ok(), "{before:?} {operation:?} at {now}: {state:?}");
}

/// Every sequence of decisions, refusals and pardons at each of nine times, both the first nine and
/// the last nine. If oracles are the same only when they remember the same history, sequences have
/// four operations. If oracles are the same when the same facts determine their later answers,
/// sequences have any length.
#[test]
fn every_sequence_equals_the_oracle() {
    for spans in [[1, 1, 1, 0], [2, 1, 2, 1], [3, 2, 3, 2], [2, 1, 4, 2], [5, 1, 1, 1]] {
        for refusals in 1..=3 {
            for times in [0..=8, u64::MAX - 8..=u64::MAX] {
                check_every_sequence(config(refusals, spans), times);
            }
        }
    }
}

fn check_every_sequence(config: Config, times: RangeInclusive<u64>) {
    let operations: Vec<_> = times
        .flat_map(|now| [(Operation::Decide, now), (Operation::Refused, now)])
        .chain([(Operation::Forgive, 0)])
        .collect();
    let after_each = |place: &(State<Vec<u64>>, Penalty)| {
        let after = |&operation: &(Operation, u64)| {
            let (mut state, mut oracle) = place.clone();
            compare(config, &mut state, &mut oracle, operation);
            (state, oracle)
        };
        operations.iter().map(after).collect()
    };
    let first = (fresh(config), oracle(config));
    let walked = Graph::walk(first.clone(), Some(4), Clone::clone, after_each);
    assert_eq!(walked.sequences(4), 19_u64.pow(4));
    let essence = |(state, oracle): &(State<_>, Penalty)| (state.clone(), oracle.essence());
    let walked = Graph::walk(first, None, essence, after_each);
    assert_eq!(walked.sequences(8), 19_u64.pow(8));
}

fn configs(longest: u64) -> impl Strategy<Value = Config> {
    let spans = (1..longest, 1..longest, 0..longest * 4, 0..longest * 4);
    (1..12_u64, spans).prop_map(|(refusals, (within, duration, more, forgive_after))| {
        config(refusals, [within, duration, duration + more, forgive_after])
    })
}

/// Operations, and how the time changes before each.
fn history(span: u64) -> impl Strategy<Value = Vec<(Operation, properties::Step)>> {
    let operation = prop_oneof![
        4 => Just(Operation::Decide),
        30 => Just(Operation::Refused),
        1 => Just(Operation::Forgive),
    ];
    let step = prop_oneof![
        40 => (0..=span / 4).prop_map(properties::Step::Ahead),
        2 => (0..=span * 2).prop_map(properties::Step::Back),
        1 => prop_oneof![Just(0), Just(u64::MAX), 0..1_u64 << 40].prop_map(properties::Step::To),
        10 => any::<bool>().prop_map(properties::Step::Retry),
    ];
    prop::collection::vec((operation, step), 1..60)
}

/// Words as a store might hold them: valid states, nearly valid states, and random words.
fn words() -> impl Strategy<Value = Vec<u64>> {
    let of_a_state = (prop::collection::vec((0..40_u64, any::<bool>()), 0..20)).prop_map(|steps| {
        let config = config(4, [100, 50, 300, 200]);
        let mut state = fresh(config);
        let mut now = Timestamp(1_000);
        for (ahead, refused) in steps {
            now = now.saturating_add(Micros(ahead));
            let _ = config.decide(&mut state, now);
            if refused {
                config.refused(&mut state, now);
            }
        }
        state.words().to_vec()
    });
    let spoilt = (of_a_state.clone(), 0..7_usize, prop_oneof![0..600_u64, any::<u64>()]);
    let spoilt = spoilt.prop_map(|(mut words, i, word)| {
        words[i] = word;
        words
    });
    let small = prop::collection::vec(0..4_u64, 7);
    prop_oneof![3 => of_a_state, 3 => spoilt, 1 => small, 1 => prop::collection::vec(any::<u64>(), 7)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_500))] // of 30 operations: 135,000

    #[test]
    fn equals_the_oracle(
        (config, steps) in configs(1_000).prop_flat_map(|config| {
            let terms = config.terms();
            let span = prop_oneof![Just(terms.within.0), Just(config.period().0)];
            (Just(config), span.prop_flat_map(history))
        }),
    ) {
        let (mut state, mut oracle) = (fresh(config), oracle(config));
        let mut now = 1_000_000_u64;
        for (operation, step) in steps {
            let retry = config.peek(&state, Timestamp(now)).retry_after().0;
            now = match step {
                properties::Step::Ahead(by) => now.saturating_add(by),
                properties::Step::Back(by) => now.saturating_sub(by),
                properties::Step::To(time) => time,
                properties::Step::Retry(at) => {
                    now.saturating_add(retry).saturating_sub(u64::from(!at))
                }
                properties::Step::Refund(_) | properties::Step::Charge(_) => now,
            };
            compare(config, &mut state, &mut oracle, (operation, now));
        }
    }
}

proptest! {
    #[test]
    fn retry_after_is_the_first_microsecond_that_passes(
        config in configs(1_000_000),
        gaps in prop::collection::vec(0..200_000_u64, 1..60),
    ) {
        let mut state = fresh(config);
        let mut now = Timestamp(0);
        for gap in gaps {
            now = now.saturating_add(Micros(gap));
            if config.refused(&mut state, now).is_some() {
                let retry_after = config.peek(&state, now).retry_after();
                let at = now.saturating_add(retry_after);
                prop_assert!(!config.peek(&state, Timestamp(at.0 - 1)).is_allowed());
                prop_assert!(config.peek(&state, at).is_allowed());
            }
        }
    }

    #[test]
    fn from_expires_at_on_it_equals_a_fresh_one(
        config in configs(5_000),
        gaps in prop::collection::vec(0..2_000_u64, 1..60),
        later in 0..10_000_u64,
        refused: bool,
    ) {
        let mut state = fresh(config);
        let mut now = Timestamp(0);
        for gap in gaps {
            now = now.saturating_add(Micros(gap));
            config.refused(&mut state, now);
        }
        let expires = config.expires_at(&state);
        prop_assert!(expires.saturating_since(now) <= config.period());
        if expires > now {
            let before = config.peek(&state, Timestamp(expires.0 - 1));
            prop_assert!(before.reset_after() > Micros::ZERO, "not a microsecond sooner");
        }
        let mut fresh = fresh(config);
        let at = expires.saturating_add(Micros(later));
        if refused {
            prop_assert_eq!(config.refused(&mut state, at), config.refused(&mut fresh, at));
        }
        prop_assert_eq!(config.decide(&mut state, at), config.decide(&mut fresh, at));
        prop_assert_eq!(state, fresh);
    }

    /// Checks the guarantee only from the times of the refusals and of the penalties.
    #[test]
    fn a_penalty_begins_at_the_nth_refusal_within_its_span_and_lasts_at_most_its_maximum(
        config in configs(1_000),
        gaps in prop::collection::vec(0..300_u64, 1..60),
    ) {
        let terms = config.terms();
        let mut state = fresh(config);
        let mut now = Timestamp(0);
        let (mut counted, mut ends, mut last) = (Vec::new(), 0, 0);
        for gap in gaps {
            now = now.saturating_add(Micros(gap));
            prop_assert_eq!(config.decide(&mut state, now).is_allowed(), now.0 >= ends);
            let begins = config.refused(&mut state, now);
            if now.0 < ends {
                prop_assert_eq!(begins, None);
                continue;
            }
            counted.push(now.0);
            let within = counted.iter().filter(|&&at| at + terms.within.0 > now.0).count();
            prop_assert_eq!(begins.is_some(), u64::try_from(within).unwrap() == terms.refusals);
            if let Some(lasts) = begins {
                let in_a_row = last > 0 && now.0 < ends + terms.forgive_after.0;
                let doubled = terms.max.min(Micros(last * 2));
                prop_assert_eq!(lasts, if in_a_row { doubled } else { terms.duration });
                counted.clear();
                (ends, last) = (now.0 + lasts.0, lasts.0);
            }
        }
    }

    #[test]
    fn random_words_are_refused_or_hold_the_guarantee(
        words in words(),
        steps in prop::collection::vec((0..100_u64, 0..100_u64, any::<bool>()), 1..30),
    ) {
        let config = config(4, [100, 50, 300, 200]);
        let mut state = config.state(words).unwrap();
        let foreign = config.accepts(&state).is_err();
        let mut now = state.newest();
        for (ahead, back, refused) in steps {
            now = Timestamp(now.0.saturating_add(ahead).saturating_sub(back / 90 * back * 10));
            let lasts = if refused { config.refused(&mut state, now) } else { None };
            let decided = config.decide(&mut state, now);
            if foreign {
                continue; // it did not panic
            }
            prop_assert!(config.accepts(&state).is_ok());
            prop_assert!(lasts.is_none_or(|lasts| [50, 100, 200, 300].contains(&lasts.0)));
            prop_assert!(decided.retry_after() <= config.terms().max);
            prop_assert!(decided.reset_after() <= config.period());
        }
    }
}
