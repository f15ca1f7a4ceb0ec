//! Makes a script shorter that breaks an invariant.

use anyhow::Result;
use tidegate_gate::Depth;

use super::act::Act;
use super::event::Event;
use super::violation::Violation;

/// Removes and simplifies events as long as the same invariant breaks. Returns the shortest list that was found, and its
/// violation. Returns `None` if the events break nothing. `run` lets events happen.
pub(super) fn shrink_events(
    events: &[Event],
    run: impl Fn(&[Event]) -> Result<Option<Violation>>,
) -> Result<Option<(Vec<Event>, Violation)>> {
    let Some(violation) = run(events)? else { return Ok(None) };
    let mut shrinking = Shrinking { best: events.to_vec(), violation, run };
    shrinking.best.truncate(shrinking.violation.step + 1);
    loop {
        let before = shrinking.best.clone();
        shrinking.remove()?;
        shrinking.simplify()?;
        if shrinking.best == before {
            return Ok(Some((shrinking.best, shrinking.violation)));
        }
    }
}

struct Shrinking<R> {
    best: Vec<Event>,
    violation: Violation,
    run: R,
}

impl<R: Fn(&[Event]) -> Result<Option<Violation>>> Shrinking<R> {
    /// Keeps these events if they break the same invariant.
    fn try_events(&mut self, mut events: Vec<Event>) -> Result<bool> {
        match (self.run)(&events)? {
            Some(violation) if violation.invariant == self.violation.invariant => {
                events.truncate(violation.step + 1);
                (self.best, self.violation) = (events, violation);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Removes runs of events, long ones first.
    fn remove(&mut self) -> Result<()> {
        let mut length = self.best.len() / 2;
        while length > 0 {
            let mut from = 0;
            while from < self.best.len() {
                let mut events = self.best.clone();
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
    fn simplify(&mut self) -> Result<()> {
        let mut at = 0;
        while let Some(event) = self.best.get(at).copied() {
            for simpler in simpler(event) {
                let mut events = self.best.clone();
                let Some(place) = events.get_mut(at).filter(|place| **place != simpler) else {
                    continue;
                };
                *place = simpler;
                if self.try_events(events)? {
                    break;
                }
            }
            at += 1;
        }
        Ok(())
    }
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
                Act::Ranked { .. } => Act::Take(1),
                Act::Reserve { id, .. } => Act::Reserve { id, units: 1, span: 1_000_000 },
                Act::Finish(index, _) => Act::Finish(index, 0),
                Act::Commit(id, _) => Act::Commit(id, 0),
                Act::Borrow { .. } => Act::Borrow { holder: 0, wants: 1, left: 0 },
                Act::Report { .. } => Act::Report { admitted: 1, suppressed: 0, age: 0 },
                Act::Reset(_) => Act::Reset(Depth::Whole),
                other => other,
            };
            vec![asks(0, 0, one), asks(node, 0, one), asks(node, key, one), asks(node, 0, act)]
        }
        Event::Deliver(_) => vec![Event::Deliver(0)],
        Event::Execute(_) => vec![Event::Execute(0)],
        Event::Repeat(_) => vec![Event::Repeat(0)],
        Event::Reply(_) => vec![Event::Reply(0)],
        Event::LoseCall(_) => vec![Event::LoseCall(0)],
        Event::LoseReply(_) => vec![Event::LoseReply(0)],
        Event::Deadline(_) => vec![Event::Deadline(0)],
        Event::Leave(_) => vec![Event::Leave(0)],
        Event::Crash(of, _) => vec![Event::Crash(0, 0), Event::Crash(of, 0)],
        other => vec![other],
    }
}
