//! One limiter of a policy, whichever it is, over state kept as plain words.

mod limiter;
mod parameters;

use limiter::Limiter;
pub(crate) use parameters::{read, write};
use tidegate_core::shed::penalty;
use tidegate_core::window::{Refund, fixed, log, sliding};
use tidegate_core::{CostExceedsCapacity, Decision, InvalidState, Micros, Timestamp, bucket};

use crate::request::Request;

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
    /// [`tidegate_core::shed::penalty`]
    Penalty(penalty::Config),
}

/// Asks whichever limiter it is.
macro_rules! ask {
    ($limit:expr, |$limiter:ident| $question:expr) => {
        match $limit {
            Limit::TokenBucket($limiter) => $question,
            Limit::FixedWindow($limiter) => $question,
            Limit::SlidingWindow($limiter) => $question,
            Limit::SlidingLog($limiter) => $question,
            Limit::Penalty($limiter) => $question,
        }
    };
}

impl Limit {
    /// How many words a state has.
    #[must_use]
    #[inline]
    pub fn words(&self) -> usize {
        ask!(self, |limiter| Limiter::words(limiter))
    }

    /// The most that can be granted at once.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        ask!(self, |limiter| Limiter::capacity(limiter))
    }

    /// The span in which the capacity comes back.
    #[must_use]
    pub fn period(&self) -> Micros {
        ask!(self, |limiter| Limiter::period(limiter))
    }

    /// Decides; a cost of 0 is a peek.
    ///
    /// # Errors
    /// [`CostExceedsCapacity`]
    #[inline]
    pub fn decide(
        &self,
        words: &mut [u64],
        now: Timestamp,
        request: &Request,
    ) -> Result<Decision, CostExceedsCapacity> {
        ask!(self, |limiter| Limiter::decide(limiter, words, now, request))
            .unwrap_or(Err(CostExceedsCapacity { cost: request.cost, capacity: 0 }))
    }

    /// What [`decide`](Self::decide) would answer; changes nothing.
    ///
    /// # Errors
    /// As [`decide`](Self::decide).
    pub fn peek(
        &self,
        words: &[u64],
        now: Timestamp,
        request: &Request,
    ) -> Result<Decision, CostExceedsCapacity> {
        ask!(self, |limiter| Limiter::peek(limiter, words, now, request))
            .unwrap_or(Err(CostExceedsCapacity { cost: request.cost, capacity: 0 }))
    }

    /// Takes notice of a request that was refused, by this limiter or another of the same policy.
    /// Consumes nothing.
    pub fn refused(&self, words: &mut [u64], now: Timestamp, request: &Request) {
        let _ = ask!(self, |limiter| Limiter::refused(limiter, words, now, request));
    }

    /// Whether a refusal leaves more than the newest time behind.
    #[must_use]
    pub const fn remembers_refusals(&self) -> bool {
        match self {
            Self::Penalty(_) => true,
            Self::SlidingLog(log) => matches!(log.denied(), log::Denied::Counted),
            _ => false,
        }
    }

    /// Whether what remains of it is units: a penalty counts something else.
    #[must_use]
    pub const fn counts_units(&self) -> bool {
        !matches!(self, Self::Penalty(_))
    }

    /// Takes what was spent already, whether it is there or not.
    pub fn charge(&self, words: &mut [u64], now: Timestamp, cost: u64) {
        let _ = ask!(self, |limiter| Limiter::charge(limiter, words, now, cost));
    }

    /// Gives back what was granted and not used.
    pub fn refund(&self, words: &mut [u64], refund: Refund) {
        let _ = ask!(self, |limiter| Limiter::refund(limiter, words, refund));
    }

    /// The newest time seen, and the span from then on after which the state equals a fresh one.
    #[must_use]
    pub fn newest_and_reset(&self, words: &[u64]) -> (Timestamp, Micros) {
        ask!(self, |limiter| Limiter::newest_and_reset(limiter, words)).unwrap_or_default()
    }

    /// # Errors
    /// [`InvalidState`] if no decision of this limiter can have left these words behind.
    pub fn accepts(&self, words: &[u64]) -> Result<(), InvalidState> {
        ask!(self, |limiter| Limiter::accepts(limiter, words)).unwrap_or(Err(InvalidState))
    }
}
