//! The entries of a table: a hash table that is split into parts once it is large.
//!
//! A hash table that doubles holds its old and its new memory at once, and moves all its entries at once. So a part of
//! [`PLACES`] places does not grow: when it is full, two parts take its entries ("extendible hashing": Fagin, Nievergelt,
//! Pippenger and Strong, ACM TODS 4, 1979). A split takes a millisecond, however large the table is.

use alloc::vec::Vec;
use core::mem;

use hashbrown::HashTable;
use tidegate_core::never;

use super::entry::{Entry, KeyHasher, allocated};

/// The places of a part that is full.
const PLACES: usize = 16_384;

/// The entries that fit into a full part: one place in eight stays free.
const MOST: usize = PLACES / 8 * 7;

/// The places of the smallest hash table: more than the records of one key need at once.
const FEWEST_PLACES: usize = 64;

/// The first bit of a hash that chooses the part. The bits below choose the place in a part, and the highest seven
/// tell the entries of a place apart.
const FIRST_BIT: u32 = 32;

/// The most bits that choose the part. More would be needed only beyond 2^32 places.
const MOST_BITS: u32 = 18;

/// The seven bits of a hash that no table uses, as a number below 128: they choose among several tables with one hasher. With
/// bits that a table uses, its entries would be so alike that no split parts them.
#[must_use]
#[inline]
pub fn free_bits(hash: u64) -> usize {
    let bits = hash >> (FIRST_BIT + MOST_BITS) & 0x7f;
    usize::try_from(bits).unwrap_or_else(|_| never(0)) // 7 bits
}

#[derive(Clone, Debug)]
pub(super) struct Entries {
    parts: Vec<Part>,
    /// For each value of the bits that choose the part, its place in `parts`. The length is a power of two.
    directory: Vec<usize>,
}

#[derive(Clone, Debug, Default)]
struct Part {
    entries: HashTable<Entry>,
    /// How many of the bits that choose the part are the same in all its entries.
    bits: u32,
}

impl Default for Entries {
    fn default() -> Self {
        Self { parts: [Part::default()].into(), directory: [0].into() }
    }
}

impl Entries {
    pub(super) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.entries.len()).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.iter().all(|part| part.entries.is_empty())
    }

    #[inline]
    pub(super) fn find(&self, hash: u64, is: impl FnMut(&Entry) -> bool) -> Option<&Entry> {
        self.part(hash)?.entries.find(hash, is)
    }

    #[inline(always)]
    pub(super) fn find_mut(
        &mut self,
        hash: u64,
        is: impl FnMut(&Entry) -> bool,
    ) -> Option<&mut Entry> {
        self.part_mut(hash)?.find_mut(hash, is)
    }

    pub(super) fn remove(&mut self, hash: u64, is: impl FnMut(&Entry) -> bool) -> Option<Entry> {
        let entry = self.part_mut(hash)?.entries.find_entry(hash, is).ok()?;
        Some(entry.remove().0)
    }

    /// Inserts an entry after [`reserve`](Self::reserve).
    pub(super) fn insert(&mut self, hash: u64, entry: Entry, hasher: &KeyHasher) {
        match self.part_mut(hash) {
            Some(part) => part.insert(hash, entry, hasher),
            None => never(()), // each hash has its part
        }
    }

    pub(super) fn retain(&mut self, mut keeps: impl FnMut(&Entry) -> bool) {
        for part in &mut self.parts {
            part.entries.retain(|entry| keeps(entry));
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.parts.iter().flat_map(|part| &part.entries)
    }

    pub(super) fn into_iter(self) -> impl Iterator<Item = Entry> {
        self.parts.into_iter().flat_map(|part| part.entries)
    }

    /// The number of places. An entry is at the same place until entries come or go.
    pub(super) fn places(&self) -> usize {
        match self.parts.as_slice() {
            [only] => only.entries.num_buckets(),
            parts => parts.len().saturating_mul(PLACES),
        }
    }

    pub(super) fn at(&self, place: usize) -> Option<&Entry> {
        let part = self.parts.get(place.div_euclid(PLACES))?;
        part.entries.get_bucket(place.rem_euclid(PLACES))
    }

    /// The bytes of all hash tables, and of one that exists for a moment while a hash table grows, is split or is
    /// tidied up.
    pub(super) fn bytes(&self) -> usize {
        match self.parts.as_slice() {
            [only] => twice(only.entries.allocation_size()),
            parts => bytes_of(parts.len()),
        }
    }

    /// The [`bytes`](Self::bytes) with room for new entries of these hashes.
    pub(super) fn bytes_with(&self, new: &[u64]) -> usize {
        if let [only] = self.parts.as_slice()
            && let grown = only.grown(new.len())
            && grown <= PLACES
        {
            return twice(hash_table(grown)).max(self.bytes());
        }
        let is_full = |hash: &&u64| self.part(**hash).is_none_or(|part| part.is_full(new.len()));
        let splits = new.iter().filter(is_full).count();
        bytes_of(self.parts.len().saturating_add(splits)).max(self.bytes())
    }

    /// Makes room for new entries of these hashes. `None` if the allocator has no room.
    pub(super) fn reserve(&mut self, new: &[u64], hasher: &KeyHasher) -> Option<()> {
        for hash in new {
            if self.part(*hash)?.is_full(new.len()) {
                self.split(self.place(*hash)?, hasher)?;
            }
            let part = self.part_mut(*hash)?;
            if part.is_full(new.len()) {
                return never(None); // half of its entries have left
            }
            part.reserve(new.len(), hasher)?;
        }
        Some(())
    }

    /// Gives memory back if many entries have left, and cleans up what removed entries leave behind.
    pub(super) fn tidy(&mut self, hasher: &KeyHasher) {
        self.join(hasher);
        match self.parts.as_mut_slice() {
            [only] => only.tidy(hasher),
            parts => parts.iter_mut().for_each(|part| part.clean(hasher)),
        }
    }

    /// Moves all entries to where this hasher finds them. `None` if there is more than one part, or the allocator has no room; nothing has
    /// changed.
    pub(super) fn move_by(&mut self, hasher: &KeyHasher) -> Option<()> {
        let [only] = self.parts.as_mut_slice() else { return None };
        let mut anew = Part::default();
        anew.reserve(only.entries.len(), hasher)?;
        only.move_to(anew, hasher);
        Some(())
    }

    #[inline]
    fn place(&self, hash: u64) -> Option<usize> {
        let bits = usize::try_from(hash >> FIRST_BIT).unwrap_or_else(|_| never(0)); // 32 bits
        self.directory.get(bits & self.directory.len().saturating_sub(1)).copied()
    }

    #[inline]
    fn part(&self, hash: u64) -> Option<&Part> {
        match self.parts.as_slice() {
            [only] => Some(only),
            parts => parts.get(self.place(hash)?),
        }
    }

    #[inline]
    fn part_mut(&mut self, hash: u64) -> Option<&mut Part> {
        let place = if self.parts.len() == 1 { 0 } else { self.place(hash)? };
        self.parts.get_mut(place)
    }

    /// Replaces a part by two. `None` if the allocator has no room; nothing has changed.
    fn split(&mut self, place: usize, hasher: &KeyHasher) -> Option<()> {
        let bits = self.parts.get(place)?.bits;
        if bits >= MOST_BITS {
            return None;
        }
        let half = |bits| Part::with_all_places(bits, hasher);
        let mut halves = [half(bits.saturating_add(1))?, half(bits.saturating_add(1))?];
        self.parts.try_reserve(1).ok()?;
        if 1_usize.checked_shl(bits) == Some(self.directory.len()) {
            self.directory.try_reserve(self.directory.len()).ok()?;
            self.directory.extend_from_within(..); // one more bit chooses
        }
        let [zeros, ones] = &mut halves;
        for entry in mem::take(&mut self.parts.get_mut(place)?.entries) {
            let hash = hasher.hash(&entry.key);
            let half = if is_set(hash, bits) { &mut *ones } else { &mut *zeros };
            half.insert(hash, entry, hasher);
        }
        let last = self.parts.len();
        for (chosen, at) in self.directory.iter_mut().enumerate() {
            if *at == place && chosen >> bits & 1 == 1 {
                *at = last;
            }
        }
        let [zeros, ones] = halves;
        *self.parts.get_mut(place)? = zeros;
        self.parts.push(ones);
        Some(())
    }

    /// Joins parts that differ in their last bit only and would fill at most half of a part.
    fn join(&mut self, hasher: &KeyHasher) {
        for bits in (0..self.directory.len().ilog2()).rev() {
            for zeros in 0..1_usize << bits {
                let ones = zeros | 1 << bits;
                if let (Some(&into), Some(&from)) =
                    (self.directory.get(zeros), self.directory.get(ones))
                {
                    self.join_two(into, from, bits, hasher);
                }
            }
            if self.parts.iter().all(|part| part.bits <= bits) {
                self.directory.truncate(1 << bits);
            }
        }
        self.directory.shrink_to_fit();
        self.parts.shrink_to_fit();
    }

    fn join_two(&mut self, into: usize, from: usize, bits: u32, hasher: &KeyHasher) {
        let Ok([to, part]) = self.parts.get_disjoint_mut([into, from]) else { return };
        let len = to.entries.len().saturating_add(part.entries.len());
        let are_halves = to.bits == bits.saturating_add(1) && part.bits == to.bits;
        if !are_halves || len > MOST / 2 || to.reserve(part.entries.len(), hasher).is_none() {
            return;
        }
        for entry in mem::take(&mut part.entries) {
            to.insert(hasher.hash(&entry.key), entry, hasher);
        }
        to.bits = bits;
        self.parts.swap_remove(from);
        let last = self.parts.len();
        for at in &mut self.directory {
            if *at == from {
                *at = into;
            }
            if *at == last {
                *at = from; // the last part has taken the place of the removed one
            }
        }
    }
}

impl Part {
    fn with_all_places(bits: u32, hasher: &KeyHasher) -> Option<Self> {
        let mut part = Self { entries: HashTable::new(), bits };
        part.entries.try_reserve(MOST, |entry| hasher.hash(&entry.key)).ok()?;
        Some(part)
    }

    /// Looks first at the place where the search begins, because most entries are there. The processor fetches that entry
    /// and the bytes that guide the search at the same time; otherwise it would wait for one after the other.
    #[inline(always)] // also in code built for size
    fn find_mut(&mut self, hash: u64, mut is: impl FnMut(&Entry) -> bool) -> Option<&mut Entry> {
        let last = self.entries.num_buckets().saturating_sub(1); // a power of two less one
        let first = usize::try_from(hash & u64::from(u32::MAX)).unwrap_or_else(|_| never(0)) & last;
        match self.entries.get_bucket(first) {
            Some(entry) if is(entry) => self.entries.get_bucket_mut(first),
            _ => self.entries.find_mut(hash, is),
        }
    }

    fn insert(&mut self, hash: u64, entry: Entry, hasher: &KeyHasher) {
        self.entries.insert_unique(hash, entry, |entry| hasher.hash(&entry.key));
    }

    fn reserve(&mut self, new: usize, hasher: &KeyHasher) -> Option<()> {
        self.entries.try_reserve(new, |entry| hasher.hash(&entry.key)).ok()
    }

    /// The places with room for `new` entries; 0 if the present ones suffice.
    fn grown(&self, new: usize) -> usize {
        let needed = self.entries.len().saturating_add(new);
        // up to half of what fits, the hash table cleans up in place
        if needed <= self.entries.capacity() || needed <= self.fits().div_euclid(2) {
            return 0;
        }
        self.entries.num_buckets().saturating_mul(2).max(FEWEST_PLACES)
    }

    /// Whether only a split makes room for `new` entries.
    fn is_full(&self, new: usize) -> bool {
        self.grown(new) > PLACES
    }

    /// How many entries fit if no traces of removed ones are left.
    fn fits(&self) -> usize {
        self.entries.num_buckets().saturating_mul(7).div_euclid(8)
    }

    /// Whether removed entries have left traces in more than an eighth of the places.
    fn is_unclean(&self) -> bool {
        let unusable = self.fits().saturating_sub(self.entries.capacity());
        unusable > self.fits().div_euclid(8)
    }

    /// Builds a part of many anew if it is unclean.
    fn clean(&mut self, hasher: &KeyHasher) {
        if self.is_unclean()
            && let Some(anew) = Self::with_all_places(self.bits, hasher)
        {
            self.move_to(anew, hasher);
        }
    }

    /// Builds the only part anew if it is unclean, or of a size that a flood of keys has caused.
    fn tidy(&mut self, hasher: &KeyHasher) {
        let (fits, len) = (self.fits(), self.entries.len());
        if !self.is_unclean() && len >= fits.div_euclid(8) {
            return;
        }
        let mut anew = Self::default();
        if anew.reserve(len.saturating_mul(2).min(fits), hasher).is_some() {
            self.move_to(anew, hasher);
        }
    }

    fn move_to(&mut self, mut anew: Self, hasher: &KeyHasher) {
        for entry in mem::take(&mut self.entries) {
            anew.insert(hasher.hash(&entry.key), entry, hasher);
        }
        *self = anew;
    }
}

/// The least bytes of a table with an entry.
pub(super) fn least_bytes() -> usize {
    twice(hash_table(FEWEST_PLACES))
}

/// The bytes of this many parts, and of one that exists for a moment.
fn bytes_of(parts: usize) -> usize {
    allocated_table(hash_table(PLACES)).saturating_mul(parts.saturating_add(1))
}

/// The bytes of a hash table with this many places.
fn hash_table(places: usize) -> usize {
    if places == 0 {
        return 0;
    }
    places.saturating_mul(size_of::<Entry>().saturating_add(1)).saturating_add(16)
}

/// The bytes of two hash tables of this size.
fn twice(hash_table: usize) -> usize {
    allocated_table(hash_table).saturating_mul(2)
}

fn allocated_table(hash_table: usize) -> usize {
    match hash_table {
        0 => 0,
        bytes => allocated(bytes.saturating_add(align_of::<Entry>())),
    }
}

/// Whether the bit of this number is set, of those that choose the part.
fn is_set(hash: u64, bit: u32) -> bool {
    hash >> FIRST_BIT >> bit & 1 == 1
}
