//! Suppression, the master's side: computes the fraction of an account's load that all its
//! reporters refuse, from their reports.
//!
//! Source: "Building a distributed rate limiter that scales horizontally" (Ably), with reports at
//! most every 2 s, a mean over 4 parts of 6 s, and both estimators that its authors tried. The
//! reporters' side is [`reporter`](super::reporter).
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | L | limit, a rate | units per µs |
//! | k = ⌊t / 6 s⌋ | part in progress, aligned to the epoch | – |
//! | aₖ, sₖ | admitted and suppressed units of part k | units |
//! | oₖ = aₖ + sₖ | offered units: those that would have passed without suppression | units |
//! | x | the estimate of the offered rate | units per µs |
//! | f | factor: the fraction to refuse | – |
//!
//! | estimator | x | f |
//! |---|---|---|
//! | [`LinearAdmitted`](Estimator::LinearAdmitted) | mean of 4 parts of *a* | (x/L − 1) / ramp |
//! | [`ModifiedMean`](Estimator::ModifiedMean) | mean of 4 parts of *o*, or of the 3 complete parts while the part in progress is below their mean | 1 − L/x |
//! | [`NewestPart`](Estimator::NewestPart) | the largest of that mean, of the newest complete part, and, once it has broken the limit, of the part in progress over max(2 s, its elapsed time) | 1 − L/x |
//!
//! f is at least 0 and at most 1. It is computed in whole numbers, and rounded down to 2^-32 only
//! at the end.
//!
//! **Guarantee:** an account that offers at most 6 s · L in every part is never suppressed,
//! whenever its reports arrive and whenever the factor is asked for. For an account above that, the
//! admitted rate settles at the limit under the two estimators of the offered rate, because
//! suppression does not change the offered rate. Under the estimator of the admitted rate, the
//! admitted rate swings between nothing and everything. `tidegate-sim` shows all three.
//!
//! Units count in the part in which they were *offered*, by the reporter's clock, and not in the
//! part in which the report arrives. Otherwise late reports could push a part over a limit that it
//! kept. A report of a part older than the four counts for nothing. A reporter's clock may be ahead
//! by one part, and it moves the state's clock like any other. A report from further ahead counts
//! as one part ahead.
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
//! // The 600 of the part are used up. 200 more make 800 in 2 s, 400 a second: 3/4 are too many.
//! config.report(&mut state, at, Report { offered_at: at, admitted: 150, suppressed: 50 });
//! assert_eq!(config.factor(&state, at).units(), 3 << 30);
//! ```

#[cfg(test)]
mod tests;

use super::share::Fraction;
use super::{Draw, Probability};
use crate::decision::InvalidState;
use crate::limiter::{self, Limiter, Words, WordsMut, small_state};
use crate::never::never;
use crate::quantity::{ConfigError, MAX_QUANTITY, Rate, in_range};
use crate::time::{Micros, Timestamp};
use crate::window::Refund;

/// The length of a part.
pub const PART: Micros = Micros(6_000_000);

/// The number of parts that are remembered, including the part in progress.
pub const PARTS: usize = 4;

/// The least span between two reports of one reporter.
pub const REPORT_EVERY: Micros = Micros(2_000_000);

/// The length of all parts together: 24 s.
pub(super) const PERIOD: Micros = Micros(24_000_000);

/// How the offered rate is estimated, and which factor follows from the estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Estimator {
    /// The first estimator of the source: the factor is in proportion to the excess of the
    /// *admitted* rate over the limit. Admission then swings between nothing and everything, with a
    /// period of about 24 s. The estimator is kept to show that.
    LinearAdmitted {
        /// The slope, at least 1: the factor is 0 at the limit and 1 at 1 + `ramp` times the limit.
        ramp: u16,
    },
    /// The final estimator of the source: the factor brings the mean offered rate down to the
    /// limit. It sees the whole of a sudden load only after all four parts.
    ModifiedMean,
    /// The default estimator: the largest of [`ModifiedMean`](Self::ModifiedMean), of the newest
    /// complete part, and of the part in progress.
    #[default]
    NewestPart,
}

/// A validated suppression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    limit: Rate,
    estimator: Estimator,
    /// ⌊6 s · L⌋: the most units of a part within the limit.
    in_a_part: u64,
    /// ⌈2^32 · 72 s · L⌉
    common: u128,
}

/// The units of one part that one reporter has counted since its last report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// A time in the part in which the units were offered, by the reporter's clock.
    pub offered_at: Timestamp,
    /// The units that passed.
    pub admitted: u64,
    /// The units that would have passed without suppression.
    pub suppressed: u64,
}

/// The state of an account: the newest time, and the admitted and the suppressed units of four
/// parts, the part in progress first. The default is the state of an account never seen.
pub type State<W = [u64; 9]> = limiter::State<Config, W>;

small_state!(Config, 9, newest: 0);

impl<W: AsRef<[u64]>> State<W> {
    /// The units of the part in progress, whether they passed or not.
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
    let counts = state.words().get(1..).and_then(|counts| counts.as_chunks().0.first_chunk());
    counts.unwrap_or_else(|| never(&[[u64::MAX; 2]; PARTS]))
}

#[inline]
const fn offered([admitted, suppressed]: [u64; 2]) -> u64 {
    admitted.saturating_add(suppressed)
}

/// The least common multiple of one, three and four parts. Rates scaled to this span are compared
/// by their units alone.
const COMMON: Micros = Micros(72_000_000);

/// The counts of the part that is `age` parts before the part in progress.
#[inline]
fn counts_of<W: AsMut<[u64]>>(state: &mut State<W>, age: u64) -> Option<&mut [u64; 2]> {
    let (counts, _) = state.words_mut().get_mut(1..)?.as_chunks_mut();
    counts.get_mut(usize::try_from(age).ok()?)
}

/// Moves to a time in another part. After a clock has returned from a jump ahead, the parts keep
/// their ages.
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
    /// Makes a suppression of the load above `limit`.
    ///
    /// # Errors
    /// Returns [`ConfigError::OutOfRange`] if the estimator has a ramp of 0.
    pub fn new(limit: Rate, estimator: Estimator) -> Result<Self, ConfigError> {
        if let Estimator::LinearAdmitted { ramp } = estimator {
            in_range("ramp", u64::from(ramp))?;
        }
        let in_a_span = |span: Micros| u128::from(limit.units()).saturating_mul(span.0.into());
        let period = u128::from(limit.period().0);
        let in_a_part = in_a_span(PART).checked_div(period).unwrap_or_else(|| never(0));
        let in_a_part = u64::try_from(in_a_part).unwrap_or(u64::MAX);
        let common = in_a_span(COMMON).saturating_mul(1 << 32).div_ceil(period);
        Ok(Self { limit, estimator, in_a_part, common })
    }

    /// The rate that an account may have.
    #[must_use]
    pub const fn limit(&self) -> Rate {
        self.limit
    }

    /// The most whole units of a part within the limit, from 1 to [`MAX_QUANTITY`].
    #[must_use]
    pub fn units_per_part(&self) -> u64 {
        self.in_a_part.clamp(1, MAX_QUANTITY)
    }

    /// The estimator of the account's rate.
    #[must_use]
    pub const fn estimator(&self) -> Estimator {
        self.estimator
    }

    /// Counts a report that arrives at `now`. A count that would exceed 2^53 − 1 stays there.
    pub fn report(&self, state: &mut State<impl WordsMut>, now: Timestamp, report: Report) {
        let offered_at = report.offered_at.min(now.saturating_add(PART));
        self.elapsed(state, now.max(offered_at));
        let age = part_of(state.newest()).saturating_sub(part_of(offered_at));
        if let Some([admitted, suppressed]) = counts_of(state, age) {
            *admitted = plus(*admitted, report.admitted);
            *suppressed = plus(*suppressed, report.suppressed);
        }
    }

    /// Decides whether `cost` units that are offered at `now` pass, for a caller that is reporter
    /// and master in one. The factor before these units decides. The units count whether they pass
    /// or not.
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

    /// Takes units out of the part in which they passed, as if they had never been offered. Takes
    /// at most the units that passed in that part, and none if the part is older than the four.
    pub fn refund(&self, state: &mut State<impl WordsMut>, refund: Refund) {
        let age = part_of(state.newest()).saturating_sub(part_of(refund.granted_at));
        if let Some([admitted, _]) = counts_of(state, age) {
            *admitted = admitted.saturating_sub(refund.cost);
        }
    }

    /// The fraction of the load to refuse from `now` on. The state does not change.
    #[must_use]
    pub fn factor(&self, state: &State<impl Words>, now: Timestamp) -> Probability {
        let mut settled: State = State::over(state.read());
        let elapsed = self.elapsed(&mut settled, now);
        let counts = counts(&settled);
        let factors = match self.estimator {
            Estimator::LinearAdmitted { ramp } => [self.linear(counts, ramp), None],
            Estimator::ModifiedMean => [self.down_to_limit(modified_mean(counts), COMMON), None],
            Estimator::NewestPart => [
                self.down_to_limit(highest(counts, elapsed), COMMON),
                self.in_progress(counts, elapsed),
            ],
        };
        factors.into_iter().flatten().map(Fraction::floor).max().unwrap_or_default()
    }

    /// Whether the factor at the newest time refuses a request at this draw.
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

    /// Whether a part exceeds the limit. If none does, no estimate is above the limit, so this only
    /// saves time.
    #[inline]
    fn may_suppress(&self, counts: &Counts) -> bool {
        counts.iter().any(|&part| offered(part) > self.in_a_part)
    }

    /// Whether f refuses a request at draw d, where x is `units` in the common span. This needs no
    /// division: d < ⌊2^32·(x − L)/x⌋ iff (2^32 − 1 − d)·x ≥ 2^32·L.
    #[inline]
    fn exceeds(&self, units: u64, draw: Draw) -> bool {
        u128::from(units).saturating_mul(u128::from(!draw.0)) >= self.common
    }

    /// Advances, and returns the elapsed time of the part in progress.
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

    /// f by the units of the part in progress, if that part has broken the limit. Only then may it
    /// be suppressed without breaking the guarantee.
    fn in_progress(&self, counts: &Counts, elapsed: Micros) -> Option<Fraction> {
        let [units, ..] = counts.map(offered);
        if units <= self.in_a_part {
            return None;
        }
        self.down_to_limit(units, elapsed.max(REPORT_EVERY))
    }

    /// f = 1 − L/x = (x − L)/x for `units` offered in `span`.
    fn down_to_limit(&self, units: u64, span: Micros) -> Option<Fraction> {
        let (offered, limit) = self.scaled(units, span);
        Some(Fraction { part: offered.checked_sub(limit)?, whole: offered })
    }

    /// f = (x/L − 1)/ramp = (x − L)/(L·ramp)
    fn linear(&self, counts: &Counts, ramp: u16) -> Option<Fraction> {
        let units = counts.iter().fold(0_u64, |sum, [admitted, _]| sum.saturating_add(*admitted));
        let (admitted, limit) = self.scaled(units, PERIOD);
        let whole = limit.saturating_mul(u128::from(ramp));
        Some(Fraction { part: admitted.checked_sub(limit)?, whole })
    }

    /// x and L on one scale. They are below 2^111 and 2^80, because counts have at most 58 bits and
    /// spans 27.
    fn scaled(&self, units: u64, span: Micros) -> (u128, u128) {
        let per_limit = |a: u64, b: u64| u128::from(a).saturating_mul(u128::from(b));
        (per_limit(units, self.limit.period().0), per_limit(self.limit.units(), span.0))
    }
}

impl Limiter for Config {
    fn words(&self) -> usize {
        9
    }

    /// The length of the four parts.
    #[inline]
    fn period(&self) -> Micros {
        PERIOD
    }

    /// Ages the parts and counts nothing.
    fn advance(&self, state: &mut State<impl WordsMut>, now: Timestamp) {
        self.elapsed(state, now);
    }

    /// The span until all parts with units in them have left.
    fn reset_after(&self, state: &State<impl Words>) -> Micros {
        let newest_used = counts(state).iter().position(|&part| part != [0; 2]);
        newest_used.map_or(Micros::ZERO, |age| {
            let parts = u64::try_from(PARTS.saturating_sub(age))
                .unwrap_or_else(|_| never(PERIOD.0 / PART.0));
            Micros(PART.0.saturating_mul(parts).saturating_sub(since_start(state.newest()).0))
        })
    }

    fn accepts(&self, state: &State<impl Words>) -> Result<(), InvalidState> {
        let possible = counts(state).iter().flatten().all(|&count| count <= MAX_QUANTITY);
        if possible { Ok(()) } else { Err(InvalidState) }
    }
}

/// x of [`Estimator::ModifiedMean`], as units in the common span. The mean of four is the larger
/// one iff the part in progress is above the mean of three.
#[inline]
fn modified_mean(counts: &Counts) -> u64 {
    let [in_progress, complete @ ..] = counts.map(offered);
    let of_three = complete.iter().fold(0_u64, |sum, &part| sum.saturating_add(part));
    let of_four = of_three.saturating_add(in_progress);
    of_three.saturating_mul(4).max(of_four.saturating_mul(3))
}

/// x of [`Estimator::NewestPart`] without the part in progress, as units in the common span.
#[inline]
fn highest(counts: &Counts, elapsed: Micros) -> u64 {
    let [_, newest, before, _] = counts.map(offered);
    // at first some reports of the newest complete part have not arrived yet
    let newest = if elapsed < REPORT_EVERY { newest.max(before) } else { newest };
    modified_mean(counts).max(newest.saturating_mul(COMMON.0 / PART.0))
}

fn plus(count: u64, more: u64) -> u64 {
    count.saturating_add(more).min(MAX_QUANTITY)
}

pub(super) const fn part_of(time: Timestamp) -> u64 {
    time.0 / PART.0
}

pub(super) const fn since_start(time: Timestamp) -> Micros {
    Micros(time.0 % PART.0)
}
