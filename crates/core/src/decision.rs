//! What a limiter answers.

use core::fmt;

use crate::time::Micros;

/// The answer to one request. All spans count from the time at which the decision was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a decision that nobody reads limits nothing"]
pub enum Decision {
    /// The request may pass; its cost has been taken.
    Allow {
        /// The most that could ever be taken at once.
        limit: u64,
        /// What could still be taken at this moment, rounded down.
        remaining: u64,
        /// Until the state equals a fresh one, if nothing else comes.
        reset_after: Micros,
    },
    /// The request must not pass; nothing was consumed.
    Deny {
        /// The most that could ever be taken at once.
        limit: u64,
        /// What a cheaper request could take at this moment, rounded down.
        remaining: u64,
        /// The first microsecond at which the same request is granted if nothing else comes:
        /// refused one microsecond earlier.
        retry_after: Micros,
        /// Until the state equals a fresh one, if nothing else comes.
        reset_after: Micros,
    },
}

impl Decision {
    /// Whether the request may pass.
    pub const fn is_allowed(&self) -> bool {
        matches!(self, Self::Allow { .. })
    }

    /// The most that could ever be taken at once.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        match self {
            Self::Allow { limit, .. } | Self::Deny { limit, .. } => *limit,
        }
    }

    /// What can still be taken at this moment, rounded down.
    #[must_use]
    pub const fn remaining(&self) -> u64 {
        match self {
            Self::Allow { remaining, .. } | Self::Deny { remaining, .. } => *remaining,
        }
    }

    /// How long to wait before the same request is granted; zero if it has been.
    #[must_use]
    pub const fn retry_after(&self) -> Micros {
        match self {
            Self::Allow { .. } => Micros::ZERO,
            Self::Deny { retry_after, .. } => *retry_after,
        }
    }

    /// Until the state equals a fresh one, if nothing else comes.
    #[must_use]
    pub const fn reset_after(&self) -> Micros {
        match self {
            Self::Allow { reset_after, .. } | Self::Deny { reset_after, .. } => *reset_after,
        }
    }
}

/// A decision, or that no waiting could ever lead to a grant.
pub type Answer = Result<Decision, CostExceedsCapacity>;

/// The request costs more than the limiter could ever grant. Not a refusal: waiting is no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostExceedsCapacity {
    /// What was asked for.
    pub cost: u64,
    /// The most that could ever be granted at once.
    pub capacity: u64,
}

impl CostExceedsCapacity {
    pub(crate) const fn check(cost: u64, capacity: u64) -> Result<(), Self> {
        if cost > capacity { Err(Self { cost, capacity }) } else { Ok(()) }
    }
}

impl fmt::Display for CostExceedsCapacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a cost of {} can never be granted: the most at once is {}",
            self.cost, self.capacity
        )
    }
}

impl core::error::Error for CostExceedsCapacity {}

/// Words that no decision of this configuration could have left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidState;

impl fmt::Display for InvalidState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the state holds more than this configuration could have granted")
    }
}

impl core::error::Error for InvalidState {}
