use std::vec::Vec;

use proptest::prelude::*;
use tidegate_reference::shed::suppression::{Oracle, Profile, Rule};

use super::{Config, Estimator, PART, Report, State};
use crate::shed::{Draw, Probability};
use crate::window::Refund;
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

fn estimators() -> impl Strategy<Value = Estimator> {
    prop_oneof![
        (1..5_u16).prop_map(|ramp| Estimator::LinearAdmitted { ramp }),
        Just(Estimator::ModifiedMean),
        Just(Estimator::NewestPart),
    ]
}

prop_compose! {
    fn configs()(units in 1..200_u64, period in 1..20_000_000_u64, estimator in estimators())
        -> Config
    {
        config(units, period, estimator)
    }
}

/// How the time changes, how long before or after the units were offered, and the counts in per
/// mille of 6 s at the limit.
#[derive(Clone, Copy, Debug)]
struct Call {
    clock: (u8, u64),
    offered: i64,
    admitted: u64,
    suppressed: u64,
}

impl Call {
    fn now(self, now: u64) -> u64 {
        match self.clock {
            (0, by) => now.saturating_add(by),
            (1, by) => now.saturating_sub(by),
            (_, to) => to,
        }
    }

    fn report(self, config: Config, now: u64) -> Report {
        let in_a_part = config.limit().units() * PART.0 / config.limit().period().0;
        let count = |per_mille: u64| in_a_part.max(1) * per_mille / 1_000;
        Report {
            offered_at: Timestamp(now.saturating_add_signed(self.offered)),
            admitted: count(self.admitted),
            suppressed: count(self.suppressed),
        }
    }
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    // ahead, back, to
    let clock = prop_oneof![
        12 => (Just(0), 0..4 * SECOND),
        2 => (Just(0), 0..40 * SECOND),
        2 => (Just(1), 0..60 * SECOND),
        1 => (Just(2), prop_oneof![Just(0), Just(u64::MAX), 0..1_u64 << 40]),
    ];
    let offered = prop_oneof![
        6 => -3_000_000..1_i64,
        2 => -30_000_000..1_i64,
        1 => 0..9_000_000_i64,
    ];
    let call = (clock, offered, 0..3_000_u64, 0..3_000_u64).prop_map(
        |(clock, offered, admitted, suppressed)| Call { clock, offered, admitted, suppressed },
    );
    proptest::collection::vec(call, 50)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_700))] // 135,000 reports

    #[test]
    fn equals_the_oracle(config in configs(), calls in calls(), later in 0..30 * SECOND) {
        let (mut state, mut oracle) = (State::default(), Oracle::default());
        let mut now = 100 * SECOND;
        for call in calls {
            now = call.now(now);
            let before = state;
            let report = call.report(config, now);
            config.report(&mut state, Timestamp(now), report);
            oracle.report(now, report.offered_at.0, report.admitted, report.suppressed);
            for at in [now, now.saturating_add(later)] {
                let expected = oracle.factor(rule(config), at);
                let factor = config.factor(&state, Timestamp(at)).units();
                prop_assert_eq!(factor, expected, "{:?} at {} {:?}", before, at, report);
            }
            prop_assert_eq!(state.newest().0, oracle.newest());
            prop_assert!(config.accepts(&state).is_ok());
        }
    }
}

proptest! {
    #[test]
    fn who_is_reporter_and_master_in_one_decides_by_the_factor_and_reports(
        config in configs(), calls in calls(), above in proptest::array::uniform32(0..4_u32),
    ) {
        let (mut state, mut now) = (State::default(), START);
        for (call, above) in calls.iter().zip(above) {
            now = call.now(now);
            let cost = call.report(config, now).admitted;
            let mut told = state;
            config.advance(&mut told, Timestamp(now));
            let offered_at = told.newest();
            let factor = config.factor(&told, offered_at);
            // the last draw that is refused and the first that passes
            let draw = u32::try_from(factor.units()).unwrap_or(u32::MAX);
            let draw = Draw(draw.saturating_add(above).saturating_sub(2));
            let suppressed = factor.happens(draw);
            let (admitted, suppressed) = if suppressed { (0, cost) } else { (cost, 0) };
            config.report(&mut told, offered_at, Report { offered_at, admitted, suppressed });
            let passes = config.decide(&mut state, Timestamp(now), cost, draw);
            prop_assert_eq!(passes, !factor.happens(draw));
            prop_assert_eq!(state, told);
        }
    }
}

proptest! {
    /// Refunds come in the same part, in a later part, and after the part has left.
    #[test]
    fn what_is_refunded_was_never_offered(
        config in configs(), calls in calls(), units in [0..900_u64, 0..900_u64],
        later in 0..30 * SECOND, more in 0..900_u64,
    ) {
        let mut state = State::default();
        let mut now = START;
        for call in &calls {
            now += call.clock.1 % (10 * SECOND);
            config.report(&mut state, Timestamp(now), call.report(config, now));
        }
        let [kept, refunded] = units;
        let at = state.newest();
        let refund = |state: &mut State, cost| {
            config.advance(state, at.saturating_add(Micros(later)));
            config.refund(state, Refund { granted_at: at, cost });
        };
        let report = |admitted| Report { offered_at: at, admitted, suppressed: 0 };
        let (mut whole, mut part) = (state, state);
        config.report(&mut whole, at, report(kept + refunded));
        config.report(&mut part, at, report(kept));
        refund(&mut whole, refunded);
        refund(&mut part, 0);
        prop_assert_eq!(whole, part);
        refund(&mut whole, MAX_QUANTITY - more);
        prop_assert!(config.accepts(&whole).is_ok());
    }
}

/// A unit's moment in its part, its weight, its reporter, and the delay of the reporter's report.
type Unit = (u64, u64, usize, u64);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Every part is filled up to the limit. Reporters have random phases. Their reports are split
    /// at the ends of parts and arrive late. The factor is asked for at any time.
    #[test]
    fn within_its_limit_in_every_part_it_is_never_suppressed(
        config in configs(),
        parts in proptest::collection::vec(
            proptest::collection::vec((0..PART.0, 1..5_u64, 0..4_usize, 0..5 * SECOND), 1..12), 6,
        ),
        phases in [0..2 * SECOND, 0..2 * SECOND, 0..2 * SECOND, 0..2 * SECOND],
        queries in proptest::collection::vec(0..60 * SECOND, 30),
        backlash in 0..24 * SECOND,
    ) {
        let in_a_part = config.limit().units() * PART.0 / config.limit().period().0;
        let mut events: Vec<(u64, Option<Report>)> = Vec::new();
        for (index, units) in (0_u64..).zip(&parts) {
            let weights: u64 = units.iter().map(|unit: &Unit| unit.1).sum();
            let mut left = in_a_part;
            for (nth, &(at, weight, reporter, late)) in units.iter().enumerate() {
                let last = nth + 1 == units.len();
                let share = if last { left } else { in_a_part * weight / weights };
                left -= share;
                let offered = START + index * PART.0 + at;
                let next = (offered - phases[reporter]).div_ceil(2 * SECOND) * 2 * SECOND;
                let offered_at = Timestamp(offered);
                let suppressed = if weight == 1 { share } else { 0 };
                let report = Report { offered_at, admitted: share - suppressed, suppressed };
                events.push((next + phases[reporter] + late, Some(report)));
            }
        }
        events.extend(queries.into_iter().map(|at| (START + at, None)));
        events.sort_by_key(|event| event.0);
        let mut state = State::default();
        for (at, report) in events {
            if let Some(report) = report {
                config.report(&mut state, Timestamp(at), report);
            }
            for at in [at, at - backlash] {
                prop_assert_eq!(config.factor(&state, Timestamp(at)), Probability::NEVER);
            }
        }
    }
}

proptest! {
    #[test]
    fn from_expires_at_on_it_equals_a_fresh_one(
        config in configs(), calls in calls(), later in prop_oneof![Just(0), 0..60 * SECOND],
    ) {
        let mut state = State::default();
        let mut now = START;
        for call in &calls {
            now += call.clock.1 % (10 * SECOND);
            config.report(&mut state, Timestamp(now), call.report(config, now));
        }
        let expires = config.expires_at(&state);
        prop_assert_eq!(expires, state.newest().saturating_add(config.reset_after(&state)));
        let mut last = state;
        config.advance(&mut last, Timestamp(expires.0 - 1));
        prop_assert!(last.words()[1..] != [0; 8] || expires == state.newest());

        let at = expires.saturating_add(Micros(later));
        prop_assert_eq!(config.factor(&state, at), Probability::NEVER);
        let mut fresh = State::default();
        let report = Report { offered_at: at, ..calls[0].report(config, at.0) };
        config.report(&mut state, at, report);
        config.report(&mut fresh, at, report);
        prop_assert_eq!(state, fresh);
    }

    #[test]
    fn words_are_never_misread(config in configs(), words: [u64; 9], calls in calls()) {
        let bounded = words.map(|word| word % (MAX_QUANTITY + 1));
        prop_assert!(config.accepts(&config.state(bounded).unwrap()).is_ok());
        for words in [words, bounded] {
            let mut state = config.state(words).unwrap();
            prop_assert_eq!(state.words(), words);
            let accepted = config.accepts(&state).is_ok();
            prop_assert_eq!(accepted, words[1..].iter().all(|&count| count <= MAX_QUANTITY));
            for call in &calls {
                let now = call.now(words[0]);
                prop_assert!(config.factor(&state, Timestamp(now)) <= Probability::CERTAIN);
                config.report(&mut state, Timestamp(now), call.report(config, now));
                prop_assert!(!accepted || config.accepts(&state).is_ok());
            }
        }
    }
}
