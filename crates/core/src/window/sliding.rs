//! Sliding window: n whole segments and a weighted trailing segment.
//!
//! Source: the ring of subintervals of "A sliding-window rate limiter" (senderista), which has
//! n = 60 segments of a second. The two-counter form is n = 1.
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | N | limit | units |
//! | P, n | period and its number of segments | µs, – |
//! | s = P/n | length of a segment, a whole number | µs |
//! | i = ⌊t/s⌋, o = t − i·s | current segment, and the time since its start | –, µs |
//! | aₖ | units granted in segment i − k, 0 ≤ k ≤ n | units |
//! | c | cost of a request | units |
//!
//! The estimate is E(t) = a₀ + … + aₙ₋₁ + aₙ·(s − o)/s: the trailing segment counts in proportion
//! to its share that the window still covers. A request is granted iff E + c ≤ N. The comparison
//! multiplies crosswise in integers, so its error against that formula is 0. The formula itself
//! assumes that the grants of the trailing segment were spread evenly. `docs/algorithms.md` shows
//! how far it then differs from an exact log of grants.
//!
//! **Guarantee:** E never exceeds N. So at most N units are granted in any n consecutive segments,
//! and at most 2·N in any span of length P.
//!
//! ```
//! use tidegate_core::{Limiter, Micros, RateLimiter, Timestamp, window::sliding};
//!
//! let ten_per_second = sliding::Config::new(10, Micros::SECOND, 1).unwrap();
//! let mut state = ten_per_second.state([0; 5]).unwrap(); // 3 words and n + 1 counters
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
use crate::decision::{Answer, CostExceedsCapacity, Decision, InvalidState};
use crate::divisor::Divisor;
use crate::hold::reservable::Reservable;
use crate::limiter::{self, Ahead, Limiter, RateLimiter, Words, WordsMut, sealed};
use crate::never::never;
use crate::quantity::{ConfigError, MAX_QUANTITY, in_bounds, in_range, saturating_product};
use crate::time::{Micros, Timestamp};

/// The most segments that a window may have. A state then takes about 1 KB.
pub const MAX_SEGMENTS: u64 = 120;

/// A validated sliding window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    limit: u64,
    /// n. As a small number it tells the compiler that a state of n + 4 words has a head.
    segments: u8,
    /// s
    segment: Divisor,
    period: Micros,
    /// The most units that n segments may count.
    most: u64,
}

/// The state of a key. [`Limiter::state`] makes it. Its words are the newest time seen, the start
/// of the segment of that time, a₀ + … + aₙ₋₁, and a₀ … aₙ. The start is stored because most
/// decisions fall into the same segment as the last one, and then need no division.
pub type State<W> = limiter::State<Config, W>;

impl sealed::Sealed for Config {}

/// The first words of a state, by name.
#[derive(Clone, Copy)]
struct Head {
    newest: Timestamp,
    start: u64,
    sum: u64,
}

impl Head {
    #[inline]
    const fn of(&[newest, start, sum]: &[u64; 3]) -> Self {
        Self { newest: Timestamp(newest), start, sum }
    }
}

/// A state as seen from a time at or after its newest time.
#[derive(Clone, Copy)]
struct View {
    taken: Timestamp,
    start: u64,
    /// The number of segments by which the counters of the state have aged.
    aged: usize,
    /// a₀ + … + aₙ₋₁
    sum: u64,
    /// o
    offset: u64,
}

impl Config {
    /// Makes a limit of `limit` units per `period`, estimated over `segments` segments.
    ///
    /// # Errors
    /// - [`ConfigError::OutOfRange`] if `limit` or `period` is 0 or above 2^53 − 1, or if `segments`
    ///   is 0 or above [`MAX_SEGMENTS`].
    /// - [`ConfigError::UnevenSegments`] if a segment is not a whole number of microseconds long.
    /// - [`ConfigError::ScaleTooFine`] if limit × segment exceeds 64 bits, or if the period and a
    ///   segment together exceed 285 years.
    pub fn new(limit: u64, period: Micros, segments: u64) -> Result<Self, ConfigError> {
        in_range("limit", limit)?;
        in_range("period", period.0)?;
        in_bounds("segments", segments, 1, MAX_SEGMENTS)?;
        let count = u8::try_from(segments).unwrap_or_else(|_| never(u8::MAX)); // at most MAX_SEGMENTS
        let segment = Divisor::new(segments).floor(period.0);
        if segment.saturating_mul(segments) != period.0 {
            let below = segment.saturating_mul(segments);
            let above = below.saturating_add(segments);
            let nearer_below = period.0.saturating_sub(below) <= above.saturating_sub(period.0);
            let nearest = Micros(if below > 0 && nearer_below { below } else { above });
            return Err(ConfigError::UnevenSegments { period, segments, nearest });
        }
        // a state expires one segment after its period, and that span is public too
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
        let most = limit.saturating_mul(2).min(nearest);
        Ok(Self { limit, segments: count, segment, period, most })
    }

    /// The most units in a window.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// n, the number of segments. A state has n + 1 counters.
    #[must_use]
    #[inline]
    pub fn segments(&self) -> usize {
        self.segments.into()
    }

    /// The head of a state, and a₀ … aₙ. `None` if the state has another number of words, because it is that of another
    /// window.
    #[inline]
    fn split<'a>(&self, state: &'a State<impl Words>) -> Option<(Head, &'a [u64])> {
        let words = state.words();
        if words.len() != self.words() {
            return None;
        }
        let (head, counts) = words.split_first_chunk()?;
        Some((Head::of(head), counts))
    }

    /// The mutable form of [`split`](Self::split).
    #[inline]
    fn split_mut<'a>(
        &self,
        state: &'a mut State<impl WordsMut>,
    ) -> Option<(&'a mut [u64; HEAD], &'a mut [u64])> {
        let words = state.words_mut();
        if words.len() != self.words() {
            return None;
        }
        words.split_first_chunk_mut()
    }

    /// After a clock has returned from a jump ahead, the counters keep their ages.
    #[inline]
    fn view(&self, head: Head, counts: &[u64], now: Timestamp) -> View {
        let Head { newest, start, sum } = head;
        let taken = now.taken_after(newest, self.period);
        match taken.0.checked_sub(start) {
            Some(offset) if offset < self.segment.value() => {
                View { taken, start, aged: 0, sum, offset }
            }
            since_start => self.view_aged(sum, counts, taken, since_start.unwrap_or(0)),
        }
    }

    /// The view from another segment. `since_start` is the span from the start of the newest time's
    /// segment to the time of the view.
    #[inline]
    fn view_aged(&self, sum: u64, counts: &[u64], taken: Timestamp, since_start: u64) -> View {
        let offset = self.segment.rem(taken.0);
        let start = taken.0.saturating_sub(offset);
        let aged = self.segment.floor(since_start);
        if aged == 0 {
            return View { taken, start, aged: 0, sum, offset };
        }
        let most = self.segments().saturating_add(1);
        let aged = usize::try_from(aged).unwrap_or(most).min(most);
        // the oldest counters, which become the trailing counter or leave
        let kept = self.segments().saturating_sub(aged);
        let leaving = counts.iter().take(self.segments()).skip(kept);
        let sum = leaving.fold(sum, |sum, &count| sum.saturating_sub(count));
        View { taken, start, aged, sum, offset }
    }

    /// E, rounded up, because the remaining units are the limit less E, rounded down.
    #[inline]
    fn estimate(&self, counts: &[u64], view: View) -> u64 {
        let covered = self.segment.value().saturating_sub(view.offset); // s − o, at least 1
        let weighted = saturating_product(self.trailing(counts, view.aged), covered);
        let weighted = self.segment.ceil(weighted);
        view.sum.saturating_add(weighted)
    }

    /// The answer to a request whose cost exceeds the remaining units.
    #[inline]
    fn refusal(&self, counts: &[u64], view: View, cost: u64, remaining: u64) -> Decision {
        Decision::Deny {
            limit: self.limit,
            remaining,
            retry_after: self.until_fits(counts, view, cost),
            reset_after: self.until_empty(counts, view.aged, view.offset),
        }
    }

    /// aₙ after the counters have aged by `aged` segments.
    #[inline]
    fn trailing(&self, counts: &[u64], aged: usize) -> u64 {
        self.segments().checked_sub(aged).and_then(|k| counts.get(k)).copied().unwrap_or(0)
    }

    /// The span until `cost` fits. E never rises: it falls linearly within each segment. So the
    /// cost first fits in the first segment at whose end it fits, at the least o with
    /// aₙ·(s − o) ≤ (N − sum − c)·s.
    fn until_fits(&self, counts: &[u64], view: View, cost: u64) -> Micros {
        let length = self.segment.value();
        let View { aged, mut sum, offset, .. } = view;
        let mut passed = 0_u64;
        for aged in aged..=self.segments() {
            if let Some(room) = self.limit.checked_sub(sum).and_then(|room| room.checked_sub(cost))
            {
                let covered = room
                    .saturating_mul(length) // limit·s fits 64 bits
                    .checked_div(self.trailing(counts, aged))
                    .unwrap_or(length); // down: the window may still cover this much
                let at = length.saturating_sub(covered);
                return Micros(passed.saturating_add(at).saturating_sub(offset));
            }
            sum = sum.saturating_sub(self.trailing(counts, aged.saturating_add(1)));
            passed = passed.saturating_add(length);
        }
        Micros(passed.saturating_sub(offset))
    }

    /// The span until the newest segment with a grant in it has left.
    fn until_empty(&self, counts: &[u64], aged: usize, offset: u64) -> Micros {
        counts
            .iter()
            .position(|&count| count != 0)
            .map_or(Micros::ZERO, |k| self.until_aged_out(k.saturating_add(aged), offset))
    }

    /// The span until a segment of age k has left. It leaves at the end of segment i − k + n.
    #[inline]
    fn until_aged_out(&self, k: usize, offset: u64) -> Micros {
        let segments = self.segments().saturating_add(1).saturating_sub(k);
        let segments = u64::try_from(segments).unwrap_or_else(|_| never(MAX_SEGMENTS)); // at most n + 1
        Micros(segments.saturating_mul(self.segment.value()).saturating_sub(offset))
    }
}

impl Limiter for Config {
    #[inline]
    fn words(&self) -> usize {
        self.segments().saturating_add(HEAD).saturating_add(1)
    }

    /// The length of the window.
    #[inline]
    fn period(&self) -> Micros {
        self.period
    }

    /// Lets segments age.
    fn advance(&self, state: &mut State<impl WordsMut>, now: Timestamp) {
        let Some((head, counts)) = self.split_mut(state) else { return };
        let view = self.view(Head::of(head), counts, now);
        age(head, counts, view);
        count(head, counts, view, 0);
    }

    fn reset_after(&self, state: &State<impl Words>) -> Micros {
        match self.split(state) {
            Some((Head { newest, start, .. }, counts)) => {
                self.until_empty(counts, 0, newest.0.saturating_sub(start))
            }
            None => self.until_aged_out(0, 0), // as if it had just been granted
        }
    }

    fn accepts(&self, state: &State<impl Words>) -> Result<(), InvalidState> {
        let (head, counts) = self.split(state).ok_or(InvalidState)?;
        let mut sum = 0_u64;
        for &count in counts.iter().take(self.segments()) {
            sum = sum.checked_add(count).ok_or(InvalidState)?;
        }
        let trailing = counts.last().copied().unwrap_or_else(|| never(u64::MAX));
        let start = head.newest.0.saturating_sub(self.segment.rem(head.newest.0));
        let bounded = sum <= self.most && trailing <= self.most;
        if start == head.start && sum == head.sum && bounded { Ok(()) } else { Err(InvalidState) }
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
        let Some((head, counts)) = self.split_mut(state) else {
            return Err(CostExceedsCapacity { cost, capacity: 0 });
        };
        let view = self.view(Head::of(head), counts, now);
        age(head, counts, view);
        let settled = View { aged: 0, ..view };
        let remaining = self.limit.saturating_sub(self.estimate(counts, settled));
        let Some(left) = remaining.checked_sub(cost) else {
            count(head, counts, settled, 0);
            return Ok(self.refusal(counts, settled, cost, remaining));
        };
        count(head, counts, settled, cost);
        // this grant is counted in the current segment, which leaves last
        let reset_after = self.until_aged_out(0, view.offset);
        Ok(Decision::Allow { limit: self.limit, remaining: left, reset_after })
    }

    fn peek(&self, state: &State<impl Words>, now: Timestamp, cost: u64) -> Answer {
        CostExceedsCapacity::check(cost, self.limit)?;
        let Some((head, counts)) = self.split(state) else {
            return Err(CostExceedsCapacity { cost, capacity: 0 });
        };
        let view = self.view(head, counts, now);
        let remaining = self.limit.saturating_sub(self.estimate(counts, view));
        let Some(left) = remaining.checked_sub(cost) else {
            return Ok(self.refusal(counts, view, cost, remaining));
        };
        let reset_after = match cost {
            0 => self.until_empty(counts, view.aged, view.offset),
            _ => self.until_aged_out(0, view.offset),
        };
        Ok(Decision::Allow { limit: self.limit, remaining: left, reset_after })
    }

    /// The counters of n segments never exceed twice the limit, except beside holds.
    fn charge(&self, state: &mut State<impl WordsMut>, now: Timestamp, cost: u64) {
        let Some((head, counts)) = self.split_mut(state) else { return };
        let view = self.view(Head::of(head), counts, now);
        age(head, counts, view);
        let room = self.most.saturating_sub(view.sum);
        count(head, counts, view, cost.min(room));
    }

    /// The units are charged in the segment of the newest time, and cover grants until it ends.
    fn charge_ahead(
        &self,
        state: &mut State<impl WordsMut>,
        units: u64,
        _: Micros,
    ) -> Option<Ahead> {
        let (head, counts) = self.split_mut(state)?;
        let Head { newest, start, sum } = Head::of(head);
        if newest == Timestamp::EPOCH {
            return None;
        }
        let units = units.min(self.limit.saturating_sub(sum)); // no more can be granted
        let offset = newest.0.saturating_sub(start);
        count(head, counts, View { taken: newest, start, aged: 0, sum, offset }, units);
        let until = Timestamp(start.saturating_add(self.segment.value()));
        Some(Ahead { units, until })
    }

    /// E, rounded up.
    fn used(&self, state: &State<impl Words>) -> u64 {
        let Some((head, counts)) = self.split(state) else { return u64::MAX };
        self.estimate(counts, self.view(head, counts, head.newest))
    }

    /// The units come out of the segment in which they were counted.
    fn refund(&self, state: &mut State<impl WordsMut>, refund: Refund) {
        self.correct(state, refund.granted_at, refund.cost, 0);
    }
}

/// The count is corrected in the segment of the grant, if it still counts.
impl Config {
    /// How many segments lie between a grant and the newest time.
    fn age(&self, newest: Timestamp, granted_at: Timestamp) -> Option<usize> {
        if granted_at > newest {
            return None; // granted by a clock that has since come back
        }
        let (newest, granted) = (self.segment.floor(newest.0), self.segment.floor(granted_at.0));
        newest.checked_sub(granted).and_then(|age| usize::try_from(age).ok())
    }
}

impl Reservable for Config {
    const SINCE: usize = 0;

    /// A debt counts in full. A bound near the limit would forget units that still count when another hold turns out cheaper.
    fn beside_holds(self) -> Self {
        Self { most: MOST_BESIDE_HOLDS, ..self }
    }

    /// The segment of the grant.
    fn counted_with(&self, state: &State<impl Words>, granted_at: Timestamp) -> Option<(u64, u64)> {
        let (Head { newest, .. }, counts) = self.split(state)?;
        let count = counts.get(self.age(newest, granted_at)?)?;
        Some((self.segment.floor(granted_at.0), *count))
    }

    /// The trailing segment counts with a weight.
    fn counts(&self, state: &State<impl Words>, granted_at: Timestamp, _units: u64) -> bool {
        self.age(state.newest(), granted_at).is_some_and(|age| age < self.segments())
    }

    fn correct(
        &self,
        state: &mut State<impl WordsMut>,
        granted_at: Timestamp,
        counted: u64,
        actual: u64,
    ) {
        let Some(age) = self.age(state.newest(), granted_at) else { return };
        let Some(([_, _, sum], counts)) = self.split_mut(state) else { return };
        let Some(count) = counts.get_mut(age) else { return };
        let others = count.saturating_sub(counted);
        let left = sum.saturating_sub(count.saturating_sub(others));
        let room = self.most.saturating_sub(if age < self.segments() { left } else { others });
        *count = others.saturating_add(actual.min(room));
        if age < self.segments() {
            *sum = left.saturating_add(actual.min(room));
        }
    }
}

/// The words before the counters.
const HEAD: usize = 3;

/// So many that no sum of counters overflows. A weight of so many may, but then it saturates above every limit.
const MOST_BESIDE_HOLDS: u64 = 1 << 60;

/// Ages the counters by the view's number of segments.
#[inline]
fn age(head: &mut [u64; HEAD], counts: &mut [u64], view: View) {
    let [_, start, _] = head;
    if *start == view.start {
        return; // the same segment
    }
    *start = view.start;
    shift(counts, view.aged);
}

/// Ages the counters by `aged` segments.
#[cold]
fn shift(counts: &mut [u64], aged: usize) {
    let aged = aged.min(counts.len());
    counts.copy_within(..counts.len().saturating_sub(aged), aged);
    if let Some(opened) = counts.get_mut(..aged) {
        opened.fill(0);
    }
}

/// Moves to the time of the view and counts units in the current segment. The counters must have
/// aged before.
#[inline]
fn count(head: &mut [u64; HEAD], counts: &mut [u64], view: View, units: u64) {
    let [newest, _, sum] = head;
    *newest = view.taken.0;
    *sum = view.sum.saturating_add(units);
    if let Some(current) = counts.first_mut() {
        *current = current.saturating_add(units);
    }
}
