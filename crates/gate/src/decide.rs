//! Decides on several limits at once, all or nothing.

#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use smallvec::SmallVec;
use tidegate_core::lease::Held;
use tidegate_core::lease::budget::{Allowance, Refundable};
use tidegate_core::shed::Probability;
use tidegate_core::shed::suppression::Report;
use tidegate_core::{Decision, Micros, Timestamp};

use crate::key::Depth;
use crate::limit::{Kind, Limit};
use crate::limits::Limits;
use crate::request::{Budget, Offered, Operation, OperationError, Request, Settlement};

/// A decision, and what each limit says in the order of [`Limits::iter`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The time of the decision, which is never before that of an earlier decision on this key. A settlement
    /// names this time.
    pub at: Timestamp,
    /// The answer of all limits together.
    pub decision: Decision,
    /// What each limit says after the decision. In a refusal, the limits that would have granted the request
    /// allow it, and nothing was taken from them.
    pub limits: Vec<Decision>,
    /// The fraction of the load that reporters must refuse; `None` without a `suppression` limit.
    pub factor: Option<Probability>,
    /// What the operation did beside deciding.
    pub effect: Effect,
}

/// What an operation did beside deciding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effect {
    /// The operation concerns neither a lease nor a budget, or the key is listed: the decision says all.
    Decision,
    /// The operation renewed, counted or released a lease.
    Lease {
        /// Whether the lease was live.
        live: bool,
    },
    /// The operation asked for a budget.
    Budget {
        /// Whether the units that the holder gave back were still its own; `None` if it gave none back.
        returned: Option<bool>,
        /// The units that the holder may spend without asking.
        allowance: Allowance,
    },
}

impl Effect {
    /// The effect with these values of [`live`](Self::live) and [`allowance`](Self::allowance).
    #[must_use]
    pub const fn of(live: Option<bool>, allowance: Option<Allowance>) -> Self {
        match (live, allowance) {
            (None, None) => Self::Decision,
            (Some(live), None) => Self::Lease { live },
            (returned, Some(allowance)) => Self::Budget { returned, allowance },
        }
    }

    /// Whether the lease, or the grant that the holder gave back, was live; `None` if the operation concerns
    /// neither.
    #[must_use]
    pub const fn live(&self) -> Option<bool> {
        match *self {
            Self::Decision => None,
            Self::Lease { live } => Some(live),
            Self::Budget { returned, .. } => returned,
        }
    }

    /// The units that a holder may spend without asking; `None` if the operation asked for no budget.
    #[must_use]
    pub const fn allowance(&self) -> Option<Allowance> {
        match *self {
            Self::Budget { allowance, .. } => Some(allowance),
            Self::Decision | Self::Lease { .. } => None,
        }
    }
}

impl Verdict {
    /// The verdict on a listed key, on which there are no limits.
    #[must_use]
    pub const fn listed(at: Timestamp, decision: Decision) -> Self {
        Self { at, decision, limits: Vec::new(), factor: None, effect: Effect::Decision }
    }

    /// The same verdict as a refusal for ever, because some limits can never grant the cost.
    #[must_use]
    pub(crate) fn refused_for_ever(mut self, limits: &Limits, cost: u64) -> Self {
        self.decision = for_ever(self.decision);
        for (each, decision) in limits.iter().zip(&mut self.limits) {
            if each.limit.capacity() < cost {
                *decision = for_ever(*decision);
            }
        }
        self
    }
}

/// What each limit says, inline up to four limits, as policies seldom have more.
type Each = SmallVec<[Decision; 4]>;

impl Limits {
    /// Decides on a request at `now`. The request is granted if every limit grants it, and its cost is taken
    /// from all limits or from none. A cost of 0 is a peek and changes nothing.
    ///
    /// The answer has the numbers of the limit with the least remaining, and the longest waits of all limits.
    /// All limits decide at the same time by the key's clock. A jump ahead is a step of more than the longest
    /// period of the limits.
    ///
    /// # Errors
    /// Fails with [`OperationError`] if a limit can never grant the cost, or if a limit holds leases and the
    /// request names no lease; nothing has changed.
    #[inline]
    pub fn decide(
        &self,
        words: &mut [u64],
        now: Timestamp,
        request: &Request,
    ) -> Result<Decision, OperationError> {
        match self.only() {
            Some(only) => only.decide(words, now, request),
            None => self.decide_together(words, now, request),
        }
    }

    #[inline(never)] // keeps the path of a single limit short
    fn decide_together(
        &self,
        words: &mut [u64],
        now: Timestamp,
        request: &Request,
    ) -> Result<Decision, OperationError> {
        let now = self.taken_at(words, now);
        let (decision, _) = match request.cost {
            0 => self.look(words, now, request)?,
            _ => self.take(words, now, request)?,
        };
        Ok(decision)
    }

    /// Does an operation, and returns what each limit then says. Operations other than requests are answered
    /// as a peek.
    ///
    /// # Errors
    /// Fails as [`decide`](Self::decide) does.
    pub fn operate(
        &self,
        words: &mut [u64],
        now: Timestamp,
        operation: &Operation,
    ) -> Result<Verdict, OperationError> {
        if let Operation::Reset(depth) = operation {
            self.reset(words, *depth);
        }
        let now = self.taken_at(words, now);
        let looks = matches!(
            operation,
            Operation::Decide(_) | Operation::Peek(_) | Operation::Reset(_) | Operation::Block(_)
        );
        if !looks {
            // all limits keep one clock, even those that the operation does not change
            split_mut(self, words).for_each(|(limit, words)| limit.advance(words, now));
        }
        match operation {
            Operation::Decide(request) if request.cost > 0 => {
                let said = self.take(words, now, request)?;
                Ok(self.explained(words, now, said))
            }
            Operation::Decide(request) | Operation::Peek(request) => {
                let said = self.look(words, now, request)?;
                Ok(self.explained(words, now, said))
            }
            Operation::Settle(settlement) => {
                self.settle(words, now, settlement);
                self.looked_at(words, now)
            }
            Operation::Refund(units) => {
                let (reserved, actual) = (*units, 0);
                self.settle(words, now, &Settlement { granted_at: now, reserved, actual });
                self.looked_at(words, now)
            }
            Operation::Budget(budget) => self.budget(words, now, budget),
            Operation::Report(Offered { at, admitted, suppressed }) => {
                let (admitted, suppressed) = (*admitted, *suppressed);
                // a report from a clock that is ahead counts now, because no caller moves a key's clock
                let offered_at = at.map_or(now, |at| now.min(at));
                let report = Report { offered_at, admitted, suppressed };
                for (limit, words) in split_mut(self, words) {
                    limit.report(words, now, report);
                }
                self.looked_at(words, now)
            }
            Operation::Heartbeat(id) | Operation::Count(id, _) | Operation::Release(id) => {
                let held = split_mut(self, words)
                    .filter_map(|(limit, words)| limit.hold(words, now, operation));
                let held = held.map(|held| held != Held::Unknown);
                // a release succeeds if any limit held the lease; a lease is live if all limits hold it
                let live = match operation {
                    Operation::Release(_) => held.reduce(|one, other| one | other),
                    _ => held.reduce(|one, other| one & other),
                };
                let looked = Request { lease: Some(*id), ..Request::of(0) };
                let said = self.look(words, now, &looked)?;
                let effect = Effect::of(live, None);
                Ok(Verdict { effect, ..self.explained(words, now, said) })
            }
            // the words of the limits do not say whether the key is blocked
            Operation::Reset(_) | Operation::Block(_) => self.looked_at(words, now),
        }
    }

    /// Clears the limits that count by this depth or by more of the key.
    pub(crate) fn reset(&self, mut words: &mut [u64], depth: Depth) {
        for slice in self.slices() {
            let at = slice.words().min(words.len());
            let (own, rest) = words.split_at_mut(at);
            if slice.depth() >= depth {
                own.fill(0);
            }
            words = rest;
        }
    }

    /// Takes the cost from all limits or from none. Each limit is evaluated at most twice.
    fn take(
        &self,
        words: &mut [u64],
        now: Timestamp,
        request: &Request,
    ) -> Result<(Decision, Each), OperationError> {
        if request.lease.is_none() && self.iter().any(|each| each.limit.needs_lease(request)) {
            return Err(OperationError::NeedsLease);
        }
        let mut each = self.peek_each(words, now, request)?;
        if each.iter().all(Decision::is_allowed) {
            for ((limit, words), said) in split_mut(self, words).zip(&mut each) {
                *said = limit.decide(words, now, request)?; // grants, as the peek said
            }
            return Ok((self.combined(&each, None), each));
        }
        self.refuse_all(words, now, request, each)
    }

    /// Refuses a request, whatever the limits say, and lets them record the refusal.
    pub(crate) fn refuse(
        &self,
        words: &mut [u64],
        now: Timestamp,
        request: &Request,
    ) -> Result<Verdict, OperationError> {
        let now = self.taken_at(words, now);
        let each = self.peek_each(words, now, request)?;
        let said = self.refuse_all(words, now, request, each)?;
        Ok(self.explained(words, now, said))
    }

    fn refuse_all(
        &self,
        words: &mut [u64],
        now: Timestamp,
        request: &Request,
        mut each: Each,
    ) -> Result<(Decision, Each), OperationError> {
        let mut retry_after = Micros::ZERO;
        let mut after = each.clone();
        let places = split_mut(self, words).zip(each.iter_mut().zip(&mut after));
        for ((limit, words), (said, after)) in places {
            let remembered = limit.refused(words, now, request);
            retry_after = retry_after.max(said.retry_after()).max(remembered);
            if limit.punishes_refusals() {
                *after = limit.peek(words, now, request)?; // this refusal may have begun it
            } else if said.is_allowed() || limit.remembers_refusals() {
                *after = limit.peek(words, now, &request.peek())?;
            }
            if said.is_allowed() {
                *said = *after;
            }
        }
        Ok((self.combined(&after, Some(retry_after)), each))
    }

    /// Answers as [`take`](Self::take) would, except for refusals that would be recorded. Changes nothing.
    fn look(
        &self,
        words: &[u64],
        now: Timestamp,
        request: &Request,
    ) -> Result<(Decision, Each), OperationError> {
        let mut each = self.peek_each(words, now, request)?;
        let refused = !each.iter().all(Decision::is_allowed);
        let retry_after = refused.then(|| each.iter().map(Decision::retry_after).max());
        if refused {
            for ((limit, words), said) in split(self, words).zip(&mut each) {
                if said.is_allowed() {
                    *said = limit.peek(words, now, &request.peek())?; // nothing is taken from it
                }
            }
        }
        Ok((self.combined(&each, retry_after.flatten()), each))
    }

    fn looked_at(&self, words: &[u64], now: Timestamp) -> Result<Verdict, OperationError> {
        let said = self.look(words, now, &Request::of(0))?;
        Ok(self.explained(words, now, said))
    }

    fn explained(
        &self,
        words: &[u64],
        now: Timestamp,
        (decision, limits): (Decision, Each),
    ) -> Verdict {
        let limits = limits.into_vec();
        let factor = split(self, words).find_map(|(limit, words)| limit.factor(words, now));
        Verdict { at: now, decision, limits, factor, effect: Effect::Decision }
    }

    fn peek_each(
        &self,
        words: &[u64],
        now: Timestamp,
        request: &Request,
    ) -> Result<Each, OperationError> {
        split(self, words).map(|(limit, words)| limit.peek(words, now, request)).collect()
    }

    /// The answer of all limits together, given what each says. It is a refusal if `retry_after` is given.
    fn combined(&self, each: &Each, retry_after: Option<Micros>) -> Decision {
        // units come before places, and places before chances: only the first kind counts
        let least_kind = self.iter().map(|each| each.limit.kind()).min();
        let (mut limit, mut remaining) = (0, u64::MAX);
        let mut reset_after = Micros::ZERO;
        let mut under_penalty = false;
        for (named, said) in self.iter().zip(each) {
            if Some(named.limit.kind()) == least_kind && said.remaining() < remaining {
                (limit, remaining) = (said.limit(), said.remaining());
            }
            under_penalty |= named.limit.punishes_refusals() && said.remaining() == 0;
            reset_after = reset_after.max(said.reset_after());
        }
        if under_penalty {
            remaining = 0; // even if other limits have some left
        }
        match retry_after {
            None => Decision::Allow { limit, remaining, reset_after },
            Some(retry_after) => Decision::Deny { limit, remaining, retry_after, reset_after },
        }
    }

    /// Returns unspent units to every limit on units over time, and takes granted units from every such limit.
    fn budget(
        &self,
        words: &mut [u64],
        now: Timestamp,
        budget: &Budget,
    ) -> Result<Verdict, OperationError> {
        let Budget { holder, wants, unspent } = *budget;
        let refundable = unspent.and_then(|unspent| {
            let mut limits = split_mut(self, words);
            limits.find_map(|(limit, words)| limit.give_back(words, now, holder, unspent))
        });
        if let Some(refundable) = &refundable {
            for (limit, words) in split_mut(self, words) {
                if limit.kind() == Kind::Rate {
                    limit.refund(words, now, refundable);
                }
            }
        }
        let (looked, _) = self.look(words, now, &Request::of(0))?;
        let available = looked.remaining();
        let allowance = split_mut(self, words)
            .find_map(|(limit, words)| limit.grant(words, now, (holder, wants), available));
        let granted = Request::of(allowance.map_or(0, |allowance| allowance.left));
        for (limit, words) in split_mut(self, words) {
            if limit.kind() == Kind::Rate {
                let _ = limit.decide(words, now, &granted)?; // grants: all these limits have as much
            }
        }
        let allowance = allowance.map(|allowance| match allowance.left {
            0 => Allowance::default(), // a grant of nothing has no time
            _ => allowance,
        });
        let returned = unspent.map(|_| refundable.is_some());
        let effect =
            allowance.map_or(Effect::Decision, |allowance| Effect::Budget { returned, allowance });
        Ok(Verdict { effect, ..self.looked_at(words, now)? })
    }

    fn settle(&self, words: &mut [u64], now: Timestamp, settlement: &Settlement) {
        let Settlement { granted_at, reserved, actual } = *settlement;
        for (limit, words) in split_mut(self, words) {
            match actual.checked_sub(reserved) {
                Some(0) => {}
                Some(more) => limit.charge(words, now, more),
                None => {
                    let (units, granted) = (reserved.saturating_sub(actual), reserved);
                    let after = now.saturating_since(granted_at);
                    limit.refund(words, now, &Refundable { units, granted, granted_at, after });
                }
            }
        }
    }

    /// The time at which all limits of the key decide. Slices that are shared with other keys may have seen
    /// later times; the latest time that is not a jump ahead counts.
    pub(crate) fn taken_at(&self, words: &[u64], now: Timestamp) -> Timestamp {
        let period = self.period();
        let mut taken = now;
        loop {
            let newest = split(self, words).map(|(limit, words)| limit.newest_and_reset(words).0);
            let later = newest.map(|newest| taken.taken_after(newest, period)).max();
            match later.filter(|later| *later > taken) {
                Some(later) => taken = later, // times within a period of this one count too
                None => return taken,
            }
        }
    }
}

/// The same decision as a refusal that no wait ends.
const fn for_ever(looked: Decision) -> Decision {
    let (limit, remaining) = (looked.limit(), looked.remaining());
    let (retry_after, reset_after) = (Micros::MAX, looked.reset_after());
    Decision::Deny { limit, remaining, retry_after, reset_after }
}

/// Each limit with its own words.
fn split<'a>(limits: &'a Limits, words: &'a [u64]) -> impl Iterator<Item = (&'a Limit, &'a [u64])> {
    limits.split(words).flat_map(|(slice, words)| slice.split(words))
}

fn split_mut<'a>(
    limits: &'a Limits,
    mut words: &'a mut [u64],
) -> impl Iterator<Item = (&'a Limit, &'a mut [u64])> {
    limits.iter().map(move |each| {
        let at = each.limit.words().min(words.len());
        let (own, rest) = core::mem::take(&mut words).split_at_mut(at);
        words = rest;
        (&each.limit, own)
    })
}
