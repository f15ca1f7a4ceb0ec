//! Reservations on several limits at once.

use tidegate_core::hold::Committed;
use tidegate_core::lease::Id;
use tidegate_core::{Decision, Timestamp};

use super::limits::{LimitFacts, Limits};
use super::operate::{split, split_mut};
use super::verdict::Effect;
use crate::limit::{Operation, Request};

impl Limits {
    /// What a request that may reserve has reserved, and who has paid for the request.
    pub(super) fn reserved(
        &self,
        words: &[u64],
        request: &Request,
        decision: &Decision,
        payer: Option<u8>,
    ) -> Effect {
        let reserves = request.reserves() && decision.is_allowed();
        let held = request.lease.filter(|_| reserves).and_then(|id| {
            let mut each = split(self, words).zip(self.each()).filter(|(_, each)| !each.shadow);
            each.find_map(|((limit, words), _)| limit.held(words, id))
        });
        match held {
            Some((units, until)) => Effect::Reserved { units, until, by: payer },
            None => payer.map_or(Effect::Decision, |by| Effect::Paid { by }),
        }
    }

    /// Commits a reservation on every limit, in shadow only if it is held, and on one payer. Releases the lease of the same id.
    pub(super) fn commit(&self, words: &mut [u64], now: Timestamp, id: Id, actual: u64) -> Effect {
        let paid =
            if self.have_payers() { self.commit_to_payer(words, now, id, actual) } else { None };
        let (by, mut all) = (paid.map(|(by, _)| by), paid.map(|(_, committed)| committed));
        for ((limit, words), LimitFacts { shadow, pays, .. }) in
            split_mut(self, words).zip(self.each())
        {
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
