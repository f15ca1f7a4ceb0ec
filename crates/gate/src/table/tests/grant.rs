use std::format;
use std::sync::Arc;
use std::vec::Vec;

use proptest::prelude::*;
use tidegate_core::Timestamp;

use super::table;
use crate::limit::{Grant, Operation};
use crate::policy::{Policy, Resolved};
use crate::table::{Table, TableError};

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
    /// The caller gives this many of the grant's units back.
    Refund(u64),
    /// Another request comes.
    Other(u64),
}

fn steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let step = prop_oneof![(0..=MOST).prop_map(Step::Refund), (1..=3_u64).prop_map(Step::Other),];
    // up to a second between two steps, so that all of them are within a window that begins with an hour
    prop::collection::vec((prop_oneof![Just(0), 0..1_000_000_u64], step), 0..40)
}

struct World {
    table: Table,
    key: Resolved,
    now: Timestamp,
    grant: Grant,
}

impl World {
    fn new(limits: &str, cost: u64) -> Self {
        let (policy, now) = (policy(limits), Timestamp(3_600_000_000));
        let key = Resolved::new(&policy, "k").unwrap();
        let mut world = Self { table: table(), key, now, grant: Grant { at: now, units: 0 } };
        world.grant.units = if world.takes(cost) { cost } else { 0 };
        world
    }

    /// Gives at most the units back that the grant has.
    fn refund(&mut self, units: u64) -> Result<(), TableError> {
        let refund = Operation::RefundOf(self.grant, units);
        self.table.ask(&self.key, self.now, &refund)?;
        self.grant.units = self.grant.units.saturating_sub(units);
        Ok(())
    }

    fn takes(&mut self, cost: u64) -> bool {
        self.table.decide(self.key.policy(), "k", self.now, cost).unwrap().is_allowed()
    }

    fn remaining(&mut self) -> u64 {
        self.table.decide(self.key.policy(), "k", self.now, 0).unwrap().remaining()
    }
}

proptest! {
    #[test]
    fn a_grant_gives_back_what_it_took_and_no_units_of_others(
        policy in 0..POLICIES.len(),
        before in 0..=2_u64,
        cost in 0..=3_u64,
        steps in steps(),
    ) {
        let mut world = World::new(POLICIES[policy], before);
        let mut others = world.grant.units;
        world.now.0 += 1;
        world.grant = Grant { at: world.now, units: if world.takes(cost) { cost } else { 0 } };
        for (later, step) in steps {
            world.now.0 += later;
            match step {
                Step::Refund(units) => world.refund(units).unwrap(),
                Step::Other(units) => others += if world.takes(units) { units } else { 0 },
            }
            prop_assert!(world.remaining() <= MOST - others - world.grant.units, "{others} of others");
        }
        world.refund(u64::MAX).unwrap();
        // a bucket rounds up what has flowed back since the grant
        if policy < 5 {
            world.now.0 += 1_000_000; // past the window of a second
            let capacity = world.key.limits().unwrap().capacity();
            prop_assert_eq!(world.remaining(), capacity.min(MOST - others));
        }
    }
}

#[test]
fn a_grant_of_an_earlier_window_gives_nothing_back_in_this_one() {
    for limits in &POLICIES[..5] {
        let mut world = World::new(limits, 3);
        world.now.0 += 2 * 3_600_000_000;
        assert!(world.takes(3));
        world.refund(3).unwrap();
        assert_eq!(world.remaining(), world.key.limits().unwrap().capacity() - 3, "{limits}");
    }
}

#[test]
fn a_listed_key_counts_nothing() {
    let text = "limits = [{ algorithm = 'fixed_window', limit = 6, period = '1h' }]\nallow = ['k']";
    let policy = Arc::new(Policy::parse("p", text).unwrap());
    let mut table = table();
    for operation in
        [Operation::Charge(9), Operation::RefundOf(Grant { at: Timestamp(1), units: 9 }, 9)]
    {
        table.operate(&policy, "k", Timestamp(2), operation).unwrap();
    }
    assert!(table.is_empty());
}

#[test]
fn a_charge_counts_above_the_limit() {
    for (limits, waits) in POLICIES.iter().zip([false, false, false, false, false, true, false]) {
        let mut world = World::new(limits, 3);
        world.table.ask(&world.key, world.now, &Operation::Charge(7)).unwrap();
        assert_eq!(world.remaining(), 0, "{limits}");
        world.now.0 += 2 * 3_600_000_000;
        assert_eq!(world.remaining() == 0, waits, "{limits}");
    }
}
