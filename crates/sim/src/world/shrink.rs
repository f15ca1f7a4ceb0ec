//! Makes a script shorter that breaks an invariant.

use tidegate_gate::Depth;

use super::act::Act;
use super::event::Event;
use super::script::Script;
use super::violation::{Invariant, Violation};

/// Removes and simplifies events as long as the same invariant breaks. Returns the shortest script that was
/// found, and its violation. Returns `None` if the script breaks nothing.
///
/// # Errors
/// Fails if the setup names an unknown policy.
pub fn shrink(script: &Script) -> anyhow::Result<Option<(Script, Violation)>> {
    let Some(violation) = script.run()? else { return Ok(None) };
    let mut shrinking = Shrinking { best: script.clone(), violation };
    shrinking.best.events.truncate(shrinking.violation.step + 1);
    loop {
        let before = shrinking.best.clone();
        shrinking.remove()?;
        shrinking.simplify()?;
        if shrinking.best == before {
            return Ok(Some((shrinking.best, shrinking.violation)));
        }
    }
}

struct Shrinking {
    best: Script,
    violation: Violation,
}

impl Shrinking {
    fn invariant(&self) -> Invariant {
        self.violation.invariant
    }

    /// Keeps these events if they break the same invariant.
    fn try_events(&mut self, events: Vec<Event>) -> anyhow::Result<bool> {
        let mut script = Script { setup: self.best.setup.clone(), events };
        match script.run()? {
            Some(violation) if violation.invariant == self.invariant() => {
                script.events.truncate(violation.step + 1);
                (self.best, self.violation) = (script, violation);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Removes runs of events, long ones first.
    fn remove(&mut self) -> anyhow::Result<()> {
        let mut length = self.best.events.len() / 2;
        while length > 0 {
            let mut from = 0;
            while from < self.best.events.len() {
                let mut events = self.best.events.clone();
                events.drain(from..(from + length).min(events.len()));
                if !self.try_events(events)? {
                    from += length;
                }
            }
            length /= 2;
        }
        Ok(())
    }

    /// Replaces events by simpler ones.
    fn simplify(&mut self) -> anyhow::Result<()> {
        for at in 0..self.best.events.len() {
            let Some(event) = self.best.events.get(at) else { break };
            for simpler in simpler(*event) {
                let mut events = self.best.events.clone();
                events[at] = simpler;
                if simpler != *event_at(&self.best, at) && self.try_events(events)? {
                    break;
                }
            }
            if self.best.events.len() <= at {
                break;
            }
        }
        Ok(())
    }
}

fn event_at(script: &Script, at: usize) -> &Event {
    script.events.get(at).unwrap_or(&Event::Calm)
}

/// Simpler events, the simplest first.
fn simpler(event: Event) -> Vec<Event> {
    match event {
        Event::Advance(us) => vec![Event::Advance(1), Event::Advance(us / 1_000_000 * 1_000_000)],
        Event::Ask { node, key, act } => {
            let asks = |node, key, act| Event::Ask { node, key, act };
            let one = match act {
                Act::Take(_) => Act::Take(1),
                Act::Peek(_) => Act::Peek(0),
                Act::Settle(..) => Act::Settle(0, 0),
                Act::Ranked { .. } => Act::Take(1),
                Act::Borrow { .. } => Act::Borrow { holder: 0, wants: 1, left: 0 },
                Act::Report { .. } => Act::Report { admitted: 1, suppressed: 0, age: 0 },
                Act::Reset(_) => Act::Reset(Depth::Whole),
                other => other,
            };
            vec![asks(0, 0, one), asks(node, 0, one), asks(node, key, one), asks(node, 0, act)]
        }
        Event::Execute(_) => vec![Event::Execute(0)],
        Event::Repeat(_) => vec![Event::Repeat(0)],
        Event::Reply(_) => vec![Event::Reply(0)],
        Event::LoseCall(_) => vec![Event::LoseCall(0)],
        Event::LoseReply(_) => vec![Event::LoseReply(0)],
        Event::Deadline(_) => vec![Event::Deadline(0)],
        Event::Leave(_) => vec![Event::Leave(0)],
        Event::Crash(_) => vec![Event::Crash(0)],
        other => vec![other],
    }
}
