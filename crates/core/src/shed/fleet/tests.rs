use std::vec::Vec;

use proptest::prelude::*;
use tidegate_reference::Outcome;
use tidegate_reference::lease::Fleet;

use super::{Config, Priority, State};
use crate::exhaustive::every_history;
use crate::lease::{Held, Id, Leases};
use crate::properties::{fresh, tuple};
use crate::{ConfigError, CostExceedsCapacity, Decision, Limiter, MAX_QUANTITY, Micros, Timestamp};

fn config(capacity: u64, reserve: u64, ttl: u64, most: u64) -> Config {
    Config::new(capacity, reserve, Micros(ttl), most).unwrap()
}

const A: Id = Id([0, 0]);
const B: Id = Id([1, 0]);
const C: Id = Id([0, 1]);

#[test]
fn decides_as_worked_out_by_hand() {
    // 10 units, 4 of them reserved, in leases that expire after 100 µs
    let config = config(10, 4, 100, 9);
    let mut state = fresh(config);
    let (low, high) = (Priority::Low, Priority::High);
    for (now, priority, id, cost, expected) in [
        (1_000, high, A, 1, (true, 10, 0, 0)),
        (1_000, low, A, 5, (true, 1, 0, 100)),
        (1_010, low, B, 2, (false, 1, 90, 90)),
        (1_020, high, B, 2, (true, 5, 0, 80)),
        (1_020, high, B, 9_000, (true, 5, 0, 80)), // high priority passes at any cost
        (1_030, low, B, 1, (true, 0, 0, 100)),
        (1_040, low, A, 5, (true, 0, 0, 100)), // renewed
        (1_040, high, C, 1, (true, 4, 0, 100)),
        (1_040, low, C, 1, (false, 0, 90, 100)),
        (1_140, high, C, 1, (true, 10, 0, 0)),
    ] {
        let peeked = config.peek(&state, Timestamp(now), priority, cost);
        let decision = config.acquire(&mut state, Timestamp(now), priority, id, cost).unwrap();
        assert_eq!(tuple(decision), expected, "at {now}, {priority:?}, cost {cost}");
        assert_eq!(decision.limit(), if priority == high { 10 } else { 6 });
        assert!(priority == low || peeked == Ok(decision));
    }
    let error = CostExceedsCapacity { cost: 7, capacity: 6 };
    assert_eq!(config.acquire(&mut state, Timestamp(0), low, C, 7), Err(error));
    assert_eq!(config.heartbeat(&mut state, Timestamp(1_140), C), Held::Unknown);
}

#[test]
fn the_share_left_to_low_priority_is_rounded_down() {
    for (capacity, ppm, low) in [
        (100, 200_000, 80),
        (3, 333_333, 2),
        (3, 333_334, 1),
        (7, 500_000, 3),
        (2, 1, 1),
        (10, 899_999, 1),
        (MAX_QUANTITY, 1, MAX_QUANTITY - 9_007_199_255),
    ] {
        let config = Config::with_share(capacity, ppm, Micros(1), 1).unwrap();
        assert_eq!(config.capacity() - config.reserve(), low, "{capacity}, {ppm}");
    }
}

#[test]
fn a_reserve_of_nothing_or_everything_is_refused() {
    let bounds = |field, found, least, most| ConfigError::OutOfRange { field, found, least, most };
    let new = |capacity, reserve| Config::new(capacity, reserve, Micros(1), 1).map(|_| ());
    let share = |capacity, ppm| Config::with_share(capacity, ppm, Micros(1), 1).map(|_| ());
    assert_eq!(new(10, 0), Err(bounds("reserve", 0, 1, 9)));
    assert_eq!(new(10, 10), Err(bounds("reserve", 10, 1, 9)));
    assert_eq!(new(1, 1), Err(bounds("capacity", 1, 2, MAX_QUANTITY)));
    assert_eq!(share(10, 0), Err(bounds("reserve", 0, 1, 900_000)));
    assert_eq!(share(10, 900_001), Err(bounds("reserve", 900_001, 1, 900_000)));
    assert_eq!(share(3, 1_000_000), Err(bounds("reserve", 1_000_000, 1, 666_666)));
    assert_eq!(share(1, 1), Err(bounds("capacity", 1, 2, MAX_QUANTITY)));
    assert_eq!((new(10, 9), share(10, 900_000), share(3, 666_666)), (Ok(()), Ok(()), Ok(())));
    assert!(Config::new(10, 5, Micros(0), 1).is_err());
    assert!(Config::new(10, 5, Micros(1), 0).is_err());
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Acquire(Priority, u64),
    Heartbeat,
    Release,
}

fn operation(most: u64) -> impl Strategy<Value = Operation> {
    prop_oneof![
        8 => (0..=most + 1).prop_map(|cost| Operation::Acquire(Priority::Low, cost)),
        3 => (0..=most * 2).prop_map(|cost| Operation::Acquire(Priority::High, cost)),
        2 => Just(Operation::Heartbeat),
        3 => Just(Operation::Release),
    ]
}

fn outcome(decision: Decision) -> Outcome {
    let (allowed, remaining, retry_after, reset_after) = tuple(decision);
    Outcome { allowed, remaining, retry_after, reset_after }
}

fn both(
    config: Config,
    state: &mut State<Vec<u64>>,
    oracle: &mut Fleet,
    (now, id, operation): (u64, Id, Operation),
) {
    let held = |units: Option<u64>| units.map_or(Held::Unknown, |cost| Held::Live { cost });
    let at = Timestamp(now);
    match operation {
        Operation::Acquire(priority, cost) => {
            let before = state.clone();
            let decided = config.acquire(state, at, priority, id, cost).ok().map(outcome);
            let high = priority == Priority::High;
            assert_eq!(decided, oracle.acquire(now, high, id.0, cost), "{before:?}");
            assert!(!high || (decided.unwrap().allowed && *state == before));
        }
        Operation::Heartbeat => {
            assert_eq!(config.heartbeat(state, at, id), held(oracle.renew(now, id.0)));
        }
        Operation::Release => {
            assert_eq!(config.release(state, at, id), held(oracle.release(now, id.0)));
        }
    }
    assert_eq!(config.accepts(state), Ok(()), "{state:?}");
}

/// Every sequence of six operations at nine times, of any length, for each of four small fleets.
/// The graph of states is finite.
#[test]
fn equals_the_oracle_on_every_history() {
    let operations = [
        (A, Operation::Acquire(Priority::Low, 1)),
        (B, Operation::Acquire(Priority::Low, 2)),
        (A, Operation::Acquire(Priority::High, 1)),
        (C, Operation::Acquire(Priority::High, 2)),
        (A, Operation::Heartbeat),
        (B, Operation::Release),
    ];
    for (capacity, reserve, most) in [(2, 1, 1), (2, 1, 2), (3, 1, 2), (3, 2, 2)] {
        let config = config(capacity, reserve, 4, most);
        let oracle = Fleet::new(capacity, reserve, 4, usize::try_from(most).unwrap());
        every_history(
            (fresh(config), oracle),
            &operations,
            |(state, oracle)| (state.words().to_vec(), oracle.essence()),
            |(state, oracle), now, (id, operation)| {
                both(config, state, oracle, (now, id, operation));
            },
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn equals_the_oracle_and_low_never_holds_more_than_is_not_reserved(
        (capacity, reserve, ttl, most, steps) in (1..12_u64, 1..9_u64, 1..500_u64, 1..9_u64)
            .prop_flat_map(|(low, reserve, ttl, most)| {
                let gap = prop_oneof![
                    6 => 0..=i128::from(ttl) / 3 + 1,
                    1 => -2 * i128::from(ttl)..=0,
                    1 => prop_oneof![Just(i128::MIN), Just(i128::MAX)],
                ];
                let id = (0..12_u64).prop_map(|k| Id([0, k]));
                let step = (gap, id, operation(low));
                let steps = proptest::collection::vec(step, 1..70);
                (Just(low + reserve), Just(reserve), Just(ttl), Just(most), steps)
            }),
    ) {
        let config = config(capacity, reserve, ttl, most);
        let mut oracle = Fleet::new(capacity, reserve, ttl, usize::try_from(most).unwrap());
        let mut state = fresh(config);
        let mut now = 1_000_000_u64;
        for (gap, id, operation) in steps {
            let then = i128::from(now).saturating_add(gap).clamp(0, u64::MAX.into());
            now = u64::try_from(then).unwrap();
            both(config, &mut state, &mut oracle, (now, id, operation));
            prop_assert!(oracle.low_units() <= capacity - reserve);
        }
    }
}

proptest! {
    #[test]
    fn low_comes_back_at_retry_after_and_the_state_goes_at_expires_at(
        (low, reserve, ttl) in (6..20_u64, 1..9_u64, 1..100_000_u64),
        steps in proptest::collection::vec((0..20_000_u64, 1..6_u64), 1..60),
    ) {
        let config = config(low + reserve, reserve, ttl, 30);
        let mut state = fresh(config);
        let mut now = Timestamp(0);
        for (k, (gap, cost)) in steps.into_iter().enumerate() {
            now = now.saturating_add(Micros(gap));
            let id = Id([0, u64::try_from(k).unwrap()]);
            let decision = config.acquire(&mut state, now, Priority::Low, id, cost).unwrap();
            if let Decision::Deny { retry_after, .. } = decision {
                let at = now.saturating_add(retry_after);
                let allows = |at| {
                    config.peek(&state, at, Priority::Low, cost).unwrap().is_allowed()
                };
                prop_assert!(!allows(Timestamp(at.0 - 1)) && allows(at));
            }
        }
        let expires = config.expires_at(&state);
        prop_assert_eq!(expires, now.saturating_add(config.reset_after(&state)));
        let mut fresh = fresh(config);
        let _ = config.acquire(&mut fresh, expires, Priority::Low, A, 1);
        let _ = config.acquire(&mut state, expires, Priority::Low, A, 1);
        prop_assert_eq!(state, fresh);
    }
}
