//! A time without faults, after which every operation is answered.

use super::machine::World;
use super::object::Object;
use crate::world::ended::check_states;
use crate::world::message::To;
use crate::world::replay::States;
use crate::world::violation::{Checked, Invariant, check};

/// The most rounds that a time without faults takes.
const MOST_ROUNDS: usize = 200;

impl World {
    /// Nothing fails until every operation is answered.
    pub(super) fn calm(&mut self) -> Checked {
        self.nodes.iter_mut().for_each(|node| node.front.stopped_until = 0);
        self.objects.iter_mut().for_each(|object| object.refuses = false);
        for _ in 0..MOST_ROUNDS {
            for node in 0..self.nodes.len() {
                self.send(node)?;
            }
            while !self.messages.is_empty() {
                self.deliver_nth(0)?;
            }
            for object in 0..self.objects.len() {
                self.poll(object)?;
                // the object decides with what it read, and then writes
                while !self.swaps.is_empty() {
                    self.execute_nth(0)?;
                    self.finish_nth(0, false)?;
                    self.poll(object)?;
                }
            }
            if !self.has_work() {
                break;
            }
            self.advance(1_000)?;
        }
        // questions that were lost earlier reach their deadline
        self.advance(2 * self.setup.deadline + 1_000)?;
        self.messages.keep(|message| message.to == To::Node);
        let waiting = self.ops.iter().filter(|op| op.waits).count();
        let at_objects: usize = self.objects.iter().map(|object| object.authority.waiting()).sum();
        let has_work = self.objects.iter().any(Object::has_work);
        check((waiting, at_objects, has_work) == (0, 0, false), Invariant::Live, || {
            format!(
                "nothing has failed for long; {waiting} operations wait at nodes, {at_objects} at objects"
            )
        })?;
        for key in self.places.keys.iter().filter(|key| key.kinds.reserves) {
            let rows = key.records.iter().map(|record| (*record, self.row(*record)));
            check_states(key, &States::read(rows))?;
            check_states(key, &self.own)?;
            self.tally.add("nothing was held in the end");
        }
        Ok(())
    }

    fn has_work(&self) -> bool {
        !self.messages.is_empty()
            || self.objects.iter().any(Object::has_work)
            || self
                .nodes
                .iter()
                .any(|node| !node.queues.values().all(std::collections::VecDeque::is_empty))
    }
}
