//! The operations that wait for Redis: a node answers what its policy lets it answer, and an authority decides on the rest.

use std::collections::VecDeque;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use slab::Slab;
use tidegate_gate::{AskError, Id, Micros, OnError, Operation, Policy, Resolved, Timestamp, blob};
use tidegate_tier::NodeCache;
use tidegate_tier::authority::{Failure as NotDecided, Options, Queued};
use tidegate_tier::cache::{self, NodeStep, Transmit, VerdictOf};
use tidegate_tier::outage::OfProcess;

use super::flight::Flight;
use super::presence::{self, Presence};
use super::recovery;
use super::server::Servers;
use super::slot::{Master, Masters};
use super::under_way::UnderWay;
use crate::chance::Chance;
use crate::failure::Failure;
use crate::far::caller::{Answer, Caller, MOST_DEADLINES, Taken};

/// The limiter's place in Redis.
#[derive(Debug)]
pub(crate) struct Tier {
    /// The prefix of every name in Redis.
    pub(super) prefix: String,
    /// Whether the client carries texts alone.
    pub(super) has_texts: bool,
    pub(super) masters: Masters,
    /// Whether the masters run scripts over several slots, as far as is known.
    pub(super) runs_across: bool,
    /// How each server's authority uses memory and time.
    options: Options,
    pub(super) servers: Servers,
    /// What this process answers by itself as a node.
    pub(super) node: NodeCache,
    /// Whether the node asks something of which JavaScript has not heard.
    pub(super) has_own: bool,
    /// When JavaScript was told to ask for calls.
    pub(super) told: Option<Micros>,
    pub(super) presence: Presence,
    /// Whether the node goes on with its share while a server is away. JavaScript keeps the calls of other nodes from a silent server.
    pub(super) is_local: bool,
    /// Why Redis did not give the last answer, if the node has decided by its share.
    cause: NotDecided<String>,
    /// The operations without an answer, by their tokens.
    pub(super) waiting: Slab<Waiting>,
    /// How many of them have a time that the caller gave.
    pub(super) timed: usize,
    pub(super) swaps: Slab<UnderWay>,
    pub(super) calls: Slab<Flight>,
    /// The calls of which JavaScript has not heard.
    pub(super) begun: VecDeque<usize>,
    /// The swaps of which some partitions are to be asked again. Their calls do not begin before JavaScript asks for a call: the number
    /// of a call that has ended is free, and JavaScript may not have heard of the end.
    pub(super) again: VecDeque<usize>,
}

/// An operation that waits for its answer.
#[derive(Debug)]
pub(super) enum Waiting {
    /// A caller asked it.
    Caller(Caller),
    /// The node asked it at this time.
    Node(Transmit, Micros),
}

impl Tier {
    /// What an error of the store begins with.
    pub(crate) const STORE: &str = "redis";

    /// A place under a prefix, in a Cluster of these masters or not, by a client that carries no other bytes than those of texts or by
    /// one that does.
    pub(super) fn new(
        (prefix, masters, has_texts): (String, Masters, bool),
        policy: &Policy,
        deadline: Micros,
        chance: &mut Chance,
    ) -> Result<Self, Failure> {
        let mut random = || chance.number().ok_or(Failure::Ask(AskError::NoRandomness));
        let seed = random()?;
        let most_wait = Micros(deadline.0.saturating_mul(MOST_DEADLINES));
        let store = BuildHasherDefault::<DefaultHasher>::default().hash_one(&prefix);
        let shares: Option<OfProcess> = Some(recovery::shares);
        let options =
            Options { patience: deadline, most_wait, seed, store, shares, ..Options::default() };
        let (node, id) = (Id([random()?, random()?]), presence::id(random()?));
        let node = cache::Options { node, seed: random()?, ..cache::Options::default() };
        let is_local = policy.on_error() == OnError::Local;
        Ok(Self {
            presence: Presence::new(id, &prefix, is_local),
            is_local,
            prefix,
            has_texts,
            masters,
            runs_across: true,
            options,
            servers: Servers::default(),
            node: NodeCache::new(node),
            has_own: false,
            told: None,
            cause: NotDecided::TooLate,
            waiting: Slab::new(),
            timed: 0,
            swaps: Slab::new(),
            calls: Slab::new(),
            begun: VecDeque::new(),
            again: VecDeque::new(),
        })
    }

    /// Takes an operation. Unless the node answers it, an authority is asked.
    pub(crate) fn ask(&mut self, caller: Caller, now: Timestamp) -> Taken {
        if caller.is_timed || !caller.resolved.policy().lets_nodes_answer() {
            return self.wait(caller, now);
        }
        let at = caller.at;
        let NodeStep { answer, own } = self.node.ask(&caller.resolved, &caller.operation, now, at);
        let taken = match answer {
            Some(answer) => Taken::Answered(caller, Ok(answer.verdict())),
            None => self.wait(caller, now),
        };
        own.into_iter().for_each(|own| self.ask_as_node(own, now, at));
        taken
    }

    /// Lets an operation wait for an authority.
    fn wait(&mut self, caller: Caller, now: Timestamp) -> Taken {
        let Caller { operation, is_timed, at, .. } = caller;
        let resolved = caller.resolved.clone();
        self.timed = self.timed.saturating_add(usize::from(is_timed));
        let token = self.waiting.insert(Waiting::Caller(caller));
        self.queue(Queued { resolved, now, at, operation, token });
        Taken::Waits(token)
    }

    /// Asks what the node itself asks. No caller waits for the answer.
    pub(super) fn ask_as_node(&mut self, own: Transmit, now: Timestamp, at: Micros) {
        self.has_own = true;
        let (resolved, operation) = (own.resolved.clone(), own.operation);
        let token = self.waiting.insert(Waiting::Node(own, at));
        self.queue(Queued { resolved, now, at, operation, token });
    }

    /// Asks the authority of the server that has the key.
    fn queue(&mut self, asked: Queued<usize>) {
        let new = (self.options, self.presence.nodes());
        self.servers.of(self.master(&asked.resolved), new, &self.masters).authority.ask(asked);
    }

    /// The server that has the key, and the key's slot.
    fn master(&self, resolved: &Resolved) -> (Master, u16) {
        if !self.masters.are_cluster() {
            return (0, 0);
        }
        let name = blob::partition_name(resolved.policy(), resolved.key());
        let slot = self.masters.slot([&*self.prefix, &*name].concat().as_bytes());
        (self.masters.master(slot), slot)
    }

    /// The next answer to a caller, and the caller's token.
    pub(crate) fn poll_answer(&mut self, at: Micros) -> Option<(usize, Caller, Answer)> {
        loop {
            let mut servers = self.servers.0.iter_mut();
            let (token, answer, cause) =
                servers.find_map(|server| server.authority.poll_answer())?;
            self.cause = cause.unwrap_or(NotDecided::TooLate);
            match self.waiting.try_remove(token)? {
                Waiting::Caller(caller) => {
                    self.timed = self.timed.saturating_sub(usize::from(caller.is_timed));
                    if !caller.is_timed || !asks(&caller.operation) {
                        self.learn(&caller.resolved, caller.operation, &answer, (caller.at, at));
                    }
                    return Some((token, caller, answer));
                }
                Waiting::Node(Transmit { resolved, operation }, sent) => {
                    self.learn(&resolved, operation, &answer, (sent, at));
                }
            }
        }
    }

    /// The node learns from an answer of Redis, by the times at which it was asked and answered.
    fn learn(
        &mut self,
        resolved: &Resolved,
        operation: Operation,
        answer: &Answer,
        (sent, at): (Micros, Micros),
    ) {
        if let Ok(verdict) = answer
            && !verdict.degraded
            && resolved.policy().lets_nodes_answer()
        {
            let operation = &operation;
            self.node.handle_verdict(&VerdictOf { resolved, operation, verdict, sent, at });
        }
    }

    /// Why Redis did not give the last answer, if the node has decided by its share.
    pub(crate) fn cause(&self) -> NotDecided<String> {
        self.cause.clone()
    }
}

/// Whether an operation asks for a grant, or only looks.
const fn asks(operation: &Operation) -> bool {
    matches!(operation, Operation::Decide(_) | Operation::Peek(_) | Operation::Explain(_))
}
