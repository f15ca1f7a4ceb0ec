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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// What is remembered of an account. The default is one never seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    newest: Timestamp,
    /// The part in progress first.
    parts: [Part; PARTS],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Part {
    admitted: u64,
    suppressed: u64,
}

impl Part {
    const fn offered(self) -> u64 {
        self.admitted.saturating_add(self.suppressed)
    }
}

/// The least span that one, three and four parts go into: rates over them are then compared by
/// their units alone.
const COMMON: Micros = Micros(72_000_000);

impl State {
    /// The state that [`to_words`](Self::to_words) wrote. [`Config::accepts`] says whether it can
    /// be one of that configuration.
    #[must_use]
    pub const fn from_words([newest, a0, s0, a1, s1, a2, s2, a3, s3]: [u64; 9]) -> Self {
        let parts = [
            Part { admitted: a0, suppressed: s0 },
            Part { admitted: a1, suppressed: s1 },
            Part { admitted: a2, suppressed: s2 },
            Part { admitted: a3, suppressed: s3 },
        ];
        Self { newest: Timestamp(newest), parts }
    }

    /// Nine words; all zero for an account never seen.
    #[must_use]
    pub const fn to_words(self) -> [u64; 9] {
        let [p0, p1, p2, p3] = self.parts;
        [
            self.newest.0,
            p0.admitted,
            p0.suppressed,
            p1.admitted,
            p1.suppressed,
            p2.admitted,
            p2.suppressed,
            p3.admitted,
            p3.suppressed,
        ]
    }

    /// The newest time seen.
    #[must_use]
    pub const fn newest(&self) -> Timestamp {
        self.newest
    }

    /// A time in another part.
    #[cold]
    fn turn_to(&mut self, taken: Timestamp) -> Micros {
        // after a return from a jump ahead the parts keep their ages
        let aged = part_of(taken).saturating_sub(part_of(self.newest));
        let aged = usize::try_from(aged).unwrap_or(PARTS).min(PARTS);
        self.newest = taken;
        self.parts.copy_within(..PARTS.saturating_sub(aged), aged);
        for opened in self.parts.iter_mut().take(aged) {
            *opened = Part::default();
        }
        since_start(taken)
    }
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

    /// What is remembered: four parts.
    #[must_use]
    pub const fn period(&self) -> Micros {
        PERIOD
    }

    /// Counts a report that arrives at `now`. Counts stay at 2^53 − 1 if they would exceed it.
    pub fn report(&self, state: &mut State, now: Timestamp, report: Report) {
        let offered_at = report.offered_at.min(now.saturating_add(PART));
        self.advance(state, now.max(offered_at));
        let age = part_of(state.newest).saturating_sub(part_of(offered_at));
        let Some(part) = usize::try_from(age).ok().and_then(|age| state.parts.get_mut(age)) else {
            return;
        };
        part.admitted = plus(part.admitted, report.admitted);
        part.suppressed = plus(part.suppressed, report.suppressed);
    }

    /// Whether `cost` units that are offered at `now` pass, for who is a reporter and the master in
    /// one: by the factor as it was before them. They count in any case.
    #[inline]
    pub fn decide(&self, state: &mut State, now: Timestamp, cost: u64, draw: Draw) -> bool {
        let elapsed = self.elapsed(state, now);
        let passes = !self.suppresses(state, elapsed, draw);
        let [part, ..] = &mut state.parts;
        let count = if passes { &mut part.admitted } else { &mut part.suppressed };
        *count = plus(*count, cost);
        passes
    }

    /// Takes units out of the part in which they passed, as if they had never been offered: at most
    /// those that passed in it, and none once it has left the four.
    pub fn refund(&self, state: &mut State, refund: Refund) {
        let age = part_of(state.newest).saturating_sub(part_of(refund.granted_at));
        if let Some(part) = usize::try_from(age).ok().and_then(|age| state.parts.get_mut(age)) {
            part.admitted = part.admitted.saturating_sub(refund.cost);
        }
    }

    /// The fraction of the load to refuse from `now` on; changes nothing.
    #[must_use]
    pub fn factor(&self, state: &State, now: Timestamp) -> Probability {
        let mut settled = *state;
        let elapsed = self.elapsed(&mut settled, now);
        let factors = match self.estimator {
            _ if !self.may_suppress(&settled) => [None; 2],
            Estimator::LinearAdmitted { ramp } => [self.linear(&settled, ramp), None],
            Estimator::ModifiedMean => [self.down_to_limit(modified_mean(&settled), COMMON), None],
            Estimator::NewestPart => [
                self.down_to_limit(highest(&settled, elapsed), COMMON),
                self.in_progress(&settled, elapsed),
            ],
        };
        factors.into_iter().flatten().map(Fraction::floor).max().unwrap_or_default()
    }

    /// Whether the factor at the newest time turns away at this draw.
    #[inline]
    fn suppresses(&self, state: &State, elapsed: Micros, draw: Draw) -> bool {
        let happens = |factor: Fraction| factor.happens(draw);
        self.may_suppress(state)
            && match self.estimator {
                Estimator::LinearAdmitted { ramp } => self.linear(state, ramp).is_some_and(happens),
                Estimator::ModifiedMean => self.exceeds(modified_mean(state), draw),
                Estimator::NewestPart => {
                    self.exceeds(highest(state, elapsed), draw)
                        || self.in_progress(state, elapsed).is_some_and(happens)
                }
            }
    }

    /// While all parts are within the limit none of the estimators says that the rate is above it.
    #[inline]
    fn may_suppress(&self, state: &State) -> bool {
        state.parts.iter().any(|part| part.offered() > self.in_a_part)
    }

    /// Whether f of so many units in the common span turns away at draw d, without dividing:
    /// d < ⌊2^32·(x − L)/x⌋ iff (2^32 − 1 − d)·x ≥ 2^32·L.
    #[inline]
    fn exceeds(&self, units: u64, draw: Draw) -> bool {
        u128::from(units).saturating_mul(u128::from(!draw.0)) >= self.common
    }

    /// Moves the state to `now`, as a report does first: parts age, nothing is counted.
    pub fn advance(&self, state: &mut State, now: Timestamp) {
        self.elapsed(state, now);
    }

    /// The same, and how much of the part in progress is over.
    #[inline]
    fn elapsed(&self, state: &mut State, now: Timestamp) -> Micros {
        let taken = now.taken_after(state.newest, PERIOD);
        let start = state.newest.0.saturating_sub(since_start(state.newest).0);
        match taken.0.checked_sub(start) {
            Some(elapsed) if elapsed < PART.0 => {
                state.newest = taken;
                Micros(elapsed)
            }
            _ => state.turn_to(taken),
        }
    }

    /// From this time on the state equals a fresh one: all parts with anything in them have left.
    #[must_use]
    pub fn expires_at(&self, state: &State) -> Timestamp {
        state.newest.saturating_add(self.reset_after(state))
    }

    /// The span from the newest time seen to [`expires_at`](Self::expires_at).
    #[must_use]
    pub fn reset_after(&self, state: &State) -> Micros {
        let newest_used = state.parts.iter().position(|&part| part != Part::default());
        newest_used.map_or(Micros::ZERO, |age| {
            let parts = u64::try_from(PARTS.saturating_sub(age)).unwrap_or(0);
            Micros(PART.0.saturating_mul(parts).saturating_sub(since_start(state.newest).0))
        })
    }

    /// # Errors
    /// [`InvalidState`] if no report can have left the state behind.
    pub fn accepts(&self, state: &State) -> Result<(), InvalidState> {
        let most = |part: &Part| part.admitted.max(part.suppressed);
        if state.parts.iter().map(most).any(|most| most > MAX_QUANTITY) {
            return Err(InvalidState);
        }
        Ok(())
    }

    /// f by what the part in progress has had so far, if it has broken its limit: the promise then
    /// holds no longer.
    fn in_progress(&self, state: &State, elapsed: Micros) -> Option<Fraction> {
        let [units, ..] = state.parts.map(Part::offered);
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
    fn linear(&self, state: &State, ramp: u16) -> Option<Fraction> {
        let units = state.parts.iter().fold(0_u64, |sum, part| sum.saturating_add(part.admitted));
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

/// x of [`Estimator::ModifiedMean`], as units in the common span. Adding a part to a mean raises it
/// iff the part is above it.
#[inline]
fn modified_mean(state: &State) -> u64 {
    let [in_progress, complete @ ..] = state.parts.map(Part::offered);
    let of_three = complete.iter().fold(0_u64, |sum, &part| sum.saturating_add(part));
    let of_four = of_three.saturating_add(in_progress);
    of_three.saturating_mul(4).max(of_four.saturating_mul(3))
}

/// x of [`Estimator::NewestPart`] but for the part in progress, as units in the common span.
#[inline]
fn highest(state: &State, elapsed: Micros) -> u64 {
    let [_, newest, before, _] = state.parts.map(Part::offered);
    // of the newest complete part some reports are still to come at first
    let newest = if elapsed < REPORT_EVERY { newest.max(before) } else { newest };
    modified_mean(state).max(newest.saturating_mul(COMMON.0 / PART.0))
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
