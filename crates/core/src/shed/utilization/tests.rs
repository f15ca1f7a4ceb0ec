use std::vec::Vec;

use proptest::prelude::*;
use tidegate_reference::shed::utilization::{Answer, Oracle, Rule};

use super::{Class, Config, Load, State, Thresholds, Timing, Verdict};
use crate::shed::{Draw, Share};
use crate::{ConfigError, Limiter, MAX_QUANTITY, Micros, Timestamp};

const SECOND: u64 = 1_000_000;
const START: u64 = 1_700_000_000 * SECOND;

fn share(ppm: u32) -> Share {
    Share::from_ppm(ppm).unwrap()
}

fn config(good: u32, bad: u32, delay: u64, full: u64, classes: u16) -> Config {
    let thresholds = Thresholds { good: share(good), bad: share(bad) };
    let timing = Timing { delay: Micros(delay), full: Micros(full) };
    Config::new(thresholds, timing, classes).unwrap()
}

fn source(classes: u16) -> Config {
    Config::new(Thresholds::DEFAULT, Timing::DEFAULT, classes).unwrap()
}

fn rule(config: Config) -> Rule {
    Rule {
        good: config.thresholds().good.ppm().into(),
        bad: config.thresholds().bad.ppm().into(),
        delay: config.timing().delay.0.into(),
        full: config.timing().full.0.into(),
        classes: config.classes().into(),
    }
}

fn answer(config: &Config, state: &State, class: Class, verdict: Verdict) -> Answer {
    Answer {
        drop: config.drop_probability(state, class).units(),
        shed: !verdict.is_admitted(),
        retry_after: verdict.retry_after().0,
    }
}

/// 1,200·a, a whole number for the source's constants and signals in whole tenths.
fn over_1200(config: &Config, state: &State) -> i128 {
    let amount = i128::from(state.words()[1]) - i128::from(config.shedding);
    assert_eq!(amount * 1_200 % i128::from(config.span), 0);
    amount * 1_200 / i128::from(config.span)
}

/// Rows: time in seconds, signal in ppm, a·1200.
fn check_trajectory(expected: &[(u64, u32, i128)]) {
    let config = source(1);
    let (mut state, mut oracle) = (State::default(), Oracle::new(rule(config)));
    for &(second, signal, amount) in expected {
        let now = START + second * SECOND;
        config.observe(&mut state, Timestamp(now), share(signal));
        oracle.decide(now, Some(signal), 0, 0);
        assert_eq!(over_1200(&config, &state), amount, "at {second} s");
        assert_eq!(oracle.amount() * 1_200, amount * oracle.whole(), "oracle at {second} s");
        assert_eq!(i128::from(config.amount_ppm(&state)), (amount * 1_000_000).div_euclid(1_200));
    }
}

#[test]
fn the_trajectory_of_the_source_at_a_sample_every_8_seconds() {
    // With all workers busy, a rises by 1/120 a second from −28/120. With none, it falls as fast.
    let mut expected = Vec::new();
    for second in (0..=200).step_by(8) {
        expected.push((second, 1_000_000, (i128::from(second) * 10 - 280).min(1_200)));
    }
    for second in (208..=400).step_by(8) {
        expected.push((second, 0, (1_200 - i128::from(second - 200) * 10).max(-280)));
    }
    assert_eq!(expected[4], (32, 1_000_000, 40), "the first sample at which it sheds");
    assert_eq!(expected[19], (152, 1_000_000, 1_200), "the first at which it sheds all");
    assert_eq!(expected[40], (320, 0, 0), "the first at which it sheds nothing");
    check_trajectory(&expected);
}

#[test]
fn the_dead_zone_holds_and_slopes_are_in_proportion() {
    check_trajectory(&[
        (0, 1_000_000, -280), // a first signal moves nothing
        (28, 1_000_000, 0),
        (48, 1_000_000, 200),
        (58, 700_000, 200), // the dead zone: from good
        (68, 750_000, 200),
        (78, 799_999, 200), // to just below bad
        (88, 800_000, 200), // bad itself: a slope of 0
        (98, 850_000, 225), // (0.85 − 0.8) / 0.2 = 1/4 of the steepest
        (108, 900_000, 275),
        (115, 350_000, 240), // 0.35 / 0.7 − 1 = −1/2
        (125, 0, 140),
        (225, 0, -140), // 100 s without a call count as 28 s
        (253, 0, -280),
        (260, 1_000_000, -210),
        (261, 0, -220),
        (280, 0, -280),
    ]);
}

#[test]
fn a_silence_of_delay_and_full_starts_over() {
    check_trajectory(&[
        (0, 1_000_000, -280),
        (28, 1_000_000, 0),
        (56, 1_000_000, 280),
        (203, 1_000_000, 560), // 147 s count as one delay
        (351, 1_000_000, -280),
        (361, 1_000_000, -180),
    ]);
}

#[test]
fn least_important_first_and_wholly_and_the_most_critical_never() {
    const ALL: u64 = 1 << 32;
    let config = source(4);
    let mut state = State::default();
    // a = 0, 1/8, 1/4, 3/8, …, 1: two steps for each of the four
    let mut second = 0;
    config.observe(&mut state, Timestamp(START), Share::WHOLE);
    for eighth in 0..=8_u64 {
        while second < 28 + 15 * eighth {
            second += 1;
            config.observe(&mut state, Timestamp(START + second * SECOND), Share::WHOLE);
        }
        for class in 0..4_u16 {
            let halves = eighth.saturating_sub(2 * u64::from(class)).min(2);
            let drop = config.drop_probability(&state, Class(class)).units();
            assert_eq!(drop, ALL / 2 * halves, "class {class} at {eighth}/8");
        }
        for class in [Class(4), Class(5), Class::CRITICAL] {
            assert_eq!(config.drop_probability(&state, class).units(), 0);
        }
    }
    let critical = config.peek(&state, state.newest(), None, Class(4), Draw(0));
    assert!(critical.is_admitted());
    let least = config.peek(&state, state.newest(), None, Class(0), Draw(u32::MAX));
    assert_eq!(least.retry_after(), Micros(120 * SECOND));
    let third = config.peek(&state, state.newest(), None, Class(2), Draw(u32::MAX));
    assert_eq!(third.retry_after(), Micros(60 * SECOND));
}

#[test]
fn what_cannot_be_exact_is_refused_with_the_nearest_that_can() {
    let new = |good, bad, delay, full| {
        let thresholds = Thresholds { good: share(good), bad: share(bad) };
        Config::new(thresholds, Timing { delay: Micros(delay), full: Micros(full) }, 3)
    };
    for (good, bad) in [(0, 5), (6, 5), (1, 1_000_000), (1_000_000, 1_000_000)] {
        let expected = ConfigError::UnorderedThresholds { good_ppm: good, bad_ppm: bad };
        assert_eq!(new(good, bad, 1, 1), Err(expected));
    }
    assert!(new(5, 5, 1, 1).is_ok());
    assert!(new(1, 999_999, MAX_QUANTITY - 5, 5).is_ok());
    for (good, bad, delay, full) in [
        (499_999, 500_003, 28 * SECOND, 120 * SECOND),
        (499_999, 500_003, 500 * SECOND, 20 * SECOND),
        (1, 999_999, 5, MAX_QUANTITY),
        (1, 999_999, MAX_QUANTITY, 5),
    ] {
        let Err(ConfigError::ScaleTooFine { field, nearest, .. }) = new(good, bad, delay, full)
        else {
            panic!("{good} {bad} {delay} {full} fit")
        };
        let with = |by: u64| match field {
            "full" => new(good, bad, delay, nearest + by),
            _ => new(good, bad, nearest + by, full),
        };
        assert!(with(0).is_ok() && with(1).is_err(), "{field} {nearest}");
    }
    // as the documentation says
    for (step, hours) in [(1_000, 20), (10_000, 8 * 24)] {
        for good in (step..1_000_000).step_by(step.try_into().unwrap()) {
            assert!(new(good, good, 28 * SECOND, hours * 3_600 * SECOND).is_ok());
        }
    }
    assert!(Config::new(Thresholds::DEFAULT, Timing::DEFAULT, 0).is_err());
    assert!(new(1, 2, 0, 1).is_err() && new(1, 2, 1, 0).is_err());
}

#[test]
fn a_jump_ahead_and_back_locks_for_no_longer_than_a_period() {
    let config = config(500_000, 500_000, 3 * SECOND, 5 * SECOND, 1);
    for ahead in [8 * SECOND + 1, 1 << 40, u64::MAX - START - 100 * SECOND] {
        let mut state = State::default();
        for second in 0..10 {
            config.observe(&mut state, Timestamp(START + ahead + second * SECOND), Share::WHOLE);
        }
        for second in 0..=8 {
            let now = Timestamp(START + second * SECOND);
            let verdict = config.decide(&mut state, now, Some(Share::NONE), Class(0), Draw(0));
            assert_eq!(verdict.is_admitted(), second >= 5, "{ahead}, {second} s after the return");
        }
        assert_eq!(state.words()[1], 0, "at rest after a period");
    }
}

#[test]
fn a_foreign_state_is_noticed() {
    let config = source(2);
    let (top, steepest) = (config.shedding + config.span, config.steepest);
    let accepts = |words| config.accepts(&config.state(words).unwrap()).is_ok();
    assert!(accepts([0, 0, 0]) && accepts([u64::MAX, 0, 0]));
    assert!(accepts([7, top, 2 * steepest + 1]));
    assert!(!accepts([7, top + 1, 1]));
    assert!(!accepts([7, 0, 2 * steepest + 2]));
    assert!(!accepts([7, 1, 0]), "never seen, and not at rest");
}

/// All sequences of up to 6 calls at times up to 8, with every clock and every kind of signal.
#[test]
fn every_short_history_equals_the_oracle() {
    const TIMES: [u64; 4] = [0, 1, 4, 8];
    const SIGNALS: [Option<u32>; 3] = [None, Some(200_000), Some(1_000_000)];
    fn descend(config: Config, state: State, oracle: &Oracle, depth: u32, seen: &mut u64) {
        if depth == 0 {
            return;
        }
        for now in TIMES {
            for signal in SIGNALS {
                let (mut state, mut oracle) = (state, oracle.clone());
                let expected = oracle.decide(now, signal, 0, 0);
                let verdict =
                    config.decide(&mut state, Timestamp(now), signal.map(share), Class(0), Draw(0));
                assert_eq!(answer(&config, &state, Class(0), verdict), expected, "{state:?}");
                *seen += 1;
                descend(config, state, &oracle, depth - 1, seen);
            }
        }
    }
    let config = config(400_000, 600_000, 2, 3, 2); // a silence of 5 starts over
    let mut seen = 0;
    descend(config, State::default(), &Oracle::new(rule(config)), 6, &mut seen);
    assert_eq!(seen, (1..=6).map(|length| 12_u64.pow(length)).sum());
}

prop_compose! {
    fn configs()(good in 1..1_000_000_u32, classes in 1..5_u16)(
        good in Just(good), bad in good..1_000_000, delay in 1..100_u64, full in 1..300_u64,
        classes in Just(classes),
    ) -> Config {
        config(good, bad, delay, full, classes)
    }
}

/// How the time changes, the signal, the class and the draw.
type Call = (u64, u64, Option<u32>, u16, u32);

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let signal = prop_oneof![
        1 => Just(None),
        1 => (0..=1_000_000_u32).prop_map(Some),
        2 => Just(Some(1_000_000)),
        1 => Just(Some(0)),
    ];
    // ahead, back, to
    let clock = prop_oneof![
        12 => (Just(0), 0..60_u64),
        2 => (Just(0), 100..500_u64),
        2 => (Just(1), 0..900_u64),
        1 => (Just(2), prop_oneof![Just(0), Just(u64::MAX), 0..1_u64 << 40]),
    ];
    let call = (clock, signal, 0..6_u16, any::<u32>());
    let call = call.prop_map(|((kind, by), signal, class, draw)| (kind, by, signal, class, draw));
    proptest::collection::vec(call, 50)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_700))] // 135,000 calls

    #[test]
    fn equals_the_oracle(config in configs(), calls in calls()) {
        let (mut state, mut oracle) = (State::default(), Oracle::new(rule(config)));
        let mut now = 10_000;
        for (kind, by, signal, class, draw) in calls {
            now = match kind {
                0 => u64::saturating_add(now, by),
                1 => u64::saturating_sub(now, by),
                _ => by,
            };
            let before = state;
            let (at, signal_share) = (Timestamp(now), signal.map(share));
            let peeked = config.peek(&state, at, signal_share, Class(class), Draw(draw));
            prop_assert_eq!(state, before, "a peek changes nothing");
            let decided = config.decide(&mut state, at, signal_share, Class(class), Draw(draw));
            let expected = oracle.decide(now, signal, class, draw);
            let decided_at = answer(&config, &state, Class(class), decided);
            prop_assert_eq!(decided_at, expected, "{:?} at {}", before, now);
            prop_assert_eq!(peeked, decided);
            prop_assert_eq!(state.newest().0, oracle.newest());
            prop_assert!(config.accepts(&state).is_ok(), "{:?}", state);
            // no faster than 1/F a microsecond
            let moved = state.words()[1].abs_diff(if state.words()[2] == 0 { 0 } else { before.words()[1] });
            let elapsed = state.newest().saturating_since(before.newest()).0;
            prop_assert!(
                elapsed >= config.period().0
                    || u128::from(moved) <= u128::from(elapsed) * u128::from(config.steepest)
            );
        }
    }
}

proptest! {
    #[test]
    fn retry_after_is_the_first_microsecond_that_sheds_nothing(
        config in configs(), level in any::<u64>(), class in 0..4_u16,
    ) {
        let top = config.shedding + config.span;
        let mut state = config.state([START, level % (top + 1), 1]).unwrap();
        let verdict = config.peek(&state, state.newest(), None, Class(class), Draw(0));
        prop_assume!(!verdict.is_admitted());
        let spared_at = verdict.retry_after().0;
        prop_assert!((1..=config.timing().full.0).contains(&spared_at));
        for after in 1..=spared_at {
            prop_assert!(config.shed_of(Load::of(&state), Class(class)).is_some(), "{} of {}", after, spared_at);
            config.observe(&mut state, Timestamp(START + after), Share::NONE);
        }
        prop_assert!(config.shed_of(Load::of(&state), Class(class)).is_none());
    }

    #[test]
    fn from_expires_at_on_it_equals_a_fresh_one(
        config in configs(), calls in calls(), later in prop_oneof![Just(0), 0..1_000_u64],
        signal in proptest::option::of(0..=1_000_000_u32), observed: bool,
    ) {
        let mut state = State::default();
        let mut now = START;
        for (_, by, signal, ..) in calls {
            now += by % 100;
            match signal {
                Some(signal) => config.observe(&mut state, Timestamp(now), share(signal)),
                None => config.advance(&mut state, Timestamp(now)),
            }
        }
        let expires = config.expires_at(&state);
        prop_assert_eq!(expires, state.newest().saturating_add(config.reset_after(&state)));
        let mut last = state; // a microsecond sooner the key is still known
        config.advance(&mut last, Timestamp(expires.0 - 1));
        prop_assert!(last.words()[2] != 0 || state.words()[2] == 0);

        let at = expires.saturating_add(Micros(later));
        let (mut fresh, signal) = (State::default(), signal.map(share));
        if observed {
            config.advance(&mut state, at);
            config.advance(&mut fresh, at);
        } else {
            prop_assert_eq!(
                config.decide(&mut state, at, signal, Class(0), Draw(0)),
                config.decide(&mut fresh, at, signal, Class(0), Draw(0))
            );
        }
        prop_assert_eq!(state, fresh);
    }

    #[test]
    fn words_are_never_misread(
        config in configs(), newest: u64, level: u64, trend: u64, calls in calls(),
    ) {
        let bounded = [newest, level % (config.shedding + config.span + 2),
            trend % (2 * config.steepest + 3)];
        for words in [[newest, level, trend], bounded] {
            let mut state = config.state(words).unwrap();
            let accepted = config.accepts(&state).is_ok();
            for &(_, by, signal, class, draw) in &calls {
                let at = Timestamp(newest.wrapping_add(by));
                let signal = signal.map(share);
                let verdict = config.decide(&mut state, at, signal, Class(class), Draw(draw));
                prop_assert!(verdict.retry_after() <= config.timing().full || !accepted);
                prop_assert!(class < config.classes() || verdict.is_admitted());
                prop_assert!(!accepted || config.accepts(&state).is_ok(), "{:?}", state);
            }
        }
    }
}
