//! The steps of a gateway without routes: for middleware, which runs in the process of the upstream.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Gateway, Lease};
use crate::ask::Chance;
use crate::http::{self, Check, Head, NoKeys, OlderForm, Outcome, Response, invalid_request};
use crate::policy::{Cost, Policy};
use crate::source::{FoundKey, find};

/// A request that passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// The headers to add to the upstream's answer.
    pub headers: Vec<(&'static str, String)>,
    /// The lease to hold until the exchange has ended.
    pub lease: Option<Lease>,
}

/// The key of a request, of which no token can be verified.
///
/// # Errors
/// Returns the response to a request without a key, and to one whose key depends on a token.
pub fn key_of(gateway: &Gateway, policy: &Policy, head: &Head<'_>) -> Result<String, Response> {
    let key = match find(gateway, policy, head) {
        FoundKey::Known(key) => key,
        FoundKey::IfVerified(_) => return Err(NoKeys.into()),
    };
    key.ok_or_else(|| without_key(policy))
}

pub(super) fn without_key(policy: &Policy) -> Response {
    let sources: Vec<_> = policy.key_sources().iter().map(ToString::to_string).collect();
    let sources = sources.join(", else ");
    invalid_request(alloc::format!("expected a request with {sources}; found none of them"))
}

/// The check of a request with this cost. Without one, the request has the cost of the policy, whatever its headers say.
///
/// # Errors
/// Returns the response to a request that can never be granted, or whose key is invalid.
pub fn check_of(
    policy: &Arc<Policy>,
    key: &str,
    cost: Option<u64>,
    chance: Chance<'_>,
) -> Result<Check, Response> {
    let (Cost::Fixed(own) | Cost::Header { default: own, .. }) = *policy.cost();
    Check::of_cost(policy, key, cost.unwrap_or(own), None, chance)
}

/// What a request gets if it passes. Its headers and those of a refusal have the older form, if there is one.
///
/// # Errors
/// Returns the response that refuses the request.
pub fn admitted(
    check: &Check,
    outcome: &Outcome,
    form: Option<OlderForm>,
) -> Result<Admitted, Response> {
    let headers = http::gate_headers(check, outcome, form)?;
    Ok(Admitted { headers, lease: Lease::of(check.asked(), outcome) })
}
