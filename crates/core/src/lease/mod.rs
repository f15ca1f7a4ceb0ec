//! Leases: limiters whose units a holder holds for a time, and gives back or loses at the end.
//!
//! | limiter | a lease is |
//! |---|---|
//! | [`concurrency`] | units of work that may be in progress at once |
//! | [`connections`] | the open connections of one server process |
//! | [`budget`] | units of another limiter that the holder may spend without asking |
//!
//! All three keep one table per key. It has at most [`MAX_ENTRIES`] entries, which are found by
//! [`Id`] and ordered by the time at which they were last touched. The time of an operation does
//! not depend on the number of entries, except for a budget's grant and a refusal of many units.
//! The next operation that writes removes the entries that have expired.

pub mod budget;
pub mod concurrency;
pub mod connections;
#[cfg(test)]
mod properties;
pub(crate) mod table;

pub use table::MAX_ENTRIES;

use self::table::{FIELDS, Table, Tabled};
use crate::limiter::{Limiter, State, Words, WordsMut};
use crate::never::never;
use crate::time::Timestamp;

/// The identity of a lease or of its holder: 128 bits without further meaning. All values are
/// legal, including zero.
///
/// The caller chooses the ids and must never give two holders the same id. A hash of a name is
/// good enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub [u64; 2]);

/// The answer to a renewal or a release of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a holder whose lease is unknown must stop"]
pub enum Held {
    /// The lease was live.
    Live {
        /// The units that the lease holds, or held until it was released.
        cost: u64,
    },
    /// The lease was released before, has expired, or was never acquired. Nothing has changed.
    Unknown,
}

/// A limiter whose leases are renewed by their holders: [`concurrency`], [`connections`] and
/// [fleet usage](crate::shed::fleet). The id of a lease of connections is the id of its owner.
pub trait Leases: Limiter + Tabled<FIELDS> {
    /// Renews a live lease. It then expires one [period](Limiter::period) after `now`.
    #[inline]
    fn heartbeat(&self, state: &mut State<Self, impl WordsMut>, now: Timestamp, id: Id) -> Held {
        let mut table = Table::new(self.layout(), state.words_mut());
        table.advance(now);
        let Some(place) = table.find(id) else { return Held::Unknown };
        table.touch(place);
        Held::Live { cost: table.value(place) }
    }

    /// Whether the lease `id` is live. If it is, acquiring it again is allowed and takes no units.
    #[must_use]
    fn holds(&self, state: &State<Self, impl Words>, now: Timestamp, id: Id) -> bool {
        let table = Table::new(self.layout(), state.words());
        table.find(id).is_some_and(|place| table.is_live(table.live(now), place))
    }

    /// The number of leases in a state, live at its newest time.
    #[must_use]
    fn count(&self, state: &State<Self, impl Words>) -> u64 {
        let count = Table::new(self.layout(), state.words()).all().count;
        u64::try_from(count).unwrap_or_else(|_| never(u64::MAX)) // at most MAX_ENTRIES
    }

    /// The most leases that a state has room for.
    #[must_use]
    fn most(&self) -> u64 {
        u64::try_from(self.layout().entries()).unwrap_or_else(|_| never(0)) // at most MAX_ENTRIES
    }

    /// Takes over all live leases of a state of another configuration, as if they were renewed at
    /// its newest time. Holders keep what they hold, even if this configuration would not have
    /// granted that much. Leases that do not fit the table are lost.
    fn adopt<W: AsRef<[u64]> + AsMut<[u64]>, V: AsRef<[u64]>>(
        &self,
        state: &mut State<Self, W>,
        from: &Self,
        held: &State<Self, V>,
    ) {
        let held = Table::new(from.layout(), held.words());
        Table::new(self.layout(), state.words_mut()).adopt(&held);
    }
}
