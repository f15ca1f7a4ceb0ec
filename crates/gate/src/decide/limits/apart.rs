//! Limits of which each counts apart, because callers give limits with their requests.

use alloc::vec::Vec;
use core::slice;

use super::{Limits, Record, RecordWords};
use crate::fnv::fnv1a;
use crate::key::Depth;
use crate::limit::NamedLimit;
use tidegate_core::never;

impl Limits {
    /// The same limits with a record for each of them, and one for blocks. The state of such a record is a count: it belongs to
    /// the name of the limit, its algorithm and its period, and goes on under a limit that differs only in other numbers.
    ///
    /// `keeps` says whether an edit keeps the states: the identities then do not change with the numbers.
    pub(crate) fn counting_apart(&self, policy: &str, keeps: bool) -> Self {
        let joined = self.records.iter();
        let each = joined
            .flat_map(|record| record.limits().iter().map(|named| record.apart(named, policy)));
        let mut records: Vec<Record> = each.collect();
        let mut by_capacity = Vec::<&mut Record>::new();
        let mut unnamed = 0_u64;
        for record in &mut records {
            let tag = record.limits().first().map_or(0, |named| named.tag);
            unnamed = unnamed.saturating_add(u64::from(tag == 0));
            let place = if tag == 0 { unnamed } else { 0 };
            let described = if keeps { [tag, place].into() } else { record.described() };
            record.inner().identity = record.checksum(&described);
            let at = by_capacity.partition_point(|before| before.capacity() <= record.capacity());
            by_capacity.insert(at, record);
        }
        let mut taken = Vec::new();
        for record in by_capacity {
            // of limits with the same count the smallest has it, because the others would grant what it grants
            let mut count = record.0.count;
            while taken.contains(&count) {
                count = record.checksum(&[count]);
            }
            taken.push(count);
            let identity = if keeps {
                record.identity()
            } else {
                record.checksum(&[count, record.identity()])
            };
            (record.inner().count, record.inner().identity) = (count, identity);
        }
        records.push(Record::of_blocks());
        Self { records, ..self.clone() }
    }

    /// Whether each limit has a record of its own, and blocks have one.
    pub(crate) fn count_apart(&self) -> bool {
        self.records.iter().any(Record::counts_apart)
    }
}

impl Record {
    /// The record of one limit of this record, if each limit counts apart.
    fn apart(&self, named: &NamedLimit, policy: &str) -> Self {
        let mut apart = Self::new(slice::from_ref(named));
        apart.inner().place = self.0.place;
        // a name that a limit without a name has, too
        let is_default = named.name == policy
            || named.name.strip_prefix("limit-").is_some_and(|number| number.parse::<u8>().is_ok());
        let tag = if is_default { 0 } else { named.tag };
        apart.inner().count = apart.checksum(&[&[tag], &*named.limit.count()].concat());
        apart.inner().fingerprint = apart.checksum(&apart.parameters());
        apart
    }

    fn capacity(&self) -> u64 {
        self.limits().iter().map(|each| each.limit.capacity()).min().unwrap_or_else(|| never(0))
    }

    /// The record that keeps the blocks of keys if each limit counts apart.
    pub(crate) fn of_blocks() -> Self {
        let (mut blocks, count) = (Self::new(&[]), fnv1a(*b"block"));
        let inner = blocks.inner();
        (inner.count, inner.fingerprint, inner.identity) = (count, count, count);
        blocks
    }

    /// Whether this record keeps the block of a key. A record that several keys share keeps none, because each
    /// key is blocked by itself.
    pub(crate) fn keeps_block(&self) -> bool {
        self.depth() == Depth::Whole && (!self.counts_apart() || self.limits().is_empty())
    }

    /// Whether the record has one limit, or blocks, because each limit of the policy counts apart.
    pub(crate) fn counts_apart(&self) -> bool {
        self.0.count != 0
    }

    /// Whether a state of one of the two records goes on under the other.
    pub(crate) fn counts_with(&self, other: &Self) -> bool {
        self.counts_apart() && self.0.count == other.0.count
    }

    /// The words of a state of a record that this one [counts with](Self::counts_with), as this one goes on with them.
    pub(crate) fn going_on_from(&self, old: &Self, words: &[u64]) -> RecordWords {
        let mut words = RecordWords::from_slice(words);
        if let ([new], [old]) = (self.limits(), old.limits()) {
            new.limit.go_on_from(&mut words, &old.limit);
        }
        words
    }
}
