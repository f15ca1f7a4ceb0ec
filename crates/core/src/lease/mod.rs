//! Leases: something held for a time, and given back or lost at its end.
//!
//! | limiter | a lease is |
//! |---|---|
//! | [`concurrency`] | a place among those that may work at once |
//! | [`connections`] | the open connections of one server process |
//! | [`budget`] | units of another limiter, to spend without asking |
//!
//! All three keep one table per key: at most [`MAX_ENTRIES`] entries, found by [`Id`] and ordered
//! by when they were last touched. An operation costs the same however many entries there are, but
//! for a budget's grant and a refusal of many units. What has expired is cleared by the next
//! operation that writes.

pub mod budget;
pub mod concurrency;
pub mod connections;
#[cfg(test)]
mod properties;
pub(crate) mod table;

pub use table::MAX_ENTRIES;

use self::table::{FIELDS, Table, Tabled};
use crate::limiter::{Limiter, State, Words, WordsMut};
use crate::time::Timestamp;

/// Who holds a lease: 128 bits that mean nothing here. All values are legal, also all zero.
///
/// Whoever makes them sees to it that two holders never share one; a hash of a name will do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub [u64; 2]);

/// What became of a lease that was to be renewed or released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a holder whose lease is unknown must stop"]
pub enum Held {
    /// It was live.
    Live {
        /// The units it holds, or held until it was released.
        cost: u64,
    },
    /// It was released before, has expired, or was never acquired. Harmless: nothing has changed.
    Unknown,
}

/// A limiter of leases that their holders renew: [`concurrency`], [`connections`] and
/// [fleet usage](crate::shed::fleet). A lease of connections is known by its owner's id.
pub trait Leases: Limiter + Tabled<FIELDS> {
    /// Renews a live lease: it expires a whole [period](Limiter::period) from now.
    #[inline]
    fn heartbeat(&self, state: &mut State<Self, impl WordsMut>, now: Timestamp, id: Id) -> Held {
        let mut table = Table::new(self.layout(), state.words_mut());
        table.advance(now);
        let Some(place) = table.find(id) else { return Held::Unknown };
        table.touch(place);
        Held::Live { cost: table.value(place) }
    }

    /// Whether the lease `id` is live: to acquire it again is then allowed, and takes nothing.
    #[must_use]
    fn holds(&self, state: &State<Self, impl Words>, now: Timestamp, id: Id) -> bool {
        let table = Table::new(self.layout(), state.words());
        table.find(id).is_some_and(|place| table.is_live(table.live(now), place))
    }

    /// Takes over what is live in a state of another configuration, all of it, as if renewed at its
    /// newest time: who holds something still holds it, also where that is more than this
    /// configuration would have granted. What finds no room in the table is lost.
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
