//! Suppression, the master's side: which fraction of an account's load all its reporters are to
//! refuse, from what they report.
//!
//! Source: "Building a distributed rate limiter that scales horizontally" (Ably): reports at most
//! every 2 s, a mean over 4 parts of 6 s, both profiles tried there. The reporters' side is
//! [`reporter`](super::reporter).
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | L | limit, a rate | units per µs |
//! | k = ⌊t / 6 s⌋ | part in progress, aligned to the epoch | – |
//! | aₖ, sₖ | units of part k that were admitted, that were suppressed | units |
//! | oₖ = aₖ + sₖ | offered: what would have passed without suppression | units |
//! | x | the estimate of the offered rate | units per µs |
//! | f | factor: the fraction to refuse | – |
//!
//! | estimator | x | f |
//! |---|---|---|
//! | [`LinearAdmitted`](Estimator::LinearAdmitted) | mean of 4 parts of *a* | (x/L − 1) / ramp |
//! | [`ModifiedMean`](Estimator::ModifiedMean) | mean of 4 parts of *o*; of the 3 complete ones while the part in progress is below them | 1 − L/x |
//! | [`NewestPart`](Estimator::NewestPart) | the largest of that mean, of the newest complete part, and of the part in progress over max(2 s, what has passed of it), once it has broken the limit | 1 − L/x |
//!
//! f is no less than 0 and no more than 1, worked out in whole numbers and only at the very end
//! rounded down to 2^-32.
//!
//! **Guarantee:** an account that offers at most 6 s · L in every part is never suppressed,
//! whenever its reports arrive and whenever the factor is asked for. Above that, what the two
//! profiles on offered rates admit settles at the limit, for it does not move what they measure;
//! what the one on admitted rates admits swings between nothing and everything. `tidegate-sim`
//! shows all three.
//!
//! Units count in the part in which they were *offered*, as the reporter says, and not in that in
//! which the report arrives. Otherwise late reports could push a part over the limit that was
//! within it. A report of a part that has left the four counts for nothing. A reporter's clock may
//! be ahead by a part, and moves the state's clock as any other does; of a report from further
//! ahead that is all that is believed.
//!
//! ```
//! use tidegate_core::shed::Probability;
//! use tidegate_core::shed::suppression::{Config, Estimator, Report, State};
//! use tidegate_core::{Micros, Rate, Timestamp};
//!
//! let limit = Rate::new(100, Micros::SECOND).unwrap(); // 600 a part
//! let config = Config::new(limit, Estimator::default()).unwrap();
//! let mut state = State::default();
//!
//! let at = Timestamp(1_700_000_006_000_000); // 2 s into a part
//! config.report(&mut state, at, Report { offered_at: at, admitted: 600, suppressed: 0 });
//! assert_eq!(config.factor(&state, at), Probability::NEVER);
//!
//! // The part's 600 are used up, and 200 more in 2 s make 400 a second: three quarters too many.
//! config.report(&mut state, at, Report { offered_at: at, admitted: 150, suppressed: 50 });
//! assert_eq!(config.factor(&state, at).units(), 3 << 30);
//! ```

#[cfg(test)]
mod tests;

use super::share::Fraction;
use super::{Draw, Probability};
use crate::decision::InvalidState;
use crate::limiter::{self, Limiter, Words, WordsMut, small_state};
use crate::quantity::{ConfigError, MAX_QUANTITY, Rate, in_range};
use crate::time::{Micros, Timestamp};
use crate::window::Refund;

/// The length of a part.
pub const PART: Micros = Micros(6_000_000);

/// How many parts are remembered, the one in progress included.
pub const PARTS: usize = 4;

/// Reporters report at most so often.
pub const REPORT_EVERY: Micros = Micros(2_000_000);

/// All parts together: 24 s.
pub(super) const PERIOD: Micros = Micros(24_000_000);

/// How the rate is estimated, and what follows from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Estimator {
    /// The authors' first: in proportion to how far the *admitted* rate is above the limit. It
    /// swings between nothing and everything, with a period of about 24 s. Kept to show that.
    LinearAdmitted {
        /// From nothing at the limit to everything at 1 + `ramp` times the limit. At least 1.
        ramp: u16,
    },
    /// The authors' final one: what brings the mean offered rate down to the limit. Needs all four
    /// parts to see the whole of a sudden load.
    ModifiedMean,
    /// The default: as [`ModifiedMean`](Self::ModifiedMean), but a load is taken to be as high as
    /// in the newest complete part, or in the part in progress, if that is higher.
    #[default]
    NewestPart,
}

/// A validated suppression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    limit: Rate,
    estimator: Estimator,
    /// ⌊6 s · L⌋: what a part may have.
    in_a_part: u64,
    /// ⌈2^32 · 72 s · L⌉
    common: u128,
}

/// What one reporter counted of one part since its last report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Any time in the part in which the units were offered, by the reporter's clock.
    pub offered_at: Timestamp,
    /// Units that passed.
    pub admitted: u64,
    /// Units that would have passed without suppression.
    pub suppressed: u64,
}

/// What is remembered of an account: the newest time, and the admitted and the suppressed units of
/// four parts, the part in progress first. The default is an account never seen.
pub type State<W = [u64; 9]> = limiter::State<Config, W>;

small_state!(Config, 9, newest: 0);

impl<W: AsRef<[u64]>> State<W> {
    /// Units of the part in progress, whether they passed or not.
    #[must_use]
    pub fn offered_in_part(&self) -> u64 {
        let [in_progress, ..] = *counts(self);
        offered(in_progress)
    }
}

/// The admitted and the suppressed units of each part, the part in progress first.
type Counts = [[u64; 2]; PARTS];

#[inline]
fn counts(state: &State<impl Words>) -> &Counts {
    let counts = state.words().get(1..).unwrap_or(&[]);
    counts.as_chunks().0.first_chunk().unwrap_or(&[[0; 2]; PARTS])
}

#[inline]
const fn offered([admitted, suppressed]: [u64; 2]) -> u64 {
    admitted.saturating_add(suppressed)
}

/// The least span that one, three and four parts go into: rates over them are then compared by
/// their units alone.
const COMMON: Micros = Micros(72_000_000);

/// The counts of the part so many before the one in progress.
#[inline]
fn counts_of<W: AsMut<[u64]>>(state: &mut State<W>, age: u64) -> Option<&mut [u64; 2]> {
    let (counts, _) = state.words_mut().get_mut(1..)?.as_chunks_mut();
    counts.get_mut(usize::try_from(age).ok()?)
}

/// A time in another part: after a return from a jump ahead the parts keep their ages.
#[cold]
fn turn_to(state: &mut State<impl WordsMut>, taken: Timestamp) -> Micros {
    let aged = part_of(taken).saturating_sub(part_of(state.newest()));
    let aged = usize::try_from(aged).unwrap_or(PARTS).min(PARTS);
    if let [newest, counts @ ..] = state.words_mut() {
        *newest = taken.0;
        let (counts, _) = counts.as_chunks_mut::<2>();
        counts.copy_within(..counts.len().saturating_sub(aged), aged);
        if let Some(opened) = counts.get_mut(..aged) {
            opened.fill([0; 2]);
        }
    }
    since_start(taken)
}

impl Config {
    /// Suppression of what exceeds `limit`.
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`] if there is a ramp and it is 0.
    pub fn new(limit: Rate, estimator: Estimator) -> Result<Self, ConfigError> {
        if let Estimator::LinearAdmitted { ramp } = estimator {
            in_range("ramp", u64::from(ramp))?;
        }
        let in_a_span = |span: Micros| u128::from(limit.units()).saturating_mul(span.0.into());
        let period = u128::from(limit.period().0);
        let in_a_part = in_a_span(PART).checked_div(period).unwrap_or(0);
        let in_a_part = u64::try_from(in_a_part).unwrap_or(u64::MAX);
        let common = in_a_span(COMMON).saturating_mul(1 << 32).div_ceil(period);
        Ok(Self { limit, estimator, in_a_part, common })
    }

    /// The rate that an account may have.
    #[must_use]
    pub const fn limit(&self) -> Rate {
        self.limit
    }

    /// The whole units of a part within the limit: at least 1, at most [`MAX_QUANTITY`].
    #[must_use]
    pub fn units_per_part(&self) -> u64 {
        self.in_a_part.clamp(1, MAX_QUANTITY)
    }

    /// How its rate is estimated.
    #[must_use]
    pub const fn estimator(&self) -> Estimator {
        self.estimator
    }

    /// Counts a report that arrives at `now`. Counts stay at 2^53 − 1 if they would exceed it.
    pub fn report(&self, state: &mut State<impl WordsMut>, now: Timestamp, report: Report) {
        let offered_at = report.offered_at.min(now.saturating_add(PART));
        self.elapsed(state, now.max(offered_at));
        let age = part_of(state.newest()).saturating_sub(part_of(offered_at));
        if let Some([admitted, suppressed]) = counts_of(state, age) {
            *admitted = plus(*admitted, report.admitted);
            *suppressed = plus(*suppressed, report.suppressed);
        }
    }

    /// Whether `cost` units that are offered at `now` pass, for who is a reporter and the master in
    /// one: by the factor as it was before them. They count in any case.
    #[inline]
    pub fn decide(
        &self,
        state: &mut State<impl WordsMut>,
        now: Timestamp,
        cost: u64,
        draw: Draw,
    ) -> bool {
        let elapsed = self.elapsed(state, now);
        let passes = !self.suppresses(counts(state), elapsed, draw);
        if let Some([admitted, suppressed]) = counts_of(state, 0) {
            let count = if passes { admitted } else { suppressed };
            *count = plus(*count, cost);
        }
        passes
    }

    /// Takes units out of the part in which they passed, as if they had never been offered: at most
    /// those that passed in it, and none once it has left the four.
    pub fn refund(&self, state: &mut State<impl WordsMut>, refund: Refund) {
        let age = part_of(state.newest()).saturating_sub(part_of(refund.granted_at));
        if let Some([admitted, _]) = counts_of(state, age) {
            *admitted = admitted.saturating_sub(refund.cost);
        }
    }

    /// The fraction of the load to refuse from `now` on; changes nothing.
    #[must_use]
    pub fn factor(&self, state: &State<impl Words>, now: Timestamp) -> Probability {
        let mut settled: State = State::over(state.read());
        let elapsed = self.elapsed(&mut settled, now);
        let counts = counts(&settled);
        let factors = match self.estimator {
            _ if !self.may_suppress(counts) => [None; 2],
            Estimator::LinearAdmitted { ramp } => [self.linear(counts, ramp), None],
            Estimator::ModifiedMean => [self.down_to_limit(modified_mean(counts), COMMON), None],
            Estimator::NewestPart => [
                self.down_to_limit(highest(counts, elapsed), COMMON),
                self.in_progress(counts, elapsed),
            ],
        };
        factors.into_iter().flatten().map(Fraction::floor).max().unwrap_or_default()
    }

    /// Whether the factor at the newest time turns away at this draw.
    #[inline]
    fn suppresses(&self, counts: &Counts, elapsed: Micros, draw: Draw) -> bool {
        let happens = |factor: Fraction| factor.happens(draw);
        self.may_suppress(counts)
            && match self.estimator {
                Estimator::LinearAdmitted { ramp } => {
                    self.linear(counts, ramp).is_some_and(happens)
                }
                Estimator::ModifiedMean => self.exceeds(modified_mean(counts), draw),
                Estimator::NewestPart => {
                    self.exceeds(highest(counts, elapsed), draw)
                        || self.in_progress(counts, elapsed).is_some_and(happens)
                }
            }
    }

    /// While all parts are within the limit none of the estimators says that the rate is above it.
    #[inline]
    fn may_suppress(&self, counts: &Counts) -> bool {
        counts.iter().any(|&part| offered(part) > self.in_a_part)
    }

    /// Whether f of so many units in the common span turns away at draw d, without dividing:
    /// d < ⌊2^32·(x − L)/x⌋ iff (2^32 − 1 − d)·x ≥ 2^32·L.
    #[inline]
    fn exceeds(&self, units: u64, draw: Draw) -> bool {
        u128::from(units).saturating_mul(u128::from(!draw.0)) >= self.common
    }

    /// Advances, and says how much of the part in progress is over.
    #[inline]
    fn elapsed(&self, state: &mut State<impl WordsMut>, now: Timestamp) -> Micros {
        let newest = state.newest();
        let taken = now.taken_after(newest, PERIOD);
        let start = newest.0.saturating_sub(since_start(newest).0);
        match taken.0.checked_sub(start) {
            Some(elapsed) if elapsed < PART.0 => {
                state.write([taken.0]);
                Micros(elapsed)
            }
            _ => turn_to(state, taken),
        }
    }

    /// f by what the part in progress has had so far, if it has broken its limit: the promise then
    /// holds no longer.
    fn in_progress(&self, counts: &Counts, elapsed: Micros) -> Option<Fraction> {
        let [units, ..] = counts.map(offered);
        if units <= self.in_a_part {
            return None;
        }
        self.down_to_limit(units, elapsed.max(REPORT_EVERY))
    }

    /// 1 − L/x = (x − L)/x for so many units offered in a span.
    fn down_to_limit(&self, units: u64, span: Micros) -> Option<Fraction> {
        let (offered, limit) = self.scaled(units, span);
        Some(Fraction { part: offered.checked_sub(limit)?, whole: offered })
    }

    /// (x/L − 1)/ramp = (x − L)/(L·ramp)
    fn linear(&self, counts: &Counts, ramp: u16) -> Option<Fraction> {
        let units = counts.iter().fold(0_u64, |sum, [admitted, _]| sum.saturating_add(*admitted));
        let (admitted, limit) = self.scaled(units, PERIOD);
        let whole = limit.saturating_mul(u128::from(ramp));
        Some(Fraction { part: admitted.checked_sub(limit)?, whole })
    }

    /// x and L on one scale: below 2^111 and 2^80, for counts are of 58 bits and spans of 27.
    fn scaled(&self, units: u64, span: Micros) -> (u128, u128) {
        let per_limit = |a: u64, b: u64| u128::from(a).saturating_mul(u128::from(b));
        (per_limit(units, self.limit.period().0), per_limit(self.limit.units(), span.0))
    }
}

impl Limiter for Config {
    fn words(&self) -> usize {
        9
    }

    /// What is remembered: four parts.
    #[inline]
    fn period(&self) -> Micros {
        PERIOD
    }

    /// Parts age, nothing is counted.
    fn advance(&self, state: &mut State<impl WordsMut>, now: Timestamp) {
        self.elapsed(state, now);
    }

    /// Until all parts with anything in them have left.
    fn reset_after(&self, state: &State<impl Words>) -> Micros {
        let newest_used = counts(state).iter().position(|&part| part != [0; 2]);
        newest_used.map_or(Micros::ZERO, |age| {
            let parts = u64::try_from(PARTS.saturating_sub(age)).unwrap_or(0);
            Micros(PART.0.saturating_mul(parts).saturating_sub(since_start(state.newest()).0))
        })
    }

    fn accepts(&self, state: &State<impl Words>) -> Result<(), InvalidState> {
        let possible = counts(state).iter().flatten().all(|&count| count <= MAX_QUANTITY);
        if possible { Ok(()) } else { Err(InvalidState) }
    }
}

/// x of [`Estimator::ModifiedMean`], as units in the common span. Adding a part to a mean raises it
/// iff the part is above it.
#[inline]
fn modified_mean(counts: &Counts) -> u64 {
    let [in_progress, complete @ ..] = counts.map(offered);
    let of_three = complete.iter().fold(0_u64, |sum, &part| sum.saturating_add(part));
    let of_four = of_three.saturating_add(in_progress);
    of_three.saturating_mul(4).max(of_four.saturating_mul(3))
}

/// x of [`Estimator::NewestPart`] but for the part in progress, as units in the common span.
#[inline]
fn highest(counts: &Counts, elapsed: Micros) -> u64 {
    let [_, newest, before, _] = counts.map(offered);
    // of the newest complete part some reports are still to come at first
    let newest = if elapsed < REPORT_EVERY { newest.max(before) } else { newest };
    modified_mean(counts).max(newest.saturating_mul(COMMON.0 / PART.0))
}

const fn plus(count: u64, more: u64) -> u64 {
    let sum = count.saturating_add(more);
    if sum < MAX_QUANTITY { sum } else { MAX_QUANTITY }
}

pub(super) const fn part_of(time: Timestamp) -> u64 {
    time.0 / PART.0
}

pub(super) const fn since_start(time: Timestamp) -> Micros {
    Micros(time.0 % PART.0)
}
