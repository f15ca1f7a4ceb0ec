//! The calls on the policy file itself: what is in force, put another file in force, restore an earlier one.

mod editions;
#[cfg(test)]
mod tests;

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::problem::{Problem, answer_json, answer_text};
use super::{Head, Response, forms, query};
use crate::limits::Limits;
use crate::object::Object;
use crate::policy::{OnError, Placement, Policies, Policy};
use crate::quote::Quoted;
pub use editions::{Changed, Editions, InvalidEditions, Stamp};

/// The longest name of an actor.
const MAX_ACTOR_BYTES: usize = 128;

/// Who has changed the policies, if the caller does not say: the scope of the token.
const ADMINISTRATION: &str = "administration";

/// A call about the editions of the policy file. [`Editions::handle`] answers it, where the editions are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum PolicyCall {
    /// List the editions.
    History,
    /// Return the file of this version, or the file in force.
    File(Option<u64>),
    /// Put another file in force.
    Change(Change),
}

/// A change of the policy file in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    to: To,
    /// The header `If-Match`.
    if_match: Option<String>,
    by: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum To {
    /// This file.
    File(String),
    /// The file of this version, or of the one before.
    Version(Option<u64>),
}

/// A change whose body is not read yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    if_match: Option<String>,
    by: String,
}

/// What a change wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    Put,
    Restore,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RestoreBody {
    version: Option<crate::policy::Whole<1>>,
}

impl Header {
    pub(super) fn of(head: &Head<'_>) -> Result<Self, Response> {
        let by = (head.header)("x-tidegate-actor").unwrap_or_else(|| ADMINISTRATION.to_string());
        let is_printable = by.chars().all(|char| !char.is_control());
        if by.is_empty() || by.len() > MAX_ACTOR_BYTES || !is_printable {
            let detail = alloc::format!(
                "the header `x-tidegate-actor`: expected 1 to {MAX_ACTOR_BYTES} bytes without control characters, \
                 found {}",
                Quoted(&by)
            );
            return Err(Problem::InvalidRequest.response(detail));
        }
        Ok(Self { if_match: (head.header)("if-match"), by })
    }

    /// The call, with the body.
    pub(super) fn with(self, want: Want, body: Vec<u8>) -> Result<PolicyCall, Response> {
        let to = match want {
            Want::Put => To::File(String::from_utf8(body).map_err(|_| {
                let detail = "the body: expected a policy file in UTF-8, found other bytes";
                Problem::InvalidRequest.response(detail.to_string())
            })?),
            Want::Restore if body.is_empty() => To::Version(None),
            Want::Restore => {
                let Object(RestoreBody { version }) =
                    crate::ask::parse(&body).map_err(|error| error.response(""))?;
                To::Version(version.map(|version| version.0))
            }
        };
        let Self { if_match, by } = self;
        Ok(PolicyCall::Change(Change { to, if_match, by }))
    }
}

/// `GET /v1/policies/file`
pub(super) fn file(head: &Head<'_>) -> Result<PolicyCall, Response> {
    let [version] = query::fields(head, ["version"])?;
    let version = version.map(|version| query::whole("the query field `version`", &version, 1));
    version.transpose().map(PolicyCall::File)
}

#[derive(Serialize)]
struct Shown<'a> {
    version: u64,
    hash: &'a str,
    needs_token: bool,
    policies: Vec<ShownPolicy<'a>>,
}

#[derive(Serialize)]
struct ShownPolicy<'a> {
    name: &'a str,
    description: Option<&'a str>,
    limits: Vec<ShownLimit<'a>>,
    overrides: usize,
    shadow: bool,
    on_error: &'static str,
    placement: String,
    /// What nodes may do without asking, and what is stored ahead; empty if every decision asks the store.
    modes: Vec<String>,
}

#[derive(Serialize)]
struct ShownLimit<'a> {
    name: &'a str,
    limit: u64,
    period_us: u64,
    description: String,
}

/// `GET /v1/policies`
pub(super) fn show(policies: &Policies, stamp: &Stamp) -> Response {
    let Stamp { version, hash } = stamp;
    let shown = Shown {
        version: *version,
        hash,
        needs_token: policies.needs_token(),
        policies: policies.all().iter().map(|policy| ShownPolicy::of(policy)).collect(),
    };
    stamp.on(answer_json(200, forms::to_json(&shown)))
}

impl<'a> ShownPolicy<'a> {
    fn of(policy: &'a Policy) -> Self {
        Self {
            name: policy.name(),
            description: policy.description(),
            limits: limits(policy.limits()),
            overrides: policy.overrides().len(),
            shadow: policy.is_shadow(),
            on_error: match policy.on_error() {
                OnError::Open => "open",
                OnError::Closed => "closed",
            },
            placement: match policy.placement() {
                Placement::Key => "key".to_string(),
                Placement::Shard(shards) => alloc::format!("shard:{shards}"),
            },
            modes: policy
                .describe_nodes()
                .into_iter()
                .chain(policy.describe_persistence())
                .collect(),
        }
    }
}

fn limits(limits: &Limits) -> Vec<ShownLimit<'_>> {
    let shown =
        |named: &'_ crate::limits::NamedLimit| (named.limit.capacity(), named.limit.period().0);
    let each = limits.iter().map(|named| {
        let (limit, period_us) = shown(named);
        ShownLimit { name: &named.name, limit, period_us, description: named.limit.describe() }
    });
    each.collect()
}

/// A policy file as it was written.
fn text(file: &str, stamp: &Stamp) -> Response {
    stamp.on(answer_text("text/plain; charset=utf-8", file.to_string()))
}
