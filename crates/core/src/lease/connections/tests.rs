use std::vec;
use std::vec::Vec;

use proptest::prelude::*;
use tidegate_reference::lease::Leases;

use super::{Config, DEFAULT_EXPIRY, DEFAULT_REFRESH, State, Unrecorded};
use crate::exhaustive::every_history;
use crate::lease::properties::{ids, moves, outcome};
use crate::lease::{Held, Id, Leases as _, MAX_ENTRIES};
use crate::properties::{fresh, tuple};
use crate::{CostExceedsCapacity, Decision, Limiter, MAX_QUANTITY, Micros, Timestamp};

fn config(limit: u64, expiry: u64, most: u64) -> Config {
    Config::new(limit, Micros(expiry), most).unwrap()
}

const A: Id = Id([0, 0]);
const B: Id = Id([1, 0]);
const C: Id = Id([0, 1]);

#[derive(Clone, Copy, Debug)]
enum Operation {
    Open(u64),
    Close(u64),
    Report(u64),
    Refresh,
}

/// Does the same operation on both and compares their answers.
fn both(
    config: Config,
    state: &mut State<Vec<u64>>,
    oracle: &mut Leases,
    now: u64,
    owner: Id,
    operation: Operation,
) -> u64 {
    let held = |units: Option<u64>| units.map_or(Held::Unknown, |cost| Held::Live { cost });
    let at = Timestamp(now);
    let mut retry_after = 0;
    match operation {
        Operation::Open(count) => {
            let peeked = config.peek(state, at, owner, count);
            let before = state.clone();
            let decided = config.open(state, at, owner, count);
            let expected = oracle.open(now, owner.0, count);
            assert_eq!(outcome(decided), expected, "{before:?} at {now}, {owner:?} opens {count}");
            assert_eq!(peeked, decided, "{before:?} at {now}");
            if count == 0 || expected.is_none() {
                assert_eq!(*state, before, "nothing changes");
            }
            retry_after = expected.map_or(0, |outcome| outcome.retry_after);
        }
        Operation::Close(count) => assert_eq!(
            config.close(state, at, owner, count),
            held(oracle.reduce(now, owner.0, count))
        ),
        Operation::Report(count) => assert_eq!(
            config.report(state, at, owner, count).ok(),
            oracle.set(now, owner.0, count, MAX_QUANTITY)
        ),
        Operation::Refresh => {
            assert_eq!(config.heartbeat(state, at, owner), held(oracle.renew(now, owner.0)));
        }
    }
    assert_eq!(config.accepts(state), Ok(()), "{state:?}");
    retry_after
}

#[test]
fn decides_as_worked_out_by_hand() {
    // 10 connections of at most 2 owners, which expire after 100 µs
    let config = config(10, 100, 2);
    let mut state = fresh(config);
    let open = |state: &mut State<Vec<u64>>, now, owner, count| {
        tuple(config.open(state, Timestamp(now), owner, count).unwrap())
    };
    assert_eq!(open(&mut state, 1_000, A, 4), (true, 6, 0, 100));
    assert_eq!(open(&mut state, 1_020, B, 3), (true, 3, 0, 100));
    assert_eq!(open(&mut state, 1_030, A, 4), (false, 3, 70, 90), "its own four must go");
    assert_eq!(open(&mut state, 1_030, C, 1), (false, 0, 70, 90), "no room for an owner");
    assert_eq!(open(&mut state, 1_030, A, 1), (true, 2, 0, 100), "refreshed");
    assert_eq!(open(&mut state, 1_040, B, 3), (false, 2, 80, 90), "B's own go first");

    let now = Timestamp(1_050);
    assert_eq!(config.close(&mut state, now, A, 2), Held::Live { cost: 2 });
    assert_eq!(config.close(&mut state, now, A, 4), Held::Live { cost: 3 }, "it had only 3");
    assert_eq!(config.close(&mut state, now, A, 1), Held::Unknown);
    assert_eq!(config.report(&mut state, now, B, 25), Ok(25), "they exist");
    assert_eq!(open(&mut state, 1_060, B, 1), (false, 0, 90, 90));
    assert_eq!(open(&mut state, 1_060, B, 0), (true, 0, 0, 90), "to look is free");
    assert_eq!(config.report(&mut state, Timestamp(1_070), C, 2), Ok(27));
    let full = Unrecorded::OwnersFull { most: 2 };
    assert_eq!(config.report(&mut state, Timestamp(1_080), A, 1), Err(full));
    assert_eq!(config.report(&mut state, Timestamp(1_080), A, 0), Ok(27));
    assert_eq!(config.heartbeat(&mut state, Timestamp(1_140), C), Held::Live { cost: 2 });
    assert_eq!(config.heartbeat(&mut state, Timestamp(1_150), B), Held::Unknown, "expired");
    assert_eq!(config.report(&mut state, Timestamp(1_150), C, 0), Ok(0));
    assert_eq!(state.words()[1..], vec![0; config.words() - 1]);
}

#[test]
fn an_owner_that_refreshes_as_published_stays_and_a_dead_one_vanishes() {
    let config = Config::new(5, DEFAULT_EXPIRY, 9).unwrap();
    let mut state = fresh(config);
    let mut now = Timestamp(1_700_000_000_000_000);
    assert!(config.open(&mut state, now, A, 3).unwrap().is_allowed());
    assert!(config.open(&mut state, now, B, 2).unwrap().is_allowed());
    for _ in 0..3 {
        now = now.saturating_add(DEFAULT_REFRESH);
        assert_eq!(config.heartbeat(&mut state, now, A), Held::Live { cost: 3 });
        assert!(!config.open(&mut state, now, A, 1).unwrap().is_allowed(), "B may yet live");
    }
    now = now.saturating_add(DEFAULT_REFRESH);
    assert_eq!(config.heartbeat(&mut state, now, A), Held::Live { cost: 3 });
    assert!(config.open(&mut state, now, A, 2).unwrap().is_allowed(), "B is 12 minutes silent");
}

#[test]
fn to_close_is_no_sign_of_life() {
    let config = config(5, 100, 9);
    let mut state = fresh(config);
    assert!(config.open(&mut state, Timestamp(0), A, 3).unwrap().is_allowed());
    assert_eq!(config.close(&mut state, Timestamp(99), A, 1), Held::Live { cost: 1 });
    assert_eq!(config.close(&mut state, Timestamp(100), A, 1), Held::Unknown);
}

#[test]
fn all_reports_together_stay_exact() {
    let config = config(5, 100, 9);
    let mut state = fresh(config);
    let now = Timestamp(0);
    assert_eq!(config.report(&mut state, now, A, MAX_QUANTITY - 1), Ok(MAX_QUANTITY - 1));
    assert_eq!(config.report(&mut state, now, B, 2), Err(Unrecorded::TotalTooLarge));
    assert_eq!(config.report(&mut state, now, B, 1), Ok(MAX_QUANTITY));
    assert_eq!(config.report(&mut state, now, B, u64::MAX), Err(Unrecorded::TotalTooLarge));
    assert_eq!(config.accepts(&state), Ok(()));
    assert_eq!(config.close(&mut state, now, A, u64::MAX), Held::Live { cost: MAX_QUANTITY - 1 });
    assert_eq!(config.open(&mut state, now, B, 4).unwrap().remaining(), 0);
}

#[test]
fn bounds_are_checked() {
    assert!(Config::new(0, Micros(1), 1).is_err());
    assert!(Config::new(1, Micros(MAX_QUANTITY + 1), 1).is_err());
    assert!(Config::new(1, Micros(1), 0).is_err());
    assert!(Config::new(1, Micros(1), MAX_ENTRIES + 1).is_err());
    let config = config(5, 100, 2);
    assert!(config.state([0; 9]).is_err(), "a state of another length");
    let mut state = fresh(config);
    let error = CostExceedsCapacity { cost: 6, capacity: 5 };
    assert_eq!(config.open(&mut state, Timestamp(7), A, 6), Err(error));
    assert_eq!(state, fresh(config), "untouched");
}

#[test]
fn a_jump_ahead_and_back_locks_for_no_longer_than_the_expiry() {
    for ahead in [101, 1 << 40, u64::MAX - 1_000] {
        let config = config(2, 100, 9);
        let mut state = fresh(config);
        assert!(config.open(&mut state, Timestamp(1_000 + ahead), A, 2).unwrap().is_allowed());
        assert!(!config.open(&mut state, Timestamp(1_000), B, 1).unwrap().is_allowed());
        assert!(!config.open(&mut state, Timestamp(1_099), B, 1).unwrap().is_allowed());
        assert!(config.open(&mut state, Timestamp(1_100), B, 1).unwrap().is_allowed());
    }
}

#[test]
fn an_owner_of_no_connections_or_too_many_is_foreign() {
    let config = config(5, 100, 2);
    let mut state = fresh(config);
    assert!(config.open(&mut state, Timestamp(7), A, 3).unwrap().is_allowed());
    for (count, accepted) in [(3, true), (MAX_QUANTITY, true), (0, false), (1 << 53, false)] {
        let mut words = state.words().to_vec();
        assert_eq!((words[1], words[7]), (3, 3), "the sum, and the value of the first entry");
        (words[1], words[7]) = (count, count);
        assert_eq!(config.accepts(&config.state(words).unwrap()).is_ok(), accepted, "{count}");
    }
}

/// Every sequence of seven operations at nine times, of any length, for each of four small limits.
/// The graph of states is finite.
#[test]
fn equals_the_oracle_on_every_history() {
    let operations = [
        (A, Operation::Open(1)),
        (A, Operation::Close(1)),
        (A, Operation::Report(3)),
        (B, Operation::Open(2)),
        (B, Operation::Close(3)),
        (B, Operation::Report(1)),
        (B, Operation::Refresh),
    ];
    for (limit, most) in [(1, 1), (2, 1), (2, 2), (3, 2)] {
        let config = config(limit, 4, most);
        let oracle = Leases::new(limit, 4, usize::try_from(most).unwrap());
        every_history(
            (fresh(config), oracle),
            &operations,
            |(state, oracle)| (state.words().to_vec(), oracle.essence()),
            |(state, oracle), now, (owner, operation)| {
                both(config, state, oracle, now, owner, operation);
            },
        );
    }
}

fn operations(most: u64) -> impl Strategy<Value = Operation> {
    prop_oneof![
        8 => (0..=most + 1).prop_map(Operation::Open),
        3 => (0..=most).prop_map(Operation::Close),
        2 => (0..=most * 2).prop_map(Operation::Report),
        1 => prop_oneof![Just(MAX_QUANTITY - 9), any::<u64>()].prop_map(Operation::Report),
        3 => Just(Operation::Refresh),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn equals_the_oracle(
        (limit, expiry, most, steps) in (1..20_u64, 1..500_u64, 1..8_u64).prop_flat_map(
            |(limit, expiry, most)| {
                let step = (moves(expiry), ids(9), operations(limit));
                let steps = proptest::collection::vec(step, 1..70);
                (Just(limit), Just(expiry), Just(most), steps)
            },
        ),
    ) {
        let config = config(limit, expiry, most);
        let mut oracle = Leases::new(limit, expiry, usize::try_from(most).unwrap());
        let mut state = fresh(config);
        let (mut now, mut retry_after) = (1_000_000, 0);
        for (to, owner, operation) in steps {
            now = to.from(now, retry_after);
            let before = oracle.live_units();
            retry_after = both(config, &mut state, &mut oracle, now, owner, operation);
            if matches!(operation, Operation::Open(_)) {
                prop_assert!(oracle.live_units() <= limit.max(before), "an open exceeds");
            }
        }
    }
}

proptest! {
    #[test]
    fn nothing_is_opened_while_the_sum_would_exceed_the_limit(
        (limit, expiry) in (1..20_u64, 1..500_u64),
        steps in proptest::collection::vec((0..200_u64, ids(6), operations(10)), 1..100),
    ) {
        let config = config(limit, expiry, 4);
        let mut state = fresh(config);
        // owner, connections, last heard of
        let mut owners: Vec<(Id, u64, u64)> = Vec::new();
        let mut now = 1_000_000;
        for (gap, owner, operation) in steps {
            now += gap;
            let at = Timestamp(now);
            owners.retain(|entry| entry.1 > 0 && entry.2 + expiry > now);
            let known = owners.iter().position(|entry| entry.0 == owner);
            match operation {
                Operation::Open(count) => {
                    let allowed = config.open(&mut state, at, owner, count);
                    if allowed.is_ok_and(|decision| decision.is_allowed()) && count > 0 {
                        let sum = owners.iter().map(|entry| entry.1).sum::<u64>();
                        prop_assert!(sum + count <= limit);
                        let k = known.unwrap_or_else(|| {
                            owners.push((owner, 0, now));
                            owners.len() - 1
                        });
                        owners[k] = (owner, owners[k].1 + count, now);
                    }
                }
                Operation::Close(count) => {
                    let _ = config.close(&mut state, at, owner, count);
                    known.into_iter().for_each(|k| owners[k].1 = owners[k].1.saturating_sub(count));
                }
                Operation::Report(count) => {
                    if config.report(&mut state, at, owner, count).is_ok() {
                        owners.retain(|entry| entry.0 != owner);
                        owners.push((owner, count, now));
                    }
                }
                Operation::Refresh => {
                    let _ = config.heartbeat(&mut state, at, owner);
                    known.into_iter().for_each(|k| owners[k].2 = now);
                }
            }
        }
    }

    #[test]
    fn retry_after_is_the_first_microsecond_that_grants(
        (limit, expiry, most) in (6..20_u64, 1..1_000_000_u64, 1..9_u64),
        steps in proptest::collection::vec((0..100_000_u64, ids(12), 1..6_u64), 1..60),
    ) {
        let config = config(limit, expiry, most);
        let mut state = fresh(config);
        let mut now = Timestamp(0);
        for (gap, owner, count) in steps {
            now = now.saturating_add(Micros(gap));
            let decision = config.open(&mut state, now, owner, count).unwrap();
            if let Decision::Deny { retry_after, .. } = decision {
                let at = now.saturating_add(retry_after);
                let before = config.peek(&state, Timestamp(at.0 - 1), owner, count).unwrap();
                prop_assert!(!before.is_allowed());
                prop_assert!(config.peek(&state, at, owner, count).unwrap().is_allowed());
            }
        }
    }

    #[test]
    fn from_expires_at_on_it_equals_a_fresh_one(
        (limit, expiry, most) in (6..20_u64, 1..1_000_u64, 1..9_u64),
        steps in proptest::collection::vec((0..300_u64, ids(12), 1..6_u64), 1..60),
        later in 0..10_000_u64,
    ) {
        let config = config(limit, expiry, most);
        let mut state = fresh(config);
        let mut now = Timestamp(0);
        for (gap, owner, count) in steps {
            now = now.saturating_add(Micros(gap));
            let _ = config.open(&mut state, now, owner, count).unwrap();
        }
        let expires = config.expires_at(&state);
        prop_assert!(expires > now);
        let before = config.peek(&state, Timestamp(expires.0 - 1), A, 0).unwrap();
        prop_assert!(before.reset_after() == Micros(1), "not a microsecond sooner");
        let at = expires.saturating_add(Micros(later));
        let fresh = fresh(config);
        let (mut old, mut new) = (state.clone(), fresh.clone());
        prop_assert_eq!(config.open(&mut old, at, B, 3), config.open(&mut new, at, B, 3));
        prop_assert_eq!(old, new);
        let (mut old, mut new) = (state.clone(), fresh.clone());
        prop_assert_eq!(config.report(&mut old, at, B, 30), config.report(&mut new, at, B, 30));
        prop_assert_eq!(old, new);
        let (mut old, mut new) = (state, fresh);
        prop_assert_eq!(config.close(&mut old, at, A, 3), config.close(&mut new, at, A, 3));
        prop_assert_eq!(old, new);
    }

    #[test]
    fn a_foreign_state_is_noticed(
        (limit, most) in (1..6_u64, 1..6_u64),
        counts in proptest::collection::vec(1..4_u64, 1..8),
        (at, found) in (any::<proptest::sample::Index>(), prop_oneof![0..9_u64, any::<u64>()]),
    ) {
        let config = config(limit, 100, most);
        let mut state = fresh(config);
        for (k, count) in counts.into_iter().enumerate() {
            let owner = Id([u64::try_from(k).unwrap(), 5]);
            let _ = config.report(&mut state, Timestamp(1_000), owner, count);
        }
        let mut words = state.words().to_vec();
        let at = at.index(words.len());
        words[at] = found;
        let mut state = config.state(words).unwrap();
        let accepted = config.accepts(&state).is_ok();
        for k in 0..20 {
            let owner = Id([k, 6]);
            let decision = config.open(&mut state, Timestamp(1_000), owner, 1).unwrap();
            let _ = config.close(&mut state, Timestamp(1_000), Id([k, 5]), k);
            prop_assert!(!accepted || decision.remaining() <= limit);
            prop_assert!(!accepted || config.accepts(&state).is_ok());
        }
    }
}
