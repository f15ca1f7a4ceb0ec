//! Why an operation that a caller asked for was not done.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use tidegate_core::CostExceedsCapacity;

use crate::key::{InvalidKey, MAX_LEASE_BYTES};
use tidegate_form::Quoted;

/// Why an operation that a caller asked for was not done. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AskError {
    /// The key is invalid.
    Key(InvalidKey),
    /// The limits can never grant this cost.
    Cost(CostExceedsCapacity),
    /// The policy has no such class.
    #[expect(missing_docs, reason = "the names say it")]
    Class { found: String, allowed: Vec<String> },
    /// The name of a lease or the id of a reservation is empty or too long.
    Lease {
        /// The field that has it.
        field: &'static str,
        /// The length of the name.
        bytes: usize,
    },
    /// No limit on this key holds leases.
    NoLeases {
        /// The name of the policy.
        policy: String,
    },
    /// No limit on this key has the algorithm that the operation needs.
    #[expect(missing_docs, reason = "the names say it")]
    NoLimit { policy: String, algorithm: &'static str },
    /// The policy takes no reservations.
    NoReservations {
        /// The name of the policy.
        policy: String,
    },
    /// The policy keeps no answers for repeats of requests.
    NoIdempotency {
        /// The name of the policy.
        policy: String,
    },
    /// The request reserves nothing.
    NothingReserved,
    /// A listed key cannot be blocked, because it is never counted.
    Listed,
    /// A key cannot be blocked, because no limit of the policy counts by the whole key.
    NoWholeKey,
    /// Units cannot come back, because the operation does not say which payer they belong to.
    UnknownPayer,
    /// The request asks for a lease at a cost of 0.
    FreeLease,
    /// The request has only one of `granted_at_us` and `left`.
    HalfUnspent,
    /// The refund has only one of `granted_at_us` and `granted`.
    HalfGrant,
    /// The refund names more units than its grant has.
    #[expect(missing_docs, reason = "the names say it")]
    BeyondGrant { units: u64, granted: u64 },
    /// A lease needs a random name, and no random numbers are available.
    NoRandomness,
    /// The JSON cannot be read.
    Json {
        /// The field; empty at the top.
        path: String,
        /// What was expected and what was found.
        message: String,
    },
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(error) => error.fmt(f),
            Self::Cost(error) => error.fmt(f),
            Self::Class { found, allowed } => {
                let allowed = allowed.join(", ");
                write!(f, "`class`: expected one of {allowed}; found {}", Quoted(found))
            }
            Self::Lease { field, bytes } => {
                write!(f, "`{field}`: expected 1 to {MAX_LEASE_BYTES} bytes, found {bytes}")
            }
            Self::NoLeases { policy } => {
                write!(f, "`policy`: expected a policy that limits leases, found {policy:?}, which limits none")
            }
            Self::NoLimit { policy, algorithm } => {
                write!(
                    f,
                    "`policy`: expected a policy with a limit `{algorithm}`, found {policy:?}, which has none"
                )
            }
            Self::NoReservations { policy } => write!(
                f,
                "`policy`: expected a policy with `reservations`, found {policy:?}, which has none"
            ),
            Self::NoIdempotency { policy } => write!(
                f,
                "`policy`: expected a policy with `idempotency` for a request with an idempotency key, found {policy:?}, \
                 which has none and would take a repeat for another request"
            ),
            Self::NothingReserved => {
                f.write_str("`cost`: expected at least 1, found 0; a peek reserves nothing")
            }
            Self::Listed => f.write_str(
                "`key`: expected a key with limits, found a key on the policy's list `allow` or `deny`",
            ),
            Self::NoWholeKey => crate::limit::OperationError::NoWholeKey.fmt(f),
            Self::UnknownPayer => crate::limit::OperationError::UnknownPayer.fmt(f),
            Self::FreeLease => {
                f.write_str("`cost`: expected at least 1, found 0; a peek acquires no lease")
            }
            Self::HalfUnspent => f.write_str(
                "`left`: expected both it and the time at which its budget was granted, or neither; found one of them",
            ),
            Self::HalfGrant => f.write_str(
                "`granted_at_us`, `granted`: expected both or neither, found one of them",
            ),
            Self::BeyondGrant { units, granted } => write!(
                f,
                "`units`: expected at most {granted}, which the grant has not returned; found {units}"
            ),
            Self::NoRandomness => f.write_str("no random numbers are available"),
            Self::Json { path, message } if path.is_empty() => f.write_str(message),
            Self::Json { path, message } => write!(f, "`{path}`: {message}"),
        }
    }
}

impl core::error::Error for AskError {}

impl From<InvalidKey> for AskError {
    fn from(error: InvalidKey) -> Self {
        Self::Key(error)
    }
}
