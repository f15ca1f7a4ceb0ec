//! What a limiter must be able to do to hold.

use super::list::{Hold, Holds};
use crate::limiter::{RateLimiter, State, Words, WordsMut};
use crate::never::never;
use crate::time::Timestamp;

/// A rate limiter that can put the true cost of an earlier grant in the place of its estimate.
pub(crate) trait Reservable: RateLimiter {
    /// The number of words with which a hold remembers what came after its grant.
    const SINCE: usize;

    /// Moves the state to `now`, and what came after the last hold too.
    fn pass(&self, state: &mut State<Self, impl WordsMut>, _since: &mut [u64], now: Timestamp) {
        self.advance(state, now);
    }

    /// Adds units that were taken to what came after the last hold.
    fn took(&self, _since: &mut [u64], _units: u64) {}

    /// Takes units that came back out of what came after the last hold.
    fn gave_back(&self, _since: &mut [u64], _units: u64) {}

    /// What the first hold has to know of the state before its grant.
    fn before(&self, _state: &State<Self, impl Words>) -> u64 {
        0
    }

    /// Whether units that were granted at this time still count in full.
    fn counts(&self, state: &State<Self, impl Words>, granted_at: Timestamp, units: u64) -> bool;

    /// Puts `actual` units in the place of the estimate of a hold, and takes the hold off the list.
    fn settle<H: AsRef<[u64]> + AsMut<[u64]>>(
        &self,
        state: &mut State<Self, impl WordsMut>,
        holds: &mut Holds<H>,
        place: usize,
        actual: u64,
    ) {
        let Hold { units, granted_at, .. } = holds.remove(place);
        self.correct(state, granted_at, units, actual);
    }

    /// Counts `actual` units instead of `counted` ones, of a grant at this time. A limiter that needs more than that to
    /// [settle](Reservable::settle) a hold has its own way to do so.
    fn correct(
        &self,
        _state: &mut State<Self, impl WordsMut>,
        _granted_at: Timestamp,
        _counted: u64,
        _actual: u64,
    ) {
        never(()); // the estimate stays charged
    }
}
