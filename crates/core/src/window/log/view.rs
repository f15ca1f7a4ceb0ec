//! How old the units of a log are.

use crate::time::{Micros, Timestamp};

/// The units that still count, as seen from a time at or after the newest one seen.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) taken: Timestamp,
    /// By how much each unit moves back, after a return from a jump ahead.
    pub(super) shift: u64,
    pub(super) units: &'a [u64],
}

impl View<'_> {
    /// How old the unit `k` is, once `added` more were remembered at this very moment.
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

    /// Until the unit `k` is `period` old; zero if it is, or there is none.
    #[inline]
    pub(super) fn until(&self, k: usize, added: usize, period: Micros) -> Micros {
        Micros(self.age(k, added).map_or(0, |age| period.0.saturating_sub(age)))
    }

    /// How many units are younger than `period`.
    #[inline]
    pub(super) fn younger(&self, period: Micros) -> usize {
        let young = |unit: &u64| self.age_of(*unit) < period.0;
        match self.units {
            [.., oldest] if young(oldest) => self.units.len(),
            // what a steady caller finds: the one that makes room for the next
            [.., next, _] if young(next) => self.units.len().saturating_sub(1),
            units => units.partition_point(young),
        }
    }
}
