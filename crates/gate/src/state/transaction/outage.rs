//! A transaction of a node whose store cannot be asked: nothing of it is stored, and it goes on from what was seen last.

#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use tidegate_core::{Micros, Timestamp};

use super::record_state::RecordState;
use super::{KeySlots, Transaction};
use crate::limit::Limit;

impl Transaction {
    /// Takes back what operations did that is not stored, and keeps what is known of the store.
    pub fn revert(&mut self) {
        self.slots.iter_mut().for_each(RecordState::revert);
    }

    /// Takes over what another transaction knows to be stored of a key, as far as this one has neither known nor decided
    /// anything of it.
    pub fn learn(&mut self, joined: &KeySlots, other: &Self) {
        for slot in &joined.slots {
            let Some(own) = self.slots.get_mut(*slot).filter(|own| own.is_new()) else { continue };
            let found = other.by_name.binary_search_by(|slot| other.name_of(*slot).cmp(&own.name));
            let found = found.ok().and_then(|at| other.slots.get(*other.by_name.get(at)?));
            if let Some(known) = found.filter(|known| known.is_known && known.words().is_ok()) {
                own.load(known.found().map(Into::into));
            }
        }
    }

    /// The units that count as used at `now` beyond those of the stored state, of the limit of which they are the most, in equal
    /// parts: rounded up, because a started unit is used.
    #[must_use]
    pub fn used_since_stored(&self, joined: &KeySlots, now: Timestamp, parts: u64) -> u64 {
        let Some((_, limits)) = joined.resolved.limited() else { return 0 };
        let mut most = 0;
        for (slot, record) in self.slots_of(joined).zip(limits.records()) {
            let (Ok(words), Some(stored)) = (slot.words(), slot.found_words(now)) else { continue };
            let each = record.split(words).zip(record.split(&stored));
            for ((limit, words), (_, stored)) in each {
                most = most.max(used(limit, words, now).saturating_sub(used(limit, stored, now)));
            }
        }
        most.div_ceil(parts.max(1))
    }

    /// Whether all states equal fresh ones at `now`.
    #[must_use]
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        self.slots.iter().all(|slot| slot.time_to_live_at(now) == Some(Micros::ZERO))
    }

    /// The bytes of memory that the records of a key take.
    #[must_use]
    pub fn bytes_of(&self, joined: &KeySlots) -> usize {
        self.slots_of(joined).map(RecordState::bytes).fold(0, usize::saturating_add)
    }
}

/// The units that count as used at `now`.
#[inline(never)] // it is seldom called
fn used(limit: &Limit, words: &[u64], now: Timestamp) -> u64 {
    let mut words = Vec::from(words);
    limit.advance(&mut words, now);
    limit.used(&words).unwrap_or(0)
}
