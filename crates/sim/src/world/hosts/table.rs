//! One table in memory, which all nodes ask over the network.

use tidegate_gate::{Micros, Timestamp};

use super::asking::{Asking, Progress};
use super::machine::World;
use super::node::Letter;
use crate::world::ended::{check_answers, check_states};
use crate::world::violation::{Checked, Invariant, check};

/// After this span a node without a timer reports whatever it was offered before, in µs.
const LONG: u64 = 26_000_000;

impl World {
    pub(super) fn deliver_nth(&mut self, index: usize) -> Checked {
        match self.letters.take(index, |_| true) {
            None => Ok(()),
            Some(Letter::Question(number)) => self.decide_in_memory(number),
            Some(Letter::Reply(number, verdict)) => {
                let asking = &mut self.operations[number];
                if asking.state == Progress::Waiting {
                    asking.state = Progress::Answered;
                    self.grants.note(asking.key, &asking.operation, &verdict);
                } else {
                    self.tally.add("a reply came again");
                }
                self.arrive(number, verdict);
                Ok(())
            }
        }
    }

    /// The network repeats a reply. A question that comes twice is two questions.
    pub(super) fn repeat_letter(&mut self, index: usize) {
        if let Some(Letter::Reply(..)) = self.letters.get_mut(index) {
            self.letters.repeat(index);
        }
    }

    fn decide_in_memory(&mut self, number: usize) -> Checked {
        let now = Timestamp(self.storage_now());
        let Asking { key, operation, .. } = self.operations[number];
        let of = &self.places.keys[key];
        let Ok(verdict) = self.table.ask(&of.resolved, now, &operation) else {
            let alone = self.kept.clone().operate(of, now, &operation);
            return check(alone.is_err(), Invariant::Reason, || {
                format!("number {number}, {operation:?} failed; by plain words: {alone:?}")
            });
        };
        self.make_true((number, now), &verdict, false)?;
        self.note_relaxed(self.places.keys[key].partition, &[number]);
        self.offered.check_within(&verdict)?;
        self.letters.post(self.now, Letter::Reply(number, verdict));
        Ok(())
    }

    /// A node sends the reports that are due.
    fn transmit(&mut self, node: usize) -> Checked {
        let (time, at) = (self.time_of(node), self.monotonic(node));
        while let Some(due) = self.nodes[node].cache.poll_transmit(time, at) {
            self.ask_for_node(node, &due)?;
        }
        Ok(())
    }

    /// Time passes, in which nodes with a timer report.
    pub(super) fn advance_reporting(&mut self, until: u64) -> Checked {
        while let Some((due, node)) = self.next_report().filter(|(due, _)| *due <= until) {
            self.now = due;
            self.transmit(node)?;
        }
        self.now = until;
        Ok(())
    }

    /// When the next report is due, and its node.
    fn next_report(&self) -> Option<(u64, usize)> {
        let due = |node: usize| {
            let Micros(due) = self.nodes[node].cache.poll_timeout()?;
            Some(((self.nodes[node].front.ticks.from + due).max(self.now), node))
        };
        (0..self.nodes.len()).filter_map(due).min().filter(|_| self.setup.has_timers)
    }

    /// All messages arrive, and whatever nodes were offered is reported: at once by those with a timer, and after a long
    /// time by the others.
    pub(super) fn calm_table(&mut self) -> Checked {
        loop {
            while !self.letters.is_empty() {
                self.deliver_nth(0)?;
            }
            match self.next_report() {
                Some((due, _)) => self.advance_reporting(due)?,
                None => break,
            }
        }
        if !self.setup.has_timers {
            self.now += LONG;
            for node in 0..self.nodes.len() {
                self.transmit(node)?;
            }
        }
        let runs = |(node, run): (usize, u64)| self.nodes[node].front.run.1 == run;
        let now = (!self.setup.has_timers).then(|| self.storage_now());
        let seen = self.offered.check_reported(runs, now)?;
        seen.into_iter().for_each(|situation| self.tally.add(situation));
        let now = Timestamp(self.storage_now());
        let keys = self.places.keys.iter().take(self.places.of_revision);
        for key in keys.filter(|key| key.kinds.reserves && key.resolved.limits().is_some()) {
            check_states(key, &self.kept)?;
            check_answers(key, now, |later, look| self.table.ask(&key.resolved, later, look))?;
            self.tally.add("nothing was held in the end");
        }
        Ok(())
    }
}
