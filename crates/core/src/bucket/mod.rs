//! Token bucket: bursts up to a capacity, refilled continuously at a rate. The same limiter as
//! GCRA (ITU-T I.371), kept as a level instead of a theoretical arrival time.
//!
//! Sources: ITU-T I.371 annex A; the request rate limiter of "Scaling your API with rate
//! limiters" (Stripe), whose constants are 500 at 100 per second, and whose Lua this replaces.
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | C | capacity | tokens |
//! | r = u/p | rate, reduced | tokens per µs |
//! | L(t) | level, min(C, L(t₀) + r·(t − t₀)) | tokens |
//!
//! A new key is full, or [empty](Config::starting_empty). A request of cost c is granted iff L ≥ c, and then L falls by c. The state
//! keeps p·(C − L), a whole number at every whole microsecond, so no grant is ever rounded:
//! error bound 0.
//!
//! **Guarantee:** in any span of length s at most C + r·s tokens are granted. What is
//! [charged](Config::charge) because it was spent already may take the level below 0, to −C: the debt
//! is paid off before anything is granted again.
//!
//! ```
//! use tidegate_core::{Decision, Micros, Rate, Timestamp, bucket};
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

#[cfg(test)]
mod published;
#[cfg(test)]
mod tests;

use crate::decision::{CostExceedsCapacity, Decision, InvalidState};
use crate::divisor::Divisor;
use crate::quantity::{ConfigError, MAX_QUANTITY, Rate, in_range};
use crate::time::{Micros, Timestamp};

/// A validated token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    capacity: u64,
    /// u: scaled units that flow in per microsecond.
    inflow: Divisor,
    /// p: scaled units in a token.
    scale: Divisor,
    /// p·C.
    full: u64,
    /// What can have been spent at most: a whole capacity more than there was.
    deepest: u64,
    /// ⌈p·C / u⌉: from empty to full, this limiter's period.
    fill_time: Micros,
    starts_empty: bool,
}

/// What is remembered of a key. The default is a key never seen: full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    /// p·(C − L) at `newest`.
    spent: u64,
    newest: Timestamp,
}

impl State {
    /// The state that [`to_words`](Self::to_words) wrote. [`Config::accepts`] says whether it can
    /// be one of that configuration.
    #[must_use]
    #[inline]
    pub const fn from_words([spent, newest]: [u64; 2]) -> Self {
        Self { spent, newest: Timestamp(newest) }
    }

    /// Two words; all zero for a key never seen.
    #[must_use]
    #[inline]
    pub const fn to_words(self) -> [u64; 2] {
        [self.spent, self.newest.0]
    }

    /// The newest time seen.
    #[must_use]
    pub const fn newest(&self) -> Timestamp {
        self.newest
    }
}

impl Config {
    /// A bucket of `capacity` tokens, refilled at `rate`.
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`]; [`ConfigError::ScaleTooFine`] if capacity × reduced period
    /// exceeds 64 bits, or filling takes longer than 285 years.
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
                // and no longer to pay off than can be told
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

    /// The same, but a key never seen has nothing at first: whoever loses his state, or gets a new
    /// name, gets no burst for it. Such a state never equals a fresh one again, so that it must be
    /// kept for ever: [`reset_after`](Self::reset_after) is [`Micros::MAX`].
    #[must_use]
    pub const fn starting_empty(self) -> Self {
        Self { starts_empty: true, ..self }
    }

    /// Whether a key never seen has nothing at first.
    #[must_use]
    pub const fn starts_empty(&self) -> bool {
        self.starts_empty
    }

    /// The most tokens that can be taken at once.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The rate at which tokens come back.
    #[must_use]
    pub const fn rate(&self) -> (u64, Micros) {
        (self.inflow.value(), Micros(self.scale.value()))
    }

    /// From empty to full.
    #[must_use]
    pub const fn period(&self) -> Micros {
        self.fill_time
    }

    /// Decides on a request of `cost` tokens at `now`; 0 is a peek.
    ///
    /// # Errors
    /// [`CostExceedsCapacity`]; the state is untouched.
    #[inline]
    pub fn decide(
        &self,
        state: &mut State,
        now: Timestamp,
        cost: u64,
    ) -> Result<Decision, CostExceedsCapacity> {
        CostExceedsCapacity::check(cost, self.capacity)?;
        let mut next = *state;
        self.advance(&mut next, now);
        let decision = self.take(&mut next, cost);
        if cost > 0 {
            *state = next;
        }
        Ok(decision)
    }

    /// What [`decide`](Self::decide) would answer; changes nothing.
    ///
    /// # Errors
    /// As [`decide`](Self::decide).
    #[inline]
    pub fn peek(
        &self,
        state: &State,
        now: Timestamp,
        cost: u64,
    ) -> Result<Decision, CostExceedsCapacity> {
        CostExceedsCapacity::check(cost, self.capacity)?;
        let mut settled = *state;
        self.advance(&mut settled, now);
        Ok(self.take(&mut settled, cost))
    }

    /// Moves the state to `now`, as any decision does first: refills, consumes nothing.
    #[inline]
    pub const fn advance(&self, state: &mut State, now: Timestamp) {
        if self.starts_empty && state.spent == 0 && state.newest.0 == 0 {
            *state = State { spent: self.full, newest: now };
        }
        let taken = now.taken_after(state.newest, self.fill_time);
        let inflow = taken.saturating_since(state.newest).0.saturating_mul(self.inflow.value());
        state.spent = state.spent.saturating_sub(inflow);
        state.newest = taken;
    }

    /// Takes `cost` tokens that were spent already, whether they are there or not: the real cost of a
    /// request that was granted on an estimate. The debt never exceeds one capacity.
    pub fn charge(&self, state: &mut State, now: Timestamp, cost: u64) {
        self.advance(state, now);
        let spent = state.spent.saturating_add(cost.saturating_mul(self.scale.value()));
        state.spent = spent.min(self.deepest.max(state.spent));
    }

    /// Gives back `cost` tokens that were granted and not used, up to the capacity.
    pub const fn refund(&self, state: &mut State, cost: u64) {
        state.spent = state.spent.saturating_sub(cost.saturating_mul(self.scale.value()));
    }

    /// The tokens that count as spent at the newest time, a started one as a whole: more than the
    /// capacity while there is a debt.
    #[must_use]
    pub const fn used(&self, state: &State) -> u64 {
        self.scale.ceil(state.spent)
    }

    /// From this time on the state equals a fresh one.
    #[must_use]
    pub const fn expires_at(&self, state: &State) -> Timestamp {
        state.newest.saturating_add(self.reset_after(state))
    }

    /// The span from the newest time seen to [`expires_at`](Self::expires_at).
    #[must_use]
    #[inline]
    pub const fn reset_after(&self, state: &State) -> Micros {
        if self.starts_empty {
            return Micros::MAX;
        }
        Micros(self.inflow.ceil(state.spent)) // up: a microsecond sooner it is not full
    }

    /// # Errors
    /// [`InvalidState`] if no decision of this configuration can have left the state behind.
    pub const fn accepts(&self, state: &State) -> Result<(), InvalidState> {
        if state.spent > self.deepest { Err(InvalidState) } else { Ok(()) }
    }

    #[inline]
    fn take(&self, state: &mut State, cost: u64) -> Decision {
        let limit = self.capacity;
        let level = self.full.saturating_sub(state.spent);
        let needed = cost.saturating_mul(self.scale.value()); // cost ≤ C, so at most p·C
        if let Some(left) = level.checked_sub(needed) {
            state.spent = state.spent.saturating_add(needed);
            let remaining = self.scale.floor(left); // down: a started token cannot be taken
            Decision::Allow { limit, remaining, reset_after: self.reset_after(state) }
        } else {
            let debt = state.spent.saturating_sub(self.full);
            let missing = needed.saturating_sub(level).saturating_add(debt);
            Decision::Deny {
                limit,
                remaining: self.scale.floor(level),
                // up: a microsecond sooner the level is still below the cost
                retry_after: Micros(self.inflow.ceil(missing)),
                reset_after: self.reset_after(state),
            }
        }
    }
}

const fn at_most(a: u64, b: u64) -> u64 {
    if a < b { a } else { b }
}

/// The largest capacity that [`Config::new`] accepts at this rate.
#[expect(clippy::as_conversions, reason = "const fn; widening, and bounded by the min before it")]
#[expect(clippy::arithmetic_side_effects, reason = "const fn; 53-bit factors, divisors above 0")]
const fn largest_capacity(inflow: u64, scale: u64) -> u64 {
    let by_width = u64::MAX as u128 / scale as u128;
    let by_time = MAX_QUANTITY as u128 * inflow as u128 / scale as u128;
    let largest = if by_width < by_time { by_width } else { by_time };
    if largest > MAX_QUANTITY as u128 { MAX_QUANTITY } else { largest as u64 }
}
