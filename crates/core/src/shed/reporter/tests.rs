use tidegate_reference::shed::reporter::{Answer, Oracle};

use super::{Config, FACTOR_LIFE, LocalCap, State, Verdict};
use crate::shed::suppression::{PART, REPORT_EVERY, Report};
use crate::shed::{Draw, Probability};
use crate::{CostExceedsCapacity, Limiter, MAX_QUANTITY, Micros, Rate, Timestamp};

mod histories;

const SECOND: u64 = 1_000_000;
/// The start of a part.
const START: u64 = 1_699_999_998 * SECOND;
const HALF: u64 = 1 << 31;

fn config(units: u64, period: u64, cap: LocalCap) -> Config {
    Config::new(Rate::new(units, Micros(period)).unwrap(), cap)
}

fn factor(units: u64) -> Probability {
    Probability::from_units(units).unwrap()
}

fn oracle(config: Config) -> Oracle {
    Oracle::new((config.capacity() < MAX_QUANTITY).then_some(config.capacity()))
}

fn answer(verdict: Result<Verdict, CostExceedsCapacity>) -> Option<Answer> {
    verdict.ok().map(|verdict| match verdict {
        Verdict::Admitted => Answer::Admitted,
        Verdict::Suppressed { factor } => Answer::Suppressed { factor: factor.units() },
        Verdict::Capped { retry_after } => Answer::Capped { retry_after: retry_after.0 },
    })
}

fn tuples(reports: [Option<Report>; 2]) -> [Option<(u64, u64, u64)>; 2] {
    reports.map(|report| {
        report.map(|report| (report.offered_at.0, report.admitted, report.suppressed))
    })
}

#[test]
fn a_factor_above_certain_suppresses_everything() {
    let config = config(1, SECOND, LocalCap::On);
    let mut words = [0; 10];
    [words[0], words[8], words[9]] = [START, Probability::CERTAIN.units() + 1, FACTOR_LIFE.0];
    let mut state = State::from(words);
    assert!(config.accepts(&state).is_err());
    for draw in [0, u32::MAX].map(Draw) {
        let verdict = config.decide(&mut state, Timestamp(START), 1, draw).unwrap();
        assert_eq!(verdict, Verdict::Suppressed { factor: Probability::CERTAIN });
    }
}

#[test]
fn decides_as_worked_out_by_hand() {
    let config = config(1, SECOND, LocalCap::On); // 6 a part
    let mut state = State::default();
    config.apply(&mut state, Timestamp(START), factor(HALF)); // until 24 s
    let (low, high) = (Draw(0), Draw(u32::MAX));
    let capped = |seconds| Verdict::Capped { retry_after: Micros(seconds * SECOND) };
    let suppressed = Verdict::Suppressed { factor: factor(HALF) };
    for (second, units, draw, expected) in [
        (1, 4, high, Verdict::Admitted),
        (2, 2, low, suppressed),
        (2, 3, high, capped(4)), // 4 + 3 > 6; suppressed units do not count
        (2, 2, high, Verdict::Admitted),
        (5, 1, high, capped(1)),
        (5, 0, high, Verdict::Admitted), // to look is free
        (5, 0, low, suppressed),
        (6, 6, high, Verdict::Admitted),
        (12, 1, Draw(1 << 31), Verdict::Admitted),
        (12, 1, Draw((1 << 31) - 1), suppressed),
        (24, 1, low, Verdict::Admitted), // the master is gone
    ] {
        let now = Timestamp(START + second * SECOND);
        let verdict = config.decide(&mut state, now, units, draw);
        assert_eq!(verdict, Ok(expected), "at {second} s");
    }
    let too_much = CostExceedsCapacity { cost: 7, capacity: 6 };
    assert_eq!(config.decide(&mut state, Timestamp(START), 7, high), Err(too_much));
}

#[test]
fn reports_as_worked_out_by_hand() {
    let config = config(1, SECOND, LocalCap::Off);
    let mut state = State::default();
    let at = |tenths: u64| Timestamp(START + tenths * SECOND / 10);
    let offer = |state: &mut State, tenths, units, factor_units| {
        config.apply(state, at(tenths), factor(factor_units));
        let verdict = config.decide(state, at(tenths), units, Draw(0)).unwrap();
        assert_eq!(verdict.is_admitted(), factor_units == 0);
    };
    assert!(!config.report_due(&state, at(0)), "nothing to report");
    offer(&mut state, 39, 5, 0);
    assert!(config.report_due(&state, at(39)), "the first one at once");
    let first = Some((START, 5, 0));
    assert_eq!(tuples(config.take_reports(&mut state, at(39))), [first, None]);
    assert_eq!(tuples(config.take_reports(&mut state, at(50))), [None; 2], "nothing new");

    offer(&mut state, 55, 100, 0);
    offer(&mut state, 58, 10, HALF);
    assert!(!config.report_due(&state, at(58)), "2 s have not passed");
    assert_eq!(tuples(config.take_reports(&mut state, at(58))), [None; 2]);
    offer(&mut state, 61, 7, 0);
    // reports are split where the part ended
    let expected = [Some((START + PART.0, 7, 0)), Some((START, 100, 10))];
    assert_eq!(tuples(config.take_reports(&mut state, at(61))), expected);

    // after three parts without a report, the oldest is lost
    for (tenths, units) in [(65, 1), (125, 2), (185, 3)] {
        offer(&mut state, tenths, units, 0);
    }
    let expected = [Some((START + 3 * PART.0, 3, 0)), Some((START + 2 * PART.0, 2, 0))];
    assert_eq!(tuples(config.take_reports(&mut state, at(185))), expected);

    // counts that are older than the master's four parts are not reported
    offer(&mut state, 240, 9, 0);
    assert!(config.report_due(&state, at(479)));
    assert!(!config.report_due(&state, at(480)));
}

#[test]
fn reports_are_taken_before_a_move_that_would_lose_units() {
    let config = config(9, SECOND, LocalCap::On);
    let at = |second: u64| Timestamp(START + second * SECOND);
    let mut state = State::default();
    let offer = |state: &mut State, second, units| {
        let _ = config.decide(state, at(second), units, Draw(u32::MAX)).unwrap();
    };
    offer(&mut state, 4, 1);
    let _ = config.take_reports(&mut state, at(4)); // the next one is due at 6 s
    offer(&mut state, 5, 2);
    assert_eq!(config.take_before(&mut state, at(6)), [None; 2], "one part");
    offer(&mut state, 6, 3);
    let before = state;
    assert_eq!(config.take_before(&mut state, at(11)), [None; 2], "the part goes on");
    assert_eq!(config.take_before(&mut state, at(0)), [None; 2], "a clock that goes back");
    assert_eq!(state, before);
    let taken = tuples(config.take_before(&mut state, at(12)));
    assert_eq!(taken, [Some((at(6).0, 3, 0)), Some((at(0).0, 2, 0))]);
    assert_eq!(state.newest(), at(6), "it does not move");
    assert_eq!(config.take_before(&mut state, at(12)), [None; 2], "they count as sent");
    assert!(!config.report_due(&state, at(60)));
}

#[test]
fn the_cap_is_the_limit_of_a_part_and_at_least_one() {
    for (units, period, expected) in [
        (1, 60 * SECOND, 1),
        (1, 6 * SECOND, 1),
        (11, 6 * SECOND, 11),
        (1, SECOND / 3, 18), // 18.000018
        (1, SECOND / 3 + 1, 17),
        (MAX_QUANTITY, 1, MAX_QUANTITY),
        (1, MAX_QUANTITY, 1),
    ] {
        assert_eq!(config(units, period, LocalCap::On).capacity(), expected);
        assert_eq!(config(units, period, LocalCap::Off).capacity(), MAX_QUANTITY);
    }
    let without = config(1, SECOND, LocalCap::Off);
    let mut state = State::default();
    for _ in 0..3 {
        let said = without.decide(&mut state, Timestamp(SECOND), MAX_QUANTITY, Draw(0));
        assert_eq!(said, Ok(Verdict::Admitted), "the most that is counted caps nothing");
    }
}

#[test]
fn a_jump_ahead_and_back_locks_for_no_longer_than_a_period() {
    for ahead in [24 * SECOND + 1, 1 << 40, u64::MAX - START - 60 * SECOND] {
        let config = config(1, SECOND, LocalCap::On);
        let mut state = State::default();
        let jumped = Timestamp(START + ahead);
        assert!(config.decide(&mut state, jumped, 6, Draw(0)).unwrap().is_admitted());
        assert!(config.report_due(&state, jumped));
        let _ = config.take_reports(&mut state, jumped);
        config.apply(&mut state, jumped, Probability::CERTAIN);
        let _ = config.decide(&mut state, jumped, 1, Draw(0));

        let at = |after: u64| Timestamp(START + after);
        assert!(matches!(
            config.decide(&mut state, at(0), 1, Draw(0)),
            Ok(Verdict::Capped { retry_after: PART })
        ));
        assert!(config.accepts(&state).is_ok());
        assert!(!config.report_due(&state, at(REPORT_EVERY.0 - 1)));
        assert!(config.report_due(&state, at(REPORT_EVERY.0)));
        let decided = |after: u64| config.peek(&state, at(after), 1, Draw(0)).unwrap();
        assert!(!decided(FACTOR_LIFE.0 - 1).is_admitted());
        assert!(decided(FACTOR_LIFE.0).is_admitted());
    }
}

#[test]
fn a_foreign_state_is_noticed() {
    let config = config(1, SECOND, LocalCap::On);
    let good = [START, 6, 5, 9, 4, 0, 3, 2 * SECOND, HALF, 24 * SECOND];
    assert!(config.accepts(&State::default()).is_ok());
    assert!(config.accepts(&config.state(good).unwrap()).is_ok());
    for (word, foreign) in [
        (1, 7), // more than the cap
        (1, 4), // less than its unreported units
        (2, 7),
        (3, MAX_QUANTITY + 1),
        (4, 7),
        (4, 0), // an age of nothing
        (5, MAX_QUANTITY + 1),
        (6, 0),
        (6, 4),
        (7, 2 * SECOND + 1),
        (8, 0),
        (8, (1 << 32) + 1),
        (9, 24 * SECOND + 1),
        (9, 0),
    ] {
        let mut words = good;
        words[word] = foreign;
        assert!(config.accepts(&config.state(words).unwrap()).is_err(), "{word}: {foreign}");
    }
}
