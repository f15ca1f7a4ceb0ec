//! A swap: the records that the store compares and writes, how long it keeps them, and what became of them.

use alloc::vec::Vec;

use tidegate_gate::{Micros, Used};

/// Some partitions whose records are to be compared and written.
#[derive(Debug)]
pub struct Swap {
    pub(super) partitions: Vec<usize>,
    /// When it was made.
    pub(super) at: Micros,
}

/// A record of a swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapEntry<'s> {
    /// The name of the record in the store.
    pub name: &'s str,
    /// The bytes that the store must hold; `None` if it must hold nothing.
    pub found: Option<&'s [u8]>,
    /// Whether the authority has read or written these bytes. The store of an only writer need not compare them.
    pub is_known: bool,
    /// The bytes to write; `None` for no change.
    pub becomes: Option<&'s [u8]>,
    /// How long the store must keep the record from now on at least; `None` if it keeps the record that long
    /// already. The store must never shorten the time that it keeps a record.
    pub ttl: Option<Micros>,
}

/// What became of the records of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwapOutcome<E> {
    /// All records were as expected, and the writes are stored.
    Swapped,
    /// These bytes were found, at least one of them not as expected. Nothing was written. One element for
    /// each of [`Authority::records`](super::Authority::records), in their order.
    Found(Vec<Option<Vec<u8>>>),
    /// These bytes were found, and the store refused to write. Nothing was written. What the bytes refuse
    /// stays refused.
    Refused(Vec<Option<Vec<u8>>>, E),
    /// The store answered that a record holds something else than bytes. Nothing was written. This is no outage: a node does not
    /// decide by its share.
    Unreadable(E),
    /// The store did not answer, or not as expected. Nobody knows what was written.
    Failed(E),
}

impl<'s> SwapEntry<'s> {
    pub(super) fn of(used: Used<'s>, ttl_margin: Micros, at: Micros) -> Self {
        let Used { name, found, is_known, .. } = used;
        let becomes = used.write.map(|write| write.bytes);
        Self { name, found, is_known, becomes, ttl: ttl(&used, ttl_margin, at) }
    }
}

/// Twice as long as needed, so that most writes need not set it anew.
fn ttl(used: &Used<'_>, ttl_margin: Micros, at: Micros) -> Option<Micros> {
    let needed = used.write?.time_to_live.0.saturating_add(ttl_margin.0).max(1);
    let is_kept = used.found.is_some() && used.expires_at.0 >= at.0.saturating_add(needed);
    (!is_kept).then(|| Micros(needed.saturating_mul(2)))
}

/// Until when the store keeps a record that it has written.
pub(super) fn expires_at(used: &Used<'_>, ttl_margin: Micros, at: Micros) -> Micros {
    match ttl(used, ttl_margin, at) {
        Some(ttl) => Micros(at.0.saturating_add(ttl.0)),
        None => used.expires_at,
    }
}

impl Swap {
    /// The number of partitions.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.partitions.len()
    }

    /// Whether the swap has no partitions, which never happens.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }
}
