//! What a swap compares and writes.

use tidegate_gate::Micros;
use tidegate_tier::Authority;
use tidegate_tier::authority::Swap;

use super::places::Places;
use super::violation::{Invariant, Seen, check};

/// A record that the storage compares and writes.
#[derive(Clone, Debug)]
pub(super) struct Compared {
    pub(super) record: usize,
    pub(super) found: Option<Vec<u8>>,
    pub(super) is_known: bool,
    pub(super) becomes: Option<Vec<u8>>,
    pub(super) ttl: Option<Micros>,
}

/// The records of a partition of a swap.
pub(super) fn compared<T, E: Clone>(
    authority: &mut Authority<T, E>,
    (swap, partition): (&Swap, usize),
    places: &Places,
) -> Result<Vec<Compared>, Seen> {
    let records = authority.records(swap, partition).map(|used| {
        let record = places
            .record_named(used.name)
            .ok_or_else(|| Seen(Invariant::Stored, format!("an unknown record: {}", used.name)))?;
        let [found, becomes] = [used.found, used.becomes].map(|bytes| bytes.map(<[u8]>::to_vec));
        Ok(Compared { record, found, is_known: used.is_known, becomes, ttl: used.ttl })
    });
    let records = records.collect::<Result<Vec<_>, _>>()?;
    check(!records.is_empty(), Invariant::Order, || "a partition of a swap has no records".into())?;
    Ok(records)
}
