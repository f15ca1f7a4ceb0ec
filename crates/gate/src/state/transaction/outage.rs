//! A transaction of a node whose store cannot be asked: nothing of it is stored, and it goes on from what was seen last.

#[cfg(test)]
mod tests;

use tidegate_core::{Micros, Timestamp};

use super::record_state::RecordState;
use super::{KeySlots, Transaction};
use crate::policy::Resolved;
use crate::state::blob;

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

    /// Whether the transaction has the records of a key already.
    #[must_use]
    pub fn has(&self, resolved: &Resolved) -> bool {
        let records = resolved.limits().into_iter().flat_map(|limits| limits.records());
        let mut names = records.map(|record| blob::name(resolved.policy(), record, resolved.key()));
        names.all(|name| {
            self.by_name.binary_search_by(|slot| self.name_of(*slot).cmp(&name)).is_ok()
        })
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
