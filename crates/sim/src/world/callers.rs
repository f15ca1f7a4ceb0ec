//! Callers: whom they ask and for what; spans of time, and steps of a clock.

use tidegate_gate::{Class, Draw, Micros, Offered, Operation, Request, Resolved, Share, Timestamp};

use super::act::Act;
use super::acts::Acts;
use super::draw::Draws;
use super::places::Places;

/// Callers, who may stay with one node and one key for a while. A node that is asked often takes units in advance.
#[derive(Debug, Default)]
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

/// The operation of an act that concerns no earlier one.
pub(super) fn operation_of(act: Act, resolved: &Resolved, now: Timestamp) -> Operation {
    let lease = |number: u64| resolved.lease_id(&number.to_string());
    let asked_for = |cost| Request { lease: Some(lease(0)), ..Request::of(cost) };
    match act {
        Act::Take(units) => Operation::Decide(asked_for(units)),
        Act::Ranked { units, class, signal_ppm, draw } => {
            let classes = resolved.policy().classes();
            let name = class.checked_rem(classes.len()).and_then(|class| classes.get(class));
            let class = name.and_then(|name| resolved.policy().class(name)).unwrap_or(Class(0));
            let (signal, draw) = (Share::from_ppm(signal_ppm), Draw(draw));
            let lease = Some(lease(draw.0.into()));
            Operation::Decide(Request { class, signal, draw, lease, ..Request::of(units) })
        }
        Act::Peek(units) => Operation::Peek(asked_for(units)),
        Act::Acquire(number) => {
            Operation::Decide(Request { lease: Some(lease(number)), ..Request::of(1) })
        }
        Act::Heartbeat(number) => Operation::Heartbeat(lease(number)),
        Act::Count(owner, count) => Operation::Count(lease(owner), count),
        Act::Release(number) => Operation::Release(lease(number)),
        Act::Refund(units) => Operation::Refund(units),
        Act::Report { admitted, suppressed, age } => {
            let at = (age > 0).then(|| Timestamp(now.0.saturating_sub(age)));
            Operation::Report(Offered { at, admitted, suppressed })
        }
        Act::Reset(depth) => Operation::Reset(depth),
        Act::Block(span) => Operation::Block(Micros(span)),
        Act::Settle(..) | Act::Borrow { .. } => Operation::from(0), // they concern earlier ones
    }
}
