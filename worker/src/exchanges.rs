//! The exchanges of an isolate that are under way.

use std::collections::BTreeMap;

use crate::node::Running;

/// The exchanges by their numbers, as `u64` and in boxes because the maps of `tidegate-tier` are so: all of them then have the same
/// code.
#[derive(Default)]
pub(crate) struct Exchanges(BTreeMap<u64, Box<Running>>);

impl Exchanges {
    pub(crate) fn get(&mut self, id: u32) -> Option<&mut Running> {
        self.0.get_mut(&u64::from(id)).map(Box::as_mut)
    }

    pub(crate) fn insert(&mut self, id: u32, running: Box<Running>) {
        self.0.insert(u64::from(id), running);
    }

    pub(crate) fn remove(&mut self, id: u32) -> Option<Box<Running>> {
        self.0.remove(&u64::from(id))
    }

    /// Removes the exchanges from the lowest number on for which this holds.
    pub(crate) fn remove_while(&mut self, holds: impl Fn(&Running) -> bool) {
        while let Some(first) = self.0.first_entry().filter(|first| holds(first.get())) {
            first.remove();
        }
    }
}
