//! What a table takes of memory, and where its bound is kept.

use alloc::vec::Vec;
use core::hint::black_box;

use compact_str::CompactString;
use hashbrown::HashTable;
use smallvec::SmallVec;

use super::{Entry, Table};
use crate::key::MAX_KEY_BYTES;
use crate::limits::{Limits, Part};
use crate::policy::Policy;

/// Where addresses have 32 bits memory can end, and an allocation that fails ends the process. So a
/// key is learned only while this much is left: the copy of a state and the text of an answer are
/// smaller.
const LEFT_FOR_ANSWERS: usize = 4 << 20;

impl Table {
    /// What the table takes at most: the hash table, with 64 bytes and a control byte for each of its
    /// places, of which it leaves at least one in eight free; the keys that are too long to be inline
    /// (24 bytes, 12 where addresses have 32 bits); the states of more than three words. Each
    /// allocation is rounded up as an allocator does. The hash table counts twice, because there are
    /// two of them for a moment when it grows or is tidied up.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.heap.saturating_add(twice(self.entries.allocation_size()))
    }

    /// How many bytes a table must be allowed for any key of the policy to find room in it once
    /// others expire.
    #[must_use]
    pub fn least_bytes(policy: &Policy) -> usize {
        let overrides = policy.overrides().iter().map(|(_, limits)| limits);
        let all = core::iter::once(policy.limits()).chain(overrides);
        let heap = |limits: &Limits| {
            let parts = limits.parts().iter();
            let heap = parts.map(|part| Entry::heap_of(MAX_KEY_BYTES, part.words()));
            heap.fold(0_usize, usize::saturating_add)
        };
        let most = all.map(heap).max().unwrap_or_default();
        // a sweep leaves the hash table no more than a quarter too large, and some have not expired
        most.saturating_mul(4).saturating_add(twice(hash_table(FEWEST_PLACES)))
    }

    /// Makes room for that many new entries with `heap` bytes outside of the hash table, if the
    /// table then takes no more than `most`.
    pub(super) fn reserve(&mut self, new: usize, heap: usize, most: usize) -> Option<()> {
        if new == 0 {
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

    /// The size of the hash table that it needs for that many new entries, if not the one it has.
    fn grown(&self, new: usize) -> usize {
        let needed = self.entries.len().saturating_add(new);
        // up to half of what fits it cleans up where it is
        if needed <= self.entries.capacity() || needed <= self.fits().div_euclid(2) {
            return 0;
        }
        hash_table(self.entries.num_buckets().saturating_mul(2).max(FEWEST_PLACES))
    }

    /// How many entries fit into the hash table, but for what removed ones have left behind.
    fn fits(&self) -> usize {
        self.entries.num_buckets().saturating_mul(7).div_euclid(8)
    }

    /// Builds the hash table anew if removed entries have left too much behind: places that it would
    /// rather grow than use, or a size that a flood has brought it to.
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
    /// `None` if the allocator has no room.
    pub(super) fn new(part: &Part, key: &str, state: &[u64]) -> Option<Self> {
        let mut words = SmallVec::new();
        words.try_reserve_exact(state.len()).ok()?;
        words.extend_from_slice(state);
        Some(Self { key: CompactString::try_new(key).ok()?, identity: part.identity(), words })
    }

    /// What it takes outside of the hash table.
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

/// Of any table that grows: more than the parts of one key need at once.
const FEWEST_PLACES: usize = 64;

/// A hash table with that many places.
fn hash_table(places: usize) -> usize {
    places.saturating_mul(size_of::<Entry>().saturating_add(1)).saturating_add(16)
}

/// Two hash tables of that many bytes.
fn twice(hash_table: usize) -> usize {
    match hash_table {
        0 => 0,
        bytes => allocated(bytes.saturating_add(align_of::<Entry>())).saturating_mul(2),
    }
}

/// What an allocator takes for that many bytes, with its own notes: glibc rounds up to 16 bytes,
/// or to pages if they are many, and the allocator of WebAssembly to 8 bytes.
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
    black_box(left); // else the compiler leaves the allocation out
    is_enough
}
