//! Worker utilisation shedder: refuses a growing share of the load while a measured signal stays
//! bad, one class after another, and lets the load come back as slowly.
//!
//! Source: the worker utilisation load shedder of "Scaling your API with rate limiters" (Stripe),
//! whose constants are [`Thresholds::DEFAULT`] and [`Timing::DEFAULT`].
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | u | the signal | parts per million |
//! | g, b | good: below g, load comes back; bad: from b on, load is shed | parts per million |
//! | d, F | d: delay before shedding; F: span from shedding nothing to shedding all | µs |
//! | K | number of classes that may be shed; class 0 is the least important | – |
//! | a | shed amount, from −d/F (resting) to 1 (everything) | – |
//! | M | lcm(g, 10⁶ − b) | – |
//!
//! Each call first takes the signal. It then moves a by the trend of that signal, for the time
//! since the last call, but for at most d:
//!
//! | signal | a moves per µs by |
//! |---|---|
//! | u < g | (u − g) / g / F, at most 1/F down |
//! | g ≤ u < b | 0 |
//! | b ≤ u | (u − b) / (10⁶ − b) / F, at most 1/F up |
//!
//! A request of class i is shed with probability a·K − i, but at least 0 and at most 1. So class 0
//! is shed wholly before class 1 is shed at all. A class of K or above is never shed. The state
//! stores (a + d/F)·F·M, which is a whole number at every whole microsecond: the error bound is 0.
//! Only the probability is rounded, down to 2^-32.
//!
//! **Guarantee:** a moves by at most 1/F a microsecond, and by at most d/F a call. So nothing is
//! shed before the signal has been bad for d, and not everything is shed before d + F.
//!
//! The shedder departs from the source in two cases of keys that were not seen for long:
//!
//! - In the source, the first call counts as d after an earlier call and finds a at 0, so it sheds
//!   at once under load. Here a key begins at rest, and its first signal moves nothing.
//! - In the source, a is kept for ever while no call comes. Here the key starts over after d + F
//!   without a call, a span in which even full shedding would have come to rest.
//!
//! The signal may be any measured share: busy workers of all workers, errors or timeouts of all
//! answers, or refused of all queue places. The variance of latency alone is misleading.
//!
//! ```
//! use tidegate_core::shed::utilization::{Class, Config, State, Thresholds, Timing};
//! use tidegate_core::shed::{Draw, Share};
//! use tidegate_core::{Micros, Timestamp};
//!
//! // Errors: below 1 % is good, from 5 % on is bad. One class may be shed.
//! let (good, bad) = (Share::of(1, 100), Share::of(5, 100));
//! let config = Config::new(Thresholds { good, bad }, Timing::DEFAULT, 1).unwrap();
//! let mut state = State::default();
//!
//! // Every answer fails, measured each second for 88 s: 28 s of delay, and half of 120 s.
//! for second in 0..88 {
//!     config.observe(&mut state, Timestamp(second * 1_000_000), Share::WHOLE);
//! }
//! let now = Timestamp(88_000_000);
//! let low = config.decide(&mut state, now, Some(Share::WHOLE), Class(0), Draw(0));
//! assert!(!low.is_admitted());
//! assert_eq!(config.drop_probability(&state, Class(0)).units(), 1 << 31);
//! assert_eq!(low.retry_after(), Micros(60_000_000)); // if no answer fails from here on
//!
//! let lucky = config.decide(&mut state, now, None, Class(0), Draw(1 << 31));
//! assert!(lucky.is_admitted());
//! let critical = config.decide(&mut state, now, None, Class::CRITICAL, Draw(0));
//! assert!(critical.is_admitted());
//! ```

#[cfg(test)]
mod tests;

use super::share::Fraction;
use super::{Draw, Probability, Share};
use crate::decision::InvalidState;
use crate::divisor::Divisor;
use crate::limiter::{self, Limiter, Words, WordsMut, small_state};
use crate::never::never;
use crate::quantity::{ConfigError, MAX_QUANTITY, gcd, in_range};
use crate::time::{Micros, Timestamp};

/// The thresholds of the signal. Between them nothing changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Thresholds {
    /// g: below this share load comes back. It is above 0.
    pub good: Share,
    /// b: from this share on load is shed. It is at least `good` and below the whole.
    pub bad: Share,
}

impl Thresholds {
    /// The thresholds of the source: load comes back below 70 % and is shed from 80 % on.
    pub const DEFAULT: Self = match (Share::from_ppm(700_000), Share::from_ppm(800_000)) {
        (Some(good), Some(bad)) => Self { good, bad },
        _ => Self { good: Share::WHOLE, bad: Share::WHOLE }, // both are below a million
    };
}

/// The times that make the shedder act slowly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timing {
    /// d: the span for which the signal must be wholly bad before anything is shed.
    pub delay: Micros,
    /// F: the span from shedding nothing to shedding all, and back.
    pub full: Micros,
}

impl Timing {
    /// The times of the source: a delay of 28 s, which holds three samples at one every 8 s, and
    /// 120 s to full shedding.
    pub const DEFAULT: Self = Self { delay: Micros(28_000_000), full: Micros(120_000_000) };
}

/// The importance of a request. Class 0 is the least important. A class that is not below
/// [`Config::classes`] is never shed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class(pub u16);

impl Class {
    /// The class that is never shed under any configuration.
    pub const CRITICAL: Self = Self(u16::MAX);
}

/// A validated utilisation shedder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    thresholds: Thresholds,
    timing: Timing,
    classes: u16,
    /// M: the most by which the level moves per µs.
    steepest: u64,
    /// M / g
    step_down: u64,
    /// M / (10⁶ − b)
    step_up: u64,
    /// d·M: the level from which on load is shed.
    shedding: u64,
    /// F·M: the level's distance from there to shedding all.
    span: u64,
    /// K·M: the most by which the shed share of a class, times F·M, falls per µs. Below 2^56.
    per_us: Divisor,
}

/// The state of a key: the newest time, the shed amount above rest, and the trend. The default is
/// the state of a key never seen, which is at rest.
pub type State<W = [u64; 3]> = limiter::State<Config, W>;

small_state!(Config, 3, newest: 0);

/// The words of a state, by name.
#[derive(Clone, Copy, Default)]
struct Load {
    newest: Timestamp,
    /// (a + d/F)·F·M at `newest`.
    level: u64,
    /// 1 + M + the level's change per µs, which is from −M to M. 0 before the first signal.
    trend: u64,
}

impl Load {
    #[inline]
    fn of(state: &State<impl Words>) -> Self {
        let [newest, level, trend] = state.read();
        Self { newest: Timestamp(newest), level, trend }
    }

    #[inline]
    const fn to_words(self) -> [u64; 3] {
        [self.newest.0, self.level, self.trend]
    }
}

/// The answer to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a verdict that nobody reads sheds nothing"]
pub enum Verdict {
    /// The request may pass.
    Admitted,
    /// The request must not pass.
    Shed {
        /// The span until no request of the class is shed, if the load vanishes now and is measured
        /// at least once per delay. It is a hint: the next draw may admit the request sooner.
        retry_after: Micros,
    },
}

impl Verdict {
    /// Whether the request may pass.
    pub const fn is_admitted(&self) -> bool {
        matches!(self, Self::Admitted)
    }

    /// A hint of how long to wait. Zero if the request was admitted.
    #[must_use]
    pub const fn retry_after(&self) -> Micros {
        match self {
            Self::Admitted => Micros::ZERO,
            Self::Shed { retry_after } => *retry_after,
        }
    }
}

impl Config {
    /// Makes a shedder of `classes` classes. Higher classes are never shed.
    ///
    /// # Errors
    /// - [`ConfigError::UnorderedThresholds`] unless 0 < good ≤ bad < 1.
    /// - [`ConfigError::OutOfRange`] if `classes` is 0, or if a time is 0 or above 2^53 − 1.
    /// - [`ConfigError::ScaleTooFine`] if lcm(good, 10⁶ − bad) × (delay + full) exceeds 64 bits, or
    ///   if delay + full exceeds 285 years. Thresholds in whole per mille always fit 20 hours, and
    ///   thresholds in whole per cent always fit 8 days.
    pub fn new(thresholds: Thresholds, timing: Timing, classes: u16) -> Result<Self, ConfigError> {
        let (good_ppm, bad_ppm) = (thresholds.good.ppm(), thresholds.bad.ppm());
        let headroom = Share::WHOLE.ppm().saturating_sub(bad_ppm); // 10⁶ − b
        if good_ppm == 0 || good_ppm > bad_ppm || headroom == 0 {
            return Err(ConfigError::UnorderedThresholds { good_ppm, bad_ppm });
        }
        in_range("classes", u64::from(classes))?;
        let Timing { delay, full } = timing;
        in_range("delay", delay.0)?;
        in_range("full", full.0)?;

        let (good, headroom) = (u64::from(good_ppm), u64::from(headroom));
        let common = gcd(good, headroom);
        let step_up = good.checked_div(common).unwrap_or_else(|| never(good)); // M / (10⁶ − b)
        let step_down = headroom.checked_div(common).unwrap_or_else(|| never(headroom)); // M / g
        let steepest = good.saturating_mul(step_down); // below 10^12
        let longest = u64::MAX.checked_div(steepest).unwrap_or_else(|| never(0)).min(MAX_QUANTITY);
        if delay.0.saturating_add(full.0) > longest {
            let (field, found, other) = if delay.0 < longest {
                ("full", full.0, delay.0)
            } else {
                ("delay", delay.0, full.0)
            };
            let nearest = longest.saturating_sub(other);
            return Err(ConfigError::ScaleTooFine { field, found, nearest });
        }
        Ok(Self {
            thresholds,
            timing,
            classes,
            steepest,
            step_down,
            step_up,
            shedding: delay.0.saturating_mul(steepest),
            span: full.0.saturating_mul(steepest),
            per_us: Divisor::new(steepest.saturating_mul(u64::from(classes))),
        })
    }

    /// The thresholds good and bad.
    #[must_use]
    pub const fn thresholds(&self) -> Thresholds {
        self.thresholds
    }

    /// The times delay and full.
    #[must_use]
    pub const fn timing(&self) -> Timing {
        self.timing
    }

    /// K, the number of classes that may be shed.
    #[must_use]
    pub const fn classes(&self) -> u16 {
        self.classes
    }

    /// Takes a signal without a decision on a request.
    pub fn observe(&self, state: &mut State<impl WordsMut>, now: Timestamp, signal: Share) {
        state.write(self.step(Load::of(state), now, Some(signal)).to_words());
    }

    /// Decides on a request. Without a signal, the last signal still holds.
    #[inline]
    pub fn decide(
        &self,
        state: &mut State<impl WordsMut>,
        now: Timestamp,
        signal: Option<Share>,
        class: Class,
        draw: Draw,
    ) -> Verdict {
        let load = self.step(Load::of(state), now, signal);
        state.write(load.to_words());
        self.verdict(load, class, draw)
    }

    /// The answer that [`decide`](Self::decide) would give. The state does not change.
    #[inline]
    pub fn peek(
        &self,
        state: &State<impl Words>,
        now: Timestamp,
        signal: Option<Share>,
        class: Class,
        draw: Draw,
    ) -> Verdict {
        self.verdict(self.step(Load::of(state), now, signal), class, draw)
    }

    #[inline]
    fn verdict(&self, load: Load, class: Class, draw: Draw) -> Verdict {
        match self.shed_of(load, class) {
            Some(shed) if shed.happens(draw) => {
                Verdict::Shed { retry_after: self.until_spared(shed) }
            }
            _ => Verdict::Admitted,
        }
    }

    /// The probability with which a request of this class is shed at the newest time seen.
    #[must_use]
    pub fn drop_probability(&self, state: &State<impl Words>, class: Class) -> Probability {
        self.shed_of(Load::of(state), class).map_or(Probability::NEVER, Fraction::floor)
    }

    /// The shed amount a at the newest time seen, in parts per million, rounded down. It is from
    /// −10⁶·delay/full to 10⁶.
    #[must_use]
    pub fn amount_ppm(&self, state: &State<impl Words>) -> i64 {
        let million = i128::from(Share::WHOLE.ppm());
        let amount = i128::from(Load::of(state).level).saturating_sub(i128::from(self.shedding));
        let ppm = amount.saturating_mul(million).checked_div_euclid(i128::from(self.span));
        i64::try_from(ppm.unwrap_or_else(|| never(million))).unwrap_or(i64::MIN) // only a delay of many years gives less
    }

    #[inline]
    fn step(&self, mut load: Load, now: Timestamp, signal: Option<Share>) -> Load {
        let taken = now.taken_after(load.newest, self.period());
        let mut elapsed = taken.saturating_since(load.newest);
        if elapsed >= self.period() {
            load = Load::default();
        }
        load.newest = taken;
        if load.trend == 0 {
            elapsed = Micros::ZERO;
        }
        if let Some(signal) = signal {
            load.trend = self.trend(signal);
        }
        if load.trend == 0 {
            return load;
        }
        let elapsed = elapsed.min(self.timing.delay).0; // times M, this is at most d·M
        let flat = self.steepest.saturating_add(1);
        let up = load.trend.saturating_sub(flat).saturating_mul(elapsed);
        let down = flat.saturating_sub(load.trend).saturating_mul(elapsed);
        let top = self.shedding.saturating_add(self.span);
        load.level = load.level.saturating_sub(down).saturating_add(up).min(top);
        load
    }

    #[inline]
    fn trend(&self, signal: Share) -> u64 {
        let Thresholds { good, bad } = self.thresholds;
        let flat = self.steepest.saturating_add(1);
        let times = |share: u32, step: u64| u64::from(share).saturating_mul(step);
        if signal < good {
            flat.saturating_sub(times(good.ppm().saturating_sub(signal.ppm()), self.step_down))
        } else {
            flat.saturating_add(times(signal.ppm().saturating_sub(bad.ppm()), self.step_up))
        }
    }

    /// a·K − i as the fraction (a·K − i)·F·M / F·M. `None` if nothing is shed, or if it is below 0.
    #[inline]
    fn shed_of(&self, load: Load, class: Class) -> Option<Fraction> {
        if load.level <= self.shedding {
            return None;
        }
        let amount = u128::from(load.level.saturating_sub(self.shedding));
        let before = u128::from(class.0).saturating_mul(u128::from(self.span));
        let part = amount.saturating_mul(u128::from(self.classes)).checked_sub(before)?;
        Some(Fraction { part, whole: u128::from(self.span) })
    }

    /// (a − i/K)·F, rounded up: a microsecond sooner, some requests of the class are still shed.
    fn until_spared(&self, shed: Fraction) -> Micros {
        let us = match u64::try_from(shed.part) {
            Ok(part) => self.per_us.ceil(part),
            Err(_) => {
                let us = u64::try_from(shed.part.div_ceil(self.per_us.value().into()));
                us.unwrap_or_else(|_| never(self.timing.full.0)) // at most F
            }
        };
        Micros(us)
    }
}

impl Limiter for Config {
    fn words(&self) -> usize {
        3
    }

    /// d + F: the span from shedding all to rest. After such a span without a call the key starts
    /// over.
    #[inline]
    fn period(&self) -> Micros {
        Micros(self.timing.delay.0.saturating_add(self.timing.full.0))
    }

    /// Moves the state as a decision without a signal does.
    fn advance(&self, state: &mut State<impl WordsMut>, now: Timestamp) {
        state.write(self.step(Load::of(state), now, None).to_words());
    }

    /// d + F after the newest call, for every state. Even a state that sheds all with a bad signal
    /// starts over then, because a silence moves the amount for at most d.
    #[inline]
    fn reset_after(&self, state: &State<impl Words>) -> Micros {
        if Load::of(state).trend == 0 { Micros::ZERO } else { self.period() }
    }

    fn accepts(&self, state: &State<impl Words>) -> Result<(), InvalidState> {
        let Load { level, trend, .. } = Load::of(state);
        let top = self.shedding.saturating_add(self.span);
        let steepest_up = self.steepest.saturating_mul(2).saturating_add(1);
        let unseen = trend == 0;
        if level > top || trend > steepest_up || (unseen && level > 0) {
            return Err(InvalidState);
        }
        Ok(())
    }
}
