//! The store in memory: the states of many keys under one policy.

#[cfg(test)]
mod tests;

use core::fmt;
use core::hash::BuildHasher;

use compact_str::CompactString;
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use smallvec::SmallVec;
use tidegate_core::{CostExceedsCapacity, Decision, Micros, Timestamp};

use crate::decide::Verdict;
use crate::policy::Policy;

/// A full table looks for expired states at most this often, so that a flood of new keys cannot
/// make every request pay for a search.
const SWEEP_EVERY: Micros = Micros::SECOND;

/// The states of many keys under one policy, never more than so many.
///
/// A key is forgotten only when its state equals a fresh one, so bounding the memory loosens no
/// limit: a full table refuses to learn new keys, and says so.
#[derive(Clone, Debug)]
pub struct Table {
    entries: HashTable<Entry>,
    max_keys: usize,
    hasher: KeyHasher,
    swept: Timestamp,
}

#[derive(Clone, Debug)]
struct Entry {
    /// Inline up to 24 bytes, as the words are: a look at a key then misses one cache line less.
    key: CompactString,
    /// Inline for the limiters whose state is two words.
    words: SmallVec<[u64; 2]>,
}

/// How a table hashes keys.
#[derive(Clone, Debug)]
pub struct KeyHasher(FixedState);

impl KeyHasher {
    /// `seed` should differ from process to process: it keeps callers from choosing keys that
    /// collide.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(FixedState::with_seed(seed))
    }

    /// The hash of a key.
    #[must_use]
    #[inline]
    pub fn hash(&self, key: &str) -> u64 {
        self.0.hash_one(key.as_bytes())
    }
}

/// Why a table did not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableError {
    /// The cost can never be granted.
    Cost(CostExceedsCapacity),
    /// There are as many keys as allowed, and none has expired.
    Full {
        /// How many that is.
        max_keys: usize,
    },
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cost(error) => error.fmt(f),
            Self::Full { max_keys } => {
                write!(f, "the memory store is full: {max_keys} keys are in use, the most allowed")
            }
        }
    }
}

impl core::error::Error for TableError {}

impl From<CostExceedsCapacity> for TableError {
    fn from(error: CostExceedsCapacity) -> Self {
        Self::Cost(error)
    }
}

impl Table {
    /// An empty table for at most `max_keys` keys.
    #[must_use]
    pub fn new(max_keys: usize, hasher: KeyHasher) -> Self {
        Self { entries: HashTable::new(), max_keys, hasher, swept: Timestamp::EPOCH }
    }

    /// How many keys are in use.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no key is in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// [`Policy::decide`] on the key's state.
    ///
    /// # Errors
    /// [`TableError`]; nothing has changed.
    #[inline]
    pub fn decide(
        &mut self,
        policy: &Policy,
        key: &str,
        now: Timestamp,
        cost: u64,
    ) -> Result<Decision, TableError> {
        self.decide_hashed(policy, self.hasher.hash(key), key, now, cost)
    }

    /// [`decide`](Self::decide), given the key's hash by the table's hasher: for who has used it to choose a table.
    ///
    /// # Errors
    /// As [`decide`](Self::decide).
    #[inline]
    pub fn decide_hashed(
        &mut self,
        policy: &Policy,
        hash: u64,
        key: &str,
        now: Timestamp,
        cost: u64,
    ) -> Result<Decision, TableError> {
        match self.find(hash, key) {
            Some(words) => Ok(policy.decide(words, now, cost)?),
            None => self.learn(policy, hash, key, now, cost, Policy::decide),
        }
    }

    /// [`Policy::decide_and_explain`] on the key's state.
    ///
    /// # Errors
    /// [`TableError`]; nothing has changed.
    pub fn decide_and_explain(
        &mut self,
        policy: &Policy,
        key: &str,
        now: Timestamp,
        cost: u64,
    ) -> Result<Verdict, TableError> {
        let hash = self.hasher.hash(key);
        match self.find(hash, key) {
            Some(words) => Ok(policy.decide_and_explain(words, now, cost)?),
            None => self.learn(policy, hash, key, now, cost, Policy::decide_and_explain),
        }
    }

    /// The words of a key in use.
    #[must_use]
    pub fn words(&self, key: &str) -> Option<&[u64]> {
        let hash = self.hasher.hash(key);
        self.entries
            .find(hash, |entry| entry.key.as_bytes() == key.as_bytes())
            .map(|entry| entry.words.as_slice())
    }

    /// Forgets the keys whose state equals a fresh one at `now`.
    pub fn sweep(&mut self, policy: &Policy, now: Timestamp) {
        self.swept = now;
        self.entries.retain(|entry| policy.time_to_live(&entry.words, now) > Micros::ZERO);
    }

    #[inline]
    fn find(&mut self, hash: u64, key: &str) -> Option<&mut [u64]> {
        self.entries
            .find_mut(hash, |entry| entry.key.as_bytes() == key.as_bytes())
            .map(|entry| entry.words.as_mut_slice())
    }

    /// Decides on a key that is not in use, and remembers it if that changed its state.
    #[cold]
    fn learn<T>(
        &mut self,
        policy: &Policy,
        hash: u64,
        key: &str,
        now: Timestamp,
        cost: u64,
        decide: fn(&Policy, &mut [u64], Timestamp, u64) -> Result<T, CostExceedsCapacity>,
    ) -> Result<T, TableError> {
        let mut words = SmallVec::from_elem(0, policy.words());
        let decided = decide(policy, &mut words, now, cost)?;
        if cost > 0 {
            self.make_room(policy, now)?;
            let Self { entries, hasher, .. } = self;
            let entry = Entry { key: key.into(), words };
            entries.insert_unique(hash, entry, |entry| hasher.hash(&entry.key));
        }
        Ok(decided)
    }

    fn make_room(&mut self, policy: &Policy, now: Timestamp) -> Result<(), TableError> {
        if self.entries.len() >= self.max_keys
            && now.saturating_since(self.swept).max(self.swept.saturating_since(now)) >= SWEEP_EVERY
        {
            self.sweep(policy, now);
        }
        if self.entries.len() >= self.max_keys {
            return Err(TableError::Full { max_keys: self.max_keys });
        }
        Ok(())
    }
}
