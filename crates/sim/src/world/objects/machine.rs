//! The world itself: it makes events happen and checks what follows.

use std::collections::BTreeMap;

use tidegate_gate::{Micros, Operation, Timestamp, Verdict};
use tidegate_tier::wire::{Failure, Outgoing};

use super::node::Node;
use super::object::{Object, UnderWay};
use super::wiretap::{Answer, Name};
use crate::world::act::Act;
use crate::world::event::Event;
use crate::world::front::{ByNode, Front, Run, id, verdict_of};
use crate::world::grants::Grants;
use crate::world::happens::Happens;
use crate::world::ledger::Ledger;
use crate::world::message::Message;
use crate::world::network::Network;
use crate::world::places::{Key, Places};
use crate::world::replay::{States, Undone};
use crate::world::setup::Setup;
use crate::world::tally::Tally;
use crate::world::violation::{Checked, Invariant, check};

/// Nodes, objects with storage, and the network between them.
#[derive(Debug)]
pub(in crate::world) struct World {
    pub(super) setup: Setup,
    pub(super) places: Places,
    /// The µs since the start.
    pub(super) now: u64,
    /// The longest time for which no node looked at its deadlines.
    pub(super) pause: u64,
    pub(super) nodes: Vec<Node>,
    pub(super) objects: Vec<Object>,
    pub(super) storage: BTreeMap<usize, Row>,
    pub(super) swaps: Vec<UnderWay>,
    pub(super) messages: Network<Message>,
    pub(super) ops: Vec<Asking>,
    pub(super) questions: BTreeMap<Name, Vec<usize>>,
    /// The states that the objects must have in memory, or had when they last knew them.
    pub(super) own: States,
    /// The states of keys that never crash.
    pub(super) shadow: States,
    /// The reservations of the objects.
    pub(super) ledger: Ledger,
    pub(super) grants: Grants,
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
    /// Of an operation of the node itself the world knows nothing before it is in a question.
    pub(super) operation: Operation,
    /// The node itself asked for it.
    pub(super) is_own: bool,
    /// The number of its question.
    pub(super) question: Option<u64>,
    /// When it was asked, by the node's clock that never goes back.
    pub(super) sent: Micros,
    /// The same, by the time of the world.
    pub(super) sent_at: u64,
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

impl Happens for World {
    fn happen(&mut self, _: usize, event: Event) -> Checked {
        let (nodes, objects) = (self.nodes.len(), self.objects.len());
        match event {
            Event::Advance(span) => self.advance(span)?,
            Event::Ask { node, key, act } => self.ask(node % nodes, key, act)?,
            Event::Send(node) if self.runs(node % nodes) => self.send(node % nodes)?,
            Event::Deliver(index) => self.deliver_nth(index)?,
            Event::Repeat(index) => self.messages.repeat(index),
            Event::Lose(index) => drop(self.messages.take(index, |_| true)),
            Event::Break(index) => self.break_nth(index)?,
            Event::Corrupt(index, place) => self.messages.corrupt(index, place),
            Event::Poll(object) => self.poll(object % objects)?,
            Event::Execute(index) => self.execute_nth(index)?,
            Event::Reply(index) => self.finish_nth(index, false)?,
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
                let front = &mut self.nodes[node % nodes].front;
                front.stop(self.now.saturating_add(span));
                let run = front.run;
                let own = self.ops.iter_mut().filter(|op| op.waits && op.run == run);
                own.for_each(|op| op.was_stopped = true);
            }
            Event::Set(object, by) => self.objects[object % objects].clock.set(by),
            Event::Calm() => self.calm()?,
            _ => {}
        }
        self.check_bounds()
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
        let objects = (0..setup.objects).map(|number| Object::new(setup, number));
        let nodes = 0..setup.nodes;
        Ok(Self {
            places: Places::new(setup)?,
            now: 0,
            pause: 0,
            nodes: nodes.map(|node| Node::new(setup, (node, 0), 0)).collect(),
            objects: objects.collect::<anyhow::Result<_>>()?,
            storage: BTreeMap::new(),
            swaps: Vec::new(),
            messages: Network::default(),
            ops: Vec::new(),
            questions: BTreeMap::new(),
            own: States::default(),
            shadow: States::default(),
            ledger: Ledger::default(),
            grants: Grants::default(),
            tally: Tally::default(),
            setup: setup.clone(),
        })
    }

    pub(super) fn runs(&self, node: usize) -> bool {
        self.nodes[node].front.runs(self.now)
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
                    let at = self.nodes[node].front.at(self.now);
                    self.nodes[node].outbox().handle_timeout(at);
                    self.hear_answers(node, |question| question.is_some())?;
                    self.send(node)?;
                }
            }
        }
        let oldest = self.now.saturating_sub(self.setup.linger);
        self.messages.lose_older(oldest);
        Ok(())
    }

    /// A caller asks a node.
    fn ask(&mut self, node: usize, key: usize, act: Act) -> Checked {
        if !self.runs(node) {
            return Ok(());
        }
        let now = Timestamp(self.setup.start + self.now);
        let act = match act {
            Act::Borrow { holder, wants, .. } => Act::Borrow { holder, wants, left: 0 },
            act => act,
        };
        let Node { front, asks, .. } = &mut self.nodes[node];
        let asked = self.grants.operation((&self.places, front.revision), key, act, now);
        let Some((key, operation)) = asked else { return Ok(()) };
        let (resolved, at) = (self.places.keys[key].resolved.clone(), front.at(self.now));
        let (token, before) = (Some(self.ops.len()), asks.outbox().waiting());
        let answer = asks.ask(Outgoing { resolved, operation, now: None, at, token }, now);
        let waits = asks.outbox().waiting() - before;
        if let Some(answer) = answer {
            let said = verdict_of(&answer)?;
            check(waits == 0, Invariant::Once, || {
                format!("{waits} operations wait beside the answer {said:?}")
            })?;
            return self.answered_by_node((node, key), &operation, (&said, now));
        }
        let op = self.queue((node, key), at, false);
        self.see(op, operation)?;
        for _ in 1..waits {
            self.queue((node, key), at, true); // behind the question of the caller
        }
        self.hear_answers(node, |question| question.is_none())
    }

    /// A new operation waits for its question, behind those of the same group. Returns its number.
    pub(super) fn queue(
        &mut self,
        (node, key): (usize, usize),
        sent: Micros,
        is_own: bool,
    ) -> usize {
        let op = self.ops.len();
        self.ops.push(Asking {
            run: self.nodes[node].front.run,
            key,
            operation: Operation::from(0),
            is_own,
            question: None,
            sent,
            sent_at: self.now,
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
        let resolved = &self.places.keys[key].resolved;
        let queue = (resolved.policy().name().to_owned(), resolved.group().into_owned());
        self.nodes[node].queues.entry(queue).or_default().push_back(op);
        op
    }

    /// The world gets to know what is asked for. No policy of objects makes a node itself ask for anything but units.
    pub(super) fn see(&mut self, op: usize, operation: Operation) -> Checked {
        let Asking { run, key, is_own, sent, .. } = self.ops[op];
        let is_budget = matches!(operation, Operation::Budget(budget) if budget.holder == id(run));
        check(is_budget || !is_own, Invariant::Order, || {
            format!("a node itself asks for {operation:?}: {:?}", self.ops[op])
        })?;
        self.ops[op].operation = operation;
        self.nodes[run.0].front.known.passes(key, &operation, sent);
        self.grants.lending.give_back(key, &operation).map(drop)
    }

    /// A node has answered by itself: it repeats a refusal, or spends units.
    fn answered_by_node(
        &mut self,
        (node, key): (usize, usize),
        operation: &Operation,
        said: (&Verdict, Timestamp),
    ) -> Checked {
        let (of, lending) = ((key, &self.places.keys[key]), Some(&mut self.grants.lending));
        match self.nodes[node].front.check_answer(lending, of, operation, said, self.now)? {
            ByNode::Listed | ByNode::Factor => {}
            ByNode::Repeated(_) => self.tally.add("a node repeated a refusal"),
            ByNode::Spent => self.tally.add("a node spent units"),
        }
        Ok(())
    }

    /// A message is lost, and its node learns of it.
    fn break_nth(&mut self, index: usize) -> Checked {
        let Some(Message { run, number, .. }) = self.messages.take(index, |_| true) else {
            return Ok(());
        };
        if self.nodes[run.0].front.run == run {
            let at = self.nodes[run.0].front.at(self.now);
            self.nodes[run.0].outbox().handle_lost(number, &Failure::Unknown, at);
            self.hear_answers(run.0, |question| question == Some(number))?;
        }
        Ok(())
    }

    /// A node starts again. Its callers hear no more.
    fn restart(&mut self, node: usize, edit: usize) {
        self.tally.add("a node started again");
        let Front { run, revision, .. } = self.nodes[node].front;
        for op in self.ops.iter_mut().filter(|op| op.run == run) {
            op.waits = false;
        }
        self.nodes[node] = Node::new(&self.setup, (node, run.1 + 1), revision ^ edit);
    }

    fn check_bounds(&mut self) -> Checked {
        for node in &mut self.nodes {
            let (waiting, keys) = (node.outbox().waiting(), node.asks.cache().len());
            let is_within = waiting <= self.setup.most
                && node.outbox().groups() <= waiting
                && keys <= self.setup.most_keys;
            check(is_within, Invariant::Counted, || {
                format!("{waiting} operations wait at a node, which remembers {keys} keys")
            })?;
        }
        for object in &self.objects {
            let (bytes, remembered) = (object.inbox.bytes(), object.authority.remembered());
            let most: usize = object
                .partitions
                .values()
                .map(|partition| partition.waiting.len() + partition.batch.len())
                .sum();
            let waiting = object.authority.waiting();
            let is_within = bytes <= self.setup.bytes
                && remembered <= self.setup.remembered
                && waiting <= most.min(self.setup.most_waiting);
            check(is_within, Invariant::Counted, || {
                format!(
                    "an object has {bytes} bytes of questions, {remembered} of states, and {waiting} operations of {most}"
                )
            })?;
        }
        Ok(())
    }
}
