//! The state of a key with holds, while an operation changes it.

use super::counter::Counting;
use super::list::{Hold, Holds, Outcome};
use super::terms::{Committed, OnExpiry, Reserved, Terms};
use crate::decision::{Answer, CostExceedsCapacity, Decision};
use crate::lease::Id;
use crate::time::{Micros, Timestamp};
use crate::window::Refund;

/// The state of a key.
pub(super) struct Key<'a> {
    pub(super) limiter: &'a dyn Counting,
    pub(super) terms: Terms,
    /// The newest time, which stands at the same place for all limiters.
    pub(super) newest: &'a mut u64,
    /// The words of the limiter.
    pub(super) words: &'a mut [u64],
    pub(super) holds: Holds<&'a mut [u64]>,
}

impl Drop for Key<'_> {
    /// Notes the newest time once the operation is over.
    fn drop(&mut self) {
        *self.newest = self.newest().0;
    }
}

impl Key<'_> {
    pub(super) fn newest(&self) -> Timestamp {
        self.limiter.newest(self.words)
    }

    fn peek_now(&self, cost: u64) -> Answer {
        self.limiter.peek(self.words, self.newest(), cost)
    }

    /// Ends the holds that have expired at the new time.
    pub(super) fn advance(&mut self, now: Timestamp) {
        let newest = self.newest();
        let taken = now.taken_after(newest, self.limiter.period());
        if self.holds.are_none() {
            return self.limiter.advance(self.words, now);
        }
        if taken == newest {
            return; // what was due at this time has ended
        }
        // a clock that has come back from a jump ahead: holds live as long as they would have
        self.holds.shift(newest.saturating_since(taken));
        let Self { limiter, words, holds, .. } = self;
        if !holds.with_since(|since| limiter.pass(words, since, taken)) {
            limiter.advance(words, taken);
        }
        if self.holds.is_due(taken) {
            self.expire(taken);
        }
    }

    /// Ends the holds that have expired at `taken`.
    pub(super) fn expire(&mut self, taken: Timestamp) {
        while let Some(place) = self.holds.expired(taken) {
            let Hold { id, units, until, .. } = self.holds.get(place);
            let charged = match self.terms.on_expiry {
                OnExpiry::Release => 0,
                OnExpiry::Charge => units,
            };
            self.settle(place, charged);
            let outcome = Outcome { charged, late: true, is_final: false };
            self.holds.end(id, outcome, until.saturating_add(self.terms.remember));
        }
        self.holds.forget(taken);
    }

    pub(super) fn settle(&mut self, place: usize, actual: u64) {
        self.limiter.settle(self.words, &mut self.holds, place, actual);
    }

    pub(super) fn decide(&mut self, now: Timestamp, cost: u64) -> Answer {
        if self.holds.are_none() {
            return self.limiter.decide(self.words, now, cost);
        }
        self.advance(now);
        let decision = self.limiter.decide(self.words, self.newest(), cost)?;
        if decision.is_allowed() {
            self.took(cost);
        }
        Ok(decision)
    }

    pub(super) fn charge(&mut self, now: Timestamp, cost: u64) {
        self.advance(now);
        self.limiter.charge(self.words, self.newest(), cost);
        self.took(cost);
    }

    pub(super) fn refund(&mut self, refund: Refund) {
        self.limiter.give_back(self.words, &mut self.holds, refund);
    }

    /// Adds units that were taken to what came after the last hold.
    fn took(&mut self, units: u64) {
        let limiter = self.limiter;
        self.holds.with_since(|since| limiter.took(since, units));
    }

    pub(super) fn reserve(
        &mut self,
        now: Timestamp,
        id: Id,
        cost: u64,
        span: Micros,
    ) -> Result<Reserved, CostExceedsCapacity> {
        self.advance(now);
        if let Some(known) = self.known(id) {
            return Ok(known);
        }
        if cost > 0 && !self.holds.has_room() {
            return Ok(Reserved::Full { until: self.holds.next_end() });
        }
        let (taken, before) = (self.newest(), self.limiter.before(self.words));
        let decision = self.limiter.decide(self.words, taken, cost)?;
        if cost > 0 && decision.is_allowed() {
            let until = taken.saturating_add(Micros(span.0.min(self.terms.longest.0)));
            self.holds.push(Hold { id, units: cost, granted_at: taken, until }, before);
        }
        Ok(Reserved::Decided(decision))
    }

    /// The answer about an id that the key knows.
    fn known(&self, id: Id) -> Option<Reserved> {
        if let Some(place) = self.holds.find(id) {
            let Hold { units, until, .. } = self.holds.get(place);
            return Some(Reserved::Again { units, until });
        }
        self.holds.ended(id).map(|_| Reserved::Ended)
    }

    /// See [`Config::peek`](super::Config::peek). Changes the key.
    pub(super) fn peek(
        &mut self,
        now: Timestamp,
        id: Option<Id>,
        cost: u64,
    ) -> Result<Reserved, CostExceedsCapacity> {
        self.advance(now);
        let asked_at = self.newest();
        if let Some(known @ Reserved::Again { .. }) = id.and_then(|id| self.known(id)) {
            return Ok(known);
        }
        let (granted, untaken) = (self.peek_now(cost)?, self.peek_now(0)?);
        let refused_for = |retry_after| {
            let (limit, remaining) = (untaken.limit(), untaken.remaining());
            let reset_after = untaken.reset_after();
            Ok(Reserved::Decided(Decision::Deny { limit, remaining, retry_after, reset_after }))
        };
        let has_room = |holds: &Holds<&mut [u64]>| {
            let is_new = |id| holds.ended(id).is_none() && holds.has_room();
            cost == 0 || id.is_none_or(is_new)
        };
        if !granted.is_allowed() || !has_room(&self.holds) {
            self.limiter.note_refusal(self.words, asked_at, cost); // it counts once in its own wait
        }
        let mut wait = Micros::MAX;
        loop {
            let waited = self.newest().saturating_since(asked_at);
            let wait_now = self.limiter.wait(self.words, self.newest(), cost);
            let more = if has_room(&self.holds) { wait_now } else { Micros::MAX };
            if more == Micros::ZERO {
                let is_now = waited == Micros::ZERO;
                return if is_now { Ok(Reserved::Decided(granted)) } else { refused_for(waited) };
            }
            // a hold that ends makes a wait shorter, never longer
            wait = wait.min(Micros(waited.0.saturating_add(more.0)));
            let next = self.holds.next_end();
            // at the last timestamp no hold ends any more
            let is_last = self.holds.are_none() || next <= self.newest();
            if is_last || next.saturating_since(asked_at) >= wait {
                return refused_for(wait);
            }
            self.advance(next);
        }
    }

    pub(super) fn commit(&mut self, now: Timestamp, id: Id, actual: u64) -> Committed {
        self.advance(now);
        let outcome = if let Some(place) = self.holds.find(id) {
            self.settle(place, actual);
            Outcome { charged: actual, late: false, is_final: true }
        } else {
            let ended = self.holds.ended(id);
            if let Some(Outcome { charged, late, is_final: true }) = ended {
                return Committed { charged, late };
            }
            // what an expired hold was charged counts already
            let charged = ended.map_or(0, |ended| ended.charged);
            let due = actual.saturating_sub(charged);
            self.limiter.charge(self.words, self.newest(), due);
            self.took(due);
            self.holds.forget_id(id);
            Outcome { charged: actual.max(charged), late: true, is_final: true }
        };
        self.holds.end(id, outcome, self.newest().saturating_add(self.terms.remember));
        Committed { charged: outcome.charged, late: outcome.late }
    }
}
