//! Penalty: who is refused too often is refused everything for a time.
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | n, W | so many refusals within such a span begin a penalty | –, µs |
//! | T | how long the first penalty lasts | µs |
//! | M | how long any lasts at most | µs |
//! | F | how long after its end a penalty is forgiven | µs |
//! | k | penalties in a row: each began before the one before it was forgiven | – |
//!
//! [`Config::refused`] is told of each refusal by another limit. The one that makes n of them lie
//! in (t − W, t] begins a penalty of min(T·2^(k−1), M), and all n are used up. While it lasts
//! everything is refused, and nothing that is refused counts. It is forgiven once F has passed
//! since its end without another: the next one then lasts T again. Error bound 0.
//!
//! **Guarantee:** a penalty begins at the n-th refusal within W and at no other moment; it lasts at
//! most M, and ends at its time although the caller never stops. Under the clock rule, with
//! [`Limiter::period`] = max(W, M + F): after a return of the clock by more than a period nobody is
//! refused for longer than what was left of the penalty, at most M; after a shorter one time first
//! stands still until the clock has caught up, as for every limiter. A state is 32 + 8·(n − 1)
//! bytes.
//!
//! ```
//! use tidegate_core::{Limiter, Micros, Timestamp, shed::penalty};
//!
//! let config = penalty::Config::new(penalty::Terms {
//!     refusals: 2,
//!     within: Micros(10_000_000),
//!     duration: Micros(60_000_000),
//!     max: Micros(3_600_000_000),
//!     forgive_after: Micros(600_000_000),
//! })
//! .unwrap();
//! let mut state = config.state([0; 5]).unwrap(); // 4 + (2 − 1) words
//! let now = |seconds: u64| Timestamp(1_700_000_000_000_000 + seconds * 1_000_000);
//!
//! assert!(config.decide(&mut state, now(0)).is_allowed());
//! assert_eq!(config.refused(&mut state, now(0)), None); // another limit has refused
//! assert_eq!(config.decide(&mut state, now(9)).remaining(), 1);
//! assert_eq!(config.refused(&mut state, now(9)), Some(Micros(60_000_000)));
//!
//! let refused = config.decide(&mut state, now(10));
//! assert_eq!(refused.retry_after(), Micros(59_000_000));
//! assert!(config.decide(&mut state, now(69)).is_allowed());
//! ```

#[cfg(test)]
mod tests;

use crate::decision::{Decision, InvalidState};
use crate::limiter::{self, Limiter, RateLimiter, Words, WordsMut, sealed};
use crate::quantity::{ConfigError, MAX_QUANTITY, in_bounds, in_range};
use crate::time::{Micros, Timestamp};
use crate::window::log;

/// The most refusals that a penalty may wait for.
pub const MAX_REFUSALS: u64 = 100;

/// When a penalty begins, and how long it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    /// n: so many refusals begin a penalty, from 1 to [`MAX_REFUSALS`].
    pub refusals: u64,
    /// W: the span in which they must lie.
    pub within: Micros,
    /// T: how long the first penalty lasts; each in a row lasts twice as long as the one before.
    pub duration: Micros,
    /// M: how long any lasts at most; that of [`duration`](Self::duration) if they shall not grow.
    pub max: Micros,
    /// F: how long after the end of a penalty the next one lasts [`duration`](Self::duration)
    /// again; zero if at once.
    pub forgive_after: Micros,
}

/// Validated [`Terms`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    terms: Terms,
    /// The refusals that count, short of the one that begins a penalty.
    refusals: log::Config,
    /// From so many penalties in a row on, each lasts M.
    most_in_a_row: u64,
}

/// What is remembered of a key: made by [`Limiter::state`]. Its words: the span from the newest
/// time until the last penalty is forgiven, how many came in a row, and then as in a [`log::State`]
/// the newest time seen, how many refusals are remembered, and their times.
pub type State<W> = limiter::State<Config, W>;

impl sealed::Sealed for Config {
    const NEWEST: usize = 2;
}

/// A state's words by their names.
struct Parts<'a> {
    /// How long after the newest time the last penalty is forgiven.
    unforgiven: u64,
    /// k
    in_a_row: u64,
    refusals: log::State<&'a [u64]>,
}

impl<'a> Parts<'a> {
    #[inline]
    fn of(state: &'a State<impl Words>) -> Self {
        let (unforgiven, in_a_row, refusals): (u64, u64, &[u64]) = match state.words() {
            [unforgiven, in_a_row, refusals @ ..] => (*unforgiven, *in_a_row, refusals),
            _ => (0, 0, &[]),
        };
        Self { unforgiven, in_a_row, refusals: log::State::over(refusals) }
    }
}

impl Config {
    /// Penalties on these terms.
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`], also for more refusals than [`MAX_REFUSALS`], and if `max` is less than `duration`;
    /// [`ConfigError::ScaleTooFine`] if a penalty would be remembered for more than 285 years.
    pub fn new(terms: Terms) -> Result<Self, ConfigError> {
        let Terms { refusals, within: span, duration, max, forgive_after } = terms;
        in_bounds("refusals", refusals, 1, MAX_REFUSALS)?;
        in_range("within", span.0)?;
        in_range("duration", duration.0)?;
        in_range("max", max.0)?;
        if max < duration {
            let (found, least) = (max.0, duration.0);
            return Err(ConfigError::OutOfRange { field: "max", found, least, most: MAX_QUANTITY });
        }
        let nearest = MAX_QUANTITY.saturating_sub(max.0);
        if forgive_after.0 > nearest {
            let (field, found) = ("forgive_after", forgive_after.0);
            return Err(ConfigError::ScaleTooFine { field, found, nearest });
        }
        let refusals = log::Config::short_of(refusals, span);
        let mut config = Self { terms, refusals, most_in_a_row: 1 };
        while config.lasts(config.most_in_a_row) < max {
            config.most_in_a_row = config.most_in_a_row.saturating_add(1);
        }
        Ok(config)
    }

    /// The terms.
    #[must_use]
    pub const fn terms(&self) -> Terms {
        self.terms
    }

    /// Whether anything may pass at `now`. `limit` is n; `remaining`, while no penalty lasts, how
    /// many refusals are left up to the one that begins one.
    #[inline]
    pub fn decide(&self, state: &mut State<impl WordsMut>, now: Timestamp) -> Decision {
        self.advance(state, now);
        self.peek(state, now)
    }

    /// What [`decide`](Self::decide) would answer; changes nothing.
    #[inline]
    pub fn peek(&self, state: &State<impl Words>, now: Timestamp) -> Decision {
        let Parts { unforgiven, refusals, .. } = Parts::of(state);
        let taken = now.taken_after(refusals.newest(), self.period());
        let unforgiven = unforgiven.saturating_sub(taken.saturating_since(refusals.newest()).0);
        let (limit, unforgiven) = (self.terms.refusals, Micros(unforgiven));
        if unforgiven > self.terms.forgive_after {
            let retry_after = Micros(unforgiven.0.saturating_sub(self.terms.forgive_after.0));
            return Decision::Deny { limit, remaining: 0, retry_after, reset_after: unforgiven };
        }
        // a peek at a log costs nothing, so it never costs too much
        let (remaining, reset_after) = self
            .refusals
            .peek(&refusals, taken, 0)
            .map_or((0, Micros::ZERO), |looked| (looked.remaining(), looked.reset_after()));
        Decision::Allow { limit, remaining, reset_after: reset_after.max(unforgiven) }
    }

    /// Counts a refusal by another limit at `now`. If that begins a penalty: how long it lasts.
    /// While one lasts, nothing counts.
    pub fn refused(&self, state: &mut State<impl WordsMut>, now: Timestamp) -> Option<Micros> {
        let Decision::Allow { remaining, .. } = self.decide(state, now) else { return None };
        let newest = state.newest();
        let [unforgiven, in_a_row, refusals @ ..] = state.words_mut() else { return None };
        if remaining > 1 {
            let _ = self.refusals.decide(&mut log::State::over(refusals), newest, 1);
            return None;
        }
        *in_a_row = in_a_row.saturating_add(1).min(self.most_in_a_row);
        let lasts = self.lasts(*in_a_row);
        *unforgiven = lasts.0.saturating_add(self.terms.forgive_after.0);
        refusals.fill(0);
        if let Some(kept) = refusals.first_mut() {
            *kept = newest.0;
        }
        Some(lasts)
    }

    /// Forgets everything, a penalty that lasts included: a key never seen.
    pub fn forgive<W: AsMut<[u64]>>(&self, state: &mut State<W>) {
        state.words_mut().fill(0);
    }

    /// How long the penalty lasts that is the k-th in a row: min(T·2^(k−1), M).
    fn lasts(&self, in_a_row: u64) -> Micros {
        let doubled = u32::try_from(in_a_row.saturating_sub(1)).unwrap_or(u32::MAX);
        let times = 1_u64.checked_shl(doubled).unwrap_or(u64::MAX);
        Micros(self.terms.duration.0.saturating_mul(times)).min(self.terms.max)
    }
}

impl Limiter for Config {
    /// Four words, and one for each refusal short of a penalty.
    fn words(&self) -> usize {
        self.refusals.words().saturating_add(2)
    }

    /// How long anything is remembered: the longer of W and M + F.
    fn period(&self) -> Micros {
        self.terms.within.max(Micros(self.terms.max.0.saturating_add(self.terms.forgive_after.0)))
    }

    /// Forgets what no longer counts.
    fn advance(&self, state: &mut State<impl WordsMut>, now: Timestamp) {
        let newest = state.newest();
        let taken = now.taken_after(newest, self.period());
        let [unforgiven, in_a_row, refusals @ ..] = state.words_mut() else { return };
        // what is left stays as it is after a return from a jump ahead
        *unforgiven = unforgiven.saturating_sub(taken.saturating_since(newest).0);
        if *unforgiven == 0 {
            *in_a_row = 0;
        }
        // its period is at most this one: it takes each time that this one takes
        self.refusals.advance(&mut log::State::over(refusals), taken);
    }

    fn reset_after(&self, state: &State<impl Words>) -> Micros {
        let Parts { unforgiven, refusals, .. } = Parts::of(state);
        self.refusals.reset_after(&refusals).max(Micros(unforgiven))
    }

    fn accepts(&self, state: &State<impl Words>) -> Result<(), InvalidState> {
        let Parts { unforgiven, in_a_row, refusals } = Parts::of(state);
        self.refusals.accepts(&refusals)?;
        let longest = self.lasts(in_a_row).0.saturating_add(self.terms.forgive_after.0);
        let oldest = log::units(&refusals).last();
        let since = oldest.map(|&oldest| refusals.newest().saturating_since(Timestamp(oldest)).0);
        let possible = match (in_a_row, self.terms.forgive_after.0.checked_sub(unforgiven)) {
            (0, _) => unforgiven == 0,
            (_, None) => since.is_none(), // a penalty lasts: nothing has counted since it began
            (_, Some(ended)) => unforgiven > 0 && since.is_none_or(|since| since <= ended),
        };
        if possible && in_a_row <= self.most_in_a_row && (in_a_row == 0 || unforgiven <= longest) {
            Ok(())
        } else {
            Err(InvalidState)
        }
    }
}
