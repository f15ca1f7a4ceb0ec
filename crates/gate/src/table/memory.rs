//! The memory of a table and its bound.

use alloc::vec::Vec;
use core::hint::black_box;

use compact_str::CompactString;
use smallvec::SmallVec;

use super::{Entry, Table, entries};
use crate::decide::{Limits, Record};
use crate::key::MAX_KEY_BYTES;
use crate::policy::Policy;
use crate::state::Stored;

/// With addresses of 32 bits, memory can run out, and a failed allocation ends the process. So a table learns
/// a key only while this many bytes are left. The copy of a state and the text of an answer are smaller.
const LEFT_FOR_ANSWERS: usize = 4 << 20;

impl Table {
    /// The most bytes that the table takes. They are the sum of
    /// - the hash tables, which have 64 bytes and a control byte for each place, and leave at least one place
    ///   in eight free;
    /// - the keys that are too long to be inline (24 bytes, or 12 with addresses of 32 bits);
    /// - the states of more than three words.
    ///
    /// Each allocation is rounded up as an allocator does. A hash table of up to 16,384 places counts twice, because a second one
    /// exists for a moment when it grows or is tidied up. A larger table has several of that size, of which one counts twice.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.heap.saturating_add(self.entries.bytes())
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
        if heap.saturating_add(self.entries.bytes_with(new)) > most {
            return None;
        }
        self.entries.reserve(new, &self.hasher)?;
        is_enough_left().then_some(())
    }
}

impl Entry {
    /// Makes an entry; `None` if the allocator has no room.
    pub(super) fn new(record: &Record, key: &str, stored: Stored<'_>) -> Option<Self> {
        let mut words = SmallVec::new();
        words.try_reserve_exact(stored.len()).ok()?;
        let key = CompactString::try_new(key).ok()?;
        let mut entry = Self { key, identity: record.identity(), words };
        entry.set(stored);
        Some(entry)
    }

    /// Replaces the words. They become more or fewer when a block begins or ends.
    pub(super) fn set(&mut self, stored: Stored<'_>) {
        self.words.clear();
        self.words.extend_from_slice(stored.words);
        self.words.extend(stored.block_words());
        self.words.shrink_to_fit();
    }

    /// The bytes of the entry outside of the hash table.
    pub(super) fn heap(&self) -> usize {
        Self::heap_of(self.key.len(), self.words.len())
    }

    pub(super) fn heap_of(key: usize, words: usize) -> usize {
        let inline = size_of::<CompactString>();
        let key = if key > inline { allocated(key.max(inline.saturating_add(8))) } else { 0 };
        let words = if words > 3 { allocated(words.saturating_mul(8)) } else { 0 };
        key.saturating_add(words)
    }
}

/// A derived clone would round the words up to a power of two.
impl Clone for Entry {
    fn clone(&self) -> Self {
        let words = SmallVec::from_slice(&self.words);
        Self { key: self.key.clone(), identity: self.identity, words }
    }
}

/// The bytes that an allocator takes for an allocation, with its own notes. glibc rounds up to 16 bytes, or
/// to pages for large allocations, and the allocator of WebAssembly rounds up to 8 bytes.
pub(super) fn allocated(bytes: usize) -> usize {
    let (notes, granule) = if bytes < 128 << 10 { (8, 16) } else { (32, 4_096) };
    bytes.saturating_add(notes).div_ceil(granule).saturating_mul(granule)
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
