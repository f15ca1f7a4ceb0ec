use std::vec;
use std::vec::Vec;

use proptest::prelude::*;
use tidegate_reference::lease::Leases;

use super::{Config, State};
use crate::exhaustive::every_history;
use crate::lease::properties::{ids, moves, outcome};
use crate::lease::{Held, Id, Leases as _, MAX_ENTRIES};
use crate::properties::{fresh, tuple};
use crate::{ConfigError, CostExceedsCapacity, Decision, Limiter, MAX_QUANTITY, Micros, Timestamp};

fn config(capacity: u64, ttl: u64, most: u64) -> Config {
    Config::new(capacity, Micros(ttl), most).unwrap()
}

const A: Id = Id([0, 0]);
const B: Id = Id([1, 0]);
const C: Id = Id([0, 1]);
const D: Id = Id([u64::MAX, u64::MAX]);

#[derive(Clone, Copy, Debug)]
enum Operation {
    Acquire(u64),
    Heartbeat,
    Release,
}

/// Does the same operation on both and compares their answers.
fn both(
    config: Config,
    state: &mut State<Vec<u64>>,
    oracle: &mut Leases,
    now: u64,
    id: Id,
    operation: Operation,
) -> u64 {
    let held = |units: Option<u64>| units.map_or(Held::Unknown, |cost| Held::Live { cost });
    let mut retry_after = 0;
    match operation {
        Operation::Acquire(cost) => {
            let peeked = config.peek(state, Timestamp(now), cost);
            let before = state.clone();
            let known = config.heartbeat(&mut before.clone(), Timestamp(now), id) != Held::Unknown;
            let decided = config.acquire(state, Timestamp(now), id, cost);
            let expected = oracle.acquire(now, id.0, cost);
            assert_eq!(outcome(decided), expected, "{before:?} at {now}, {id:?} cost {cost}");
            assert!(known || peeked == decided, "{before:?} at {now}: {peeked:?}, {decided:?}");
            if cost == 0 || expected.is_none() {
                assert_eq!(*state, before, "nothing changes");
            }
            retry_after = expected.map_or(0, |outcome| outcome.retry_after);
        }
        Operation::Heartbeat => {
            assert_eq!(config.heartbeat(state, Timestamp(now), id), held(oracle.renew(now, id.0)))
        }
        Operation::Release => assert_eq!(
            config.release(state, Timestamp(now), id),
            held(oracle.reduce(now, id.0, u64::MAX))
        ),
    }
    assert_eq!(config.accepts(state), Ok(()), "{state:?}");
    retry_after
}

#[test]
fn decides_as_worked_out_by_hand() {
    // 3 units in at most 3 leases, which expire after 100 µs
    let config = config(3, 100, 3);
    let mut state = fresh(config);
    // rows: time, id, cost, (allowed, remaining, retry after, reset after)
    for (now, id, cost, expected) in [
        (1_000, A, 0, (true, 3, 0, 0)),
        (1_000, A, 1, (true, 2, 0, 100)),
        (1_040, B, 2, (true, 0, 0, 100)),
        (1_050, C, 1, (false, 0, 50, 90)), // A leaves at 1,100
        (1_050, C, 2, (false, 0, 90, 90)), // and B at 1,140
        (1_099, C, 1, (false, 0, 1, 41)),
        (1_100, C, 1, (true, 0, 0, 100)),
        (1_120, B, 1, (true, 0, 0, 100)), // B is renewed and keeps its cost
        (1_139, A, 1, (false, 0, 61, 81)), // C leaves at 1,200
        (1_039, A, 1, (false, 0, 61, 81)), // back in time: as at 1,139
        (1_200, A, 1, (true, 0, 0, 100)),
        (1_250, A, 0, (true, 2, 0, 50)),
    ] {
        let decision = config.acquire(&mut state, Timestamp(now), id, cost).unwrap();
        assert_eq!(tuple(decision), expected, "at {now}, cost {cost}");
    }
    assert_eq!(config.release(&mut state, Timestamp(1_260), A), Held::Live { cost: 1 });
    assert_eq!(config.release(&mut state, Timestamp(1_260), A), Held::Unknown);
    assert_eq!(config.heartbeat(&mut state, Timestamp(1_260), B), Held::Unknown, "expired");
    assert_eq!(state.words()[1..], vec![0; config.words() - 1]);
}

#[test]
fn renewing_keeps_a_lease_and_losing_it_frees_its_place() {
    let config = config(2, 100, 2);
    let mut state = fresh(config);
    assert!(config.acquire(&mut state, Timestamp(0), A, 2).unwrap().is_allowed());
    for now in (99..5_000).step_by(99) {
        assert_eq!(config.heartbeat(&mut state, Timestamp(now), A), Held::Live { cost: 2 });
        assert!(!config.acquire(&mut state, Timestamp(now), B, 1).unwrap().is_allowed());
    }
    let last = state.newest().0;
    assert!(!config.acquire(&mut state, Timestamp(last + 99), B, 1).unwrap().is_allowed());
    assert!(config.acquire(&mut state, Timestamp(last + 100), B, 1).unwrap().is_allowed());
    assert_eq!(config.heartbeat(&mut state, Timestamp(last + 100), A), Held::Unknown);
}

#[test]
fn leases_run_out_before_units_do() {
    let config = config(10, 100, 2);
    let mut state = fresh(config);
    assert!(config.acquire(&mut state, Timestamp(0), A, 1).unwrap().is_allowed());
    let last = config.acquire(&mut state, Timestamp(30), B, 1).unwrap();
    assert_eq!(tuple(last), (true, 0, 0, 100), "units are left, and no lease to hold them");
    let refused = config.acquire(&mut state, Timestamp(40), C, 1).unwrap();
    assert_eq!(tuple(refused), (false, 0, 60, 90));
    let refused = config.acquire(&mut state, Timestamp(40), C, 10).unwrap();
    assert_eq!(tuple(refused), (false, 0, 90, 90));
    assert!(config.acquire(&mut state, Timestamp(40), A, 1).unwrap().is_allowed(), "renewed");
}

#[test]
fn a_cost_that_never_fits_is_an_error_and_changes_nothing() {
    let config = config(5, 100, 5);
    let mut state = fresh(config);
    let error = CostExceedsCapacity { cost: 6, capacity: 5 };
    assert_eq!(config.acquire(&mut state, Timestamp(7), A, 6), Err(error));
    assert_eq!(config.peek(&state, Timestamp(7), 6), Err(error));
    assert_eq!(state, fresh(config));
}

#[test]
fn bounds_are_checked() {
    assert!(Config::new(0, Micros(1), 1).is_err());
    assert!(Config::new(MAX_QUANTITY + 1, Micros(1), 1).is_err());
    assert!(Config::new(1, Micros(0), 1).is_err());
    assert!(Config::new(1, Micros(1), MAX_ENTRIES + 1).is_err());
    let largest = Config::new(MAX_QUANTITY, Micros(MAX_QUANTITY), MAX_ENTRIES).unwrap();
    assert_eq!(largest.words(), 22_531);
    let error = Config::new(1, Micros(1), 0).unwrap_err();
    let expected =
        ConfigError::OutOfRange { field: "max_leases", found: 0, least: 1, most: MAX_ENTRIES };
    assert_eq!(error, expected);
    assert!(largest.state([0; 9]).is_err(), "a state of another length");
}

#[test]
fn at_the_ends_of_time_nothing_is_granted_twice() {
    for now in [0, u64::MAX] {
        let config = config(1, 100, 9);
        let mut state = fresh(config);
        assert!(config.acquire(&mut state, Timestamp(now), A, 1).unwrap().is_allowed());
        assert!(!config.acquire(&mut state, Timestamp(now), B, 1).unwrap().is_allowed());
        assert_eq!(config.heartbeat(&mut state, Timestamp(now), A), Held::Live { cost: 1 });
    }
    // a lease that is 30 µs old when the clock comes back to 0 has 70 µs left
    let config = config(1, 100, 9);
    let mut state = fresh(config);
    assert!(config.acquire(&mut state, Timestamp(1_000), A, 1).unwrap().is_allowed());
    assert_eq!(config.heartbeat(&mut state, Timestamp(1_030), B), Held::Unknown);
    let refused = config.acquire(&mut state, Timestamp(0), B, 1).unwrap();
    assert_eq!(refused.retry_after(), Micros(70));
    assert!(config.acquire(&mut state, Timestamp(70), B, 1).unwrap().is_allowed());
}

#[test]
fn a_jump_ahead_and_back_locks_for_no_longer_than_the_time_to_live() {
    for ahead in [101, 1 << 40, u64::MAX - 1_000] {
        let config = config(2, 100, 9);
        let mut state = fresh(config);
        let jumped = Timestamp(1_000 + ahead);
        assert!(config.acquire(&mut state, jumped, A, 2).unwrap().is_allowed());
        assert!(!config.acquire(&mut state, Timestamp(1_000), B, 1).unwrap().is_allowed());
        assert!(!config.acquire(&mut state, Timestamp(1_099), B, 1).unwrap().is_allowed());
        assert!(config.acquire(&mut state, Timestamp(1_100), B, 1).unwrap().is_allowed());
    }
}

#[test]
fn leases_are_taken_over_by_another_configuration_also_more_than_it_would_grant() {
    let (before, after) = (config(5, 100, 5), config(2, 50, 3));
    let mut held = fresh(before);
    for (at, id) in [(0, A), (10, B), (20, Id([3, 3])), (30, Id([4, 4]))] {
        assert!(before.acquire(&mut held, Timestamp(at), id, 1).unwrap().is_allowed());
    }
    let mut state = fresh(after);
    after.adopt(&mut state, &before, &held);
    assert!(after.accepts(&state).is_ok());
    let refused = after.acquire(&mut state, Timestamp(31), Id([9, 9]), 1).unwrap();
    assert_eq!((refused.remaining(), refused.retry_after()), (0, Micros(49)), "3 of 2, till 80");
    assert!(after.holds(&state, Timestamp(31), A), "the oldest first");
    assert!(!after.holds(&state, Timestamp(31), Id([4, 4])), "there is room for three");
    assert_eq!(after.release(&mut state, Timestamp(32), A), Held::Live { cost: 1 });
    assert_eq!(after.release(&mut state, Timestamp(32), B), Held::Live { cost: 1 });
    assert!(after.acquire(&mut state, Timestamp(32), Id([9, 9]), 1).unwrap().is_allowed());
}

#[test]
fn a_lease_of_no_cost_or_of_more_than_there_is_is_foreign() {
    let config = config(5, 100, 2);
    let mut state = fresh(config);
    assert!(config.acquire(&mut state, Timestamp(7), A, 3).unwrap().is_allowed());
    // leases may hold 6 of 5 units since before an edit of the policy
    for (cost, accepted) in [(3, true), (6, true), (0, false), (u64::MAX, false)] {
        let mut words = state.words().to_vec();
        assert_eq!((words[1], words[7]), (3, 3), "the sum, and the value of the first entry");
        (words[1], words[7]) = (cost, cost);
        assert_eq!(config.accepts(&config.state(words).unwrap()).is_ok(), accepted, "{cost}");
    }
}

/// Every sequence of five operations at nine times, of any length, for each of five small limits.
/// The graph of states is finite.
#[test]
fn equals_the_oracle_on_every_history() {
    let operations = [
        (A, Operation::Acquire(1)),
        (B, Operation::Acquire(1)),
        (C, Operation::Acquire(2)),
        (A, Operation::Heartbeat),
        (B, Operation::Release),
    ];
    for (capacity, most) in [(1, 1), (1, 2), (2, 1), (2, 2), (3, 2)] {
        let config = config(capacity, 4, most);
        let oracle = Leases::new(capacity, 4, usize::try_from(most).unwrap());
        every_history(
            (fresh(config), oracle),
            &operations,
            |(state, oracle)| (state.words().to_vec(), oracle.essence()),
            |(state, oracle), now, (id, operation)| {
                both(config, state, oracle, now, id, operation);
            },
        );
    }
}

fn operations(most: u64) -> impl Strategy<Value = Operation> {
    prop_oneof![
        6 => (0..=most + 1).prop_map(Operation::Acquire),
        6 => Just(Operation::Acquire(1)),
        2 => Just(Operation::Heartbeat),
        3 => Just(Operation::Release),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn equals_the_oracle(
        (capacity, ttl, most, steps) in (1..12_u64, 1..500_u64, 1..10_u64).prop_flat_map(
            |(capacity, ttl, most)| {
                let step = (moves(ttl), ids(12), operations(capacity / 2));
                let steps = proptest::collection::vec(step, 1..70);
                (Just(capacity), Just(ttl), Just(most), steps)
            },
        ),
    ) {
        let config = config(capacity, ttl, most);
        let mut oracle = Leases::new(capacity, ttl, usize::try_from(most).unwrap());
        let mut state = fresh(config);
        let (mut now, mut retry_after) = (1_000_000, 0);
        for (to, id, operation) in steps {
            now = to.from(now, retry_after);
            retry_after = both(config, &mut state, &mut oracle, now, id, operation);
            prop_assert!(oracle.live_units() <= capacity);
        }
    }
}

proptest! {
    #[test]
    fn never_more_than_the_capacity_is_live_at_any_clock(
        (capacity, ttl, most) in (1..12_u64, 1..500_u64, 1..10_u64),
        steps in proptest::collection::vec((moves(300), ids(12), operations(6)), 1..100),
    ) {
        let config = config(capacity, ttl, most);
        let mut state = fresh(config);
        // id, cost and last renewal, in the key's own time
        let mut live: Vec<(Id, u64, i128)> = Vec::new();
        let mut now = 1_000_000;
        for (to, id, operation) in steps {
            now = to.from(now, 0);
            let before = i128::from(state.newest().0);
            let acquired = match operation {
                Operation::Acquire(cost) => config
                    .acquire(&mut state, Timestamp(now), id, cost)
                    .is_ok_and(|decision| decision.is_allowed() && cost > 0)
                    .then_some(cost),
                Operation::Heartbeat => {
                    let _ = config.heartbeat(&mut state, Timestamp(now), id);
                    None
                }
                Operation::Release => {
                    let _ = config.release(&mut state, Timestamp(now), id);
                    live.retain(|lease| lease.0 != id);
                    None
                }
            };
            let newest = i128::from(state.newest().0);
            if newest < before {
                live.iter_mut().for_each(|lease| lease.2 -= before - newest);
            }
            live.retain(|lease| lease.2 + i128::from(ttl) > newest);
            if let Some(cost) = acquired
                && !live.iter().any(|lease| lease.0 == id)
            {
                live.push((id, cost, newest));
            }
            if acquired.is_some() || matches!(operation, Operation::Heartbeat) {
                live.iter_mut().filter(|lease| lease.0 == id).for_each(|lease| lease.2 = newest);
            }
            prop_assert!(live.iter().map(|lease| lease.1).sum::<u64>() <= capacity);
        }
    }

    #[test]
    fn retry_after_is_the_first_microsecond_that_grants(
        (capacity, ttl, most) in (6..20_u64, 1..1_000_000_u64, 1..30_u64),
        steps in proptest::collection::vec((0..100_000_u64, 1..6_u64), 1..60),
    ) {
        let config = config(capacity, ttl, most);
        let mut state = fresh(config);
        let mut now = Timestamp(0);
        for (k, (gap, cost)) in steps.into_iter().enumerate() {
            now = now.saturating_add(Micros(gap));
            let id = Id([0, u64::try_from(k).unwrap()]);
            let decision = config.acquire(&mut state, now, id, cost).unwrap();
            if let Decision::Deny { retry_after, .. } = decision {
                let at = now.saturating_add(retry_after);
                prop_assert!(!config.peek(&state, Timestamp(at.0 - 1), cost).unwrap().is_allowed());
                prop_assert!(config.peek(&state, at, cost).unwrap().is_allowed());
            }
        }
    }

    #[test]
    fn from_expires_at_on_it_equals_a_fresh_one(
        (capacity, ttl, most) in (6..20_u64, 1..1_000_u64, 1..30_u64),
        steps in proptest::collection::vec((0..300_u64, 1..6_u64), 1..60),
        later in 0..10_000_u64,
    ) {
        let config = config(capacity, ttl, most);
        let mut state = fresh(config);
        let mut now = Timestamp(0);
        for (k, (gap, cost)) in steps.into_iter().enumerate() {
            now = now.saturating_add(Micros(gap));
            let id = Id([u64::try_from(k).unwrap() % 20, 0]);
            let _ = config.acquire(&mut state, now, id, cost).unwrap();
        }
        let expires = config.expires_at(&state);
        prop_assert!(expires > now);
        let before = config.peek(&state, Timestamp(expires.0 - 1), 0).unwrap();
        prop_assert!(before.reset_after() == Micros(1), "not a microsecond sooner");
        let at = expires.saturating_add(Micros(later));
        for operation in [Operation::Acquire(3), Operation::Heartbeat, Operation::Release] {
            let (mut state, mut fresh) = (state.clone(), fresh(config));
            let does = |state: &mut State<Vec<u64>>| match operation {
                Operation::Acquire(cost) => tuple(config.acquire(state, at, D, cost).unwrap()),
                Operation::Heartbeat => {
                    (config.heartbeat(state, at, D) == Held::Unknown, 0, 0, 0)
                }
                Operation::Release => (config.release(state, at, D) == Held::Unknown, 0, 0, 0),
            };
            prop_assert_eq!(does(&mut state), does(&mut fresh));
            prop_assert_eq!(state, fresh);
        }
    }

    #[test]
    fn a_foreign_state_is_noticed(
        (capacity, most) in (1..6_u64, 1..6_u64),
        costs in proptest::collection::vec(1..4_u64, 1..8),
        (at, found) in (any::<proptest::sample::Index>(), prop_oneof![0..9_u64, any::<u64>()]),
    ) {
        let config = config(capacity, 100, most);
        let mut state = fresh(config);
        for (k, cost) in costs.into_iter().enumerate() {
            let id = Id([u64::try_from(k).unwrap(), 5]);
            let _ = config.acquire(&mut state, Timestamp(1_000), id, cost);
        }
        let mut words = state.words().to_vec();
        let at = at.index(words.len());
        words[at] = found;
        let mut state = config.state(words).unwrap();
        let accepted = config.accepts(&state).is_ok();
        for k in 0..20 {
            let decision = config.acquire(&mut state, Timestamp(1_000), Id([k, 6]), 1).unwrap();
            prop_assert!(!accepted || decision.remaining() <= capacity);
            prop_assert!(!accepted || config.accepts(&state).is_ok());
        }
    }
}
