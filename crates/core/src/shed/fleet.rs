//! Fleet usage: a share of the fleet's concurrency that only high priority may use.
//!
//! Source: the fleet usage load shedder of "Scaling your API with rate limiters" (Stripe): the
//! concurrent requests limiter under one key for the whole fleet, which requests of high priority
//! pass by.
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | C | capacity of the fleet | units |
//! | R | reserve, 0 < R < C; as a share ρ, what is left is C − R = ⌊C·(1 − ρ)⌋ | units |
//! | U | units live in leases of low priority, as in [`concurrency`] | units |
//!
//! A lease of low priority and cost c is granted iff U + c ≤ C − R. High priority is never
//! refused, and not counted: what it uses is what is there, and the fleet itself says when that is
//! too much. Error bound 0.
//!
//! **Guarantee:** low priority never holds more than C − R.
//!
//! State: as that of [`concurrency`]; one key for the whole fleet.
//!
//! ```
//! use tidegate_core::{Limiter, Micros, Timestamp, lease::Id, shed::fleet::{Config, Priority}};
//!
//! // 100 workers, of which 20 % are for high priority alone
//! let fleet = Config::with_share(100, 200_000, Micros(60_000_000), 1_000).unwrap();
//! let mut state = fleet.state(vec![0; fleet.words()]).unwrap();
//! let (now, [batch, report, charge]) = (Timestamp(0), [Id([1, 0]), Id([2, 0]), Id([3, 0])]);
//!
//! assert!(fleet.acquire(&mut state, now, Priority::Low, batch, 80).unwrap().is_allowed());
//! assert!(!fleet.acquire(&mut state, now, Priority::Low, report, 1).unwrap().is_allowed());
//! let high = fleet.acquire(&mut state, now, Priority::High, charge, 1).unwrap();
//! assert_eq!((high.is_allowed(), high.remaining()), (true, 20));
//! ```

#[cfg(test)]
mod tests;

use crate::decision::{Answer, Decision};
use crate::lease::table::{FIELDS, Layout, Tabled, limiter_with_table};
use crate::lease::{Held, Id, Leases, concurrency};
use crate::limiter::{self, Words, WordsMut};
use crate::quantity::{ConfigError, MAX_QUANTITY, in_bounds};
use crate::time::{Micros, Timestamp};

/// What a request is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// May use what is not reserved.
    Low,
    /// May use everything, and is never refused.
    High,
}

/// A validated fleet usage shedder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// C
    capacity: u64,
    /// What limits low priority, to C − R.
    low: concurrency::Config,
}

/// What is remembered of the fleet: made by [`Limiter::state`](crate::Limiter::state), and the
/// same words as [`concurrency`] has.
pub type State<W> = limiter::State<Config, W>;

impl Tabled<FIELDS> for Config {
    #[inline]
    fn layout(&self) -> Layout<FIELDS> {
        self.low.layout()
    }
}

limiter_with_table!(Config);

/// A lease of high priority is unknown, which is harmless.
impl Leases for Config {}

impl Config {
    /// A fleet of `capacity` units, of which `reserve` are for high priority alone. Leases of low
    /// priority expire `time_to_live` after they were last renewed; there are at most `max_leases`.
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`] unless 2 ≤ capacity ≤ [`MAX_QUANTITY`] and
    /// 0 < reserve < capacity; else as [`concurrency::Config::new`].
    pub fn new(
        capacity: u64,
        reserve: u64,
        time_to_live: Micros,
        max_leases: u64,
    ) -> Result<Self, ConfigError> {
        in_bounds("capacity", capacity, 2, MAX_QUANTITY)?;
        in_bounds("reserve", reserve, 1, capacity.saturating_sub(1))?;
        let low = capacity.saturating_sub(reserve);
        Ok(Self { capacity, low: concurrency::Config::new(low, time_to_live, max_leases)? })
    }

    /// The same with the reserve as a share of the capacity, in parts per million. What is left to
    /// low priority is rounded down.
    ///
    /// # Errors
    /// As [`new`](Self::new); [`ConfigError::OutOfRange`] if the share is 0, or would leave
    /// nothing to low priority.
    pub fn with_share(
        capacity: u64,
        reserve_ppm: u64,
        time_to_live: Micros,
        max_leases: u64,
    ) -> Result<Self, ConfigError> {
        in_bounds("capacity", capacity, 2, MAX_QUANTITY)?;
        // capacity · (whole − share) ≥ whole leaves a unit
        let most = WHOLE.saturating_sub(WHOLE.div_ceil(capacity));
        in_bounds("reserve", reserve_ppm, 1, most)?;
        let rest = WHOLE.saturating_sub(reserve_ppm);
        let scaled = u128::from(capacity).saturating_mul(rest.into());
        let low = scaled.checked_div(WHOLE.into()).and_then(|low| u64::try_from(low).ok());
        let reserve = capacity.saturating_sub(low.unwrap_or(0)); // below the capacity, so it fits
        Self::new(capacity, reserve, time_to_live, max_leases)
    }

    /// The units of the whole fleet.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The units that only high priority may use.
    #[must_use]
    pub const fn reserve(&self) -> u64 {
        self.capacity.saturating_sub(self.low.capacity())
    }

    /// The most leases of low priority at once.
    #[must_use]
    pub const fn max_leases(&self) -> usize {
        self.low.max_leases()
    }

    /// Asks for the lease `id` of `cost` units: low priority as [`concurrency::Config::acquire`],
    /// within what is not reserved. High priority is allowed at any cost and changes nothing;
    /// `limit` is then the capacity, and `remaining` what low priority does not hold of it.
    ///
    /// # Errors
    /// [`CostExceedsCapacity`](crate::CostExceedsCapacity), to low priority alone; the state is untouched.
    #[inline]
    pub fn acquire(
        &self,
        state: &mut State<impl WordsMut>,
        now: Timestamp,
        priority: Priority,
        id: Id,
        cost: u64,
    ) -> Answer {
        match priority {
            Priority::Low => self.low.acquire(&mut state.under_mut(), now, id, cost),
            Priority::High => self.pass(state, now),
        }
    }

    /// What [`acquire`](Self::acquire) would answer about a new lease; changes nothing.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub fn peek(
        &self,
        state: &State<impl Words>,
        now: Timestamp,
        priority: Priority,
        cost: u64,
    ) -> Answer {
        match priority {
            Priority::Low => self.low.peek(&state.under(), now, cost),
            Priority::High => self.pass(state, now),
        }
    }

    /// Ends a live lease. One of high priority is unknown, which is harmless.
    #[inline]
    pub fn release(&self, state: &mut State<impl WordsMut>, now: Timestamp, id: Id) -> Held {
        self.low.release(&mut state.under_mut(), now, id)
    }

    fn pass(&self, state: &State<impl Words>, now: Timestamp) -> Answer {
        let limit = self.capacity;
        let remaining = limit.saturating_sub(self.low.live_units(&state.under(), now));
        let reset_after = self.low.peek(&state.under(), now, 0)?.reset_after();
        Ok(Decision::Allow { limit, remaining, reset_after })
    }
}

/// Parts per million in the whole.
const WHOLE: u64 = 1_000_000;
