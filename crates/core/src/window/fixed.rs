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
//! use tidegate_core::{Micros, Timestamp, window::fixed};
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
use crate::decision::{CostExceedsCapacity, Decision, InvalidState};
use crate::divisor::Divisor;
use crate::quantity::{ConfigError, in_range};
use crate::time::{Micros, Timestamp};

/// A validated fixed window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    limit: u64,
    period: Divisor,
}

/// What is remembered of a key. The default is a key never seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    /// Granted in the window of `newest`.
    count: u64,
    newest: Timestamp,
}

impl State {
    /// The state that [`to_words`](Self::to_words) wrote. [`Config::accepts`] says whether it can
    /// be one of that configuration.
    #[must_use]
    #[inline]
    pub const fn from_words([count, newest]: [u64; 2]) -> Self {
        Self { count, newest: Timestamp(newest) }
    }

    /// Two words; all zero for a key never seen.
    #[must_use]
    #[inline]
    pub const fn to_words(self) -> [u64; 2] {
        [self.count, self.newest.0]
    }

    /// The newest time seen.
    #[must_use]
    pub const fn newest(&self) -> Timestamp {
        self.newest
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

    /// The length of a window.
    #[must_use]
    pub const fn period(&self) -> Micros {
        Micros(self.period.value())
    }

    /// Decides on a request of `cost` units at `now`; 0 is a peek.
    ///
    /// # Errors
    /// [`CostExceedsCapacity`]; the state is untouched.
    #[inline]
    pub fn decide(
        &self,
        state: &mut State,
        now: Timestamp,
        cost: u64,
    ) -> Result<Decision, CostExceedsCapacity> {
        if cost == 0 {
            return self.peek(state, now, 0);
        }
        CostExceedsCapacity::check(cost, self.limit)?;
        let offset = self.settle(state, now);
        Ok(self.take(state, offset, cost))
    }

    /// What [`decide`](Self::decide) would answer; changes nothing.
    ///
    /// # Errors
    /// As [`decide`](Self::decide).
    #[inline]
    pub fn peek(
        &self,
        state: &State,
        now: Timestamp,
        cost: u64,
    ) -> Result<Decision, CostExceedsCapacity> {
        CostExceedsCapacity::check(cost, self.limit)?;
        let mut settled = *state;
        let offset = self.settle(&mut settled, now);
        Ok(self.take(&mut settled, offset, cost))
    }

    /// Moves the state to `now`, as any decision does first: opens the window of that time,
    /// consumes nothing.
    #[inline]
    pub const fn advance(&self, state: &mut State, now: Timestamp) {
        self.settle(state, now);
    }

    /// Counts `cost` units that were spent already, whether there is room or not: the real cost of a
    /// request that was granted on an estimate. At most twice the limit is ever counted.
    pub fn charge(&self, state: &mut State, now: Timestamp, cost: u64) {
        self.advance(state, now);
        state.count = state.count.saturating_add(cost).min(self.limit.saturating_mul(2));
    }

    /// Gives back units that were granted and not used, if their window is still the current one.
    pub const fn refund(&self, state: &mut State, refund: Refund) {
        let from_ahead = refund.granted_at.0 > state.newest.0; // by a clock that came back since
        let its_window = self.period.floor(refund.granted_at.0);
        if !from_ahead && its_window == self.period.floor(state.newest.0) {
            state.count = state.count.saturating_sub(refund.cost);
        }
    }

    /// The units that count in the window of the newest time: more than the limit if some were charged
    /// beyond it.
    #[must_use]
    pub const fn used(&self, state: &State) -> u64 {
        state.count
    }

    /// From this time on the state equals a fresh one.
    #[must_use]
    pub const fn expires_at(&self, state: &State) -> Timestamp {
        state.newest.saturating_add(self.reset_after(state))
    }

    /// The span from the newest time seen to [`expires_at`](Self::expires_at).
    #[must_use]
    pub const fn reset_after(&self, state: &State) -> Micros {
        if state.count == 0 {
            Micros::ZERO
        } else {
            self.until_window_ends(self.period.rem(state.newest.0))
        }
    }

    /// # Errors
    /// [`InvalidState`] if no decision of this configuration can have left the state behind.
    pub const fn accepts(&self, state: &State) -> Result<(), InvalidState> {
        if state.count > self.limit.saturating_mul(2) { Err(InvalidState) } else { Ok(()) }
    }

    /// Advances, and returns how far into its window the state then is, in µs.
    ///
    /// After a return from a jump ahead the count moves into the current window: `newest` then
    /// lies after the window's start.
    #[inline]
    const fn settle(&self, state: &mut State, now: Timestamp) -> u64 {
        let taken = now.taken_after(state.newest, self.period());
        let offset = self.period.rem(taken.0);
        if state.newest.0 < taken.0.saturating_sub(offset) {
            state.count = 0;
        }
        state.newest = taken;
        offset
    }

    #[inline]
    const fn take(&self, state: &mut State, offset: u64, cost: u64) -> Decision {
        let limit = self.limit;
        let remaining = limit.saturating_sub(state.count);
        if let Some(remaining) = remaining.checked_sub(cost) {
            state.count = state.count.saturating_add(cost);
            let reset_after =
                if state.count == 0 { Micros::ZERO } else { self.until_window_ends(offset) };
            Decision::Allow { limit, remaining, reset_after }
        } else {
            // the next window is empty, and the cost is at most the limit
            let ends = self.until_window_ends(offset);
            Decision::Deny { limit, remaining, retry_after: ends, reset_after: ends }
        }
    }

    #[inline]
    const fn until_window_ends(&self, offset: u64) -> Micros {
        Micros(self.period.value().saturating_sub(offset))
    }
}
