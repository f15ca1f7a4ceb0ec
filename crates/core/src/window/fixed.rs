//! Fixed window: one counter for each aligned window.
//!
//! Source: the one-counter-per-second limiter of "Limiting WebSocket connections" (Replit).
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | N | limit | units |
//! | P | period; windows are [k·P, (k + 1)·P), aligned to the epoch | µs |
//! | n | units granted in the current window | units |
//! | c | cost of a request | units |
//!
//! A request is granted iff n + c ≤ N. The error bound is 0.
//!
//! **Guarantee:** at most N units are granted in an aligned window, and at most 2·N in any span of
//! length P.
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
use crate::limiter::{self, Ahead, Limiter, RateLimiter, Words, WordsMut, small_state};
use crate::quantity::{ConfigError, in_range};
use crate::time::{Micros, Timestamp};

/// A validated fixed window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    limit: u64,
    period: Divisor,
}

/// The state of a key: the units granted in the window of the newest time, and that time. The
/// default is the state of a key never seen.
pub type State<W = [u64; 2]> = limiter::State<Config, W>;

small_state!(Config, 2, newest: 1);

/// The words of a state, by name.
#[derive(Clone, Copy)]
struct Counter {
    /// The units granted in the window of `newest`.
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
    /// Makes a limit of `limit` units per aligned window of `period`.
    ///
    /// # Errors
    /// Returns [`ConfigError::OutOfRange`] if `limit` or `period` is 0 or above 2^53 − 1.
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

    /// Advances the counter, and returns how far into its window the newest time then is, in µs.
    ///
    /// After a clock has returned from a jump ahead, the count moves into the current window:
    /// `newest` then lies after the start of the current window.
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

    /// Takes `cost` if it fits. Returns the units that are then left.
    #[inline]
    const fn take(&self, counter: &mut Counter, cost: u64) -> Option<u64> {
        let left = self.limit.saturating_sub(counter.count).checked_sub(cost);
        if left.is_some() {
            counter.count = counter.count.saturating_add(cost);
        }
        left
    }

    /// The answer to a request. `left` is the units left after a grant, or `None` if the cost did
    /// not fit.
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
                // the next window is empty, and the cost is at most the limit, so it fits there
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

    /// Opens the window of the new time.
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
        if cost == 0 {
            return self.peek(state, now, 0);
        }
        CostExceedsCapacity::check(cost, self.limit)?;
        let mut counter = Counter::of(state);
        let offset = self.settle(&mut counter, now);
        let left = self.take(&mut counter, cost);
        state.write(counter.to_words());
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

    /// The counter never exceeds twice the limit.
    fn charge(&self, state: &mut State<impl WordsMut>, now: Timestamp, cost: u64) {
        let mut counter = Counter::of(state);
        self.settle(&mut counter, now);
        counter.count = counter.count.saturating_add(cost).min(self.limit.saturating_mul(2));
        state.write(counter.to_words());
    }

    /// The units are charged in the window of the newest time, and cover grants until it ends.
    fn charge_ahead(
        &self,
        state: &mut State<impl WordsMut>,
        units: u64,
        _: Micros,
    ) -> Option<Ahead> {
        let mut counter = Counter::of(state);
        if counter.newest == Timestamp::EPOCH {
            return None;
        }
        let units = units.min(self.limit.saturating_sub(counter.count)); // no more can be granted
        counter.count = counter.count.saturating_add(units);
        state.write(counter.to_words());
        let ends = self.until_window_ends(self.period.rem(counter.newest.0));
        Some(Ahead { units, until: counter.newest.saturating_add(ends) })
    }

    fn used(&self, state: &State<impl Words>) -> u64 {
        Counter::of(state).count
    }

    /// The units come back only if their window is still the current one.
    fn refund(&self, state: &mut State<impl WordsMut>, refund: Refund) {
        let mut counter = Counter::of(state);
        let from_ahead = refund.granted_at > counter.newest; // a clock that has since come back
        let its_window = self.period.floor(refund.granted_at.0);
        if !from_ahead && its_window == self.period.floor(counter.newest.0) {
            counter.count = counter.count.saturating_sub(refund.cost);
            state.write(counter.to_words());
        }
    }
}
