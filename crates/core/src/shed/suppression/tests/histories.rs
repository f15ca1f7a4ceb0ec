//! What holds of any reports.

use std::vec::Vec;

use proptest::prelude::*;
use tidegate_reference::shed::suppression::Oracle;

use super::super::{Config, Estimator, PART, Report, State};
use super::{SECOND, START, config, rule};
use crate::shed::{Draw, Probability};
use crate::window::Refund;
use crate::{Limiter, MAX_QUANTITY, Micros, Timestamp};

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
