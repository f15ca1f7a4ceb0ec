//! The words of answers: JSON, header fields, problems, and the page for browsers.

pub(crate) mod forms;
pub(crate) mod headers;
pub(crate) mod json;
pub(crate) mod page;
pub(crate) mod problem;

use alloc::string::String;

use tidegate_gate::{Asked, Limits, OnError, Policy, Verdict};

/// The outcome of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The store decided the check.
    Decided(Verdict),
    /// The store did not answer, for this reason. The policy's `on_error` decides.
    Unavailable(String),
}

/// An operation that a caller asked for, and its outcome.
#[derive(Clone, Copy)]
pub(crate) struct CheckResult<'a> {
    pub(crate) asked: &'a Asked,
    pub(crate) outcome: &'a Outcome,
}

impl CheckResult<'_> {
    pub(crate) fn policy(&self) -> &Policy {
        self.asked.resolved().policy()
    }

    /// The limits on the key; `None` if the key is listed.
    pub(crate) fn limits(&self) -> Option<&Limits> {
        self.asked.resolved().limits()
    }

    /// Whether the request would pass if the policy, or else its limits, were not in shadow; `None` if neither the policy nor a limit on the key is in shadow.
    pub(crate) fn would_allow(&self, verdict: &Verdict) -> Option<bool> {
        let allows = verdict.decision.is_allowed();
        if self.policy().is_shadow() {
            return Some(allows);
        }
        let limits = self.limits().filter(|limits| limits.have_shadows())?;
        Some(allows && !limits.would_refuse(verdict))
    }

    /// Whether the request passes, given the decision, `shadow` and `on_error`.
    pub(crate) fn passes(&self) -> bool {
        match self.outcome {
            Outcome::Decided(verdict) => verdict.decision.is_allowed() || self.policy().is_shadow(),
            Outcome::Unavailable(_) => {
                self.policy().on_error() == OnError::Open || self.policy().is_shadow()
            }
        }
    }
}

/// The verdict on an operation in JSON, as the HTTP API answers it.
#[must_use]
pub fn operation_json(asked: &Asked, verdict: Verdict) -> String {
    let outcome = &Outcome::Decided(asked.said(verdict));
    forms::single(&CheckResult { asked, outcome })
}
