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

    /// Takes over what `known` says to be stored under the names of a key, as far as this transaction has neither known nor decided
    /// anything of it.
    pub fn learn<'k>(
        &mut self,
        joined: &KeySlots,
        known: impl Fn(&str) -> Option<Option<&'k [u8]>>,
    ) {
        for slot in joined.all_slots() {
            let Some(own) = self.slots.get_mut(slot).filter(|own| own.is_new()) else { continue };
            if let Some(found) = known(&own.name) {
                own.load(found.map(Into::into));
            }
        }
    }

    /// The readable bytes, or that there are none, which the transaction knows to be stored under a name.
    #[must_use]
    pub fn stored_as(&self, name: &str) -> Option<Option<&[u8]>> {
        let at = self.by_name.binary_search_by(|slot| self.name_of(*slot).cmp(name)).ok()?;
        let slot = self.slots.get(*self.by_name.get(at)?)?;
        (slot.is_known && slot.words().is_ok()).then(|| slot.found())
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
