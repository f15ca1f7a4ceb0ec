//! The ages of the units of a log.

use crate::time::{Micros, Timestamp};

/// The units that still count, as seen from a time at or after the newest time.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(super) taken: Timestamp,
    /// The span by which each unit moves back after a clock has returned from a jump ahead.
    pub(super) shift: u64,
    pub(super) units: &'a [u64],
}

impl View<'_> {
    /// The age of unit `k` after `added` more units were remembered at this moment.
    #[inline]
    fn age(&self, k: usize, added: usize) -> Option<u64> {
        match k.checked_sub(added) {
            None => Some(0),
            Some(k) => self.units.get(k).map(|&unit| self.age_of(unit)),
        }
    }

    #[inline]
    fn age_of(&self, unit: u64) -> u64 {
        self.taken.0.saturating_sub(unit.saturating_sub(self.shift))
    }

    /// The span until unit `k` is `period` old. Zero if it is that old, or if there is no unit `k`.
    #[inline]
    pub(super) fn until(&self, k: usize, added: usize, period: Micros) -> Micros {
        Micros(self.age(k, added).map_or(0, |age| period.0.saturating_sub(age)))
    }

    /// The number of units younger than `period`.
    #[inline]
    pub(super) fn younger(&self, period: Micros) -> usize {
        let young = |unit: &u64| self.age_of(*unit) < period.0;
        match self.units {
            [.., oldest] if young(oldest) => self.units.len(),
            // the usual case of a steady caller: only the oldest unit has just left
            [.., next, _] if young(next) => self.units.len().saturating_sub(1),
            units => units.partition_point(young),
        }
    }
}
