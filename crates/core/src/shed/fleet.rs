//! Fleet usage: reserves a share of the fleet's concurrency for requests of high priority.
//!
//! Source: the fleet usage load shedder of "Scaling your API with rate limiters" (Stripe). It is a
//! concurrent requests limiter with one key for the whole fleet. Requests of high priority do not
//! ask it.
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | C | capacity of the fleet | units |
//! | R | reserve, 0 < R < C; for a share ρ, C − R = ⌊C·(1 − ρ)⌋ | units |
//! | U | units live in leases of low priority, as in [`concurrency`] | units |
//!
//! A lease of low priority and cost c is granted iff U + c ≤ C − R. High priority is neither
//! refused nor counted: the fleet itself limits high priority. The error bound is 0.
//!
//! **Guarantee:** low priority never holds more than C − R units.
//!
//! State: as that of [`concurrency`]. The whole fleet shares one key.
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
use crate::never::never;
use crate::quantity::{ConfigError, MAX_QUANTITY, in_bounds};
use crate::time::{Micros, Timestamp};

/// The priority of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// The request may use the units that are not reserved.
    Low,
    /// The request may use all units, and is never refused.
    High,
}

/// A validated fleet usage shedder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// C
    capacity: u64,
    /// The limit of low priority: C − R units.
    low: concurrency::Config,
}

/// The state of the fleet. [`Limiter::state`](crate::Limiter::state) makes it. Its words are those
/// of a state of [`concurrency`].
pub type State<W> = limiter::State<Config, W>;

impl Tabled<FIELDS> for Config {
    #[inline]
    fn layout(&self) -> Layout<FIELDS> {
        self.low.layout()
    }
}

limiter_with_table!(Config);

/// High priority holds no leases: a heartbeat of high priority answers [`Held::Unknown`].
impl Leases for Config {}

impl Config {
    /// Makes a shedder for a fleet of `capacity` units that reserves `reserve` of them for high
    /// priority. Low priority has at most `max_leases` leases, which expire `time_to_live` after
    /// they were last renewed.
    ///
    /// # Errors
    /// Returns [`ConfigError::OutOfRange`] unless 2 ≤ capacity ≤ [`MAX_QUANTITY`] and
    /// 0 < reserve < capacity. Also returns the errors of [`concurrency::Config::new`].
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

    /// Makes the same shedder with the reserve as a share of the capacity, in parts per million.
    /// The units left to low priority are rounded down.
    ///
    /// # Errors
    /// Returns [`ConfigError::OutOfRange`] if the share is 0 or leaves no unit to low priority. Also
    /// returns the errors of [`new`](Self::new).
    pub fn with_share(
        capacity: u64,
        reserve_ppm: u64,
        time_to_live: Micros,
        max_leases: u64,
    ) -> Result<Self, ConfigError> {
        in_bounds("capacity", capacity, 2, MAX_QUANTITY)?;
        // at least one unit is left if capacity · (whole − share) ≥ whole
        let most = WHOLE.saturating_sub(WHOLE.div_ceil(capacity));
        in_bounds("reserve", reserve_ppm, 1, most)?;
        let rest = WHOLE.saturating_sub(reserve_ppm);
        let scaled = u128::from(capacity).saturating_mul(rest.into());
        let low = scaled.checked_div(WHOLE.into()).and_then(|low| u64::try_from(low).ok());
        let reserve = capacity.saturating_sub(low.unwrap_or_else(|| never(0))); // it is below the capacity, so it fits
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

    /// Asks for the lease `id` of `cost` units.
    ///
    /// - Low priority gets the answer of [`concurrency::Config::acquire`] within the units that are
    ///   not reserved.
    /// - High priority is allowed at any cost, and the state does not change. `limit` is then the
    ///   capacity, and `remaining` is the capacity less the units that low priority holds.
    ///
    /// # Errors
    /// Returns [`CostExceedsCapacity`](crate::CostExceedsCapacity) for low priority if `cost` is
    /// above C − R. The state does not change then.
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

    /// The answer that [`acquire`](Self::acquire) would give to a new lease. The state does not
    /// change.
    ///
    /// # Errors
    /// Returns the error that [`acquire`](Self::acquire) would return.
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

    /// Ends a live lease of low priority. For high priority the answer is [`Held::Unknown`], and
    /// nothing changes.
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
