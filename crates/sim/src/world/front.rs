//! The part of a node that callers ask: the real [`NodeCache`], and beside it what it may know.

use std::collections::VecDeque;

use tidegate_gate::{Id, Limiter, Micros, Operation, Rule, Timestamp, Verdict};
use tidegate_tier::cache::{NodeStep, Transmit, VerdictOf};
use tidegate_tier::{NodeCache, cache};

use super::clock::Ticks;
use super::known::Known;
use super::lent::Lending;
use super::places::Key;
use super::setup::Setup;
use super::violation::{Invariant, Seen, check};

/// The number of a node, and how often it has started again.
pub(super) type Run = (usize, u64);

/// No two runs have the same.
pub(super) fn id((node, run): Run) -> Id {
    Id([u64::try_from(node).unwrap_or(u64::MAX), run])
}

#[derive(Debug)]
pub(super) struct Front {
    pub(super) run: Run,
    pub(super) local: NodeCache,
    /// What the node asks for beside its callers, and has not asked for yet.
    pub(super) due: VecDeque<Transmit>,
    pub(super) known: Known,
    pub(super) ticks: Ticks,
    /// The revision of the policies that the node has: 0 or 1.
    pub(super) revision: usize,
    /// The node goes on at this time.
    pub(super) stopped_until: u64,
}

/// An answer that a node gives by itself.
#[derive(Clone, Copy, Debug)]
pub(super) enum ByNode {
    /// The key is on a list.
    Listed,
    /// By the factor that the node heard last.
    Factor,
    /// The refusal of a question that was sent at this time of the world.
    Repeated(u64),
    /// Units that this operation has taken in advance, if the world knows it.
    Spent(Option<usize>),
}

impl Front {
    /// A node that starts now.
    pub(super) fn new(setup: &Setup, run: Run, revision: usize, now: u64) -> Self {
        let options =
            cache::Options { node: id(run), most_keys: setup.most_keys, seed: setup.start };
        Self {
            run,
            local: NodeCache::new(options),
            due: VecDeque::new(),
            known: Known::default(),
            ticks: setup.ticks(run.0, now),
            revision,
            stopped_until: 0,
        }
    }

    /// The time by a clock that never goes back.
    pub(super) fn at(&self, now: u64) -> Micros {
        self.ticks.at(now)
    }

    /// Whether the node is not stopped.
    pub(super) const fn runs(&self, now: u64) -> bool {
        now >= self.stopped_until
    }

    /// Stops the node until this time at least.
    pub(super) fn stop(&mut self, until: u64) {
        self.stopped_until = self.stopped_until.max(until);
    }

    /// Asks for an operation on a key. Returns the node's own answer, or what the node asks for beside the operation.
    pub(super) fn ask(
        &mut self,
        (number, key): (usize, &Key),
        operation: &Operation,
        (time, at): (Timestamp, Micros),
    ) -> Result<Result<Verdict, Option<Operation>>, Seen> {
        let NodeStep { answer, mut own } = self.local.ask(&key.resolved, operation, time, at);
        let is_budget = |own: &mut Transmit| matches!(own.operation, Operation::Budget(_));
        let budget = own.extract_if(.., is_budget).next().map(|own| own.operation);
        self.due.extend(own);
        if let Some(answer) = answer {
            let (verdict, decision) = (answer.verdict(), answer.decision());
            check(verdict.decision == decision, Invariant::Remembered, || {
                format!("{operation:?} was answered with {decision:?} and {verdict:?}")
            })?;
            return Ok(Ok(verdict));
        }
        for passed in [Some(operation), budget.as_ref()].into_iter().flatten() {
            self.known.passes(number, passed, at);
        }
        Ok(Err(budget))
    }

    /// The next operation of the node itself that is due.
    pub(super) fn poll_due(&mut self, time: Timestamp, at: Micros) -> Option<Transmit> {
        self.due.pop_front().or_else(|| self.local.poll_transmit(time, at))
    }

    /// Hears a verdict on a key, after a question that was sent at this time of the world.
    pub(super) fn hear(&mut self, key: usize, heard: &VerdictOf<'_>, sent_at: u64) {
        self.known.hears((key, sent_at), heard);
        self.local.handle_verdict(heard);
    }

    /// Checks an answer that the node has given by itself now. Units can be checked if the world knows what is lent.
    pub(super) fn check_answer(
        &self,
        lending: Option<&mut Lending>,
        (number, key): (usize, &Key),
        operation: &Operation,
        (said, time): (&Verdict, Timestamp),
        now: u64,
    ) -> Result<ByNode, Seen> {
        if let Rule::Listed(decision) = key.resolved.rule() {
            let listed = Verdict::listed(time, decision);
            check(*said == listed, Invariant::Reason, || {
                format!("{operation:?}: expected {listed:?}, found {said:?}")
            })?;
            return Ok(ByNode::Listed);
        }
        if key.resolved.policy().reports() {
            return Ok(ByNode::Factor);
        }
        let at = self.at(now);
        if !said.decision.is_allowed() {
            let sent_at = self.known.repeated((number, key), operation, said, at);
            return sent_at.map(ByNode::Repeated).ok_or_else(|| {
                let known = &self.known;
                let seen = format!("{operation:?} at {at:?}: {said:?}; the node knows {known:?}");
                Seen(Invariant::Remembered, seen)
            });
        }
        let (Some(local), Operation::Decide(request)) = (key.resolved.policy().local(), operation)
        else {
            let seen = format!("{operation:?} was granted by a node: {said:?}");
            return Err(Seen(Invariant::Conserved, seen));
        };
        let spent = (request.cost, local.period());
        let taken_by = lending.map(|lending| lending.spend((self, number), said, spent, now));
        Ok(ByNode::Spent(taken_by.transpose()?))
    }
}
