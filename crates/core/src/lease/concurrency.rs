//! Concurrency: limits the units that are held by leases at once.
//!
//! Source: the concurrent requests limiter of "Scaling your API with rate limiters" (Stripe).
//! There a key has a sorted set of up to 100 random ids. The score of an id is its time, and the id
//! is forgotten 60 s later.
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | C | capacity | units |
//! | T | time to live | µs |
//! | cᵢ, xᵢ | cost of lease i, and the time at which it was acquired or last renewed | units, µs |
//! | U(t) | units live at t: the sum of cᵢ over the leases with xᵢ ≤ t < xᵢ + T | units |
//!
//! A lease of cost c is granted iff U + c ≤ C and the table has room for another lease. Acquiring a
//! live lease renews it and takes no further units, so a caller may repeat a request whose answer
//! was lost. A lease that is neither renewed nor released expires at xᵢ + T. The error bound is 0.
//!
//! **Guarantee:** never more than C units are live. The units of a lost holder are free T after its
//! last heartbeat.
//!
//! State: 3 + ⌈slots/4⌉ + 5·leases words. `slots` is the least power of two that is at least twice
//! the leases. A state for 1,000 leases takes 44 KB.
//!
//! ```
//! use tidegate_core::{Limiter, Micros, Timestamp, lease::{Held, Id, concurrency}};
//!
//! let two_at_once = concurrency::Config::new(2, Micros::SECOND, 2).unwrap();
//! let mut state = two_at_once.state(vec![0; two_at_once.words()]).unwrap();
//! let [first, second, third] = [Id([1, 0]), Id([2, 0]), Id([3, 0])];
//!
//! assert!(two_at_once.acquire(&mut state, Timestamp(0), first, 1).unwrap().is_allowed());
//! assert!(two_at_once.acquire(&mut state, Timestamp(10), second, 1).unwrap().is_allowed());
//! let refused = two_at_once.acquire(&mut state, Timestamp(20), third, 1).unwrap();
//! assert_eq!(refused.retry_after(), Micros(999_980)); // then the first has expired
//!
//! let released = two_at_once.release(&mut state, Timestamp(30), second);
//! assert_eq!(released, Held::Live { cost: 1 });
//! assert!(two_at_once.acquire(&mut state, Timestamp(30), third, 1).unwrap().is_allowed());
//! ```

#[cfg(test)]
mod tests;

use super::table::{FIELDS, Layout, Live, Table, Tabled, limiter_with_table};
use super::{Held, Id, Leases};
use crate::decision::{Answer, CostExceedsCapacity, Decision};
use crate::limiter::{self, Limiter, Words, WordsMut};
use crate::quantity::{ConfigError, in_range};
use crate::time::{Micros, Timestamp};

/// A validated limit on concurrency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    capacity: u64,
    layout: Layout<FIELDS>,
}

/// The state of a key. [`Limiter::state`] makes it.
pub type State<W> = limiter::State<Config, W>;

impl Tabled<FIELDS> for Config {
    #[inline]
    fn layout(&self) -> Layout<FIELDS> {
        self.layout
    }
}

limiter_with_table!(Config);

impl Leases for Config {}

impl Config {
    /// Makes a limit of `capacity` units at once, in at most `max_leases` leases. A lease expires
    /// `time_to_live` after it was last renewed.
    ///
    /// # Errors
    /// Returns [`ConfigError::OutOfRange`] if `capacity` or `time_to_live` is 0 or above 2^53 − 1,
    /// or if `max_leases` is 0 or above [`MAX_ENTRIES`](super::MAX_ENTRIES).
    pub fn new(capacity: u64, time_to_live: Micros, max_leases: u64) -> Result<Self, ConfigError> {
        in_range("capacity", capacity)?;
        in_range("time_to_live", time_to_live.0)?;
        Ok(Self { capacity, layout: Layout::new("max_leases", max_leases, time_to_live)? })
    }

    /// The most units at once.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The most leases at once.
    #[must_use]
    pub const fn max_leases(&self) -> usize {
        self.layout.entries()
    }

    /// Asks for the lease `id` of `cost` units. If that lease is live, it is renewed: the answer is
    /// to allow, and the lease keeps its cost. A cost of 0 is a peek.
    ///
    /// `remaining` is also 0 if units are left but the table has no room for another lease.
    ///
    /// # Errors
    /// Returns [`CostExceedsCapacity`] if `cost` is above the capacity. The state does not change
    /// then.
    #[inline]
    pub fn acquire(
        &self,
        state: &mut State<impl WordsMut>,
        now: Timestamp,
        id: Id,
        cost: u64,
    ) -> Answer {
        if cost == 0 {
            return self.peek(state, now, 0);
        }
        CostExceedsCapacity::check(cost, self.most_of(state, self.capacity))?;
        let mut table = Table::new(self.layout, state.words_mut());
        table.advance(now);
        let live = table.all();
        let found = table.search(id);
        if found.place != 0 {
            table.touch(found.place);
            let remaining = self.remaining(live);
            return Ok(Decision::Allow {
                limit: self.capacity,
                remaining,
                reset_after: self.period(),
            });
        }
        let decision = self.answer(&table, live, cost);
        if decision.is_allowed() {
            table.insert(found, id, cost);
        }
        Ok(decision)
    }

    /// The answer that [`acquire`](Self::acquire) would give to a new lease. The state does not
    /// change.
    ///
    /// # Errors
    /// Returns the error that [`acquire`](Self::acquire) would return.
    pub fn peek(&self, state: &State<impl Words>, now: Timestamp, cost: u64) -> Answer {
        CostExceedsCapacity::check(cost, self.most_of(state, self.capacity))?;
        let table = Table::new(self.layout, state.words());
        let live = table.live(now);
        if cost == 0 {
            return Ok(Decision::Allow {
                limit: self.capacity,
                remaining: self.remaining(live),
                reset_after: table.until_empty(live),
            });
        }
        Ok(self.answer(&table, live, cost))
    }

    /// Ends a live lease. Its units are free at once.
    #[inline]
    pub fn release(&self, state: &mut State<impl WordsMut>, now: Timestamp, id: Id) -> Held {
        let mut table = Table::new(self.layout, state.words_mut());
        table.advance(now);
        let found = table.search(id);
        if found.place == 0 {
            return Held::Unknown;
        }
        let cost = table.value(found.place);
        table.remove(found);
        Held::Live { cost }
    }

    /// The units live at the time at which a decision at `now` is taken.
    pub(crate) fn live_units(&self, state: &State<impl Words>, now: Timestamp) -> u64 {
        Table::new(self.layout, state.words()).live(now).sum
    }

    #[inline]
    fn remaining(&self, live: Live) -> u64 {
        if live.count < self.max_leases() { self.capacity.saturating_sub(live.sum) } else { 0 }
    }

    /// The decision on a new lease. `cost` is from 1 to the capacity.
    #[inline(always)] // a call would move the decision in memory once more
    fn answer<W: AsRef<[u64]>>(&self, table: &Table<W, FIELDS>, live: Live, cost: u64) -> Decision {
        let limit = self.capacity;
        let remaining = self.remaining(live);
        if cost <= remaining {
            let remaining = self.remaining(live.with(cost));
            return Decision::Allow { limit, remaining, reset_after: self.period() };
        }
        let units = live.sum.saturating_add(cost).saturating_sub(limit);
        Decision::Deny {
            limit,
            remaining,
            retry_after: table.until_freed(live, units),
            reset_after: table.until_empty(live),
        }
    }
}
