//! Policies: the limits on keys, and everything else that a policy file says.

#[cfg(feature = "timezones")]
mod compile;
mod error;
mod file;
mod jwt;
mod metering;
mod network;
mod nodes;
mod origin;
mod outage;
mod path;
mod payers;
mod persist;
mod policies;
#[expect(clippy::module_inception, reason = "it is what the folder is about")]
mod policy;
mod reservations;
mod resolved;
mod route_policies;
mod routes;
mod rule;
mod source;
#[cfg(test)]
mod tests;
mod timed;
mod warnings;

pub use error::PolicyError;
pub use jwt::{Jwt, SignatureAlgorithm};
pub use metering::{CountIf, FieldPath, IfUnknown, Metering, Sum, Summed, Term, TermSource};
pub use network::Network;
pub use path::{Path, is_authority};
pub use policies::Policies;
pub use policy::{Cost, OnError, Placement, Policy};
pub use reservations::Reservations;
pub use resolved::{Idempotency, Resolved};
pub use route_policies::{MAX_POLICIES, RoutePolicy};
pub use routes::{Gateway, Route, TwoRoutes};
pub use rule::Rule;
pub(crate) use rule::RuleId;
pub use source::{JoinedSources, KeySource, sha256};
pub use timed::{TimedOverride, TimedPolicies};
