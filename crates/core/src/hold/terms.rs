//! The terms of holds, and the answers about them.

use crate::decision::Decision;
use crate::time::{Micros, Timestamp};

/// The most holds that a key may have.
pub const MAX_HOLDS: u64 = 1_000;

/// What becomes of a hold that nobody commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnExpiry {
    /// Its units come back.
    Release,
    /// Its units stay charged.
    Charge,
}

/// The terms on which a limiter holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    /// n, from 1 to [`MAX_HOLDS`].
    pub most: u64,
    /// The longest span for which a hold may be live.
    pub longest: Micros,
    /// For how long the key remembers how a hold ended.
    pub remember: Micros,
    /// What becomes of a hold that nobody commits.
    pub on_expiry: OnExpiry,
}

/// The answer to a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserved {
    /// The limiter has decided. If it allows, the units are held.
    Decided(Decision),
    /// A live hold of this id has `units` already, until this time. Nothing has changed.
    Again {
        /// The units of the hold.
        units: u64,
        /// The time at which it ends.
        until: Timestamp,
    },
    /// The hold of this id has ended. Nothing has changed.
    Ended,
    /// The key has as many holds as it may have. One is forgotten at this time. Nothing has changed.
    Full {
        /// The earliest time at which there may be room.
        until: Timestamp,
    },
}

/// What a key knows of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// A hold of this id is live.
    Live,
    /// The hold of this id has ended.
    Ended {
        /// The time at which the key forgets it, unless newer holds need its place.
        until: Timestamp,
    },
}

/// The answer to a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The units that count for the hold: those of the first commit, or the estimate if it stayed charged.
    pub charged: u64,
    /// Whether no live hold had this id at the first commit, so that its units were charged at the time of the commit.
    pub late: bool,
}
