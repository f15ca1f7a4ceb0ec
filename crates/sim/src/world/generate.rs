//! Events drawn at random. Each seed weighs them differently and leaves out some kinds of faults, so that
//! some worlds fail often in one way and others in many ways.

use super::acts::Acts;
use super::callers::{Callers, span, step};
use super::draw::Draws;
use super::event::Event;
use super::machine::World;
use super::setup::Setup;

/// The weight of each kind of event.
#[derive(Debug)]
pub(super) struct Weights {
    kinds: [u64; KINDS],
    callers: Callers,
    spans: [u64; 4],
    /// Whether messages overtake each other.
    reorders: bool,
}

const KINDS: usize = 21;

/// The first kinds of events are no faults.
const FAULTS: usize = 5;

/// The most that a kind of event weighs.
const MOST: [u64; KINDS] = [40, 20, 30, 30, 10, 4, 4, 4, 4, 2, 2, 1, 2, 4, 4, 2, 1, 1, 1, 1, 1];

impl Weights {
    pub(super) fn draw(draws: &mut Draws, setup: &Setup) -> Self {
        let mut kinds = MOST;
        for (kind, weight) in kinds.iter_mut().enumerate() {
            // weights are in twentieths, so that a rare event is rarer than one step in a hundred
            *weight = match kind < FAULTS {
                true => 20 * (1 + draws.below(*weight)),
                false if draws.flip() => 1 + draws.below(20 * *weight),
                false => 0,
            };
        }
        let acts = Acts::draw(draws);
        let mut stays = draws.one_of(&[0, 50]);
        let mut spans = [8, 8, 4, 2].map(|weight| draws.below(weight + 1));
        if setup.lets_nodes_answer() {
            // a node takes units only if it is asked often, and keeps nothing for long
            stays = draws.one_of(&[50, 90, 99]);
            spans = [8, 4 + draws.below(9), draws.below(3), 0];
            kinds[..FAULTS].copy_from_slice(&[300, 300, 400, 400, 60]);
            kinds.iter_mut().skip(FAULTS).for_each(|weight| *weight /= 12);
        }
        let callers = Callers::new(acts, stays);
        Self { kinds, callers, spans, reorders: draws.flip() }
    }

    /// The next event.
    pub(super) fn event(&mut self, draws: &mut Draws, world: &World) -> Event {
        let nodes = world.nodes.len();
        let index = |draws: &mut Draws| if self.reorders { draws.index(16) } else { 0 };
        match draws.weighted(&self.kinds) {
            0 => {
                let of = (nodes, &world.places);
                let (node, key, act) = self.callers.ask(draws, of, world.now);
                Event::Ask { node, key, act }
            }
            1 => Event::Poll(draws.index(nodes)),
            2 => Event::Execute(index(draws)),
            3 => Event::Reply(index(draws)),
            4 => Event::Advance(span(draws, self.spans)),
            5 => Event::LoseCall(draws.index(16)),
            6 => Event::LoseReply(draws.index(16)),
            7 => Event::Deadline(draws.index(16)),
            8 => Event::Repeat(draws.index(16)),
            9 => Event::Refuse,
            10 => Event::Accept,
            11 => Event::Flush,
            12 => Event::Crash(draws.index(nodes)),
            13 => Event::Leave(draws.index(16)),
            14 => Event::Set(draws.index(nodes + 1), step(draws, world.setup.skew)),
            15 => Event::Corrupt(draws.index(world.places.records.len())),
            16 => Event::Repair,
            17 => Event::GiveUp(draws.index(nodes)),
            18 => Event::Reload(draws.index(nodes)),
            19 => Event::Stop(draws.index(nodes), span(draws, self.spans)),
            _ => Event::Calm,
        }
    }
}
