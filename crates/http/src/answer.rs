//! The words of answers: JSON, header fields, problems, and the page for browsers.

pub(crate) mod forms;
pub(crate) mod headers;
pub(crate) mod json;
pub(crate) mod page;
pub(crate) mod problem;
pub(crate) mod status;

use alloc::borrow::Cow;
use alloc::string::String;

use tidegate_gate::{Asked, Limits, Micros, NamedLimit, OnError, Policy, Softness, Verdict};

/// The outcome of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The store decided the check.
    Decided(Verdict),
    /// The store did not answer, for this reason. The policy's `on_error` decides.
    Unavailable(String),
    /// The store answered, but it holds something else than a state of the policy. The text says what. The policy's `on_error` decides, on
    /// this key alone.
    Unreadable(String),
}

/// An operation that a caller asked for, and its outcome.
#[derive(Clone, Copy)]
pub(crate) struct CheckResult<'a> {
    pub(crate) asked: &'a Asked,
    pub(crate) outcome: &'a Outcome,
    /// Whether other policies decide on the request too, so that names of limits need the policy's name.
    pub(crate) is_one_of_several: bool,
}

/// How often to renew the lease that a request acquired by this verdict; `None` if it acquired none. It is a third of the time to
/// live.
pub(crate) fn renew_every(asked: &Asked, verdict: &Verdict) -> Option<Micros> {
    asked.lease()?;
    let limits = asked.resolved().limits().filter(|_| verdict.decision.is_allowed());
    limits.and_then(Limits::renew_every)
}

impl CheckResult<'_> {
    pub(crate) fn policy(&self) -> &Policy {
        self.asked.resolved().policy()
    }

    /// The name of the policy, if other policies decide on the request too.
    pub(crate) fn name_among_others(&self) -> Option<&str> {
        self.is_one_of_several.then(|| self.policy().name())
    }

    /// The name of a limit for the client. Among several policies it is `policy/limit`, because two of them may have limits of one
    /// name. An only limit may have the policy's name, which is enough then.
    pub(crate) fn name_of<'n>(&self, limit: &'n NamedLimit) -> Cow<'n, str> {
        match self.name_among_others() {
            Some(policy) if policy != limit.name => {
                Cow::Owned(alloc::format!("{policy}/{}", limit.name))
            }
            _ => Cow::Borrowed(&limit.name),
        }
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
            Outcome::Unavailable(_) | Outcome::Unreadable(_) => {
                self.policy().on_error() == OnError::Open || self.policy().is_shadow()
            }
        }
    }
}

/// The verdict on an operation in JSON, as the HTTP API answers it.
#[must_use]
pub fn operation_json(asked: &Asked, verdict: Verdict) -> String {
    let outcome = &Outcome::Decided(asked.said(verdict));
    forms::single(&CheckResult { asked, outcome, is_one_of_several: false })
}
