//! One operation of a request, and its outcome.

use alloc::string::String;

use tidegate_gate::{Asked, Draw, Operation, Resolved, Timestamp, Verdict};

/// One operation on one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub(crate) asked: Asked,
    pub(crate) now: Option<Timestamp>,
    pub(crate) draw: Option<Draw>,
}

/// The outcome of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The store decided the check.
    Decided(Verdict),
    /// The store did not answer, for this reason. The policy's `on_error` decides.
    Unavailable(String),
}

impl Check {
    /// The policy, limits and canonical key of the check.
    #[must_use]
    pub const fn resolved(&self) -> &Resolved {
        self.asked.resolved()
    }

    /// The operation to do.
    #[must_use]
    pub const fn operation(&self) -> Operation {
        self.asked.operation()
    }

    /// The operation with the caller's own draw, if it gave one. Only a test environment may use it.
    #[must_use]
    pub fn operation_with_draw(&self) -> Operation {
        match self.draw {
            Some(draw) => self.asked.clone().with_draw(draw).operation(),
            None => self.operation(),
        }
    }

    /// The caller's own time, if it gave one. Only a test environment may use it.
    #[must_use]
    pub const fn caller_time(&self) -> Option<Timestamp> {
        self.now
    }

    /// What the caller is told of an outcome.
    pub(crate) fn said(&self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Decided(verdict) => Outcome::Decided(self.asked.said(verdict)),
            unavailable => unavailable,
        }
    }
}
