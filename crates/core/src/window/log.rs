//! Sliding log: remembers the time of every unit that passed. It can hold several rates at once
//! and a least gap between requests.
//!
//! Source: the sorted sets of "Better Rate Limiting With Redis Sorted Sets" (ClassDojo), with ten
//! a minute and two in 3 s at once, a gap between two actions, and refused actions that count. In
//! this module [`Denied`] says whether refused requests count.
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | nᵢ, Pᵢ | limit and period of rate i, 1 to 8 of them | units, µs |
//! | g | least gap between two requests, 0 for none | µs |
//! | N | the largest nᵢ: the number of units that are remembered; beside [holds](crate::hold) 2·N | units |
//! | x₁ ≥ x₂ ≥ … | times of the remembered units, the newest first | µs |
//!
//! A request of cost c at time t counts as c units at t. It is granted iff t − x₁ ≥ g and, for
//! every i, the units in (t − Pᵢ, t] and c together are at most nᵢ. The second condition says that
//! x₍ₙᵢ₋c₊₁₎ has left window i, so each wait follows from one remembered time. The error bound
//! is 0.
//!
//! **Guarantee:** for every i, at most nᵢ units are granted in every half-open span of length Pᵢ,
//! wherever that span begins. At least g lies between any two grants. A state takes 16 + 8·N
//! bytes.
//!
//! ```
//! use tidegate_core::{Limiter, Micros, RateLimiter, Timestamp, window::log};
//!
//! let rates = [
//!     log::Window { limit: 10, period: Micros(60_000_000) },
//!     log::Window { limit: 2, period: Micros(3_000_000) },
//! ];
//! let config = log::Config::new(&rates, Micros::ZERO, log::Denied::Forgotten).unwrap();
//! let mut state = config.state([0; 12]).unwrap(); // 2 + 10 words
//! let now = |seconds: u64| Timestamp(1_700_000_000_000_000 + seconds * 1_000_000);
//!
//! assert!(config.decide(&mut state, now(0), 1).unwrap().is_allowed());
//! assert!(config.decide(&mut state, now(1), 1).unwrap().is_allowed());
//! let refused = config.decide(&mut state, now(2), 1).unwrap();
//! assert_eq!(refused.retry_after(), Micros(1_000_000)); // then the first is 3 s old
//! assert!(config.decide(&mut state, now(3), 1).unwrap().is_allowed());
//! ```

#[cfg(test)]
mod tests;
mod view;

pub(crate) use self::view::View;
use super::Refund;
use crate::decision::{Answer, CostExceedsCapacity, Decision, InvalidState};
use crate::hold::reservable::Reservable;
use crate::limiter::{self, Limiter, RateLimiter, Words, WordsMut, sealed};
use crate::never::never;
use crate::quantity::{ConfigError, in_bounds, in_range};
use crate::time::{Micros, Timestamp};

/// The largest limit that a rate may have. A state then takes 8 KB, and 16 KB beside [holds](crate::hold).
pub const MAX_REMEMBERED: u64 = 1_000;

/// The most rates that one log may hold.
pub const MAX_WINDOWS: usize = 8;

/// One of the rates of a log: at most `limit` units in every span of `period`. It is not a
/// [`Rate`](crate::Rate) because a `Rate` would reduce 10 in 10 s to 1 in 1 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// The most units, from 1 to [`MAX_REMEMBERED`].
    pub limit: u64,
    /// The span for which a unit counts.
    pub period: Micros,
}

/// A part of a log that can refuse a request by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The least gap between two requests.
    Gap,
    /// A rate.
    Rate(Window),
}

/// Whether the units of a refused request count. The log itself or
/// [another limiter](Config::refused) may have refused the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Denied {
    /// The units are forgotten: a refusal consumes nothing.
    Forgotten,
    /// The units are remembered like granted units, so a caller that does not pause never passes
    /// again. `remaining` and `retry_after` of a refusal already count its own units.
    Counted,
}

/// A validated log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    windows: [Window; MAX_WINDOWS],
    count: usize,
    min_gap: Micros,
    denied: Denied,
    /// The smallest limit: the most units that can pass at once.
    limit: u64,
    /// N, or 2·N
    remembered: usize,
    /// The longest of all periods and the gap. Older units change no answer.
    period: Micros,
}

/// The state of a key. [`Limiter::state`] makes it. Its words are the newest time seen, the number
/// of remembered units, and their times, the newest first.
pub type State<W> = limiter::State<Config, W>;

impl sealed::Sealed for Config {}

impl Config {
    /// Makes a log that keeps all rates of `windows` and a gap of at least `min_gap` between two
    /// requests. A `min_gap` of [`Micros::ZERO`] requires no gap.
    ///
    /// # Errors
    /// Returns [`ConfigError::OutOfRange`] if `windows` is empty or has more than [`MAX_WINDOWS`]
    /// rates, if a limit is 0 or above [`MAX_REMEMBERED`], if a period is 0 or above 2^53 − 1, or
    /// if `min_gap` is above 2^53 − 1.
    pub fn new(windows: &[Window], min_gap: Micros, denied: Denied) -> Result<Self, ConfigError> {
        in_bounds("rates", count(windows.len()), 1, count(MAX_WINDOWS))?;
        let mut config = Self {
            windows: [Window { limit: 1, period: Micros::ZERO }; MAX_WINDOWS],
            count: windows.len(),
            min_gap,
            denied,
            limit: MAX_REMEMBERED,
            remembered: 0,
            period: min_gap,
        };
        if min_gap > Micros::ZERO {
            in_range("min_gap", min_gap.0)?;
        }
        for (place, &window) in config.windows.iter_mut().zip(windows) {
            in_bounds("limit", window.limit, 1, MAX_REMEMBERED)?;
            in_range("period", window.period.0)?;
            *place = window;
            config.limit = config.limit.min(window.limit);
            config.remembered = config.remembered.max(index(window.limit));
            config.period = config.period.max(window.period);
        }
        Ok(config)
    }

    /// Makes a log of one rate that remembers one unit fewer than its limit. It is for a limiter
    /// that acts on the unit that reaches the limit, and does not remember that unit.
    pub(crate) fn short_of(limit: u64, period: Micros) -> Self {
        Self {
            windows: [Window { limit, period }; MAX_WINDOWS],
            count: 1,
            min_gap: Micros::ZERO,
            denied: Denied::Forgotten,
            limit,
            remembered: index(limit.saturating_sub(1)),
            period,
        }
    }

    /// The rates.
    #[must_use]
    #[inline]
    pub fn windows(&self) -> &[Window] {
        self.windows.get(..self.count).unwrap_or_else(|| never(&self.windows))
    }

    /// The least gap between two requests. Zero if no gap is required.
    #[must_use]
    pub const fn min_gap(&self) -> Micros {
        self.min_gap
    }

    /// Whether refused requests count.
    #[must_use]
    pub const fn denied(&self) -> Denied {
        self.denied
    }

    /// The smallest limit of all rates. It is the most units that can pass at once.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Records that another limiter refused a request of `cost` units at `now`. The log treats this
    /// as a refusal of its own: it remembers the units if refused requests are [`Denied::Counted`].
    /// Returns how long this log then makes the same request wait. A cost of 0 changes nothing.
    pub fn refused(&self, state: &mut State<impl WordsMut>, now: Timestamp, cost: u64) -> Micros {
        if cost == 0 {
            return Micros::ZERO;
        }
        self.advance(state, now);
        if self.denied == Denied::Counted {
            remember(state, index(cost));
        }
        self.wait(settled(state), 0, cost)
    }

    /// The number of units that a state remembers.
    #[must_use]
    pub fn remembered(&self, state: &State<impl Words>) -> u64 {
        count(units(state).len())
    }

    /// Takes over the units that `held` remembers under another configuration, with their times:
    /// `to` units for every `from` units, rounded up. If they are too many, the oldest are lost.
    pub fn adopt(
        &self,
        state: &mut State<impl WordsMut>,
        held: &State<impl Words>,
        (to, from): (u64, u64),
    ) {
        let old = units(held);
        let wanted = count(old.len()).saturating_mul(to).div_ceil(from.max(1));
        let [newest, len, units @ ..] = state.words_mut() else { return };
        let wanted = index(wanted).min(units.len());
        for (place, unit) in units.iter_mut().take(wanted).enumerate() {
            let of = count(place).saturating_mul(from).checked_div(to).unwrap_or(0);
            *unit = old.get(index(of)).copied().unwrap_or_else(|| never(held.newest().0));
        }
        (*newest, *len) = (held.newest().0, count(wanted));
        self.advance(state, held.newest()); // units too old for this configuration leave
    }

    /// What makes a request of `cost` ≤ every nᵢ wait longest; `None` if the request would pass.
    pub fn held_by(
        &self,
        state: &State<impl Words>,
        now: Timestamp,
        cost: u64,
    ) -> Option<(Bound, Micros)> {
        let view = self.view(state, now);
        let gap = (Bound::Gap, view.until(0, 0, self.min_gap));
        let rates = self.windows().iter().map(|window| {
            let may_stay = index(window.limit.saturating_sub(cost));
            (Bound::Rate(*window), view.until(may_stay, 0, window.period))
        });
        let longest =
            rates.fold(gap, |longest, next| if next.1 > longest.1 { next } else { longest });
        (longest.1 > Micros::ZERO).then_some(longest)
    }

    /// Does what [`decide`](RateLimiter::decide) does. It is not generic, so this crate compiles it, and for speed. A crate that
    /// is built for size would compile it for size.
    fn decide_on(&self, state: &mut State<&mut [u64]>, now: Timestamp, cost: u64) -> Answer {
        if cost == 0 {
            return self.peek(state, now, 0);
        }
        CostExceedsCapacity::check(cost, self.most_of(state, self.limit))?;
        self.advance(state, now);
        let decision = self.answer(settled(state), cost);
        if decision.is_allowed() || self.denied == Denied::Counted {
            remember(state, index(cost));
        }
        Ok(decision)
    }

    #[inline]
    pub(crate) fn view<'a, W: AsRef<[u64]>>(
        &self,
        state: &'a State<W>,
        now: Timestamp,
    ) -> View<'a> {
        let newest = state.newest();
        let taken = now.taken_after(newest, self.period);
        let shift = newest.saturating_since(taken).0;
        let all = View { taken, shift, units: units(state) };
        let young = all.units.get(..all.younger(self.period));
        View { units: young.unwrap_or_else(|| never(all.units)), ..all }
    }

    #[inline]
    pub(crate) fn answer(&self, view: View<'_>, cost: u64) -> Decision {
        let limit = self.limit;
        let added = index(cost);
        let wait = if cost == 0 { Micros::ZERO } else { self.wait(view, 0, cost) };
        if wait == Micros::ZERO {
            let remaining = self.remaining(view, added);
            return Decision::Allow {
                limit,
                remaining,
                reset_after: self.until_empty(view, added),
            };
        }
        let (added, retry_after) = match self.denied {
            Denied::Counted => (added, self.wait(view, added, cost)),
            Denied::Forgotten => (0, wait),
        };
        Decision::Deny {
            limit,
            // if one unit has to wait, none is left
            remaining: if cost == 1 { 0 } else { self.remaining(view, added) },
            retry_after,
            reset_after: self.until_empty(view, added),
        }
    }

    /// The span that a request of `cost` ≤ every nᵢ has to wait after `added` more units were
    /// remembered. It ends when x₍ₙᵢ₋c₊₁₎ has left window i, for every i, and x₁ is g old.
    #[inline]
    fn wait(&self, view: View<'_>, added: usize, cost: u64) -> Micros {
        self.windows().iter().fold(view.until(0, added, self.min_gap), |wait, window| {
            let may_stay = index(window.limit.saturating_sub(cost));
            wait.max(view.until(may_stay, added, window.period))
        })
    }

    /// The largest cost that would pass now, after `added` more units were remembered.
    #[inline]
    fn remaining(&self, view: View<'_>, added: usize) -> u64 {
        if view.until(0, added, self.min_gap) > Micros::ZERO {
            return 0;
        }
        self.windows().iter().fold(self.limit, |remaining, window| {
            let counted = count(view.younger(window.period).saturating_add(added));
            remaining.min(window.limit.saturating_sub(counted))
        })
    }

    /// The span until the newest unit has left every window and is g old.
    #[inline]
    fn until_empty(&self, view: View<'_>, added: usize) -> Micros {
        view.until(0, added, self.period)
    }
}

impl Limiter for Config {
    /// Two words, and one word for each remembered unit.
    #[inline]
    fn words(&self) -> usize {
        self.remembered.saturating_add(2)
    }

    /// The longest of all periods and the gap.
    #[inline]
    fn period(&self) -> Micros {
        self.period
    }

    /// Forgets units that no longer count.
    #[inline]
    fn advance(&self, state: &mut State<impl WordsMut>, now: Timestamp) {
        let View { taken, shift, units } = self.view(state, now);
        let kept = units.len();
        let [newest, len, units @ ..] = state.words_mut() else { return };
        *newest = taken.0;
        if shift > 0 {
            for unit in units.iter_mut().take(kept) {
                *unit = unit.saturating_sub(shift);
            }
        }
        truncate(len, units, kept);
    }

    fn reset_after(&self, state: &State<impl Words>) -> Micros {
        self.view(state, state.newest()).until(0, 0, self.period)
    }

    /// Accepts a state only if its units are not too many, in order, not later than the newest
    /// time, and young enough to be remembered.
    fn accepts(&self, state: &State<impl Words>) -> Result<(), InvalidState> {
        self.state(state.words())?;
        let [newest, len, units @ ..] = state.words() else { return Err(InvalidState) };
        let len = usize::try_from(*len).map_err(|_| InvalidState)?;
        let (units, unused) = units.split_at_checked(len).ok_or(InvalidState)?;
        let oldest = units.last().copied().unwrap_or(*newest);
        let counts = newest.saturating_sub(oldest) < self.period.0;
        let starts = units.first().is_none_or(|first| first <= newest);
        let cleared = unused.iter().all(|&word| word == 0);
        if starts && counts && cleared && units.is_sorted_by(|newer, older| newer >= older) {
            Ok(())
        } else {
            Err(InvalidState)
        }
    }
}

impl RateLimiter for Config {
    #[inline]
    fn capacity(&self) -> u64 {
        self.limit
    }

    #[inline]
    fn decide(&self, state: &mut State<impl WordsMut>, now: Timestamp, cost: u64) -> Answer {
        self.decide_on(&mut state.under_mut(), now, cost)
    }

    #[inline]
    fn peek(&self, state: &State<impl Words>, now: Timestamp, cost: u64) -> Answer {
        CostExceedsCapacity::check(cost, self.most_of(state, self.limit))?;
        Ok(self.answer(self.view(state, now), cost))
    }

    /// The oldest units leave if there are too many, as always.
    fn charge(&self, state: &mut State<impl WordsMut>, now: Timestamp, cost: u64) {
        self.advance(state, now);
        remember(state, index(cost));
    }

    /// The rate with the least room left determines the used units. The gap counts no units.
    fn used(&self, state: &State<impl Words>) -> u64 {
        let view = self.view(state, state.newest());
        self.windows().iter().fold(0, |used, window| {
            let spare = window.limit.saturating_sub(self.limit);
            used.max(count(view.younger(window.period)).saturating_sub(spare))
        })
    }

    /// Removes units that were remembered at the time of the grant, at most as many as are left of
    /// that time. Units of the same time are interchangeable, including those of counted refusals.
    fn refund(&self, state: &mut State<impl WordsMut>, refund: Refund) {
        let (at, remembered) = (refund.granted_at.0, units(state));
        let first = remembered.partition_point(|&unit| unit > at);
        let (end, kept) = (remembered.partition_point(|&unit| unit >= at), remembered.len());
        let given_back = index(refund.cost).min(end.saturating_sub(first));
        let [_, len, units @ ..] = state.words_mut() else { return };
        // the units from `first` to `end` are equal; the units behind them move up
        if let Some(moved) = units.get_mut(..kept).and_then(|units| units.get_mut(first..)) {
            moved.copy_within(given_back.., 0);
        }
        truncate(len, units, kept.saturating_sub(given_back));
    }
}

/// Units leave that were remembered at the time of the grant, or more are remembered at that time.
impl Reservable for Config {
    const SINCE: usize = 0;

    /// Remembers twice as many units. Holds are at most N units that still count. So if all of them turn out to have cost
    /// nothing, the newest N units are still known, whatever was charged meanwhile.
    fn beside_holds(self) -> Self {
        let most = self.windows().iter().map(|window| window.limit).max().unwrap_or_default();
        Self { remembered: index(most.saturating_mul(2)), ..self }
    }

    fn note_refusal(&self, state: &mut State<impl WordsMut>, now: Timestamp, cost: u64) {
        self.refused(state, now, cost);
    }

    fn wait(&self, state: &State<impl Words>, now: Timestamp, cost: u64) -> Micros {
        match cost {
            0 => Micros::ZERO,
            _ => Self::wait(self, self.view(state, now), 0, cost),
        }
    }

    fn counted_with(&self, state: &State<impl Words>, granted_at: Timestamp) -> Option<(u64, u64)> {
        let at = |bound: u64| units(state).partition_point(|&unit| unit > bound);
        let before = granted_at.0.checked_sub(1).map_or(units(state).len(), at);
        Some((granted_at.0, count(before.saturating_sub(at(granted_at.0)))))
    }

    fn counts(&self, state: &State<impl Words>, granted_at: Timestamp, cost: u64) -> bool {
        self.counted_with(state, granted_at).is_some_and(|(_, counted)| counted >= cost)
    }

    fn correct(
        &self,
        state: &mut State<impl WordsMut>,
        granted_at: Timestamp,
        counted: u64,
        actual: u64,
    ) {
        self.refund(state, Refund { granted_at, cost: counted.saturating_sub(actual) });
        if granted_at <= state.newest() {
            let newer = units(state).partition_point(|&unit| unit > granted_at.0);
            insert(state, (newer, granted_at), index(actual.saturating_sub(counted)));
            self.advance(state, state.newest()); // units that no longer count leave
        }
    }
}

/// x₁, x₂, …
#[inline]
pub(crate) fn units(state: &State<impl Words>) -> &[u64] {
    let [_, len, units @ ..] = state.words() else { return &[] };
    units.get(..index(*len)).unwrap_or(units)
}

/// The view from the newest time of a state that was advanced to it.
#[inline]
pub(crate) fn settled(state: &State<impl Words>) -> View<'_> {
    View { taken: state.newest(), shift: 0, units: units(state) }
}

/// Remembers `added` units at the newest time. If they do not all fit, the oldest units leave.
#[inline]
fn remember(state: &mut State<impl WordsMut>, added: usize) {
    insert(state, (0, state.newest()), added);
}

/// Remembers `added` units at a time, behind the `first` newest ones. If they do not all fit, the oldest units leave.
#[inline]
fn insert(state: &mut State<impl WordsMut>, (first, at): (usize, Timestamp), added: usize) {
    let kept = units(state).len();
    let [_, len, units @ ..] = state.words_mut() else { return };
    let Some(older) = units.get_mut(first..) else { return };
    let added = added.min(older.len());
    let kept = kept.saturating_sub(first).min(older.len().saturating_sub(added));
    older.copy_within(..kept, added);
    if let Some(opened) = older.get_mut(..added) {
        opened.fill(at.0);
    }
    *len = count(first.saturating_add(kept).saturating_add(added));
}

/// Forgets all but the newest `kept` units.
#[inline]
fn truncate(len: &mut u64, units: &mut [u64], kept: usize) {
    if let Some(gone) = units.get_mut(kept..index(*len).min(units.len()))
        && !gone.is_empty()
    {
        gone.fill(0); // a call, even for no units
    }
    *len = count(kept);
}

/// A number of units as an index. Units are at most [`MAX_REMEMBERED`].
#[inline]
fn index(units: u64) -> usize {
    usize::try_from(units).unwrap_or(usize::MAX)
}

#[inline]
fn count(units: usize) -> u64 {
    u64::try_from(units).unwrap_or(u64::MAX)
}
