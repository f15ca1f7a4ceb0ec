//! Fixed window: one counter for each window.
//!
//! Source: the one-counter-per-second limiter of "Limiting WebSocket connections" (Replit).
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | N | limit | units |
//! | P | period; the length of a window | µs |
//! | n | units granted in the current window | units |
//! | c | cost of a request | units |
//!
//! A request is granted iff n + c ≤ N. The error bound is 0.
//!
//! Windows are [k·P, (k + 1)·P), aligned to the epoch. With [`Config::starting_at_first`] a key has
//! windows of its own: the first grant outside of a window begins one, and it lasts for P even if
//! all its units come back.
//!
//! **Guarantee:** at most N units are granted in a window, and at most 2·N in any span of length P.
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
use crate::hold::reservable::Reservable;
use crate::limiter::{self, Ahead, Limiter, RateLimiter, Words, WordsMut, small_state};
use crate::quantity::{ConfigError, in_range};
use crate::time::{Micros, Timestamp};

/// A validated fixed window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    limit: u64,
    period: Divisor,
    starts_at_first: bool,
}

/// The state of a key: the units granted in the window of the newest time, and that time. If windows
/// start at the first grant, a third word is the span from the newest time to the window's end, 0
/// outside of a window. The default is the state of a key never seen in aligned windows.
pub type State<W = [u64; 2]> = limiter::State<Config, W>;

small_state!(Config, 2, newest: 1);

/// The words of a state, by name.
#[derive(Clone, Copy)]
struct Counter {
    /// The units granted in the window of `newest`.
    count: u64,
    newest: Timestamp,
    /// The span from `newest` to the end of its window; 0 outside of a window.
    left: u64,
}

impl Counter {
    #[inline]
    fn write_to(self, state: &mut State<impl WordsMut>) {
        state.write([self.count, self.newest.0]);
        if let Some(left) = state.words_mut().get_mut(LEFT) {
            *left = self.left;
        }
    }

    /// The counter at a later time, or at an earlier one to which a clock has returned, for windows that
    /// start at the first grant.
    #[inline]
    fn after(self, taken: Timestamp) -> Self {
        let left = self.left.saturating_sub(taken.saturating_since(self.newest).0);
        let count = if left == 0 { 0 } else { self.count };
        Self { count, newest: taken, left }
    }

    /// Counts units. The first unit outside of a window begins one.
    #[inline]
    const fn add(&mut self, units: u64, period: u64) {
        self.count = self.count.saturating_add(units);
        if self.left == 0 && units > 0 {
            self.left = period;
        }
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
        Ok(Self { limit, period: Divisor::new(period.0), starts_at_first: false })
    }

    /// The same limit, in windows that start at a key's first grant instead of aligned ones.
    ///
    /// ```
    /// use tidegate_core::{Limiter, Micros, RateLimiter, Timestamp, window::fixed};
    ///
    /// let two_per_second = fixed::Config::new(2, Micros::SECOND).unwrap().starting_at_first();
    /// let mut state = two_per_second.state([0; 3]).unwrap();
    /// let now = Timestamp(1_700_000_000_900_000);
    ///
    /// assert!(two_per_second.decide(&mut state, now, 2).unwrap().is_allowed());
    /// let refused = two_per_second.decide(&mut state, now, 1).unwrap();
    /// assert_eq!(refused.retry_after(), Micros::SECOND); // the window began with the grant
    /// ```
    #[must_use]
    pub const fn starting_at_first(self) -> Self {
        Self { starts_at_first: true, ..self }
    }

    /// Whether windows start at a key's first grant.
    #[must_use]
    pub const fn starts_at_first(&self) -> bool {
        self.starts_at_first
    }

    /// The most units in a window.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Takes over the `units` that count as used in a window of `old`, which began when it began, if
    /// the windows of both start at the first grant. Otherwise returns `false` and changes nothing.
    pub fn adopt(
        &self,
        state: &mut State<impl WordsMut>,
        old: &Self,
        held: &State<impl Words>,
        units: u64,
    ) -> bool {
        if !(self.starts_at_first && old.starts_at_first) {
            return false;
        }
        let Some(mut counter) = old.read(held) else { return false };
        if counter.left > 0 {
            counter.left = self.period.value().saturating_sub(old.elapsed(&counter));
        }
        let is_open = counter.left > 0;
        counter.count = if is_open { units.min(self.limit.saturating_mul(2)) } else { 0 };
        counter.write_to(state);
        true
    }

    /// `None` if the state has another number of words, because it is that of windows that start otherwise.
    #[inline]
    fn read(&self, state: &State<impl Words>) -> Option<Counter> {
        match *state.words() {
            [count, newest] if !self.starts_at_first => {
                Some(Counter { count, newest: Timestamp(newest), left: self.until_aligned(newest) })
            }
            [count, newest, left] if self.starts_at_first => {
                Some(Counter { count, newest: Timestamp(newest), left })
            }
            _ => None,
        }
    }

    /// The state's counter at `now`.
    ///
    /// After a clock has returned from a jump ahead, the count moves into the current window:
    /// `newest` then lies after the start of the current window. A window that starts at its first
    /// grant ends as long after the return as it would have ended after the jump.
    // in the Worker one copy of the code is enough
    #[cfg_attr(target_arch = "wasm32", inline(never))]
    #[cfg_attr(not(target_arch = "wasm32"), inline)]
    fn settled(&self, state: &State<impl Words>, now: Timestamp) -> Option<Counter> {
        let Counter { mut count, newest, left } = self.read(state)?;
        let taken = now.taken_after(newest, Micros(self.period.value()));
        if self.starts_at_first {
            return Some(Counter { count, newest, left }.after(taken));
        }
        let left = self.until_aligned(taken.0);
        let begin = taken.0.saturating_sub(self.period.value().saturating_sub(left));
        if newest.0 < begin {
            count = 0;
        }
        Some(Counter { count, newest: taken, left })
    }

    /// Takes `cost` if it fits. Returns the units that are then left.
    #[inline]
    const fn take(&self, counter: &mut Counter, cost: u64) -> Option<u64> {
        let left = self.limit.saturating_sub(counter.count).checked_sub(cost);
        if left.is_some() {
            counter.add(cost, self.period.value());
        }
        left
    }

    /// The answer to a request. `left` is the units left after a grant, or `None` if the cost did
    /// not fit.
    #[inline]
    const fn answer(&self, counter: Counter, left: Option<u64>) -> Decision {
        let limit = self.limit;
        match left {
            Some(remaining) => {
                Decision::Allow { limit, remaining, reset_after: self.until_fresh(counter) }
            }
            None => {
                let remaining = limit.saturating_sub(counter.count);
                let ends = Micros(counter.left);
                // the next window is empty, and the cost is at most the limit, so it fits there
                Decision::Deny { limit, remaining, retry_after: ends, reset_after: ends }
            }
        }
    }

    /// A key's own window makes a state differ from a fresh one even if no unit counts in it.
    #[inline]
    const fn until_fresh(&self, counter: Counter) -> Micros {
        let is_fresh = counter.count == 0 && !self.starts_at_first;
        if is_fresh { Micros::ZERO } else { Micros(counter.left) }
    }

    #[inline]
    const fn until_aligned(&self, at: u64) -> u64 {
        self.period.value().saturating_sub(self.period.rem(at))
    }

    /// The span from the start of the window to the newest time.
    #[inline]
    const fn elapsed(&self, counter: &Counter) -> u64 {
        self.period.value().saturating_sub(counter.left)
    }
}

impl Limiter for Config {
    #[inline]
    fn words(&self) -> usize {
        if self.starts_at_first { 3 } else { 2 }
    }

    /// The length of a window.
    #[inline]
    fn period(&self) -> Micros {
        Micros(self.period.value())
    }

    /// Ends a window that is over at the new time.
    #[inline]
    fn advance(&self, state: &mut State<impl WordsMut>, now: Timestamp) {
        if let Some(counter) = self.settled(state, now) {
            counter.write_to(state);
        }
    }

    fn reset_after(&self, state: &State<impl Words>) -> Micros {
        self.read(state).map_or(self.period(), |counter| self.until_fresh(counter))
    }

    fn accepts(&self, state: &State<impl Words>) -> Result<(), InvalidState> {
        let Counter { count, left, .. } = self.read(state).ok_or(InvalidState)?;
        let possible = count <= self.limit.saturating_mul(2)
            && left <= self.period.value()
            && (count == 0 || left > 0);
        if possible { Ok(()) } else { Err(InvalidState) }
    }
}

impl RateLimiter for Config {
    #[inline]
    fn capacity(&self) -> u64 {
        self.limit
    }

    #[cfg_attr(not(target_arch = "wasm32"), inline(always))] // a call would move the answer in memory
    fn decide(&self, state: &mut State<impl WordsMut>, now: Timestamp, cost: u64) -> Answer {
        if cost == 0 {
            return self.peek(state, now, 0);
        }
        CostExceedsCapacity::check(cost, self.limit)?;
        let Some(mut counter) = self.settled(state, now) else {
            return Err(CostExceedsCapacity { cost, capacity: 0 });
        };
        let left = self.take(&mut counter, cost);
        counter.write_to(state);
        Ok(self.answer(counter, left))
    }

    #[cfg_attr(not(target_arch = "wasm32"), inline(always))] // a call would move the answer in memory
    fn peek(&self, state: &State<impl Words>, now: Timestamp, cost: u64) -> Answer {
        CostExceedsCapacity::check(cost, self.limit)?;
        let Some(mut counter) = self.settled(state, now) else {
            return Err(CostExceedsCapacity { cost, capacity: 0 });
        };
        let left = self.take(&mut counter, cost);
        Ok(self.answer(counter, left))
    }

    /// The counter never exceeds twice the limit.
    fn charge(&self, state: &mut State<impl WordsMut>, now: Timestamp, cost: u64) {
        let Some(mut counter) = self.settled(state, now) else { return };
        let room = self.limit.saturating_mul(2).saturating_sub(counter.count);
        counter.add(cost.min(room), self.period.value());
        counter.write_to(state);
    }

    /// The units are charged in the window of the newest time, and cover grants until it ends.
    /// Outside of a window nothing can be charged, because it is not known when the next one begins.
    fn charge_ahead(
        &self,
        state: &mut State<impl WordsMut>,
        units: u64,
        _: Micros,
    ) -> Option<Ahead> {
        let mut counter = self.read(state)?;
        if counter.newest == Timestamp::EPOCH || counter.left == 0 {
            return None;
        }
        let units = units.min(self.limit.saturating_sub(counter.count)); // no more can be granted
        counter.count = counter.count.saturating_add(units);
        counter.write_to(state);
        Some(Ahead { units, until: counter.newest.saturating_add(Micros(counter.left)) })
    }

    fn used(&self, state: &State<impl Words>) -> u64 {
        self.read(state).map_or(u64::MAX, |counter| counter.count)
    }

    /// The units come back only if their window is still the current one.
    fn refund(&self, state: &mut State<impl WordsMut>, refund: Refund) {
        self.correct(state, refund.granted_at, refund.cost, 0);
    }
}

/// The count is corrected only if the window of the grant is still the current one. A window that started with the grant stays, even
/// if nothing of the grant was used.
impl Config {
    /// Whether a grant at this time counts in the current window.
    const fn is_current(&self, counter: &Counter, granted_at: Timestamp) -> bool {
        let from_ahead = granted_at.0 > counter.newest.0; // a clock that has since come back
        let age = counter.newest.saturating_since(granted_at).0;
        let is_open = counter.left > 0; // a window that starts at a first request may have ended, and no other begun
        is_open && !from_ahead && age <= self.elapsed(counter)
    }
}

impl Reservable for Config {
    const SINCE: usize = 0;

    fn counted_with(&self, state: &State<impl Words>, granted_at: Timestamp) -> Option<(u64, u64)> {
        let counter = self.read(state)?;
        self.is_current(&counter, granted_at).then_some((0, counter.count))
    }

    fn correct(
        &self,
        state: &mut State<impl WordsMut>,
        granted_at: Timestamp,
        counted: u64,
        actual: u64,
    ) {
        let Some(mut counter) = self.read(state) else { return };
        if self.is_current(&counter, granted_at) {
            let most = counter.count.max(self.limit.saturating_mul(2));
            let count = counter.count.saturating_sub(counted).saturating_add(actual);
            counter.count = count.min(most);
            counter.write_to(state);
        }
    }
}

/// The index of the word that only windows have that start at the first grant.
const LEFT: usize = 2;
