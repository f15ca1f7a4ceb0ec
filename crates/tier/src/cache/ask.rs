//! What a node is asked and told, and the answers that it derives from the verdicts of the authority.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;

use tidegate_gate::{
    Decision, Effect, Id, Micros, Operation, Probability, Resolved, Timestamp, Verdict,
};

/// Who a node is, and how much it remembers.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The id under which the node takes units. It must differ from the ids of all other nodes, and from that
    /// of an earlier run of this node.
    pub node: Id,
    /// The most keys that the node remembers. A key takes some 400 bytes, or 800 if the node reports, and never
    /// more than 4 KiB with its name. Beyond this number the node forgets keys that it was not asked about lately.
    pub most_keys: usize,
    /// The seed of the hash table of the keys. It should differ from node to node, so that callers cannot
    /// choose keys that collide.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { node: Id::default(), most_keys: 1 << 14, seed: 0 }
    }
}

/// What to do about an operation, in this order.
#[derive(Debug)]
#[must_use = "the caller waits for an answer"]
pub struct NodeStep {
    /// The answer. Without one, ask the authority.
    pub answer: Option<LocalVerdict>,
    /// Operations of the node itself. Ask the authority for them, one after the other, and tell
    /// [`NodeCache::handle_verdict`](super::NodeCache::handle_verdict) the verdicts. No caller waits for them.
    pub own: Vec<Transmit>,
}

/// An operation of the node itself, to ask the authority for: also a charge or a commit that the node has decided in an
/// [outage](crate::outage).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The key.
    pub resolved: Resolved,
    /// The operation.
    pub operation: Operation,
}

/// What the node makes of an operation.
#[derive(Debug)]
pub(super) enum Next {
    Answer(LocalVerdict),
    /// Ask the authority, and then for units.
    Forward {
        budget: Option<Operation>,
    },
}

/// The authority's verdict on an operation.
#[derive(Clone, Copy, Debug)]
pub struct VerdictOf<'a> {
    /// The key.
    pub resolved: &'a Resolved,
    /// The operation.
    pub operation: &'a Operation,
    /// The verdict.
    pub verdict: &'a Verdict,
    /// The time of the [`NodeCache::ask`](super::NodeCache::ask) that said to ask the authority.
    pub sent: Micros,
    /// The time at which the verdict arrived, by the same clock.
    pub at: Micros,
}

/// An answer without the authority. It shares the verdict from which it follows, so that a caller who needs the
/// decision alone allocates nothing, and so that a lock around the node ends before the verdict is made.
#[derive(Clone, Debug)]
pub struct LocalVerdict(Source);

#[derive(Clone, Debug)]
enum Source {
    Listed(Timestamp, Decision),
    /// A refusal, this long after its question was sent.
    Refused(Arc<Verdict>, Micros),
    /// A grant out of units that the node holds.
    Spent(Arc<Verdict>, LentUnits),
    /// A decision by this factor.
    Reported(Timestamp, Decision, Probability),
}

/// How a node came to an answer without the authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// It repeated a refusal.
    Remembered,
    /// It granted out of units that it had taken in advance.
    Lent,
    /// It decided by the factor that it heard last.
    Factor,
}

/// Counts the answers of a node by their kind. Where threads share the node, the lock around it covers the counts: an atomic
/// number would take 5 ns of each answer.
#[derive(Clone, Debug, Default)]
pub struct Counts([Cell<u64>; 3]);

impl Counts {
    /// Counts an answer.
    pub fn count(&self, kind: Kind) {
        let Self([remembered, lent, factor]) = self;
        let counter = match kind {
            Kind::Remembered => remembered,
            Kind::Lent => lent,
            Kind::Factor => factor,
        };
        counter.set(counter.get().saturating_add(1));
    }

    /// The names of all kinds, with the number of their answers.
    #[must_use]
    pub fn all(&self) -> [(&'static str, u64); 3] {
        let Self([remembered, lent, factor]) = self;
        [("remembered", remembered), ("lent", lent), ("factor", factor)]
            .map(|(name, counter)| (name, counter.get()))
    }
}

/// The units out of which a node has granted a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct LentUnits {
    pub(super) granted_at: Timestamp,
    /// The units that are left.
    pub(super) left: u64,
    /// The span since the node sent for them.
    pub(super) elapsed: Micros,
}

impl LocalVerdict {
    pub(super) const fn listed(now: Timestamp, decision: Decision) -> Self {
        Self(Source::Listed(now, decision))
    }

    #[inline]
    pub(super) fn refused(verdict: &Arc<Verdict>, elapsed: Micros) -> Self {
        Self(Source::Refused(Arc::clone(verdict), elapsed))
    }

    #[inline]
    pub(super) fn spent(verdict: &Arc<Verdict>, held: LentUnits) -> Self {
        Self(Source::Spent(Arc::clone(verdict), held))
    }

    #[inline]
    pub(super) const fn reported(at: Timestamp, decision: Decision, factor: Probability) -> Self {
        Self(Source::Reported(at, decision, factor))
    }

    /// How the node came to the answer; `None` for a listed key, which no store is asked about either.
    #[must_use]
    pub const fn kind(&self) -> Option<Kind> {
        match self.0 {
            Source::Listed(..) => None,
            Source::Refused(..) => Some(Kind::Remembered),
            Source::Spent(..) => Some(Kind::Lent),
            Source::Reported(..) => Some(Kind::Factor),
        }
    }

    /// The decision.
    #[inline]
    pub fn decision(&self) -> Decision {
        match &self.0 {
            Source::Listed(_, decision) | Source::Reported(_, decision, _) => *decision,
            Source::Refused(verdict, elapsed) => later(verdict.decision, *elapsed),
            Source::Spent(verdict, held) => after_spending(verdict.decision, *held),
        }
    }

    /// The verdict with what each limit says.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let (verdict, at) = match &self.0 {
            Source::Listed(now, decision) => return Verdict::listed(*now, *decision),
            Source::Reported(at, decision, factor) => {
                let (at, decision, factor) = (*at, *decision, Some(*factor));
                let limits = vec![decision];
                let effect = Effect::Decision;
                return Verdict { at, decision, limits, factor, effect, degraded: false };
            }
            Source::Refused(verdict, elapsed) => (verdict, verdict.at.saturating_add(*elapsed)),
            Source::Spent(verdict, held) => (verdict, held.granted_at),
        };
        let each = |said: &Decision| match &self.0 {
            Source::Spent(_, held) => after_spending(*said, *held),
            Source::Refused(_, elapsed) => later(*said, *elapsed),
            Source::Listed(..) | Source::Reported(..) => *said,
        };
        Verdict {
            at,
            decision: self.decision(),
            limits: verdict.limits.iter().map(each).collect(),
            factor: verdict.factor,
            effect: Effect::Decision,
            degraded: false,
        }
    }
}

/// The same decision after a span in which nothing was granted.
#[inline]
const fn later(decision: Decision, elapsed: Micros) -> Decision {
    match decision {
        Decision::Allow { limit, remaining, reset_after } => {
            let reset_after = less(reset_after, elapsed);
            Decision::Allow { limit, remaining, reset_after }
        }
        Decision::Deny { limit, remaining, retry_after, reset_after } => {
            let (retry_after, reset_after) =
                (less(retry_after, elapsed), less(reset_after, elapsed));
            Decision::Deny { limit, remaining, retry_after, reset_after }
        }
    }
}

/// What is left of a span. The longest span stands for never: a bucket that starts empty is never like a fresh one.
#[inline]
const fn less(span: Micros, elapsed: Micros) -> Micros {
    if span.0 >= Micros::MAX.0 { span } else { Micros(span.0.saturating_sub(elapsed.0)) }
}

/// What the limits would say if the units that are left came back to them.
#[inline]
fn after_spending(decision: Decision, held: LentUnits) -> Decision {
    let limit = decision.limit();
    let remaining = decision.remaining().saturating_add(held.left).min(limit);
    Decision::Allow { limit, remaining, reset_after: less(decision.reset_after(), held.elapsed) }
}
