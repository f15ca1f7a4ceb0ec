//! Events drawn at random. Each seed weighs them differently and leaves out some kinds of faults.

use super::super::acts::Acts;
use super::super::callers::{Callers, span, step};
use super::super::draw::Draws;
use super::event::Event;
use super::machine::World;

/// The weight of each kind of event.
#[derive(Debug)]
pub(super) struct Weights {
    kinds: [u64; KINDS],
    callers: Callers,
    spans: [u64; 4],
    /// Whether messages and swaps overtake each other.
    reorders: bool,
}

const KINDS: usize = 22;

/// The first kinds of events are no faults.
const FAULTS: usize = 7;

/// The most that a kind of event weighs.
const MOST: [u64; KINDS] =
    [40, 25, 50, 30, 20, 20, 10, 3, 3, 2, 2, 2, 1, 4, 3, 1, 2, 1, 1, 1, 2, 1];

impl Weights {
    pub(super) fn draw(draws: &mut Draws) -> Self {
        let mut kinds = MOST;
        for (kind, weight) in kinds.iter_mut().enumerate() {
            *weight = match kind < FAULTS {
                true => 20 * (*weight / 2 + 1 + draws.below(*weight)),
                false if draws.flip() => 1 + draws.below(12 * *weight),
                false => 0,
            };
        }
        let spans = match draws.below(3) {
            0 => [8, 8, 1, 0],
            _ => [8, 8, 4, 2].map(|weight| draws.below(weight + 1)),
        };
        let (acts, stays, reorders) = (Acts::draw(draws), draws.one_of(&[0, 50, 95]), draws.flip());
        Self { kinds, callers: Callers::new(acts, stays), spans, reorders }
    }

    /// The next event.
    pub(super) fn event(&mut self, draws: &mut Draws, world: &World) -> Event {
        let (nodes, objects) = (world.nodes.len(), world.objects.len());
        let index = |draws: &mut Draws| if self.reorders { draws.index(16) } else { 0 };
        match draws.weighted(&self.kinds) {
            0 => {
                let of = (nodes, &world.places);
                let (node, key, act) = self.callers.ask(draws, of, world.now);
                Event::Ask { node, key, act }
            }
            1 => Event::Send(draws.index(nodes)),
            2 => Event::Deliver(index(draws)),
            3 => Event::Poll(draws.index(objects)),
            4 => Event::Execute(index(draws)),
            5 => Event::Finish(index(draws)),
            6 => Event::Advance(span(draws, self.spans)),
            7 => Event::Repeat(draws.index(16)),
            8 => Event::Lose(draws.index(16)),
            9 => Event::Break(draws.index(16)),
            10 => Event::Corrupt(draws.index(16), draws.index(200)),
            11 => Event::Fail(draws.index(4)),
            12 => Event::Refuse(draws.index(objects)),
            13 => Event::Accept(draws.index(objects)),
            14 => Event::Crash(draws.index(objects), draws.below(16)),
            15 => Event::Edit(draws.index(objects)),
            16 => Event::Expire(draws.index(world.places.records.len())),
            17 => Event::Restart(draws.index(nodes)),
            18 => Event::Reload(draws.index(nodes)),
            19 => Event::Stop(draws.index(nodes), span(draws, self.spans)),
            20 => Event::Set(draws.index(objects), step(draws, world.setup.skew)),
            _ => Event::Calm(),
        }
    }
}
