//! What a script needs of a world of any topology.

use std::fmt::Debug;

use super::event::Event;
use super::tally::Tally;
use super::violation::Checked;

/// A world in which events happen.
pub(super) trait Happens: Debug {
    /// Makes an event happen and checks what follows.
    fn happen(&mut self, step: usize, event: Event) -> Checked;

    /// The µs since the start.
    fn now(&self) -> u64;

    /// Which situations the world has come to.
    fn tally(&self) -> &Tally;
}
