//! The world itself: it makes events happen and checks what follows.

use tidegate_gate::{Depth, Micros, Operation, Request, Settlement, Timestamp, Verdict};
use tidegate_tier::authority::{Asked, Failure};

use super::clock::Clock;
use super::event::{Act, Event};
use super::ledger::Ledger;
use super::node::{Call, Fault, Node, Stage};
use super::places::Places;
use super::replay::States;
use super::setup::Setup;
use super::storage::Storage;
use super::tally::Tally;
use super::violation::{Checked, Invariant, Seen, check};

/// The most grants that callers remember, to settle them.
const MOST_GRANTS: usize = 64;

/// The most swaps that are under way.
const MOST_CALLS: usize = 64;

/// An answer and the number of its operation.
pub(super) type Answer = (usize, Result<Verdict, Failure<Fault>>);

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
    pub(super) tally: Tally,
    /// The last step at which each slice had bytes of another program.
    pub(super) foreign_until: Vec<Option<usize>>,
}

/// An operation that a caller asked for.
#[derive(Debug)]
pub(super) struct Asking {
    pub(super) node: usize,
    pub(super) key: usize,
    pub(super) time: Timestamp,
    pub(super) operation: Operation,
    pub(super) asked_at: (usize, u64),
    /// The operation whose grant this one settles.
    pub(super) settles: Option<usize>,
    pub(super) state: Progress,
    /// The caller went away.
    pub(super) is_gone: bool,
    /// The authority has asked whether the caller is gone.
    pub(super) is_seen: bool,
    /// When and for how much the caller was granted something.
    pub(super) granted: Option<(Timestamp, u64)>,
}

/// Whether an operation waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Waiting,
    Answered,
    /// The authority left it out, because its caller is gone.
    Dropped,
    /// Its node crashed.
    Lost,
}

impl World {
    pub(super) fn new(setup: &Setup) -> anyhow::Result<Self> {
        let places = Places::new(setup)?;
        let (slices, homes) = (places.slices.len(), places.homes.len());
        let nodes = (0..setup.nodes()).map(|number| Node::new(setup, number, homes, 0)).collect();
        let drift = setup.drifts_ppm.last().copied().unwrap_or(0);
        Ok(Self {
            setup: setup.clone(),
            places,
            now: 0,
            step: 0,
            nodes,
            storage: Storage::new(slices, Clock::new(drift, setup.skew)),
            calls: Vec::new(),
            operations: Vec::new(),
            waiting: Vec::new(),
            grants: Vec::new(),
            kept: States::default(),
            ledger: Ledger::default(),
            tally: Tally::default(),
            foreign_until: vec![None; slices],
        })
    }

    /// Makes an event happen.
    pub(super) fn happen(&mut self, event: Event) -> Checked {
        match event {
            Event::Advance(span) => self.advance(span)?,
            Event::Ask { node, key, act } => self.ask(node, key, act)?,
            Event::Poll(node) if self.calls.len() < MOST_CALLS => drop(self.poll(node)?),
            Event::Poll(_) => {} // a driver has a bound too
            Event::Execute(index) => self.execute_nth(index)?,
            Event::Repeat(index) => self.repeat_nth(index)?,
            Event::Reply(index) => self.reply_nth(index)?,
            Event::LoseCall(index) => self.lose_nth(Stage::Sent, index),
            Event::LoseReply(index) => self.lose_nth(Stage::Executed, index),
            Event::Deadline(index) => self.deadline_nth(index)?,
            Event::GiveUp(node) => self.give_up(node)?,
            Event::Refuse => self.storage.refuses = true,
            Event::Accept => self.storage.refuses = false,
            Event::Reload(node) => {
                let node = node % self.nodes.len();
                self.nodes[node].edition ^= 1;
            }
            Event::Flush => self.flush(),
            Event::Corrupt(slice) => self.corrupt(slice),
            Event::Repair => self.repair(),
            Event::Crash(node) => self.crash(node),
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

    fn time_of(&self, node: usize) -> Timestamp {
        self.nodes[node].clock.at(self.setup.start, self.now)
    }

    /// The time by a clock that never goes back.
    pub(super) fn monotonic(&self, node: usize) -> Micros {
        Micros(self.now.saturating_sub(self.nodes[node].born))
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
        let oldest = self.now.saturating_sub(self.setup.linger);
        for call in self.calls.iter_mut().filter(|call| call.sent < oldest) {
            for part in call.parts.iter_mut().filter(|part| part.stage == Stage::Sent) {
                part.stage = Stage::Lost;
            }
        }
        self.calls.retain(|call| call.swap.is_some() || call.sent >= oldest);
        Ok(())
    }

    fn ask(&mut self, node: usize, key: usize, act: Act) -> Checked {
        let (node, key) = (node % self.nodes.len(), key % self.places.of_edition);
        let (mut key, mut settles) = (key, None);
        if let Act::Settle(index, _) = act {
            let Some(index) = index.checked_rem(self.grants.len()) else { return Ok(()) };
            let of = self.grants.remove(index);
            (key, settles) = (self.operations[of].key % self.places.of_edition, Some(of));
        }
        key += self.nodes[node].edition * self.places.of_edition;
        let resolved = self.places.keys[key].resolved.clone();
        let lease = |number: u64| resolved.lease_id(&number.to_string());
        let asked_for = |cost| Request { lease: Some(lease(0)), ..Request::of(cost) };
        let operation = match act {
            Act::Take(units) => Operation::Decide(asked_for(units)),
            Act::Peek(units) => Operation::Peek(asked_for(units)),
            Act::Acquire(number) => {
                Operation::Decide(Request { lease: Some(lease(number)), ..Request::of(1) })
            }
            Act::Heartbeat(number) => Operation::Heartbeat(lease(number)),
            Act::Release(number) => Operation::Release(lease(number)),
            Act::Settle(_, actual) => {
                let granted = settles.and_then(|of| self.operations[of].granted);
                let (granted_at, reserved) = granted.unwrap_or_default();
                Operation::Settle(Settlement { granted_at, reserved, actual })
            }
            Act::Reset => Operation::Reset(Depth::Whole),
        };
        let (number, now) = (self.operations.len(), self.time_of(node));
        let home = self.places.keys[key].home;
        self.operations.push(Asking {
            node,
            key,
            time: now,
            operation,
            asked_at: (self.step, self.now),
            settles,
            state: Progress::Waiting,
            is_gone: false,
            is_seen: false,
            granted: None,
        });
        self.waiting.push(number);
        let at = self.monotonic(node);
        let asked_of = &mut self.nodes[node];
        asked_of.authority.ask(Asked { resolved, now, at, operation, token: number });
        let is_overloaded = asked_of.waiting >= self.setup.most_waiting;
        asked_of.waiting += 1;
        let answers = self.take_answers(node)?;
        if is_overloaded {
            let most = self.setup.most_waiting;
            self.nodes[node].overloaded += 1;
            self.tally.add("an operation was one too many");
            let answer = (number, Err(Failure::Overloaded { most }));
            return check(answers == [answer], Invariant::Reason, || {
                format!("{} operations wait of {most}; answered: {answers:?}", most + 1)
            });
        }
        let waits = &mut self.nodes[node];
        if !waits.homes[home].has_work() && !waits.homes[home].is_flying {
            waits.ready.push_back(home);
        }
        waits.homes[home].waiting.push_back(number);
        check(answers.is_empty(), Invariant::Reason, || {
            format!("answered before anything was read: {answers:?}")
        })
    }

    /// Takes the answers of an authority. Each must be the first to an operation that waits there.
    pub(super) fn take_answers(&mut self, node: usize) -> Result<Vec<Answer>, Seen> {
        let mut answers = Vec::new();
        while let Some((number, answer)) = self.nodes[node].authority.poll_answer() {
            let Some(asking) = self.operations.get_mut(number) else {
                return Err(Seen(Invariant::Once, format!("nobody asked for number {number}")));
            };
            let waits = asking.state == Progress::Waiting && asking.node == node;
            check(waits, Invariant::Once, || {
                format!("number {number} was answered with {answer:?} and is {:?}", asking.state)
            })?;
            asking.state = Progress::Answered;
            self.nodes[node].waiting -= 1;
            if let (Operation::Decide(request), Ok(verdict)) = (asking.operation, &answer)
                && verdict.decision.is_allowed()
                && request.cost > 0
            {
                asking.granted = Some((verdict.at, request.cost));
                self.grants.push(number);
                if self.grants.len() > MOST_GRANTS {
                    self.grants.remove(0);
                }
            }
            answers.push((number, answer));
        }
        Ok(answers)
    }

    fn flush(&mut self) {
        self.tally.add("the storage lost everything");
        self.storage.flush();
        self.kept.clear();
        self.ledger.clear();
    }

    fn corrupt(&mut self, slice: usize) {
        let Some(slice) = slice.checked_rem(self.places.slices.len()) else { return };
        self.storage.put_for_ever(slice, b"foreign");
        self.foreign_until[slice] = Some(usize::MAX);
        self.lose(slice);
    }

    pub(super) fn repair(&mut self) {
        for slice in 0..self.foreign_until.len() {
            if self.foreign_until[slice] == Some(usize::MAX) {
                self.foreign_until[slice] = Some(self.step);
                self.storage.remove(slice);
                self.lose(slice);
            }
        }
    }

    fn lose(&mut self, slice: usize) {
        self.kept.forget(slice);
        self.ledger.forget(slice);
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
            if asking.node == node && asking.state == Progress::Waiting {
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

/// The answers must be these, in this order.
pub(super) fn same(answers: &[Answer], expected: &[Answer], invariant: Invariant) -> Checked {
    check(answers == expected, invariant, || {
        format!("answered: {answers:?}; expected: {expected:?}")
    })
}
