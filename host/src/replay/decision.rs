//! Decisions as JSON has them.

use serde::{Deserialize, Serialize};
use tidegate_gate::{Decision, Micros};

/// A decision in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are those of Decision, spans in microseconds")]
pub struct DecisionForm {
    pub allowed: bool,
    pub limit: u64,
    pub remaining: u64,
    pub retry_after_us: u64,
    pub reset_after_us: u64,
}

impl From<Decision> for DecisionForm {
    fn from(decision: Decision) -> Self {
        Self {
            allowed: decision.is_allowed(),
            limit: decision.limit(),
            remaining: decision.remaining(),
            retry_after_us: decision.retry_after().0,
            reset_after_us: decision.reset_after().0,
        }
    }
}

impl From<DecisionForm> for Decision {
    fn from(form: DecisionForm) -> Self {
        let DecisionForm { limit, remaining, .. } = form;
        let reset_after = Micros(form.reset_after_us);
        if form.allowed {
            Self::Allow { limit, remaining, reset_after }
        } else {
            Self::Deny { limit, remaining, retry_after: Micros(form.retry_after_us), reset_after }
        }
    }
}
