//! The answer to an operation.

use alloc::vec::Vec;

use crate::decide::Limits;
use tidegate_core::lease::budget::Allowance;
use tidegate_core::shed::Probability;
use tidegate_core::{Decision, Micros, Timestamp};

/// A decision, and what each limit says in the order of [`Limits::iter`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The time of the decision, which is never before that of an earlier decision on this key. A settlement
    /// names this time.
    pub at: Timestamp,
    /// The answer of all limits together.
    pub decision: Decision,
    /// What each limit says after the decision. In a refusal, the limits that would have granted the request
    /// allow it, and nothing was taken from them.
    pub limits: Vec<Decision>,
    /// The fraction of the load that reporters must refuse; `None` without a `suppression` limit.
    pub factor: Option<Probability>,
    /// What the operation did beside deciding.
    pub effect: Effect,
}

/// What an operation did beside deciding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effect {
    /// The operation concerns neither a lease nor a budget, or the key is listed: the decision says all.
    Decision,
    /// The operation renewed, counted or released a lease.
    Lease {
        /// Whether the lease was live.
        live: bool,
    },
    /// The operation asked for a budget.
    Budget {
        /// Whether the units that the holder gave back were still its own; `None` if it gave none back.
        returned: Option<bool>,
        /// The units that the holder may spend without asking.
        allowance: Allowance,
    },
}

impl Effect {
    /// The effect with these values of [`live`](Self::live) and [`allowance`](Self::allowance).
    #[must_use]
    pub const fn of(live: Option<bool>, allowance: Option<Allowance>) -> Self {
        match (live, allowance) {
            (None, None) => Self::Decision,
            (Some(live), None) => Self::Lease { live },
            (returned, Some(allowance)) => Self::Budget { returned, allowance },
        }
    }

    /// Whether the lease, or the grant that the holder gave back, was live; `None` if the operation concerns
    /// neither.
    #[must_use]
    pub const fn live(&self) -> Option<bool> {
        match *self {
            Self::Decision => None,
            Self::Lease { live } => Some(live),
            Self::Budget { returned, .. } => returned,
        }
    }

    /// The units that a holder may spend without asking; `None` if the operation asked for no budget.
    #[must_use]
    pub const fn allowance(&self) -> Option<Allowance> {
        match *self {
            Self::Budget { allowance, .. } => Some(allowance),
            Self::Decision | Self::Lease { .. } => None,
        }
    }
}

impl Verdict {
    /// The verdict on a listed key, on which there are no limits.
    #[must_use]
    pub const fn listed(at: Timestamp, decision: Decision) -> Self {
        Self { at, decision, limits: Vec::new(), factor: None, effect: Effect::Decision }
    }

    /// The same verdict as a refusal for ever, because some limits can never grant the cost.
    #[must_use]
    pub(crate) fn refused_for_ever(mut self, limits: &Limits, cost: u64) -> Self {
        self.decision = for_ever(self.decision);
        for (each, decision) in limits.iter().zip(&mut self.limits) {
            if each.limit.capacity() < cost {
                *decision = for_ever(*decision);
            }
        }
        self
    }
}

/// The same decision as a refusal that no wait ends.
const fn for_ever(looked: Decision) -> Decision {
    let (limit, remaining) = (looked.limit(), looked.remaining());
    let (retry_after, reset_after) = (Micros::MAX, looked.reset_after());
    Decision::Deny { limit, remaining, retry_after, reset_after }
}
