//! Callers: whom they ask and for what; spans of time, and steps of a clock.

use tidegate_gate::{
    Class, Draw, Limits, Micros, Offered, Operation, Request, Reservations, Resolved, Share,
    Timestamp,
};

use super::act::Act;
use super::acts::{Acts, RESERVATIONS};
use super::draw::Draws;
use super::places::Places;

/// How often a commit comes that is repeated.
const TIMES: usize = 10;

/// Callers, who may stay with one node and one key for a while. A node that is asked often takes units in advance.
#[derive(Debug, Default)]
pub(super) struct Callers {
    acts: Acts,
    /// How many of a hundred questions concern the same node and key as the last one.
    stays: u64,
    last: (usize, usize),
    /// A commit that comes so often again, from any node.
    again: (usize, Option<Act>),
    /// The number of the last reservation that has one of its own.
    last_number: u64,
}

impl Callers {
    pub(super) const fn new(acts: Acts, stays: u64) -> Self {
        Self { acts, stays, last: (0, 0), again: (0, None), last_number: RESERVATIONS }
    }

    /// The node and the key of a question, and what is asked at this time.
    pub(super) fn ask(
        &mut self,
        draws: &mut Draws,
        (nodes, places): (usize, &Places),
        now: u64,
    ) -> (usize, usize, Act) {
        if let (times @ 1.., Some(act)) = self.again {
            self.again.0 = times - 1;
            return (draws.index(nodes), self.last.1, act);
        }
        if draws.below(100) >= self.stays {
            self.last = (draws.index(nodes), draws.index(places.of_revision));
        }
        let (node, key) = self.last;
        let is_high = !(now / 3_000_000).is_multiple_of(4);
        let act = self.acts.act(draws, places.keys[key].kinds, is_high);
        let act = self.numbered(draws, act);
        if matches!(act, Act::Commit(..) | Act::Finish(..)) && draws.below(30) == 0 {
            self.again = (TIMES - 1, Some(act));
        }
        (node, key, act)
    }
}

impl Callers {
    /// Most reservations have a number of their own.
    fn numbered(&mut self, draws: &mut Draws, act: Act) -> Act {
        match act {
            Act::Reserve { units, span, .. } if draws.below(4) > 0 => {
                self.last_number += 1;
                Act::Reserve { id: self.last_number, units, span }
            }
            _ => act,
        }
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
        Act::Reserve { id, units, span } => {
            let capacity = resolved.limits().map_or(u64::MAX, Limits::capacity);
            let cut = |own: &Reservations| own.cut(units, capacity);
            let cost = resolved.policy().reservations().map_or(units, cut);
            let (lease, hold) = (Some(lease(id)), Micros(span));
            Operation::Decide(Request { lease, hold, ..Request::of(cost) })
        }
        Act::Commit(id, actual) => Operation::Commit(lease(id), actual),
        Act::Report { admitted, suppressed, age } => {
            let at = (age > 0).then(|| Timestamp(now.0.saturating_sub(age)));
            Operation::Report(Offered { at, admitted, suppressed })
        }
        Act::Reset(depth) => Operation::Reset(depth),
        Act::Block(span) => Operation::Block(Micros(span)),
        Act::Finish(..) | Act::Borrow { .. } => Operation::from(0), // they concern earlier ones
    }
}
