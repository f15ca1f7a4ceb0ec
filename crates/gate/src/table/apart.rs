//! Tables whose limits count apart, because callers give limits with their requests: each limit has an entry of its own, and so
//! have blocks.

use alloc::sync::Arc;

use super::Table;
use super::call_limits::CallLimitsError;
use super::entry::{Entry, without};
use crate::decide::Record;
use crate::key::Depth;
use crate::policy::Policy;
use crate::state::Stored;

impl Table {
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
            let Some(record) = policy.record(entry.record.identity()) else { continue }; // of limits that are no longer there
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

    /// Removes all counts of a key that count by `depth` or by more of the key, and its block.
    pub(super) fn forget_counts(&mut self, key: &str, depth: Depth) {
        let slashes = key.match_indices('/').map(|(at, _)| at);
        for end in [0].into_iter().chain(slashes).chain([key.len()]) {
            let part = key.get(..end).unwrap_or_default();
            let is = |entry: &Entry| {
                let own = entry.record.depth();
                entry.key == part && own >= depth && own.of(key) == part
            };
            while let Some(entry) = self.entries.remove(self.hasher.hash(part), is) {
                self.heap = without(self.heap, entry.heap());
            }
        }
    }
}
