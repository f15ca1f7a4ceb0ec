//! Events drawn at random. Each seed weighs them differently and leaves out some kinds of faults, so that
//! some worlds fail often in one way and others in many ways.

use super::acts::Acts;
use super::callers::{Callers, span, step};
use super::draw::Draws;
use super::event::Event;
use super::places::Places;
use super::setup::Setup;
use super::topology::Topology;

/// Draws the events of a history.
#[derive(Debug)]
pub(super) struct Generator {
    callers: Callers,
    places: Places,
    kinds: &'static Kinds,
    weights: Vec<u64>,
    drawn: Drawn,
}

/// What an event is drawn from.
#[derive(Debug)]
struct Drawn {
    nodes: usize,
    objects: usize,
    records: usize,
    skew: u64,
    spans: [u64; 4],
    /// Whether messages and swaps overtake each other.
    reorders: bool,
}

/// The most that a kind of event weighs, and the event. Questions come first, and their event is drawn elsewhere.
type Kind = (u64, fn(&mut Draws, &Drawn) -> Event);

/// How many of the first kinds are no faults, and all kinds.
type Kinds = (usize, &'static [Kind]);

const HOSTS: Kinds = (
    5,
    &[
        (40, |_, _| Event::Calm()),
        (20, |draws, of| Event::Poll(draws.index(of.nodes))),
        (30, |draws, of| Event::Execute(of.index(draws))),
        (30, |draws, of| Event::Reply(of.index(draws))),
        (10, |draws, of| Event::Advance(span(draws, of.spans))),
        (4, |draws, _| Event::LoseCall(draws.index(16))),
        (4, |draws, _| Event::LoseReply(draws.index(16))),
        (4, |draws, _| Event::Deadline(draws.index(16))),
        (4, |draws, _| Event::Repeat(draws.index(16))),
        (2, |_, _| Event::Refuse(0)),
        (2, |_, _| Event::Accept(0)),
        (1, |_, _| Event::Flush()),
        (2, |draws, of| Event::Crash(draws.index(of.nodes), 0)),
        (4, |draws, _| Event::Leave(draws.index(16))),
        (4, |draws, of| Event::Set(draws.index(of.nodes + 1), step(draws, of.skew))),
        (2, |draws, of| Event::Overwrite(draws.index(of.records))),
        (1, |_, _| Event::Repair()),
        (1, |draws, of| Event::GiveUp(draws.index(of.nodes))),
        (1, |draws, of| Event::Reload(draws.index(of.nodes))),
        (1, |draws, of| Event::Stop(draws.index(of.nodes), span(draws, of.spans))),
        (1, |_, _| Event::Calm()),
    ],
);

const TABLE: Kinds = (
    3,
    &[
        (60, |_, _| Event::Calm()),
        (130, |draws, of| Event::Deliver(of.index(draws))),
        (40, |draws, of| Event::Advance(span(draws, of.spans))),
        (6, |draws, _| Event::Repeat(draws.index(16))),
        (6, |draws, _| Event::Lose(draws.index(16))),
        (1, |draws, of| Event::Restart(draws.index(of.nodes))),
        (1, |_, _| Event::Calm()),
    ],
);

const OBJECTS: Kinds = (
    7,
    &[
        (40, |_, _| Event::Calm()),
        (25, |draws, of| Event::Send(draws.index(of.nodes))),
        (50, |draws, of| Event::Deliver(of.index(draws))),
        (30, |draws, of| Event::Poll(draws.index(of.objects))),
        (20, |draws, of| Event::Execute(of.index(draws))),
        (20, |draws, of| Event::Reply(of.index(draws))),
        (10, |draws, of| Event::Advance(span(draws, of.spans))),
        (3, |draws, _| Event::Repeat(draws.index(16))),
        (3, |draws, _| Event::Lose(draws.index(16))),
        (2, |draws, _| Event::Break(draws.index(16))),
        (2, |draws, _| Event::Corrupt(draws.index(16), draws.index(200))),
        (2, |draws, _| Event::Fail(draws.index(4))),
        (1, |draws, of| Event::Refuse(draws.index(of.objects))),
        (4, |draws, of| Event::Accept(draws.index(of.objects))),
        (3, |draws, of| Event::Crash(draws.index(of.objects), draws.below(16))),
        (1, |draws, of| Event::Edit(draws.index(of.objects))),
        (2, |draws, of| Event::Expire(draws.index(of.records))),
        (1, |draws, of| Event::Restart(draws.index(of.nodes))),
        (1, |draws, of| Event::Reload(draws.index(of.nodes))),
        (1, |draws, of| Event::Stop(draws.index(of.nodes), span(draws, of.spans))),
        (2, |draws, of| Event::Set(draws.index(of.objects), step(draws, of.skew))),
        (1, |_, _| Event::Calm()),
    ],
);

const WIRE: Kinds = (
    7,
    &[
        (60, |_, _| Event::Calm()),
        (50, |draws, of| Event::Send(draws.index(of.nodes))),
        (120, |draws, of| Event::Deliver(of.index(draws))),
        (40, |_, _| Event::Poll(0)),
        (30, |draws, of| Event::Execute(of.index(draws))),
        (30, |draws, of| Event::Reply(of.index(draws))),
        (15, |draws, of| Event::Advance(span(draws, of.spans))),
        (6, |draws, _| Event::Repeat(draws.index(16))),
        (3, |draws, _| Event::Lose(draws.index(16))),
        (2, |draws, _| Event::Break(draws.index(16))),
        (8, |draws, _| Event::Corrupt(draws.index(16), draws.index(200))),
        (4, |draws, _| Event::Fail(draws.index(4))),
        (1, |_, _| Event::Crash(0, 0)),
        (1, |draws, of| Event::Restart(draws.index(of.nodes))),
        (1, |_, _| Event::Calm()),
    ],
);

const OUTAGE: Kinds = (
    5,
    &[
        (60, |_, _| Event::Calm()),
        (40, |draws, of| Event::Poll(draws.index(of.nodes))),
        (40, |draws, of| Event::Execute(of.index(draws))),
        (40, |draws, of| Event::Reply(of.index(draws))),
        (10, |draws, of| Event::Advance(span(draws, of.spans))),
        (4, |_, _| Event::Refuse(0)),
        (8, |_, _| Event::Accept(0)),
        (8, |draws, _| Event::Deadline(draws.index(16))),
        (1, |draws, of| Event::Crash(draws.index(of.nodes), 0)),
        (1, |_, _| Event::Calm()),
    ],
);

impl Generator {
    pub(super) fn draw(draws: &mut Draws, setup: &Setup) -> anyhow::Result<Self> {
        let places = Places::new(setup)?;
        let drawn = Drawn {
            nodes: setup.nodes,
            objects: setup.objects,
            records: places.records.len(),
            skew: setup.skew,
            spans: [0; 4],
            reorders: false,
        };
        let callers = Callers::default();
        let mut own = Self { callers, places, kinds: &HOSTS, weights: Vec::new(), drawn };
        match setup.topology {
            Topology::Hosts => own.draw_hosts(draws, setup),
            Topology::Table => own.draw_table(draws, setup),
            Topology::Objects => own.draw_objects(draws),
            Topology::Wire => own.draw_wire(draws),
            Topology::Outage => own.draw_outage(draws),
        }
        own.drawn.reorders = draws.flip();
        Ok(own)
    }

    fn draw_hosts(&mut self, draws: &mut Draws, setup: &Setup) {
        self.weigh(draws, &HOSTS, (0, 20));
        let acts = Acts::draw(draws, self.reserves());
        let mut stays = draws.one_of(&[0, 50]);
        self.drawn.spans = spans(draws);
        if setup.lets_nodes_answer() {
            // a node takes units only if it is asked often, and keeps nothing for long
            stays = draws.one_of(&[50, 90, 99]);
            self.drawn.spans = [8, 4 + draws.below(9), draws.below(3), 0];
            self.weights[..HOSTS.0].copy_from_slice(&[300, 300, 400, 400, 60]);
            self.weights.iter_mut().skip(HOSTS.0).for_each(|weight| *weight /= 12);
        }
        self.callers = Callers::new(acts, stays);
    }

    fn draw_table(&mut self, draws: &mut Draws, setup: &Setup) {
        self.weigh(draws, &TABLE, (1, 6));
        self.drawn.spans = match draws.below(3) {
            0 => [8, 8, 0, 0],
            1 => [8, 8, 1, 0],
            _ => spans(draws),
        };
        if setup.lets_nodes_answer() {
            self.drawn.spans = [8, 4 + draws.below(9), draws.below(3), 0];
            self.weights[..TABLE.0].copy_from_slice(&[1_000, 2_600, 300]);
        }
        let acts = Acts::draw(draws, self.reserves());
        self.callers = Callers::new(acts, draws.one_of(&[50, 90, 99]));
    }

    fn draw_objects(&mut self, draws: &mut Draws) {
        self.weigh(draws, &OBJECTS, (1, 12));
        self.drawn.spans = match draws.below(3) {
            0 => [8, 8, 1, 0],
            _ => spans(draws),
        };
        let acts = Acts::draw(draws, self.reserves());
        self.callers = Callers::new(acts, draws.one_of(&[0, 50, 95]));
    }

    fn draw_wire(&mut self, draws: &mut Draws) {
        self.weigh(draws, &WIRE, (1, 12));
        self.drawn.spans = draws.one_of(&[[8, 8, 0, 0], [8, 8, 1, 0]]);
        self.callers = Callers::new(Acts::of_wire(), draws.one_of(&[0, 50]));
    }

    fn draw_outage(&mut self, draws: &mut Draws) {
        self.weigh(draws, &OUTAGE, (1, 12));
        self.drawn.spans = [8, 8, 1, 0];
        self.callers = Callers::new(Acts::of_outage(), draws.one_of(&[0, 50]));
    }

    /// Whether callers reserve.
    fn reserves(&self) -> bool {
        self.places.keys.iter().any(|key| key.kinds.reserves)
    }

    /// Weighs the kinds of events. What is no fault weighs at least this many halves of its most; faults weigh this rate of
    /// theirs at most, in twentieths, so that a rare event is rarer than one step in a hundred.
    fn weigh(&mut self, draws: &mut Draws, kinds: &'static Kinds, (halves, rate): (u64, u64)) {
        self.kinds = kinds;
        let weights = kinds.1.iter().enumerate().map(|(kind, (most, _))| match kind < kinds.0 {
            true => 20 * (halves * most / 2 + 1 + draws.below(*most)),
            false if draws.flip() => 1 + draws.below(rate * most),
            false => 0,
        });
        self.weights = weights.collect();
    }

    /// The next event, so many µs after the start.
    pub(super) fn event(&mut self, draws: &mut Draws, now: u64) -> Event {
        match draws.weighted(&self.weights) {
            0 => {
                let of = (self.drawn.nodes, &self.places);
                let (node, key, act) = self.callers.ask(draws, of, now);
                Event::Ask { node, key, act }
            }
            kind => self.kinds.1[kind].1(draws, &self.drawn),
        }
    }
}

fn spans(draws: &mut Draws) -> [u64; 4] {
    [8, 8, 4, 2].map(|weight| draws.below(weight + 1))
}

impl Drawn {
    /// One of the things that are under way.
    fn index(&self, draws: &mut Draws) -> usize {
        if self.reorders { draws.index(16) } else { 0 }
    }
}
