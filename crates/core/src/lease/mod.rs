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
//! operation that writes. The words of a state are many, and live in a buffer of the caller's:
//! [`State`].

pub mod budget;
pub mod concurrency;
pub mod connections;
#[cfg(test)]
mod properties;
mod table;

pub use table::MAX_ENTRIES;

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

/// What is remembered of a key: words in a buffer of the caller's, all zero for a key never seen.
/// Made by the limiter's `Config::state`, which checks their number; its `accepts` says whether
/// they mean something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State<W>(W);

impl<W: AsRef<[u64]>> State<W> {
    /// The newest time seen.
    #[must_use]
    pub fn newest(&self) -> Timestamp {
        table::newest(self.0.as_ref())
    }

    /// The words, to be stored.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        self.0.as_ref()
    }
}
