//! A setup and the events that happen in a world of objects.

use std::fmt;
use std::str::FromStr;

use super::super::draw::Draws;
use super::super::shrink::shrink_events;
use super::super::tally::Tally;
use super::super::violation::{Seen, Violation};
use super::event::Event;
use super::generate::Weights;
use super::machine::World;
use super::setup::Setup;

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
    /// What happened.
    pub script: Script,
    /// `None` if everything held.
    pub violation: Option<Violation>,
    /// What was seen.
    pub tally: Tally,
}

impl History {
    /// Draws a history and lets it happen.
    ///
    /// # Errors
    /// Never fails, because a drawn setup is valid.
    pub fn of_seed(seed: u64) -> anyhow::Result<Self> {
        let mut draws = Draws::new(seed);
        let setup = Setup::draw(&mut draws)?;
        let mut weights = Weights::draw(&mut draws);
        let steps = STEPS.0 + draws.below(STEPS.1 - STEPS.0);
        let mut world = World::new(&setup)?;
        let (mut events, mut violation) = (Vec::new(), None);
        for _ in 0..steps {
            let event = weights.event(&mut draws, &world);
            events.push(event);
            violation = world.step(event).err();
            if violation.is_some() {
                break;
            }
        }
        let violation = violation.or_else(|| world.step(Event::Calm()).err());
        Ok(Self { script: Script { setup, events }, violation, tally: world.tally })
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

    /// Whether this is a script of a world of objects, and not of hosts.
    #[must_use]
    pub fn is_of_objects(text: &str) -> bool {
        text.lines().any(|line| line.starts_with("objects:"))
    }

    /// The shortest script that was found to break the same invariant, and its violation. `None` if the script
    /// breaks nothing.
    ///
    /// # Errors
    /// Fails if the setup names an unknown policy.
    pub fn shrink(&self) -> anyhow::Result<Option<(Self, Violation)>> {
        let shortest = shrink_events(&self.events, |events| run(&self.setup, events), simpler)?;
        let with = |events| Self { setup: self.setup.clone(), events };
        Ok(shortest.map(|(events, violation)| (with(events), violation)))
    }
}

fn run(setup: &Setup, events: &[Event]) -> anyhow::Result<Option<Violation>> {
    let mut world = World::new(setup)?;
    let mut events = events.iter().copied().chain([Event::Calm()]);
    Ok(events.find_map(|event| world.step(event).err()))
}

/// Simpler events, the simplest first.
fn simpler(event: &Event) -> Vec<Event> {
    use super::super::act::Act;
    match *event {
        Event::Advance(us) => vec![Event::Advance(1), Event::Advance(us / 1_000_000 * 1_000_000)],
        Event::Ask { node, key, act } => {
            let one = match act {
                Act::Take(_) | Act::Ranked { .. } => Act::Take(1),
                other => other,
            };
            vec![
                Event::Ask { node: 0, key: 0, act: one },
                Event::Ask { node: 0, key, act: one },
                Event::Ask { node, key, act: one },
            ]
        }
        Event::Deliver(_) => vec![Event::Deliver(0)],
        Event::Execute(_) => vec![Event::Execute(0)],
        Event::Finish(_) => vec![Event::Finish(0)],
        Event::Crash(object, _) => vec![Event::Crash(object, 0)],
        _ => Vec::new(),
    }
}

impl World {
    fn step(&mut self, event: Event) -> Result<(), Violation> {
        let step = self.step;
        self.step += 1;
        self.happen(event).map_err(|Seen(invariant, seen)| Violation { invariant, step, seen })
    }
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
