//! A swap: the slices that the store compares and writes, and how long it keeps them.

use alloc::vec::Vec;

use tidegate_gate::{Micros, Used};

/// Some homes whose slices are to be compared and written.
#[derive(Debug)]
pub struct Swap {
    pub(super) homes: Vec<usize>,
    /// When it was made.
    pub(super) at: Micros,
}

/// A slice of a swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice<'s> {
    /// The name of the slice in the store.
    pub name: &'s str,
    /// The bytes that the store must hold; `None` if it must hold nothing.
    pub found: Option<&'s [u8]>,
    /// Whether the authority has read or written these bytes. The store of an only writer need not compare them.
    pub is_known: bool,
    /// The bytes to write; `None` for no change.
    pub becomes: Option<&'s [u8]>,
    /// How long the store must keep the slice from now on at least; `None` if it keeps the slice that long
    /// already. The store must never shorten the time that it keeps a slice.
    pub keep: Option<Micros>,
}

impl<'s> Slice<'s> {
    pub(super) fn of(used: Used<'s>, keep_longer: Micros, at: Micros) -> Self {
        let Used { name, found, is_known, .. } = used;
        let becomes = used.write.map(|write| write.bytes);
        Self { name, found, is_known, becomes, keep: keep(&used, keep_longer, at) }
    }
}

/// Twice as long as needed, so that most writes need not set it anew.
fn keep(used: &Used<'_>, keep_longer: Micros, at: Micros) -> Option<Micros> {
    let needed = used.write?.time_to_live.0.saturating_add(keep_longer.0).max(1);
    let is_kept = used.found.is_some() && used.kept_until.0 >= at.0.saturating_add(needed);
    (!is_kept).then(|| Micros(needed.saturating_mul(2)))
}

/// Until when the store keeps a slice that it has written.
pub(super) fn kept_until(used: &Used<'_>, keep_longer: Micros, at: Micros) -> Micros {
    match keep(used, keep_longer, at) {
        Some(keep) => Micros(at.0.saturating_add(keep.0)),
        None => used.kept_until,
    }
}

impl Swap {
    /// The number of homes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.homes.len()
    }

    /// Whether the swap has no homes, which never happens.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.homes.is_empty()
    }
}
