//! Token bucket: allows bursts up to a capacity and refills continuously at a rate. It is the same
//! limiter as GCRA (ITU-T I.371), but stores a level instead of a theoretical arrival time.
//!
//! Sources: ITU-T I.371 annex A; the request rate limiter of "Scaling your API with rate
//! limiters" (Stripe). Stripe's constants are a capacity of 500 and 100 per second. This module
//! replaces Stripe's Lua script.
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | C | capacity | tokens |
//! | r = u/p | rate, reduced | tokens per µs |
//! | L(t) | level, min(C, L(t₀) + r·(t − t₀)) | tokens |
//!
//! A new key is full, or [empty](Config::starting_empty). A request of cost c is granted iff
//! L ≥ c. L then falls by c. The state stores p·(C − L), which is a whole number at every whole
//! microsecond, so no grant is ever rounded: the error bound is 0.
//!
//! **Guarantee:** at most C + r·s tokens are granted in any span of length s. A
//! [charge](RateLimiter::charge) of tokens that were already spent may take the level below 0, down
//! to −C. Nothing is granted until that debt is paid off.
//!
//! ```
//! use tidegate_core::{Micros, Rate, RateLimiter, Timestamp, bucket};
//!
//! let two_then_three_per_second =
//!     bucket::Config::new(2, Rate::new(3, Micros::SECOND).unwrap()).unwrap();
//! let mut state = bucket::State::default();
//! let now = Timestamp(1_700_000_000_000_000);
//!
//! let decision = two_then_three_per_second.decide(&mut state, now, 2).unwrap();
//! assert!(decision.is_allowed());
//!
//! let decision = two_then_three_per_second.decide(&mut state, now, 1).unwrap();
//! assert_eq!(decision.retry_after(), Micros(333_334)); // a third of a second, rounded up
//!
//! // 3 can never be granted at once: an error, not a refusal.
//! assert!(two_then_three_per_second.decide(&mut state, now, 3).is_err());
//! ```

mod holds;
#[cfg(test)]
mod published;
#[cfg(test)]
mod tests;

use crate::decision::{Answer, CostExceedsCapacity, Decision, InvalidState};
use crate::divisor::Divisor;
use crate::limiter::{self, Ahead, Limiter, RateLimiter, Words, WordsMut, small_state};
use crate::never::never;
use crate::quantity::{ConfigError, MAX_QUANTITY, Rate, gcd, in_range, saturating_product};
use crate::time::{Micros, Timestamp};
use crate::window::Refund;

/// A validated token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    capacity: u64,
    /// u: the scaled units that flow in per microsecond.
    inflow: Divisor,
    /// p: the scaled units in a token.
    scale: Divisor,
    /// p·C: the scaled units in a full bucket.
    full: u64,
    /// The most scaled units that can be spent: twice the capacity, so that the debt is at most C.
    deepest: u64,
    /// ⌈p·C / u⌉: the span from empty to full, which is this limiter's period.
    fill_time: Micros,
    starts_empty: bool,
}

/// The state of a key: what was spent, in units of 1/p token, and the newest time. The default is
/// the state of a key never seen, whose bucket is full unless it [starts
/// empty](Config::starting_empty).
pub type State<W = [u64; 2]> = limiter::State<Config, W>;

small_state!(Config, 2, newest: 1);

/// The words of a state, by name.
#[derive(Clone, Copy)]
struct Level {
    /// p·(C − L) at `newest`.
    spent: u64,
    newest: Timestamp,
}

impl Level {
    #[inline]
    fn of(state: &State<impl Words>) -> Self {
        let [spent, newest] = state.read();
        Self { spent, newest: Timestamp(newest) }
    }

    #[inline]
    const fn to_words(self) -> [u64; 2] {
        [self.spent, self.newest.0]
    }
}

impl Config {
    /// Makes a bucket of `capacity` tokens that is refilled at `rate`.
    ///
    /// # Errors
    /// Returns [`ConfigError::OutOfRange`] if `capacity` is 0 or above 2^53 − 1. Returns
    /// [`ConfigError::ScaleTooFine`] if capacity × reduced period exceeds 64 bits, or if filling
    /// the bucket takes longer than 285 years.
    pub const fn new(capacity: u64, rate: Rate) -> Result<Self, ConfigError> {
        if let Err(error) = in_range("capacity", capacity) {
            return Err(error);
        }
        let (inflow, scale) = (rate.units(), rate.period().0);
        match capacity.checked_mul(scale) {
            Some(full) if full.div_ceil(inflow) <= MAX_QUANTITY => Ok(Self {
                capacity,
                inflow: Divisor::new(inflow),
                scale: Divisor::new(scale),
                full,
                // the time to pay off the debt must not exceed the longest span either
                deepest: at_most(full.saturating_mul(2), MAX_QUANTITY.saturating_mul(inflow)),
                fill_time: Micros(full.div_ceil(inflow)),
                starts_empty: false,
            }),
            _ => Err(ConfigError::ScaleTooFine {
                field: "capacity",
                found: capacity,
                nearest: largest_capacity(inflow, scale),
            }),
        }
    }

    /// Returns the same bucket, but one that is empty for a key never seen. A caller then gains no
    /// burst from a lost state or a new key. Such a state never equals a fresh one again, so a
    /// store must keep it for ever: [`reset_after`](Limiter::reset_after) is [`Micros::MAX`].
    #[must_use]
    pub const fn starting_empty(self) -> Self {
        Self { starts_empty: true, ..self }
    }

    /// Whether the bucket of a key never seen is empty.
    #[must_use]
    pub const fn starts_empty(&self) -> bool {
        self.starts_empty
    }

    /// The rate at which tokens come back.
    #[must_use]
    pub const fn rate(&self) -> (u64, Micros) {
        (self.inflow.value(), Micros(self.scale.value()))
    }

    /// The span from empty to full as a reduced fraction of microseconds, exactly: [`period`](Limiter::period) rounds it up.
    #[must_use]
    pub const fn exact_fill_time(&self) -> (u64, u64) {
        let (full, inflow) = (self.full, self.inflow.value());
        let common = gcd(full, inflow);
        match (full.checked_div(common), inflow.checked_div(common)) {
            (Some(span), Some(parts)) => (span, parts),
            _ => never((full, inflow)), // the rate is above 0
        }
    }

    /// Goes on with the state of a bucket of another capacity that takes [as long to fill](Self::exact_fill_time): the share of
    /// the capacity that was spent stays the same. It is rounded up, so that no token is granted twice.
    ///
    /// Shares of all such buckets come back at the same speed. So in any order of requests to several of them, each grants at
    /// most what it grants alone.
    ///
    /// ```
    /// use tidegate_core::{Micros, Rate, RateLimiter, Timestamp, bucket};
    ///
    /// let of = |capacity| bucket::Config::new(capacity, Rate::new(capacity, Micros(10_000_000)).unwrap()).unwrap();
    /// let (small, large, now) = (of(5), of(100), Timestamp(1_700_000_000_000_000));
    /// let mut state = bucket::State::default();
    /// assert!(small.decide(&mut state, now, 4).unwrap().is_allowed()); // 4 of 5
    ///
    /// large.go_on_from(&mut state, &small);
    /// assert_eq!(large.peek(&state, now, 0).unwrap().remaining(), 20); // 80 of 100
    /// assert!(!large.decide(&mut state, now, 21).unwrap().is_allowed());
    /// ```
    pub fn go_on_from(&self, state: &mut State<impl WordsMut>, old: &Self) {
        let Level { spent, newest } = Level::of(state);
        let scaled = u128::from(spent).saturating_mul(self.full.into());
        let spent = scaled.div_ceil(u128::from(old.full).max(1));
        let spent = u64::try_from(spent).unwrap_or(u64::MAX).min(self.deepest);
        state.write(Level { spent, newest }.to_words());
    }

    #[inline]
    const fn refill(&self, level: &mut Level, now: Timestamp) {
        if self.starts_empty && level.spent == 0 && level.newest.0 == 0 {
            *level = Level { spent: self.full, newest: now };
        }
        let taken = now.taken_after(level.newest, self.fill_time);
        let inflow =
            saturating_product(taken.saturating_since(level.newest).0, self.inflow.value());
        level.spent = level.spent.saturating_sub(inflow);
        level.newest = taken;
    }

    #[inline]
    const fn until_full(&self, level: &Level) -> Micros {
        if self.starts_empty {
            return Micros::MAX;
        }
        Micros(self.inflow.ceil(level.spent)) // up: a microsecond sooner the bucket is not full
    }

    /// Takes `cost` if the level holds it. Returns the scaled units that are then left.
    #[inline]
    fn take(&self, level: &mut Level, cost: u64) -> Option<u64> {
        let needed = saturating_product(cost, self.scale.value()); // cost ≤ C, so at most p·C
        let left = self.full.saturating_sub(level.spent).checked_sub(needed);
        if left.is_some() {
            level.spent = level.spent.saturating_add(needed);
        }
        left
    }

    /// The answer to a request of `cost`. `left` is the scaled units left after a grant, or `None`
    /// if the level was too low.
    #[inline(always)] // as `decide`
    fn answer(&self, level: Level, cost: u64, left: Option<u64>) -> Decision {
        let (limit, reset_after) = (self.capacity, self.until_full(&level));
        if let Some(left) = left {
            let remaining = self.scale.floor(left); // down: a started token cannot be taken
            return Decision::Allow { limit, remaining, reset_after };
        }
        let available = self.full.saturating_sub(level.spent);
        let debt = level.spent.saturating_sub(self.full);
        let needed = saturating_product(cost, self.scale.value());
        let missing = needed.saturating_sub(available).saturating_add(debt);
        Decision::Deny {
            limit,
            remaining: self.scale.floor(available),
            // up: a microsecond sooner the level is still below the cost
            retry_after: Micros(self.inflow.ceil(missing)),
            reset_after,
        }
    }
}

impl Limiter for Config {
    #[inline]
    fn words(&self) -> usize {
        2
    }

    /// The span from empty to full.
    #[inline]
    fn period(&self) -> Micros {
        self.fill_time
    }

    #[inline]
    fn advance(&self, state: &mut State<impl WordsMut>, now: Timestamp) {
        let mut level = Level::of(state);
        self.refill(&mut level, now);
        state.write(level.to_words());
    }

    #[inline]
    fn reset_after(&self, state: &State<impl Words>) -> Micros {
        self.until_full(&Level::of(state))
    }

    fn accepts(&self, state: &State<impl Words>) -> Result<(), InvalidState> {
        if Level::of(state).spent > self.deepest { Err(InvalidState) } else { Ok(()) }
    }
}

impl RateLimiter for Config {
    #[inline]
    fn capacity(&self) -> u64 {
        self.capacity
    }

    #[inline(always)] // the most frequent limiter: a call would move its answer in memory
    fn decide(&self, state: &mut State<impl WordsMut>, now: Timestamp, cost: u64) -> Answer {
        CostExceedsCapacity::check(cost, self.capacity)?;
        let mut level = Level::of(state);
        self.refill(&mut level, now);
        let left = self.take(&mut level, cost);
        if cost > 0 {
            state.write(level.to_words());
        }
        Ok(self.answer(level, cost, left))
    }

    #[cfg_attr(not(target_arch = "wasm32"), inline(always))] // a call would move the answer in memory
    fn peek(&self, state: &State<impl Words>, now: Timestamp, cost: u64) -> Answer {
        CostExceedsCapacity::check(cost, self.capacity)?;
        let mut level = Level::of(state);
        self.refill(&mut level, now);
        let left = self.take(&mut level, cost);
        Ok(self.answer(level, cost, left))
    }

    /// The debt never exceeds one capacity.
    fn charge(&self, state: &mut State<impl WordsMut>, now: Timestamp, cost: u64) {
        let mut level = Level::of(state);
        self.refill(&mut level, now);
        let spent = level.spent.saturating_add(saturating_product(cost, self.scale.value()));
        level.spent = spent.min(self.deepest.max(level.spent));
        state.write(level.to_words());
    }

    /// At most half of what fills the bucket is charged for the span, so that there is room for units.
    fn charge_ahead(
        &self,
        state: &mut State<impl WordsMut>,
        units: u64,
        span: Micros,
    ) -> Option<Ahead> {
        let mut level = Level::of(state);
        if level.newest == Timestamp::EPOCH {
            return None; // a bucket that starts empty has not begun to fill
        }
        let span = span.0.min(self.fill_time.0.div_euclid(2));
        let inflow = span.saturating_mul(self.inflow.value()); // at most p·C
        let grantable = self.full.saturating_add(inflow).saturating_sub(level.spent);
        let room = self.deepest.saturating_sub(level.spent).saturating_sub(inflow);
        let units = units.min(self.scale.floor(grantable.min(room)));
        if units > 0 {
            let charged = units.saturating_mul(self.scale.value()).saturating_add(inflow);
            level.spent = level.spent.saturating_add(charged);
            state.write(level.to_words());
        }
        Some(Ahead { units, until: level.newest.saturating_add(Micros(span)) })
    }

    /// A started token counts as a whole token.
    fn used(&self, state: &State<impl Words>) -> u64 {
        self.scale.ceil(Level::of(state).spent)
    }

    /// The tokens return up to the capacity, whenever they were granted.
    fn refund(&self, state: &mut State<impl WordsMut>, refund: Refund) {
        let mut level = Level::of(state);
        let given_back = saturating_product(refund.cost, self.scale.value());
        level.spent = level.spent.saturating_sub(given_back);
        state.write(level.to_words());
    }
}

const fn at_most(a: u64, b: u64) -> u64 {
    if a < b { a } else { b }
}

/// The largest capacity that [`Config::new`] accepts at this rate, if it does not accept every capacity.
#[expect(clippy::as_conversions, reason = "const fn; widening, or bounded by `by_width`")]
#[expect(clippy::arithmetic_side_effects, reason = "const fn; 53-bit factors, divisors above 0")]
const fn largest_capacity(inflow: u64, scale: u64) -> u64 {
    let by_width = u64::MAX / scale;
    let by_time = MAX_QUANTITY as u128 * inflow as u128 / scale as u128;
    if by_time < by_width as u128 { by_time as u64 } else { by_width }
}
