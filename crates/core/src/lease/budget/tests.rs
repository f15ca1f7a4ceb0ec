use std::vec;
use std::vec::Vec;

use proptest::prelude::*;
use tidegate_reference::lease::Budget;

use super::{Allowance, Config, Refundable, State, Usage};
use crate::lease::properties::{Move, ids, moves};
use crate::lease::{Id, MAX_ENTRIES};
use crate::{MAX_QUANTITY, Micros, Rate, Timestamp, bucket};

mod guarantee;

fn config(most: u64, time: u64, holders: u64) -> Config {
    Config::new(most, Micros(time), holders).unwrap()
}

fn fresh(config: Config) -> State<Vec<u64>> {
    config.state(vec![0; config.words()]).unwrap()
}

const A: Id = Id([0, 0]);
const B: Id = Id([1, 0]);
const C: Id = Id([0, 1]);

/// A parent that has so many units and nothing flows in: what was granted and given back.
fn renewed_shares(capacity: u64, wants: [u64; 3]) -> [u64; 3] {
    let config = config(1_000, 100, 9);
    let mut state = fresh(config);
    let (mut available, mut now) = (capacity, 0);
    let mut allowances = [Allowance::default(); 3];
    for _ in 0..3 {
        for (k, holder) in [A, B, C].into_iter().enumerate() {
            now += 1;
            let given_back = config.give_back(&mut state, Timestamp(now), holder, allowances[k]);
            available += given_back.map_or(0, |refundable| refundable.units);
            allowances[k] = config.grant(&mut state, Timestamp(now), holder, wants[k], available);
            available -= allowances[k].left;
        }
    }
    allowances.map(|allowance| allowance.left)
}

#[test]
fn shares_are_those_that_doorman_publishes() {
    for (wants, shares) in [
        ([1_000, 50, 10], [60, 50, 10]),
        ([1_000, 60, 10], [55, 55, 10]),
        ([1_000, 500, 200], [40, 40, 40]),
        ([1_000, 20, 20], [80, 20, 20]),
        ([60, 40, 10], [60, 40, 10]), // all is there
    ] {
        assert_eq!(renewed_shares(120, wants), shares, "{wants:?}");
    }
}

#[test]
fn units_that_cannot_be_shared_evenly_go_to_those_who_ask() {
    assert_eq!(renewed_shares(2, [9, 9, 9]), [1, 1, 0]);
    assert_eq!(renewed_shares(121, [1_000, 500, 200]), [41, 40, 40]);
    assert_eq!(renewed_shares(122, [1_000, 500, 200]), [41, 41, 40]);
}

#[test]
fn one_that_took_everything_is_back_at_its_share_when_its_account_ends() {
    // 120 units per lease's time flow in, as a whole at each of its tenths
    let config = config(1_000, 100, 9);
    let mut state = fresh(config);
    let mut available = 120;
    let mut taken = [0; 2];
    for now in 0..500 {
        if now % 10 == 0 && now > 0 {
            available = (available + 12).min(120);
        }
        if now == 200 {
            taken = [0; 2];
        }
        // A asks every microsecond and spends it all, B only now and then, from 50 on
        for (k, holder) in [A, B].into_iter().enumerate() {
            if k == 0 || (now >= 50 && now % 20 == 0) {
                let granted =
                    config.grant(&mut state, Timestamp(now), holder, 1_000, available).left;
                available -= granted;
                taken[k] += granted;
            }
        }
        if now == 49 {
            assert_eq!(taken, [168, 0]);
        }
    }
    assert_eq!(taken[0] + taken[1], 360);
    assert!(taken[1] >= 165, "{taken:?}: an even share is 180");
}

#[test]
fn nothing_is_given_back_twice_or_late() {
    let config = config(50, 100, 9);
    let mut state = fresh(config);
    let first = config.grant(&mut state, Timestamp(1_000), A, 80, 200);
    let expected =
        Allowance { left: 50, granted_at: Timestamp(1_000), expires_at: Timestamp(1_100) };
    assert_eq!(first, expected);
    assert_eq!(config.grant(&mut state, Timestamp(1_000), A, 80, 200), Allowance::default());

    let part = Allowance { left: 20, ..first };
    let refundable =
        Refundable { units: 20, granted: 50, granted_at: Timestamp(1_000), after: Micros(30) };
    assert_eq!(config.give_back(&mut state, Timestamp(1_030), B, part), None, "unknown");
    let foreign = Allowance { granted_at: Timestamp(1_001), ..part };
    assert_eq!(config.give_back(&mut state, Timestamp(1_030), A, foreign), None, "another");
    assert_eq!(config.give_back(&mut state, Timestamp(1_030), A, part), Some(refundable));
    assert_eq!(config.give_back(&mut state, Timestamp(1_030), A, part), None, "again");

    // 30 of the 80 it wants are spent
    let second = config.grant(&mut state, Timestamp(1_040), A, 80, 170);
    assert_eq!(second.left, 50);
    assert_eq!(config.give_back(&mut state, Timestamp(1_041), A, first), None, "replaced");
    let more = Allowance { left: 5_000, ..second };
    let units = config.give_back(&mut state.clone(), Timestamp(1_041), A, more).unwrap().units;
    assert_eq!(units, 50, "no more than was granted");
    assert!(config.give_back(&mut state.clone(), Timestamp(1_139), A, second).is_some());
    assert_eq!(config.give_back(&mut state, Timestamp(1_140), A, second), None, "expired");
    assert_eq!(state.words()[1..], vec![0; config.words() - 1]);
}

#[test]
fn an_allowance_ends_with_its_lease() {
    let allowance =
        Allowance { left: 3, granted_at: Timestamp(1_000), expires_at: Timestamp(1_100) };
    let spends = |now, cost| {
        let mut allowance = allowance;
        let spent = allowance.spend(Timestamp(now), cost);
        assert_eq!(allowance.left, if spent { 3 - cost } else { 3 });
        spent
    };
    assert!(spends(1_000, 3) && spends(1_099, 3) && spends(1_050, 0));
    assert!(!spends(1_000, 4) && !spends(1_100, 1) && !spends(u64::MAX, 1));
    assert!(spends(900, 1), "a clock that is a little behind");
    assert!(!spends(899, 1) && !spends(0, 1), "one that went back");
    assert!(!Allowance::default().spend(Timestamp(0), 0));
    let config = config(5, 100, 9);
    for now in [0, u64::MAX] {
        let mut last = config.grant(&mut fresh(config), Timestamp(now), A, 5, 5);
        assert_eq!(last.left, 5);
        assert_eq!(last.spend(Timestamp(now), 1), now == 0);
    }
}

#[test]
fn a_bucket_gets_back_what_it_cannot_have_lost() {
    // 3 per 10 µs
    let parent = bucket::Config::new(100, Rate::new(3, Micros(10)).unwrap()).unwrap();
    for (units, granted, after, expected) in [
        (5, 5, 0, 5),
        (5, 5, 1, 4), // a started unit may be lost
        (5, 5, 10, 2),
        (5, 8, 10, 5),
        (5, 8, 11, 4),
        (5, 5, 20, 0),
        (5, 5, u64::MAX, 0),
    ] {
        let granted_at = Timestamp(7);
        let refundable = Refundable { units, granted, granted_at, after: Micros(after) };
        assert_eq!(refundable.to_bucket(&parent), expected, "{units} of {granted}, {after}");
    }
}

#[test]
fn bounds_are_checked() {
    assert!(Config::new(0, Micros(1), 1).is_err());
    assert!(Config::new(1, Micros(0), 1).is_err());
    assert!(Config::new(1, Micros(1), 0).is_err());
    assert!(Config::new(1, Micros(1), MAX_ENTRIES + 1).is_err());
    let config = Config::new(MAX_QUANTITY, Micros(MAX_QUANTITY), 2).unwrap();
    assert!(config.state([0; 9]).is_err(), "a state of another length");
    let mut state = fresh(config);
    let all = config.grant(&mut state, Timestamp(5), A, u64::MAX, u64::MAX);
    assert_eq!(all.left, MAX_QUANTITY);
    assert_eq!(config.grant(&mut state, Timestamp(6), B, u64::MAX, u64::MAX).left, 0);
    assert_eq!(config.grant(&mut state, Timestamp(6), C, 1, 1).left, 0, "no room");
    assert_eq!(config.accepts(&state), Ok(()));
    let before = state.clone();
    assert_eq!(config.grant(&mut state, Timestamp(7), A, 0, 1), Allowance::default());
    assert_eq!(state, before, "wants nothing");
}

#[test]
fn a_holder_that_holds_what_it_cannot_is_foreign() {
    let config = config(5, 100, 2);
    let mut state = fresh(config);
    assert_eq!(config.grant(&mut state, Timestamp(7), A, 3, 3).left, 3);
    let (sum, taken, wants, held, account) = (1, 7, 9, 10, 11); // words of the first entry
    let check = |changes: &[(usize, u64)], accepted| {
        let mut words = state.words().to_vec();
        assert_eq!((words[taken], words[wants], words[held], words[account]), (3, 3, 3, 0));
        changes.iter().for_each(|&(at, word)| words[at] = word);
        let found = config.accepts(&config.state(words).unwrap()).is_ok();
        assert_eq!(found, accepted, "{changes:?}");
    };
    check(&[(wants, MAX_QUANTITY), (held, 0), (account, 99)], true);
    check(&[(wants, 0)], false);
    check(&[(wants, MAX_QUANTITY + 1)], false);
    check(&[(account, 100)], false);
    check(&[(held, 4)], false);
    check(&[(sum, 9), (taken, 9), (held, 5)], true);
    check(&[(sum, 9), (taken, 9), (held, 6)], false);
    check(&[(sum, MAX_QUANTITY), (taken, MAX_QUANTITY)], true);
    check(&[(sum, MAX_QUANTITY + 1), (taken, MAX_QUANTITY + 1)], false);
}

/// How a holder with `demand` units per time, evenly spread, sees its leases.
fn wants_after(config: Config, demand: u64, leases: u32, mut wanted: u64) -> u64 {
    let time = config.period().0;
    for _ in 0..leases {
        let exhausted = wanted <= demand && demand > 0;
        let usage = Usage {
            wanted,
            granted: wanted,
            spent: wanted.min(demand),
            elapsed: Micros(if exhausted { wanted * time / demand } else { time }),
        };
        wanted = config.next_wants(usage);
    }
    wanted
}

#[test]
fn a_constant_demand_is_met_within_a_quarter_and_an_idle_holder_falls_to_one() {
    let config = config(1_000_000, 1_000_000, 9);
    for demand in [1, 2, 3, 7, 10, 55, 100, 1_000, 54_321] {
        for (from, leases) in [(1, 18), (100_000, 10)] {
            for leases in leases..leases + 5 {
                let wants = wants_after(config, demand, leases, from);
                assert!(wants >= demand && wants <= demand + demand / 4, "{demand}: {wants}");
            }
        }
    }
    assert_eq!(wants_after(config, 0, 5, 1_000), 1);
    assert_eq!(wants_after(config, 0, 9, 100_000), 1);
    assert_eq!(wants_after(config, 0, 50, 1), 1);
    // one that got nothing goes on wanting as much
    let starved = Usage { wanted: 80, granted: 0, spent: 0, elapsed: Micros(5) };
    assert_eq!(config.next_wants(starved), 80);
    let early = Usage { wanted: 80, granted: 80, spent: 80, elapsed: Micros(0) };
    assert_eq!(config.next_wants(early), 160);
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    /// How much it wants, of how much.
    Grant(u64, u64),
    /// So much of its n-th last lease.
    GiveBack(u64, usize),
}

/// Does the same to both, and compares what they say.
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

/// Every sequence of 4 of 18 operations and times, for each of three small budgets.
#[test]
fn equals_the_oracle_on_every_short_history() {
    type Leases = Vec<(Id, Allowance)>;
    fn walk(
        config: Config,
        (state, oracle, leases): (&State<Vec<u64>>, &Budget, &Leases),
        now: u64,
        depth: u32,
    ) {
        if depth == 0 {
            return;
        }
        for now in [now, now + 2, now.saturating_sub(9)] {
            for (holder, operation) in [
                (A, Operation::Grant(1, 2)),
                (A, Operation::Grant(4, 3)),
                (B, Operation::Grant(3, 1)),
                (C, Operation::Grant(2, 3)),
                (A, Operation::GiveBack(1, 0)),
                (B, Operation::GiveBack(3, 0)),
            ] {
                let (mut state, mut oracle) = (state.clone(), oracle.clone());
                let mut leases = leases.clone();
                let step = (now, holder, operation);
                both(config, &mut state, &mut oracle, &mut leases, step);
                walk(config, (&state, &oracle, &leases), now, depth - 1);
            }
        }
    }
    for (most, holders) in [(2, 2), (3, 2), (3, 3)] {
        let config = config(most, 4, holders);
        let oracle = Budget::new(most, 4, usize::try_from(holders).unwrap());
        walk(config, (&fresh(config), &oracle, &Vec::new()), 10, 4);
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
