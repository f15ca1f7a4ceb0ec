//! The world itself: it makes events happen and checks what follows.

use tidegate_gate::{KeyHasher, Micros, Table, Timestamp};

use super::asking::{Asking, Progress};
use super::node::{Call, Letter, Node, Stage};
use super::offered::Loads;
use super::storage::Storage;
use crate::world::event::Event;
use crate::world::grants::Grants;
use crate::world::happens::Happens;
use crate::world::ledger::Ledger;
use crate::world::network::Network;
use crate::world::places::Places;
use crate::world::replay::States;
use crate::world::setup::Setup;
use crate::world::tally::Tally;
use crate::world::topology::Topology;
use crate::world::violation::{Checked, Invariant, check};

/// The most swaps that are under way.
const MOST_CALLS: usize = 64;

/// Nodes, a storage, the network between them, and callers.
#[derive(Debug)]
pub(in crate::world) struct World {
    pub(super) setup: Setup,
    pub(super) places: Places,
    /// The µs since the start.
    pub(super) now: u64,
    pub(super) step: usize,
    pub(super) nodes: Vec<Node>,
    pub(super) storage: Storage,
    pub(super) calls: Vec<Call>,
    pub(super) operations: Vec<Asking>,
    /// The operations that wait, in the order in which they came.
    pub(super) waiting: Vec<usize>,
    pub(super) grants: Grants,
    /// The states without expiry.
    pub(super) kept: States,
    pub(super) ledger: Ledger,
    pub(super) tally: Tally,
    /// The last step at which each record had bytes of another program.
    pub(super) foreign_until: Vec<Option<usize>>,
    /// When units of each record last came back in another way than with time.
    pub(super) relaxed: Vec<Option<u64>>,
    /// When units of each record were last taken or came back.
    pub(super) changed: Vec<Option<u64>>,
    /// The table in memory, and the messages to it and from it.
    pub(super) table: Table,
    pub(super) letters: Network<Letter>,
    pub(super) offered: Loads,
}

impl Happens for World {
    fn happen(&mut self, step: usize, event: Event) -> Checked {
        self.step = step;
        match event {
            Event::Advance(span) => self.advance(span)?,
            Event::Ask { node, key, act } => self.ask(node, key, act)?,
            Event::Poll(node) if self.runs(node) && self.calls.len() < MOST_CALLS => {
                self.poll(node)?; // a driver has a bound too
            }
            Event::Deliver(index) => self.deliver_nth(index)?,
            Event::Lose(index) => drop(self.letters.take(index, |_| true)),
            Event::Repeat(index) if self.is_table() => self.repeat_letter(index),
            Event::Execute(index) => self.execute_nth(index)?,
            Event::Repeat(index) => self.repeat_nth(index)?,
            Event::Reply(index) => self.reply_nth(index)?,
            Event::LoseCall(index) => self.lose_nth(Stage::Sent, index),
            Event::LoseReply(index) => self.lose_nth(Stage::Executed, index),
            Event::Deadline(index) => self.deadline_nth(index)?,
            Event::GiveUp(node) if self.runs(node) => self.give_up(node)?,
            Event::Refuse(_) => self.storage.refuses = true,
            Event::Accept(_) => self.storage.refuses = false,
            Event::Reload(node) => self.restart(node, 1),
            Event::Restart(node) => self.restart(node, 0),
            Event::Flush() => self.flush(),
            Event::Overwrite(record) => self.overwrite(record),
            Event::Repair() => self.repair(),
            Event::Crash(node, _) => self.crash(node),
            Event::Stop(node, span) => self.stop(node, span)?,
            Event::Leave(index) => self.leave(index),
            Event::Set(clock, by) => match self.nodes.get_mut(clock) {
                Some(node) => node.clock.set(by),
                None => self.storage.clock.set(by),
            },
            Event::Calm() if self.is_table() => self.calm_table()?,
            Event::Calm() => self.calm()?,
            _ => {}
        }
        self.waiting.retain(|number| self.operations[*number].state == Progress::Waiting);
        self.check_counts()
    }

    fn now(&self) -> u64 {
        self.now
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }
}

impl World {
    pub(in crate::world) fn new(setup: &Setup) -> anyhow::Result<Self> {
        let places = Places::new(setup)?;
        let (records, partitions) = (places.records.len(), places.partitions.len());
        let nodes =
            (0..setup.nodes).map(|number| Node::new(setup, number, partitions, 0)).collect();
        Ok(Self {
            setup: setup.clone(),
            places,
            now: 0,
            step: 0,
            nodes,
            storage: Storage::new(records, setup.clock(setup.nodes)),
            calls: Vec::new(),
            operations: Vec::new(),
            waiting: Vec::new(),
            grants: Grants::default(),
            kept: States::default(),
            ledger: Ledger::default(),
            tally: Tally::default(),
            foreign_until: vec![None; records],
            relaxed: vec![None; records],
            changed: vec![None; records],
            table: Table::new(1 << 20, KeyHasher::new(0)),
            letters: Network::default(),
            offered: Loads::new(setup.is_within),
        })
    }

    pub(super) fn is_table(&self) -> bool {
        self.setup.topology == Topology::Table
    }

    /// What a node's clock shows, if the node tells its authority.
    pub(super) fn told_time(&self, node: usize) -> Option<Timestamp> {
        self.setup.tells_time.then(|| self.time_of(node))
    }

    pub(super) fn time_of(&self, node: usize) -> Timestamp {
        self.nodes[node].clock.at(self.setup.start, self.now)
    }

    /// The time by a clock that never goes back.
    pub(super) fn monotonic(&self, node: usize) -> Micros {
        self.nodes[node].front.at(self.now)
    }

    /// Whether a node is not stopped.
    pub(super) fn runs(&self, node: usize) -> bool {
        self.nodes[node % self.nodes.len()].front.runs(self.now)
    }

    pub(super) fn storage_now(&self) -> u64 {
        self.storage.clock.at(self.setup.start, self.now).0
    }

    /// Time passes. What takes longer than the network may take to execute a swap is lost.
    pub(super) fn advance(&mut self, span: u64) -> Checked {
        for node in 0..self.nodes.len() {
            // a driver sends at once the operations that are decided
            while self.setup.is_bounded && self.nodes[node].has_decided() && self.poll(node)? {}
        }
        self.advance_reporting(self.now.saturating_add(span))?;
        self.read_inboxes();
        let oldest = self.now.saturating_sub(self.setup.linger);
        self.letters.lose_older(oldest);
        for call in self.calls.iter_mut().filter(|call| call.sent < oldest) {
            for part in call.parts.iter_mut().filter(|part| part.stage == Stage::Sent) {
                part.stage = Stage::Lost;
            }
        }
        self.calls.retain(|call| call.swap.is_some() || call.sent >= oldest);
        Ok(())
    }

    fn flush(&mut self) {
        self.tally.add("the storage lost everything");
        self.storage.flush();
        self.kept.clear();
        self.ledger.clear();
        self.relaxed.fill(Some(self.now));
    }

    /// A node's cache starts anew, perhaps with the other revision of its policies.
    /// Its questions to the authority go on.
    fn restart(&mut self, node: usize, edit: usize) {
        let node = node % self.nodes.len();
        self.nodes[node].front.revision ^= edit;
        self.nodes[node].restart_cache(&self.setup);
    }

    /// Stops a node for a while. Before that, the node sends its decided operations.
    fn stop(&mut self, node: usize, span: u64) -> Checked {
        let node = node % self.nodes.len();
        while self.nodes[node].has_decided() && self.poll(node)? {}
        self.tally.add("a node was stopped");
        self.nodes[node].front.stop(self.now.saturating_add(span));
        Ok(())
    }

    fn overwrite(&mut self, record: usize) {
        let Some(record) = record.checked_rem(self.places.records.len()) else { return };
        self.storage.put_for_ever(record, b"foreign");
        self.foreign_until[record] = Some(usize::MAX);
        self.lose(record);
    }

    pub(super) fn repair(&mut self) {
        for record in 0..self.foreign_until.len() {
            if self.foreign_until[record] == Some(usize::MAX) {
                self.foreign_until[record] = Some(self.step);
                self.storage.remove(record);
                self.lose(record);
            }
        }
    }

    fn lose(&mut self, record: usize) {
        self.kept.forget(record);
        self.ledger.forget(record);
        self.relaxed[record] = Some(self.now);
    }

    fn crash(&mut self, node: usize) {
        let node = node % self.nodes.len();
        if self.nodes[node].waiting > 0 {
            self.tally.add("a node crashed with operations waiting");
        }
        self.nodes[node].crash(&self.setup, self.now);
        for call in self.calls.iter_mut().filter(|call| call.node == node) {
            call.swap = None;
        }
        for number in &self.waiting {
            let asking = &mut self.operations[*number];
            if asking.authority == node && asking.state == Progress::Waiting {
                asking.state = Progress::Lost;
            }
        }
    }

    fn leave(&mut self, index: usize) {
        if let Some(index) = index.checked_rem(self.waiting.len()) {
            self.operations[self.waiting[index]].is_gone = true;
        }
    }

    fn check_counts(&self) -> Checked {
        for (number, node) in self.nodes.iter().enumerate() {
            let (waiting, overloaded) = (node.authority.waiting(), node.authority.overloaded());
            let counts = waiting == node.waiting && overloaded == node.overloaded;
            check(counts, Invariant::Counted, || {
                let (waits, refused) = (node.waiting, node.overloaded);
                format!(
                    "node {number} counts {waiting} operations that wait and {overloaded} too many; \
                     there are {waits} and {refused}"
                )
            })?;
            let (remembered, most) = (node.authority.remembered(), self.setup.remembered);
            check(remembered <= most, Invariant::Counted, || {
                format!("node {number} remembers {remembered} bytes of at most {most}")
            })?;
        }
        Ok(())
    }
}
