//! Fixed window: a counter per aligned window.
//!
//! Source: the one-counter-per-second limiter of "Limiting WebSocket connections" (Replit).
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | N | limit | units |
//! | P | period; windows are [k·P, (k + 1)·P), aligned to the epoch | µs |
//! | n | granted in the current window | units |
//!
//! Granted iff n + c ≤ N. Error bound 0.
//!
//! **Guarantee:** at most N in an aligned window, 2·N in any span of length P.
//!
//! ```
//! use tidegate_core::{Micros, RateLimiter, Timestamp, window::fixed};
//!
//! let two_per_second = fixed::Config::new(2, Micros::SECOND).unwrap();
//! let mut state = fixed::State::default();
//! let now = Timestamp(1_700_000_000_900_000);
//!
//! assert!(two_per_second.decide(&mut state, now, 2).unwrap().is_allowed());
//! let refused = two_per_second.decide(&mut state, now, 1).unwrap();
//! assert_eq!(refused.retry_after(), Micros(100_000)); // the next window begins
//! ```

#[cfg(test)]
mod tests;

use super::Refund;
use crate::decision::{Answer, CostExceedsCapacity, Decision, InvalidState};
use crate::divisor::Divisor;
use crate::limiter::{self, Limiter, RateLimiter, Words, WordsMut, small_state};
use crate::quantity::{ConfigError, in_range};
use crate::time::{Micros, Timestamp};

/// A validated fixed window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    limit: u64,
    period: Divisor,
}

/// What is remembered of a key: what was granted in the window of the newest time, and that time.
/// The default is a key never seen.
pub type State<W = [u64; 2]> = limiter::State<Config, W>;

small_state!(Config, 2, newest: 1);

/// A state's words by their names.
#[derive(Clone, Copy)]
struct Counter {
    /// Granted in the window of `newest`.
    count: u64,
    newest: Timestamp,
}

impl Counter {
    #[inline]
    fn of(state: &State<impl Words>) -> Self {
        let [count, newest] = state.read();
        Self { count, newest: Timestamp(newest) }
    }

    #[inline]
    const fn to_words(self) -> [u64; 2] {
        [self.count, self.newest.0]
    }
}

impl Config {
    /// `limit` units per aligned window of `period`.
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`].
    pub const fn new(limit: u64, period: Micros) -> Result<Self, ConfigError> {
        if let Err(error) = in_range("limit", limit) {
            return Err(error);
        }
        if let Err(error) = in_range("period", period.0) {
            return Err(error);
        }
        Ok(Self { limit, period: Divisor::new(period.0) })
    }

    /// The most units in a window.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Advances, and returns how far into its window the state then is, in µs.
    ///
    /// After a return from a jump ahead the count moves into the current window: `newest` then
    /// lies after the window's start.
    #[inline]
    const fn settle(&self, counter: &mut Counter, now: Timestamp) -> u64 {
        let taken = now.taken_after(counter.newest, Micros(self.period.value()));
        let offset = self.period.rem(taken.0);
        if counter.newest.0 < taken.0.saturating_sub(offset) {
            counter.count = 0;
        }
        counter.newest = taken;
        offset
    }

    /// Takes the cost if it fits: what is then left.
    #[inline]
    const fn take(&self, counter: &mut Counter, cost: u64) -> Option<u64> {
        let left = self.limit.saturating_sub(counter.count).checked_sub(cost);
        if left.is_some() {
            counter.count = counter.count.saturating_add(cost);
        }
        left
    }

    /// The answer to a request after which `left` is left, or which did not fit.
    #[inline]
    const fn answer(&self, counter: Counter, offset: u64, left: Option<u64>) -> Decision {
        let limit = self.limit;
        let ends = self.until_window_ends(offset);
        match left {
            Some(remaining) => {
                let reset_after = if counter.count == 0 { Micros::ZERO } else { ends };
                Decision::Allow { limit, remaining, reset_after }
            }
            None => {
                let remaining = limit.saturating_sub(counter.count);
                // the next window is empty, and the cost is at most the limit
                Decision::Deny { limit, remaining, retry_after: ends, reset_after: ends }
            }
        }
    }

    #[inline]
    const fn until_window_ends(&self, offset: u64) -> Micros {
        Micros(self.period.value().saturating_sub(offset))
    }
}

impl Limiter for Config {
    #[inline]
    fn words(&self) -> usize {
        2
    }

    /// The length of a window.
    #[inline]
    fn period(&self) -> Micros {
        Micros(self.period.value())
    }

    /// Opens the window of that time.
    #[inline]
    fn advance(&self, state: &mut State<impl WordsMut>, now: Timestamp) {
        let mut counter = Counter::of(state);
        self.settle(&mut counter, now);
        state.write(counter.to_words());
    }

    fn reset_after(&self, state: &State<impl Words>) -> Micros {
        let Counter { count, newest } = Counter::of(state);
        if count == 0 { Micros::ZERO } else { self.until_window_ends(self.period.rem(newest.0)) }
    }

    fn accepts(&self, state: &State<impl Words>) -> Result<(), InvalidState> {
        let possible = Counter::of(state).count <= self.limit.saturating_mul(2);
        if possible { Ok(()) } else { Err(InvalidState) }
    }
}

impl RateLimiter for Config {
    #[inline]
    fn capacity(&self) -> u64 {
        self.limit
    }

    #[inline]
    fn decide(&self, state: &mut State<impl WordsMut>, now: Timestamp, cost: u64) -> Answer {
        CostExceedsCapacity::check(cost, self.limit)?;
        let mut counter = Counter::of(state);
        let offset = self.settle(&mut counter, now);
        let left = self.take(&mut counter, cost);
        if cost > 0 {
            state.write(counter.to_words());
        }
        Ok(self.answer(counter, offset, left))
    }

    #[inline]
    fn peek(&self, state: &State<impl Words>, now: Timestamp, cost: u64) -> Answer {
        CostExceedsCapacity::check(cost, self.limit)?;
        let mut counter = Counter::of(state);
        let offset = self.settle(&mut counter, now);
        let left = self.take(&mut counter, cost);
        Ok(self.answer(counter, offset, left))
    }

    /// At most twice the limit is ever counted.
    fn charge(&self, state: &mut State<impl WordsMut>, now: Timestamp, cost: u64) {
        let mut counter = Counter::of(state);
        self.settle(&mut counter, now);
        counter.count = counter.count.saturating_add(cost).min(self.limit.saturating_mul(2));
        state.write(counter.to_words());
    }

    fn used(&self, state: &State<impl Words>) -> u64 {
        Counter::of(state).count
    }

    /// The units come back if their window is still the current one.
    fn refund(&self, state: &mut State<impl WordsMut>, refund: Refund) {
        let mut counter = Counter::of(state);
        let from_ahead = refund.granted_at > counter.newest; // by a clock that came back since
        let its_window = self.period.floor(refund.granted_at.0);
        if !from_ahead && its_window == self.period.floor(counter.newest.0) {
            counter.count = counter.count.saturating_sub(refund.cost);
            state.write(counter.to_words());
        }
    }
}
