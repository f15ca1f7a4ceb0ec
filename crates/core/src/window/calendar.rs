//! Calendar window: one counter for each window, between instants that are given from outside.
//!
//! Source: limits as they are sold, such as 10,000 calls a calendar month (Kong's and Apigee's quotas, Stripe's billing
//! cycles).
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | N | limit | units |
//! | b₁ < b₂ < … | boundaries: the instants at which a window begins | µs since the epoch |
//! | n | units granted in the current window | units |
//! | c | cost of a request | units |
//!
//! A request is granted iff n + c ≤ N. The error bound is 0. Windows are [0, b₁), [b₁, b₂), …, and the last one never ends:
//! who runs out of boundaries is refused for ever and not granted without a limit. [`Boundaries::reach`] says how far
//! boundaries are known.
//!
//! [`Instants`] are boundaries in a list. A [`Calendar`] computes the boundaries around a time: days, weeks, months, quarters or
//! years of a time zone, which is given by the sorted instants at which the zone's offset changes.
//!
//! **Guarantee:** at most N units are granted in a window.
//!
//! ```
//! use tidegate_core::window::calendar::{Calendar, Config, Every, Shift, Zone};
//! use tidegate_core::{Micros, RateLimiter, Timestamp};
//!
//! // Madrid in 2023: an hour ahead of UTC from 29 October, 01:00 UTC, on, and two hours before
//! let second = 1_000_000;
//! let shifts = [
//!     Shift { from: Timestamp(1_679_792_400 * second), offset_s: 7_200 },
//!     Shift { from: Timestamp(1_698_541_200 * second), offset_s: 3_600 },
//! ];
//! let madrid = Zone::new(shifts, Timestamp(1_711_846_800 * second)).unwrap();
//! let daily = Config::new(2, Calendar::new(Every::day(), madrid)).unwrap();
//! let mut state = daily.fresh();
//!
//! let midnight = Timestamp(1_698_530_400 * second); // 29 October, 00:00 in Madrid
//! assert!(daily.decide(&mut state, midnight, 2).unwrap().is_allowed());
//! let refused = daily.decide(&mut state, midnight, 1).unwrap();
//! assert_eq!(refused.retry_after(), Micros(25 * 3_600 * second)); // this day has 25 hours
//! ```

mod civil;
#[cfg(test)]
mod tests;

use core::fmt::Debug;

use super::Refund;
use crate::decision::{Answer, CostExceedsCapacity, Decision, InvalidState};
use crate::hold::list::{Hold, Holds};
use crate::hold::reservable::Reservable;
use crate::limiter::{self, Ahead, Limiter, RateLimiter, Words, WordsMut, sealed};
use crate::quantity::{ConfigError, in_range};
use crate::time::{Micros, Timestamp};

pub use civil::{Calendar, Every, Shift, Zone};

/// A validated limit of units in each window between two boundaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config<B> {
    limit: u64,
    boundaries: B,
}

/// The state of a key: the units granted in the window of the newest time, and that time. The default is the state of a
/// key never seen.
pub type State<B, W = [u64; 2]> = limiter::State<Config<B>, W>;

/// The window of some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first instant of the window.
    pub begin: Timestamp,
    /// The first instant after the window; `None` if the next boundary is not known.
    pub end: Option<Timestamp>,
}

/// The instants at which windows begin. The trait is sealed: only [`Instants`] and [`Calendar`] implement it.
pub trait Boundaries: Clone + Debug + PartialEq + Eq + sealed_boundaries::Sealed {
    /// The window of a time. It contains the time.
    #[must_use]
    fn window(&self, at: Timestamp) -> Window;

    /// The length that no window within [`reach`](Self::reach) exceeds.
    #[must_use]
    fn longest(&self) -> Micros;

    /// The instant from which all boundaries are known, and the last known boundary. There is no boundary before the first
    /// one or after the second one, so the windows there are too long, and a limit is too strict.
    #[must_use]
    fn reach(&self) -> (Timestamp, Timestamp);
}

mod sealed_boundaries {
    pub trait Sealed {}
}

/// Boundaries in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Instants<S> {
    sorted: S,
    longest: Micros,
}

impl<S: AsRef<[Timestamp]>> Instants<S> {
    /// Takes instants in ascending order.
    ///
    /// # Errors
    /// Returns [`ConfigError::OutOfRange`] if an instant is not above 0 and above the one before it, or is above 2^53 − 1.
    pub fn new(sorted: S) -> Result<Self, ConfigError> {
        let (mut before, mut longest) = (Timestamp::EPOCH, Micros(1));
        for &instant in sorted.as_ref() {
            let least = before.saturating_add(Micros(1)).0;
            crate::quantity::in_bounds("boundaries", instant.0, least, crate::MAX_QUANTITY)?;
            longest = longest.max(instant.saturating_since(before));
            before = instant;
        }
        Ok(Self { sorted, longest })
    }

    /// The instants.
    #[must_use]
    pub fn sorted(&self) -> &[Timestamp] {
        self.sorted.as_ref()
    }
}

impl<S> sealed_boundaries::Sealed for Instants<S> {}

impl<S: AsRef<[Timestamp]> + Clone + Debug + Eq> Boundaries for Instants<S> {
    #[inline]
    fn window(&self, at: Timestamp) -> Window {
        let (past, coming) = split(self.sorted.as_ref(), |boundary| *boundary <= at);
        Window { begin: past.last().copied().unwrap_or_default(), end: coming.first().copied() }
    }

    fn longest(&self) -> Micros {
        self.longest
    }

    fn reach(&self) -> (Timestamp, Timestamp) {
        (Timestamp::EPOCH, self.sorted.as_ref().last().copied().unwrap_or_default())
    }
}

/// The sorted items of which something is true, and the others.
#[inline]
fn split<T>(sorted: &[T], is_before: impl FnMut(&T) -> bool) -> (&[T], &[T]) {
    sorted.split_at_checked(sorted.partition_point(is_before)).unwrap_or((sorted, &[]))
}

/// The words of a state, by name.
#[derive(Clone, Copy)]
struct Counter {
    /// The units granted in the window of `newest`.
    count: u64,
    newest: Timestamp,
    /// The window of `newest`.
    window: Window,
}

impl Counter {
    fn write_to<B: Boundaries>(self, state: &mut State<B, impl WordsMut>) {
        state.write([self.count, self.newest.0]);
    }

    /// Whether a grant at this time counts in the window. A time after the newest is that of a clock that has since come back.
    fn counts(&self, granted_at: Timestamp) -> bool {
        (self.window.begin..=self.newest).contains(&granted_at)
    }

    /// The span from the newest time to the end of its window.
    fn left(&self) -> Micros {
        let left = self.window.end.map(|end| end.saturating_since(self.newest));
        left.unwrap_or(Micros::MAX).min(Micros::MAX)
    }

    fn until_fresh(&self) -> Micros {
        if self.count == 0 { Micros::ZERO } else { self.left() }
    }
}

impl<B: Boundaries> Config<B> {
    /// Makes a limit of `limit` units in each window.
    ///
    /// # Errors
    /// Returns [`ConfigError::OutOfRange`] if `limit` is 0 or above 2^53 − 1.
    pub fn new(limit: u64, boundaries: B) -> Result<Self, ConfigError> {
        in_range("limit", limit)?;
        Ok(Self { limit, boundaries })
    }

    /// The most units in a window.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The instants at which windows begin.
    #[must_use]
    pub const fn boundaries(&self) -> &B {
        &self.boundaries
    }

    /// The state of a key never seen.
    #[must_use]
    pub const fn fresh(&self) -> State<B> {
        State::over([0; 2])
    }

    /// `None` if the state has another number of words, because it is that of another limiter.
    #[cfg_attr(target_arch = "wasm32", inline(never))] // one copy of the code is enough
    fn read(&self, state: &State<B, impl Words>) -> Option<Counter> {
        let [count, newest] = *state.words() else { return None };
        let newest = Timestamp(newest);
        Some(Counter { count, newest, window: self.boundaries.window(newest) })
    }

    /// The state's counter at `now`.
    ///
    /// After a clock has returned from a jump ahead, the count moves into the current window: `newest` then lies
    /// after the start of the current window.
    #[cfg_attr(target_arch = "wasm32", inline(never))] // one copy of the code is enough
    fn settled(&self, state: &State<B, impl Words>, now: Timestamp) -> Option<Counter> {
        let [count, newest] = *state.words() else { return None };
        let taken = now.taken_after(Timestamp(newest), self.boundaries.longest());
        let window = self.boundaries.window(taken);
        let count = if newest < window.begin.0 { 0 } else { count };
        Some(Counter { count, newest: taken, window })
    }

    #[cfg_attr(target_arch = "wasm32", inline(never))] // one copy of the code is enough
    fn answer(&self, counter: &mut Counter, cost: u64) -> Decision {
        let (limit, left) = (self.limit, self.limit.saturating_sub(counter.count));
        if let Some(remaining) = left.checked_sub(cost) {
            counter.count = counter.count.saturating_add(cost);
            return Decision::Allow { limit, remaining, reset_after: counter.until_fresh() };
        }
        // the next window is empty, and the cost is at most the limit, so it fits there
        let ends = counter.left();
        Decision::Deny { limit, remaining: left, retry_after: ends, reset_after: ends }
    }

    /// Decides, and returns the counter after it.
    fn decided(
        &self,
        state: &State<B, impl Words>,
        now: Timestamp,
        cost: u64,
    ) -> Result<(Counter, Decision), CostExceedsCapacity> {
        CostExceedsCapacity::check(cost, self.limit)?;
        let counter = self.settled(state, now);
        let mut counter = counter.ok_or(CostExceedsCapacity { cost, capacity: 0 })?;
        let decision = self.answer(&mut counter, cost);
        Ok((counter, decision))
    }

    /// Counts `actual` units instead of `counted` ones, of a grant in the window of the newest time.
    fn correct(
        &self,
        state: &mut State<B, impl WordsMut>,
        granted_at: Timestamp,
        counted: u64,
        actual: u64,
    ) {
        let Some(mut counter) = self.read(state) else { return };
        if counter.counts(granted_at) {
            let most = counter.count.max(self.limit.saturating_mul(2));
            let count = counter.count.saturating_sub(counted).saturating_add(actual);
            counter.count = count.min(most);
            counter.write_to(state);
        }
    }
}

impl<B> sealed::Sealed for Config<B> {
    const NEWEST: usize = 1;
}

impl<B: Boundaries> Limiter for Config<B> {
    #[inline]
    fn words(&self) -> usize {
        2
    }

    /// The length of the longest window.
    #[inline]
    fn period(&self) -> Micros {
        self.boundaries.longest()
    }

    /// Ends a window that is over at the new time.
    fn advance(&self, state: &mut State<B, impl WordsMut>, now: Timestamp) {
        if let Some(counter) = self.settled(state, now) {
            counter.write_to(state);
        }
    }

    fn reset_after(&self, state: &State<B, impl Words>) -> Micros {
        self.read(state).map_or(self.period(), |counter| counter.until_fresh())
    }

    fn accepts(&self, state: &State<B, impl Words>) -> Result<(), InvalidState> {
        match *state.words() {
            [count, _] if count <= self.limit.saturating_mul(2) => Ok(()),
            _ => Err(InvalidState),
        }
    }
}

impl<B: Boundaries> RateLimiter for Config<B> {
    #[inline]
    fn capacity(&self) -> u64 {
        self.limit
    }

    fn decide(&self, state: &mut State<B, impl WordsMut>, now: Timestamp, cost: u64) -> Answer {
        let (counter, decision) = self.decided(state, now, cost)?;
        if cost > 0 {
            counter.write_to(state);
        }
        Ok(decision)
    }

    fn peek(&self, state: &State<B, impl Words>, now: Timestamp, cost: u64) -> Answer {
        self.decided(state, now, cost).map(|(_, decision)| decision)
    }

    /// The counter never exceeds twice the limit.
    fn charge(&self, state: &mut State<B, impl WordsMut>, now: Timestamp, cost: u64) {
        let Some(mut counter) = self.settled(state, now) else { return };
        let room = self.limit.saturating_mul(2).saturating_sub(counter.count);
        counter.count = counter.count.saturating_add(cost.min(room));
        counter.write_to(state);
    }

    /// The units are charged in the window of the newest time, and cover grants until it ends.
    fn charge_ahead(
        &self,
        state: &mut State<B, impl WordsMut>,
        units: u64,
        _: Micros,
    ) -> Option<Ahead> {
        let mut counter = self.read(state)?;
        if counter.newest == Timestamp::EPOCH {
            return None;
        }
        let units = units.min(self.limit.saturating_sub(counter.count)); // no more can be granted
        counter.count = counter.count.saturating_add(units);
        counter.write_to(state);
        Some(Ahead { units, until: counter.newest.saturating_add(counter.left()) })
    }

    fn used(&self, state: &State<B, impl Words>) -> u64 {
        match *state.words() {
            [count, _] => count,
            _ => u64::MAX,
        }
    }

    /// The units come back only if their window is still the current one.
    fn refund(&self, state: &mut State<B, impl WordsMut>, refund: Refund) {
        self.correct(state, refund.granted_at, refund.cost, 0);
    }
}

/// The count is corrected only if the window of the grant is still the current one.
impl<B: Boundaries> Reservable for Config<B> {
    const SINCE: usize = 0;

    fn counted_with(
        &self,
        state: &State<B, impl Words>,
        granted_at: Timestamp,
    ) -> Option<(u64, u64)> {
        let counter = self.read(state)?;
        counter.counts(granted_at).then_some((0, counter.count))
    }

    fn settle<H: AsRef<[u64]> + AsMut<[u64]>>(
        &self,
        state: &mut State<B, impl WordsMut>,
        holds: &mut Holds<H>,
        place: usize,
        actual: u64,
    ) {
        let Hold { units, granted_at, .. } = holds.remove(place);
        self.correct(state, granted_at, units, actual);
    }
}
