use core::ops::RangeInclusive;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;
use tidegate_reference::penalty::Penalty;

use super::{Config, MAX_REFUSALS, State, Terms};
use crate::exhaustive::Graph;
use crate::properties::{self, tuple};
use crate::{ConfigError, MAX_QUANTITY, Micros, Timestamp};

fn config(refusals: u64, [within, duration, max, forgive_after]: [u64; 4]) -> Config {
    Config::new(Terms {
        refusals,
        within: Micros(within),
        duration: Micros(duration),
        max: Micros(max),
        forgive_after: Micros(forgive_after),
    })
    .unwrap()
}

fn fresh(config: Config) -> State<Vec<u64>> {
    config.state(vec![0; config.words()]).unwrap()
}

fn oracle(config: Config) -> Penalty {
    let terms = config.terms();
    Penalty {
        refusals: terms.refusals,
        within: terms.within.0,
        duration: terms.duration.0,
        max: terms.max.0,
        forgive_after: terms.forgive_after.0,
        ..Penalty::default()
    }
}

#[test]
fn decides_as_worked_out_by_hand() {
    // 3 refusals within 10: 20, then 40, then 50; forgiven after 30
    let config = config(3, [10, 20, 50, 30]);
    let mut state = fresh(config);
    assert_eq!(tuple(config.peek(&state, Timestamp(0),)), (true, 3, 0, 0));
    // time, what a refusal begins, and what is decided after it: allowed, remaining, retry, reset
    for (now, begins, expected) in [
        (100, None, (true, 2, 0, 10)),
        (105, None, (true, 1, 0, 10)),
        (110, None, (true, 1, 0, 10)), // that of 100 has left (100, 110]
        (114, Some(20), (false, 0, 20, 50)),
        (133, None, (false, 0, 1, 31)), // while it lasts nothing counts
        (134, None, (true, 2, 0, 30)),
        (130, None, (true, 1, 0, 30)), // back in time: taken as at 134
        (135, Some(40), (false, 0, 40, 70)),
        (175, None, (true, 2, 0, 30)),
        (180, None, (true, 1, 0, 25)),
        (184, Some(50), (false, 0, 50, 80)), // not 80
        (234, None, (true, 2, 0, 30)),
        (263, None, (true, 2, 0, 10)),
        (263, None, (true, 1, 0, 10)),
        (264, Some(20), (false, 0, 20, 50)), // 30 after the end of the last
    ] {
        assert_eq!(config.refused(&mut state, Timestamp(now)).map(|lasts| lasts.0), begins);
        assert_eq!(tuple(config.decide(&mut state, Timestamp(now))), expected, "at {now}");
    }
    config.forgive(&mut state);
    assert_eq!(state, fresh(config));
}

#[test]
fn one_refusal_can_be_enough() {
    let config = config(1, [5, 10, 10, 0]);
    let mut state = fresh(config);
    assert_eq!(state.words.len(), 4);
    for round in 0..5 {
        let now = |after: u64| Timestamp(round * 10 + after);
        assert_eq!(tuple(config.decide(&mut state, now(0))), (true, 1, 0, 0));
        assert_eq!(config.refused(&mut state, now(0)), Some(Micros(10)));
        assert_eq!(tuple(config.decide(&mut state, now(9))), (false, 0, 1, 1));
    }
}

#[test]
fn a_penalty_ends_although_the_caller_never_stops() {
    // refused by another limit whenever the penalty lets it through
    let config = config(5, [1_000, 100, 800, 10_000]);
    let mut state = fresh(config);
    let (mut began, mut at) = (Vec::new(), Vec::new());
    for now in 0..5_000 {
        if config.decide(&mut state, Timestamp(now)).is_allowed() {
            at.push(now);
            began.extend(config.refused(&mut state, Timestamp(now)).map(|lasts| (now, lasts.0)));
        }
    }
    assert_eq!(
        began,
        [
            (4, 100),
            (108, 200),
            (312, 400),
            (716, 800),
            (1_520, 800),
            (2_324, 800),
            (3_128, 800),
            (3_932, 800),
            (4_736, 800)
        ]
    );
    assert_eq!(at.len(), 45); // five before each penalty
}

#[test]
fn what_cannot_be_remembered_is_refused() {
    let new = |refusals, [within, duration, max, forgive_after]: [u64; 4]| {
        let [within, duration, max, forgive_after] =
            [within, duration, max, forgive_after].map(Micros);
        Config::new(Terms { refusals, within, duration, max, forgive_after })
    };
    let words = |refusals| new(refusals, [1; 4]).map(|config| config.words());
    let most = MAX_REFUSALS;
    assert_eq!(words(most), Ok(103));
    assert_eq!(
        words(0),
        Err(ConfigError::OutOfRange { field: "refusals", found: 0, least: 1, most })
    );
    assert_eq!(
        words(101),
        Err(ConfigError::OutOfRange { field: "refusals", found: 101, least: 1, most })
    );
    let out_of_range =
        |field| ConfigError::OutOfRange { field, found: 0, least: 1, most: MAX_QUANTITY };
    assert_eq!(new(1, [0, 1, 1, 1]).unwrap_err(), out_of_range("within"));
    assert_eq!(new(1, [1, 0, 1, 1]).unwrap_err(), out_of_range("duration"));
    assert_eq!(new(1, [1, 1, 0, 1]).unwrap_err(), out_of_range("max"));
    let too_small =
        ConfigError::OutOfRange { field: "max", found: 4, least: 5, most: MAX_QUANTITY };
    assert_eq!(new(1, [1, 5, 4, 1]).unwrap_err(), too_small);
    let Err(ConfigError::ScaleTooFine { field: "forgive_after", nearest, .. }) =
        new(1, [1, 5, 10, MAX_QUANTITY])
    else {
        panic!("it would be remembered for more than 285 years");
    };
    assert!(new(1, [1, 5, 10, nearest]).is_ok());
    assert!(new(1, [1, 5, 10, nearest + 1]).is_err());
    assert!(new(1, [MAX_QUANTITY, 1, MAX_QUANTITY, 0]).is_ok());
}

#[test]
fn a_jump_ahead_and_back_refuses_for_no_longer_than_the_penalty() {
    let config = config(2, [1_000, 100, 400, 5_000]);
    let sane = Timestamp(1_000_000);
    let period = config.period();
    assert_eq!(period, Micros(5_400));
    for ahead in [period.0 + 1, 1 << 40, u64::MAX - sane.0] {
        let mut state = fresh(config);
        let jumped = sane.saturating_add(Micros(ahead));
        assert_eq!(config.refused(&mut state, jumped), None);
        assert_eq!(config.refused(&mut state, jumped), Some(Micros(100)));
        assert_eq!(tuple(config.decide(&mut state, jumped)), (false, 0, 100, 5_100));
        assert_eq!(tuple(config.decide(&mut state, sane)), (false, 0, 100, 5_100));
        assert!(config.decide(&mut state, Timestamp(sane.0 + 100)).is_allowed());
    }
    // by no more than a period: time stands still up to there
    let mut state = fresh(config);
    let jumped = sane.saturating_add(period);
    assert_eq!(config.refused(&mut state, jumped), None);
    assert_eq!(config.refused(&mut state, jumped), Some(Micros(100)));
    assert_eq!(tuple(config.decide(&mut state, sane)), (false, 0, 100, 5_100));
    assert_eq!(tuple(config.decide(&mut state, jumped)), (false, 0, 100, 5_100));
    assert!(config.decide(&mut state, Timestamp(jumped.0 + 100)).is_allowed());
    // what is over stays over, also where time begins
    assert_eq!(tuple(config.decide(&mut state, Timestamp(3))), (true, 2, 0, 5_000));
}

#[test]
fn a_foreign_state_is_noticed() {
    // 2 in a row last 20 and 25, forgiven after 30
    let config = config(3, [10, 20, 25, 30]);
    let accepts = |words: [u64; 6]| config.accepts(&config.state(words).unwrap()).is_ok();
    assert!(accepts([0; 6]));
    assert!(accepts([0, 0, 57, 2, 57, 48]));
    assert!(!accepts([0, 0, 57, 2, 57, 47]), "too old to be remembered");
    assert!(!accepts([0, 0, 57, 1, 57, 48]), "more than it says");
    assert!(!accepts([0, 1, 57, 0, 0, 0]), "forgiven, and still in a row");
    assert!(!accepts([1, 0, 57, 0, 0, 0]), "not forgiven, and none in a row");
    assert!(accepts([50, 1, 57, 0, 0, 0]));
    assert!(!accepts([51, 1, 57, 0, 0, 0]), "longer than the first");
    assert!(accepts([55, 2, 57, 0, 0, 0]));
    assert!(!accepts([56, 2, 57, 0, 0, 0]), "longer than any");
    assert!(!accepts([50, 3, 57, 0, 0, 0]), "counted no further");
    assert!(!accepts([u64::MAX, u64::MAX, 57, 0, 0, 0]));
    assert!(!accepts([31, 1, 57, 1, 57, 0]), "nothing counts while a penalty lasts");
    assert!(accepts([25, 1, 57, 1, 52, 0]));
    assert!(!accepts([25, 1, 57, 1, 51, 0]), "counted before the penalty ended");
    assert!(config.state([0; 5]).is_err(), "a word short");
    assert!(config.state([0; 7]).is_err(), "a word over");
}

/// What may happen at a time.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Decide,
    Refused,
    Forgive,
}

/// Does the same to both and compares all that is answered.
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

/// Every sequence of decisions and refusals at each of nine times, the first ones and the last
/// ones, and of forgiving: of four operations with an oracle that remembers everything, of any
/// length with oracles taken as the same where what decides their later answers is.
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

/// Operations with where the time goes before each.
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

/// Words as they might lie in a store: some of a state, some nearly so, some anything.
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
        state.words
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

    /// Worked out from what was refused and when penalties began, alone.
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
