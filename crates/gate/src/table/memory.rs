//! The memory of a table and its bound.

use alloc::vec::Vec;
use core::hint::black_box;

use super::entry::Entry;
use super::{Table, entries};
use crate::decide::Limits;
use crate::key::MAX_KEY_BYTES;
use crate::policy::Policy;

/// With addresses of 32 bits, memory can run out, and a failed allocation ends the process. So a table learns
/// a key only while this many bytes are left. The copy of a state and the text of an answer are smaller.
const LEFT_FOR_ANSWERS: usize = 4 << 20;

impl Table {
    /// The most bytes that the table takes. They are the sum of
    /// - the hash tables, which have 64 bytes and a control byte for each place, and leave at least one place
    ///   in eight free;
    /// - the keys that are too long to be inline (24 bytes, or 12 with addresses of 32 bits);
    /// - the states of more than three words;
    /// - the answers that are kept for repeats.
    ///
    /// Each allocation is rounded up as an allocator does. A hash table of up to 16,384 places counts twice, because a second one
    /// exists for a moment when it grows or is tidied up. A larger table has several of that size, of which one counts twice.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.heap.saturating_add(self.entries.bytes()).saturating_add(self.answers.bytes())
    }

    /// The smallest bound with which any key of the policy finds room once other keys expire.
    #[must_use]
    pub fn least_bytes(policy: &Policy) -> usize {
        let overrides = policy.overrides().iter().map(|(_, limits)| limits);
        let all = core::iter::once(policy.limits()).chain(overrides);
        let heap = |limits: &Limits| {
            let records = limits.records().iter();
            let heap = records.map(|record| Entry::heap_of(MAX_KEY_BYTES, record.words()));
            heap.fold(0_usize, usize::saturating_add)
        };
        let most = all.map(heap).max().unwrap_or_default();
        // a sweep leaves the hash table at most a quarter too large, and some keys have not expired
        most.saturating_mul(4).saturating_add(entries::least_bytes())
    }

    /// Reserves room for `new` entries with these hashes, and `heap` bytes outside of the hash tables, if the table then takes
    /// at most `most` bytes.
    pub(super) fn reserve(&mut self, new: &[u64], heap: usize, most: usize) -> Option<()> {
        if new.is_empty() && heap == 0 {
            return Some(());
        }
        let heap = self.heap.saturating_add(heap);
        let bytes = self.entries.bytes_with(new).saturating_add(self.answers.bytes());
        if heap.saturating_add(bytes) > most {
            return None;
        }
        self.entries.reserve(new, &self.hasher)?;
        is_enough_left().then_some(())
    }
}

fn is_enough_left() -> bool {
    if cfg!(not(target_pointer_width = "32")) {
        return true;
    }
    let mut left: Vec<u8> = Vec::new();
    let is_enough = left.try_reserve_exact(LEFT_FOR_ANSWERS).is_ok();
    black_box(left); // otherwise the compiler removes the allocation
    is_enough
}
