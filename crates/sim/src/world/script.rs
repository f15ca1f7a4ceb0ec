//! A setup and the events that happen: all of a history, in a form that people read and tests keep.

use std::fmt;
use std::str::FromStr;

use super::draw::Draws;
use super::event::Event;
use super::generate::Generator;
use super::happens::Happens;
use super::hosts;
use super::objects;
use super::outage;
use super::setup::Setup;
use super::shrink::shrink_events;
use super::tally::Tally;
use super::topology::Topology;
use super::violation::{Seen, Violation};
use super::wire;

/// The shortest and the longest history.
const STEPS: (u64, u64) = (100, 3_000);

/// A setup and the events that happen in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// What the world is made of.
    pub setup: Setup,
    /// What happens, in order. At the end nothing fails until every operation is answered.
    pub events: Vec<Event>,
}

/// A history that a seed has drawn, and the first invariant that did not hold.
#[derive(Clone, Debug)]
pub struct History {
    /// What happened up to there.
    pub script: Script,
    /// `None` if everything held.
    pub violation: Option<Violation>,
    /// What was seen.
    pub tally: Tally,
}

fn world(setup: &Setup) -> anyhow::Result<Box<dyn Happens>> {
    Ok(match setup.topology {
        Topology::Hosts | Topology::Table => Box::new(hosts::World::new(setup)?),
        Topology::Objects => Box::new(objects::World::new(setup)?),
        Topology::Wire => Box::new(wire::World::new(setup)?),
        Topology::Outage => Box::new(outage::World::new(setup)?),
    })
}

impl History {
    /// Draws a history of a topology and lets it happen.
    ///
    /// # Errors
    /// Never fails, because a drawn setup is valid.
    pub fn of_seed(topology: Topology, seed: u64) -> anyhow::Result<Self> {
        Self::draw(topology, false, seed)
    }

    /// Draws a history in which callers reserve units, and commit or forget what they reserved.
    ///
    /// # Errors
    /// Never fails, because a drawn setup is valid.
    pub fn of_seed_with_reservations(topology: Topology, seed: u64) -> anyhow::Result<Self> {
        Self::draw(topology, true, seed)
    }

    fn draw(topology: Topology, reserves: bool, seed: u64) -> anyhow::Result<Self> {
        let mut draws = Draws::new(seed);
        let setup = match topology {
            Topology::Hosts => hosts::draw(&mut draws, reserves)?,
            Topology::Table => hosts::draw_table(&mut draws, reserves),
            Topology::Objects => objects::draw(&mut draws, reserves)?,
            Topology::Wire => wire::draw(&mut draws, reserves),
            Topology::Outage => outage::draw(&mut draws), // nobody reserves there
        };
        let mut generator = Generator::draw(&mut draws, &setup)?;
        let steps = STEPS.0 + draws.below(STEPS.1 - STEPS.0);
        let mut world = world(&setup)?;
        let (mut events, mut violation) = (Vec::new(), None);
        for _ in 0..steps {
            let event = generator.event(&mut draws, world.now());
            violation = step(&mut *world, events.len(), event).err();
            events.push(event);
            if violation.is_some() {
                break;
            }
        }
        let violation = violation.or_else(|| step(&mut *world, events.len(), Event::Calm()).err());
        Ok(Self { script: Script { setup, events }, violation, tally: world.tally().clone() })
    }
}

impl Script {
    /// Lets the script happen, and returns the first invariant that does not hold.
    ///
    /// # Errors
    /// Fails if the setup names an unknown policy.
    pub fn run(&self) -> anyhow::Result<Option<Violation>> {
        run(&self.setup, &self.events)
    }

    /// Lets the script happen, and says what was seen too.
    ///
    /// # Errors
    /// Fails if the setup names an unknown policy.
    pub fn history(self) -> anyhow::Result<History> {
        let mut world = world(&self.setup)?;
        let violation = happen(&mut *world, &self.events);
        Ok(History { script: self, violation, tally: world.tally().clone() })
    }

    /// The shortest script that was found to break the same invariant, and its violation. `None` if the script
    /// breaks nothing.
    ///
    /// # Errors
    /// Fails if the setup names an unknown policy.
    pub fn shrink(&self) -> anyhow::Result<Option<(Self, Violation)>> {
        let shortest = shrink_events(&self.events, |events| run(&self.setup, events))?;
        let with = |events| Self { setup: self.setup.clone(), events };
        Ok(shortest.map(|(events, violation)| (with(events), violation)))
    }
}

fn run(setup: &Setup, events: &[Event]) -> anyhow::Result<Option<Violation>> {
    Ok(happen(&mut *world(setup)?, events))
}

fn happen(world: &mut dyn Happens, events: &[Event]) -> Option<Violation> {
    let mut events = events.iter().copied().chain([Event::Calm()]).enumerate();
    events.find_map(|(number, event)| step(world, number, event).err())
}

fn step(world: &mut dyn Happens, step: usize, event: Event) -> Result<(), Violation> {
    let happened = world.happen(step, event);
    happened.map_err(|Seen(invariant, seen)| Violation { invariant, step, seen })
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.setup)?;
        self.events.iter().try_for_each(|event| writeln!(f, "{event}"))
    }
}

impl FromStr for Script {
    type Err = anyhow::Error;

    /// Reads what [`Display`](fmt::Display) writes. A line that begins with `#` is a comment.
    fn from_str(text: &str) -> anyhow::Result<Self> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let (setup, events): (Vec<&str>, Vec<&str>) = lines.partition(|line| line.contains(':'));
        let events = events.into_iter().filter(|line| !line.trim().is_empty());
        let events = events.map(str::parse).collect::<anyhow::Result<_>>()?;
        Ok(Self { setup: setup.join("\n").parse()?, events })
    }
}
