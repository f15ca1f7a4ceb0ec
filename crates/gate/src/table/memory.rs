//! The memory of a table and its bound.

use alloc::vec::Vec;
use core::hint::black_box;

use compact_str::CompactString;
use hashbrown::HashTable;
use smallvec::SmallVec;

use super::{Entry, Table};
use crate::gathered::Stored;
use crate::key::MAX_KEY_BYTES;
use crate::limits::{Limits, Slice};
use crate::policy::Policy;

/// With addresses of 32 bits, memory can run out, and a failed allocation ends the process. So a table learns
/// a key only while this many bytes are left. The copy of a state and the text of an answer are smaller.
const LEFT_FOR_ANSWERS: usize = 4 << 20;

impl Table {
    /// The most bytes that the table takes. They are the sum of
    /// - the hash table, which has 64 bytes and a control byte for each place, and leaves at least one place
    ///   in eight free;
    /// - the keys that are too long to be inline (24 bytes, or 12 with addresses of 32 bits);
    /// - the states of more than three words.
    ///
    /// Each allocation is rounded up as an allocator does. The hash table counts twice, because a second one
    /// exists for a moment when the table grows or is tidied up.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.heap.saturating_add(twice(self.entries.allocation_size()))
    }

    /// The smallest bound with which any key of the policy finds room once other keys expire.
    #[must_use]
    pub fn least_bytes(policy: &Policy) -> usize {
        let overrides = policy.overrides().iter().map(|(_, limits)| limits);
        let all = core::iter::once(policy.limits()).chain(overrides);
        let heap = |limits: &Limits| {
            let slices = limits.slices().iter();
            let heap = slices.map(|slice| Entry::heap_of(MAX_KEY_BYTES, slice.words()));
            heap.fold(0_usize, usize::saturating_add)
        };
        let most = all.map(heap).max().unwrap_or_default();
        // a sweep leaves the hash table at most a quarter too large, and some keys have not expired
        most.saturating_mul(4).saturating_add(twice(hash_table(FEWEST_PLACES)))
    }

    /// Reserves room for `new` entries with `heap` bytes outside of the hash table, if the table then takes at
    /// most `most` bytes.
    pub(super) fn reserve(&mut self, new: usize, heap: usize, most: usize) -> Option<()> {
        if new == 0 && heap == 0 {
            return Some(());
        }
        let grown = twice(self.grown(new)).max(twice(self.entries.allocation_size()));
        let needed = self.heap.saturating_add(heap).saturating_add(grown);
        if needed > most {
            return None;
        }
        let Self { entries, hasher, .. } = self;
        entries.try_reserve(new, |entry| hasher.hash(&entry.key)).ok()?;
        is_enough_left().then_some(())
    }

    /// The bytes of the larger hash table that `new` entries need; 0 if the present one suffices.
    fn grown(&self, new: usize) -> usize {
        let needed = self.entries.len().saturating_add(new);
        // up to half of what fits, the hash table cleans up in place
        if needed <= self.entries.capacity() || needed <= self.fits().div_euclid(2) {
            return 0;
        }
        hash_table(self.entries.num_buckets().saturating_mul(2).max(FEWEST_PLACES))
    }

    /// How many entries fit into a hash table of this size that has no traces of removed entries.
    fn fits(&self) -> usize {
        self.entries.num_buckets().saturating_mul(7).div_euclid(8)
    }

    /// Builds the hash table anew if removed entries have left too much behind: traces that fill its places,
    /// or a size that a flood of keys has caused.
    pub(super) fn tidy(&mut self) {
        let (fits, len) = (self.fits(), self.entries.len());
        let unusable = fits.saturating_sub(self.entries.capacity());
        let is_tidy = unusable <= fits.div_euclid(8) && len >= fits.div_euclid(8);
        let Self { entries, hasher, .. } = self;
        let hash = |entry: &Entry| hasher.hash(&entry.key);
        let mut anew = HashTable::new();
        if is_tidy || anew.try_reserve(len.saturating_mul(2).min(fits), hash).is_err() {
            return;
        }
        for entry in entries.drain() {
            anew.insert_unique(hash(&entry), entry, hash);
        }
        *entries = anew;
    }
}

impl Entry {
    /// Makes an entry; `None` if the allocator has no room.
    pub(super) fn new(slice: &Slice, key: &str, stored: Stored<'_>) -> Option<Self> {
        let mut words = SmallVec::new();
        words.try_reserve_exact(stored.len()).ok()?;
        let key = CompactString::try_new(key).ok()?;
        let mut entry = Self { key, identity: slice.identity(), words };
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

/// The places of the smallest hash table: more than the slices of one key need at once.
const FEWEST_PLACES: usize = 64;

/// The bytes of a hash table with this many places.
fn hash_table(places: usize) -> usize {
    places.saturating_mul(size_of::<Entry>().saturating_add(1)).saturating_add(16)
}

/// The bytes of two hash tables of this size.
fn twice(hash_table: usize) -> usize {
    match hash_table {
        0 => 0,
        bytes => allocated(bytes.saturating_add(align_of::<Entry>())).saturating_mul(2),
    }
}

/// The bytes that an allocator takes for an allocation, with its own notes. glibc rounds up to 16 bytes, or
/// to pages for large allocations, and the allocator of WebAssembly rounds up to 8 bytes.
fn allocated(bytes: usize) -> usize {
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
