//! What both worlds draw alike: the questions of callers, spans of time, and steps of a clock.

use super::act::Act;
use super::acts::Acts;
use super::draw::Draws;
use super::places::Places;

/// Callers, who may stay with one node and one key for a while. A node that is asked often takes units in advance.
#[derive(Debug)]
pub(super) struct Callers {
    acts: Acts,
    /// How many of a hundred questions concern the same node and key as the last one.
    stays: u64,
    last: (usize, usize),
}

impl Callers {
    pub(super) const fn new(acts: Acts, stays: u64) -> Self {
        Self { acts, stays, last: (0, 0) }
    }

    /// The node and the key of a question, and what is asked at this time.
    pub(super) fn ask(
        &mut self,
        draws: &mut Draws,
        (nodes, places): (usize, &Places),
        now: u64,
    ) -> (usize, usize, Act) {
        if draws.below(100) >= self.stays {
            self.last = (draws.index(nodes), draws.index(places.of_revision));
        }
        let (node, key) = self.last;
        let is_high = !(now / 3_000_000).is_multiple_of(4);
        (node, key, self.acts.act(draws, places.keys[key].kinds, is_high))
    }
}

/// A span in µs. The weights are those of short to long spans.
pub(super) fn span(draws: &mut Draws, weights: [u64; 4]) -> u64 {
    let [shortest, rest @ ..] = weights;
    let [short, long, longest] = rest;
    match draws.weighted(&[shortest + 1, short, long, longest]) {
        0 => draws.below(2_000),
        1 => draws.below(100_000),
        2 => draws.one_of(&[200_000, 500_000, 1_000_000, 2_000_000, 3_000_000]),
        _ => draws.below(40_000_000),
    }
}

/// By how much a clock is set ahead or back, at most twice the skew.
pub(super) fn step(draws: &mut Draws, skew: u64) -> i64 {
    let by = i64::try_from(draws.below(2 * skew + 1)).unwrap_or(0);
    if draws.flip() { by } else { -by }
}
