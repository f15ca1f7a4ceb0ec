//! The world itself: it makes events happen and checks what follows.

use std::collections::BTreeMap;

use tidegate_gate::{Budget, Id, Micros, Operation, Settlement, Timestamp, Verdict};
use tidegate_tier::cache::Next;
use tidegate_tier::wire::{Failure, Outgoing};

use super::super::act::Act;
use super::super::asking;
use super::super::places::{Key, Places};
use super::super::replay::{States, Undone};
use super::super::tally::Tally;
use super::super::violation::{Checked, Invariant, check};
use super::deliver::Message;
use super::event::Event;
use super::node::{Node, Run};
use super::object::{Flight, Object};
use super::setup::Setup;
use super::wiretap::{Answer, Name};

/// The most grants that callers remember, to settle them.
const MOST_GRANTS: usize = 64;

/// The most refusals of a node that are remembered.
const MOST_REFUSALS: usize = 256;

/// The situations. Every run of some hundred histories should see each.
pub const SITUATIONS: [&str; 29] = [
    "a corrupt question arrived",
    "a corrupt reply arrived",
    "a crash cost units",
    "a grant was answered before a write that failed",
    "a key came into debt",
    "a node repeated a refusal",
    "a node spent units",
    "a node started again",
    "a node was stopped",
    "a question came again",
    "a question found no room",
    "a question was overtaken",
    "a reply arrived",
    "a reply came too late or again",
    "a reply was forgotten",
    "a reply was sent again",
    "a state had expired",
    "a swap decided several operations",
    "a swap failed",
    "an object answered without a write",
    "an object crashed",
    "an object crashed after its write",
    "an object crashed before its write",
    "an object got another revision of its policies",
    "an object had forgotten a partition",
    "an object read what was stored",
    "an operation waited too long",
    "an operation was one too many",
    "units that were stored ahead were granted",
];

/// Nodes, objects with storage, and the network between them.
#[derive(Debug)]
pub(super) struct World {
    pub(super) setup: Setup,
    pub(super) places: Places,
    /// The µs since the start.
    pub(super) now: u64,
    /// The longest time for which no node looked at its deadlines.
    pub(super) pause: u64,
    pub(super) step: usize,
    pub(super) nodes: Vec<Node>,
    pub(super) objects: Vec<Object>,
    pub(super) storage: BTreeMap<usize, Row>,
    pub(super) flights: Vec<Flight>,
    pub(super) messages: Vec<Message>,
    pub(super) ops: Vec<Asking>,
    pub(super) questions: BTreeMap<Name, Vec<usize>>,
    /// The states that the objects must have in memory, or had when they last knew them.
    pub(super) own: States,
    /// The states of keys that never crash.
    pub(super) shadow: States,
    pub(super) lent: Vec<Lent>,
    /// The grants that callers know of and have not settled: the key, the time and the units.
    grants: Vec<(usize, Timestamp, u64)>,
    pub(super) tally: Tally,
}

/// A stored state.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) bytes: Vec<u8>,
    /// By the clock of the object.
    pub(super) expires_at: u64,
    pub(super) object: usize,
}

/// An operation that a caller asked for, or the node itself.
#[derive(Debug)]
pub(super) struct Asking {
    pub(super) run: Run,
    pub(super) key: usize,
    pub(super) operation: Operation,
    /// When it was asked, by the node's clock that never goes back.
    pub(super) sent: Micros,
    /// It has no answer at its node.
    pub(super) waits: bool,
    pub(super) was_stopped: bool,
    /// When it came to the object, by its clocks.
    pub(super) arrived: Timestamp,
    pub(super) at: Micros,
    /// The answers that plain words give, in the object's present life.
    pub(super) accepts: Vec<Result<Verdict, Undone>>,
    pub(super) is_late: bool,
    pub(super) is_overloaded: bool,
    /// A write failed on which the answer depends.
    pub(super) may_fail: bool,
    /// The answer of the object's present life.
    pub(super) answer: Option<Answer>,
    /// The answers of all lives.
    pub(super) emitted: Vec<Answer>,
}

/// Units that a holder has taken in advance.
#[derive(Debug)]
pub(super) struct Lent {
    pub(super) op: usize,
    pub(super) granted_at: Timestamp,
    pub(super) granted: u64,
    pub(super) spent: u64,
}

impl World {
    pub(super) fn new(setup: &Setup) -> anyhow::Result<Self> {
        let objects: anyhow::Result<Vec<_>> = (0..usize::try_from(setup.objects)?.max(1))
            .map(|number| Object::new(setup, number))
            .collect();
        let nodes = 0..usize::try_from(setup.nodes)?.max(1);
        Ok(Self {
            places: setup.places()?,
            now: 0,
            pause: 0,
            step: 0,
            nodes: nodes.map(|node| Node::new(setup, (node, 0), 0)).collect(),
            objects: objects?,
            storage: BTreeMap::new(),
            flights: Vec::new(),
            messages: Vec::new(),
            ops: Vec::new(),
            questions: BTreeMap::new(),
            own: States::default(),
            shadow: States::default(),
            lent: Vec::new(),
            grants: Vec::new(),
            tally: Tally::default(),
            setup: setup.clone(),
        })
    }

    /// Makes an event happen.
    pub(super) fn happen(&mut self, event: Event) -> Checked {
        let (nodes, objects, messages) =
            (self.nodes.len(), self.objects.len(), self.messages.len());
        match event {
            Event::Advance(span) => self.advance(span)?,
            Event::Ask { node, key, act } => self.ask(node % nodes, key, act)?,
            Event::Send(node) if self.runs(node % nodes) => self.send(node % nodes)?,
            Event::Send(_) => {}
            Event::Deliver(index) => self.deliver_nth(index)?,
            Event::Repeat(index) => {
                if let Some(index) = index.checked_rem(messages) {
                    self.post(self.messages[index].clone());
                }
            }
            Event::Lose(index) => {
                if let Some(index) = index.checked_rem(messages) {
                    self.messages.remove(index);
                }
            }
            Event::Break(index) => self.break_nth(index)?,
            Event::Corrupt(index, place) => {
                if let Some(index) = index.checked_rem(messages)
                    && !self.messages[index].is_corrupt
                {
                    let message = &mut self.messages[index];
                    let place = place % message.bytes.len();
                    message.bytes[place] ^= 1 << (place % 8);
                    message.is_corrupt = true;
                }
            }
            Event::Poll(object) => self.poll(object % objects)?,
            Event::Execute(index) => self.execute_nth(index)?,
            Event::Finish(index) => self.finish_nth(index, false)?,
            Event::Fail(index) => self.finish_nth(index, true)?,
            Event::Refuse(object) => self.objects[object % objects].refuses = true,
            Event::Accept(object) => self.objects[object % objects].refuses = false,
            Event::Crash(object, written) => self.crash(object % objects, written)?,
            Event::Edit(object) => self.edit(object % objects)?,
            Event::Expire(record) => self.expire(record),
            Event::Restart(node) => self.restart(node % nodes, 0),
            Event::Reload(node) => self.restart(node % nodes, 1),
            Event::Stop(node, span) => {
                self.tally.add("a node was stopped");
                let (node, until) = (node % nodes, self.now.saturating_add(span));
                self.nodes[node].stopped_until = self.nodes[node].stopped_until.max(until);
                let run = self.nodes[node].run;
                let own = self.ops.iter_mut().filter(|op| op.waits && op.run == run);
                own.for_each(|op| op.was_stopped = true);
            }
            Event::Set(object, by) => self.objects[object % objects].clock.set(by),
            Event::Calm() => self.calm()?,
        }
        self.check_bounds()
    }

    pub(super) fn runs(&self, node: usize) -> bool {
        self.now >= self.nodes[node].stopped_until
    }

    /// The object that owns a key's group.
    pub(super) fn object_of(&self, key: &Key) -> usize {
        let resolved = &key.resolved;
        let group = resolved.group();
        let bytes = resolved.policy().name().bytes().chain(group.bytes());
        bytes.map(usize::from).sum::<usize>() % self.objects.len()
    }

    /// Time passes. Nodes look at their deadlines, and messages that are under way for too long are lost.
    pub(super) fn advance(&mut self, span: u64) -> Checked {
        let mut left = span;
        // a node wakes at its deadlines
        while left > 0 {
            let part = left.min((self.setup.deadline / 2).max(span / 8));
            (self.now, left, self.pause) = (self.now + part, left - part, self.pause.max(part));
            for node in 0..self.nodes.len() {
                if self.runs(node) {
                    let at = self.nodes[node].at(self.now);
                    self.nodes[node].flights.handle_timeout(at);
                    self.hear_answers(node)?;
                    self.send(node)?;
                }
            }
        }
        let oldest = self.now.saturating_sub(self.setup.linger);
        self.messages.retain(|message| message.sent >= oldest);
        Ok(())
    }

    /// A caller asks a node.
    fn ask(&mut self, node: usize, key: usize, act: Act) -> Checked {
        if !self.runs(node) {
            return Ok(());
        }
        let revision = self.nodes[node].revision * self.places.of_revision;
        let mut key = key % self.places.of_revision + revision;
        let now = Timestamp(self.setup.start + self.now);
        let operation = match act {
            Act::Settle(index, actual) => {
                let Some(index) = index.checked_rem(self.grants.len()) else { return Ok(()) };
                let (of, granted_at, reserved) = self.grants.remove(index);
                key = of % self.places.of_revision + revision;
                Operation::Settle(Settlement { granted_at, reserved, actual })
            }
            Act::Borrow { holder, wants, .. } => {
                let holder = Id([u64::MAX, holder]);
                Operation::Budget(Budget { holder, wants, unspent: None })
            }
            act => asking::operation(act, &self.places.keys[key].resolved, now),
        };
        let at = self.nodes[node].at(self.now);
        let resolved = self.places.keys[key].resolved.clone();
        let budget = match self.nodes[node].local.ask(&resolved, &operation, now, at) {
            Next::Answer(answer) => {
                let said = answer.verdict();
                return self.answered_by_node((node, key), &operation, &said);
            }
            Next::Forward { budget } => budget,
        };
        for operation in [Some(operation), budget].into_iter().flatten() {
            let op = self.ops.len();
            self.ops.push(Asking {
                run: self.nodes[node].run,
                key,
                operation,
                sent: at,
                waits: true,
                was_stopped: false,
                arrived: Timestamp(0),
                at: Micros(0),
                accepts: Vec::new(),
                is_late: false,
                is_overloaded: false,
                may_fail: false,
                answer: None,
                emitted: Vec::new(),
            });
            let queue = (resolved.policy().name().to_owned(), resolved.group().into_owned());
            self.nodes[node].queues.entry(queue).or_default().push_back(op);
            let resolved = resolved.clone();
            self.nodes[node].flights.ask(Outgoing {
                resolved,
                operation,
                now: None,
                at,
                token: op,
            });
            self.hear_answers(node)?;
        }
        Ok(())
    }

    pub(super) fn note_grant(&mut self, key: usize, at: Timestamp, units: u64) {
        self.grants.push((key, at, units));
        if self.grants.len() > MOST_GRANTS {
            self.grants.remove(0);
        }
    }

    /// A message is lost, and its node learns of it.
    fn break_nth(&mut self, index: usize) -> Checked {
        let Some(index) = index.checked_rem(self.messages.len()) else { return Ok(()) };
        let Message { run, number, .. } = self.messages.remove(index);
        if self.nodes[run.0].run == run {
            let at = self.nodes[run.0].at(self.now);
            self.nodes[run.0].flights.handle_lost(number, &Failure::Unknown, at);
            self.hear_answers(run.0)?;
        }
        Ok(())
    }

    /// A node starts again. Its callers hear no more.
    fn restart(&mut self, node: usize, edit: usize) {
        self.tally.add("a node started again");
        let Node { run, revision, .. } = self.nodes[node];
        for op in self.ops.iter_mut().filter(|op| op.run == run) {
            op.waits = false;
        }
        self.nodes[node] = Node::new(&self.setup, (node, run.1 + 1), revision ^ edit);
    }

    fn check_bounds(&mut self) -> Checked {
        for node in &mut self.nodes {
            let excess = node.refusals.len().saturating_sub(MOST_REFUSALS);
            node.refusals.drain(..excess);
            let (waiting, keys) = (node.flights.waiting(), node.local.len());
            let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
            let is_within = waiting <= size(self.setup.most)
                && node.flights.groups() <= waiting
                && keys <= size(self.setup.most_keys);
            check(is_within, Invariant::Counted, || {
                format!("{waiting} operations wait at a node, which remembers {keys} keys")
            })?;
        }
        for object in &self.objects {
            let (bytes, remembered) = (object.inbox.bytes(), object.authority.remembered());
            let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
            let most: usize = object
                .partitions
                .values()
                .map(|partition| partition.waiting.len() + partition.batch.len())
                .sum();
            let waiting = object.authority.waiting();
            let is_within = bytes <= size(self.setup.bytes)
                && remembered <= size(self.setup.remembered)
                && waiting <= most.min(size(self.setup.most_waiting));
            check(is_within, Invariant::Counted, || {
                format!(
                    "an object has {bytes} bytes of questions, {remembered} of states, and {waiting} operations of {most}"
                )
            })?;
        }
        Ok(())
    }
}
