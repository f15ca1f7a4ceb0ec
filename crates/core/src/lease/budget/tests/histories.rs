//! Histories of grants and returns, compared with the oracle and with the guarantees.

use std::vec;
use std::vec::Vec;

use proptest::prelude::*;
use tidegate_reference::lease::Budget;

use super::{A, B, config};
use crate::exhaustive::every_history;
use crate::lease::Id;
use crate::lease::budget::{Allowance, Config, State, Usage};
use crate::lease::properties::{Move, ids, moves};
use crate::properties::fresh;
use crate::{Limiter, Micros, Timestamp};

#[derive(Clone, Copy, Debug)]
enum Operation {
    /// The units that the holder wants, and the available units.
    Grant(u64, u64),
    /// The units that the holder gives back, and the number of leases since the one given back.
    GiveBack(u64, usize),
}

/// Does the same operation on both and compares their answers.
fn both(
    config: Config,
    state: &mut State<Vec<u64>>,
    oracle: &mut Budget,
    leases: &mut Vec<(Id, Allowance)>,
    (now, holder, operation): (u64, Id, Operation),
) {
    let at = Timestamp(now);
    match operation {
        Operation::Grant(wants, free) => {
            let before = state.clone();
            let granted = config.grant(state, at, holder, wants, free);
            let (units, time) = oracle.grant(now, holder.0, wants, free).unwrap_or((0, 0));
            assert_eq!((granted.left, granted.granted_at.0), (units, time), "{before:?} {now}");
            assert!(granted.left <= free.min(config.most()).min(wants));
            leases.push((holder, granted));
        }
        Operation::GiveBack(left, k) => {
            let mine = leases.iter().rev().filter(|lease| lease.0 == holder).nth(k);
            let lease = Allowance { left, ..mine.map(|lease| lease.1).unwrap_or_default() };
            let given_back = config.give_back(state, at, holder, lease);
            let seen = given_back.map(|r| (r.units, r.granted, r.after.0));
            let expected = oracle.give_back(now, holder.0, lease.granted_at.0, left);
            assert_eq!(seen, expected, "{state:?} {lease:?}");
        }
    }
    assert_eq!(config.accepts(state), Ok(()), "{state:?}");
    assert_eq!(config.reset_after(state).0, oracle.expires_after());
}

/// Every sequence of five operations at nine times, of any length, for each of two small budgets.
/// The graph of states is finite. Each holder gives back only its newest lease.
#[test]
fn equals_the_oracle_on_every_history() {
    let operations = [
        (A, Operation::Grant(1, 2)),
        (A, Operation::Grant(4, 3)),
        (B, Operation::Grant(3, 1)),
        (A, Operation::GiveBack(1, 0)),
        (B, Operation::GiveBack(3, 0)),
    ];
    for (most, holders) in [(2, 2), (3, 2)] {
        let config = config(most, 2, holders);
        let oracle = Budget::new(most, 2, usize::try_from(holders).unwrap());
        // only the newest lease of a holder counts, and only while it is live
        every_history(
            (fresh(config), oracle, Vec::new()),
            &operations,
            |(state, oracle, _)| (state.words().to_vec(), oracle.essence()),
            |(state, oracle, leases), now, (holder, operation)| {
                both(config, state, oracle, leases, (now, holder, operation));
            },
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn equals_the_oracle(
        (most, time, holders) in (1..60_u64, 1..500_u64, 1..7_u64),
        steps in proptest::collection::vec(
            (
                moves(300),
                ids(7),
                prop_oneof![
                    3 => (0..70_u64, 0..100_u64)
                        .prop_map(|(wants, free)| Operation::Grant(wants, free)),
                    1 => (1..9_u64, 0..9_u64)
                        .prop_map(|(wants, free)| Operation::Grant(wants, free)),
                    2 => (0..60_u64, 0..2_usize)
                        .prop_map(|(left, k)| Operation::GiveBack(left, k)),
                ],
            ),
            1..70,
        ),
    ) {
        let config = config(most, time, holders);
        let mut oracle = Budget::new(most, time, usize::try_from(holders).unwrap());
        let (mut state, mut leases) = (fresh(config), Vec::new());
        let mut now = 1_000_000;
        for (to, holder, operation) in steps {
            now = Move::from(to, now, 0);
            both(config, &mut state, &mut oracle, &mut leases, (now, holder, operation));
        }
    }
}

proptest! {
    #[test]
    fn a_holder_alone_gets_all_and_none_gets_more_than_its_wants_in_an_account(
        steps in proptest::collection::vec((0..30_u64, ids(4), 1..50_u64, 0..60_u64), 1..60),
    ) {
        let config = config(1_000, 100, 9);
        let mut state = fresh(config);
        let mut now = 0;
        let mut alone = true;
        let mut taken = 0;
        for (gap, holder, wants, free) in steps {
            now += gap + 1;
            let granted = config.grant(&mut state, Timestamp(now), holder, wants, free).left;
            prop_assert!(granted <= wants.min(free));
            alone &= holder == A && now < 100;
            if alone {
                prop_assert_eq!(granted, free.min(wants.saturating_sub(taken)));
                taken += granted;
            }
        }
    }

    #[test]
    fn shares_leave_nothing_that_is_wanted_and_nobody_below_another(
        capacity in 0..200_u64,
        wants in proptest::collection::vec(1..100_u64, 1..8),
    ) {
        let config = config(1_000, 1_000, 9);
        let mut state = fresh(config);
        let (mut available, mut now) = (capacity, 0);
        let mut allowances = vec![Allowance::default(); wants.len()];
        for _ in 0..3 {
            for (k, &wants) in wants.iter().enumerate() {
                now += 1;
                let (at, holder) = (Timestamp(now), Id([u64::try_from(k).unwrap(), 3]));
                let back = config.give_back(&mut state, at, holder, allowances[k]);
                available += back.map_or(0, |refundable| refundable.units);
                allowances[k] = config.grant(&mut state, at, holder, wants, available);
                available -= allowances[k].left;
            }
        }
        let wanted = wants.iter().sum::<u64>();
        prop_assert_eq!(capacity - available, wanted.min(capacity));
        for (mine, &wants) in allowances.iter().zip(&wants) {
            for theirs in &allowances {
                prop_assert!(mine.left == wants || mine.left + 1 >= theirs.left);
            }
        }
    }

    #[test]
    fn next_wants_never_falls_for_more_spent_or_the_same_spent_sooner(
        (wanted, granted) in (0..10_000_u64, 0..10_000_u64),
        (spent, more) in (0..10_000_u64, 0..10_000_u64),
        (elapsed, later) in (0..3_000_u64, 0..3_000_u64),
    ) {
        let config = config(5, 1_000, 9);
        let wants = |spent: u64, elapsed| {
            let spent = spent.min(granted);
            config.next_wants(Usage { wanted, granted, spent, elapsed: Micros(elapsed) })
        };
        let first = wants(spent, elapsed);
        prop_assert!(first >= 1 && first <= (2 * wanted).max(1) && 4 * first >= wanted);
        prop_assert!(wants(spent.saturating_add(more), elapsed) >= first);
        prop_assert!(wants(spent, elapsed + later) <= first);
    }

    #[test]
    fn from_expires_at_on_it_equals_a_fresh_one(
        (most, time) in (1..60_u64, 1..500_u64),
        steps in proptest::collection::vec((0..300_u64, ids(7), 1..70_u64, 0..90_u64), 1..60),
        later in 0..10_000_u64,
    ) {
        let config = config(most, time, 5);
        let mut state = fresh(config);
        let mut now = Timestamp(0);
        for (gap, holder, wants, free) in steps {
            now = now.saturating_add(Micros(gap));
            let _ = config.grant(&mut state, now, holder, wants, free);
        }
        let expires = config.expires_at(&state);
        let mut before = state.clone();
        config.advance(&mut before, Timestamp(expires.0 - 1));
        prop_assert_eq!(config.reset_after(&before), Micros(1), "not a microsecond sooner");
        let at = expires.saturating_add(Micros(later));
        let mut fresh = fresh(config);
        prop_assert_eq!(
            config.grant(&mut state, at, B, 9, 5),
            config.grant(&mut fresh, at, B, 9, 5)
        );
        prop_assert_eq!(state, fresh);
    }

    #[test]
    fn a_foreign_state_is_noticed(
        grants in proptest::collection::vec((1..9_u64, 0..9_u64), 1..6),
        (at, found) in (any::<proptest::sample::Index>(), prop_oneof![0..9_u64, any::<u64>()]),
    ) {
        let config = config(5, 100, 4);
        let mut state = fresh(config);
        for (k, (wants, free)) in (0..).zip(grants) {
            let _ = config.grant(&mut state, Timestamp(1_000 + k), Id([k, 5]), wants, free);
        }
        let mut words = state.words().to_vec();
        let at = at.index(words.len());
        words[at] = found;
        let mut state = config.state(words).unwrap();
        let accepted = config.accepts(&state).is_ok();
        for k in 0..12 {
            let (now, lease) = (Timestamp(1_010 + k), Allowance { left: 9, ..Default::default() });
            let granted = config.grant(&mut state, now, Id([k, 6]), 7, 6).left;
            let _ = config.give_back(&mut state, now, Id([k, 5]), lease);
            prop_assert!(granted <= 5);
            prop_assert!(!accepted || config.accepts(&state).is_ok());
        }
    }
}
