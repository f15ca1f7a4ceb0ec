//! Several limits on one request, all or nothing.

#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use tidegate_core::window::Refund;
use tidegate_core::{CostExceedsCapacity, Decision, Micros, Timestamp};

use crate::limit::Limit;
use crate::limits::Limits;
use crate::request::{Operation, Request, Settlement};

/// A decision and what each limit of the policy says, in the policy's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// When it was taken: not before any other on this key. A refund names this time.
    pub at: Timestamp,
    /// The answer to the request.
    pub decision: Decision,
    /// What each limit says, as it stands after the decision: in a refusal, the limits that would
    /// have granted say so, and nothing was taken from them.
    pub limits: Vec<Decision>,
}

impl Verdict {
    /// That of a key which stands on a list: no limit says anything.
    #[must_use]
    pub const fn listed(at: Timestamp, decision: Decision) -> Self {
        Self { at, decision, limits: Vec::new() }
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
    /// [`CostExceedsCapacity`] if one of the limits can never grant it; nothing has changed.
    #[inline]
    pub fn decide(
        &self,
        words: &mut [u64],
        now: Timestamp,
        request: &Request,
    ) -> Result<Decision, CostExceedsCapacity> {
        if let Some(only) = self.only() {
            return only.decide(words, now, request);
        }
        let now = self.taken_at(words, now);
        if request.cost == 0 {
            return self.combined(words, now, request);
        }
        let mut decision = self.combined(words, now, request)?;
        for (limit, words) in split_mut(self, words) {
            if decision.is_allowed() {
                let _ = limit.decide(words, now, request)?; // as just combined
            } else {
                limit.refused(words, now, request);
                if let Limit::Penalty(_) = limit {
                    decision = decision.at_least(limit.peek(words, now, request)?);
                }
            }
        }
        Ok(decision)
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
    ) -> Result<Verdict, CostExceedsCapacity> {
        let now = self.taken_at(words, now);
        match operation {
            Operation::Decide(request) => self.decide_and_explain(words, now, request),
            Operation::Settle(settlement) => {
                self.settle(words, now, settlement);
                self.decide_and_explain(words, now, &Request::of(0))
            }
        }
    }

    fn decide_and_explain(
        &self,
        words: &mut [u64],
        now: Timestamp,
        request: &Request,
    ) -> Result<Verdict, CostExceedsCapacity> {
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
        Ok(Verdict { at: now, decision, limits })
    }

    fn settle(&self, words: &mut [u64], now: Timestamp, settlement: &Settlement) {
        let Settlement { granted_at, reserved, actual } = *settlement;
        for (limit, words) in split_mut(self, words) {
            match actual.checked_sub(reserved) {
                Some(0) => {}
                Some(more) => limit.charge(words, now, more),
                None => {
                    let cost = reserved.saturating_sub(actual);
                    limit.refund(words, Refund { granted_at, cost });
                }
            }
        }
    }

    /// One clock for the key: the time at which all its limits decide.
    fn taken_at(&self, words: &[u64], now: Timestamp) -> Timestamp {
        let newest = split(self, words).map(|(limit, words)| limit.newest_and_reset(words).0).max();
        now.taken_after(newest.unwrap_or_default(), self.period())
    }

    /// What all limits together would answer; changes nothing.
    fn combined(
        &self,
        words: &[u64],
        now: Timestamp,
        request: &Request,
    ) -> Result<Decision, CostExceedsCapacity> {
        let mut allowed = true;
        let mut retry_after = Micros::ZERO;
        for (limit, words) in split(self, words) {
            let decision = limit.peek(words, now, request)?;
            allowed &= decision.is_allowed();
            retry_after = retry_after.max(decision.retry_after());
        }
        // a refusal takes nothing, so what remains is what a peek finds
        let taken = if allowed { *request } else { request.peek() };
        let (mut limit, mut remaining) = (0, u64::MAX);
        let mut reset_after = Micros::ZERO;
        for (each, words) in split(self, words) {
            let decision = each.peek(words, now, &taken)?;
            if each.counts_units() && decision.remaining() < remaining {
                (limit, remaining) = (decision.limit(), decision.remaining());
            }
            reset_after = reset_after.max(decision.reset_after());
        }
        Ok(if allowed {
            Decision::Allow { limit, remaining, reset_after }
        } else {
            Decision::Deny { limit, remaining, retry_after, reset_after }
        })
    }
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
