//! A refund gives back no units that are held.

use std::vec;
use std::vec::Vec;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::replay::Step;
use super::{Config, MONTHS, START, TERMS, steps};
use crate::hold::{Counter, Reserved, State};
use crate::lease::Id;
use crate::window::{Refund, calendar, fixed, log, sliding};
use crate::{Limiter, Micros, Rate, Timestamp, bucket};

/// Each kind of limiter, with room for 1,000 units.
fn of_each_kind() -> [Config; 6] {
    let minute = Micros(60_000_000);
    let bucket = bucket::Config::new(1_000, Rate::new(1_000, minute).unwrap()).unwrap();
    let months = calendar::Instants::new(MONTHS).unwrap();
    let log = log::Window { limit: 1_000, period: minute };
    let log = log::Config::new(&[log], Micros::ZERO, log::Denied::Forgotten).unwrap();
    let counters: [Counter; 6] = [
        bucket.into(),
        bucket.starting_empty().into(),
        fixed::Config::new(1_000, minute).unwrap().into(),
        calendar::Config::new(1_000, months).unwrap().into(),
        sliding::Config::new(1_000, minute, 6).unwrap().into(),
        log.into(),
    ];
    counters.map(|counter| Config::new(counter, TERMS).unwrap())
}

#[test]
fn a_refund_gives_back_no_units_that_are_held() {
    let now = Timestamp(START);
    for config in of_each_kind() {
        let mut state = config.state(vec![0; config.words()]).unwrap();
        let full = now.saturating_add(config.period());
        let now = match config.counter() {
            Counter::TokenBucket(bucket) if bucket.starts_empty() => {
                let _ = config.decide(&mut state, now, 1).unwrap();
                full
            }
            _ => now,
        };
        let reserve = |state: &mut _, id, cost| {
            let said = config.reserve(state, now, Id([0, id]), cost, Micros::SECOND).unwrap();
            matches!(said, Reserved::Decided(decision) if decision.is_allowed())
        };
        assert!(config.decide(&mut state, now, 200).unwrap().is_allowed(), "{config:?}");
        assert!(reserve(&mut state, 1, 300) && reserve(&mut state, 2, 300), "{config:?}");
        assert!(config.decide(&mut state, now, 200).unwrap().is_allowed(), "{config:?}");
        let left = |state: &mut _| config.decide(state, now, 0).unwrap().remaining();
        config.refund(&mut state, Refund { granted_at: now, cost: 150 });
        assert_eq!(left(&mut state), 150, "{config:?}");
        config.refund(&mut state, Refund { granted_at: now, cost: 1_000 });
        assert_eq!(left(&mut state), 400, "{config:?}");
        assert!(!reserve(&mut state, 3, 401) && reserve(&mut state, 3, 400), "{config:?}");
        config.refund(&mut state, Refund { granted_at: now, cost: 1_000 });
        assert_eq!(left(&mut state), 0, "{config:?}");
        for id in 1..4 {
            let units = if id == 3 { 400 } else { 300 };
            assert_eq!(config.commit(&mut state, now, Id([0, id]), units).charged, units);
            assert_eq!(left(&mut state), 0, "{config:?}");
        }
        config.refund(&mut state, Refund { granted_at: now, cost: 1_000 });
        assert_eq!(left(&mut state), 1_000, "nothing is held any more: {config:?}");
        assert_eq!(config.accepts(&state), Ok(()));
    }
}

/// After random steps and refunds, what came back is the same whatever the live holds turn out to cost, and no more than what would
/// have counted without them.
fn a_refund_leaves_what_is_held(
    config: &Config,
    steps: &[(u64, Step)],
    back: u64,
    ago: u64,
) -> Result<(), TestCaseError> {
    let mut state = config.state(vec![0; config.words()]).unwrap();
    let mut now = Timestamp(START);
    let released = |state: &State<Vec<u64>>, now| {
        let mut copy = state.clone();
        for id in 0..8 {
            if config.find(&copy, Id([0, id])).is_some() {
                let _ = config.commit(&mut copy, now, Id([0, id]), 0);
            }
        }
        copy
    };
    let used = |state: &State<Vec<u64>>| config.counting().used(config.counted(state));
    for &(passed, step) in steps {
        now = now.saturating_add(Micros(passed));
        match step {
            Step::Decide { cost } => {
                let _ = config.decide(&mut state, now, cost).unwrap();
            }
            Step::Charge { cost } => config.charge(&mut state, now, cost),
            Step::Reserve { id, cost, span } => {
                let _ = config.reserve(&mut state, now, Id([0, id]), cost, Micros(span)).unwrap();
            }
            Step::Commit { id, actual } => {
                let _ = config.commit(&mut state, now, Id([0, id]), actual);
            }
        }
        config.advance(&mut state, now);
        let (before, mut plain) = (state.clone(), released(&state, now));
        let refund = Refund { granted_at: Timestamp(now.0.saturating_sub(ago)), cost: back };
        let counted = used(&plain);
        config.refund(&mut state, refund);
        config.refund(&mut plain, refund);
        prop_assert_eq!(config.accepts(&state), Ok(()));
        prop_assert_eq!(config.held(&state), config.held(&before));
        // a bucket counts a started unit as a whole one, and a sliding window too
        let came_back = used(&before).saturating_sub(used(&state));
        let without_holds = counted.saturating_sub(used(&plain));
        prop_assert!(came_back <= without_holds + 1, "{} of {}", came_back, without_holds);
        let released = released(&state, now);
        prop_assert_eq!(config.counted(&released), config.counted(&plain), "{:?}", step);
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_refund_leaves_what_is_held_in_every_history(
        steps in steps(100, 0),
        back in 1..1_000_u64,
        ago in prop_oneof![Just(0), 0..3_000_000_u64],
    ) {
        for config in of_each_kind() {
            a_refund_leaves_what_is_held(&config, &steps, back, ago)?;
        }
    }
}
