//! Penalty: refuses all requests of a key for a time, after the key was refused too often.
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | n, W | n refusals within a span of W begin a penalty | –, µs |
//! | T | length of the first penalty | µs |
//! | M | greatest length of a penalty | µs |
//! | F | span after the end of a penalty until it is forgiven | µs |
//! | k | penalties in a row: each began before the previous one was forgiven | – |
//!
//! The caller tells [`Config::refused`] about each refusal by another limit. A penalty begins at
//! the refusal that makes n refusals lie in (t − W, t]. It lasts min(T·2^(k−1), M), and all n
//! refusals are used up. During a penalty every request is refused, and these refusals do not
//! count. A penalty is forgiven when F has passed since its end without another penalty. The next
//! penalty then lasts T again. The error bound is 0.
//!
//! **Guarantee:** a penalty begins at the n-th refusal within W and at no other moment. It lasts at
//! most M, and ends on time even if the caller never stops. The clock rule applies with
//! [`Limiter::period`] = max(W, M + F):
//!
//! - If a clock comes back by more than a period, a key is refused for at most the rest of its
//!   penalty, which is at most M.
//! - If a clock comes back by less, time first stands still until the clock has caught up, as for
//!   every limiter.
//!
//! A state takes 32 + 8·(n − 1) bytes.
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
use crate::never::never;
use crate::quantity::{ConfigError, MAX_QUANTITY, in_bounds, in_range};
use crate::time::{Micros, Timestamp};
use crate::window::log;

/// The most refusals that may be needed to begin a penalty.
pub const MAX_REFUSALS: u64 = 100;

/// The terms of a penalty: when it begins, and how long it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    /// n: the number of refusals that begin a penalty, from 1 to [`MAX_REFUSALS`].
    pub refusals: u64,
    /// W: the span in which these refusals must lie.
    pub within: Micros,
    /// T: the length of the first penalty. Each penalty in a row lasts twice as long as the one
    /// before it.
    pub duration: Micros,
    /// M: the greatest length of a penalty. Penalties do not grow if it equals
    /// [`duration`](Self::duration).
    pub max: Micros,
    /// F: the span after the end of a penalty until the next penalty lasts
    /// [`duration`](Self::duration) again. Zero forgives a penalty at its end.
    pub forgive_after: Micros,
}

/// Validated [`Terms`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    terms: Terms,
    /// The log of the refusals that count, without the one that begins a penalty.
    refusals: log::Config,
    /// The number of penalties in a row from which each penalty lasts M.
    most_in_a_row: u64,
}

/// The state of a key. [`Limiter::state`] makes it. Its words are the span from the newest time
/// until the last penalty is forgiven, the number of penalties in a row, and the words of a
/// [`log::State`]: the newest time seen, the number of remembered refusals, and their times.
pub type State<W> = limiter::State<Config, W>;

impl sealed::Sealed for Config {
    const NEWEST: usize = 2;
}

/// The words of a state, by name.
struct Parts<'a> {
    /// The span from the newest time until the last penalty is forgiven.
    unforgiven: u64,
    /// k
    in_a_row: u64,
    refusals: log::State<&'a [u64]>,
}

impl Config {
    /// Makes penalties on these terms.
    ///
    /// # Errors
    /// - [`ConfigError::OutOfRange`] if `refusals` is 0 or above [`MAX_REFUSALS`], if `within`,
    ///   `duration` or `max` is 0 or above 2^53 − 1, or if `max` is less than `duration`.
    /// - [`ConfigError::ScaleTooFine`] if a penalty would be remembered for more than 285 years.
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
        let config = Self { terms, refusals, most_in_a_row: 1 };
        let most_in_a_row = (1..=54).find(|&k| config.lasts(k) >= max); // 2^53 exceeds any `max`
        Ok(Self { most_in_a_row: most_in_a_row.unwrap_or_else(|| never(54)), ..config })
    }

    /// The terms.
    #[must_use]
    pub const fn terms(&self) -> Terms {
        self.terms
    }

    /// Decides whether a request may pass at `now`. `limit` is n. `remaining` is the number
    /// of further refusals that begin a penalty, or 0 during a penalty.
    #[inline]
    pub fn decide(&self, state: &mut State<impl WordsMut>, now: Timestamp) -> Decision {
        self.advance(state, now);
        let Some(Parts { unforgiven, refusals, .. }) = self.parts(state) else {
            return self.refuses_all();
        };
        self.answer(unforgiven, log::settled(&refusals))
    }

    /// The answer that [`decide`](Self::decide) would give. The state does not change.
    #[inline]
    pub fn peek(&self, state: &State<impl Words>, now: Timestamp) -> Decision {
        let Some(Parts { unforgiven, refusals, .. }) = self.parts(state) else {
            return self.refuses_all();
        };
        let taken = now.taken_after(refusals.newest(), self.period());
        let passed = taken.saturating_since(refusals.newest()).0;
        // the log's period is at most this limiter's, so the log takes every time taken here
        self.answer(unforgiven.saturating_sub(passed), self.refusals.view(&refusals, taken))
    }

    #[inline]
    fn answer(&self, unforgiven: u64, refusals: log::View<'_>) -> Decision {
        let (limit, unforgiven) = (self.terms.refusals, Micros(unforgiven));
        if unforgiven > self.terms.forgive_after {
            let retry_after = Micros(unforgiven.0.saturating_sub(self.terms.forgive_after.0));
            return Decision::Deny { limit, remaining: 0, retry_after, reset_after: unforgiven };
        }
        let looked = self.refusals.answer(refusals, 0);
        let reset_after = looked.reset_after().max(unforgiven);
        Decision::Allow { limit, remaining: looked.remaining(), reset_after }
    }

    /// The answer to a request on the state of another limiter.
    #[cold]
    const fn refuses_all(&self) -> Decision {
        let (limit, retry_after, reset_after) = (self.terms.refusals, Micros::MAX, Micros::MAX);
        Decision::Deny { limit, remaining: 0, retry_after, reset_after }
    }

    /// The words of a state, by name. `None` if the state has another number of words, because it is that of another limiter.
    #[inline]
    fn parts<'a>(&self, state: &'a State<impl Words>) -> Option<Parts<'a>> {
        match state.words() {
            [unforgiven, in_a_row, refusals @ ..] if refusals.len() == self.refusals.words() => {
                let refusals = log::State::over(refusals);
                Some(Parts { unforgiven: *unforgiven, in_a_row: *in_a_row, refusals })
            }
            _ => None,
        }
    }

    /// Counts a refusal by another limit at `now`. Returns the length of the penalty that it
    /// begins, or `None` if it begins none. During a penalty no refusal counts.
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

    /// Resets the state to that of a key never seen, and so also ends a penalty.
    pub fn forgive<W: AsMut<[u64]>>(&self, state: &mut State<W>) {
        state.words_mut().fill(0);
    }

    /// The length of the k-th penalty in a row: min(T·2^(k−1), M).
    fn lasts(&self, in_a_row: u64) -> Micros {
        let doubled = u32::try_from(in_a_row.saturating_sub(1)).unwrap_or(u32::MAX);
        let times = 1_u64.checked_shl(doubled).unwrap_or(u64::MAX);
        Micros(self.terms.duration.0.saturating_mul(times)).min(self.terms.max)
    }
}

impl Limiter for Config {
    /// Four words, and one word for each refusal before the one that begins a penalty.
    fn words(&self) -> usize {
        self.refusals.words().saturating_add(2)
    }

    /// The longest span for which a state remembers anything: max(W, M + F).
    fn period(&self) -> Micros {
        self.terms.within.max(Micros(self.terms.max.0.saturating_add(self.terms.forgive_after.0)))
    }

    /// Forgets the refusals and penalties that no longer count.
    fn advance(&self, state: &mut State<impl WordsMut>, now: Timestamp) {
        let newest = state.newest();
        let taken = now.taken_after(newest, self.period());
        let [unforgiven, in_a_row, refusals @ ..] = state.words_mut() else { return };
        // after a clock has returned from a jump ahead, the rest of a penalty stays the same
        *unforgiven = unforgiven.saturating_sub(taken.saturating_since(newest).0);
        if *unforgiven == 0 {
            *in_a_row = 0;
        }
        // the log's period is at most this limiter's, so the log takes every time taken here
        self.refusals.advance(&mut log::State::over(refusals), taken);
    }

    fn reset_after(&self, state: &State<impl Words>) -> Micros {
        match self.parts(state) {
            Some(Parts { unforgiven, refusals, .. }) => {
                self.refusals.reset_after(&refusals).max(Micros(unforgiven))
            }
            None => Micros::MAX,
        }
    }

    fn accepts(&self, state: &State<impl Words>) -> Result<(), InvalidState> {
        let Parts { unforgiven, in_a_row, refusals } = self.parts(state).ok_or(InvalidState)?;
        self.refusals.accepts(&refusals)?;
        let longest = self.lasts(in_a_row).0.saturating_add(self.terms.forgive_after.0);
        let oldest = log::units(&refusals).last();
        let since = oldest.map(|&oldest| refusals.newest().saturating_since(Timestamp(oldest)).0);
        let possible = match (in_a_row, self.terms.forgive_after.0.checked_sub(unforgiven)) {
            (0, _) => unforgiven == 0,
            (_, None) => since.is_none(), // during a penalty no refusal counts
            (_, Some(ended)) => unforgiven > 0 && since.is_none_or(|since| since <= ended),
        };
        if possible && in_a_row <= self.most_in_a_row && (in_a_row == 0 || unforgiven <= longest) {
            Ok(())
        } else {
            Err(InvalidState)
        }
    }
}
