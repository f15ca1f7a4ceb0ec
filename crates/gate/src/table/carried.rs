//! States that an edit of the policy takes over.

use core::mem;

use smallvec::SmallVec;

use super::{Entry, Table};
use crate::carry::carry;
use crate::gathered::Stored;
use crate::limits::Slice;
use crate::policy::Policy;

/// The state of a key, on its way from the table of a policy to the table of the edited one.
#[derive(Debug)]
pub struct Carried(Entry);

impl Carried {
    /// The key, or the part of it that a limit counts by.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.0.key
    }
}

impl Table {
    /// Takes all states out. The table that is left learns no key any more, so that a request which was under way
    /// cannot spend what the taken states still count.
    #[must_use]
    pub fn close(&mut self) -> Self {
        let closed = Self::new(0, self.hasher.clone());
        mem::replace(self, closed)
    }

    /// The states as they are under the edited policy. States of limits that are no longer there are forgotten.
    pub fn into_carried(self, from: &Policy, to: &Policy) -> impl Iterator<Item = Carried> {
        let Self { entries, call_limits, .. } = self;
        let carried = move |entry: Entry| {
            if from.slice(entry.identity).is_none() && call_limits.slice(entry.identity).is_some() {
                return Some(entry); // the edit does not change a caller's limits
            }
            let (old, new) = (from.slice(entry.identity)?, to.slice(entry.identity)?);
            if old.fingerprint() == new.fingerprint() {
                return Some(entry);
            }
            entry.carried(old, new, to)
        };
        entries.into_iter().filter_map(carried).map(Carried)
    }

    /// Takes a state over, even beyond the bound: a state that is forgotten would loosen its limits. `false` if the
    /// allocator has no room.
    pub fn adopt(&mut self, Carried(entry): Carried) -> bool {
        let hash = self.hasher.hash(&entry.key);
        let has_room = self.reserve(&[hash], entry.heap(), usize::MAX).is_some();
        if has_room {
            self.insert(entry);
        }
        has_room
    }

    /// Changes the bound. A table that is larger learns no new keys until enough states have expired.
    pub const fn set_max_bytes(&mut self, max_bytes: usize) {
        self.max_bytes = max_bytes;
    }
}

impl Entry {
    fn carried(self, old: &Slice, new: &Slice, to: &Policy) -> Option<Self> {
        let (words, block) = old.unblocked(&self.words);
        let words: SmallVec<[u64; 3]> = carry(new, old, words, to.on_change()).into();
        Self::new(new, &self.key, Stored { words: &words, block })
    }
}
