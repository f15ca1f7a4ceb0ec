//! The HTTP API, identical in every server.
//!
//! A server implements [`Server`], which reads bodies and decides, and calls [`respond`] for each
//! request. This module reads no clock, keeps no state and touches no socket.
//!
//! ```
//! use std::sync::Arc;
//! use std::task::{Context, Poll, Waker};
//! use tidegate_gate::http::{Access, BodyError, Check, Head, Outcome, Server, respond};
//! use tidegate_gate::{KeyHasher, Policies, Table, Timestamp};
//!
//! struct InMemory { table: Table, body: Vec<u8> }
//!
//! impl Server for InMemory {
//!     async fn body(&mut self) -> Result<Vec<u8>, BodyError> {
//!         Ok(self.body.clone())
//!     }
//!     async fn decide(&mut self, checks: &[Check]) -> Vec<Outcome> {
//!         let now = Timestamp(0);
//!         let decide = |check: &Check| {
//!             match self.table.ask(check.resolved(), now, &check.operation()) {
//!                 Ok(verdict) => Outcome::Decided(verdict),
//!                 Err(error) => Outcome::Unavailable(error.to_string()),
//!             }
//!         };
//!         checks.iter().map(decide).collect()
//!     }
//!     fn random(&mut self) -> Option<u64> {
//!         Some(4) // a real server draws a random number
//!     }
//! }
//!
//! let policies = Policies::parse(r#"
//!     [policies.login]
//!     limits = [{ algorithm = "fixed_window", limit = 1, period = "1m" }]
//! "#).unwrap();
//! let mut server = InMemory {
//!     table: Table::new(1 << 20, KeyHasher::new(1)),
//!     body: br#"{"policy":"login","key":"user:42"}"#.to_vec(),
//! };
//! let head = Head { method: "POST", path: "/v1/check", query: "", header: &|_| None, client_ip: &|| None, country: None, now: Timestamp(0) };
//! let mut check = || {
//!     let response = std::pin::pin!(respond(&policies, &Access::OPEN, &head, &mut server));
//!     match response.poll(&mut Context::from_waker(Waker::noop())) {
//!         Poll::Ready(response) => response,
//!         Poll::Pending => unreachable!("this server never waits"),
//!     }
//! };
//! assert!(check().body.contains(r#""allowed":true"#));
//! let refused = check();
//! assert!(refused.body.contains(r#""allowed":false"#));
//! assert!(refused.headers.contains(&("retry-after", "60".into())));
//! ```

mod access;
mod call;
mod forms;
mod headers;
mod json;
mod log;
mod metrics;
mod plan;
mod policies;
mod problem;
mod query;
mod route;
mod server;
#[cfg(test)]
mod tests;

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Display;

use crate::ask::AskError;
use crate::policy::{Policies, Policy};
use crate::quote::Quoted;
pub use access::{Access, InvalidToken, Tokens};
pub use headers::OlderForm;
pub use log::{Log, LogSecret};
pub use metrics::{Counted, Local, LocalAnswers, Metrics};
pub(crate) use plan::gate_headers;
use plan::{Answer, Form, Plan};
pub use plan::{Check, Outcome, answer};
pub use policies::{Change, Changed, Editions, InvalidEditions, PolicyCall, Stamp};
use problem::Problem;
pub(crate) use query::decoded;
use route::{Step, step};
pub use server::{BodyError, Head, NoKeys, Response, Server};

/// The longest body that a server accepts.
pub const MAX_BODY_BYTES: usize = 262_144;
/// The most bytes of a body that is too long which a server reads and discards before it answers. A
/// client that is still sending when its connection ends may never see the answer.
pub const MAX_DRAINED_BYTES: usize = 16_777_216;
/// The most checks in one batch.
pub const MAX_CHECKS: usize = 1_000;

const NOT_UTF_8: &str = "expected a body in UTF-8 without U+FFFD, which often stands for bytes that are not UTF-8; \
     JSON can write it as `\\ufffd`";

const MISCONFIGURED: &str = "the server is not configured correctly, and its log says why";

/// The media type of the text format of Prometheus.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers a request: routes it, reads its body if the call has one, lets the server decide, and writes
/// the response. The future does not borrow from `head`.
pub fn respond<'a, S: Server>(
    in_force: &'a Policies,
    access: &Access,
    head: &Head<'_>,
    server: &'a mut S,
) -> impl Future<Output = Response> + use<'a, S> {
    let step = step(in_force, access, head, &mut || server.random());
    async move {
        let plan = match step {
            Step::Answer(response) => return response,
            Step::Metrics => return problem::answer_text(METRICS_TYPE, server.metrics()),
            Step::Show => return policies::show(in_force, &server.stamp()),
            Step::Editions(call) => return server.editions(call).await,
            Step::ReadChange(change) => {
                return match read_body(server).await.and_then(|body| change.read(body)) {
                    Ok(call) => server.editions(call).await,
                    Err(response) => response,
                };
            }
            Step::Decide(plan) => plan,
            Step::Gate(gate) => match gate.plan(server).await {
                Ok(plan) => plan,
                Err(response) => return response,
            },
            Step::ReadBody(call) => {
                let body = read_body(server).await;
                match body.and_then(|body| call.read(in_force, &body, &mut || server.random())) {
                    Ok(plan) => plan,
                    Err(response) => return response,
                }
            }
        };
        let outcomes = server.decide(&plan.checks).await;
        for (check, outcome) in plan.checks.iter().zip(&outcomes) {
            server.decided(check, outcome);
        }
        let mut response = plan.respond(outcomes);
        response.headers.extend(server.timing().map(|timing| ("server-timing", timing)));
        response
    }
}

/// The body as text. A server may read U+FFFD in place of bytes that are not UTF-8, and may leave out a byte order mark, as
/// the runtimes of JavaScript do; so the first is refused in every server, and the second is left out.
async fn read_body(server: &mut impl Server) -> Result<String, Response> {
    let body = match server.body().await {
        Ok(body) if body.len() <= MAX_BODY_BYTES => body,
        Ok(body) => return Err(BodyError::TooLarge(body.len()).response()),
        Err(error) => return Err(error.response()),
    };
    match String::from_utf8(body) {
        Ok(text) if !text.contains(char::REPLACEMENT_CHARACTER) => {
            Ok(text.trim_start_matches('\u{feff}').into())
        }
        _ => Err(Problem::InvalidRequest.response(NOT_UTF_8.into())),
    }
}

/// The response to a request that the server found invalid before it called [`respond`].
#[must_use]
pub fn invalid_request(detail: String) -> Response {
    Problem::InvalidRequest.response(detail)
}

/// The response to a body in a transfer coding that the server cannot decode.
#[must_use]
pub fn unknown_transfer_coding(detail: String) -> Response {
    Problem::UnknownTransferCoding.response(detail)
}

/// The response to a policy file that is valid, but asks for something that this server does not have.
#[must_use]
pub fn invalid_policies(detail: String) -> Response {
    Problem::InvalidPolicies.response(detail)
}

/// The response to a request while the policy file or the secrets of the server cannot be used. The reason is for the
/// server's log alone. A call of `/healthz` hears that the server is not healthy, wherever the file would have put the
/// call.
#[must_use]
pub fn misconfigured(path: &str) -> Response {
    match path.ends_with("/healthz") {
        true => problem::answer_json(503, "{\"status\":\"unhealthy\"}".into()),
        false => internal_error(MISCONFIGURED.into()),
    }
}

/// The response to a request on which the server itself failed.
#[must_use]
pub fn internal_error(detail: String) -> Response {
    Problem::Internal.response(detail)
}

/// The response to a request that no route of a gateway matches.
pub(crate) fn not_found(detail: String) -> Response {
    Problem::NotFound.response(detail)
}

/// The response to a request with a path and a query that are too long.
pub(crate) fn target_too_long(detail: String) -> Response {
    Problem::TargetTooLong.response(detail)
}

/// The response to a request whose upstream did not answer.
pub(crate) fn bad_gateway(detail: String) -> Response {
    Problem::BadGateway.response(detail)
}

/// The problem type with which the HTTP API answers this error.
#[must_use]
pub const fn problem_type(error: &AskError) -> &'static str {
    error.problem().r#type()
}

fn located(problem: Problem, at: &str, detail: impl Display) -> Response {
    problem.response(alloc::format!("{at}{detail}"))
}

fn find<'a>(policies: &'a Policies, name: &str, at: &str) -> Result<&'a Arc<Policy>, Response> {
    policies.get(name).ok_or_else(|| {
        let names = policies.all().iter().map(|policy| policy.name()).take(20);
        let names = names.collect::<Vec<_>>().join(", ");
        let detail = alloc::format!("`policy`: expected one of {names}; found {}", Quoted(name));
        located(Problem::UnknownPolicy, at, detail)
    })
}
