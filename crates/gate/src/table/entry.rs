//! An entry of a table: one record of one key, the bytes that it takes, and the hash of its key.

use core::hash::BuildHasher;

use compact_str::CompactString;
use foldhash::fast::FixedState;
use smallvec::SmallVec;
use tidegate_core::{Timestamp, never};

use crate::decide::{OnChange, Record, RecordWords};
use crate::state::{Stored, carry};

/// An entry has the size of a cache line. While its key and words are inline, a lookup misses one line.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Entry {
    /// The part of the key that the record counts by. Inline up to 24 bytes.
    pub(super) key: CompactString,
    /// The record that wrote the words last.
    pub(super) record: Record,
    /// The state of the record. Inline up to three words.
    pub(super) words: SmallVec<[u64; 3]>,
}

const _: () = assert!(size_of::<Entry>() == 64);

/// The hash function of a table.
#[derive(Clone, Debug)]
pub struct KeyHasher(FixedState);

impl KeyHasher {
    /// A hasher with this seed. The seed should differ from process to process, so that callers cannot choose
    /// keys that collide.
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

impl Entry {
    #[inline(always)] // in the search for each decision, also in code built for size
    pub(super) fn is(&self, record: &Record, key: &str) -> bool {
        self.key.as_bytes() == key.as_bytes() && self.record.has_words_of(record)
    }

    /// Whether this is the state of the record. Another record of the same count may have written it, or an earlier revision.
    #[inline]
    pub(super) fn counts_for(&self, record: &Record, key: &str) -> bool {
        self.key == key && (self.record.is(record) || self.record.counts_with(record))
    }

    /// The words under this record, which goes on with them after an edit, and whether its limits cannot hold all that was used.
    pub(super) fn under(
        &self,
        record: &Record,
        edit: (OnChange, Timestamp),
    ) -> (RecordWords, bool) {
        if record.counts_apart() {
            return (record.going_on_from(&self.record, &self.words), true);
        }
        let (words, block) = self.record.unblocked(&self.words);
        let (words, forgets) = carry(record, &self.record, words, edit);
        (Stored { words: &words, block }.all(), forgets)
    }

    /// Makes an entry; `None` if the allocator has no room.
    pub(super) fn new(record: &Record, key: &str, stored: Stored<'_>) -> Option<Self> {
        let mut words = SmallVec::new();
        words.try_reserve_exact(stored.len()).ok()?;
        let key = CompactString::try_new(key).ok()?;
        let mut entry = Self { key, record: record.clone(), words };
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
        Self { key: self.key.clone(), record: self.record.clone(), words }
    }
}

/// The bytes that an allocator takes for an allocation, with its own notes. glibc rounds up to 16 bytes, or
/// to pages for large allocations, and the allocator of WebAssembly rounds up to 8 bytes.
pub(super) fn allocated(bytes: usize) -> usize {
    let (notes, granule) = if bytes < 128 << 10 { (8, 16) } else { (32, 4_096) };
    bytes.saturating_add(notes).div_ceil(granule).saturating_mul(granule)
}

/// The bytes without those of an entry. Nothing is freed that was not counted: then all bytes stay counted.
pub(super) fn without(bytes: usize, entry: usize) -> usize {
    bytes.checked_sub(entry).unwrap_or_else(|| never(bytes))
}
