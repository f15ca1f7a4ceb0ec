//! The operations that wait for Redis: a node answers what its policy lets it answer, and an authority decides on the rest.

use std::collections::VecDeque;

use slab::Slab;
use tidegate_gate::{
    AskError, Explanation, Id, Micros, OnError, Operation, Policy, Request, Resolved, Timestamp,
    TransactionError, Verdict,
};
use tidegate_tier::authority::{Options, Queued};
use tidegate_tier::cache::{self, NodeStep, Transmit, VerdictOf};
use tidegate_tier::{Authority, NodeCache};

use super::flight::Flight;
use super::recovery::Recovery;
use super::script::Script;
use crate::chance::Chance;
use crate::failure::Failure;
use crate::far::caller::{Answer, Caller, MOST_DEADLINES};

const NO_SHARE: &str = "`client`: expected a client of one Redis by `ioredis` or `redis`, because `on_error` is \"local\"; found one \
     of a Cluster or of `@upstash/redis`";

/// The limiter's place in Redis.
#[derive(Debug)]
pub(crate) struct Tier {
    /// The prefix of every name in Redis.
    pub(super) prefix: String,
    /// Whether the states are in a Cluster.
    pub(super) is_cluster: bool,
    pub(super) script: &'static Script,
    pub(super) authority: Authority<usize, String>,
    /// What this process answers by itself as a node, and the answers.
    pub(super) node: NodeCache,
    answered: VecDeque<(usize, Verdict)>,
    pub(super) recovery: Recovery,
    /// The operations without an answer, by their tokens.
    pub(super) waiting: Slab<Waiting>,
    /// How many of them have a time that the caller gave.
    pub(super) timed: usize,
    pub(super) calls: Slab<Flight>,
}

/// An operation that waits for its answer.
#[derive(Debug)]
pub(super) enum Waiting {
    /// A caller asked it.
    Caller(Caller),
    /// The node asked it at this time.
    Node(Transmit, Micros),
    /// Redis is told what the node has decided by itself.
    Owed(Transmit),
}

impl Tier {
    /// What an error of the store begins with.
    pub(crate) const STORE: &str = "redis";

    /// A place under a prefix, in a Cluster or not, by a client that carries no other bytes than those of texts or by one that does.
    pub(super) fn new(
        (prefix, is_cluster, has_texts): (String, bool, bool),
        policy: &Policy,
        deadline: Micros,
        chance: &mut Chance,
    ) -> Result<Self, Failure> {
        let mut random = || chance.number().ok_or(Failure::Ask(AskError::NoRandomness));
        let seed = random()?;
        let most_wait = Micros(deadline.0.saturating_mul(MOST_DEADLINES));
        let is_local = policy.on_error() == OnError::Local;
        if (is_cluster || has_texts) && is_local {
            return Err(Failure::Option(NO_SHARE.to_owned()));
        }
        let mut options = Options { patience: deadline, most_wait, seed, ..Options::default() };
        if is_cluster {
            options.most_records = 1; // a call is about one partition, because its names must have one slot
        }
        let (node, id) = (Id([random()?, random()?]), random()?);
        let node = cache::Options { node, seed: random()?, ..cache::Options::default() };
        Ok(Self {
            prefix,
            is_cluster,
            script: Script::of(has_texts),
            authority: Authority::new(options),
            node: NodeCache::new(node),
            answered: VecDeque::new(),
            recovery: Recovery::new(id, is_local),
            waiting: Slab::new(),
            timed: 0,
            calls: Slab::new(),
        })
    }

    /// Takes an operation, and returns its token. Unless the node answers it, the authority is asked.
    pub(crate) fn ask(&mut self, caller: Caller, now: Timestamp) -> usize {
        let Caller { operation, is_timed, explains, at, .. } = caller;
        let resolved = caller.resolved.clone();
        self.timed = self.timed.saturating_add(usize::from(is_timed));
        let token = self.waiting.insert(Waiting::Caller(caller));
        if is_timed || explains || !resolved.policy().lets_nodes_answer() {
            self.authority.ask(Queued { resolved, now, at, operation, token });
            return token;
        }
        let NodeStep { answer, own } = self.node.ask(&resolved, &operation, now, at);
        match answer {
            Some(answer) => self.answered.push_back((token, answer.verdict())),
            None => self.authority.ask(Queued { resolved, now, at, operation, token }),
        }
        own.into_iter().for_each(|own| self.ask_as_node(own, now, at));
        token
    }

    /// Asks what the node itself asks. No caller waits for the answer.
    pub(super) fn ask_as_node(&mut self, own: Transmit, now: Timestamp, at: Micros) {
        let (resolved, operation) = (own.resolved.clone(), own.operation);
        let token = self.waiting.insert(Waiting::Node(own, at));
        self.authority.ask(Queued { resolved, now, at, operation, token });
    }

    /// The next answer to a caller, and the caller's token.
    pub(crate) fn poll_answer(&mut self, at: Micros) -> Option<(usize, Caller, Answer)> {
        if let Some((token, verdict)) = self.answered.pop_front() {
            let Waiting::Caller(caller) = self.waiting.try_remove(token)? else { return None };
            return Some((token, caller, Ok(verdict)));
        }
        loop {
            let (token, answer) = self.authority.poll_answer()?;
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
                Waiting::Owed(owed) => {
                    let told = self.recovery.told(&answer, at);
                    self.authority.handle_told(owed, told);
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

    /// Explains the answer to a request on the states that Redis was last known to hold; `None` if they are not known.
    pub(crate) fn explain(
        &mut self,
        resolved: &Resolved,
        now: Timestamp,
        request: &Request,
    ) -> Option<Result<Explanation, TransactionError>> {
        self.authority.explain(resolved, now, request)
    }

    /// Why Redis cannot be asked.
    pub(crate) fn cause(&self) -> &str {
        self.recovery.cause()
    }
}

/// Whether an operation asks for a grant, or only looks.
const fn asks(operation: &Operation) -> bool {
    matches!(operation, Operation::Decide(_) | Operation::Peek(_))
}
