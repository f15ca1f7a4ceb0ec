//! What a limit does with its state: the operations of `core`, on words.

use alloc::string::String;
use alloc::vec::Vec;

use tidegate_core::hold::{Committed, Counter, Known};
use tidegate_core::lease::budget::{Allowance, Refundable};
use tidegate_core::lease::{Held, Id};
use tidegate_core::shed::Probability;
use tidegate_core::shed::suppression::Report;
use tidegate_core::{Ahead, Decision, InvalidState, Limiter, Micros, Timestamp, never};

use super::algorithm::{Algorithm, Decided};
use super::request::{Operation, OperationError, Request, Unspent};
use super::{Kind, Limit, ask, holding};

/// Evaluates an expression about the limiter and its state in `$words`; `None` if the words have another
/// length.
macro_rules! ask_about {
    ($limit:expr, $words:expr, |$limiter:ident, $state:ident| $question:expr) => {
        ask!($limit, |$limiter| $limiter.state($words).ok().map(|$state| $question))
    };
    ($limit:expr, $words:expr, |$limiter:ident, mut $state:ident| $question:expr) => {
        ask!($limit, |$limiter| $limiter.state($words).ok().map(|mut $state| $question))
    };
}

impl Limit {
    /// The number of words of a state.
    #[must_use]
    #[inline]
    pub fn words(&self) -> usize {
        ask!(self, |limiter| limiter.words())
    }

    /// The most units that can be granted at once.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        ask!(self, |limiter| Algorithm::capacity(limiter))
    }

    /// The span in which the capacity comes back.
    #[must_use]
    pub fn period(&self) -> Micros {
        ask!(self, |limiter| limiter.period())
    }

    /// Decides on a request. A cost of 0 is a peek.
    ///
    /// # Errors
    /// Fails with [`OperationError`]; the state is unchanged.
    #[inline(always)]
    #[expect(
        clippy::needless_question_mark,
        reason = "otherwise the answer is moved in memory, which costs 5 ns"
    )]
    pub fn decide(
        &self,
        words: &mut [u64],
        now: Timestamp,
        request: &Request,
    ) -> Result<Decision, OperationError> {
        // the most frequent limiter, so short that a call would double its time
        if let Self::TokenBucket(bucket) = self
            && let Ok(mut state) = bucket.state(&mut *words)
        {
            return Algorithm::decide(bucket, &mut state, now, request);
        }
        Ok(self.decide_by_whichever(words, now, request)?)
    }

    #[inline(never)]
    fn decide_by_whichever(&self, words: &mut [u64], now: Timestamp, request: &Request) -> Decided {
        ask_about!(self, words, |limiter, mut state| Algorithm::decide(
            limiter, &mut state, now, request
        ))
        .unwrap_or(Err(OperationError::InvalidState))
    }

    /// Answers as [`decide`](Self::decide) would, and changes nothing.
    ///
    /// After a grant, a peek at a cost of 0 repeats the answer.
    ///
    /// # Errors
    /// Fails as [`decide`](Self::decide) does.
    pub fn peek(
        &self,
        words: &[u64],
        now: Timestamp,
        request: &Request,
    ) -> Result<Decision, OperationError> {
        ask_about!(self, words, |limiter, state| Algorithm::peek(limiter, &state, now, request))
            .unwrap_or(Err(OperationError::InvalidState))
    }

    /// Whether [`decide`](Self::decide) would grant the request.
    ///
    /// # Errors
    /// Fails as [`decide`](Self::decide) does.
    #[inline(always)] // a call would move the answer in memory
    pub(crate) fn grants(
        &self,
        words: &[u64],
        now: Timestamp,
        request: &Request,
    ) -> Result<bool, OperationError> {
        ask_about!(self, words, |limiter, state| {
            Algorithm::peek(limiter, &state, now, request).map(|said| said.is_allowed())
        })
        .unwrap_or(Err(OperationError::InvalidState))
    }

    /// Moves the state to `now`, as every decision does first. Takes nothing.
    pub fn advance(&self, words: &mut [u64], now: Timestamp) {
        let _ = ask_about!(self, words, |limiter, mut state| limiter.advance(&mut state, now));
    }

    /// Refuses a request that this limiter `grants`, or refuses too, and records the refusal. A limiter that
    /// records no refusals only moves to `now`. Returns what the limiter says of the request, and how long the
    /// same request then has to wait because of it.
    ///
    /// # Errors
    /// Fails as [`decide`](Self::decide) does.
    pub fn refuse(
        &self,
        words: &mut [u64],
        now: Timestamp,
        request: &Request,
        grants: bool,
    ) -> Result<(Decision, Micros), OperationError> {
        ask_about!(self, words, |limiter, mut state| {
            limiter.refuse(&mut state, now, request, grants)
        })
        .unwrap_or(Err(OperationError::InvalidState))
    }

    /// Records a request that any limiter of the policy refused. Returns how long the same request then has to wait because of
    /// recorded refusals.
    pub(crate) fn note_refusal(
        &self,
        words: &mut [u64],
        now: Timestamp,
        request: &Request,
    ) -> Micros {
        ask_about!(self, words, |limiter, mut state| limiter.note_refusal(&mut state, now, request))
            .unwrap_or(Micros::MAX)
    }

    /// Whether a refusal changes more of the state than its newest time.
    #[must_use]
    pub fn remembers_refusals(&self) -> bool {
        ask!(self, |limiter| limiter.remembers_refusals())
    }

    /// The kind of the limiter.
    #[must_use]
    pub fn kind(&self) -> Kind {
        ask!(self, |limiter| kind_of(limiter))
    }

    /// Whether units come back to the limiter at a rate, one after another.
    pub(crate) const fn is_bucket(&self) -> bool {
        match self {
            Self::TokenBucket(_) => true,
            Self::Holding(config) => matches!(config.counter(), Counter::TokenBucket(_)),
            _ => false,
        }
    }

    /// Whether the limiter would hold a lease for this request.
    #[must_use]
    pub fn needs_lease(&self, request: &Request) -> bool {
        ask!(self, |limiter| limiter.needs_lease(request))
    }

    /// A description of the limit in words, with exact quantities.
    #[must_use]
    pub fn describe(&self) -> String {
        ask!(self, |limiter| limiter.describe())
    }

    /// The number of the part that makes a request wait longest: a rate or the gap of a `sliding_log`. `None` if that is the whole
    /// limit.
    pub(crate) fn held_by(&self, words: &[u64], now: Timestamp, cost: u64) -> Option<u8> {
        ask_about!(self, words, |limiter, state| Algorithm::held_by(limiter, &state, now, cost))?
    }

    /// A description of the part with this number.
    pub(crate) fn describe_part(&self, part: u8) -> Option<String> {
        ask!(self, |limiter| Algorithm::describe_part(limiter, part))
    }

    /// Renews, counts or releases a lease; `None` if the limiter holds no leases, or for another operation.
    pub fn hold(&self, words: &mut [u64], now: Timestamp, operation: &Operation) -> Option<Held> {
        ask_about!(self, words, |limiter, mut state| limiter.hold(&mut state, now, operation))?
    }

    /// Charges what a hold has really cost, once; `None` if the limiter does not hold.
    pub fn commit(
        &self,
        words: &mut [u64],
        now: Timestamp,
        id: Id,
        actual: u64,
    ) -> Option<Committed> {
        let Self::Holding(limiter) = self else { return None };
        Some(limiter.commit(&mut limiter.state(words).ok()?, now, id, actual))
    }

    /// The units of a live hold and the time at which it ends; `None` if the limiter has no such hold.
    #[must_use]
    pub fn held(&self, words: &[u64], id: Id) -> Option<(u64, Timestamp)> {
        let Self::Holding(limiter) = self else { return None };
        limiter.find(&limiter.state(words).ok()?, id)
    }

    /// How many reservations a key may have; `None` if the limit does not hold.
    pub(crate) const fn most_held(&self) -> Option<u64> {
        match self {
            Self::Holding(limiter) => Some(limiter.terms().most),
            _ => None,
        }
    }

    /// What the limit knows of a reservation's id at `now`, and how long the id is still known if the reservation has ended. `None` if
    /// the id is new, or if the limit does not hold.
    pub(crate) fn knows(&self, words: &[u64], now: Timestamp, id: Id) -> Option<KnownFor> {
        self.with_holds(words, now, |limiter, state| match limiter.known(state, id)? {
            Known::Live => Some(KnownFor::Live),
            Known::Ended { until } => Some(KnownFor::Ended(until.saturating_since(state.newest()))),
        })?
    }

    /// Whether the limit has no place at `now` for a reservation of this id, or for a new one. `false` if the limit knows the id, or if
    /// it does not hold.
    pub(crate) fn is_full(&self, words: &[u64], now: Timestamp, id: Option<Id>) -> bool {
        let is_full = self.with_holds(words, now, |limiter, state| {
            let is_known = id.is_some_and(|id| limiter.known(state, id).is_some());
            !is_known && !limiter.has_room(state)
        });
        is_full.unwrap_or(false)
    }

    /// Looks at the holds as they are at `now`; `None` if there are none.
    fn with_holds<R>(
        &self,
        words: &[u64],
        now: Timestamp,
        look: impl FnOnce(&holding::Config, &holding::State<&mut [u64]>) -> R,
    ) -> Option<R> {
        let Self::Holding(limiter) = self else { return None };
        if limiter.has_no_holds(&limiter.state(words).ok()?) {
            return None;
        }
        let mut copy = Vec::from(words); // what ends until now has not ended in the state yet
        let mut state = limiter.state(&mut copy[..]).ok()?;
        limiter.advance(&mut state, now);
        Some(look(limiter, &state))
    }

    /// Grants a holder some of the `available` units; `None` if the limiter is not a budget.
    pub fn grant(
        &self,
        words: &mut [u64],
        now: Timestamp,
        holder_wants: (Id, u64),
        available: u64,
    ) -> Option<Allowance> {
        ask_about!(self, words, |limiter, mut state| {
            Algorithm::grant(limiter, &mut state, now, holder_wants, available)
        })?
    }

    /// Takes back a holder's unspent units; `None` if the limiter is not a budget, or has no such grant.
    pub fn give_back(
        &self,
        words: &mut [u64],
        now: Timestamp,
        holder: Id,
        unspent: Unspent,
    ) -> Option<Refundable> {
        ask_about!(self, words, |limiter, mut state| {
            Algorithm::give_back(limiter, &mut state, now, holder, unspent)
        })?
    }

    /// Takes over the leases, or the units with their times, of another limiter of the same algorithm. Units
    /// are scaled by `ratio`. `false` if the algorithms differ or keep nothing of this kind.
    pub(crate) fn adopts(
        &self,
        own: &mut [u64],
        old: &Self,
        words: &[u64],
        ratio: (u64, u64),
    ) -> bool {
        ask!(self, |limiter| adopt(limiter, own, (old, words), ratio)).unwrap_or(false)
    }

    /// Goes on with a state of a limit of the same algorithm and [count](Self::count).
    pub(crate) fn go_on_from(&self, words: &mut [u64], old: &Self) {
        let _ = ask!(self, |limiter| go_on(limiter, words, old));
    }

    /// The fraction of the load that reporters must refuse; `None` if the limiter has no reporters.
    #[must_use]
    pub fn factor(&self, words: &[u64], now: Timestamp) -> Option<Probability> {
        ask_about!(self, words, |limiter, state| Algorithm::factor(limiter, &state, now))?
    }

    /// Counts the load that a reporter was offered.
    pub fn report(&self, words: &mut [u64], now: Timestamp, report: Report) {
        let _ = ask_about!(self, words, |limiter, mut state| {
            Algorithm::report(limiter, &mut state, now, report)
        });
    }

    /// The units that count as used at the newest time, which may exceed the capacity; `None` for a limiter
    /// that counts no units.
    pub(crate) fn used(&self, words: &[u64]) -> Option<u64> {
        ask_about!(self, words, |limiter, state| Algorithm::used(limiter, &state))?
    }

    /// How many units the state remembers, or leases; `None` for a limiter that counts neither.
    pub(crate) fn remembered(&self, words: &[u64]) -> Option<u64> {
        ask_about!(self, words, |limiter, state| Algorithm::remembered(limiter, &state))?
    }

    /// Takes units that were already spent, even if fewer are available.
    pub fn charge(&self, words: &mut [u64], now: Timestamp, cost: u64) {
        let _ = ask_about!(self, words, |limiter, mut state| Algorithm::charge(
            limiter, &mut state, now, cost
        ));
    }

    /// Makes `used` units count as used at `now`, in place of those that count in a state that was advanced to
    /// `now`. Changes nothing for a limiter that counts no units.
    pub(crate) fn set_used(&self, words: &mut [u64], now: Timestamp, used: u64) {
        let Some(counted) = self.used(words) else { return };
        if let Some(more) = used.checked_sub(counted) {
            self.charge(words, now, more);
        } else {
            let units = counted.saturating_sub(used);
            let after = Micros::ZERO;
            self.refund(words, now, &Refundable { units, granted: units, granted_at: now, after });
        }
    }

    /// Counts at `now` what counted as used under another limit, `ratio` units for each. Changes nothing if one of the two counts no
    /// units.
    pub(crate) fn continue_used(
        &self,
        words: &mut [u64],
        now: Timestamp,
        (old, held): (&Self, &[u64]),
        ratio: (u64, u64),
    ) {
        let (Some(used), Some(counted)) = (old.used(held), self.used(words)) else { return };
        let mut carried = super::scaled(used, ratio);
        if counted > 0 {
            // a new key has used units already, so that it gets no burst; an edit must not give one either, so
            // the remaining units stay as they were
            let more = self.capacity().saturating_sub(old.capacity());
            carried = carried.max(used.saturating_add(more));
        }
        self.set_used(words, now, carried);
    }

    /// Charges units before they are granted, as [`RateLimiter::charge_ahead`] does.
    pub(crate) fn charge_ahead(
        &self,
        words: &mut [u64],
        units: u64,
        span: Micros,
    ) -> Option<Ahead> {
        ask_about!(self, words, |limiter, mut state| {
            Algorithm::charge_ahead(limiter, &mut state, units, span)
        })?
    }

    /// Returns units that were granted and not used. The limiter then never grants more than if it had not
    /// granted them.
    pub fn refund(&self, words: &mut [u64], now: Timestamp, unused: &Refundable) {
        let _ = ask_about!(self, words, |limiter, mut state| Algorithm::refund(
            limiter, &mut state, now, unused
        ));
    }

    /// The index of the word that holds the newest time.
    pub(crate) fn newest_at(&self) -> usize {
        const fn newest_at<A: Algorithm>(_: &A) -> usize {
            A::NEWEST
        }
        ask!(self, |limiter| newest_at(limiter))
    }

    /// The newest time of the state.
    pub(crate) fn newest(&self, words: &[u64]) -> Timestamp {
        let newest = ask_about!(self, words, |_limiter, state| state.newest());
        newest.unwrap_or_else(|| never(Timestamp(u64::MAX)))
    }

    /// The newest time of the state, and the span after which the state equals a fresh one. Words of another limiter never
    /// equal a fresh state.
    #[must_use]
    pub fn newest_and_reset(&self, words: &[u64]) -> (Timestamp, Micros) {
        ask_about!(self, words, |limiter, state| (state.newest(), limiter.reset_after(&state)))
            .unwrap_or((Timestamp(u64::MAX), Micros::MAX))
    }

    /// Checks that decisions of this limiter can have written these words.
    ///
    /// # Errors
    /// Fails with [`InvalidState`] if they cannot.
    pub fn accepts(&self, words: &[u64]) -> Result<(), InvalidState> {
        ask_about!(self, words, |limiter, state| limiter.accepts(&state))
            .unwrap_or(Err(InvalidState))
    }
}

/// What a limit knows of a reservation's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KnownFor {
    /// The reservation is live.
    Live,
    /// The reservation has ended, and its id is forgotten after this span.
    Ended(Micros),
}

const fn kind_of<A: Algorithm>(_: &A) -> Kind {
    A::KIND
}

/// `None` if the algorithms differ, or if a state has another length.
fn adopt<A: Algorithm>(
    limiter: &A,
    own: &mut [u64],
    (old, words): (&Limit, &[u64]),
    ratio: (u64, u64),
) -> Option<bool> {
    let old = A::of(old)?;
    let (mut own, held) = (limiter.state(own).ok()?, old.state(words).ok()?);
    Some(Algorithm::adopt(limiter, &mut own, old, &held, ratio))
}

/// `None` if the algorithms differ, or if the state has another length.
fn go_on<A: Algorithm>(limiter: &A, words: &mut [u64], old: &Limit) -> Option<()> {
    let old = A::of(old)?;
    limiter.go_on_from(&mut limiter.state(words).ok()?, old);
    Some(())
}
