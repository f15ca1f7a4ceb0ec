//! The answer of a node, derived from a verdict of the authority.

use alloc::sync::Arc;
use alloc::vec;
use core::sync::atomic::{AtomicU64, Ordering};

use tidegate_gate::{Decision, Effect, Micros, Probability, Timestamp, Verdict};

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
    Spent(Arc<Verdict>, Held),
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

/// Counts the answers of a node by their kind.
#[derive(Debug, Default)]
pub struct Counts([AtomicU64; 3]);

impl Counts {
    /// Counts an answer.
    pub fn count(&self, kind: Kind) {
        let Self([remembered, lent, factor]) = self;
        let counter = match kind {
            Kind::Remembered => remembered,
            Kind::Lent => lent,
            Kind::Factor => factor,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// The names of all kinds, with the number of their answers.
    #[must_use]
    pub fn all(&self) -> [(&'static str, u64); 3] {
        let Self([remembered, lent, factor]) = self;
        [("remembered", remembered), ("lent", lent), ("factor", factor)]
            .map(|(name, counter)| (name, counter.load(Ordering::Relaxed)))
    }
}

/// The units out of which a node has granted a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
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
    pub(super) fn spent(verdict: &Arc<Verdict>, held: Held) -> Self {
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
fn after_spending(decision: Decision, held: Held) -> Decision {
    let limit = decision.limit();
    let remaining = decision.remaining().saturating_add(held.left).min(limit);
    Decision::Allow { limit, remaining, reset_after: less(decision.reset_after(), held.elapsed) }
}
