//! Where a request has its key: headers, cookies, the query, the client's address or country, and claims of a token.
//!
//! A value that the upstream might read differently, or not see at all, is absent.

mod address;
mod cookie;
mod find;
mod spelling;
#[cfg(test)]
mod tests;
pub(crate) mod token;

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use tidegate_gate::{Gateway, JoinedSources, KeySource, Policy};

use crate::answer::problem::invalid_request;
use crate::head::{Head, NoKeys};
use crate::response::Response;
use address::FORWARDED_FOR;
pub use address::address;
pub(crate) use address::client_address;
pub(crate) use find::{FoundKey, find};
pub(crate) use spelling::other_spellings;

/// The key of a request, of which no token can be verified.
///
/// # Errors
/// Returns the response to a request without a key, and to one whose key depends on a token.
#[inline(never)]
pub fn key_of(gateway: &Gateway, policy: &Policy, head: &Head<'_>) -> Result<String, Response> {
    let key = match find(gateway, policy, head) {
        FoundKey::Known(key) => key,
        FoundKey::IfVerified { .. } => return Err(NoKeys.into()),
    };
    key.ok_or_else(|| without_key(policy))
}

pub(crate) fn without_key(policy: &Policy) -> Response {
    let sources: Vec<_> = policy.key_sources().iter().map(ToString::to_string).collect();
    let sources = sources.join(", else ");
    invalid_request(alloc::format!("expected a request with {sources}; found none of them"))
}

/// The names of the headers on which the key of a request may depend, each once.
#[must_use]
#[inline(never)]
pub fn key_headers(gateway: &Gateway, policy: &Policy) -> Vec<String> {
    let mut names = Vec::new();
    let mut add = |name: String| {
        if !names.contains(&name) {
            names.push(name);
        }
    };
    for source in policy.key_sources().iter().flat_map(JoinedSources::sources) {
        let source = match (source, gateway.jwt()) {
            (KeySource::Jwt(_) | KeySource::UnverifiedJwt(_), Some(jwt)) => jwt.source(),
            (source, _) => source,
        };
        match source {
            KeySource::Header(name) => {
                add(name.clone());
                other_spellings(name).into_iter().for_each(&mut add);
                add("connection".into());
            }
            KeySource::Cookie(_) => {
                ["cookie", "connection"].map(String::from).into_iter().for_each(&mut add)
            }
            KeySource::Ip if !gateway.trusted_proxies().is_empty() => add(FORWARDED_FOR.into()),
            _ => (),
        }
    }
    names
}
