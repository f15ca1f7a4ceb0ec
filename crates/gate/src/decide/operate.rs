//! Decides on several limits at once, all or nothing.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use tidegate_core::lease::Held;
use tidegate_core::lease::budget::{Allowance, Refundable};
use tidegate_core::shed::suppression::Report;
use tidegate_core::{Decision, Timestamp, never};

use super::grants::{Grants, Waits};
use super::limits::{LimitFacts, Limits};
use super::together::Together;
use super::verdict::{Effect, Verdict};
use crate::key::Depth;
use crate::limit::{Budget, Grant, Kind, Offered, Operation, OperationError, Request};

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
    #[inline(always)] // otherwise the answer is moved in memory, which costs 5 ns
    pub fn decide(
        &self,
        words: &mut [u64],
        now: Timestamp,
        request: &Request,
    ) -> Result<Decision, OperationError> {
        match self.only() {
            Some(only) => only.decide(words, now, request),
            None => Ok(self.decide_together(words, now, request)?),
        }
    }

    #[inline(never)] // keeps the path of a single limit short
    fn decide_together(
        &self,
        words: &mut [u64],
        now: Timestamp,
        request: &Request,
    ) -> Result<Decision, OperationError> {
        self.check_length(words)?;
        let now = self.taken_at(words, now);
        match request.cost {
            0 => self.peek_each(words, now, request, |_, _| {}),
            _ => self.take(words, now, request, |_, _| {}),
        }
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
        self.check_length(words)?;
        if let Operation::Decide(request) = operation
            && request.cost > 0
        {
            return self.decide_and_say(words, now, request); // most operations
        }
        let names_no_payer = matches!(
            operation,
            Operation::Refund(_) | Operation::RefundOf(..) | Operation::Charge(_)
        );
        if self.have_payers() && names_no_payer {
            return Err(OperationError::UnknownPayer);
        }
        if let Operation::Reset(depth) = operation {
            self.reset(words, *depth);
        }
        let now = self.taken_at(words, now);
        let looks = matches!(
            operation,
            Operation::Decide(_)
                | Operation::Peek(_)
                | Operation::Explain(_)
                | Operation::Reset(_)
                | Operation::Block(_)
        );
        if !looks {
            // all limits keep one clock, even those that the operation does not change
            split_mut(self, words)
                .for_each(|(LimitFacts { limit, .. }, words)| limit.advance(words, now));
        }
        match operation {
            Operation::Decide(request) | Operation::Peek(request) => {
                self.looked_at(words, now, request)
            }
            Operation::Explain(request) => self.look_why(words, now, request),
            Operation::Refund(units) => {
                self.refund(words, now, Grant { at: now, units: *units }, *units);
                self.looked_at(words, now, &Request::of(0))
            }
            Operation::RefundOf(grant, units) => {
                self.refund(words, now, *grant, *units);
                self.looked_at(words, now, &Request::of(0))
            }
            Operation::Charge(units) => {
                for (LimitFacts { limit, .. }, words) in split_mut(self, words) {
                    limit.charge(words, now, *units);
                }
                self.looked_at(words, now, &Request::of(0))
            }
            Operation::Commit(id, actual) => {
                let effect = self.commit(words, now, *id, *actual);
                Ok(Verdict { effect, ..self.looked_at(words, now, &Request::of(0))? })
            }
            Operation::Budget(budget) => self.budget(words, now, budget),
            Operation::Report(offered) => {
                self.report(words, now, offered);
                self.looked_at(words, now, &Request::of(0))
            }
            Operation::Heartbeat(id) | Operation::Count(id, _) | Operation::Release(id) => {
                let live = self.hold(words, now, operation);
                let effect = live.map_or(Effect::Decision, |live| Effect::Lease { live });
                let looked = Request { lease: Some(*id), ..Request::of(0) };
                Ok(Verdict { effect, ..self.looked_at(words, now, &looked)? })
            }
            // the words of the limits do not say whether the key is blocked
            Operation::Reset(_) | Operation::Block(_) => {
                self.looked_at(words, now, &Request::of(0))
            }
        }
    }

    fn report(&self, words: &mut [u64], now: Timestamp, offered: &Offered) {
        let Offered { at, admitted, suppressed } = *offered;
        // a report from a clock that is ahead counts now, because no caller moves a key's clock
        let offered_at = at.map_or(now, |at| now.min(at));
        let report = Report { offered_at, admitted, suppressed };
        for (LimitFacts { limit, .. }, words) in split_mut(self, words) {
            limit.report(words, now, report);
        }
    }

    /// Renews or ends a lease, and returns whether it was live; `None` if no limit holds leases.
    fn hold(&self, words: &mut [u64], now: Timestamp, operation: &Operation) -> Option<bool> {
        let is_release = matches!(operation, Operation::Release(_));
        let held = split_mut(self, words).filter_map(|(each, words)| {
            let held = each.limit.hold(words, now, operation)?;
            // a limit in shadow ends no lease
            Some(held != Held::Unknown || (each.shadow && !is_release))
        });
        // a release succeeds if any limit held the lease; a lease is live if all limits hold it
        match is_release {
            true => held.reduce(|one, other| one | other),
            false => held.reduce(|one, other| one & other),
        }
    }

    /// Does what [`decide`](Self::decide) does with a request that costs something, and returns what each limit says.
    fn decide_and_say(
        &self,
        words: &mut [u64],
        now: Timestamp,
        request: &Request,
    ) -> Result<Verdict, OperationError> {
        let now = self.taken_at(words, now);
        let (mut each, mut payer) = (self.room_for_each(), None);
        let decision = self.take(words, now, request, |said, pays| {
            payer = if pays { u8::try_from(each.len()).ok() } else { payer };
            each.push(said);
        })?;
        let paid = payer.map_or(Effect::Decision, |by| Effect::Paid { by });
        let effect = match request.reserves() {
            true => self.reserved(words, now, request, (&decision, payer)).unwrap_or(paid),
            false => paid,
        };
        Ok(Verdict { effect, ..self.explained(words, now, decision, each) })
    }

    /// More words or fewer are those of other limits.
    const fn check_length(&self, words: &[u64]) -> Result<(), OperationError> {
        if words.len() == self.words() { Ok(()) } else { Err(OperationError::InvalidState) }
    }

    /// Makes `used` units count as used at `now`, on each limit that counts units.
    pub(crate) fn set_used(&self, words: &mut [u64], now: Timestamp, used: u64) {
        let now = self.taken_at(words, now);
        for (LimitFacts { limit, .. }, words) in split_mut(self, words) {
            if limit.kind() == Kind::Rate {
                words.fill(0);
            }
            limit.advance(words, now);
            limit.set_used(words, now, used);
        }
    }

    /// Clears the limits that count by this depth or by more of the key.
    pub(crate) fn reset(&self, mut words: &mut [u64], depth: Depth) {
        for record in self.records() {
            let at = record.words().min(words.len());
            let (own, rest) = words.split_at_mut(at);
            if record.depth() >= depth {
                own.fill(0);
            }
            words = rest;
        }
    }

    /// Takes the cost from all limits or from none, of the payers from one, and tells `each` what every limit says and whether it
    /// pays. A limit is evaluated at most twice.
    #[inline(always)] // each caller has a copy of its own anyway; a call would move the answer in memory
    fn take(
        &self,
        words: &mut [u64],
        now: Timestamp,
        request: &Request,
        mut each: impl FnMut(Decision, bool),
    ) -> Result<Decision, OperationError> {
        if let Some(only) = self.only() {
            let said = only.decide(words, now, request)?; // there is no other limit to ask first
            each(said, false);
            return Ok(said);
        }
        if let Some(id) = self.repeats(words, now, request) {
            return self.repeat(words, now, (id, request), each);
        }
        let lacks_lease =
            |each: &LimitFacts| each.kind == Kind::Lease && each.limit.needs_lease(request);
        if request.lease.is_none() && self.each().iter().any(lacks_lease) {
            return Err(OperationError::NeedsLease);
        }
        let grants = self.grants(words, now, request)?;
        if !grants.pass() {
            return self.refuse_all(words, now, request, (grants, |said| each(said, false)));
        }
        let mut together = Together::default();
        for ((facts, words), place) in split_mut(self, words).zip(0_u8..16) {
            let said = match facts.shadow || facts.pays {
                false => facts.limit.decide(words, now, request)?, // grants
                true => grants.part(place).take_softly(&facts.limit, words, now, request)?,
            };
            together.add(facts, &said);
            each(said, grants.pays(place));
        }
        Ok(together.allow())
    }

    /// Refuses a request, whatever the limits say, and lets them record the refusal.
    pub(crate) fn refuse(
        &self,
        words: &mut [u64],
        now: Timestamp,
        request: &Request,
    ) -> Result<Verdict, OperationError> {
        let now = self.taken_at(words, now);
        let grants = self.grants(words, now, request)?;
        let mut each = self.room_for_each();
        let record = |said| each.push(said);
        let decision = self.refuse_all(words, now, request, (grants, record))?;
        Ok(self.explained(words, now, decision, each))
    }

    fn refuse_all(
        &self,
        words: &mut [u64],
        now: Timestamp,
        request: &Request,
        (grants, mut each): (Grants, impl FnMut(Decision)),
    ) -> Result<Decision, OperationError> {
        let mut together = Together::default();
        let mut waits = Waits::default();
        for ((facts, words), part) in split_mut(self, words).zip(grants.parts()) {
            let (said, wait) =
                part.refuse(&facts.limit, words, now, request, grants.blocked_for())?;
            together.add(facts, &said);
            waits.add(part, wait);
            each(said);
        }
        Ok(together.deny(waits.all()))
    }

    /// Answers as [`take`](Self::take) would, except for refusals that would be recorded. Changes nothing.
    fn peek_each(
        &self,
        words: &[u64],
        now: Timestamp,
        request: &Request,
        mut each: impl FnMut(Decision, bool),
    ) -> Result<Decision, OperationError> {
        if let Some(only) = self.only() {
            let said = only.peek(words, now, request)?;
            each(said, false);
            return Ok(said);
        }
        let grants = self.grants(words, now, request)?;
        let passes = grants.pass();
        let mut together = Together::default();
        let mut waits = Waits::default();
        for ((facts, words), part) in split(self, words).zip(grants.parts()) {
            let asked = match part.grants && !(passes && part.takes()) {
                true => Cow::Owned(request.peek()), // nothing is taken from it
                false => part.asked(&facts.limit, request),
            };
            let said = part.look(&facts.limit, words, now, &asked, grants.blocked_for())?;
            together.add(facts, &said);
            waits.add(part, said.retry_after());
            each(said, passes && part.pays() && request.cost > 0);
        }
        Ok(if passes { together.allow() } else { together.deny(waits.all()) })
    }

    pub(super) fn looked_at(
        &self,
        words: &[u64],
        now: Timestamp,
        request: &Request,
    ) -> Result<Verdict, OperationError> {
        let (mut each, mut payer) = (self.room_for_each(), None);
        let decision = self.peek_each(words, now, request, |said, pays| {
            payer = if pays { u8::try_from(each.len()).ok() } else { payer };
            each.push(said);
        })?;
        let effect = payer.map_or(Effect::Decision, |by| Effect::Paid { by });
        Ok(Verdict { effect, ..self.explained(words, now, decision, each) })
    }

    fn room_for_each(&self) -> Vec<Decision> {
        Vec::with_capacity(self.each().len())
    }

    fn explained(
        &self,
        words: &[u64],
        now: Timestamp,
        decision: Decision,
        limits: Vec<Decision>,
    ) -> Verdict {
        let factor = split(self, words)
            .find_map(|(LimitFacts { limit, .. }, words)| limit.factor(words, now));
        let (effect, degraded) = (Effect::Decision, false);
        Verdict { at: now, decision, limits, factor, effect, degraded }
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
            limits.find_map(|(LimitFacts { limit, .. }, words)| {
                limit.give_back(words, now, holder, unspent)
            })
        });
        if let Some(refundable) = &refundable {
            for (LimitFacts { limit, .. }, words) in split_mut(self, words) {
                if limit.kind() == Kind::Rate {
                    limit.refund(words, now, refundable);
                }
            }
        }
        let available = self.peek_each(words, now, &Request::of(0), |_, _| {})?.remaining();
        let allowance = split_mut(self, words).find_map(|(LimitFacts { limit, .. }, words)| {
            limit.grant(words, now, (holder, wants), available)
        });
        let granted = Request::of(allowance.map_or(0, |allowance| allowance.left));
        for (LimitFacts { limit, .. }, words) in split_mut(self, words) {
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
        Ok(Verdict { effect, ..self.looked_at(words, now, &Request::of(0))? })
    }

    fn refund(&self, words: &mut [u64], now: Timestamp, grant: Grant, units: u64) {
        let Grant { at: granted_at, units: granted } = grant;
        let after = now.saturating_since(granted_at);
        let unused = Refundable { units: units.min(granted), granted, granted_at, after };
        for (LimitFacts { limit, shadow, .. }, words) in split_mut(self, words) {
            if units == 0 || granted_at > now || (*shadow && limit.capacity() < granted) {
                continue; // nothing comes back, or the limit can have taken nothing
            }
            limit.refund(words, now, &unused);
        }
    }

    /// The time at which all limits of the key decide. Records that are shared with other keys may have seen
    /// later times; the latest time that is not a jump ahead counts.
    #[inline]
    pub(crate) fn taken_at(&self, words: &[u64], now: Timestamp) -> Timestamp {
        match self.newest(words).any(|newest| newest > now) {
            false => now,
            true => self.taken_before(words, now),
        }
    }

    #[cold]
    fn taken_before(&self, words: &[u64], now: Timestamp) -> Timestamp {
        let period = self.period();
        let mut taken = now;
        loop {
            let later = self.newest(words).map(|newest| taken.taken_after(newest, period)).max();
            match later.filter(|later| *later > taken) {
                Some(later) => taken = later, // times within a period of this one count too
                None => return taken,
            }
        }
    }
}

/// Each limit with its own words.
pub(super) fn split<'a>(
    limits: &'a Limits,
    mut words: &'a [u64],
) -> impl Iterator<Item = (&'a LimitFacts, &'a [u64])> {
    limits.each().iter().map(move |each| {
        let split = words.split_at_checked(each.words);
        let (own, rest) = split.unwrap_or_else(|| never((words, &[])));
        words = rest;
        (each, own)
    })
}

pub(super) fn split_mut<'a>(
    limits: &'a Limits,
    mut words: &'a mut [u64],
) -> impl Iterator<Item = (&'a LimitFacts, &'a mut [u64])> {
    limits.each().iter().map(move |each| {
        let at = words.len().min(each.words);
        let (own, rest) = core::mem::take(&mut words).split_at_mut(at);
        words = rest;
        (each, own)
    })
}
