//! One limiter of a policy, whichever it is, over state kept as plain words.

pub(crate) mod algorithm;
mod budget;
mod concurrency;
mod connections;
mod describe;
mod fixed_window;
mod fleet_usage;
mod parameters;
mod penalty;
mod sliding_log;
mod sliding_window;
mod suppression;
#[cfg(test)]
mod tests;
mod token_bucket;
mod utilization;

use alloc::string::String;

use algorithm::{Algorithm, Answer};
pub(crate) use parameters::{read, write};
use tidegate_core::lease::budget::{Allowance, Refundable};
use tidegate_core::lease::{self, Held, Id};
use tidegate_core::shed::suppression::Report;
use tidegate_core::shed::{self, Probability};
use tidegate_core::window::{fixed, log, sliding};
use tidegate_core::{Decision, InvalidState, Limiter, Micros, RateLimiter, Timestamp, bucket};

use crate::request::{Operation, OperationError, Request, Unspent};

/// A configured limiter.
///
/// Its state is a slice of [`words`](Self::words) words, all zero for a key never seen. A slice of
/// another length belongs to something else: nothing is ever granted out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// [`tidegate_core::bucket`]
    TokenBucket(bucket::Config),
    /// [`tidegate_core::window::fixed`]
    FixedWindow(fixed::Config),
    /// [`tidegate_core::window::sliding`]
    SlidingWindow(sliding::Config),
    /// [`tidegate_core::window::log`]
    SlidingLog(log::Config),
    /// [`tidegate_core::lease::concurrency`]
    Concurrency(lease::concurrency::Config),
    /// [`tidegate_core::lease::connections`]
    Connections(lease::connections::Config),
    /// [`tidegate_core::lease::budget`], out of the rates of the same policy
    Budget(lease::budget::Config),
    /// [`tidegate_core::shed::fleet`]
    Fleet(shed::fleet::Config),
    /// [`tidegate_core::shed::utilization`]
    Utilization(shed::utilization::Config),
    /// [`tidegate_core::shed::suppression`]
    Suppression(shed::suppression::Config),
    /// [`tidegate_core::shed::penalty`]
    Penalty(shed::penalty::Config),
}

/// What a limit is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Kind {
    /// Units over time.
    Rate,
    /// Places held at once.
    Lease,
    /// Whom to turn away.
    Shed,
    /// Rates spent elsewhere.
    Budget,
}

/// Asks whichever limiter it is.
macro_rules! ask {
    ($limit:expr, |$limiter:ident| $question:expr) => {
        match $limit {
            Limit::TokenBucket($limiter) => $question,
            Limit::FixedWindow($limiter) => $question,
            Limit::SlidingWindow($limiter) => $question,
            Limit::SlidingLog($limiter) => $question,
            Limit::Concurrency($limiter) => $question,
            Limit::Connections($limiter) => $question,
            Limit::Budget($limiter) => $question,
            Limit::Fleet($limiter) => $question,
            Limit::Utilization($limiter) => $question,
            Limit::Suppression($limiter) => $question,
            Limit::Penalty($limiter) => $question,
        }
    };
}

use ask;

/// Asks whichever limiter it is about its state in `$words`; `None` if they are of another length.
macro_rules! ask_about {
    ($limit:expr, $words:expr, |$limiter:ident, $state:ident| $question:expr) => {
        ask!($limit, |$limiter| $limiter.state($words).ok().map(|$state| $question))
    };
    ($limit:expr, $words:expr, |$limiter:ident, mut $state:ident| $question:expr) => {
        ask!($limit, |$limiter| $limiter.state($words).ok().map(|mut $state| $question))
    };
}

impl Limit {
    /// How many words a state has.
    #[must_use]
    #[inline]
    pub fn words(&self) -> usize {
        ask!(self, |limiter| limiter.words())
    }

    /// The most that can be granted at once.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        ask!(self, |limiter| limiter.most_at_once())
    }

    /// The span in which the capacity comes back.
    #[must_use]
    pub fn period(&self) -> Micros {
        ask!(self, |limiter| limiter.period())
    }

    /// Decides; a cost of 0 is a peek.
    ///
    /// # Errors
    /// [`OperationError`]; nothing has changed.
    #[inline]
    pub fn decide(
        &self,
        words: &mut [u64],
        now: Timestamp,
        request: &Request,
    ) -> Result<Decision, OperationError> {
        // the most frequent one, and so short that a call would cost as much again
        if let Self::TokenBucket(bucket) = self
            && let Ok(mut state) = bucket.state(&mut *words)
        {
            return Ok(bucket.decide(&mut state, now, request.cost)?);
        }
        self.decide_by_whichever(words, now, request)
    }

    #[inline(never)]
    fn decide_by_whichever(&self, words: &mut [u64], now: Timestamp, request: &Request) -> Answer {
        ask_about!(self, words, |limiter, mut state| limiter.ask(&mut state, now, request))
            .unwrap_or(Err(OperationError::InvalidState))
    }

    /// What [`decide`](Self::decide) would answer; changes nothing.
    ///
    /// What was granted is also what a peek at a cost of 0 says afterwards.
    ///
    /// # Errors
    /// As [`decide`](Self::decide).
    pub fn peek(
        &self,
        words: &[u64],
        now: Timestamp,
        request: &Request,
    ) -> Result<Decision, OperationError> {
        ask_about!(self, words, |limiter, state| limiter.look(&state, now, request))
            .unwrap_or(Err(OperationError::InvalidState))
    }

    /// Moves the state to `now`, as any decision does first; consumes nothing.
    pub fn advance(&self, words: &mut [u64], now: Timestamp) {
        let _ = ask_about!(self, words, |limiter, mut state| limiter.advance(&mut state, now));
    }

    /// Takes notice of a request that was refused, by this limiter or another of the same policy,
    /// and says how long the same request now has to wait for what this limiter remembers of
    /// refusals. A limiter that remembers none moves to `now`.
    pub fn refused(&self, words: &mut [u64], now: Timestamp, request: &Request) -> Micros {
        ask_about!(self, words, |limiter, mut state| limiter.note_refusal(&mut state, now, request))
            .unwrap_or_default()
    }

    /// Whether a refusal leaves more than the newest time behind.
    #[must_use]
    pub fn remembers_refusals(&self) -> bool {
        ask!(self, |limiter| limiter.remembers_refusals())
    }

    /// What it is about.
    #[must_use]
    pub fn kind(&self) -> Kind {
        ask!(self, |limiter| kind_of(limiter))
    }

    /// Whether it would hold a lease for this request.
    #[must_use]
    pub fn needs_lease(&self, request: &Request) -> bool {
        ask!(self, |limiter| limiter.needs_lease(request))
    }

    /// The limit in words, every quantity exact.
    #[must_use]
    pub fn describe(&self) -> String {
        ask!(self, |limiter| limiter.describe())
    }

    /// Renews, counts or releases a lease; `None` if it is a limiter without leases, or another
    /// operation.
    pub fn hold(&self, words: &mut [u64], now: Timestamp, operation: &Operation) -> Option<Held> {
        ask_about!(self, words, |limiter, mut state| limiter.hold(&mut state, now, operation))?
    }

    /// Grants a holder units out of the `available` ones; `None` if it is no budget.
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

    /// What comes back of a holder's units; `None` if it is no budget, or if nothing does.
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

    /// Takes over what another limiter of the same algorithm holds, or remembers by its time: so many
    /// units for so many. `false` if it is another algorithm or has no such things.
    pub(crate) fn adopts(
        &self,
        own: &mut [u64],
        old: &Self,
        words: &[u64],
        ratio: (u64, u64),
    ) -> bool {
        ask!(self, |limiter| adopt(limiter, own, (old, words), ratio)).unwrap_or(false)
    }

    /// The fraction of the load that reporters are to refuse; `None` if there are none.
    #[must_use]
    pub fn factor(&self, words: &[u64], now: Timestamp) -> Option<Probability> {
        ask_about!(self, words, |limiter, state| Algorithm::factor(limiter, &state, now))?
    }

    /// Counts what a reporter has seen.
    pub fn report(&self, words: &mut [u64], now: Timestamp, report: Report) {
        let _ = ask_about!(self, words, |limiter, mut state| {
            Algorithm::report(limiter, &mut state, now, report)
        });
    }

    /// The units that count as used at the newest time, also beyond the capacity; `None` for a limiter
    /// that counts no units.
    pub(crate) fn used(&self, words: &[u64]) -> Option<u64> {
        ask_about!(self, words, |limiter, state| limiter.units_used(&state))?
    }

    /// Takes what was spent already, whether it is there or not.
    pub fn charge(&self, words: &mut [u64], now: Timestamp, cost: u64) {
        let _ = ask_about!(self, words, |limiter, mut state| limiter.spend(&mut state, now, cost));
    }

    /// Gives back what was granted and not used: never so much that more would be granted than if
    /// it had not been.
    pub fn refund(&self, words: &mut [u64], now: Timestamp, unused: &Refundable) {
        let _ =
            ask_about!(self, words, |limiter, mut state| limiter.restore(&mut state, now, unused));
    }

    /// The newest time seen, and the span from then on after which the state equals a fresh one.
    #[must_use]
    pub fn newest_and_reset(&self, words: &[u64]) -> (Timestamp, Micros) {
        ask_about!(self, words, |limiter, state| (state.newest(), limiter.reset_after(&state)))
            .unwrap_or_default()
    }

    /// # Errors
    /// [`InvalidState`] if no decision of this limiter can have left these words behind.
    pub fn accepts(&self, words: &[u64]) -> Result<(), InvalidState> {
        ask_about!(self, words, |limiter, state| limiter.accepts(&state))
            .unwrap_or(Err(InvalidState))
    }
}

const fn kind_of<A: Algorithm>(_: &A) -> Kind {
    A::KIND
}

/// `None` if either is of another algorithm or length.
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
