//! Decisions, and the errors of deciding.

use core::fmt;

use crate::time::Micros;

/// A limiter's answer to one request. All spans start at the time at which the decision is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a decision that nobody reads limits nothing"]
pub enum Decision {
    /// The request may pass. Its cost was consumed.
    Allow {
        /// The most units that a request can ever take at once.
        limit: u64,
        /// The units that the next request could take at this moment, rounded down.
        remaining: u64,
        /// The span until the state equals a fresh one, if no other request comes.
        reset_after: Micros,
    },
    /// The request must not pass. Nothing was consumed.
    Deny {
        /// The most units that a request can ever take at once.
        limit: u64,
        /// The units that a cheaper request could take at this moment, rounded down.
        remaining: u64,
        /// The span until the first microsecond at which the same request is granted, if no other
        /// request comes. One microsecond earlier it is still refused. [`Micros::MAX`] if no wait helps.
        retry_after: Micros,
        /// The span until the state equals a fresh one, if no other request comes.
        reset_after: Micros,
    },
}

impl Decision {
    /// Whether the request may pass.
    pub const fn is_allowed(&self) -> bool {
        matches!(self, Self::Allow { .. })
    }

    /// Whether no request on the key ever passes, whatever it costs and however long the caller waits: the key is on the list
    /// `deny` of its policy.
    ///
    /// ```
    /// use tidegate_core::{Decision, Micros};
    /// let refused = |limit, retry_after| {
    ///     Decision::Deny { limit, remaining: 0, retry_after, reset_after: retry_after }
    /// };
    /// assert!(refused(0, Micros::MAX).is_listed());
    /// assert!(!refused(5, Micros::MAX).is_listed()); // a cheaper request may pass
    /// assert!(!refused(5, Micros(1)).is_listed());
    /// ```
    pub const fn is_listed(&self) -> bool {
        matches!(self, Self::Deny { limit: 0, retry_after: Micros::MAX, .. })
    }

    /// The most units that a request can ever take at once.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        match self {
            Self::Allow { limit, .. } | Self::Deny { limit, .. } => *limit,
        }
    }

    /// The units that a request can still take at this moment, rounded down.
    #[must_use]
    pub const fn remaining(&self) -> u64 {
        match self {
            Self::Allow { remaining, .. } | Self::Deny { remaining, .. } => *remaining,
        }
    }

    /// The span until the same request is granted. Zero if it was granted.
    #[must_use]
    pub const fn retry_after(&self) -> Micros {
        match self {
            Self::Allow { .. } => Micros::ZERO,
            Self::Deny { retry_after, .. } => *retry_after,
        }
    }

    /// The whole seconds to wait, rounded up, for the header `Retry-After`. `None` if the request was granted, and if
    /// no wait leads to a grant, as for a key that is denied: then `retry_after` is [`Micros::MAX`].
    ///
    /// ```
    /// use tidegate_core::{Decision, Micros};
    /// let (limit, remaining, reset_after) = (5, 0, Micros(2_000_000));
    /// let refused = |retry_after| Decision::Deny { limit, remaining, retry_after, reset_after };
    /// assert_eq!(refused(Micros(1_500_000)).retry_after_secs(), Some(2));
    /// assert_eq!(refused(Micros::MAX).retry_after_secs(), None);
    /// assert_eq!(Decision::Allow { limit, remaining, reset_after }.retry_after_secs(), None);
    /// ```
    #[must_use]
    pub const fn retry_after_secs(&self) -> Option<u64> {
        match self {
            Self::Deny { retry_after, .. } if retry_after.0 < Micros::MAX.0 => {
                Some(retry_after.as_secs_ceil())
            }
            _ => None,
        }
    }

    /// The span until the state equals a fresh one, if no other request comes.
    #[must_use]
    pub const fn reset_after(&self) -> Micros {
        match self {
            Self::Allow { reset_after, .. } | Self::Deny { reset_after, .. } => *reset_after,
        }
    }
}

/// A decision, or the error that no wait can lead to a grant.
pub type Answer = Result<Decision, CostExceedsCapacity>;

/// The request costs more than the limiter can ever grant. This is not a refusal: waiting does not
/// help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostExceedsCapacity {
    /// The cost of the request.
    pub cost: u64,
    /// The most units that can be granted at once.
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

/// The words are not a state that operations under this configuration can produce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidState;

impl fmt::Display for InvalidState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the stored words are not a state that this configuration can produce")
    }
}

impl core::error::Error for InvalidState {}

#[cfg(test)]
mod tests;
