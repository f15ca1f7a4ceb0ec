//! The calls by their paths and methods.

use alloc::borrow::Cow;
use alloc::string::{String, ToString};

use super::access::Scope;
use super::call::Call;
use super::policies::{self, PolicyCall, Unread};
use super::problem::{Problem, answer_json};
use super::query::{self, Gate};
use super::{Access, Head, Plan, Response, located};
use crate::ask::Chance;
use crate::policy::Policies;
use crate::quote::Quoted;

/// The next step of a request.
#[derive(Debug)]
pub(super) enum Step {
    Answer(Response),
    ReadBody(Call),
    Gate(Gate),
    Decide(Plan),
    /// Show what the server has counted.
    Metrics,
    /// Show the policies in force.
    Show,
    /// Ask for the editions of the policies.
    Editions(PolicyCall),
    /// Read the body of a change of the policies.
    ReadChange(Unread),
}

/// The call that a path names.
enum Route<'a> {
    Health,
    Metrics,
    Gate,
    /// A call with a body.
    Post(Call),
    Lease(&'a str),
    Policies(PolicyRoute),
    Key {
        policy: &'a str,
        key: &'a str,
    },
}

enum PolicyRoute {
    InForce,
    History,
    File,
    Restore,
}

pub(super) fn step(
    policies: &Policies,
    access: &Access,
    head: &Head<'_>,
    chance: Chance<'_>,
) -> Step {
    step_or_answer(policies, access, head, chance).unwrap_or_else(Step::Answer)
}

fn step_or_answer(
    in_force: &Policies,
    access: &Access,
    head: &Head<'_>,
    chance: Chance<'_>,
) -> Result<Step, Response> {
    let route = Route::of(head.path).ok_or_else(|| {
        let expected = "expected a path such as /v1/check, found ";
        located(Problem::NotFound, expected, Quoted(head.path))
    })?;
    let methods = route.methods();
    if !methods.contains(&head.method) {
        let methods = methods.join(", ");
        let detail = alloc::format!("expected one of {methods}; found {}", Quoted(head.method));
        let mut response = Problem::MethodNotAllowed.response(detail);
        response.headers.push(("allow", methods));
        return Err(response);
    }
    if let Some(scope) = route.scope(head.method) {
        access.check(scope, || (head.header)("authorization"))?;
    }
    let plan = match route {
        Route::Health => {
            return Ok(Step::Answer(answer_json(200, "{\"status\":\"ok\"}".to_string())));
        }
        Route::Metrics => return Ok(Step::Metrics),
        Route::Gate => return Ok(Step::Gate(Gate::read(in_force, head)?)),
        Route::Post(call) => return Ok(Step::ReadBody(call)),
        Route::Lease(lease) => {
            let lease = decoded("lease", lease)?;
            if head.method == "PUT" {
                return Ok(Step::ReadBody(Call::Renew(lease)));
            }
            query::release(in_force, head, &lease)?
        }
        Route::Policies(route) => return policies_step(route, head),
        Route::Key { policy, key } => {
            let posted = blocked(key).filter(|_| head.method == "POST");
            let policy_key = named(policy, posted.unwrap_or(key))?;
            if posted.is_some() {
                let (policy, key) = policy_key;
                return Ok(Step::ReadBody(Call::Block(policy, key)));
            }
            query::key(in_force, head, policy_key, chance)?
        }
    };
    Ok(Step::Decide(plan))
}

fn policies_step(route: PolicyRoute, head: &Head<'_>) -> Result<Step, Response> {
    Ok(match route {
        PolicyRoute::InForce if head.method != "PUT" => Step::Show,
        PolicyRoute::InForce => Step::ReadChange(Unread::put(head)?),
        PolicyRoute::Restore => Step::ReadChange(Unread::restore(head)?),
        PolicyRoute::History => Step::Editions(PolicyCall::History),
        PolicyRoute::File => Step::Editions(policies::file(head)?),
    })
}

impl<'a> Route<'a> {
    fn of(path: &'a str) -> Option<Self> {
        Some(match path {
            "/healthz" => Self::Health,
            "/metrics" => Self::Metrics,
            "/v1/gate" => Self::Gate,
            "/v1/check" => Self::Post(Call::Check),
            "/v1/leases" => Self::Post(Call::Acquire),
            "/v1/settle" => Self::Post(Call::Settle),
            "/v1/budget" => Self::Post(Call::Budget),
            "/v1/report" => Self::Post(Call::Report),
            "/v1/policies" => Self::Policies(PolicyRoute::InForce),
            "/v1/policies/history" => Self::Policies(PolicyRoute::History),
            "/v1/policies/file" => Self::Policies(PolicyRoute::File),
            "/v1/policies/restore" => Self::Policies(PolicyRoute::Restore),
            path => match path.strip_prefix("/v1/leases/") {
                Some(lease) => Self::Lease(Some(lease).filter(|lease| !lease.is_empty())?),
                None => {
                    let (policy, key) = path.strip_prefix("/v1/keys/")?.split_once('/')?;
                    Self::Key { policy, key }
                }
            },
        })
    }

    /// The right that a call needs; `None` if it needs no token.
    fn scope(&self, method: &str) -> Option<Scope> {
        match self {
            Self::Health => None,
            Self::Policies(PolicyRoute::InForce) if method != "PUT" => Some(Scope::Decisions),
            Self::Policies(_) => Some(Scope::Policies),
            Self::Key { .. } if matches!(method, "DELETE" | "POST") => Some(Scope::Administration),
            _ => Some(Scope::Decisions),
        }
    }

    fn methods(&self) -> &'static [&'static str] {
        match *self {
            Self::Health | Self::Metrics | Self::Gate => &["GET", "HEAD"],
            Self::Policies(PolicyRoute::InForce) => &["GET", "HEAD", "PUT"],
            Self::Policies(PolicyRoute::History | PolicyRoute::File) => &["GET", "HEAD"],
            Self::Post(_) | Self::Policies(PolicyRoute::Restore) => &["POST"],
            Self::Lease(_) => &["PUT", "DELETE"],
            Self::Key { key, .. } if blocked(key).is_some() => &["GET", "HEAD", "DELETE", "POST"],
            Self::Key { .. } => &["GET", "HEAD", "DELETE"],
        }
    }
}

/// The key that a `POST` to this path would block. The other methods mean a key that itself ends with
/// `/block`.
fn blocked(key: &str) -> Option<&str> {
    key.strip_suffix("/block")
}

/// The policy and key of a path.
fn named(policy: &str, key: &str) -> Result<(String, String), Response> {
    if key.split('/').any(|segment| matches!(&*unescaped(segment), b"." | b"..")) {
        // many clients resolve such segments by themselves, and would name another key
        let detail = "`key`: expected no segment `.` or `..` in the path, found one; \
                      write the slash as %2F";
        return Err(Problem::InvalidRequest.response(detail.to_string()));
    }
    Ok((decoded("policy", policy)?, decoded("key", key)?))
}

fn unescaped(segment: &str) -> Cow<'_, [u8]> {
    percent_encoding::percent_decode_str(segment).into()
}

/// Decodes a segment of a path. Bytes that are not UTF-8 are refused, because a lossy decoding would turn
/// different segments into one name.
fn decoded(what: &str, segment: &str) -> Result<String, Response> {
    let text = percent_encoding::percent_decode_str(segment).decode_utf8();
    text.map(Into::into).map_err(|_| {
        let detail = alloc::format!("`{what}`: expected UTF-8 in the path, found other bytes");
        Problem::InvalidRequest.response(detail)
    })
}
