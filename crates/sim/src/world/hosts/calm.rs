//! A time without faults, after which nothing may wait.

use super::asking::Progress;
use super::machine::World;
use super::node::Stage;
use crate::world::ended::check_states;
use crate::world::replay::States;
use crate::world::violation::{Checked, Invariant, check};

/// How long a reply takes while nothing fails.
const ROUND_TRIP: u64 = 1_000;

/// How many round trips each node may need until all its operations are answered: as many as all nodes need
/// that come first once each, for each swap that a full partition is split into.
const MOST_ROUNDS: usize = 64;

impl World {
    /// Nothing fails until every operation is answered.
    pub(super) fn calm(&mut self) -> Checked {
        self.storage.refuses = false;
        self.repair();
        self.nodes.iter_mut().for_each(|node| node.front.stopped_until = self.now);
        self.read_inboxes();
        for _ in 0..MOST_ROUNDS * self.nodes.len() {
            for node in 0..self.nodes.len() {
                while self.poll(node)? {}
            }
            for (call, place) in self.parts_at(Stage::Sent) {
                self.execute(call, place)?;
            }
            self.advance(ROUND_TRIP)?;
            while let Some((call, place)) = self.parts_at(Stage::Executed).first().copied() {
                self.reply(call, place)?;
            }
            for call in 0..self.calls.len() {
                self.handle(call)?; // the replies that are left were lost
            }
            self.calls.clear();
            if !self.has_work() {
                break;
            }
        }
        let waiting = || {
            let operations = self.operations.iter().enumerate();
            operations.filter(|(_, asking)| asking.state == Progress::Waiting).collect::<Vec<_>>()
        };
        check(!self.has_work(), Invariant::Live, || {
            format!("nothing has failed for long, and these wait: {:?}", waiting())
        })?;
        self.check_ended()
    }

    /// In the end nothing is held.
    fn check_ended(&mut self) -> Checked {
        let now = self.storage_now();
        for key in self.places.keys.iter().filter(|key| key.kinds.reserves) {
            let bytes = key.records.iter().map(|record| (*record, self.storage.get(*record, now)));
            check_states(key, &States::read(bytes))?;
            self.tally.add("nothing was held in the end");
        }
        Ok(())
    }

    fn has_work(&self) -> bool {
        let waits = |number: &usize| self.operations[*number].state == Progress::Waiting;
        self.waiting.iter().any(waits) || self.nodes.iter().any(|node| !node.ready.is_empty())
    }
}
