//! What a limiter must be able to do to hold.

use super::list::{Hold, Holds};
use crate::limiter::{RateLimiter, State, Words, WordsMut};
use crate::never::never;
use crate::time::{Micros, Timestamp};
use crate::window::Refund;

/// A rate limiter that can put the true cost of an earlier grant in the place of its estimate.
pub(crate) trait Reservable: RateLimiter {
    /// The number of words with which a hold remembers what came after its grant.
    const SINCE: usize;

    /// The same limiter, but one that forgets no units that count again when a hold turns out to have cost less.
    fn beside_holds(self) -> Self {
        self
    }

    /// How long a request has to wait whose refusal is counted already, if refused requests count.
    fn wait(&self, state: &State<Self, impl Words>, now: Timestamp, cost: u64) -> Micros {
        self.peek(state, now, cost).map_or(Micros::MAX, |said| said.retry_after())
    }

    /// Counts a request that was refused, if refused requests count.
    fn note_refusal(&self, _state: &mut State<Self, impl WordsMut>, _now: Timestamp, _cost: u64) {}

    /// Moves the state to `now`, and what came after the last hold too.
    fn pass(&self, state: &mut State<Self, impl WordsMut>, _since: &mut [u64], now: Timestamp) {
        self.advance(state, now);
    }

    /// Adds units that were taken to what came after the last hold.
    fn took(&self, _since: &mut [u64], _units: u64) {}

    /// Gives back units of a grant that was no hold. Units that live holds have taken stay taken.
    fn give_back<H: AsRef<[u64]> + AsMut<[u64]>>(
        &self,
        state: &mut State<Self, impl WordsMut>,
        holds: &mut Holds<H>,
        refund: Refund,
    ) {
        let place = |at| self.counted_with(state, at);
        let Some((own, counted)) = place(refund.granted_at) else { return };
        let is_there = |hold: &Hold| place(hold.granted_at).is_some_and(|(other, _)| other == own);
        let held = holds.each().filter(is_there).map(|hold| hold.units);
        let held = held.fold(0, u64::saturating_add);
        let cost = refund.cost.min(counted.saturating_sub(held));
        self.refund(state, Refund { cost, ..refund });
    }

    /// What the first hold has to know of the state before its grant.
    fn before(&self, _state: &State<Self, impl Words>) -> u64 {
        0
    }

    /// The place where units of a grant at this time count, and how many units count there; `None` if they count no more. A
    /// limiter that needs more than that to [give back](Reservable::give_back) units has its own way to do so.
    fn counted_with(
        &self,
        _state: &State<Self, impl Words>,
        _granted_at: Timestamp,
    ) -> Option<(u64, u64)> {
        never(None) // nothing comes back
    }

    /// Whether units that were granted at this time still count in full.
    fn counts(&self, state: &State<Self, impl Words>, granted_at: Timestamp, _units: u64) -> bool {
        self.counted_with(state, granted_at).is_some()
    }

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
