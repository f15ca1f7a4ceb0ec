//! Reservations on several limits at once.

use tidegate_core::hold::Committed;
use tidegate_core::lease::Id;
use tidegate_core::{Decision, Timestamp};

use super::limits::{LimitFacts, Limits};
use super::operate::{split, split_mut};
use super::together::Together;
use super::verdict::Effect;
use crate::limit::{KnownFor, Operation, OperationError, Request};

impl Limits {
    /// What a request that reserves has reserved, or which limit had no place for it; `None` if neither.
    pub(super) fn reserved(
        &self,
        words: &[u64],
        now: Timestamp,
        request: &Request,
        (decision, payer): (&Decision, Option<u8>),
    ) -> Option<Effect> {
        let id = request.lease?;
        if !decision.is_allowed() {
            let full = self.full(words, now, Some(id));
            return full.map(|limit| Effect::Full { limit, by: None });
        }
        let mut each = split(self, words).filter(|(each, _)| !each.shadow);
        let (units, until) = each.find_map(|(each, words)| each.limit.held(words, id))?;
        Some(Effect::Reserved { units, until, by: payer })
    }

    /// The first limit that refuses a reservation of this id, or a new one, for want of a place. A limit that pays does so only if none
    /// of those that pay has a place.
    pub(super) fn full(&self, words: &[u64], now: Timestamp, id: Option<Id>) -> Option<u8> {
        let (mut payer, mut a_payer_has_room) = (None, false);
        for ((facts, words), place) in split(self, words).zip(0_u8..) {
            match facts.limit.is_full(words, now, id) {
                _ if facts.shadow => {}
                true if facts.pays => payer = payer.or(Some(place)),
                true => return Some(place),
                false => a_payer_has_room |= facts.pays,
            }
        }
        payer.filter(|_| !a_payer_has_room)
    }

    /// Whether a request repeats a reservation: each limit that refuses for want of units, and one that pays, holds units for it.
    pub(super) fn repeats(&self, words: &[u64], now: Timestamp, request: &Request) -> Option<Id> {
        let id = request.lease.filter(|_| request.reserves())?;
        let paid = self.payer_of(words, now, id).map(|(_, known)| known);
        if self.have_payers() && paid != Some(KnownFor::Live) {
            return None;
        }
        let mut is_held = paid.is_some();
        for (facts, words) in split(self, words) {
            let punishes = facts.punishes_refusals && !facts.shadow;
            if punishes && facts.limit.grants(words, now, request) != Ok(true) {
                return None; // a penalty refuses everything
            }
            if facts.limit.most_held().is_none() || facts.shadow || facts.pays {
                continue;
            }
            if facts.limit.knows(words, now, id) != Some(KnownFor::Live) {
                return None;
            }
            is_held = true;
        }
        is_held.then_some(id)
    }

    /// Allows a reservation that is repeated, which takes nothing more. A lease of its name that is live is renewed.
    pub(super) fn repeat(
        &self,
        words: &mut [u64],
        now: Timestamp,
        (id, request): (Id, &Request),
        mut each: impl FnMut(Decision, bool),
    ) -> Result<Decision, OperationError> {
        let payer = self.payer_of(words, now, id).map(|(payer, _)| payer);
        let mut together = Together::default();
        for ((facts, words), place) in split_mut(self, words).zip(0_u8..) {
            facts.limit.advance(words, now);
            facts.limit.hold(words, now, &Operation::Heartbeat(id));
            let said = facts.limit.peek(words, now, &request.peek())?;
            together.add(facts, &said);
            each(said, payer == Some(place));
        }
        Ok(together.allow())
    }

    /// Commits a reservation on every limit, in shadow only if it is held, and on one payer. Releases the lease of the same id.
    pub(super) fn commit(&self, words: &mut [u64], now: Timestamp, id: Id, actual: u64) -> Effect {
        let paid =
            if self.have_payers() { self.commit_to_payer(words, now, id, actual) } else { None };
        let (by, mut all) = (paid.map(|(by, _)| by), paid.map(|(_, committed)| committed));
        for (LimitFacts { limit, shadow, pays, .. }, words) in split_mut(self, words) {
            let (shadow, pays) = (*shadow, *pays);
            limit.hold(words, now, &Operation::Release(id));
            if pays {
                continue;
            }
            if shadow && limit.held(words, id).is_none() {
                continue; // a limit that would have refused the reservation takes nothing at its commit either
            }
            if let Some(own) = limit.commit(words, now, id, actual).filter(|_| !shadow) {
                let Committed { charged, late } =
                    all.unwrap_or(Committed { charged: 0, late: false });
                all = Some(Committed { charged: charged.max(own.charged), late: late | own.late });
            }
        }
        all.map_or(Effect::Decision, |Committed { charged, late }| Effect::Committed {
            charged,
            late,
            by,
        })
    }
}
