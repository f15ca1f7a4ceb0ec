//! The partitions that an authority knows, within a bound of memory.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use hashbrown::HashTable;
use slab::Slab;
use tidegate_gate::{KeyHasher, Policy, Resolved, Transaction};

use super::ask::Options;
use super::partition::{Partition, Queue};
use crate::count::less;

/// How many allocations for busy partitions are kept for the next ones.
const MOST_SPARE: usize = 256;

/// What is left on a partition.
pub(super) enum Left {
    /// Operations that are decided, or writes, which wait for a swap.
    Decided,
    /// Operations that are not decided yet.
    Waiting,
    Nothing,
}

/// The partitions on which operations wait, and the partitions whose states are remembered.
#[derive(Debug)]
pub(super) struct Partitions<T> {
    partitions: Slab<Partition<T>>,
    by_name: HashTable<usize>,
    hasher: KeyHasher,
    is_only_writer: bool,
    /// The bytes of the idle partitions, and their bound.
    remembered: usize,
    most_remembered: usize,
    /// Where the next search for partitions to forget begins.
    clock_hand: usize,
    #[expect(
        clippy::vec_box,
        reason = "a partition holds the box, so that it is small while it is idle"
    )]
    spare: Vec<Box<Queue<T>>>,
}

impl<T> Partitions<T> {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            partitions: Slab::new(),
            by_name: HashTable::new(),
            hasher: KeyHasher::new(options.seed),
            is_only_writer: options.is_only_writer,
            remembered: 0,
            most_remembered: options.remembered,
            clock_hand: 0,
            spare: Vec::new(),
        }
    }

    /// The bytes of the idle partitions.
    pub(super) const fn remembered(&self) -> usize {
        self.remembered
    }

    pub(super) fn remember_at_most(&mut self, bytes: usize) {
        self.most_remembered = bytes;
        self.forget();
    }

    pub(super) fn get_mut(&mut self, id: usize) -> Option<&mut Partition<T>> {
        self.partitions.get_mut(id)
    }

    /// The partition of a key and its number, for an operation that is to wait there; and whether nothing waited on it before.
    pub(super) fn wake(&mut self, resolved: &Resolved) -> Option<(&mut Partition<T>, usize, bool)> {
        let id = self.find_or_add(resolved);
        let partition = self.partitions.get_mut(id)?;
        let wakes = partition.is_idle();
        if wakes {
            self.remembered = less(self.remembered, partition.bytes());
            partition.wake(self.spare.pop().unwrap_or_default());
        }
        Some((partition, id, wakes))
    }

    #[inline]
    fn find(&self, hash: u64, resolved: &Resolved) -> Option<usize> {
        let is = |id: &usize| {
            let partition = self.partitions.get(*id);
            partition.is_some_and(|partition| {
                Arc::ptr_eq(&partition.policy, resolved.policy())
                    && partition.name == resolved.partition()
            })
        };
        self.by_name.find(hash, is).copied()
    }

    /// What was last seen of the partition of a key.
    pub(super) fn last_seen(&self, resolved: &Resolved) -> Option<&Transaction> {
        let id = self.find(hash(&self.hasher, resolved.policy(), resolved.partition()), resolved);
        id.and_then(|id| self.partitions.get(id)).map(|partition| &partition.transaction)
    }

    fn find_or_add(&mut self, resolved: &Resolved) -> usize {
        let hash = hash(&self.hasher, resolved.policy(), resolved.partition());
        if let Some(id) = self.find(hash, resolved) {
            return id;
        }
        let Self { partitions, by_name, hasher, .. } = self;
        let partition = Partition::new(resolved, self.is_only_writer);
        self.remembered = self.remembered.saturating_add(partition.bytes()); // it is idle until it wakes
        let id = partitions.insert(partition);
        let rehash = |id: &usize| {
            partitions
                .get(*id)
                .map_or(0, |partition| self::hash(hasher, &partition.policy, &partition.name))
        };
        by_name.insert_unique(hash, id, rehash);
        id
    }

    /// What is left on a partition. If nothing is, the partition becomes idle, and partitions are forgotten if the idle ones
    /// take too much memory.
    pub(super) fn settle(&mut self, id: usize) -> Left {
        let Some(partition) = self.partitions.get_mut(id) else { return Left::Nothing };
        if partition.needs_swap() {
            return Left::Decided;
        }
        if partition.len() > 0 {
            return Left::Waiting;
        }
        if let Some(busy) = partition.rest()
            && self.spare.len() < MOST_SPARE
        {
            self.spare.push(busy);
        }
        self.remembered = self.remembered.saturating_add(partition.bytes());
        self.forget();
        Left::Nothing
    }

    /// Forgets idle partitions until the rest has room. A partition that was used since the last search is passed over
    /// once.
    fn forget(&mut self) {
        // the hand comes to each place twice, and to the end of the places
        let mut steps = self.partitions.capacity().saturating_add(1).saturating_mul(2);
        while self.remembered > self.most_remembered && steps > 0 {
            steps = steps.saturating_sub(1);
            let id = self.clock_hand;
            self.clock_hand =
                if id < self.partitions.capacity() { id.saturating_add(1) } else { 0 };
            match self.partitions.get_mut(id) {
                Some(partition) if partition.is_idle() && !partition.was_used => self.remove(id),
                Some(partition) => partition.was_used = false,
                None => {}
            }
        }
    }

    fn remove(&mut self, id: usize) {
        let Some(partition) = self.partitions.try_remove(id) else { return };
        self.remembered = less(self.remembered, partition.bytes());
        let hash = hash(&self.hasher, &partition.policy, &partition.name);
        if let Ok(entry) = self.by_name.find_entry(hash, |other| *other == id) {
            entry.remove();
        }
        debug_assert_eq!(self.by_name.len(), self.partitions.len());
    }
}

fn hash(hasher: &KeyHasher, policy: &Arc<Policy>, name: &str) -> u64 {
    crate::hash::hash(hasher, Arc::as_ptr(policy).addr(), name)
}
