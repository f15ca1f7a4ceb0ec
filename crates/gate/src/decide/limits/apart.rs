//! Limits of which each counts apart, because callers give limits with their requests.

use alloc::vec::Vec;
use core::slice;

use super::{Limits, Slice, SliceWords};
use crate::fnv::fnv1a;
use crate::key::Depth;
use crate::limit::NamedLimit;

impl Limits {
    /// The same limits with a slice for each of them, and one for blocks. The state of such a slice is a count: it belongs to
    /// the name of the limit, its algorithm and its period, and goes on under a limit that differs only in other numbers.
    ///
    /// `keeps` says whether an edit keeps the states: the identities then do not change with the numbers.
    pub(crate) fn counting_apart(&self, policy: &str, keeps: bool) -> Self {
        let joined = self.slices.iter();
        let each =
            joined.flat_map(|slice| slice.limits.iter().map(|named| slice.apart(named, policy)));
        let mut slices: Vec<Slice> = each.collect();
        let mut by_capacity = Vec::<&mut Slice>::new();
        let mut unnamed = 0_u64;
        for slice in &mut slices {
            let tag = slice.limits.first().map_or(0, |named| named.tag);
            unnamed = unnamed.saturating_add(u64::from(tag == 0));
            let place = if tag == 0 { unnamed } else { 0 };
            let described = if keeps { [tag, place].into() } else { slice.described() };
            slice.identity = slice.checksum(&described);
            let at = by_capacity.partition_point(|before| before.capacity() <= slice.capacity());
            by_capacity.insert(at, slice);
        }
        let mut taken = Vec::new();
        for slice in by_capacity {
            // of limits with the same count the smallest has it, because the others would grant what it grants
            while taken.contains(&slice.count) {
                slice.count = slice.checksum(&[slice.count]);
            }
            taken.push(slice.count);
            if !keeps {
                slice.identity = slice.checksum(&[slice.count, slice.identity]);
            }
        }
        slices.push(Slice::of_blocks());
        Self { slices, ..self.clone() }
    }

    /// Whether each limit has a slice of its own, and blocks have one.
    pub(crate) fn count_apart(&self) -> bool {
        self.slices.iter().any(Slice::counts_apart)
    }
}

impl Slice {
    /// The slice of one limit of this slice, if each limit counts apart.
    fn apart(&self, named: &NamedLimit, policy: &str) -> Self {
        let mut apart = Self { place: self.place, ..Self::new(slice::from_ref(named)) };
        // a name that a limit without a name has, too
        let is_default = named.name == policy
            || named.name.strip_prefix("limit-").is_some_and(|number| number.parse::<u8>().is_ok());
        let tag = if is_default { 0 } else { named.tag };
        apart.count = apart.checksum(&[&[tag], &*named.limit.count()].concat());
        apart.fingerprint = apart.checksum(&apart.parameters());
        apart
    }

    fn capacity(&self) -> u64 {
        self.limits.iter().map(|each| each.limit.capacity()).min().unwrap_or(0)
    }

    /// The slice that keeps the blocks of keys if each limit counts apart.
    pub(crate) fn of_blocks() -> Self {
        let count = fnv1a(*b"block");
        Self { count, fingerprint: count, identity: count, ..Self::new(&[]) }
    }

    /// Whether this slice keeps the block of a key. A slice that several keys share keeps none, because each
    /// key is blocked by itself.
    pub(crate) fn keeps_block(&self) -> bool {
        self.depth == Depth::Whole && (!self.counts_apart() || self.limits.is_empty())
    }

    /// Whether the slice has one limit, or blocks, because each limit of the policy counts apart.
    pub(crate) const fn counts_apart(&self) -> bool {
        self.count != 0
    }

    /// Whether a state of one of the two slices goes on under the other.
    pub(crate) const fn counts_with(&self, other: &Self) -> bool {
        self.counts_apart() && self.count == other.count
    }

    /// The words of a state of a slice that this one [counts with](Self::counts_with), as this one goes on with them.
    pub(crate) fn going_on_from(&self, old: &Self, words: &[u64]) -> SliceWords {
        let mut words = SliceWords::from_slice(words);
        if let ([new], [old]) = (&*self.limits, &*old.limits) {
            new.limit.go_on_from(&mut words, &old.limit);
        }
        words
    }
}
