//! The homes that an authority knows, within a bound of memory.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use hashbrown::HashTable;
use slab::Slab;
use tidegate_gate::{KeyHasher, Policy};

use super::home::{Busy, Home};
use super::{Asked, Options};

/// How many allocations for busy homes are kept for the next ones.
const MOST_SPARE: usize = 256;

/// What is left on a home.
pub(super) enum Left {
    /// Operations that are decided, or writes, which wait for a swap.
    Decided,
    /// Operations that are not decided yet.
    Waiting,
    Nothing,
}

/// The homes on which operations wait, and the homes whose states are remembered.
#[derive(Debug)]
pub(super) struct Homes<T> {
    homes: Slab<Home<T>>,
    by_name: HashTable<usize>,
    hasher: KeyHasher,
    is_only_writer: bool,
    /// The bytes of the idle homes, and their bound.
    remembered: usize,
    most_remembered: usize,
    /// Where the next search for homes to forget begins.
    hand: usize,
    #[expect(
        clippy::vec_box,
        reason = "a home holds the box, so that it is small while it is idle"
    )]
    spare: Vec<Box<Busy<T>>>,
}

impl<T> Homes<T> {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            homes: Slab::new(),
            by_name: HashTable::new(),
            hasher: KeyHasher::new(options.seed),
            is_only_writer: options.is_only_writer,
            remembered: 0,
            most_remembered: options.remembered,
            hand: 0,
            spare: Vec::new(),
        }
    }

    /// The bytes of the idle homes.
    pub(super) const fn remembered(&self) -> usize {
        self.remembered
    }

    pub(super) fn remember_at_most(&mut self, bytes: usize) {
        self.most_remembered = bytes;
        self.forget();
    }

    pub(super) fn get_mut(&mut self, id: usize) -> Option<&mut Home<T>> {
        self.homes.get_mut(id)
    }

    /// Adds an operation to its home, and returns the home if nothing waited on it before. If too many wait,
    /// gives back the token and how many may wait.
    pub(super) fn push(&mut self, asked: Asked<T>) -> Result<Option<usize>, (T, usize)> {
        let id = self.find_or_add(&asked);
        let Some(home) = self.homes.get_mut(id) else { return Err((asked.token, 0)) };
        let wakes = home.is_idle();
        if wakes {
            self.remembered = self.remembered.saturating_sub(home.bytes());
            home.wake(self.spare.pop().unwrap_or_default());
        }
        home.push(asked).map(|()| wakes.then_some(id))
    }

    fn find_or_add(&mut self, asked: &Asked<T>) -> usize {
        let (policy, name) = (asked.resolved.policy(), asked.resolved.home());
        let hash = hash(&self.hasher, policy, name);
        let is = |home: &Home<T>| Arc::ptr_eq(&home.policy, policy) && home.name == name;
        let Self { homes, by_name, hasher, .. } = self;
        if let Some(id) = by_name.find(hash, |id| homes.get(*id).is_some_and(is)) {
            return *id;
        }
        let home = Home::new(&asked.resolved, self.is_only_writer);
        self.remembered = self.remembered.saturating_add(home.bytes()); // it is idle until it wakes
        let id = homes.insert(home);
        let rehash = |id: &usize| {
            homes.get(*id).map_or(0, |home| self::hash(hasher, &home.policy, &home.name))
        };
        by_name.insert_unique(hash, id, rehash);
        id
    }

    /// What is left on a home. If nothing is, the home becomes idle, and homes are forgotten if the idle ones
    /// take too much memory.
    pub(super) fn settle(&mut self, id: usize) -> Left {
        let Some(home) = self.homes.get_mut(id) else { return Left::Nothing };
        if home.needs_swap() {
            return Left::Decided;
        }
        if home.len() > 0 {
            return Left::Waiting;
        }
        if let Some(busy) = home.rest()
            && self.spare.len() < MOST_SPARE
        {
            self.spare.push(busy);
        }
        self.remembered = self.remembered.saturating_add(home.bytes());
        self.forget();
        Left::Nothing
    }

    /// Forgets idle homes until the rest has room. A home that was used since the last search is passed over
    /// once.
    fn forget(&mut self) {
        // the hand comes to each place twice, and to the end of the places
        let mut steps = self.homes.capacity().saturating_add(1).saturating_mul(2);
        while self.remembered > self.most_remembered && steps > 0 {
            steps = steps.saturating_sub(1);
            let id = self.hand;
            self.hand = if id < self.homes.capacity() { id.saturating_add(1) } else { 0 };
            match self.homes.get_mut(id) {
                Some(home) if home.is_idle() && !home.was_used => self.remove(id),
                Some(home) => home.was_used = false,
                None => {}
            }
        }
    }

    fn remove(&mut self, id: usize) {
        let Some(home) = self.homes.try_remove(id) else { return };
        self.remembered = self.remembered.saturating_sub(home.bytes());
        let hash = hash(&self.hasher, &home.policy, &home.name);
        if let Ok(entry) = self.by_name.find_entry(hash, |other| *other == id) {
            entry.remove();
        }
        debug_assert_eq!(self.by_name.len(), self.homes.len());
    }
}

fn hash(hasher: &KeyHasher, policy: &Arc<Policy>, name: &str) -> u64 {
    let edition = u64::try_from(Arc::as_ptr(policy).addr()).unwrap_or(u64::MAX);
    hasher.hash(name) ^ edition.rotate_left(32)
}
