//! The store in memory: the states of many keys under one policy.
//!
//! `#[inline(never)]` marks what is seldom called. A caller that is built for speed would build it for speed too, which
//! takes more bytes.

mod answers;
mod apart;
mod call_limits;
mod carried;
mod dump;
mod entries;
mod entry;
mod error;
mod keys;
mod memory;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use smallvec::SmallVec;
use tidegate_core::{Decision, Micros, Timestamp};

use crate::decide::{Limits, OnChange, Record, Verdict};
use crate::key::MAX_KEY_BYTES;
use crate::limit::{Operation, OperationError, Request};
use crate::policy::{Policy, Resolved, Rule};
use crate::state::{KeyState, Stored};
use answers::Answers;
pub use call_limits::{CallLimits, CallLimitsError, MAX_CALL_LIMITS};
pub use carried::Carried;
pub use dump::DumpError;
use entries::Entries;
pub use entries::free_bits;
pub use entry::KeyHasher;
use entry::{Entry, without};
pub use error::TableError;
pub use keys::Limited;

/// The least time between two searches of a full table for expired states, so that a flood of new keys
/// does not make every request pay for a search.
const SWEEP_EVERY: Micros = Micros::SECOND;

/// The states of many keys under one policy, in a bounded number of bytes.
///
/// The table forgets a key only when its state equals a fresh one, so the bound loosens no limit. A full
/// table refuses new keys with [`TableError::Full`].
///
/// The bound holds at every moment for the memory that [`bytes`](Self::bytes) counts. In addition, an
/// allocator may lose memory to fragmentation, and a decision needs a copy of the states of one key.
#[derive(Clone, Debug)]
pub struct Table {
    entries: Entries,
    answers: Answers,
    /// The bytes of the entries outside of the hash table.
    heap: usize,
    max_bytes: usize,
    hasher: KeyHasher,
    swept: Timestamp,
}

/// An answer of a table.
pub trait HasDecision {
    /// Whether the request may pass.
    fn decision(&self) -> &Decision;
}

impl HasDecision for Decision {
    fn decision(&self) -> &Decision {
        self
    }
}

impl HasDecision for Verdict {
    fn decision(&self) -> &Decision {
        &self.decision
    }
}

impl Table {
    /// An empty table of at most `max_bytes`. [`least_bytes`](Self::least_bytes) is the smallest useful
    /// bound.
    #[must_use]
    pub fn new(max_bytes: usize, hasher: KeyHasher) -> Self {
        let swept = Timestamp::EPOCH;
        let (entries, answers) = (Entries::default(), Answers::default());
        Self { entries, answers, heap: 0, max_bytes, hasher, swept }
    }

    /// Hashes keys by this hasher from now on, if the table is small and has room to move its keys. This is for runtimes that have
    /// no random numbers while they make the table, or take long to draw them. A table of more than one part, or one for whose copy the
    /// allocator has no room, keeps its first hasher: it decides the same, and is as slow as callers make it who know keys that collide.
    pub fn seed(&mut self, hasher: KeyHasher) {
        if self.entries.move_by(&hasher).is_some() {
            self.hasher = hasher;
        }
    }

    /// The number of keys in use. A part of a key that a limit counts by is a key of its own.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no key is in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Does [`Limits::decide`] on the key's state, after finding the key's limits.
    ///
    /// # Errors
    /// Fails with [`TableError`]; nothing has changed.
    pub fn decide(
        &mut self,
        policy: &Policy,
        key: &str,
        now: Timestamp,
        request: impl Into<Request>,
    ) -> Result<Decision, TableError> {
        let request = request.into();
        match policy.rule(key) {
            Rule::Listed(decision) => Ok(decision),
            Rule::Limited(limits, key) => {
                let hash = self.hasher.hash(&key);
                self.decide_by(policy, limits, (hash, &key), now, &request)
            }
        }
    }

    /// Does [`Limits::decide`] on the state of a canonical key, given with its hash by the table's hasher.
    ///
    /// # Errors
    /// Fails with [`TableError`]; nothing has changed.
    #[inline]
    pub fn decide_by(
        &mut self,
        policy: &Policy,
        limits: &Limits,
        (hash, key): (u64, &str),
        now: Timestamp,
        request: &Request,
    ) -> Result<Decision, TableError> {
        if let Some(words) = self.find_only(limits, hash, key) {
            return Ok(limits.decide(words, now, request)?);
        }
        let retain = if request.cost == 0 { Retain::Nothing } else { Retain::Grants };
        self.with_key_state(policy, limits, (key, retain), now, |state| match state.block {
            None => limits.decide(&mut state.words, now, request),
            Some(_) => Ok(state.operate(limits, now, &Operation::Decide(*request))?.decision),
        })
    }

    /// Does [`Limits::operate`] on the key's state.
    ///
    /// # Errors
    /// Fails with [`TableError`]; nothing has changed.
    pub fn ask(
        &mut self,
        resolved: &Resolved,
        now: Timestamp,
        operation: &Operation,
    ) -> Result<Verdict, TableError> {
        let verdict = self.operate_by(
            resolved.policy(),
            resolved.rule(),
            resolved.within_rule(now),
            operation,
        )?;
        let Some((until, former)) = resolved.end() else { return Ok(verdict) };
        Ok(verdict.followed(until, || {
            let look = operation.look();
            let next = self.operate_by(former.policy(), former.rule(), until, &look);
            next.ok().map(|verdict| verdict.decision)
        }))
    }

    /// Does [`Limits::operate`] on the key's state, after finding the key's limits.
    ///
    /// # Errors
    /// Fails with [`TableError`]; nothing has changed.
    pub fn operate(
        &mut self,
        policy: &Policy,
        key: &str,
        now: Timestamp,
        operation: impl Into<Operation>,
    ) -> Result<Verdict, TableError> {
        self.operate_by(policy, policy.rule(key), now, &operation.into())
    }

    fn operate_by(
        &mut self,
        policy: &Policy,
        rule: Rule<'_>,
        now: Timestamp,
        operation: &Operation,
    ) -> Result<Verdict, TableError> {
        let (limits, key) = match rule {
            Rule::Listed(decision) => return Ok(Verdict::listed(now, decision)),
            Rule::Limited(limits, key) => (limits, key),
        };
        let hash = self.hasher.hash(&key);
        if !matches!(operation, Operation::Block(_) | Operation::Reset(_))
            && let Some(words) = self.find_only(limits, hash, &key)
        {
            return Ok(limits.operate(words, now, operation)?);
        }
        let retain = match operation {
            _ if operation.is_peek() => Retain::Nothing,
            Operation::Decide(_) => Retain::Grants,
            _ => Retain::Everything,
        };
        let answer = self.with_key_state(policy, limits, (&key, retain), now, |state| {
            state.operate(limits, now, operation)
        })?;
        if let Operation::Reset(depth) = operation
            && limits.count_apart()
        {
            self.forget_counts(&key, *depth);
        }
        Ok(answer)
    }

    /// The words of a canonical key; `None` if the key is not in use.
    #[must_use]
    pub fn words(&self, limits: &Limits, key: &str) -> Option<Vec<u64>> {
        let as_written = (OnChange::Keep, Timestamp::EPOCH);
        let words = self.gather(limits, key, as_written).ok()?.words.into_vec();
        words.iter().any(|word| *word != 0).then_some(words)
    }

    /// The state of a canonical key, unless no state could be kept for it, or the allocator has no room for the copy.
    fn gather(
        &self,
        limits: &Limits,
        key: &str,
        edit: (OnChange, Timestamp),
    ) -> Result<KeyState, TableError> {
        let full = TableError::Full { max_bytes: self.max_bytes };
        if key.len() > MAX_KEY_BYTES {
            return Err(TableError::KeyLength { bytes: key.len() });
        }
        let mut state = KeyState::with_room_for(limits).ok_or(full)?;
        for record in limits.records() {
            let key = record.depth().of(key);
            match self.entry(record, key) {
                Some(entry) if !entry.record.has_words_of(record) => {
                    state.add(record, Some(&entry.under(record, edit).0));
                }
                found => state.add(record, found.map(|entry| entry.words.as_slice())),
            }
        }
        Ok(state)
    }

    /// Forgets the states that equal a fresh one at `now`.
    pub fn sweep(&mut self, now: Timestamp) {
        self.sweep_if(now, |_| true);
    }

    /// The same, and forgets the states of limits that the policy does not have any more.
    fn make_room(&mut self, policy: &Policy, now: Timestamp) {
        self.sweep_if(now, |record| record.counts_apart() || policy.has(record));
    }

    fn sweep_if(&mut self, now: Timestamp, stays: impl Fn(&Record) -> bool) {
        self.swept = now;
        self.answers.sweep(now);
        let mut heap = 0_usize;
        self.entries.retain(|entry| {
            let lasts = lasts(&entry.record, &entry.words, now) && stays(&entry.record);
            if lasts {
                heap = heap.saturating_add(entry.heap());
            }
            lasts
        });
        self.heap = heap;
        self.entries.tidy(&self.hasher);
    }

    /// The words of a key that is in use, is not blocked and has only one record.
    #[inline]
    fn find_only(&mut self, limits: &Limits, hash: u64, key: &str) -> Option<&mut [u64]> {
        let [record] = limits.records() else { return None };
        let words = self.find(record, hash, record.depth().of(key))?;
        (words.len() == record.words()).then_some(words)
    }

    #[inline]
    fn find(&mut self, record: &Record, hash: u64, key: &str) -> Option<&mut [u64]> {
        self.entries
            .find_mut(hash, |entry| entry.is(record, key))
            .map(|entry| entry.words.as_mut_slice())
    }

    /// The entry with the state of the record.
    fn entry(&self, record: &Record, key: &str) -> Option<&Entry> {
        self.entries.find(self.hasher.hash(key), |entry| entry.counts_for(record, key))
    }

    /// Whether a refusal leaves the state of the record as other limits wrote it.
    fn leaves(&self, record: &Record, key: &str, edit: (OnChange, Timestamp)) -> bool {
        let entry = self.entry(record, key);
        let other = entry.filter(|entry| !entry.record.has_words_of(record));
        other.is_some_and(|entry| entry.under(record, edit).1 && !record.remembers_refusals())
    }

    /// Lets `decide` change the state of a key, unless it peeks. The table keeps the state unless it equals a fresh one. When the
    /// table is full, refusals still apply but are not recorded.
    #[cold]
    #[inline(never)]
    fn with_key_state<T: HasDecision>(
        &mut self,
        policy: &Policy,
        limits: &Limits,
        (key, retain): (&str, Retain),
        now: Timestamp,
        decide: impl FnOnce(&mut KeyState) -> Result<T, OperationError>,
    ) -> Result<T, TableError> {
        let mut state = self.gather(limits, key, (policy.on_change(), now))?;
        let decided = decide(&mut state)?;
        if retain != Retain::Nothing {
            let is_refused = retain == Retain::Grants && !decided.decision().is_allowed();
            self.keep(policy, limits, key, now, (&state, is_refused))?;
        }
        Ok(decided)
    }

    /// Keeps the state of a key, or fails and changes nothing.
    #[inline(never)]
    fn keep(
        &mut self,
        policy: &Policy,
        limits: &Limits,
        key: &str,
        now: Timestamp,
        (state, is_refused): (&KeyState, bool),
    ) -> Result<(), TableError> {
        // nothing changes before there is room for all new entries
        let mut learned = self.learned(limits, key, state, now);
        if learned.is_none() && self.may_sweep(now) {
            self.make_room(policy, now);
            learned = self.learned(limits, key, state, now);
        }
        if learned.is_none() && !is_refused {
            return Err(TableError::Full { max_bytes: self.max_bytes });
        }
        // all of them before anything else may take the room that was reserved for them
        let mut are_new = SmallVec::<[bool; 2]>::new();
        for entry in learned.unwrap_or_default() {
            are_new.push(entry.is_some());
            entry.into_iter().for_each(|entry| self.insert(entry));
        }
        for (place, (record, stored)) in state.apart(limits).enumerate() {
            if are_new.get(place) == Some(&true) {
                continue;
            }
            let key = record.depth().of(key);
            if is_refused && self.leaves(record, key, (policy.on_change(), now)) {
                continue;
            }
            let is_fresh = stored.words.iter().all(|word| *word == 0);
            if !self.replace(record, key, stored) && !is_fresh && !outlives(record, stored, now) {
                self.learn_clock(record, key, stored);
            }
        }
        Ok(())
    }

    /// Makes an entry for each record whose state lasts and is not in the table yet, and reserves room for them and
    /// for entries that grow. `None` if there is no room for all of them.
    fn learned(
        &mut self,
        limits: &Limits,
        key: &str,
        state: &KeyState,
        now: Timestamp,
    ) -> Option<SmallVec<[Option<Entry>; 1]>> {
        let mut new = SmallVec::<[bool; 2]>::new();
        let mut hashes = SmallVec::<[u64; 2]>::new();
        let mut heap = 0_usize;
        for (record, stored) in state.apart(limits) {
            let key = record.depth().of(key);
            let hash = self.hasher.hash(key);
            let entry = self.entries.find(hash, |entry| entry.counts_for(record, key));
            let is_new = entry.is_none() && outlives(record, stored, now);
            if is_new {
                hashes.push(hash);
            }
            if is_new || entry.is_some() {
                let needed = Entry::heap_of(key.len(), stored.len());
                heap = heap.saturating_add(needed.saturating_sub(entry.map_or(0, Entry::heap)));
            }
            new.push(is_new);
        }
        self.reserve(&hashes, heap, self.max_bytes)?;
        let mut entries = SmallVec::new(); // in a loop, which takes fewer instructions than `collect`
        for ((record, stored), is_new) in state.apart(limits).zip(new) {
            let entry = || Entry::new(record, record.depth().of(key), stored);
            entries.push(if is_new { Some(entry()?) } else { None });
        }
        Some(entries)
    }

    /// Replaces the words of an entry; `false` if the table has no such entry.
    fn replace(&mut self, record: &Record, key: &str, stored: Stored<'_>) -> bool {
        let Self { entries, hasher, heap, .. } = self;
        let is = |entry: &Entry| entry.counts_for(record, key);
        let Some(entry) = entries.find_mut(hasher.hash(key), is) else { return false };
        // a count that is too large for a smaller limit stays with the larger one
        if !entry.record.has_words_of(record) && record.accepts(&stored.all()).is_ok() {
            entry.record = record.clone();
        }
        *heap = without(*heap, entry.heap());
        entry.set(stored);
        *heap = heap.saturating_add(entry.heap());
        true
    }

    /// Remembers a state that differs from a fresh one only in its newest time. Such states get at most half
    /// of the room. Decisions do not depend on them.
    fn learn_clock(&mut self, record: &Record, key: &str, stored: Stored<'_>) {
        let heap = Entry::heap_of(key.len(), stored.len());
        let most = self.max_bytes.div_euclid(2);
        if self.reserve(&[self.hasher.hash(key)], heap, most).is_some()
            && let Some(entry) = Entry::new(record, key, stored)
        {
            self.insert(entry);
        }
    }

    /// Inserts an entry after [`reserve`](Self::reserve), so the hash table does not grow.
    fn insert(&mut self, entry: Entry) {
        self.heap = self.heap.saturating_add(entry.heap());
        let Self { entries, hasher, .. } = self;
        entries.insert(hasher.hash(&entry.key), entry, hasher);
    }

    fn may_sweep(&self, now: Timestamp) -> bool {
        now.saturating_since(self.swept).max(self.swept.saturating_since(now)) >= SWEEP_EVERY
    }
}

/// What an operation leaves in the table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Retain {
    Nothing,
    /// What it grants. A refusal leaves nothing in a count that another limit wrote: it would be rounded up.
    Grants,
    Everything,
}

/// Whether the table has to keep this.
fn outlives(record: &Record, stored: Stored<'_>, now: Timestamp) -> bool {
    stored.block.is_some() || lasts(record, stored.words, now)
}

fn lasts(record: &Record, words: &[u64], now: Timestamp) -> bool {
    record.time_to_live(words, now) > Micros::ZERO
}
