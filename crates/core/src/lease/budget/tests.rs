use std::vec;

use super::{Allowance, Config, Refundable, Usage};
use crate::lease::{Id, MAX_ENTRIES};
use crate::properties::fresh;
use crate::{Limiter, MAX_QUANTITY, Micros, Rate, Timestamp, bucket};

mod guarantee;
mod histories;

fn config(most: u64, time: u64, holders: u64) -> Config {
    Config::new(most, Micros(time), holders).unwrap()
}

const A: Id = Id([0, 0]);
const B: Id = Id([1, 0]);
const C: Id = Id([0, 1]);

/// The shares of three holders after renewals. The parent has `capacity` units without any inflow.
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
        ([60, 40, 10], [60, 40, 10]), // the parent has enough for all
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
    // 120 units flow in during a lease, a tenth of them at each tenth of its length
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
        // A asks every microsecond and spends everything; B asks only sometimes, from 50 on
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

    // the holder has spent 30 of the 80 units that it wants
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
        assert_eq!(refundable.to_bucket(&parent).cost, expected, "{units} of {granted}, {after}");
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

/// What a holder wants after `leases` leases if it spends `demand` units per lease, evenly spread.
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
    // a holder without a grant goes on wanting as much
    let starved = Usage { wanted: 80, granted: 0, spent: 0, elapsed: Micros(5) };
    assert_eq!(config.next_wants(starved), 80);
    let early = Usage { wanted: 80, granted: 80, spent: 80, elapsed: Micros(0) };
    assert_eq!(config.next_wants(early), 160);
    let unused = Usage { spent: 0, ..early };
    assert_eq!(config.next_wants(unused), 20);
}
