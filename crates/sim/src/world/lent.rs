//! Units that holders have taken in advance: each is spent, given back or lost, and none of it twice.
//!
//! The [ledger](super::ledger) checks that all units together that are taken in any span are within the limits.
//! A unit that a node spends was taken less than the time of the budget before. So in any span the nodes grant no
//! more than the limits grant in this span and the time of the budget.

use tidegate_gate::{Budget, Effect, Id, Micros, Operation, Timestamp, Unspent, Verdict};

use super::clock::ticks_late;
use super::front::{Front, id};
use super::violation::{Checked, Invariant, Seen, check};

/// The units of one grant to a holder.
#[derive(Clone, Debug)]
struct Lent {
    /// The operation that took them, and when it was sent by the clock of its node.
    operation: usize,
    sent: Micros,
    holder: Id,
    key: usize,
    granted_at: Timestamp,
    granted: u64,
    spent: u64,
    /// Nothing more is spent: the holder has given the rest back.
    is_closed: bool,
    /// The time of the world at which the units were taken out of the limits.
    taken_at: u64,
    /// What the decision said when they were taken: the limit, and what remained.
    said: (u64, u64),
}

/// All grants to holders.
#[derive(Debug, Default)]
pub(super) struct Lending(Vec<Lent>);

impl Lending {
    /// The last grant of a holder on a key, at this time if one is given.
    fn last(&mut self, holder: Id, key: usize, granted_at: Option<Timestamp>) -> Option<&mut Lent> {
        self.0.iter_mut().rev().find(|lent| {
            lent.holder == holder
                && lent.key == key
                && granted_at.is_none_or(|granted_at| lent.granted_at == granted_at)
        })
    }

    /// The operation by which a caller takes units, and gives back some of its last ones.
    pub(super) fn borrow(&mut self, key: usize, holder: Id, wants: u64, most: u64) -> Operation {
        let open = self.last(holder, key, None).filter(|lent| !lent.is_closed && most > 0);
        let unspent = open.map(|lent| {
            let left = lent.granted.min(most);
            lent.spent = lent.granted - left;
            Unspent { granted_at: lent.granted_at, left }
        });
        Operation::Budget(Budget { holder, wants, unspent })
    }

    /// A holder asks for units. What it gives back must be all that is left of its last ones. Returns the
    /// operation that took those.
    pub(super) fn give_back(
        &mut self,
        key: usize,
        operation: &Operation,
    ) -> Result<Option<usize>, Seen> {
        let Operation::Budget(Budget { holder, unspent: Some(unspent), .. }) = *operation else {
            return Ok(None);
        };
        let Some(lent) = self.last(holder, key, Some(unspent.granted_at)) else {
            let seen = format!("nobody granted what {operation:?} returns");
            return Err(Seen(Invariant::Conserved, seen));
        };
        let is_all = unspent.left == lent.granted - lent.spent && !lent.is_closed;
        lent.is_closed = true;
        check(is_all, Invariant::Conserved, || format!("{unspent:?} comes back of {lent:?}"))?;
        Ok(Some(lent.operation))
    }

    /// Units were taken out of the limits of a key for a holder. Returns whether these are new ones.
    pub(super) fn lend(
        &mut self,
        (number, key): (usize, usize),
        asked: &Operation,
        verdict: &Verdict,
        (sent, now): (Micros, u64),
    ) -> Result<bool, Seen> {
        let (Operation::Budget(budget), Effect::Budget { allowance, .. }) = (asked, verdict.effect)
        else {
            return Ok(false);
        };
        let Budget { holder, wants, .. } = *budget;
        let granted = allowance.left;
        if granted == 0 || self.0.iter().any(|lent| lent.operation == number) {
            return Ok(false); // nothing, or a repeated swap takes the same units again
        }
        self.0.push(Lent {
            operation: number,
            sent,
            holder,
            key,
            granted_at: allowance.granted_at,
            granted,
            spent: 0,
            is_closed: false,
            taken_at: now,
            said: (verdict.decision.limit(), verdict.decision.remaining()),
        });
        check(
            granted <= wants && allowance.granted_at == verdict.at,
            Invariant::Conserved,
            || format!("number {number}, {asked:?}: {verdict:?}"),
        )?;
        Ok(true)
    }

    /// A node has granted a request by itself, out of units that it took in time and has not yet spent.
    pub(super) fn spend(
        &mut self,
        (front, key): (&Front, usize),
        said: &Verdict,
        (cost, budget): (u64, Micros),
        now: u64,
    ) -> Checked {
        let Some(lent) = self.last(id(front.run), key, Some(said.at)) else {
            return Err(Seen(Invariant::Conserved, format!("{said:?} is out of no grant")));
        };
        lent.spent += cost;
        let is_held = lent.spent <= lent.granted && !lent.is_closed;
        check(is_held, Invariant::Conserved, || {
            format!("{cost} units are granted out of {lent:?}")
        })?;
        let (at, sent) = (front.at(now), lent.sent);
        let most = budget.0 + ticks_late(budget.0);
        let is_in_time = at >= sent && at.0 < sent.0 + budget.0 && now < lent.taken_at + most;
        check(is_in_time, Invariant::Conserved, || {
            format!("{said:?} is granted at {now}, {at:?} at the node, out of {lent:?}")
        })?;
        check(front.known.may_spend(key, sent), Invariant::Conserved, || {
            format!("{said:?} is granted after a reset or a block out of {lent:?}")
        })?;
        let (limit, remained) = lent.said;
        let remaining = limit.min(remained + lent.granted - lent.spent);
        check(said.decision.remaining() == remaining, Invariant::Conserved, || {
            format!("{said:?}: expected {remaining} units to remain of {lent:?}")
        })
    }
}
