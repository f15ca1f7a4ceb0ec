mod histories;

use tidegate_reference::shed::suppression::{Oracle, Profile, Rule};

use super::{Config, Estimator, PART, Report, State};
use crate::shed::{Draw, Probability};
use crate::{Limiter, MAX_QUANTITY, Micros, Rate, Timestamp};

const SECOND: u64 = 1_000_000;
const START: u64 = 1_699_999_998 * SECOND;
const ESTIMATORS: [Estimator; 3] =
    [Estimator::LinearAdmitted { ramp: 2 }, Estimator::ModifiedMean, Estimator::NewestPart];

fn config(units: u64, period: u64, estimator: Estimator) -> Config {
    Config::new(Rate::new(units, Micros(period)).unwrap(), estimator).unwrap()
}

fn rule(config: Config) -> Rule {
    Rule {
        units: config.limit().units().into(),
        period: config.limit().period().0.into(),
        profile: match config.estimator() {
            Estimator::LinearAdmitted { ramp } => Profile::LinearAdmitted { ramp: ramp.into() },
            Estimator::ModifiedMean => Profile::ModifiedMean,
            Estimator::NewestPart => Profile::NewestPart,
        },
    }
}

/// The units of 2^-32 of a factor part/whole.
fn fraction(part: u64, whole: u64) -> u64 {
    u64::try_from((u128::from(part) << 32) / u128::from(whole)).unwrap()
}

#[test]
fn factors_as_worked_out_by_hand() {
    // The limit is 1 a second: 6 a part, 24 a period. Rows: the report as (second, second of the
    // offer, admitted, suppressed), and the factors of linear, modified mean and newest part.
    assert_eq!(START % PART.0, 0);
    let configs = ESTIMATORS.map(|estimator| config(1, SECOND, estimator));
    let mut states = [State::default(); 3];
    for ((now, of, admitted, suppressed), factors) in [
        ((1, 1, 6, 0), [(0, 1), (0, 1), (0, 1)]), // the whole of a part at once: within the limit
        // 7 in this part break the limit; mean 7/24 per second; 7 in 2 s, since 1 s is too short
        ((1, 1, 1, 0), [(0, 1), (0, 1), (5, 7)]),
        ((3, 3, 5, 3), [(0, 1), (0, 1), (4, 5)]), // 15 in 3 s
        // 6 s: the report is of the last part; 45 complete: 45/18 in the mean of three, 45/6 newest
        ((6, 5, 15, 15), [(3, 48), (27, 45), (39, 45)]),
        // 9 s: 16 in progress, more than the mean 45/3: (45 + 16)/24; 16 in 3 s is less than 45/6
        ((9, 9, 1, 15), [(4, 48), (37, 61), (39, 45)]),
        ((9, 9, 0, 14), [(4, 48), (51, 75), (9, 10)]), // 30 in 3 s: 10 a second
        // 13 s: newest complete 30, before it 45; 2 s have not passed, so late reports may come
        ((13, 13, 0, 0), [(4, 48), (57, 75), (39, 45)]),
        ((14, 14, 0, 0), [(4, 48), (57, 75), (24, 30)]),
        // 24 s: the 45 have left; 30, 0, 0 complete
        ((24, 24, 0, 0), [(0, 1), (12, 30), (12, 30)]),
        ((30, 30, 0, 0), [(0, 1), (0, 1), (0, 1)]),
        ((35, 11, 90, 90), [(0, 1), (0, 1), (0, 1)]), // a report of a part that has left
        ((35, 12, 96, 0), [(72, 48), (78, 96), (78, 96)]),
    ] {
        for ((config, state), (part, whole)) in configs.iter().zip(&mut states).zip(factors) {
            let now = Timestamp(START + now * SECOND);
            let offered_at = Timestamp(START + of * SECOND);
            config.report(state, now, Report { offered_at, admitted, suppressed });
            let expected = fraction(part, whole).min(1 << 32);
            let factor = config.factor(state, now).units();
            assert_eq!(factor, expected, "{:?} at {now:?}", config.estimator());
        }
    }
}

/// Compares at the last draw that is refused and at the first that passes.
#[test]
fn units_are_counted_in_parts_of_six_seconds() {
    let config = |units, period| config(units, period, Estimator::NewestPart);
    for (units, period, in_a_part) in [
        (1, SECOND, 6),
        (1, 4 * SECOND, 1),
        (1, 60 * SECOND, 1), // at least 1
        (MAX_QUANTITY, 1, MAX_QUANTITY),
    ] {
        assert_eq!(config(units, period).units_per_part(), in_a_part, "{units} in {period} µs");
    }
    let (config, mut state) = (config(1, SECOND), State::default());
    assert_eq!(state.offered_in_part(), 0);
    for (admitted, suppressed, offered) in [(5, 0, 5), (2, 4, 11)] {
        let report = Report { offered_at: Timestamp(START + SECOND), admitted, suppressed };
        config.report(&mut state, Timestamp(START + SECOND), report);
        assert_eq!(state.offered_in_part(), offered);
    }
    config.advance(&mut state, Timestamp(START + 6 * SECOND));
    assert_eq!(state.offered_in_part(), 0, "another part");
}

#[test]
fn a_draw_is_compared_with_a_factor_that_is_rounded_down() {
    for (period, units, factor) in [
        (SECOND, 48, 1 << 31), // twice the limit: exactly a half
        (360 * SECOND, 1, (14_u64 << 32).div_euclid(15)), // 1 in 24 s at 1 in 360 s
    ] {
        let config = config(1, period, Estimator::ModifiedMean);
        let mut state = State::default();
        let now = Timestamp(START);
        config.report(&mut state, now, Report { offered_at: now, admitted: units, suppressed: 0 });
        assert_eq!(config.factor(&state, now).units(), factor);
        let passes = |draw| config.decide(&mut { state }, now, 1, Draw(draw));
        let factor = u32::try_from(factor).unwrap();
        assert_eq!([passes(factor - 1), passes(factor)], [false, true]);
    }
}

#[test]
fn a_linear_profile_ends_at_its_ramp() {
    for (ramp, admitted, expected) in
        [(1, 36, fraction(1, 2)), (1, 48, 1 << 32), (2, 48, fraction(1, 2)), (2, 72, 1 << 32)]
    {
        let config = config(1, SECOND, Estimator::LinearAdmitted { ramp });
        let mut state = State::default();
        let (now, offered_at) = (Timestamp(START), Timestamp(START));
        config.report(&mut state, now, Report { offered_at, admitted, suppressed: 1_000 });
        assert_eq!(config.factor(&state, now).units(), expected, "{ramp} {admitted}");
    }
    let limit = Rate::new(1, Micros::SECOND).unwrap();
    assert!(Config::new(limit, Estimator::LinearAdmitted { ramp: 0 }).is_err());
}

#[test]
fn counts_end_at_the_largest_quantity_and_no_scale_is_too_fine() {
    for estimator in ESTIMATORS {
        for (units, period) in
            [(1, 1), (1, MAX_QUANTITY), (MAX_QUANTITY, 1), (MAX_QUANTITY, MAX_QUANTITY - 1)]
        {
            let config = config(units, period, estimator);
            let mut state = State::default();
            for part in 0..4 {
                for _ in 0..2 {
                    let at = Timestamp(START + part * PART.0);
                    let (admitted, suppressed) = (u64::MAX, MAX_QUANTITY);
                    config.report(&mut state, at, Report { offered_at: at, admitted, suppressed });
                }
            }
            assert_eq!(state.words()[1..], [MAX_QUANTITY; 8]);
            assert!(config.accepts(&state).is_ok());
            let factor = config.factor(&state, state.newest());
            assert_eq!(factor > Probability::NEVER, units / period < (1 << 20), "{config:?}");
        }
    }
}

#[test]
fn a_reporter_ahead_moves_the_clock_by_at_most_a_part() {
    let config = config(1, SECOND, Estimator::NewestPart);
    let mut state = State::default();
    let now = Timestamp(START);
    let report =
        |ahead| Report { offered_at: Timestamp(START + ahead), admitted: 1, suppressed: 0 };
    config.report(&mut state, now, report(PART.0 - 1));
    assert_eq!(state.words()[..4], [START + PART.0 - 1, 1, 0, 0]);
    config.report(&mut state, now, report(1 << 40));
    assert_eq!(state.words()[..4], [START + PART.0, 1, 0, 1]);
    config.report(&mut state, now, report(0));
    assert_eq!(state.words()[..4], [START + PART.0, 1, 0, 2]);
}

#[test]
fn a_jump_ahead_and_back_keeps_parts_and_their_ages() {
    for ahead in [24 * SECOND + 1, 1 << 40, u64::MAX - START - 60 * SECOND] {
        let config = config(1, SECOND, Estimator::ModifiedMean);
        let mut state = State::default();
        let jumped = Timestamp(START + ahead);
        config.report(
            &mut state,
            jumped,
            Report { offered_at: jumped, admitted: 240, suppressed: 0 },
        );
        for (second, suppressed) in [(0, true), (18, true), (24, false)] {
            let now = Timestamp(START + second * SECOND);
            config.advance(&mut state, now);
            assert_eq!(state.newest(), now);
            assert_eq!(config.factor(&state, now) > Probability::NEVER, suppressed, "{second}");
        }
        assert_eq!(config.expires_at(&state), state.newest());
    }
}

/// All sequences of up to 6 reports at four times up to 32 s, for all three estimators.
#[test]
fn every_short_history_equals_the_oracle() {
    const TIMES: [u64; 4] = [0, 4, 8, 32];
    /// (Seconds from the offer to the report, admitted, suppressed).
    const REPORTS: [(i64, u64, u64); 3] = [(0, 12, 0), (6, 0, 9), (-3, 5, 2)];
    fn descend(state: State, oracle: &Oracle, depth: u32, seen: &mut u64) {
        for now in TIMES {
            for (before, admitted, suppressed) in REPORTS {
                let (mut state, mut oracle) = (state, oracle.clone());
                let at = now * SECOND;
                let offered_at = now.saturating_add_signed(-before) * SECOND;
                oracle.report(at, offered_at, admitted, suppressed);
                let report = Report { offered_at: Timestamp(offered_at), admitted, suppressed };
                config(1, SECOND, Estimator::ModifiedMean).report(
                    &mut state,
                    Timestamp(at),
                    report,
                );
                for estimator in ESTIMATORS {
                    let config = config(1, SECOND, estimator);
                    let factor = config.factor(&state, Timestamp(at)).units();
                    assert_eq!(factor, oracle.factor(rule(config), at), "{state:?}");
                }
                *seen += 1;
                if depth > 1 {
                    descend(state, &oracle, depth - 1, seen);
                }
            }
        }
    }
    let mut seen = 0;
    descend(State::default(), &Oracle::default(), 6, &mut seen);
    assert_eq!(seen, (1..=6).map(|length| 12_u64.pow(length)).sum());
}
