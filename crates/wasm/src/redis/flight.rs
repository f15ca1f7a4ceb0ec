//! The calls that JavaScript makes: each is one command after another, until the call has ended.

use super::arguments::Arguments;
use super::call::Call;
use super::slot::Master;

/// A call that has not ended.
#[derive(Debug)]
pub(super) enum Flight {
    /// Swaps states, for the swap of this number.
    Swap(usize, Call),
    /// Announces the limiter to the other nodes, and counts them.
    Announcement(u16, Arguments),
    /// Asks whether this server is back.
    Ping(Master, u16, Arguments),
}

impl Flight {
    /// The next command.
    pub(super) const fn command(&self) -> &Arguments {
        match self {
            Self::Swap(_, call) => call.command(),
            Self::Announcement(_, command) | Self::Ping(.., command) => command,
        }
    }

    /// The slot of a Cluster that the call is about.
    pub(super) const fn slot(&self) -> u16 {
        match self {
            Self::Swap(_, call) => call.group.slot,
            Self::Announcement(slot, _) | Self::Ping(_, slot, _) => *slot,
        }
    }
}
