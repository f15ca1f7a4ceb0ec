//! The world itself.

use tidegate_gate::{Operation, Timestamp};
use tidegate_tier::authority::{Swap, SwapOutcome};
use tidegate_tier::wire::{Failure, Outgoing, WireError};

use super::watch::{Watch, units};
use crate::world::act::Act;
use crate::world::compared::{Compared, compared};
use crate::world::ended::check_states;
use crate::world::event::Event;
use crate::world::front::Front;
use crate::world::happens::Happens;
use crate::world::message::{Message, To};
use crate::world::network::Network;
use crate::world::objects::node::Node;
use crate::world::objects::object::{Fault, Object};
use crate::world::places::Places;
use crate::world::replay::States;
use crate::world::setup::Setup;
use crate::world::tally::Tally;
use crate::world::violation::{Checked, Invariant, check};

#[derive(Debug)]
pub(in crate::world) struct World {
    setup: Setup,
    places: Places,
    now: u64,
    nodes: Vec<Node>,
    object: Object,
    /// How often the authority has lost its memory.
    life: u64,
    store: States,
    swaps: Vec<UnderWay>,
    messages: Network<Message>,
    watch: Watch,
}

/// The most rounds that a time without faults takes.
const MOST_ROUNDS: usize = 300;

/// A swap under way to the store and back.
#[derive(Debug)]
struct UnderWay {
    /// The life of the authority that has asked for it.
    life: u64,
    swap: Swap,
    partitions: Vec<Vec<Compared>>,
    outcomes: Vec<SwapOutcome<Fault>>,
}

impl Happens for World {
    fn happen(&mut self, _: usize, event: Event) -> Checked {
        let nodes = self.nodes.len();
        match event {
            Event::Ask { node, key, act } => self.ask(node % nodes, key, act)?,
            Event::Advance(span) => self.advance(span)?,
            Event::Send(node) => self.send(node % nodes)?,
            Event::Deliver(index) => self.deliver_nth(index)?,
            Event::Repeat(index) => self.messages.repeat(index),
            Event::Lose(index) => drop(self.messages.take(index, |_| true)),
            Event::Break(index) => self.break_nth(index),
            Event::Corrupt(index, place) => self.messages.corrupt(index, place),
            Event::Poll(_) => self.poll()?,
            Event::Execute(index) => self.execute_nth(index),
            Event::Reply(index) => self.finish_nth(index, false),
            Event::Fail(index) => self.finish_nth(index, true),
            Event::Crash(..) => self.crash(),
            Event::Restart(node) => self.restart(node % nodes),
            Event::Calm() => self.calm()?,
            _ => {}
        }
        self.hear()
    }

    fn now(&self) -> u64 {
        self.now
    }

    fn tally(&self) -> &Tally {
        &self.watch.tally
    }
}

impl World {
    pub(in crate::world) fn new(setup: &Setup) -> anyhow::Result<Self> {
        Ok(Self {
            places: Places::new(setup)?,
            now: 0,
            nodes: (0..setup.nodes).map(|node| Node::new(setup, (node, 0), 0)).collect(),
            object: Object::new(setup, 0)?,
            life: 0,
            store: States::default(),
            swaps: Vec::new(),
            messages: Network::default(),
            watch: Watch::default(),
            setup: setup.clone(),
        })
    }

    /// A caller asks a node. No policy lets it answer by itself.
    fn ask(&mut self, node: usize, key: usize, act: Act) -> Checked {
        let (key, now) = (key % self.places.of_revision, Timestamp(self.setup.start + self.now));
        let Node { front, asks, .. } = &mut self.nodes[node];
        let resolved = self.places.keys[key].resolved.clone();
        let (operation, was_over) = match self.places.keys[key].kinds.reserves {
            true => self.watch.held.asks((key, &resolved), act),
            false => (Operation::from(1), false),
        };
        let token = Some(self.watch.asks(front.run, (key, operation, was_over), self.now));
        let asked = Outgoing { resolved, operation, now: None, at: front.at(self.now), token };
        let answer = asks.ask(asked, now);
        check(answer.is_none(), Invariant::Reason, || format!("a node said {answer:?}"))
    }

    /// Time passes. Each node sends at once what it may, and wakes at its deadlines.
    fn advance(&mut self, span: u64) -> Checked {
        let until = self.now + span;
        self.send_all()?;
        let due = |node: &mut Node| node.outbox().poll_timeout();
        while let Some(next) = self.nodes.iter_mut().filter_map(due).min()
            && next.0 <= until
        {
            self.now = self.now.max(next.0);
            for Node { front, asks, .. } in &mut self.nodes {
                asks.outbox().handle_timeout(front.at(self.now));
            }
            self.send_all()?;
        }
        self.now = until;
        self.messages.lose_older(until.saturating_sub(self.setup.linger));
        Ok(())
    }

    fn send_all(&mut self) -> Checked {
        (0..self.nodes.len()).try_for_each(|node| self.send(node))?;
        self.hear()
    }

    /// A node sends the questions that it may send.
    fn send(&mut self, node: usize) -> Checked {
        let Node { front, asks, .. } = &mut self.nodes[node];
        while let Some(question) = asks.outbox().poll_transmit(front.at(self.now)) {
            self.watch.sends(front.run, &question, &self.setup)?;
            let (to, run, number, bytes) =
                (To::Object(0), front.run, question.number, question.bytes);
            self.messages.post(self.now, Message { to, run, number, bytes, is_corrupt: false });
        }
        Ok(())
    }

    fn deliver_nth(&mut self, index: usize) -> Checked {
        let Some(message) = self.messages.take(index, |_| true) else { return Ok(()) };
        if let To::Object(_) = message.to {
            return self.question(&message);
        }
        let Node { front, asks, .. } = &mut self.nodes[message.run.0];
        if front.run != message.run {
            return Ok(());
        }
        let handled = asks.outbox().handle_reply(&message.bytes, front.at(self.now));
        self.watch.hears_reply(&message, &handled)
    }

    fn question(&mut self, message: &Message) -> Checked {
        let times = self.object.times(self.setup.start, self.now);
        let Object { inbox, policies, authority, .. } = &mut self.object;
        let question = (message.run, message.bytes.as_slice());
        let taken = inbox.handle_question(question, &policies[0], times, authority);
        let is_right = match &taken {
            Ok(()) => !message.is_corrupt,
            Err((_, WireError::Checksum { .. } | WireError::Version { .. })) => message.is_corrupt,
            Err(_) => false,
        };
        if message.is_corrupt {
            self.watch.tally.add("a message was corrupt");
        }
        check(is_right, Invariant::Reason, || format!("{message:?}: {taken:?}"))
    }

    fn break_nth(&mut self, index: usize) {
        let Some(Message { run, number, .. }) = self.messages.take(index, |_| true) else { return };
        let Node { front, asks, .. } = &mut self.nodes[run.0];
        if front.run == run {
            asks.outbox().handle_lost(number, &Failure::Unknown, front.at(self.now));
        }
    }

    /// Sends what waits at the authority to the store.
    fn poll(&mut self) -> Checked {
        let (now, at) = self.object.times(self.setup.start, self.now);
        let authority = &mut self.object.authority;
        while let Some(swap) = authority.poll_swap((Some(now), at), |_| false) {
            let of = |partition| compared(authority, (&swap, partition), &self.places);
            let partitions = (0..swap.len()).map(of).collect::<Result<_, _>>()?;
            self.swaps.push(UnderWay { life: self.life, swap, partitions, outcomes: Vec::new() });
        }
        Ok(())
    }

    /// The store compares and swaps the records of each partition.
    fn execute_nth(&mut self, index: usize) {
        let Some(index) = index.checked_rem(self.swaps.len()) else { return };
        let UnderWay { partitions, outcomes, .. } = &mut self.swaps[index];
        for partition in partitions.drain(..) {
            let held = |record: usize| self.store.get(record).map(<[u8]>::to_vec);
            if partition.iter().any(|each| held(each.record) != each.found) {
                let found = partition.iter().map(|each| held(each.record));
                outcomes.push(SwapOutcome::Found(found.collect()));
                continue;
            }
            for each in partition.iter().filter(|each| each.becomes.is_some()) {
                self.store.put(each.record, each.becomes.as_deref());
            }
            outcomes.push(SwapOutcome::Swapped);
        }
    }

    /// The authority learns what came of a swap, or that it failed.
    fn finish_nth(&mut self, index: usize, fails: bool) {
        let Some(index) = index.checked_rem(self.swaps.len()) else { return };
        if !self.swaps[index].partitions.is_empty() && !fails {
            return;
        }
        let UnderWay { life, swap, mut outcomes, .. } = self.swaps.remove(index);
        if fails {
            outcomes = vec![SwapOutcome::Failed("no disk"); swap.len()];
        }
        if life == self.life {
            let (now, at) = self.object.times(self.setup.start, self.now);
            self.object.authority.handle(swap, outcomes, (Some(now), at));
        }
    }

    fn crash(&mut self) {
        self.life += 1;
        self.watch.is_more_than_one_life = true;
        self.object.restart(&self.setup, self.now);
        if self.setup.is_only_writer {
            self.swaps.clear(); // an earlier life would be another writer
        }
    }

    fn restart(&mut self, node: usize) {
        let Front { run, .. } = self.nodes[node].front;
        self.watch.restarts(run);
        self.nodes[node] = Node::new(&self.setup, (run.0, run.1 + 1), 0);
    }

    /// Passes on answers and replies, and checks the bounds.
    fn hear(&mut self) -> Checked {
        let at = self.object.times(self.setup.start, self.now).1;
        let Object { inbox, authority, .. } = &mut self.object;
        while let Some((run, bytes)) = inbox.poll_reply(at, authority) {
            let (to, number, bytes) = (To::Node, 0, bytes.to_vec());
            self.messages.post(self.now, Message { to, run, number, bytes, is_corrupt: false });
        }
        let bytes = inbox.bytes();
        check(bytes <= self.setup.bytes, Invariant::Counted, || {
            format!("an authority remembers {bytes} bytes")
        })?;
        for Node { front, asks, .. } in &mut self.nodes {
            let (waiting, groups) = (asks.outbox().waiting(), asks.outbox().groups());
            check(waiting <= self.setup.most && groups <= waiting, Invariant::Counted, || {
                format!("{waiting} operations wait at a node, for {groups} groups")
            })?;
            while let Some(answer) = asks.poll_answer() {
                self.watch.hears(front.run, &answer, (self.now, &self.setup))?;
            }
        }
        Ok(())
    }

    /// Nothing fails until every operation is answered. Questions that were lost reach their deadline.
    fn calm(&mut self) -> Checked {
        for _ in 0..2 {
            self.send_all()?;
            for _ in 0..MOST_ROUNDS {
                while !self.messages.is_empty() {
                    self.deliver_nth(0)?;
                    self.hear()?;
                }
                self.poll()?;
                self.execute_nth(0);
                self.finish_nth(0, false);
                self.hear()?;
                if self.messages.is_empty() && self.object.authority.waiting() == 0 {
                    break;
                }
            }
            self.advance(2 * self.setup.deadline)?;
        }
        let waiting: usize = self.nodes.iter_mut().map(|node| node.outbox().waiting()).sum();
        let groups: usize = self.nodes.iter_mut().map(|node| node.outbox().groups()).sum();
        let at_authority = self.object.authority.waiting();
        check((waiting, groups, at_authority) == (0, 0, 0), Invariant::Live, || {
            format!(
                "nothing has failed for long; {waiting} operations wait at nodes for {groups} groups, {at_authority} at the authority"
            )
        })?;
        let time = Timestamp(self.setup.start + self.now);
        for (number, key) in self.places.keys[..self.places.of_revision].iter().enumerate() {
            let mut states = self.store.part(&key.records);
            let said = states.operate(key, time, &Operation::from(0));
            let units = said.as_ref().map_or(0, units);
            if key.kinds.reserves {
                self.watch.check_held(number, units, key.resolved.limits())?;
                check_states(key, &self.store.part(&key.records))?;
            } else {
                self.watch.check_taken(number, units)?;
            }
        }
        Ok(())
    }
}
