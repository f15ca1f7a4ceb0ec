//! Connections by owner: at most so many open at once, each server process counting its own.
//!
//! Source: "Limiting WebSocket connections" (Replit), where each server keeps its count for a
//! customer under a key of its own, which expires after 10 minutes unless refreshed every 3, and
//! every new connection asks the store for all keys that match the customer. Here one key's state
//! holds all its owners, and nothing is searched for.
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | N | limit | connections |
//! | T | expiry | µs |
//! | nᵢ, xᵢ | connections of owner i, and when it last opened, reported or refreshed | –, µs |
//! | S(t) | the sum of nᵢ over the owners with xᵢ ≤ t < xᵢ + T | connections |
//!
//! n connections are opened iff S + n ≤ N and the table has room for their owner. Owners also
//! report what they really have, which is never refused: S may then exceed N, and nothing more is
//! opened until it has fallen. Error bound 0.
//!
//! **Guarantee:** no connection is opened that would make S exceed N. What a dead owner had is
//! free T after it was last heard of.
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
//! assert_eq!(refused.retry_after(), connections::DEFAULT_EXPIRY); // should `one` be dead
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

/// An owner that was not heard of for 10 minutes is dead.
pub const DEFAULT_EXPIRY: Micros = Micros(600_000_000);

/// How often an owner refreshes under [`DEFAULT_EXPIRY`]: every 3 minutes, so that it may fail to
/// three times.
pub const DEFAULT_REFRESH: Micros = Micros(180_000_000);

/// A validated limit on connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    limit: u64,
    layout: Layout<FIELDS>,
}

/// What is remembered of a key: made by [`Limiter::state`].
pub type State<W> = limiter::State<Config, W>;

impl Tabled<FIELDS> for Config {
    #[inline]
    fn layout(&self) -> Layout<FIELDS> {
        self.layout
    }
}

limiter_with_table!(Config);

/// [`heartbeat`](Leases::heartbeat) says that an owner lives; the answer is how many connections
/// are counted for it. One that is unknown has expired, and [reports](Config::report) what it
/// still has.
impl Leases for Config {}

/// Why a report was not recorded. The owner's connections beyond those recorded before count
/// nowhere: it has to close them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unrecorded {
    /// The table has no room for another owner.
    OwnersFull {
        /// The most owners.
        most: usize,
    },
    /// The connections of all owners together would exceed [`MAX_QUANTITY`].
    TotalTooLarge,
}

impl fmt::Display for Unrecorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OwnersFull { most } => {
                write!(f, "there are {most} owners of connections already, which is the most")
            }
            Self::TotalTooLarge => {
                write!(f, "the connections of all owners would exceed {MAX_QUANTITY}")
            }
        }
    }
}

impl core::error::Error for Unrecorded {}

impl Config {
    /// At most `limit` connections, of at most `max_owners` owners, each of which expires `expiry`
    /// after it was last heard of.
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`], also if `max_owners` is 0 or above
    /// [`MAX_ENTRIES`](super::MAX_ENTRIES).
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

    /// Asks for `count` new connections of `owner`, which counts as refreshed if they are
    /// granted. 0 is a peek.
    ///
    /// `remaining` is what this owner could open: 0 if the table has no room for it. `retry_after`
    /// is when enough owners have expired, should they be dead; one that closes is sooner.
    ///
    /// # Errors
    /// [`CostExceedsCapacity`]; the state is untouched.
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
        CostExceedsCapacity::check(count, self.limit)?;
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

    /// What [`open`](Self::open) would answer; changes nothing.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn peek(&self, state: &State<impl Words>, now: Timestamp, owner: Id, count: u64) -> Answer {
        CostExceedsCapacity::check(count, self.limit)?;
        let table = Table::new(self.layout, state.words());
        let live = table.live(now);
        let known = table.find(owner).is_some(); // one that has expired leaves room behind
        Ok(self.answer(&table, live, known, count))
    }

    /// Closes `count` connections of `owner`, or all it has if that is less; the answer says how
    /// many it was. An owner without connections is forgotten. To close does not refresh: it may
    /// be done on behalf of an owner that is dead.
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

    /// Records that `owner` has `count` connections, whatever was counted before and whatever the
    /// limit, since they exist; it counts as refreshed. 0 forgets it. Returns the connections of
    /// all live owners, which may exceed the limit.
    ///
    /// # Errors
    /// [`Unrecorded`]: nothing has changed but the time.
    pub fn report(
        &self,
        state: &mut State<impl WordsMut>,
        now: Timestamp,
        owner: Id,
        count: u64,
    ) -> Result<u64, Unrecorded> {
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
