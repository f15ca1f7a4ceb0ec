//! What a node's local part may know of its keys, and whether the refusals that it repeats are true.

use std::collections::BTreeMap;

use tidegate_gate::{Budget, Decision, Kind, Limits, Micros, Operation, Timestamp, Verdict};

use super::machine::World;
use super::replay::States;
use super::violation::{Checked, Invariant, check};

/// No policy lets a node remember a refusal for longer, in µs.
const LONGEST_REMEMBERED: u64 = 2_000_000;

/// What a node was asked and told. Keys are numbers, times are those of the node's monotonic clock.
#[derive(Debug, Default)]
pub(super) struct Known {
    refusals: Vec<Refusal>,
    /// When the node was last asked for an operation that may give units of a key back, or heard of it.
    relaxed: BTreeMap<usize, Micros>,
    /// The same for a reset and a block.
    stopped: BTreeMap<usize, Micros>,
}

#[derive(Debug)]
struct Refusal {
    key: usize,
    cost: u64,
    sent: Micros,
    /// The time of the world at which the question was sent.
    sent_at: u64,
    verdict: Verdict,
}

/// An operation on a key, and when its question was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question<'a> {
    pub(super) key: usize,
    pub(super) operation: &'a Operation,
    pub(super) sent: Micros,
    pub(super) sent_at: u64,
}

/// Whether an operation may give units back or end a refusal.
pub(super) const fn gives_back(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::Settle(_)
            | Operation::Refund(_)
            | Operation::Release(_)
            | Operation::Count(..)
            | Operation::Reset(_)
            | Operation::Block(_)
            | Operation::Budget(Budget { unspent: Some(_), .. })
    )
}

impl Known {
    /// The node passes a question on, or hears the answer.
    pub(super) fn passes(&mut self, key: usize, operation: &Operation, at: Micros) {
        if gives_back(operation) {
            self.relaxed.insert(key, at);
        }
        if let Operation::Reset(_) | Operation::Block(_) = operation {
            self.stopped.insert(key, at);
        }
    }

    /// The node hears a verdict.
    pub(super) fn hears(&mut self, question: Question<'_>, verdict: &Verdict, at: Micros) {
        let Question { key, operation, sent, sent_at } = question;
        self.passes(key, operation, at);
        self.refusals.retain(|old| at.0 < old.sent.0 + LONGEST_REMEMBERED);
        if let Operation::Decide(request) = operation
            && !verdict.decision.is_allowed()
        {
            let (cost, verdict) = (request.cost, verdict.clone());
            self.refusals.push(Refusal { key, cost, sent, sent_at, verdict });
        }
    }

    /// Whether the node may spend units of a key that it sent for at this time.
    pub(super) fn may_spend(&self, key: usize, sent: Micros) -> bool {
        self.stopped.get(&key).is_none_or(|stopped| *stopped < sent)
    }

    /// The refusals that hold for a request of this cost.
    fn holding(&self, key: usize, cost: u64, at: Micros) -> impl Iterator<Item = &Refusal> {
        let relaxed = self.relaxed.get(&key).copied();
        self.refusals.iter().filter(move |refusal| {
            let is_older = relaxed.is_some_and(|relaxed| refusal.sent <= relaxed);
            let is_own = refusal.key == key && refusal.cost <= cost;
            is_own && !is_older && at.0 < refusal.sent.0 + refusal.wait().0
        })
    }
}

impl Refusal {
    fn wait(&self) -> Micros {
        self.verdict.decision.retry_after()
    }

    /// The time and the decision that the node repeats so long after its question.
    fn after(&self, elapsed: u64) -> (Timestamp, Decision) {
        let less = |span: Micros| match span {
            Micros::MAX => span, // it never ends
            Micros(span) => Micros(span.saturating_sub(elapsed)),
        };
        let said = &self.verdict.decision;
        let (limit, remaining) = (said.limit(), said.remaining());
        let (retry_after, reset_after) = (less(said.retry_after()), less(said.reset_after()));
        let decision = Decision::Deny { limit, remaining, retry_after, reset_after };
        (Timestamp(self.verdict.at.0 + elapsed), decision)
    }

    /// Only limits that give units back with time alone refuse.
    fn is_lasting(&self, limits: &Limits) -> bool {
        let mut each = limits.iter().zip(&self.verdict.limits);
        each.all(|(named, said)| said.is_allowed() || named.limit.kind() == Kind::Rate)
    }
}

impl World {
    /// A node has refused a request by itself. It must have heard this refusal, no longer ago than its policy
    /// says, and nothing of its own may have ended it.
    pub(super) fn check_repeated(&mut self, number: usize, said: &Verdict) -> Checked {
        let asking = &self.operations[number];
        let (node, key) = (&self.nodes[asking.node], &self.places.keys[asking.key]);
        let cost = match asking.operation {
            Operation::Decide(request) | Operation::Peek(request) => request.cost,
            _ => 0,
        };
        let remember = key.resolved.policy().remember().unwrap_or_default();
        let at = asking.sent;
        let mut known = node.known.holding(asking.key, cost, at).filter(|refusal| {
            let elapsed = at.0 - refusal.sent.0;
            let is_told = refusal.after(elapsed) == (said.at, said.decision);
            let limits = key.resolved.limits();
            is_told && elapsed < remember.0 && limits.is_some_and(|own| refusal.is_lasting(own))
        });
        let sent_at = known.next().map(|refusal| refusal.sent_at);
        drop(known);
        check(sent_at.is_some() && cost > 0, Invariant::Remembered, || {
            format!(
                "number {number}, {asking:?}: the node said {said:?}; it knows {:?}",
                node.known
            )
        })?;
        self.tally.add("a node repeated a refusal");
        self.check_still_refused(number, sent_at.unwrap_or(0))
    }

    /// The authority would refuse the request at this moment, unless units have come back since the node
    /// asked. Clocks that differ by some span make a node repeat a refusal for so much longer.
    fn check_still_refused(&mut self, number: usize, sent_at: u64) -> Checked {
        let asking = &self.operations[number];
        let key = &self.places.keys[asking.key];
        let is_foreign = |record: &usize| self.foreign_until[*record].is_some();
        let is_relaxed = |record: &usize| self.relaxed[*record].is_some_and(|at| at >= sent_at);
        if !self.setup.is_bounded
            || !key.is_unedited
            || key.records.iter().any(|record| is_foreign(record) || is_relaxed(record))
        {
            return Ok(());
        }
        let late = match self.setup.ticks_ppm.iter().all(|ppm| *ppm == 0) {
            true => 2 * self.setup.skew,
            false => 2 * self.setup.skew + self.setup.ticks_late(self.now - sent_at),
        };
        let now = self.storage_now();
        let partition = self.places.partitions[key.partition].iter();
        let mut states =
            States::read(partition.map(|record| (*record, self.storage.get(*record, now))));
        let time = Timestamp(asking.time.0 - late);
        let (Operation::Decide(request) | Operation::Peek(request)) = asking.operation else {
            return Ok(());
        };
        let truth = states.operate(key, time, &Operation::Peek(request));
        let is_later = truth.as_ref().is_ok_and(|verdict| verdict.at > time);
        if is_later {
            return Ok(()); // another clock has moved the key's
        }
        self.tally.add("a repeated refusal was that of the authority");
        check(
            truth.as_ref().is_ok_and(|said| !said.decision.is_allowed()),
            Invariant::Remembered,
            || {
                format!(
                    "number {number}, {asking:?}: a node refused, and the authority says {truth:?}"
                )
            },
        )
    }
}
