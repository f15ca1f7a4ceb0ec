//! The calls of the HTTP API, by their paths and methods.

pub(crate) mod call;
pub(crate) mod idempotency;
pub(crate) mod policies;
mod query;

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use tidegate_gate::{Chance, Cost, Policies, Quoted};

use crate::access::Scope;
use crate::answer::json::object;
use crate::answer::problem::{Problem, answer_json, answer_text};
use crate::head::Head;
use crate::key::{self, FoundKey};
use crate::plan::{Keyless, Planned};
use crate::response::Response;
use crate::served::Served;
use crate::state::{Server, State, Watched};
use call::{Call, find};
use idempotency::IdempotencyKey;
use policies::{PolicyCall, UnreadChange};

/// The media type of the text format of Prometheus.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Finds the call of a request, and goes as far as the head leads.
pub(crate) fn begin(
    server: &Server<'_>,
    head: &Head<'_>,
    random: Chance<'_>,
) -> Result<State, Response> {
    let Server { policies, access, .. } = *server;
    let route = Route::of(head.path).ok_or_else(|| {
        let found = Quoted(head.path);
        let detail = alloc::format!("expected a path such as /v1/check, found {found}");
        Problem::NotFound.response(detail)
    })?;
    let methods = route.methods();
    if !methods.contains(&head.method) {
        let methods = methods.join(", ");
        let detail = alloc::format!("expected one of {methods}; found {}", Quoted(head.method));
        let mut response = Problem::MethodNotAllowed.response(detail);
        response.headers.push(("allow", methods.into()));
        return Err(response);
    }
    if let Some(scope) = route.scope(head.method) {
        access.check(scope, head.header)?;
    }
    let with_body = |call| {
        query::none(head)?;
        let key = if head.method == "POST" { IdempotencyKey::of(head)? } else { None };
        Ok(State::Call(call, key.map(Box::new), Arc::clone(policies)))
    };
    match route {
        Route::Health => answered(answer_json(200, "{\"status\":\"ok\"}".to_string())),
        Route::Ready => Ok(State::Probe(server.revision.version)),
        Route::Metrics => answered(answer_text(METRICS_TYPE, (server.metrics)())),
        Route::Watched(what) => {
            let clear = query::are_keys_clear(head)?;
            if clear {
                access.check(Scope::Policies, head.header)?;
            }
            Ok(State::Watch(what, clear))
        }
        Route::Gate => gate(policies, head, random),
        Route::Post(call) => with_body(call),
        Route::Reservation(id, call) => with_body(call(decoded("id", id)?)),
        Route::Lease(lease) => {
            let lease = decoded("lease", lease)?;
            if head.method == "PUT" {
                return with_body(Call::Renew(lease));
            }
            query::release(policies, head, &lease).map(Planned::Once).map(State::Decide)
        }
        Route::Policies(route) => begin_policies(route, server, head),
        Route::Override { policy, key } => {
            query::none(head)?;
            let change = UnreadChange::of_override(head, named(policy, key)?)?;
            Ok(State::Edit(Box::new(change)))
        }
        Route::Key { policy, key } => {
            let posted = blocked(key).filter(|_| head.method == "POST");
            let policy_key = named(policy, posted.unwrap_or(key))?;
            if posted.is_some() {
                policies::actor(head.header)?; // for the log of the server
                let (policy, key) = policy_key;
                return with_body(Call::Block(policy, key));
            }
            query::key(policies, head, policy_key, random).map(Planned::Once).map(State::Decide)
        }
    }
}

fn begin_policies(
    route: PolicyRoute,
    server: &Server<'_>,
    head: &Head<'_>,
) -> Result<State, Response> {
    let with_body = |change| State::Edit(Box::new(change));
    let call = |call| State::Change(Box::new(call));
    if !matches!(route, PolicyRoute::File | PolicyRoute::Restore) {
        query::none(head)?; // those two take a version
    }
    Ok(match route {
        PolicyRoute::InForce if head.method != "PUT" => {
            return answered(policies::show(server.policies, server.revision));
        }
        PolicyRoute::InForce => with_body(UnreadChange::put(head)?),
        PolicyRoute::Restore => with_body(UnreadChange::restore(head)?),
        PolicyRoute::History => call(PolicyCall::History),
        PolicyRoute::Overrides => call(PolicyCall::Overrides),
        PolicyRoute::File => call(policies::file(head)?),
    })
}

/// The answer to `GET /readyz`.
pub(crate) fn ready(version: u64, probed: &Result<Vec<String>, String>) -> Response {
    match probed {
        Ok(warnings) => {
            let warnings: Vec<&str> = warnings.iter().map(String::as_str).collect();
            let body = object(|it| {
                it.field("status", "ok");
                it.field("policies_version", version);
                it.some("warnings", Some(warnings.as_slice()).filter(|all| !all.is_empty()));
            });
            answer_json(200, body)
        }
        Err(reason) => Problem::NotReady.response(reason.clone()),
    }
}

/// The answer to a call about the server itself.
pub(crate) fn watched(told: Result<String, String>) -> Response {
    match told {
        Ok(body) => answer_json(200, body),
        Err(reason) => Problem::NotReady.response(reason),
    }
}

fn answered(response: Response) -> Result<State, Response> {
    Ok(State::Done(Served::Response(response)))
}

/// The call that a path names.
enum Route<'a> {
    Health,
    Ready,
    Metrics,
    Watched(Watched),
    Gate,
    /// A call with a body.
    Post(Call),
    Lease(&'a str),
    /// The end of the reservation with this id.
    Reservation(&'a str, fn(String) -> Call),
    Policies(PolicyRoute),
    /// The override of this key of this policy.
    Override {
        policy: &'a str,
        key: &'a str,
    },
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
    Overrides,
}

impl<'a> Route<'a> {
    fn of(path: &'a str) -> Option<Self> {
        Some(match path {
            "/healthz" => Self::Health,
            "/readyz" => Self::Ready,
            "/metrics" => Self::Metrics,
            "/v1/top" => Self::Watched(Watched::Top),
            "/v1/status" => Self::Watched(Watched::Status),
            "/v1/gate" => Self::Gate,
            "/v1/check" => Self::Post(Call::Check),
            "/v1/explain" => Self::Post(Call::Explain),
            "/v1/leases" => Self::Post(Call::Acquire),
            "/v1/reservations" => Self::Post(Call::Reserve),
            "/v1/refund" => Self::Post(Call::Refund),
            "/v1/budget" => Self::Post(Call::Budget),
            "/v1/report" => Self::Post(Call::Report),
            "/v1/admit" => Self::Post(Call::Admit),
            "/v1/overrides" => Self::Policies(PolicyRoute::Overrides),
            "/v1/policies" => Self::Policies(PolicyRoute::InForce),
            "/v1/policies/history" => Self::Policies(PolicyRoute::History),
            "/v1/policies/file" => Self::Policies(PolicyRoute::File),
            "/v1/policies/restore" => Self::Policies(PolicyRoute::Restore),
            path => {
                if let Some(lease) = path.strip_prefix("/v1/leases/") {
                    return Some(Self::Lease(lease)).filter(|_| !lease.is_empty());
                }
                if let Some(reservation) = path.strip_prefix("/v1/reservations/") {
                    let (id, end) = reservation.rsplit_once('/')?;
                    let call = match end {
                        "commit" => Call::Commit,
                        "release" => Call::Release,
                        _ => return None,
                    };
                    return Some(Self::Reservation(id, call)).filter(|_| !id.is_empty());
                }
                if let Some(of_key) = path.strip_prefix("/v1/overrides/") {
                    let (policy, key) = of_key.split_once('/')?;
                    return Some(Self::Override { policy, key });
                }
                let (policy, key) = path.strip_prefix("/v1/keys/")?.split_once('/')?;
                Self::Key { policy, key }
            }
        })
    }

    /// The right that a call needs; `None` if it needs no token.
    fn scope(&self, method: &str) -> Option<Scope> {
        match self {
            Self::Health | Self::Ready => None,
            Self::Policies(PolicyRoute::InForce) if method != "PUT" => Some(Scope::Decisions),
            Self::Policies(_) | Self::Override { .. } => Some(Scope::Policies),
            Self::Key { .. } if matches!(method, "DELETE" | "POST") => Some(Scope::Administration),
            _ => Some(Scope::Decisions),
        }
    }

    fn methods(&self) -> &'static [&'static str] {
        match *self {
            Self::Health | Self::Ready | Self::Metrics | Self::Watched(_) | Self::Gate => {
                &["GET", "HEAD"]
            }
            Self::Policies(PolicyRoute::InForce) => &["GET", "HEAD", "PUT"],
            Self::Policies(PolicyRoute::History | PolicyRoute::File | PolicyRoute::Overrides) => {
                &["GET", "HEAD"]
            }
            Self::Override { .. } => &["PUT", "DELETE"],
            Self::Post(_) | Self::Reservation(..) | Self::Policies(PolicyRoute::Restore) => {
                &["POST"]
            }
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

/// `GET /v1/gate`
fn gate(policies: &Policies, head: &Head<'_>, random: Chance<'_>) -> Result<State, Response> {
    let [name, key, cost, class] = query::fields(head, ["policy", "key", "cost", "class"])?;
    let name = name.ok_or_else(|| query::missing("policy"))?;
    let policy = find(policies, &name, "")?;
    let key = match key {
        Some(key) => FoundKey::Known(Some(key)),
        None => key::find(policies.gateway(), policy, head),
    };
    let cost = match (cost, policy.cost()) {
        (Some(cost), _) => query::whole("the query field `cost`", &cost, 0)?,
        (None, Cost::Fixed(cost)) => *cost,
        (None, Cost::Header { name, default }) => match (head.header)(name) {
            // at least 1: clients can often set a header, and a peek always passes
            Some(cost) => query::whole(&alloc::format!("the header `{name}`"), &cost, 1)?,
            None => *default,
        },
    };
    State::of_key(key, Keyless::of_gate(policy, cost, class), random)
}
