//! Units that holders have taken in advance: each is spent, given back or lost, and none of it twice.
//!
//! The [ledger](super::ledger) checks that all units together that are taken in any span are within the limits.
//! A unit that a node spends was taken less than the time of the budget before. So in any span the nodes grant no
//! more than the limits grant in this span and the time of the budget.

use tidegate_gate::{Budget, Effect, Id, Limiter, Operation, Timestamp, Unspent, Verdict};

use super::machine::World;
use super::violation::{Checked, Invariant, Seen, check};

/// The units of one grant to a holder.
#[derive(Clone, Debug)]
pub(super) struct Lent {
    /// The operation that took them.
    pub(super) operation: usize,
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
}

impl World {
    /// A holder asks for units. What it gives back must be all that is left of its last ones. Returns the
    /// operation that took those.
    pub(super) fn asks_for_units(&mut self, number: usize) -> Result<Option<usize>, Seen> {
        let asking = &self.operations[number];
        let Operation::Budget(Budget { holder, unspent: Some(unspent), .. }) = asking.operation
        else {
            return Ok(None);
        };
        if !self.setup.is_bounded {
            return Ok(None);
        }
        self.tally.add("a holder gave units back");
        let Some(lent) = self.lending.last(holder, asking.key, Some(unspent.granted_at)) else {
            return Err(Seen(
                Invariant::Conserved,
                format!("nobody granted what {asking:?} returns"),
            ));
        };
        let is_all = unspent.left == lent.granted - lent.spent && !lent.is_closed;
        lent.is_closed = true;
        check(is_all, Invariant::Conserved, || format!("{unspent:?} comes back of {lent:?}"))?;
        Ok(Some(lent.operation))
    }

    /// The storage has taken units out of the limits for a holder.
    pub(super) fn lend(&mut self, number: usize, verdict: &Verdict) -> Checked {
        let asking = &self.operations[number];
        let (Operation::Budget(budget), Effect::Budget { allowance, .. }) =
            (asking.operation, verdict.effect)
        else {
            return Ok(());
        };
        let Budget { holder, wants, .. } = budget;
        let granted = allowance.left;
        if granted == 0 || self.lending.0.iter().any(|lent| lent.operation == number) {
            return Ok(()); // nothing, or a repeated swap takes the same units again
        }
        self.tally.add("a holder got units");
        self.lending.0.push(Lent {
            operation: number,
            holder,
            key: asking.key,
            granted_at: allowance.granted_at,
            granted,
            spent: 0,
            is_closed: false,
            taken_at: self.now,
            said: (verdict.decision.limit(), verdict.decision.remaining()),
        });
        check(granted <= wants && allowance.granted_at == verdict.at, Invariant::Conserved, || {
            format!("number {number}, {asking:?}: {verdict:?}")
        })
    }

    /// A node has granted a request by itself, out of units that it took in time and has not yet spent.
    pub(super) fn check_spent(&mut self, number: usize, said: &Verdict) -> Checked {
        let asking = &self.operations[number];
        let node = &self.nodes[asking.node];
        let policy = self.places.keys[asking.key].resolved.policy();
        let Some(time) = policy.local().map(Limiter::period) else {
            return Err(Seen(Invariant::Conserved, format!("{asking:?} was granted by a node")));
        };
        let Operation::Decide(request) = asking.operation else {
            return Err(Seen(Invariant::Conserved, format!("{asking:?} was granted by a node")));
        };
        self.tally.add("a node spent units");
        if !self.setup.is_bounded {
            return Ok(());
        }
        let late = self.setup.ticks_late(time.0);
        let (now, at) = (self.now, asking.sent);
        let Some(lent) = self.lending.last(node.holder(), asking.key, Some(said.at)) else {
            return Err(Seen(
                Invariant::Conserved,
                format!("{said:?} is out of no grant: {asking:?}"),
            ));
        };
        lent.spent += request.cost;
        let sent = self.operations[lent.operation].sent;
        let is_held = lent.spent <= lent.granted && !lent.is_closed;
        check(is_held, Invariant::Conserved, || format!("{asking:?} is granted out of {lent:?}"))?;
        let is_in_time =
            at >= sent && at.0 < sent.0 + time.0 && now < lent.taken_at + time.0 + late;
        check(is_in_time, Invariant::Conserved, || {
            format!("{asking:?} is granted at {now} out of {lent:?}, sent for at {sent:?}")
        })?;
        check(node.known.may_spend(asking.key, sent), Invariant::Conserved, || {
            format!("{asking:?} is granted after a reset or a block out of {lent:?}")
        })?;
        let (limit, remained) = lent.said;
        let remaining = limit.min(remained + lent.granted - lent.spent);
        check(said.decision.remaining() == remaining, Invariant::Conserved, || {
            format!("{said:?}: expected {remaining} units to remain of {lent:?}")
        })?;
        self.operations[number].taken_by = Some(lent.operation);
        Ok(())
    }
}
