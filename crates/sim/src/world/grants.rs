//! What callers remember: the reservations that they may commit, and the units that they hold.

use tidegate_gate::{Effect, Id, Operation, Request, Timestamp, Verdict};

use super::act::Act;
use super::callers::operation_of;
use super::lent::Lending;
use super::places::Places;

/// The most reservations that callers remember, to commit them.
const MOST_RESERVED: usize = 8;

/// A caller forgets a reservation when it commits it by an index below this, and else may commit it again.
const FORGETS: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Grants {
    /// The keys and the ids of reservations.
    reserved: Vec<(usize, Id)>,
    pub(super) lending: Lending,
}

impl Grants {
    /// A caller hears the answer to an operation on a key.
    pub(super) fn note(&mut self, key: usize, operation: &Operation, said: &Verdict) {
        if let (Operation::Decide(Request { lease: Some(id), .. }), Effect::Reserved { .. }) =
            (operation, said.effect)
        {
            self.reserved.push((key, *id));
            if self.reserved.len() > MOST_RESERVED {
                self.reserved.remove(0);
            }
        }
    }

    /// The key of an act under a revision of its policy, and the operation. `None` if there is nothing to commit.
    pub(super) fn operation(
        &mut self,
        (places, revision): (&Places, usize),
        mut key: usize,
        act: Act,
        now: Timestamp,
    ) -> Option<(usize, Operation)> {
        let finished = match act {
            Act::Finish(index, _) => Some(self.finish(index)?),
            _ => None,
        };
        key = finished.map_or(key, |(key, _)| key) % places.of_revision;
        key += revision * places.of_revision;
        if let (Act::Finish(_, actual), Some((_, id))) = (act, finished) {
            return Some((key, Operation::Commit(id, actual)));
        }
        let operation = match act {
            Act::Borrow { holder, wants, left } => {
                self.lending.borrow(key, Id([u64::MAX, holder]), wants, left)
            }
            _ => operation_of(act, &places.keys[key].resolved, now),
        };
        Some((key, operation))
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
