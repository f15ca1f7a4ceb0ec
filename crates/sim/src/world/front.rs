//! What a world knows of a node without its code: its clock, and what it may answer by itself.

use tidegate_gate::{Id, Limiter, Micros, Operation, Rule, Timestamp, Verdict};
use tidegate_tier::cache::{LocalVerdict, Options};

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

/// The options of a node's cache.
pub(super) fn cache_options(setup: &Setup, run: Run) -> Options {
    Options { node: id(run), most_keys: setup.most_keys, seed: setup.start }
}

/// The verdict of an answer. Its decision must be the one that a caller gets who needs no more.
pub(super) fn verdict_of(answer: &LocalVerdict) -> Result<Verdict, Seen> {
    let (verdict, decision) = (answer.verdict(), answer.decision());
    check(verdict.decision == decision, Invariant::Remembered, || {
        format!("answered with {decision:?} and {verdict:?}")
    })?;
    Ok(verdict)
}

#[derive(Debug)]
pub(super) struct Front {
    pub(super) run: Run,
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
    /// Units that the node has taken in advance.
    Spent,
}

impl Front {
    /// A node that starts now.
    pub(super) fn new(setup: &Setup, run: Run, revision: usize, now: u64) -> Self {
        let (known, ticks) = (Known::default(), setup.ticks(run.0, now));
        Self { run, known, ticks, revision, stopped_until: 0 }
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
        lending.map_or(Ok(()), |lending| lending.spend((self, number), said, spent, now))?;
        Ok(ByNode::Spent)
    }
}
