//! Limits that a caller gives with its requests, because they come from a token or a database.
//!
//! The state of a key that is asked for under other limits than before is carried over to them, as by an edit of the policy
//! that keeps states. The table forgets the former state only if the new one has all of it. So a caller that goes back
//! and forth between limits never starts afresh: each set of limits holds by itself.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::borrow::Borrow;
use core::fmt;
use core::mem;

use tidegate_core::Timestamp;
use tidegate_core::shed::block::Block;

use super::{Entry, Table};
use crate::block::SliceWords;
use crate::carry::{carry, has_all, stricter};
use crate::gathered::Stored;
use crate::key::Depth;
use crate::limits::{Limits, Slice};
use crate::policy::{OnChange, Policy, PolicyError};

/// The most different limits that a table knows at a time.
pub const MAX_CALL_LIMITS: usize = 1_000;

/// The longest text of such limits, in bytes.
const MAX_TEXT_BYTES: usize = 4_096;

/// The limits that callers gave, each as a policy of its own.
#[derive(Clone, Debug, Default)]
pub(super) struct CallLimits {
    by_text: Sorted<String>,
    /// The policies by the identities of their slices, and the policy of the table.
    by_identity: Sorted<u64>,
    /// Those of `by_identity` that have had a state. Limits that never had one make room for others.
    used: Sorted<u64>,
}

/// Policies in the order of their keys. They are few, and the code of a map is large.
#[derive(Clone, Debug, Default)]
struct Sorted<K>(Vec<(K, Arc<Policy>)>);

impl<K: Ord> Sorted<K> {
    fn place<Q: Ord + ?Sized>(&self, key: &Q) -> Result<usize, usize>
    where
        K: Borrow<Q>,
    {
        self.0.binary_search_by(|(one, _)| one.borrow().cmp(key))
    }

    fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&Arc<Policy>>
    where
        K: Borrow<Q>,
    {
        self.0.get(self.place(key).ok()?).map(|(_, policy)| policy)
    }

    fn insert(&mut self, key: K, policy: &Arc<Policy>) {
        match self.place(&key) {
            Ok(place) => {
                if let Some((_, old)) = self.0.get_mut(place) {
                    *old = Arc::clone(policy);
                }
            }
            Err(place) => self.0.insert(place, (key, Arc::clone(policy))),
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
        }
    }
}

impl core::error::Error for CallLimitsError {}

impl CallLimits {
    /// The texts of the limits that have had a state, sorted.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        let used = self.by_text.0.iter().filter(|(_, own)| self.is_used(own));
        used.map(|(text, _)| text.as_str())
    }

    fn is_used(&self, own: &Policy) -> bool {
        let mut slices = own.limits().slices().iter();
        slices.any(|slice| self.used.get(&slice.identity()).is_some())
    }

    fn are_full(&self) -> bool {
        self.by_text.0.len() >= MAX_CALL_LIMITS
    }

    /// The slice of this identity.
    pub(super) fn slice(&self, identity: u64) -> Option<&Slice> {
        self.policy(identity)?.slice(identity)
    }

    /// The policy that has a slice of this identity.
    pub(super) fn policy(&self, identity: u64) -> Option<&Arc<Policy>> {
        self.by_identity.get(&identity)
    }

    fn know(&mut self, policy: &Arc<Policy>) {
        for slice in policy.limits().slices() {
            self.by_identity.insert(slice.identity(), policy);
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
        self.by_text.insert(text.into(), &own);
        Ok(own)
    }

    /// Takes note of a state under these limits.
    pub(super) fn note_use(&mut self, identity: u64) {
        if let Some(own) = self.by_identity.get(&identity).map(Arc::clone) {
            self.used.insert(identity, &own);
        }
    }

    /// Forgets the limits that had no state.
    fn forget_unused(&mut self, policy: &Arc<Policy>) {
        let mut by_text = mem::take(&mut self.by_text);
        let before = by_text.0.len();
        by_text.0.retain(|(_, own)| self.is_used(own));
        if by_text.0.len() < before {
            self.by_identity.0.clear();
            self.know(policy);
            by_text.0.iter().for_each(|(_, own)| self.know(own));
        }
        self.by_text = by_text;
    }
}

impl Table {
    /// The policy that decides by the limits of `text` in place of those of `policy`: see [`Policy::with_limits`]. A
    /// state that the key has under other limits is carried over, as by an edit with `on_change = "keep"`.
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
            self.call_limits.used = Sorted::default();
            self.entries.iter().for_each(|entry| self.call_limits.note_use(entry.identity));
            self.call_limits.forget_unused(policy);
        }
        self.call_limits.add(policy, text)
    }

    /// Knows the same callers' limits as another table, under the policy of this table.
    #[inline(never)]
    pub fn know_limits_of(&mut self, other: &Self, policy: &Arc<Policy>) {
        for text in other.call_limits.texts() {
            let _ = self.call_limits.add(policy, text); // they were read before
        }
    }

    /// The words that the part of a key has under other limits of the same rule, carried over to `slice`: of all of them, what
    /// counts most. `None` if it has none, or has a state under `slice` itself.
    #[cold]
    pub(super) fn under_other_limits(&self, slice: &Slice, key: &str) -> Option<SliceWords> {
        let (words, block) = self.carried_from_others(slice, key)?;
        Some(Stored { words: &words, block }.all())
    }

    fn carried_from_others(&self, slice: &Slice, key: &str) -> Option<(Vec<u64>, Option<Block>)> {
        if self.call_limits.by_text.0.is_empty() || self.entry(slice, key).is_some() {
            return None;
        }
        let carried = self.others(slice, key).map(|(entry, old)| {
            let (words, block) = old.unblocked(&entry.words);
            (carry(slice, old, words, OnChange::Keep), block)
        });
        carried.reduce(|(words, block), (others, another)| {
            (stricter(slice, &words, &others), longer(block, another))
        })
    }

    /// Removes the states under other limits of which [`under_other_limits`](Self::under_other_limits) has carried everything over.
    /// Does so before the state is in the table.
    pub(super) fn forget_other_limits(&mut self, limits: &Limits, key: &str) {
        for slice in limits.slices() {
            let key = slice.depth().of(key);
            let Some((words, _)) = self.carried_from_others(slice, key) else { continue };
            let others = self.others(slice, key).filter(|(entry, old)| {
                let (before, _) = old.unblocked(&entry.words);
                has_all(slice, &words, old, before)
            });
            let identities: Vec<_> = others.map(|(entry, _)| entry.identity).collect();
            identities.into_iter().for_each(|identity| self.forget(key, identity));
        }
    }

    /// Whether all that the key has was carried over from other limits.
    pub(super) fn has_only_carried(&self, limits: &Limits, key: &str) -> bool {
        let is_stored = |slice: &Slice| self.entry(slice, slice.depth().of(key)).is_some();
        !self.call_limits.by_text.0.is_empty() && !limits.slices().iter().any(is_stored)
    }

    /// Removes all states under other limits that count by `depth` or by more of the key.
    pub(super) fn reset_other_limits(&mut self, limits: &Limits, key: &str, depth: Depth) {
        for slice in limits.slices().iter().filter(|slice| slice.depth() >= depth) {
            let key = slice.depth().of(key);
            let others: Vec<_> = self.others(slice, key).map(|(entry, _)| entry.identity).collect();
            others.into_iter().for_each(|identity| self.forget(key, identity));
        }
    }

    fn forget(&mut self, key: &str, identity: u64) {
        let is = |entry: &Entry| entry.identity == identity && entry.key == key;
        if let Some(entry) = self.entries.remove(self.hasher.hash(key), is) {
            self.heap = self.heap.saturating_sub(entry.heap());
        }
    }

    /// The states that the part of a key has under other limits of the same rule.
    fn others(&self, slice: &Slice, key: &str) -> impl Iterator<Item = (&Entry, &Slice)> {
        let all = self.entries.all(self.hasher.hash(key));
        all.filter(move |entry| entry.key == key && entry.identity != slice.identity())
            .filter_map(|entry| Some((entry, self.call_limits.slice(entry.identity)?)))
            .filter(|(_, old)| old.is_edit_of(slice))
    }
}

/// The block that ends later.
fn longer(one: Option<Block>, other: Option<Block>) -> Option<Block> {
    let end = |block: &Block| block.to_words().into_iter().fold(0, u64::saturating_add); // the time and the span
    one.into_iter().chain(other).max_by_key(end)
}
