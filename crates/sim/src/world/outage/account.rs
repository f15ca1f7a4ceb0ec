//! The grants of the hosts, counted without the code of the limiters.

use std::collections::BTreeMap;

use crate::world::violation::{Checked, Invariant, check};

/// The units that were granted by each record, and those of which the store may know.
#[derive(Debug, Default)]
pub(super) struct Account {
    records: BTreeMap<usize, Granted>,
    /// By record and node.
    shares: BTreeMap<(usize, usize), Share>,
}

#[derive(Debug, Default)]
struct Granted {
    /// Units that callers were granted, by the store or by shares.
    units: u64,
    /// Units that were granted by shares, and of which the store will never hear, or may not have heard.
    lost: u64,
    /// Units that the store may have charged although its answer did not come.
    uncertain: u64,
}

/// The units that a node grants by itself, until the store has decided again and knows of them.
#[derive(Debug, Default)]
struct Share {
    units: u64,
    largest: u64,
    /// Units that the node had heard of when the share began.
    known: u64,
    /// Units that the store has told this node of: those of its own callers.
    heard: u64,
    /// Units that the store must still be told.
    owed: u64,
}

impl Account {
    /// The store has granted a request of a node.
    pub(super) fn by_store(&mut self, record: usize, node: usize, cost: u64) {
        self.records.entry(record).or_default().units += cost;
        self.shares.entry((record, node)).or_default().heard += cost;
    }

    /// A node has granted a request by its share. The grants of the share stay within the units that were left when the share began,
    /// divided by `nodes`, and one request more. The units that were left are those that the node must have known of.
    pub(super) fn by_share(
        &mut self,
        (record, limit): (usize, u64),
        (node, nodes): (usize, u64),
        cost: u64,
    ) -> Checked {
        self.records.entry(record).or_default().units += cost;
        let share = self.shares.entry((record, node)).or_default();
        if share.units == 0 {
            share.known = share.heard;
        }
        share.units += cost;
        share.owed += cost;
        share.largest = share.largest.max(cost);
        let left = limit.saturating_sub(share.known);
        let most = left + (nodes - 1) * share.largest;
        check(nodes * share.units <= most, Invariant::Bound, || {
            format!(
                "node {node} of {nodes} has granted a share of {limit} units of record {record}: {share:?}"
            )
        })
    }

    /// The store has decided on a partition for a node. The share of the node is over if the store knows of all of it.
    pub(super) fn decided(&mut self, partition: &[usize], node: usize) {
        let share = |record: &usize| self.shares.get(&(*record, node));
        if partition.iter().filter_map(share).any(|share| share.owed > 0) {
            return;
        }
        for record in partition {
            let share = self.shares.entry((*record, node)).or_default();
            (share.units, share.largest) = (0, 0);
        }
    }

    /// The store has been told of units that a node granted.
    pub(super) fn told(&mut self, record: usize, node: usize, units: u64) {
        let share = self.shares.entry((record, node)).or_default();
        share.owed = share.owed.saturating_sub(units);
        share.heard += units;
    }

    /// Nobody knows whether the store was told of units.
    pub(super) fn is_unknown(&mut self, record: usize, node: usize, units: u64) {
        let share = self.shares.entry((record, node)).or_default();
        share.owed = share.owed.saturating_sub(units);
        self.records.entry(record).or_default().lost += units;
    }

    /// The store has charged units, and the node did not hear of it.
    pub(super) fn is_uncertain(&mut self, record: usize, units: u64) {
        self.records.entry(record).or_default().uncertain += units;
    }

    /// A node has lost its memory, so it will never tell the store of the units that it owes.
    pub(super) fn crash(&mut self, node: usize) {
        for ((record, of), share) in &mut self.shares {
            if *of == node {
                self.records.entry(*record).or_default().lost += share.owed;
                *share = Share::default();
            }
        }
    }

    /// Checks that in the end the store has charged all grants once. Less may be charged by the units that a crash or a lost answer
    /// has lost, more by the units of a charge whose answer was lost.
    pub(super) fn check_charged(&self, (record, limit): (usize, u64), used: u64) -> Checked {
        let none = Granted::default();
        let granted = self.records.get(&record).unwrap_or(&none);
        let least = granted.units.saturating_sub(granted.lost).min(limit);
        let most = granted.units + granted.uncertain;
        check((least..=most).contains(&used), Invariant::Conserved, || {
            format!("record {record}: {used} units are charged of {granted:?}")
        })
    }

    /// Whether some units that the store charged were granted by a share too.
    pub(super) fn is_twice(&self, record: usize, used: u64) -> bool {
        self.records.get(&record).is_some_and(|granted| used > granted.units)
    }
}
