//! Sliding window of n segments with a weighted trailing one.
//!
//! Source: the ring of subintervals of "A sliding-window rate limiter" (senderista), with n = 60
//! segments of a second there; n = 1 is the two-counter form.
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | N | limit | units |
//! | P, n | period and its number of segments | µs, – |
//! | s = P/n | length of a segment, a whole number | µs |
//! | i = ⌊t/s⌋, o = t − i·s | current segment, and how far into it | –, µs |
//! | aₖ | granted in segment i − k, 0 ≤ k ≤ n | units |
//!
//! Estimate E(t) = a₀ + … + aₙ₋₁ + aₙ·(s − o)/s: the trailing segment counts by the part of it
//! that the window still covers. Granted iff E + c ≤ N, by cross-multiplication: no float, and
//! error 0 against that formula. Against the exact log of grants it errs by what the trailing
//! segment's grants were not spread evenly; `docs/` has that error measured.
//!
//! **Guarantee:** E never exceeds N; so at most N in any n consecutive segments, and at most 2·N
//! in any span of length P.
//!
//! ```
//! use tidegate_core::{Micros, Timestamp, window::sliding};
//!
//! let ten_per_second = sliding::Config::new(10, Micros::SECOND, 1).unwrap();
//! let mut state = ten_per_second.state([0; 2]).unwrap(); // n + 1 counters
//!
//! assert!(ten_per_second.decide(&mut state, Timestamp(999_999), 10).unwrap().is_allowed());
//! // A quarter into the next second, three quarters of those ten still count: 7.5.
//! let now = Timestamp(1_250_000);
//! assert_eq!(ten_per_second.decide(&mut state, now, 2).unwrap().remaining(), 0);
//! let refused = ten_per_second.decide(&mut state, now, 1).unwrap();
//! assert_eq!(refused.retry_after(), Micros(50_000)); // then 7 + 2 + 1 fit
//! ```

#[cfg(test)]
mod tests;

use super::Refund;
use crate::decision::{CostExceedsCapacity, Decision, InvalidState};
use crate::divisor::Divisor;
use crate::quantity::{ConfigError, MAX_QUANTITY, in_bounds, in_range};
use crate::time::{Micros, Timestamp};

/// The most segments a window may have: a state is then about a kilobyte.
pub const MAX_SEGMENTS: u64 = 120;

/// A validated sliding window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    limit: u64,
    /// n
    segments: usize,
    /// s
    segment: Divisor,
    period: Micros,
}

/// What is remembered of a key: made by [`Config::state`], in a buffer of the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State<C> {
    newest: Timestamp,
    /// Where the segment of `newest` begins: most decisions fall into the same one again, and then
    /// nothing needs dividing.
    start: u64,
    /// a₀ + … + aₙ₋₁ at `newest`
    sum: u64,
    /// a₀ … aₙ at `newest`
    counts: C,
}

impl<C> State<C> {
    /// The newest time seen.
    #[must_use]
    pub const fn newest(&self) -> Timestamp {
        self.newest
    }

    /// The three words beside the counters, for [`Config::state_from`].
    #[must_use]
    #[inline]
    pub const fn head(&self) -> [u64; 3] {
        [self.newest.0, self.start, self.sum]
    }
}

/// A state as seen from a time at or after its newest one.
#[derive(Clone, Copy)]
struct View {
    taken: Timestamp,
    start: u64,
    /// By how many segments the state's counters have aged.
    aged: usize,
    /// a₀ + … + aₙ₋₁
    sum: u64,
    /// o
    offset: u64,
}

impl Config {
    /// `limit` units per `period`, estimated over `segments` segments.
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`] (of segments: see [`MAX_SEGMENTS`]), [`ConfigError::UnevenSegments`] if a segment would be no whole
    /// number of microseconds, [`ConfigError::ScaleTooFine`] if limit × segment exceeds 64 bits.
    pub fn new(limit: u64, period: Micros, segments: u64) -> Result<Self, ConfigError> {
        in_range("limit", limit)?;
        in_range("period", period.0)?;
        in_bounds("segments", segments, 1, MAX_SEGMENTS)?;
        let count = usize::try_from(segments).unwrap_or(0); // at most MAX_SEGMENTS
        let segment = Divisor::new(segments).floor(period.0);
        if segment.saturating_mul(segments) != period.0 {
            let below = segment.saturating_mul(segments);
            let above = below.saturating_add(segments);
            let nearer_below = period.0.saturating_sub(below) <= above.saturating_sub(period.0);
            let nearest = Micros(if below > 0 && nearer_below { below } else { above });
            return Err(ConfigError::UnevenSegments { period, segments, nearest });
        }
        // a state expires one segment after its period: that span is public too
        if period.0.saturating_add(segment) > MAX_QUANTITY {
            let all = Divisor::new(segments.saturating_add(1)).floor(MAX_QUANTITY);
            let nearest = all.saturating_mul(segments);
            return Err(ConfigError::ScaleTooFine { field: "period", found: period.0, nearest });
        }
        let segment = Divisor::new(segment);
        let nearest = segment.floor(u64::MAX);
        if limit > nearest {
            return Err(ConfigError::ScaleTooFine { field: "limit", found: limit, nearest });
        }
        Ok(Self { limit, segments: count, segment, period })
    }

    /// The most units in a window.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The length of the window.
    #[must_use]
    pub const fn period(&self) -> Micros {
        self.period
    }

    /// n, the number of segments; a state has one counter more.
    #[must_use]
    pub const fn segments(&self) -> usize {
        self.segments
    }

    /// A key never seen, kept in `counts`: n + 1 zeros.
    ///
    /// # Errors
    /// [`InvalidState`] if that is not what `counts` is.
    pub fn state<C: AsRef<[u64]>>(&self, counts: C) -> Result<State<C>, InvalidState> {
        if counts.as_ref().iter().any(|&count| count != 0) {
            return Err(InvalidState);
        }
        self.state_from([0; 3], counts)
    }

    /// The state of these words; all zero for a key never seen. [`accepts`](Self::accepts) says
    /// whether it can be one of this configuration.
    ///
    /// # Errors
    /// [`InvalidState`] if there are not n + 1 counters.
    #[inline]
    pub fn state_from<C: AsRef<[u64]>>(
        &self,
        [newest, start, sum]: [u64; 3],
        counts: C,
    ) -> Result<State<C>, InvalidState> {
        if counts.as_ref().len() != self.segments.saturating_add(1) {
            return Err(InvalidState);
        }
        Ok(State { newest: Timestamp(newest), start, sum, counts })
    }

    /// Decides on a request of `cost` units at `now`; 0 is a peek.
    ///
    /// # Errors
    /// [`CostExceedsCapacity`]; the state is untouched.
    #[inline]
    pub fn decide<C: AsRef<[u64]> + AsMut<[u64]>>(
        &self,
        state: &mut State<C>,
        now: Timestamp,
        cost: u64,
    ) -> Result<Decision, CostExceedsCapacity> {
        if cost == 0 {
            return self.peek(state, now, 0);
        }
        CostExceedsCapacity::check(cost, self.limit)?;
        let view = self.view(state, now);
        settle(state, view);
        let settled = View { aged: 0, ..view };
        let decision = self.answer(state, settled, cost);
        if decision.is_allowed() {
            state.sum = state.sum.saturating_add(cost);
            if let Some(current) = state.counts.as_mut().first_mut() {
                *current = current.saturating_add(cost);
            }
        }
        Ok(decision)
    }

    /// What [`decide`](Self::decide) would answer; changes nothing.
    ///
    /// # Errors
    /// As [`decide`](Self::decide).
    pub fn peek<C: AsRef<[u64]>>(
        &self,
        state: &State<C>,
        now: Timestamp,
        cost: u64,
    ) -> Result<Decision, CostExceedsCapacity> {
        CostExceedsCapacity::check(cost, self.limit)?;
        Ok(self.answer(state, self.view(state, now), cost))
    }

    /// Moves the state to `now`, as any decision does first: lets segments age, consumes nothing.
    pub fn advance<C: AsRef<[u64]> + AsMut<[u64]>>(&self, state: &mut State<C>, now: Timestamp) {
        let view = self.view(state, now);
        settle(state, view);
    }

    /// Counts `cost` units that were spent already, whether there is room or not: the real cost of a
    /// request that was granted on an estimate. At most twice the limit is ever counted in n
    /// segments.
    pub fn charge<C: AsRef<[u64]> + AsMut<[u64]>>(
        &self,
        state: &mut State<C>,
        now: Timestamp,
        cost: u64,
    ) {
        self.advance(state, now);
        let counted = cost.min(self.most().saturating_sub(state.sum));
        state.sum = state.sum.saturating_add(counted);
        if let Some(current) = state.counts.as_mut().first_mut() {
            *current = current.saturating_add(counted);
        }
    }

    /// What n segments hold at most: their weighted sum must fit 64 bits.
    fn most(&self) -> u64 {
        self.limit.saturating_mul(2).min(self.segment.floor(u64::MAX))
    }

    /// Gives back units that were granted and not used, out of the segment they were counted in.
    pub fn refund<C: AsRef<[u64]> + AsMut<[u64]>>(&self, state: &mut State<C>, refund: Refund) {
        if refund.granted_at > state.newest {
            return; // by a clock that came back since
        }
        let (newest, granted) =
            (self.segment.floor(state.newest.0), self.segment.floor(refund.granted_at.0));
        let Some(age) = newest.checked_sub(granted).and_then(|age| usize::try_from(age).ok())
        else {
            return;
        };
        let Some(count) = state.counts.as_mut().get_mut(age) else { return };
        let given_back = refund.cost.min(*count);
        *count = count.saturating_sub(given_back);
        if age < self.segments {
            state.sum = state.sum.saturating_sub(given_back);
        }
    }

    /// E at the newest time, rounded up: more than the limit if some units were charged beyond it.
    #[must_use]
    pub fn used<C: AsRef<[u64]>>(&self, state: &State<C>) -> u64 {
        self.estimate(state.counts.as_ref(), self.view(state, state.newest))
    }

    /// From this time on the state equals a fresh one.
    #[must_use]
    pub fn expires_at<C: AsRef<[u64]>>(&self, state: &State<C>) -> Timestamp {
        state.newest.saturating_add(self.reset_after(state))
    }

    /// The span from the newest time seen to [`expires_at`](Self::expires_at).
    #[must_use]
    pub fn reset_after<C: AsRef<[u64]>>(&self, state: &State<C>) -> Micros {
        let offset = state.newest.0.saturating_sub(state.start);
        self.until_empty(state.counts.as_ref(), 0, offset)
    }

    /// # Errors
    /// [`InvalidState`] if no decision of this configuration can have left the state behind.
    pub fn accepts<C: AsRef<[u64]>>(&self, state: &State<C>) -> Result<(), InvalidState> {
        let counts = state.counts.as_ref();
        let mut sum = 0_u64;
        for &count in counts.iter().take(self.segments) {
            sum = sum.checked_add(count).ok_or(InvalidState)?;
        }
        let trailing = counts.last().copied().unwrap_or(0);
        let start = state.newest.0.saturating_sub(self.segment.rem(state.newest.0));
        if start != state.start || sum != state.sum || sum > self.most() || trailing > self.most() {
            return Err(InvalidState);
        }
        Ok(())
    }

    /// After a return from a jump ahead the counters keep their ages.
    #[inline]
    fn view<C: AsRef<[u64]>>(&self, state: &State<C>, now: Timestamp) -> View {
        let taken = now.taken_after(state.newest, self.period);
        match taken.0.checked_sub(state.start) {
            Some(offset) if offset < self.segment.value() => {
                View { taken, start: state.start, aged: 0, sum: state.sum, offset }
            }
            since_start => self.view_aged(state, taken, since_start.unwrap_or(0)),
        }
    }

    /// The view from another segment, `since_start` after the start of that of the newest time.
    fn view_aged<C: AsRef<[u64]>>(
        &self,
        state: &State<C>,
        taken: Timestamp,
        since_start: u64,
    ) -> View {
        let offset = self.segment.rem(taken.0);
        let start = taken.0.saturating_sub(offset);
        let aged = self.segment.floor(since_start);
        if aged == 0 {
            return View { taken, start, aged: 0, sum: state.sum, offset };
        }
        let most = self.segments.saturating_add(1);
        let aged = usize::try_from(aged).unwrap_or(most).min(most);
        // those of the oldest that become the trailing one, or leave
        let kept = self.segments.saturating_sub(aged);
        let leaving = state.counts.as_ref().iter().take(self.segments).skip(kept);
        let sum = leaving.fold(state.sum, |sum, &count| sum.saturating_sub(count));
        View { taken, start, aged, sum, offset }
    }

    #[inline]
    fn answer<C: AsRef<[u64]>>(&self, state: &State<C>, view: View, cost: u64) -> Decision {
        let limit = self.limit;
        let counts = state.counts.as_ref();
        let remaining = limit.saturating_sub(self.estimate(counts, view));
        if let Some(left) = remaining.checked_sub(cost) {
            // what is granted now sits in the current segment, and that leaves last
            let reset_after = if cost == 0 {
                self.until_empty(counts, view.aged, view.offset)
            } else {
                self.until_aged_out(0, view.offset)
            };
            Decision::Allow { limit, remaining: left, reset_after }
        } else {
            Decision::Deny {
                limit,
                remaining,
                retry_after: self.until_fits(counts, view, cost),
                reset_after: self.until_empty(counts, view.aged, view.offset),
            }
        }
    }

    /// E, up: it is subtracted from the limit, and what remains is rounded down.
    #[inline]
    fn estimate(&self, counts: &[u64], view: View) -> u64 {
        let covered = self.segment.value().saturating_sub(view.offset); // s − o, at least 1
        let weighted = self.segment.ceil(self.trailing(counts, view.aged).saturating_mul(covered));
        view.sum.saturating_add(weighted)
    }

    /// aₙ after ageing by so many segments.
    #[inline]
    fn trailing(&self, counts: &[u64], aged: usize) -> u64 {
        self.segments.checked_sub(aged).and_then(|k| counts.get(k)).copied().unwrap_or(0)
    }

    /// E falls steadily: segment by segment, and linearly within each. The first segment by whose
    /// end the cost fits holds the moment: the least o with aₙ·(s − o) ≤ (N − sum − c)·s.
    fn until_fits(&self, counts: &[u64], view: View, cost: u64) -> Micros {
        let length = self.segment.value();
        let View { aged, mut sum, offset, .. } = view;
        let mut passed = 0_u64;
        for aged in aged..=self.segments {
            if let Some(room) = self.limit.checked_sub(sum).and_then(|room| room.checked_sub(cost))
            {
                let covered = room
                    .saturating_mul(length) // limit·s fits 64 bits
                    .checked_div(self.trailing(counts, aged))
                    .unwrap_or(length); // down: what may still be covered
                let at = length.saturating_sub(covered);
                return Micros(passed.saturating_add(at).saturating_sub(offset));
            }
            sum = sum.saturating_sub(self.trailing(counts, aged.saturating_add(1)));
            passed = passed.saturating_add(length);
        }
        Micros(passed.saturating_sub(offset))
    }

    /// Until the newest segment with a grant in it has left.
    fn until_empty(&self, counts: &[u64], aged: usize, offset: u64) -> Micros {
        counts
            .iter()
            .position(|&count| count != 0)
            .map_or(Micros::ZERO, |k| self.until_aged_out(k.saturating_add(aged), offset))
    }

    /// Until a segment of age k has left: at the end of segment i − k + n.
    #[inline]
    fn until_aged_out(&self, k: usize, offset: u64) -> Micros {
        let segments = self.segments.saturating_add(1).saturating_sub(k);
        let segments = u64::try_from(segments).unwrap_or(MAX_SEGMENTS); // at most n + 1
        Micros(segments.saturating_mul(self.segment.value()).saturating_sub(offset))
    }
}

/// Lets the counters age as the view says.
#[inline]
fn settle<C: AsMut<[u64]>>(state: &mut State<C>, view: View) {
    state.newest = view.taken;
    state.start = view.start;
    state.sum = view.sum;
    if view.aged == 0 {
        return;
    }
    let counts = state.counts.as_mut();
    let aged = view.aged.min(counts.len());
    counts.copy_within(..counts.len().saturating_sub(aged), aged);
    if let Some(opened) = counts.get_mut(..aged) {
        opened.fill(0);
    }
}
