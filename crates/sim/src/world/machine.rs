//! The world itself: it makes events happen and checks what follows.

use tidegate_gate::{Micros, Timestamp};

use super::asking::{Asking, Progress};
use super::clock::Clock;
use super::event::Event;
use super::ledger::Ledger;
use super::lent::Lending;
use super::node::{Call, Node, Stage};
use super::places::Places;
use super::replay::States;
use super::setup::Setup;
use super::storage::Storage;
use super::tally::Tally;
use super::violation::{Checked, Invariant, check};

/// The most swaps that are under way.
const MOST_CALLS: usize = 64;

/// Nodes, a storage, the network between them, and callers.
#[derive(Debug)]
pub(super) struct World {
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
    /// The grants that callers know of and have not settled.
    pub(super) grants: Vec<usize>,
    /// The states without expiry.
    pub(super) kept: States,
    pub(super) ledger: Ledger,
    pub(super) lending: Lending,
    pub(super) tally: Tally,
    /// The last step at which each record had bytes of another program.
    pub(super) foreign_until: Vec<Option<usize>>,
    /// When units of each record last came back in another way than with time.
    pub(super) relaxed: Vec<Option<u64>>,
}

impl World {
    pub(super) fn new(setup: &Setup) -> anyhow::Result<Self> {
        let places = Places::new(setup)?;
        let (records, partitions) = (places.records.len(), places.partitions.len());
        let nodes =
            (0..setup.nodes()).map(|number| Node::new(setup, number, partitions, 0)).collect();
        let drift = setup.drifts_ppm.last().copied().unwrap_or(0);
        Ok(Self {
            setup: setup.clone(),
            places,
            now: 0,
            step: 0,
            nodes,
            storage: Storage::new(records, Clock::new(drift, setup.skew)),
            calls: Vec::new(),
            operations: Vec::new(),
            waiting: Vec::new(),
            grants: Vec::new(),
            kept: States::default(),
            ledger: Ledger::default(),
            lending: Lending::default(),
            tally: Tally::default(),
            foreign_until: vec![None; records],
            relaxed: vec![None; records],
        })
    }

    /// Makes an event happen.
    pub(super) fn happen(&mut self, event: Event) -> Checked {
        match event {
            Event::Advance(span) => self.advance(span)?,
            Event::Ask { node, key, act } => self.ask(node, key, act)?,
            Event::Poll(node) if self.runs(node) && self.calls.len() < MOST_CALLS => {
                self.poll(node)?;
            }
            Event::Poll(_) => {} // a driver has a bound too
            Event::Execute(index) => self.execute_nth(index)?,
            Event::Repeat(index) => self.repeat_nth(index)?,
            Event::Reply(index) => self.reply_nth(index)?,
            Event::LoseCall(index) => self.lose_nth(Stage::Sent, index),
            Event::LoseReply(index) => self.lose_nth(Stage::Executed, index),
            Event::Deadline(index) => self.deadline_nth(index)?,
            Event::GiveUp(node) if self.runs(node) => self.give_up(node)?,
            Event::GiveUp(_) => {}
            Event::Refuse => self.storage.refuses = true,
            Event::Accept => self.storage.refuses = false,
            Event::Reload(node) => self.reload(node),
            Event::Flush => self.flush(),
            Event::Corrupt(record) => self.corrupt(record),
            Event::Repair => self.repair(),
            Event::Crash(node) => self.crash(node),
            Event::Stop(node, span) => self.stop(node, span)?,
            Event::Leave(index) => self.leave(index),
            Event::Set(clock, by) => match self.nodes.get_mut(clock) {
                Some(node) => node.clock.set(by),
                None => self.storage.clock.set(by),
            },
            Event::Calm => self.calm()?,
        }
        self.waiting.retain(|number| self.operations[*number].state == Progress::Waiting);
        self.check_counts()
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
        self.nodes[node].monotonic(self.now)
    }

    /// Whether a node is not stopped.
    pub(super) fn runs(&self, node: usize) -> bool {
        self.now >= self.nodes[node % self.nodes.len()].stopped_until
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
        self.now = self.now.saturating_add(span);
        self.read_inboxes();
        let oldest = self.now.saturating_sub(self.setup.linger);
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

    /// Gives a node the other revision of its policies. Its local part starts anew, as that of a host or a Worker does.
    /// Its questions to the authority go on.
    fn reload(&mut self, node: usize) {
        let node = node % self.nodes.len();
        self.nodes[node].revision ^= 1;
        self.nodes[node].restart_local(&self.setup);
    }

    /// Stops a node for a while. Before that, the node sends its decided operations.
    fn stop(&mut self, node: usize, span: u64) -> Checked {
        let node = node % self.nodes.len();
        while self.nodes[node].has_decided() && self.poll(node)? {}
        self.tally.add("a node was stopped");
        let until = self.now.saturating_add(span);
        self.nodes[node].stopped_until = self.nodes[node].stopped_until.max(until);
        Ok(())
    }

    fn corrupt(&mut self, record: usize) {
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
