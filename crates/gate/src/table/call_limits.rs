//! Limits that a caller gives with its requests, because they come from a token or a database.
//!
//! A count belongs to a key and to a limit's name, algorithm and period, or for a bucket the time in which it fills. A call
//! may change the other numbers, and the count goes on. Other limits are other counts, and none leads to another. So in any
//! order of calls each limit grants at most what it grants alone. A window that starts at its first grant keeps its
//! limit in each window: beside other limits its windows end elsewhere.
//!
//! From the first such call on, each limit of the table's policy has an entry of its own, and so have blocks. An entry has
//! the identity of the limit that wrote it last; the table finds it by its count.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::borrow::Borrow;
use core::fmt;
use core::mem;

use tidegate_core::Timestamp;

use super::Table;
use super::entry::{Entry, without};
use crate::decide::{Record, RecordWords};
use crate::key::Depth;
use crate::policy::{Policy, PolicyError};
use crate::state::Stored;

/// The most different limits that a table knows at a time.
pub const MAX_CALL_LIMITS: usize = 1_000;

/// The longest text of such limits, in bytes.
const MAX_TEXT_BYTES: usize = 4_096;

/// The limits that callers gave, each as a policy of its own.
#[derive(Clone, Debug, Default)]
pub(super) struct CallLimits {
    by_text: Sorted<String, Arc<Policy>>,
    /// The records of these policies and of the table's own, by their identities.
    by_identity: Sorted<u64, Known>,
}

#[derive(Clone, Debug)]
struct Known {
    policy: Arc<Policy>,
    /// How many entries have this identity. Limits without entries make room for others.
    entries: usize,
}

/// Values in the order of their keys. They are few, and the code of a map is large.
#[derive(Clone, Debug)]
struct Sorted<K, V>(Vec<(K, V)>);

impl<K, V> Default for Sorted<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Ord, V> Sorted<K, V> {
    fn place<Q: Ord + ?Sized>(&self, key: &Q) -> Result<usize, usize>
    where
        K: Borrow<Q>,
    {
        self.0.binary_search_by(|(one, _)| one.borrow().cmp(key))
    }

    fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.0.get(self.place(key).ok()?).map(|(_, value)| value)
    }

    fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let place = self.place(key).ok()?;
        self.0.get_mut(place).map(|(_, value)| value)
    }

    fn insert_new(&mut self, key: K, value: V) {
        if let Err(place) = self.place(&key) {
            self.0.insert(place, (key, value));
        }
    }
}

/// Why a caller's limits are not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallLimitsError {
    /// The limits cannot be read.
    Policy(PolicyError),
    /// The text of the limits has this many bytes.
    Length(usize),
    /// Keys that are in use have [`MAX_CALL_LIMITS`] other limits.
    TooMany,
    /// The allocator has no room for an entry for each limit.
    NoMemory,
}

impl fmt::Display for CallLimitsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(error) => error.fmt(f),
            Self::Length(bytes) => {
                write!(f, "`limits`: expected at most {MAX_TEXT_BYTES} bytes, found {bytes}")
            }
            Self::TooMany => write!(
                f,
                "`limits`: expected at most {MAX_CALL_LIMITS} different limits on the keys in use, found one more"
            ),
            Self::NoMemory => {
                f.write_str("`limits`: expected memory for a count of each limit, found none")
            }
        }
    }
}

impl core::error::Error for CallLimitsError {}

impl CallLimits {
    /// The texts of the limits that have a state, sorted.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        let used = self.by_text.0.iter().filter(|(_, own)| self.is_used(own));
        used.map(|(text, _)| text.as_str())
    }

    fn is_used(&self, own: &Policy) -> bool {
        let mut records =
            own.limits().records().iter().filter(|record| !record.limits().is_empty());
        records.any(|record| {
            self.by_identity.get(&record.identity()).is_some_and(|known| known.entries > 0)
        })
    }

    fn are_full(&self) -> bool {
        self.by_text.0.len() >= MAX_CALL_LIMITS
    }

    /// The record of this identity.
    pub(super) fn record(&self, identity: u64) -> Option<&Record> {
        self.policy(identity)?.record(identity)
    }

    /// The policy that has a record of this identity.
    pub(super) fn policy(&self, identity: u64) -> Option<&Arc<Policy>> {
        self.by_identity.get(&identity).map(|known| &known.policy)
    }

    /// Whether an entry of this identity has the state of the record.
    #[inline]
    pub(super) fn are_of_one_count(&self, identity: u64, record: &Record) -> bool {
        identity == record.identity()
            || (!self.by_text.0.is_empty()
                && self.record(identity).is_some_and(|other| other.counts_with(record)))
    }

    /// The words of an entry as the record goes on with them.
    #[cold]
    pub(super) fn going_on(&self, record: &Record, entry: &Entry) -> RecordWords {
        match self.record(entry.identity).filter(|old| old.identity() != record.identity()) {
            Some(old) => record.going_on_from(old, &entry.words),
            None => RecordWords::from_slice(&entry.words),
        }
    }

    fn know(&mut self, policy: &Arc<Policy>) {
        for record in policy.records() {
            self.by_identity
                .insert_new(record.identity(), Known { policy: Arc::clone(policy), entries: 0 });
        }
    }

    /// Reads the limits, and knows them from now on.
    pub(super) fn add(
        &mut self,
        policy: &Arc<Policy>,
        text: &str,
    ) -> Result<Arc<Policy>, CallLimitsError> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(CallLimitsError::Length(text.len()));
        }
        let own = Arc::new(policy.with_limits(text).map_err(CallLimitsError::Policy)?);
        if self.are_full() {
            return Err(CallLimitsError::TooMany);
        }
        self.know(policy);
        self.know(&own);
        self.by_text.insert_new(text.into(), Arc::clone(&own));
        Ok(own)
    }

    /// Takes note of an entry that has come.
    pub(super) fn note_entry(&mut self, identity: u64) {
        if let Some(known) = self.by_identity.get_mut(&identity) {
            known.entries = known.entries.saturating_add(1);
        }
    }

    /// Takes note of an entry that has gone.
    pub(super) fn note_gone(&mut self, identity: u64) {
        if let Some(known) = self.by_identity.get_mut(&identity) {
            known.entries = known.entries.saturating_sub(1);
        }
    }

    /// Forgets the limits that have no state.
    fn forget_unused(&mut self, policy: &Arc<Policy>) {
        let mut by_text = mem::take(&mut self.by_text);
        by_text.0.retain(|(_, own)| self.is_used(own));
        self.by_text = by_text;
        let before = mem::take(&mut self.by_identity);
        self.know(policy);
        let kept: Vec<_> = self.by_text.0.iter().map(|(_, own)| Arc::clone(own)).collect();
        kept.iter().for_each(|own| self.know(own));
        for (identity, known) in &mut self.by_identity.0 {
            known.entries = before.get(identity).map_or(0, |before| before.entries);
        }
    }
}

impl Table {
    /// The policy that decides by the limits of `text` in place of those of `policy`, of which each limit
    /// [counts apart](Self::counting_apart).
    ///
    /// The next operation is under these limits: the table may forget limits under which no operation leaves a state.
    ///
    /// # Errors
    /// Fails with [`CallLimitsError`]; nothing has changed.
    #[inline(never)]
    pub fn with_limits(
        &mut self,
        policy: &Arc<Policy>,
        text: &str,
        now: Timestamp,
    ) -> Result<Arc<Policy>, CallLimitsError> {
        if let Some(known) = self.call_limits.by_text.get(text) {
            return Ok(Arc::clone(known));
        }
        if self.call_limits.are_full() {
            self.call_limits.forget_unused(policy);
        }
        if self.call_limits.are_full() && self.may_sweep(now) {
            self.sweep(policy, now);
            self.call_limits.forget_unused(policy);
        }
        self.call_limits.add(policy, text)
    }

    /// A table with the same states, and the policy of which each limit counts apart, which decides on it. `None` if each
    /// limit of `policy` does so already.
    ///
    /// # Errors
    /// Fails with [`CallLimitsError::NoMemory`].
    #[inline(never)]
    pub fn counting_apart(
        &self,
        policy: &Policy,
    ) -> Result<Option<(Self, Arc<Policy>)>, CallLimitsError> {
        if policy.limits().count_apart() {
            return Ok(None);
        }
        let apart = Arc::new(policy.counting_apart());
        let mut table = self.emptied(self.max_bytes);
        table.take_apart(self, policy, &apart).ok_or(CallLimitsError::NoMemory)?;
        table.swept = self.swept;
        Ok(Some((table, apart)))
    }

    /// Takes over the states of a table whose limits share entries. `None` if the allocator has no room.
    fn take_apart(&mut self, joined: &Self, policy: &Policy, apart: &Policy) -> Option<()> {
        for entry in joined.entries.iter() {
            let Some(record) = policy.record(entry.identity) else { continue }; // of limits that are no longer there
            let (words, block) = record.unblocked(&entry.words);
            let own = apart.records();
            let own = own.filter(|own| own.is_edit_of(record) && !own.limits().is_empty());
            for (own, (_, words)) in own.zip(record.split(words)) {
                self.take_in(own, &entry.key, Stored { words, block: None })?;
            }
            if block.is_some() {
                self.take_in(&Record::of_blocks(), &entry.key, Stored { words: &[], block })?;
            }
        }
        Some(())
    }

    /// Takes a state in, even beyond the bound: a state that is forgotten would loosen its limits.
    fn take_in(&mut self, record: &Record, key: &str, stored: Stored<'_>) -> Option<()> {
        let entry = Entry::new(record, key, stored)?;
        self.reserve(&[self.hasher.hash(key)], entry.heap(), usize::MAX)?;
        self.insert(entry);
        Some(())
    }

    /// Knows the same callers' limits as another table. Returns the policy that decides on this table: if callers gave limits,
    /// each limit of `policy` counts apart.
    #[inline(never)]
    #[must_use]
    pub fn know_limits_of(&mut self, other: &Self, policy: Arc<Policy>) -> Arc<Policy> {
        if other.call_limits.by_text.0.is_empty() {
            return policy;
        }
        let apart = Arc::new(policy.counting_apart());
        for text in other.call_limits.texts() {
            let _ = self.call_limits.add(&apart, text); // they were read before
        }
        apart
    }

    /// Removes all counts of a key that count by `depth` or by more of the key, and its block.
    pub(super) fn forget_counts(&mut self, key: &str, depth: Depth) {
        let known = self.call_limits.by_identity.0.iter();
        let all: Vec<_> = known
            .filter_map(|(identity, known)| {
                Some((*identity, known.policy.record(*identity)?.depth()))
            })
            .filter(|(_, own)| *own >= depth)
            .collect();
        for (identity, depth) in all {
            let key = depth.of(key);
            let is = |entry: &Entry| entry.identity == identity && entry.key == key;
            if let Some(entry) = self.entries.remove(self.hasher.hash(key), is) {
                self.heap = without(self.heap, entry.heap());
                self.call_limits.note_gone(identity);
            }
        }
    }
}
