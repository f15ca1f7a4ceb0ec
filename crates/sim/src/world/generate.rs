//! Events drawn at random. Each seed weighs them differently and leaves out some kinds of faults, so that
//! some worlds fail often in one way and others in many ways.

use super::draw::Draws;
use super::event::{Act, Event};
use super::machine::World;

/// The weight of each kind of event.
#[derive(Debug)]
pub(super) struct Weights {
    kinds: [u64; KINDS],
    acts: [u64; 7],
    spans: [u64; 4],
    /// Whether messages overtake each other.
    reorders: bool,
}

const KINDS: usize = 20;

/// The most that a kind of event weighs: the first five are no faults.
const MOST: [u64; KINDS] = [40, 20, 30, 30, 10, 4, 4, 4, 4, 2, 2, 1, 2, 4, 4, 2, 1, 1, 1, 1];

impl Weights {
    pub(super) fn draw(draws: &mut Draws) -> Self {
        let mut kinds = MOST;
        for (kind, weight) in kinds.iter_mut().enumerate() {
            // weights are in twentieths, so that a rare event is rarer than one step in a hundred
            *weight = match kind < 5 {
                true => 20 * (1 + draws.below(*weight)),
                false if draws.flip() => 1 + draws.below(20 * *weight),
                false => 0,
            };
        }
        let acts = [8, 2, 6, 3, 3, 4, 1].map(|weight| draws.below(weight + 1));
        let spans = [8, 8, 4, 2].map(|weight| draws.below(weight + 1));
        Self { kinds, acts, spans, reorders: draws.flip() }
    }

    /// The next event.
    pub(super) fn event(&self, draws: &mut Draws, world: &World) -> Event {
        let nodes = world.nodes.len();
        let index = |draws: &mut Draws| if self.reorders { draws.index(16) } else { 0 };
        match draws.weighted(&self.kinds) {
            0 => self.ask(draws, world),
            1 => Event::Poll(draws.index(nodes)),
            2 => Event::Execute(index(draws)),
            3 => Event::Reply(index(draws)),
            4 => Event::Advance(self.span(draws)),
            5 => Event::LoseCall(draws.index(16)),
            6 => Event::LoseReply(draws.index(16)),
            7 => Event::Deadline(draws.index(16)),
            8 => Event::Repeat(draws.index(16)),
            9 => Event::Refuse,
            10 => Event::Accept,
            11 => Event::Flush,
            12 => Event::Crash(draws.index(nodes)),
            13 => Event::Leave(draws.index(16)),
            14 => Event::Set(draws.index(nodes + 1), self.step(draws, world)),
            15 => Event::Corrupt(draws.index(world.places.slices.len())),
            16 => Event::Repair,
            17 => Event::GiveUp(draws.index(nodes)),
            18 => Event::Reload(draws.index(nodes)),
            _ => Event::Calm,
        }
    }

    fn ask(&self, draws: &mut Draws, world: &World) -> Event {
        let (node, key) = (draws.index(world.nodes.len()), draws.index(world.places.of_edition));
        let units = |draws: &mut Draws| match draws.below(40) {
            0 => 1_000, // more than any limit grants
            drawn => 1 + drawn % 3,
        };
        let lease = |draws: &mut Draws| draws.below(4);
        let acts = &self.acts;
        let weights = match world.places.keys[key].holds_leases {
            true => [0, acts[1], acts[2] + 1, acts[3], acts[4], 0, acts[6]],
            false => [acts[0] + 1, acts[1], 0, 0, 0, acts[5], acts[6]],
        };
        let act = match draws.weighted(&weights) {
            0 => Act::Take(units(draws)),
            1 => Act::Peek(units(draws) - 1),
            2 => Act::Acquire(lease(draws)),
            3 => Act::Heartbeat(lease(draws)),
            4 => Act::Release(lease(draws)),
            5 => Act::Settle(draws.index(64), draws.below(4)),
            _ if draws.below(8) == 0 => Act::Reset,
            _ => Act::Take(1),
        };
        // a lease has a name, so `take` needs none
        let act = match act {
            Act::Take(_) if world.places.keys[key].holds_leases => Act::Acquire(0),
            other => other,
        };
        Event::Ask { node, key, act }
    }

    fn span(&self, draws: &mut Draws) -> u64 {
        let weights = [self.spans[0] + 1, self.spans[1], self.spans[2], self.spans[3]];
        match draws.weighted(&weights) {
            0 => draws.below(2_000),
            1 => draws.below(100_000),
            2 => draws.one_of(&[200_000, 500_000, 1_000_000, 2_000_000, 3_000_000]),
            _ => draws.below(40_000_000),
        }
    }

    fn step(&self, draws: &mut Draws, world: &World) -> i64 {
        let by = i64::try_from(draws.below(2 * world.setup.skew + 1)).unwrap_or(0);
        if draws.flip() { by } else { -by }
    }
}
