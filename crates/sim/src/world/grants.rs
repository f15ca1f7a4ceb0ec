//! What callers remember: the grants that they have not settled, and the units that they hold.

use tidegate_gate::{Effect, Id, Operation, Request, Settlement, Timestamp, Verdict};

use super::act::Act;
use super::callers::operation_of;
use super::lent::Lending;
use super::places::Places;

/// The most reservations that callers remember, to commit them.
const MOST_RESERVED: usize = 8;

/// A caller forgets a reservation when it commits it by an index below this, and else may commit it again.
const FORGETS: usize = 8;

/// The most grants that callers remember, to settle them.
const MOST_GRANTS: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Grants {
    grants: Vec<Grant>,
    /// The keys and the ids of reservations.
    reserved: Vec<(usize, Id)>,
    pub(super) lending: Lending,
}

#[derive(Debug)]
struct Grant {
    /// The operation that took the units.
    taken_by: usize,
    key: usize,
    at: Timestamp,
    units: u64,
}

impl Grants {
    /// A caller hears the answer to an operation on a key. This operation took the units if there are any.
    pub(super) fn note(
        &mut self,
        (taken_by, key): (usize, usize),
        operation: &Operation,
        said: &Verdict,
    ) {
        if let (Operation::Decide(Request { lease: Some(id), .. }), Effect::Reserved { .. }) =
            (operation, said.effect)
        {
            self.reserved.push((key, *id));
            if self.reserved.len() > MOST_RESERVED {
                self.reserved.remove(0);
            }
        }
        if let Operation::Decide(request) = operation
            && said.decision.is_allowed()
            && request.cost > 0
            && !request.reserves() // it is committed, and not settled
            && said.effect.payer().is_none() // nor can units come back that a payer granted
            && !said.limits.is_empty()
        {
            self.grants.push(Grant { taken_by, key, at: said.at, units: request.cost });
            if self.grants.len() > MOST_GRANTS {
                self.grants.remove(0);
            }
        }
    }

    /// The key of an act under an revision of its policy, the operation, and the operation that it settles. `None` if there
    /// is nothing to settle.
    pub(super) fn operation(
        &mut self,
        (places, revision): (&Places, usize),
        mut key: usize,
        act: Act,
        now: Timestamp,
    ) -> Option<(usize, Operation, Option<usize>)> {
        let settled = match act {
            Act::Settle(index, _) => {
                Some(self.grants.remove(index.checked_rem(self.grants.len())?))
            }
            _ => None,
        };
        let finished = match act {
            Act::Finish(index, _) => Some(self.finish(index)?),
            _ => None,
        };
        key = finished.map_or(key, |(key, _)| key);
        key = settled.as_ref().map_or(key, |grant| grant.key) % places.of_revision;
        key += revision * places.of_revision;
        if let (Act::Finish(_, actual), Some((_, id))) = (act, finished) {
            return Some((key, Operation::Commit(id, actual), None));
        }
        let operation = match (act, &settled) {
            (Act::Settle(_, actual), Some(grant)) => Operation::Settle(Settlement {
                granted_at: grant.at,
                reserved: grant.units,
                actual,
            }),
            (Act::Borrow { holder, wants, left }, _) => {
                self.lending.borrow(key, Id([u64::MAX, holder]), wants, left)
            }
            _ => operation_of(act, &places.keys[key].resolved, now),
        };
        Some((key, operation, settled.map(|grant| grant.taken_by)))
    }

    /// The key and the id of a reservation that its caller commits.
    fn finish(&mut self, index: usize) -> Option<(usize, Id)> {
        let place = index.checked_rem(self.reserved.len())?;
        Some(match index < FORGETS {
            true => self.reserved.remove(place),
            false => self.reserved[place],
        })
    }
}
