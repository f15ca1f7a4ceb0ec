//! Connections by owner: limits the connections that are open at once. Each owner, such as a server
//! process, counts its own connections.
//!
//! Source: "Limiting WebSocket connections" (Replit). There each server stores its count for a
//! customer under a separate key. That key expires after 10 minutes unless the server refreshes it,
//! which it does every 3 minutes. For every new connection the store searches for all keys of the
//! customer. Here the state of one key holds all owners, so no search is needed.
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | N | limit | connections |
//! | T | expiry | µs |
//! | nᵢ, xᵢ | connections of owner i, and the time at which it last opened, reported or refreshed | –, µs |
//! | S(t) | the sum of nᵢ over the owners with xᵢ ≤ t < xᵢ + T | connections |
//!
//! A request to open n connections is granted iff S + n ≤ N and the table has room for the owner.
//! Owners also report how many connections they really have. The limit never refuses a report: S
//! may then exceed N, and no connection is opened until S has fallen. The error bound is 0.
//!
//! **Guarantee:** no connection is opened that would make S exceed N. The connections of a dead
//! owner are free T after the owner was last heard of.
//!
//! State: as that of [`concurrency`](super::concurrency), with owners in place of leases.
//!
//! ```
//! use tidegate_core::{Limiter, Micros, Timestamp, lease::{Held, Id, connections}};
//!
//! let ten = connections::Config::new(10, connections::DEFAULT_EXPIRY, 100).unwrap();
//! let mut state = ten.state(vec![0; ten.words()]).unwrap();
//! let (one, other, now) = (Id([1, 0]), Id([2, 0]), Timestamp(1_700_000_000_000_000));
//!
//! assert!(ten.open(&mut state, now, one, 9).unwrap().is_allowed());
//! let refused = ten.open(&mut state, now, other, 2).unwrap();
//! assert_eq!((refused.is_allowed(), refused.remaining()), (false, 1));
//! assert_eq!(refused.retry_after(), connections::DEFAULT_EXPIRY); // if `one` is dead
//!
//! assert_eq!(ten.close(&mut state, now, one, 4), Held::Live { cost: 4 });
//! assert!(ten.open(&mut state, now, other, 2).unwrap().is_allowed());
//! ```

#[cfg(test)]
mod tests;

use core::fmt;

use super::table::{FIELDS, Layout, Live, Table, Tabled, limiter_with_table};
use super::{Held, Id, Leases};
use crate::decision::{Answer, CostExceedsCapacity, Decision};
use crate::limiter::{self, Limiter, Words, WordsMut};
use crate::quantity::{ConfigError, MAX_QUANTITY, in_range};
use crate::time::{Micros, Timestamp};

/// The default expiry: an owner that was not heard of for 10 minutes is dead.
pub const DEFAULT_EXPIRY: Micros = Micros(600_000_000);

/// The interval at which an owner refreshes under [`DEFAULT_EXPIRY`]: 3 minutes, so that three
/// refreshes may fail.
pub const DEFAULT_REFRESH: Micros = Micros(180_000_000);

/// A validated limit on connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    limit: u64,
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

/// An owner calls [`heartbeat`](Leases::heartbeat) to refresh. The answer is the number of
/// connections counted for it. If the owner is unknown, it has expired and must
/// [report](Config::report) the connections that it still has.
impl Leases for Config {}

/// Why a report was not recorded. The owner must close the connections beyond those that were
/// recorded before, because they are not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unrecorded {
    /// The table has no room for another owner.
    OwnersFull {
        /// The most owners at once.
        most: usize,
    },
    /// The connections of all owners together would exceed [`MAX_QUANTITY`].
    TotalTooLarge,
}

impl fmt::Display for Unrecorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OwnersFull { most } => {
                write!(f, "expected at most {most} owners of connections, found another")
            }
            Self::TotalTooLarge => {
                write!(f, "expected at most {MAX_QUANTITY} connections of all owners, found more")
            }
        }
    }
}

impl core::error::Error for Unrecorded {}

impl Config {
    /// Makes a limit of `limit` connections, for at most `max_owners` owners. An owner expires
    /// `expiry` after it was last heard of.
    ///
    /// # Errors
    /// Returns [`ConfigError::OutOfRange`] if `limit` or `expiry` is 0 or above 2^53 − 1, or if
    /// `max_owners` is 0 or above [`MAX_ENTRIES`](super::MAX_ENTRIES).
    pub fn new(limit: u64, expiry: Micros, max_owners: u64) -> Result<Self, ConfigError> {
        in_range("limit", limit)?;
        in_range("expiry", expiry.0)?;
        Ok(Self { limit, layout: Layout::new("max_owners", max_owners, expiry)? })
    }

    /// The most connections at once.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The most owners at once.
    #[must_use]
    pub const fn max_owners(&self) -> usize {
        self.layout.entries()
    }

    /// Asks for `count` new connections of `owner`. A grant also refreshes the owner. A count of 0
    /// is a peek.
    ///
    /// `remaining` is the number of connections that this owner could open: 0 if the table has no
    /// room for the owner. `retry_after` is the span until enough owners have expired if they are
    /// dead. The connections may be free sooner, when an owner closes some.
    ///
    /// # Errors
    /// Returns [`CostExceedsCapacity`] if `count` is above the limit. The state does not change
    /// then.
    #[inline]
    pub fn open(
        &self,
        state: &mut State<impl WordsMut>,
        now: Timestamp,
        owner: Id,
        count: u64,
    ) -> Answer {
        if count == 0 {
            return self.peek(state, now, owner, 0);
        }
        CostExceedsCapacity::check(count, self.most_of(state, self.limit))?;
        let mut table = Table::new(self.layout, state.words_mut());
        table.advance(now);
        let found = table.search(owner);
        let decision = self.answer(&table, table.all(), found.place != 0, count);
        if decision.is_allowed() && found.place != 0 {
            table.set_value(found.place, table.value(found.place).saturating_add(count));
            table.touch(found.place);
        } else if decision.is_allowed() {
            table.insert(found, owner, count);
        }
        Ok(decision)
    }

    /// The answer that [`open`](Self::open) would give. The state does not change.
    ///
    /// # Errors
    /// Returns the error that [`open`](Self::open) would return.
    pub fn peek(&self, state: &State<impl Words>, now: Timestamp, owner: Id, count: u64) -> Answer {
        CostExceedsCapacity::check(count, self.most_of(state, self.limit))?;
        let table = Table::new(self.layout, state.words());
        let live = table.live(now);
        let known = table.find(owner).is_some(); // an expired entry leaves room for its owner
        Ok(self.answer(&table, live, known, count))
    }

    /// Closes `count` connections of `owner`, or all its connections if it has fewer. The answer
    /// says how many were closed. An owner without connections is forgotten. Closing does not
    /// refresh the owner, because another process may close on behalf of a dead owner.
    #[inline]
    pub fn close(
        &self,
        state: &mut State<impl WordsMut>,
        now: Timestamp,
        owner: Id,
        count: u64,
    ) -> Held {
        let mut table = Table::new(self.layout, state.words_mut());
        table.advance(now);
        let found = table.search(owner);
        if found.place == 0 {
            return Held::Unknown;
        }
        let had = table.value(found.place);
        match had.saturating_sub(count) {
            0 => table.remove(found),
            left => table.set_value(found.place, left),
        }
        Held::Live { cost: had.min(count) }
    }

    /// Records that `owner` has `count` connections, and refreshes the owner. The count replaces
    /// the earlier count and may exceed the limit, because the connections exist. A count of 0
    /// forgets the owner. Returns the connections of all live owners, which may exceed the limit.
    ///
    /// # Errors
    /// Returns [`Unrecorded`] if the table has no room for the owner, or if the connections of all
    /// owners would exceed [`MAX_QUANTITY`]. Only the newest time changes then.
    pub fn report(
        &self,
        state: &mut State<impl WordsMut>,
        now: Timestamp,
        owner: Id,
        count: u64,
    ) -> Result<u64, Unrecorded> {
        if self.most_of(state, 1) == 0 {
            return Err(Unrecorded::OwnersFull { most: 0 }); // the state of another limiter
        }
        let mut table = Table::new(self.layout, state.words_mut());
        table.advance(now);
        let found = table.search(owner);
        let others = table.sum().saturating_sub(table.value(found.place));
        let total = others.saturating_add(count);
        if total > MAX_QUANTITY {
            return Err(Unrecorded::TotalTooLarge);
        }
        match (found.place, count) {
            (0, 0) => {}
            (0, _) => {
                let full = Unrecorded::OwnersFull { most: self.max_owners() };
                table.insert(found, owner, count).ok_or(full)?;
            }
            (_, 0) => table.remove(found),
            (place, _) => {
                table.set_value(place, count);
                table.touch(place);
            }
        }
        Ok(total)
    }

    #[inline]
    fn answer<W: AsRef<[u64]>>(
        &self,
        table: &Table<W, FIELDS>,
        live: Live,
        known: bool,
        count: u64,
    ) -> Decision {
        let limit = self.limit;
        let room = known || live.count < self.max_owners();
        let remaining = if room { limit.saturating_sub(live.sum) } else { 0 };
        if let Some(remaining) = remaining.checked_sub(count) {
            let reset_after = if count == 0 { table.until_empty(live) } else { self.period() };
            return Decision::Allow { limit, remaining, reset_after };
        }
        let connections = live.sum.saturating_add(count).saturating_sub(limit);
        Decision::Deny {
            limit,
            remaining,
            retry_after: table.until_freed(live, connections),
            reset_after: table.until_empty(live),
        }
    }
}
