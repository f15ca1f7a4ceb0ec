//! Histories of decisions, reports and factors, compared with the oracle and with the guarantees.

use std::vec::Vec;

use proptest::prelude::*;
use tidegate_reference::shed::reporter::Oracle;

use super::{HALF, SECOND, START, answer, config, factor, oracle, tuples};
use crate::shed::reporter::{Config, FACTOR_LIFE, LocalCap, State, Verdict};
use crate::shed::suppression::{self, Estimator, PART, REPORT_EVERY, Report};
use crate::shed::{Draw, Probability};
use crate::{Limiter, MAX_QUANTITY, Micros, Timestamp};

/// All sequences of up to 6 operations of a reporter at times up to 32 s.
#[test]
fn every_short_history_equals_the_oracle() {
    const TIMES: [u64; 4] = [0, 4, 8, 32];
    fn descend(config: Config, state: State, oracle: &Oracle, depth: u32, seen: &mut u64) {
        for now in TIMES.map(|time| time * SECOND) {
            for action in 0..4 {
                let (mut state, mut oracle) = (state, oracle.clone());
                let before = state;
                let at = Timestamp(now);
                match action {
                    0 | 1 => {
                        let (units, draw) = [(2, 0), (1, u32::MAX)][action];
                        let verdict = config.decide(&mut state, at, units, Draw(draw));
                        let expected = oracle.decide(now, units, draw);
                        assert_eq!(answer(verdict), expected, "{before:?} {now} {action}");
                    }
                    2 => {
                        let reports = tuples(config.take_reports(&mut state, at));
                        assert_eq!(reports, oracle.take_reports(now), "{before:?} {now}");
                    }
                    _ => {
                        config.apply(&mut state, at, factor(HALF));
                        oracle.apply(now, HALF);
                    }
                }
                *seen += 1;
                if depth > 1 {
                    descend(config, state, &oracle, depth - 1, seen);
                }
            }
        }
    }
    let config = config(1, 2 * SECOND, LocalCap::On); // 3 a part
    let mut seen = 0;
    descend(config, State::default(), &oracle(config), 6, &mut seen);
    assert_eq!(seen, (1..=6).map(|length| 16_u64.pow(length)).sum());
}

prop_compose! {
    fn configs()(most in 1..40_u64, on: bool) -> Config {
        config(most, PART.0, if on { LocalCap::On } else { LocalCap::Off })
    }
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Decide { units: u64, draw: u32 },
    TakeReports,
    Apply { factor: u64 },
}

/// How the time changes, and the operation.
type Call = ((u8, u64), Action);

fn calls() -> impl Strategy<Value = Vec<Call>> {
    // ahead, back, to
    let clock = prop_oneof![
        12 => (Just(0), 0..2 * SECOND),
        2 => (Just(0), 0..40 * SECOND),
        2 => (Just(1), 0..60 * SECOND),
        1 => (Just(2), prop_oneof![Just(0), Just(u64::MAX), 0..1_u64 << 40]),
    ];
    let action = prop_oneof![
        4 => (0..30_u64, any::<u32>()).prop_map(|(units, draw)| Action::Decide { units, draw }),
        2 => Just(Action::TakeReports),
        1 => prop_oneof![Just(0), 0..=1_u64 << 32].prop_map(|factor| Action::Apply { factor }),
    ];
    proptest::collection::vec((clock, action), 50)
}

fn later(now: u64, clock: (u8, u64)) -> u64 {
    match clock {
        (0, by) => now.saturating_add(by),
        (1, by) => now.saturating_sub(by),
        (_, to) => to,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_700))] // 135,000 calls

    #[test]
    fn equals_the_oracle(config in configs(), calls in calls()) {
        let (mut state, mut oracle) = (State::default(), oracle(config));
        let mut now = 100 * SECOND;
        for (clock, action) in calls {
            now = later(now, clock);
            let (at, before) = (Timestamp(now), state);
            match action {
                Action::Decide { units, draw } => {
                    let peeked = config.peek(&state, at, units, Draw(draw));
                    prop_assert_eq!(state, before, "a peek changes nothing");
                    let verdict = config.decide(&mut state, at, units, Draw(draw));
                    let expected = oracle.decide(now, units, draw);
                    prop_assert_eq!(answer(verdict), expected, "{:?} at {}", before, now);
                    prop_assert_eq!(peeked, verdict);
                    if let Ok(Verdict::Capped { retry_after }) = verdict {
                        let at = state.newest().saturating_add(retry_after);
                        let capped = |at| matches!(
                            config.peek(&state, at, units, Draw(u32::MAX)),
                            Ok(Verdict::Capped { .. })
                        );
                        prop_assert!(at == Timestamp(u64::MAX) || !capped(at));
                        prop_assert!(capped(Timestamp(at.0 - 1)));
                    }
                }
                Action::TakeReports => {
                    let due = config.report_due(&state, at);
                    let expected = oracle.take_reports(now);
                    prop_assert_eq!(tuples(config.take_reports(&mut state, at)), expected);
                    prop_assert_eq!(due, expected != [None; 2]);
                }
                Action::Apply { factor: units } => {
                    config.apply(&mut state, at, factor(units));
                    oracle.apply(now, units);
                }
            }
            if !matches!(action, Action::Decide { .. }) || state != before {
                prop_assert_eq!(state.newest().0, oracle.newest());
            }
            prop_assert!(config.accepts(&state).is_ok(), "{:?}", state);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Tests both sides together: reporters with timers of any phase, a network that delays reports
    /// and replies, and a load that uses every part up to the last unit.
    #[test]
    fn an_account_within_its_limit_is_neither_capped_nor_suppressed(
        (most, estimator) in (1..400_u64, prop_oneof![
            Just(Estimator::LinearAdmitted { ramp: 2 }),
            Just(Estimator::ModifiedMean),
            Just(Estimator::NewestPart),
        ]),
        parts in proptest::collection::vec(
            proptest::collection::vec((0..PART.0, 1..5_u64, 0..3_usize), 1..12), 6,
        ),
        phases in [0..REPORT_EVERY.0, 0..REPORT_EVERY.0, 0..REPORT_EVERY.0],
        delay in 0..3 * SECOND,
    ) {
        let config = config(most, PART.0, LocalCap::On);
        let master = suppression::Config::new(config.limit(), estimator).unwrap();
        let mut account = suppression::State::default();
        let mut reporters = [State::default(); 3];
        enum Event { Offer(u64), Timer, Arrive([Option<Report>; 2]), Reply(Probability) }
        let mut events: Vec<(u64, usize, Event)> = Vec::new();
        for (index, units) in (0_u64..).zip(&parts) {
            let weights: u64 = units.iter().map(|unit: &(u64, u64, usize)| unit.1).sum();
            let mut left = most;
            for (nth, &(at, weight, reporter)) in units.iter().enumerate() {
                let share = if nth + 1 == units.len() { left } else { most * weight / weights };
                left -= share;
                events.push((START + index * PART.0 + at, reporter, Event::Offer(share)));
            }
        }
        for (reporter, phase) in phases.into_iter().enumerate() {
            for tick in 0..20 {
                events.push((START + phase + tick * REPORT_EVERY.0, reporter, Event::Timer));
            }
        }
        while !events.is_empty() {
            let next = (0..events.len()).min_by_key(|&i| events[i].0).unwrap();
            let (at, reporter, event) = events.swap_remove(next);
            let (now, state) = (Timestamp(at), &mut reporters[reporter]);
            match event {
                Event::Offer(units) => {
                    let verdict = config.decide(state, now, units, Draw(0)).unwrap();
                    prop_assert_eq!(verdict, Verdict::Admitted);
                }
                Event::Timer => {
                    let reports = config.take_reports(state, now);
                    events.push((at + delay, reporter, Event::Arrive(reports)));
                }
                Event::Arrive(reports) => {
                    for report in reports.into_iter().flatten() {
                        master.report(&mut account, now, report);
                    }
                    let factor = master.factor(&account, now);
                    events.push((at + delay, reporter, Event::Reply(factor)));
                }
                Event::Reply(factor) => config.apply(state, now, factor),
            }
        }
    }
}

proptest! {
    #[test]
    fn no_part_admits_more_than_the_cap(config in configs(), calls in calls()) {
        let mut state = State::default();
        let mut now = START;
        let mut admitted = Vec::new();
        for ((_, by), action) in calls {
            now += by % (2 * SECOND);
            if let Action::Decide { units, draw } = action
                && config.decide(&mut state, Timestamp(now), units, Draw(draw))
                    == Ok(Verdict::Admitted)
            {
                admitted.push((now / PART.0, units));
            }
        }
        for &(part, _) in &admitted {
            let in_part = admitted.iter().filter(|of| of.0 == part).map(|of| of.1);
            prop_assert!(in_part.sum::<u64>() <= config.capacity());
        }
    }

    #[test]
    fn from_expires_at_on_it_equals_a_fresh_one(
        config in configs(), calls in calls(), after in prop_oneof![Just(0), 0..60 * SECOND], draw: u32,
    ) {
        let mut state = State::default();
        let mut now = START;
        for ((_, by), action) in calls {
            now += by % (4 * SECOND);
            let at = Timestamp(now);
            match action {
                Action::Decide { units, draw } => {
                    let _ = config.decide(&mut state, at, units, Draw(draw));
                }
                Action::TakeReports => {
                    let _ = config.take_reports(&mut state, at);
                }
                Action::Apply { factor: units } => config.apply(&mut state, at, factor(units)),
            }
        }
        let expires = config.expires_at(&state);
        prop_assert_eq!(expires, state.newest().saturating_add(config.reset_after(&state)));
        let fresh_at = |at| {
            let mut fresh = State::default();
            config.advance(&mut fresh, at);
            fresh
        };
        let advanced_to = |at| {
            let mut state = state;
            config.advance(&mut state, at);
            state
        };
        let sooner = Timestamp(expires.0 - 1);
        if expires > state.newest() {
            prop_assert_ne!(advanced_to(sooner), fresh_at(sooner), "not a microsecond sooner");
        }
        let at = expires.saturating_add(Micros(after));
        prop_assert_eq!(advanced_to(at), fresh_at(at));
        let mut fresh = State::default();
        prop_assert_eq!(
            config.decide(&mut state, at, 1, Draw(draw)),
            config.decide(&mut fresh, at, 1, Draw(draw))
        );
        prop_assert_eq!(state, fresh);
    }

    #[test]
    fn words_are_never_misread(config in configs(), words: [u64; 10], calls in calls()) {
        let newest = words[0];
        let mut bounded = words;
        bounded[1] %= config.capacity() + 1;
        bounded[2] %= bounded[1] + 1;
        bounded[3] %= MAX_QUANTITY + 1;
        bounded[4] %= config.capacity() + 1;
        bounded[5] %= MAX_QUANTITY + 1;
        bounded[6] = words[6] % 3 + 1;
        bounded[7] %= REPORT_EVERY.0 + 1;
        bounded[8] %= (1 << 32) + 1;
        bounded[9] = words[9] % FACTOR_LIFE.0 + 1;
        for words in [words, bounded] {
            let mut state = config.state(words).unwrap();
            prop_assert_eq!(state.words(), words);
            let accepted = config.accepts(&state).is_ok();
            for &(clock, action) in &calls {
                let at = Timestamp(later(newest, clock));
                match action {
                    Action::Decide { units, draw } => {
                        let _ = config.decide(&mut state, at, units, Draw(draw));
                    }
                    Action::TakeReports => {
                        let _ = config.take_reports(&mut state, at);
                    }
                    Action::Apply { factor: units } => config.apply(&mut state, at, factor(units)),
                }
                prop_assert!(!accepted || config.accepts(&state).is_ok(), "{:?}", state);
            }
        }
    }
}
