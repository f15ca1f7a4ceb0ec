//! The words of answers: JSON, header fields, problems, and the page for browsers.

pub(crate) mod forms;
pub(crate) mod headers;
pub(crate) mod json;
pub(crate) mod page;
pub(crate) mod problem;

use alloc::string::String;

use tidegate_gate::{Asked, Limits, OnError, Policy, Softness, Verdict};

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

    /// What the limits on the key say of the verdict beside their decision.
    pub(crate) fn softness(&self, verdict: &Verdict) -> Softness {
        self.limits().map_or_else(Softness::default, |limits| limits.softness(verdict))
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
