//! Several limits on one request, all or nothing.

#[cfg(test)]
mod tests;

use alloc::vec::Vec;

use tidegate_core::{CostExceedsCapacity, Decision, InvalidState, Micros, Timestamp};

use crate::limit::Limit;
use crate::policy::Policy;

/// A decision and what each limit of the policy says, in the policy's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The answer to the request.
    pub decision: Decision,
    /// What each limit says, as it stands after the decision: in a refusal, the limits that would
    /// have granted say so, and nothing was taken from them.
    pub limits: Vec<Decision>,
}

impl Policy {
    /// The most that a single request can ever be granted.
    #[must_use]
    pub fn most_at_once(&self) -> u64 {
        self.limits().iter().map(|limit| limit.limit.capacity()).min().unwrap_or(0)
    }

    /// Decides on a request of `cost` units at `now`: granted if every limit grants it, and taken
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
        cost: u64,
    ) -> Result<Decision, CostExceedsCapacity> {
        if let [only] = self.limits() {
            return only.limit.decide(words, now, cost);
        }
        let now = self.taken_at(words, now);
        if cost == 0 {
            return self.combined(words, now, 0);
        }
        let decision = self.combined(words, now, cost)?;
        for (limit, words) in split_mut(self, words) {
            if decision.is_allowed() {
                let _ = limit.decide(words, now, cost)?; // as just combined
            } else {
                limit.advance(words, now);
            }
        }
        Ok(decision)
    }

    /// [`decide`](Self::decide), and what each limit says.
    ///
    /// # Errors
    /// As [`decide`](Self::decide).
    pub fn decide_and_explain(
        &self,
        words: &mut [u64],
        now: Timestamp,
        cost: u64,
    ) -> Result<Verdict, CostExceedsCapacity> {
        let now = self.taken_at(words, now);
        let decision = self.decide(words, now, cost)?;
        let mut limits = Vec::with_capacity(self.limits().len());
        for (limit, words) in split(self, words) {
            // after a grant the state holds the answer; after a refusal the request still does
            let now_free = limit.peek(words, now, 0)?;
            limits.push(match limit.peek(words, now, cost)? {
                refused @ Decision::Deny { .. } if !decision.is_allowed() => refused,
                _ => now_free,
            });
        }
        Ok(Verdict { decision, limits })
    }

    /// How long a store must keep this state from `now` on: then it equals a fresh one.
    #[must_use]
    pub fn time_to_live(&self, words: &[u64], now: Timestamp) -> Micros {
        split(self, words)
            .map(|(limit, words)| {
                // spans rather than a time: a clock that stands at its end still has a tomorrow
                let (newest, reset) = limit.newest_and_reset(words);
                let from_now = newest.saturating_since(now).0.saturating_add(reset.0);
                Micros(from_now.saturating_sub(now.saturating_since(newest).0))
            })
            .max()
            .unwrap_or_default()
            .min(Micros::MAX)
    }

    /// # Errors
    /// [`InvalidState`] if no decision of this policy can have left these words behind.
    pub fn accepts(&self, words: &[u64]) -> Result<(), InvalidState> {
        if words.len() != self.words() {
            return Err(InvalidState);
        }
        split(self, words).try_for_each(|(limit, words)| limit.accepts(words))
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
        cost: u64,
    ) -> Result<Decision, CostExceedsCapacity> {
        let mut allowed = true;
        let mut retry_after = Micros::ZERO;
        for (limit, words) in split(self, words) {
            let decision = limit.peek(words, now, cost)?;
            allowed &= decision.is_allowed();
            retry_after = retry_after.max(decision.retry_after());
        }
        // a refusal takes nothing, so what remains is what a peek finds
        let taken = if allowed { cost } else { 0 };
        let (mut limit, mut remaining) = (0, u64::MAX);
        let mut reset_after = Micros::ZERO;
        for (each, words) in split(self, words) {
            let decision = each.peek(words, now, taken)?;
            if decision.remaining() < remaining {
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

/// Each limit with its part of the state. Too short a state leaves the last ones with too little,
/// which [`Limit`] refuses.
fn split<'a>(
    policy: &'a Policy,
    mut words: &'a [u64],
) -> impl Iterator<Item = (&'a Limit, &'a [u64])> {
    policy.limits().iter().map(move |each| {
        let (own, rest) = words.split_at_checked(each.limit.words()).unwrap_or((words, &[]));
        words = rest;
        (&each.limit, own)
    })
}

fn split_mut<'a>(
    policy: &'a Policy,
    mut words: &'a mut [u64],
) -> impl Iterator<Item = (&'a Limit, &'a mut [u64])> {
    policy.limits().iter().map(move |each| {
        let at = each.limit.words().min(words.len());
        let (own, rest) = core::mem::take(&mut words).split_at_mut(at);
        words = rest;
        (&each.limit, own)
    })
}
