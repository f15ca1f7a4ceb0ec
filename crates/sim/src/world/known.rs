//! What a node's cache may know of its keys.

use std::collections::BTreeMap;

use tidegate_gate::{Budget, Decision, Kind, Limits, Micros, Operation, Timestamp, Verdict};
use tidegate_tier::cache::VerdictOf;

use super::places::Key;

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

/// Whether an operation may give units back or end a refusal.
pub(super) const fn gives_back(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::Refund(_)
            | Operation::Commit(..)
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
        let note = |times: &mut BTreeMap<usize, Micros>| {
            let last = times.entry(key).or_default();
            *last = at.max(*last); // the world sees late what a node itself asks for
        };
        if gives_back(operation) {
            note(&mut self.relaxed);
        }
        if let Operation::Reset(_) | Operation::Block(_) = operation {
            note(&mut self.stopped);
        }
    }

    /// The node hears a verdict on a key, after a question that was sent at this time of the world.
    pub(super) fn hears(&mut self, (key, sent_at): (usize, u64), heard: &VerdictOf<'_>) {
        let VerdictOf { operation, verdict, sent, at, .. } = *heard;
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

    /// When the question was sent whose refusal the node repeats: the node must have heard this refusal, no longer ago
    /// than its policy says, and nothing of its own may have ended it.
    pub(super) fn repeated(
        &self,
        (number, key): (usize, &Key),
        operation: &Operation,
        said: &Verdict,
        at: Micros,
    ) -> Option<u64> {
        let (Operation::Decide(request) | Operation::Peek(request)) = operation else {
            return None;
        };
        let (limits, remember) = (key.resolved.limits()?, key.resolved.policy().remember()?);
        let mut known = self.holding(number, request.cost, at).filter(|refusal| {
            let elapsed = at.0 - refusal.sent.0;
            let is_told = refusal.after(elapsed) == (said.at, said.decision);
            is_told && elapsed < remember.0 && refusal.is_lasting(limits)
        });
        known.next().map(|refusal| refusal.sent_at).filter(|_| request.cost > 0)
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
