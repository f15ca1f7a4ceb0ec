use std::format;
use std::sync::Arc;
use std::vec::Vec;

use proptest::prelude::*;
use tidegate_core::{MAX_QUANTITY, Timestamp};

use super::table;
use crate::policy::{Policy, Resolved};
use crate::table::{Grant, Table};

/// Of each policy, the most units that a key can have.
const MOST: u64 = 6;

/// Limits that get no units back while a history lasts, except by refunds.
const POLICIES: [&str; 7] = [
    "{ algorithm = 'fixed_window', limit = 6, period = '1h' }",
    "{ algorithm = 'fixed_window', limit = 6, period = '1h', start = 'first' }",
    "{ algorithm = 'sliding_window', limit = 6, period = '1h' }",
    "{ algorithm = 'sliding_log', rates = ['6/h'] }",
    "{ algorithm = 'sliding_log', rates = ['3/s', '6/h'] }",
    "{ algorithm = 'token_bucket', capacity = 6, rate = '1/1000d' }",
    "{ name = 'a', algorithm = 'fixed_window', limit = 6, period = '1h' }, \
     { name = 'b', algorithm = 'sliding_log', rates = ['9/h'] }, \
     { name = 'c', algorithm = 'token_bucket', capacity = 20, rate = '1/1000d', depth = 0 }",
];

fn policy(limits: &str) -> Arc<Policy> {
    Arc::new(Policy::parse("p", &format!("limits = [{limits}]")).unwrap())
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The caller tells the true cost.
    Settle(u64),
    /// The caller gives this many units back; without a number all units.
    Refund(Option<u64>),
    /// Another request comes.
    Other(u64),
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let step = prop_oneof![
        4 => (0..=3 * MOST).prop_map(Step::Settle),
        1 => Just(Step::Settle(MAX_QUANTITY)),
        3 => prop::option::of(0..=MOST).prop_map(Step::Refund),
        3 => (1..=3_u64).prop_map(Step::Other),
    ];
    // a step per second at most, so that all of them are within a window that begins with an hour
    prop::collection::vec((prop_oneof![Just(0), 0..1_000_000_u64], step), 0..40)
}

struct World {
    table: Table,
    key: Resolved,
    now: Timestamp,
    grant: Grant,
    /// The units that the grant took, whether or not the limits have counted them.
    taken: u64,
    given_back: u64,
}

impl World {
    fn new(limits: &str, cost: u64) -> Self {
        let (policy, now) = (policy(limits), Timestamp(3_600_000_000));
        let (mut table, key) = (table(), Resolved::new(&policy, "k").unwrap());
        let cost =
            if table.decide(&policy, "k", now, cost).unwrap().is_allowed() { cost } else { 0 };
        Self { table, key, now, grant: Grant::new(now, cost), taken: cost, given_back: 0 }
    }

    fn settle(&mut self, cost: u64) -> u64 {
        self.taken = self.taken.saturating_add(cost.saturating_sub(self.grant.cost()));
        let given_back =
            self.table.settle_grant(&self.key, self.now, &mut self.grant, cost).unwrap();
        self.given_back += given_back;
        given_back
    }

    fn takes(&mut self, cost: u64) -> bool {
        self.table.decide(self.key.policy(), "k", self.now, cost).unwrap().is_allowed()
    }

    fn remaining(&mut self) -> u64 {
        self.table.decide(self.key.policy(), "k", self.now, 0).unwrap().remaining()
    }

    fn words(&self) -> Option<Vec<u64>> {
        self.table.words(self.key.limits().unwrap(), "k")
    }

    fn check(&self) {
        let Self { grant, .. } = self;
        assert!(grant.counted() <= grant.cost(), "{grant:?}");
        assert!(self.given_back + grant.counted() <= self.taken, "{grant:?}");
    }
}

proptest! {
    #[test]
    fn a_grant_gives_back_what_it_took_and_no_units_of_others(
        policy in 0..POLICIES.len(),
        cost in 0..=3_u64,
        steps in steps(),
    ) {
        let mut world = World::new(POLICIES[policy], cost);
        let mut others = 0;
        for (later, step) in steps {
            world.now.0 += later;
            match step {
                Step::Settle(cost) => {
                    world.settle(cost);
                    let (words, grant) = (world.words(), world.grant);
                    world.now.0 += 1;
                    prop_assert_eq!(world.settle(cost), 0, "the second time");
                    prop_assert_eq!((world.words(), world.grant), (words, grant));
                }
                Step::Refund(units) => {
                    let before = world.grant.cost();
                    let units = units.unwrap_or(before);
                    match Grant::cost_after_refund(before, units) {
                        Some(cost) => prop_assert!(world.settle(cost) <= units),
                        None => prop_assert!(units > before),
                    }
                }
                Step::Other(units) => others += if world.takes(units) { units } else { 0 },
            }
            world.check();
        }
        world.settle(0);
        world.check();
        prop_assert_eq!(world.grant.counted(), 0);
        prop_assert_eq!(world.settle(0), 0);
        prop_assert!(world.remaining() <= MOST - others, "{} of others", others);
    }

    #[test]
    fn within_the_limit_every_unit_comes_back(
        policy in 0..POLICIES.len(),
        costs in prop::collection::vec(0..=MOST, 1..10),
        other in 0..=2_u64,
    ) {
        let mut world = World::new(POLICIES[policy], 0);
        let other = if world.takes(other) { other } else { 0 };
        for cost in costs {
            world.settle(cost.min(MOST - other));
            prop_assert_eq!(world.grant.counted(), world.grant.cost());
            prop_assert!(world.remaining() <= MOST - other - world.grant.cost());
        }
        let cost = world.grant.cost();
        prop_assert_eq!((world.settle(0), world.settle(0)), (cost, 0));
        prop_assert_eq!(world.remaining(), world.key.limits().unwrap().capacity() - other);
    }
}

#[test]
fn a_grant_remembers_sixteen_times() {
    let mut world = World::new(POLICIES[0], 1);
    for cost in 2..=40 {
        world.now.0 += 1_000_000;
        world.settle(cost);
    }
    assert_eq!(world.grant.used().len(), 16);
    assert_eq!((world.grant.cost(), world.grant.counted()), (40, 2 * MOST));
    assert_eq!((world.settle(0), world.remaining()), (2 * MOST, MOST));
}

#[test]
fn a_settlement_that_fails_changes_nothing() {
    let mut world = World::new(POLICIES[0], 2);
    world.table = Table::new(0, super::KeyHasher::new(1));
    let before = world.grant;
    assert!(world.table.settle_grant(&world.key, world.now, &mut world.grant, 5).is_err());
    assert_eq!(world.grant, before);
}

#[test]
fn a_listed_key_counts_nothing() {
    let text = "limits = [{ algorithm = 'fixed_window', limit = 6, period = '1h' }]\nallow = ['k']";
    let policy = Arc::new(Policy::parse("p", text).unwrap());
    let key = Resolved::new(&policy, "k").unwrap();
    let (mut table, mut grant) = (table(), Grant::new(Timestamp(1), 9));
    assert_eq!(table.settle_grant(&key, Timestamp(2), &mut grant, 50), Ok(0));
    assert_eq!(table.settle_grant(&key, Timestamp(3), &mut grant, 0), Ok(50));
    assert!(table.is_empty());
}

#[test]
fn units_that_were_not_counted_do_not_come_back_at_time_zero() {
    let mut world = World::new(POLICIES[3], 0);
    (world.now, world.grant) = (Timestamp(0), Grant::new(Timestamp(0), 0));
    assert!(world.takes(MOST));
    assert_eq!(world.settle(5), 0);
    assert_eq!((world.grant.counted(), world.settle(0)), (0, 0));
}
