//! Several limits on one request, all or nothing.

#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use tidegate_core::lease::Held;
use tidegate_core::lease::budget::{Allowance, Refundable};
use tidegate_core::shed::Probability;
use tidegate_core::shed::suppression::Report;
use tidegate_core::{Decision, Micros, Timestamp};

use crate::limit::{Kind, Limit};
use crate::limits::Limits;
use crate::request::{Budget, Offered, Operation, OperationError, Request, Settlement};

/// A decision and what each limit of the policy says, in the order of [`Limits::iter`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// When it was taken: not before any other on this key. A refund names this time.
    pub at: Timestamp,
    /// The answer to the request.
    pub decision: Decision,
    /// What each limit says, as it stands after the decision: in a refusal, the limits that would
    /// have granted say so, and nothing was taken from them.
    pub limits: Vec<Decision>,
    /// Whether the lease that was renewed, counted or released was live; `None` where there was
    /// none to be.
    pub live: Option<bool>,
    /// The fraction of the load that reporters are to refuse, if the limits have one.
    pub factor: Option<Probability>,
    /// The units that a holder may spend without asking, if it was granted any.
    pub allowance: Option<Allowance>,
}

impl Verdict {
    /// That of a key which stands on a list: no limit says anything.
    #[must_use]
    pub const fn listed(at: Timestamp, decision: Decision) -> Self {
        Self { at, decision, limits: Vec::new(), live: None, factor: None, allowance: None }
    }
}

impl Limits {
    /// Decides on a request at `now`: granted if every limit grants it, and taken
    /// from all of them or from none. A cost of 0 is a peek and changes nothing.
    ///
    /// The answer names the limit with the least remaining; it is retried and reset when the last
    /// of them is. The clock is the key's: all its limits decide as at one time, and a jump ahead
    /// is one of more than the longest of their periods.
    ///
    /// # Errors
    /// [`OperationError`] if one of the limits can never grant it, or holds leases and the request names
    /// none; nothing has changed.
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

    #[inline(never)] // a policy of one limit has no use for it on its way
    fn decide_together(
        &self,
        words: &mut [u64],
        now: Timestamp,
        request: &Request,
    ) -> Result<Decision, OperationError> {
        let now = self.taken_at(words, now);
        if request.cost == 0 {
            return self.combined(words, now, request);
        }
        let decision = self.combined(words, now, request)?;
        if decision.is_allowed() {
            for (limit, words) in split_mut(self, words) {
                let _ = limit.decide(words, now, request)?; // as just combined
            }
            return Ok(decision);
        }
        let mut retry_after = decision.retry_after();
        for (limit, words) in split_mut(self, words) {
            limit.refused(words, now, request);
            if let Limit::Penalty(_) = limit {
                retry_after = retry_after.max(limit.peek(words, now, request)?.retry_after());
            }
        }
        if !self.iter().any(|each| each.limit.remembers_refusals()) {
            return Ok(decision);
        }
        // with this one remembered less may remain, and for longer
        let after = self.combined(words, now, &request.peek())?;
        let (limit, remaining) = (after.limit(), after.remaining());
        Ok(Decision::Deny { limit, remaining, retry_after, reset_after: after.reset_after() })
    }

    /// Does what is asked, and says what each limit then says. What is no request for a decision
    /// is answered as a peek would be.
    ///
    /// # Errors
    /// As [`decide`](Self::decide).
    pub fn operate(
        &self,
        words: &mut [u64],
        now: Timestamp,
        operation: &Operation,
    ) -> Result<Verdict, OperationError> {
        let now = self.taken_at(words, now);
        if !matches!(operation, Operation::Decide(_) | Operation::Unaffordable(_)) {
            // all limits keep one clock, also those that the operation has nothing to do with
            split_mut(self, words).for_each(|(limit, words)| limit.advance(words, now));
        }
        match operation {
            Operation::Decide(request) => self.decide_and_explain(words, now, request),
            Operation::Unaffordable(cost) => {
                let looked = self.decide_and_explain(words, now, &Request::of(0))?;
                let each = self.iter().zip(looked.limits);
                let limits = each.map(|(each, decision)| match each.limit.capacity() < *cost {
                    true => for_ever(decision),
                    false => decision,
                });
                let (decision, limits) = (for_ever(looked.decision), limits.collect());
                Ok(Verdict { decision, limits, ..looked })
            }
            Operation::Settle(settlement) => {
                self.settle(words, now, settlement);
                self.decide_and_explain(words, now, &Request::of(0))
            }
            Operation::Budget(budget) => self.budget(words, now, budget),
            Operation::Report(Offered { at, admitted, suppressed }) => {
                let (admitted, suppressed) = (*admitted, *suppressed);
                // of a reporter whose clock is ahead it counts now: no caller moves a key's clock
                let offered_at = at.map_or(now, |at| now.min(at));
                let report = Report { offered_at, admitted, suppressed };
                for (limit, words) in split_mut(self, words) {
                    limit.report(words, now, report);
                }
                self.decide_and_explain(words, now, &Request::of(0))
            }
            Operation::Heartbeat(id) | Operation::Count(id, _) | Operation::Release(id) => {
                let held = split_mut(self, words)
                    .filter_map(|(limit, words)| limit.hold(words, now, operation));
                let held = held.map(|held| held != Held::Unknown);
                // released if any limit held it; alive only if all still do
                let live = match operation {
                    Operation::Release(_) => held.reduce(|one, other| one | other),
                    _ => held.reduce(|one, other| one & other),
                };
                let looked = Request { lease: Some(*id), ..Request::of(0) };
                Ok(Verdict { live, ..self.decide_and_explain(words, now, &looked)? })
            }
        }
    }

    fn decide_and_explain(
        &self,
        words: &mut [u64],
        now: Timestamp,
        request: &Request,
    ) -> Result<Verdict, OperationError> {
        let before: Vec<Decision> = split(self, words)
            .map(|(limit, words)| limit.peek(words, now, request))
            .collect::<Result<_, _>>()?;
        let decision = self.decide(words, now, request)?;
        let mut limits = Vec::with_capacity(before.len());
        for ((limit, words), before) in split(self, words).zip(before) {
            limits.push(match (limit, before) {
                (_, Decision::Deny { .. }) if !decision.is_allowed() => before,
                // this refusal may have begun it
                (Limit::Penalty(_), _) => limit.peek(words, now, request)?,
                _ => limit.peek(words, now, &request.peek())?,
            });
        }
        let factor = split(self, words).find_map(|(limit, words)| limit.factor(words, now));
        Ok(Verdict { at: now, decision, limits, live: None, factor, allowance: None })
    }

    /// What comes back goes back to every rate, and what is granted is taken from every rate.
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
        let available = self.combined(words, now, &Request::of(0))?.remaining();
        let allowance = split_mut(self, words)
            .find_map(|(limit, words)| limit.grant(words, now, (holder, wants), available));
        let granted = Request::of(allowance.map_or(0, |allowance| allowance.left));
        for (limit, words) in split_mut(self, words) {
            if limit.kind() == Kind::Rate {
                let _ = limit.decide(words, now, &granted)?; // at most what all of them have
            }
        }
        let allowance = allowance.map(|allowance| match allowance.left {
            0 => Allowance::default(), // nothing was granted at any time
            _ => allowance,
        });
        let live = unspent.map(|_| refundable.is_some());
        let verdict = self.decide_and_explain(words, now, &Request::of(0))?;
        Ok(Verdict { live, allowance, ..verdict })
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

    /// One clock for the key: the time at which all its limits decide. What they share with other
    /// keys may have seen later times: of those the latest that is believed.
    fn taken_at(&self, words: &[u64], now: Timestamp) -> Timestamp {
        let period = self.period();
        let mut taken = now;
        loop {
            let newest = split(self, words).map(|(limit, words)| limit.newest_and_reset(words).0);
            let later = newest.map(|newest| taken.taken_after(newest, period)).max();
            match later.filter(|later| *later > taken) {
                Some(later) => taken = later, // and so what is within a period of that
                None => return taken,
            }
        }
    }

    /// What all limits together would answer; changes nothing.
    fn combined(
        &self,
        words: &[u64],
        now: Timestamp,
        request: &Request,
    ) -> Result<Decision, OperationError> {
        let mut allowed = true;
        let mut retry_after = Micros::ZERO;
        for (limit, words) in split(self, words) {
            let decision = limit.peek(words, now, request)?;
            allowed &= decision.is_allowed();
            retry_after = retry_after.max(decision.retry_after());
        }
        // a refusal takes nothing, so what remains is what a peek finds
        let taken = if allowed { *request } else { request.peek() };
        // places and chances are told apart from units: of them only if there is nothing else
        let least_kind = self.iter().map(|each| each.limit.kind()).min();
        let matters = |limit: &Limit| Some(limit.kind()) == least_kind;
        let (mut limit, mut remaining) = (0, u64::MAX);
        let mut reset_after = Micros::ZERO;
        let mut under_penalty = false;
        for (each, words) in split(self, words) {
            let decision = each.peek(words, now, &taken)?;
            if matters(each) && decision.remaining() < remaining {
                (limit, remaining) = (decision.limit(), decision.remaining());
            }
            under_penalty |= matches!(each, Limit::Penalty(_)) && decision.remaining() == 0;
            reset_after = reset_after.max(decision.reset_after());
        }
        if under_penalty {
            remaining = 0; // whatever the others have left
        }
        Ok(if allowed {
            Decision::Allow { limit, remaining, reset_after }
        } else {
            Decision::Deny { limit, remaining, retry_after, reset_after }
        })
    }
}

/// The same as a refusal that no waiting ends.
const fn for_ever(looked: Decision) -> Decision {
    let (limit, remaining) = (looked.limit(), looked.remaining());
    let (retry_after, reset_after) = (Micros::MAX, looked.reset_after());
    Decision::Deny { limit, remaining, retry_after, reset_after }
}

/// Each limit with its own words.
fn split<'a>(limits: &'a Limits, words: &'a [u64]) -> impl Iterator<Item = (&'a Limit, &'a [u64])> {
    limits.split(words).flat_map(|(part, words)| part.split(words))
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
