//! Events drawn at random. Each seed weighs them differently and leaves out some kinds of faults, so that
//! some worlds fail often in one way and others in many ways.

use super::acts::Acts;
use super::draw::Draws;
use super::event::Event;
use super::machine::World;
use super::setup::Setup;

/// The weight of each kind of event.
#[derive(Debug)]
pub(super) struct Weights {
    kinds: [u64; KINDS],
    acts: Acts,
    /// How many of a hundred questions concern the same node and key as the last one.
    stays: u64,
    last: (usize, usize),
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
        Self { kinds, acts, stays, last: (0, 0), spans, reorders: draws.flip() }
    }

    /// The next event.
    pub(super) fn event(&mut self, draws: &mut Draws, world: &World) -> Event {
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
            19 => Event::Stop(draws.index(nodes), self.span(draws)),
            _ => Event::Calm,
        }
    }

    fn ask(&mut self, draws: &mut Draws, world: &World) -> Event {
        // callers who stay with one node and one key make it ask for units in advance
        if draws.below(100) >= self.stays {
            self.last = (draws.index(world.nodes.len()), draws.index(world.places.of_edition));
        }
        let (node, key) = self.last;
        let is_high = !(world.now / 3_000_000).is_multiple_of(4);
        let act = self.acts.act(draws, world.places.keys[key].kinds, is_high);
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
