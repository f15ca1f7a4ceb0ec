//! What a policy asks of a limiter.

use tidegate_core::lease::Held;
use tidegate_core::lease::budget::Refundable;
use tidegate_core::{CostExceedsCapacity, Decision, InvalidState, Micros, Timestamp};

use crate::request::{Operation, Request};

pub(super) type Answer = Result<Decision, CostExceedsCapacity>;

/// What a policy asks of a limiter. Nothing is answered about words of another length.
pub(super) trait Limiter {
    fn words(&self) -> usize;
    fn capacity(&self) -> u64;
    fn period(&self) -> Micros;
    fn decide(&self, words: &mut [u64], now: Timestamp, request: &Request) -> Option<Answer>;
    fn peek(&self, words: &[u64], now: Timestamp, request: &Request) -> Option<Answer>;
    fn advance(&self, words: &mut [u64], now: Timestamp) -> Option<()>;
    fn newest_and_reset(&self, words: &[u64]) -> Option<(Timestamp, Micros)>;
    fn accepts(&self, words: &[u64]) -> Option<Result<(), InvalidState>>;

    /// No more than time, for a limiter that remembers no refusals.
    fn refused(&self, words: &mut [u64], now: Timestamp, _request: &Request) -> Option<()> {
        self.advance(words, now)
    }

    /// Nothing, for a limiter that counts no units.
    fn charge(&self, _words: &mut [u64], _now: Timestamp, _cost: u64) -> Option<()> {
        None
    }

    /// Nothing, for a limiter without leases.
    fn hold(&self, _words: &mut [u64], _now: Timestamp, _: &Operation) -> Option<Held> {
        None
    }

    /// Nothing, for a limiter that counts no units.
    fn refund(&self, _words: &mut [u64], _now: Timestamp, _unused: &Refundable) -> Option<()> {
        None
    }
}
