//! Reservations on several limits at once.

use tidegate_core::hold::Committed;
use tidegate_core::lease::Id;
use tidegate_core::{Decision, Timestamp};

use super::limits::Limits;
use super::operate::{split, split_mut};
use super::verdict::Effect;
use crate::limit::{Operation, Request};

impl Limits {
    /// What a request that may reserve has reserved.
    pub(super) fn reserved(&self, words: &[u64], request: &Request, decision: &Decision) -> Effect {
        let reserves = request.reserves() && decision.is_allowed();
        let held = request
            .lease
            .filter(|_| reserves)
            .and_then(|id| split(self, words).find_map(|(limit, words)| limit.held(words, id)));
        held.map_or(Effect::Decision, |(units, until)| Effect::Reserved { units, until })
    }

    /// Commits a reservation on every limit that holds it, and releases the lease of the same id.
    pub(super) fn commit(&self, words: &mut [u64], now: Timestamp, id: Id, actual: u64) -> Effect {
        let mut all: Option<Committed> = None;
        for (limit, words) in split_mut(self, words) {
            limit.hold(words, now, &Operation::Release(id));
            if let Some(own) = limit.commit(words, now, id, actual) {
                let Committed { charged, late } =
                    all.unwrap_or(Committed { charged: 0, late: false });
                all = Some(Committed { charged: charged.max(own.charged), late: late | own.late });
            }
        }
        all.map_or(Effect::Decision, |Committed { charged, late }| Effect::Committed {
            charged,
            late,
        })
    }
}
