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
//! use tidegate_core::{Micros, Timestamp, lease::Id, shed::fleet::{Config, Priority}};
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

use crate::decision::{CostExceedsCapacity, Decision, InvalidState};
use crate::lease::{Held, Id, State, concurrency};
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// C
    capacity: u64,
    /// What limits low priority, to C − R.
    low: concurrency::Config,
}

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

    /// The time to live of a lease.
    #[must_use]
    pub const fn period(&self) -> Micros {
        self.low.period()
    }

    /// The number of words in a state.
    #[must_use]
    pub const fn words(&self) -> usize {
        self.low.words()
    }

    /// The state kept in these words; all zero for a fleet never seen.
    ///
    /// # Errors
    /// As [`concurrency::Config::state`].
    pub fn state<W: AsRef<[u64]>>(&self, words: W) -> Result<State<W>, InvalidState> {
        self.low.state(words)
    }

    /// Asks for the lease `id` of `cost` units: low priority as [`concurrency::Config::acquire`],
    /// within what is not reserved. High priority is allowed at any cost and changes nothing;
    /// `limit` is then the capacity, and `remaining` what low priority does not hold of it.
    ///
    /// # Errors
    /// [`CostExceedsCapacity`], to low priority alone; the state is untouched.
    #[inline]
    pub fn acquire<W: AsRef<[u64]> + AsMut<[u64]>>(
        &self,
        state: &mut State<W>,
        now: Timestamp,
        priority: Priority,
        id: Id,
        cost: u64,
    ) -> Result<Decision, CostExceedsCapacity> {
        match priority {
            Priority::Low => self.low.acquire(state, now, id, cost),
            Priority::High => self.pass(state, now),
        }
    }

    /// What [`acquire`](Self::acquire) would answer about a new lease; changes nothing.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub fn peek<W: AsRef<[u64]>>(
        &self,
        state: &State<W>,
        now: Timestamp,
        priority: Priority,
        cost: u64,
    ) -> Result<Decision, CostExceedsCapacity> {
        match priority {
            Priority::Low => self.low.peek(state, now, cost),
            Priority::High => self.pass(state, now),
        }
    }

    /// Renews a live lease. One of high priority is unknown, which is harmless.
    #[inline]
    pub fn heartbeat<W: AsRef<[u64]> + AsMut<[u64]>>(
        &self,
        state: &mut State<W>,
        now: Timestamp,
        id: Id,
    ) -> Held {
        self.low.heartbeat(state, now, id)
    }

    /// Ends a live lease. One of high priority is unknown, which is harmless.
    #[inline]
    pub fn release<W: AsRef<[u64]> + AsMut<[u64]>>(
        &self,
        state: &mut State<W>,
        now: Timestamp,
        id: Id,
    ) -> Held {
        self.low.release(state, now, id)
    }

    /// Takes over the leases of low priority of another configuration: see
    /// [`concurrency::Config::adopt`].
    pub fn adopt<W: AsRef<[u64]> + AsMut<[u64]>, V: AsRef<[u64]>>(
        &self,
        state: &mut State<W>,
        from: &Self,
        held: &State<V>,
    ) {
        self.low.adopt(state, &from.low, held);
    }

    /// Moves the state to `now`, as any operation does first: expired leases leave.
    pub fn advance<W: AsRef<[u64]> + AsMut<[u64]>>(&self, state: &mut State<W>, now: Timestamp) {
        self.low.advance(state, now);
    }

    /// From this time on the state equals a fresh one.
    #[must_use]
    pub fn expires_at<W: AsRef<[u64]>>(&self, state: &State<W>) -> Timestamp {
        self.low.expires_at(state)
    }

    /// Whether the lease `id` of low priority is live: to acquire it again is then allowed, and
    /// takes nothing.
    #[must_use]
    pub fn holds<W: AsRef<[u64]>>(&self, state: &State<W>, now: Timestamp, id: Id) -> bool {
        self.low.holds(state, now, id)
    }

    /// The span from the newest time seen to [`expires_at`](Self::expires_at).
    #[must_use]
    pub fn reset_after<W: AsRef<[u64]>>(&self, state: &State<W>) -> Micros {
        self.low.reset_after(state)
    }

    /// # Errors
    /// [`InvalidState`] if no decision of this configuration can have left the state behind.
    pub fn accepts<W: AsRef<[u64]>>(&self, state: &State<W>) -> Result<(), InvalidState> {
        self.low.accepts(state)
    }

    fn pass<W: AsRef<[u64]>>(
        &self,
        state: &State<W>,
        now: Timestamp,
    ) -> Result<Decision, CostExceedsCapacity> {
        let limit = self.capacity;
        let remaining = limit.saturating_sub(self.low.live_units(state, now));
        let reset_after = self.low.peek(state, now, 0)?.reset_after();
        Ok(Decision::Allow { limit, remaining, reset_after })
    }
}

/// Parts per million in the whole.
const WHOLE: u64 = 1_000_000;
