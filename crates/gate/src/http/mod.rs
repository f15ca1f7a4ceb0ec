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
//! let head = Head { method: "POST", path: "/v1/check", query: "", header: &|_| None, client_ip: None, country: None, now: Timestamp(0) };
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
mod log;
mod metrics;
mod policies;
mod problem;
mod query;
mod route;
#[cfg(test)]
mod tests;

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Display;
use core::time::Duration;

use tidegate_core::Timestamp;
use tidegate_core::shed::Draw;

use crate::ask::{Ask, AskError, Asked, Chance, CheckForm};
use crate::decide::Verdict;
use crate::limits::Limits;
use crate::policy::{OnError, Policies, Policy, Whole};
use crate::quote::Quoted;
use crate::request::Operation;
use crate::resolved::Resolved;
use crate::source::token::Verify;
pub use access::{Access, InvalidToken, Tokens};
pub use forms::{DecisionForm, VerdictForm};
pub use log::Log;
pub use metrics::{Counted, Local, LocalAnswers, Metrics};
pub use policies::{Change, Changed, Editions, InvalidEditions, PolicyCall, Stamp};
use problem::{Problem, answer_json};
pub(crate) use query::decoded;
use route::{Step, step};

/// The longest body that a server accepts.
pub const MAX_BODY_BYTES: usize = 262_144;
/// The most bytes of a body that is too long which a server reads and discards before it answers. A
/// client that is still sending when its connection ends may never see the answer.
pub const MAX_DRAINED_BYTES: usize = 16_777_216;
/// The most checks in one batch.
pub const MAX_CHECKS: usize = 1_000;

/// The media type of the text format of Prometheus.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A request without its body.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "holds a closure")]
pub struct Head<'a> {
    /// The method in capitals, as on the wire.
    pub method: &'a str,
    /// The path, such as `/v1/check`.
    pub path: &'a str,
    /// The query after the question mark; may be empty.
    pub query: &'a str,
    /// Returns the value of a header by its name in lower case.
    pub header: &'a dyn Fn(&str) -> Option<String>,
    /// The address that the request came from, if the adapter trusts its source.
    pub client_ip: Option<&'a str>,
    /// The client's country, if the adapter knows it.
    pub country: Option<&'a str>,
    /// The time, by which tokens expire.
    pub now: Timestamp,
}

/// A response, which the server sends unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The names and values of the headers.
    pub headers: Vec<(&'static str, String)>,
    /// The body: JSON, or empty.
    pub body: String,
}

/// The I/O of a server: bodies, decisions and random numbers.
#[expect(async_fn_in_trait, reason = "servers decide by themselves what their futures can do")]
pub trait Server {
    /// Reads the body of the request.
    ///
    /// # Errors
    /// Fails with [`BodyError`] if the server cannot read the whole body.
    async fn body(&mut self) -> Result<Vec<u8>, BodyError>;

    /// Decides each check in its store. Checks on one key are decided in their order. Returns one outcome
    /// for each check, in the order of the checks.
    async fn decide(&mut self, checks: &[Check]) -> Vec<Outcome>;

    /// Whether the signature of a token holds. By default no signature holds, for servers without keys: they must not
    /// start with policies that need verified tokens.
    async fn verify(&mut self, token: &Verify) -> bool {
        let _ = token;
        false
    }

    /// Returns a random number that nobody can guess, because it may become the name of a lease. `None` if
    /// the server has no random numbers.
    fn random(&mut self) -> Option<u64>;

    /// Takes note of the outcome of a check, for [`Metrics::count`].
    fn decided(&mut self, _: &Check, _: &Outcome) {}

    /// The text of [`Metrics`], with the server's own counters.
    fn metrics(&self) -> String {
        String::new()
    }

    /// The header `Server-Timing` of the decisions that were made last, if the server measures them.
    fn timing(&self) -> Option<String> {
        None
    }

    /// The edition of the policies by which the request is answered.
    fn stamp(&self) -> Stamp {
        Stamp::default()
    }

    /// Answers a call about the editions of the policies by [`Editions::handle`]. By default a server has no editions.
    async fn editions(&mut self, _: PolicyCall) -> Response {
        Problem::NotFound.response("this server has no editions of its policies".to_string())
    }
}

/// The reason why the server cannot read a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// The body is longer than [`MAX_BODY_BYTES`]. The server read this many bytes.
    TooLarge(usize),
    /// The rest of the body had not arrived after this time.
    TooLate(Duration),
    /// The client closed the connection within the body.
    Incomplete,
}

/// The checks to decide, and the form of the answer.
#[derive(Clone, Debug)]
struct Plan {
    checks: Vec<Check>,
    form: Form,
}

/// One operation on one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    asked: Asked,
    now: Option<Timestamp>,
    draw: Option<Draw>,
}

impl Check {
    /// A request with this cost.
    pub(crate) fn of_cost(
        policy: &Arc<Policy>,
        key: &str,
        cost: u64,
        class: Option<String>,
        chance: Chance<'_>,
    ) -> Result<Self, Response> {
        let form = CheckForm { cost: Some(Whole(cost)), class, ..CheckForm::default() };
        let asked = Ask::Check(form).resolve(policy, key, chance);
        let asked = asked.map_err(|error| error.response(""))?;
        Ok(Self { asked, now: None, draw: None })
    }

    pub(crate) const fn asked(&self) -> &Asked {
        &self.asked
    }

    /// The policy, limits and canonical key of the check.
    #[must_use]
    pub const fn resolved(&self) -> &Resolved {
        self.asked.resolved()
    }

    /// The operation to do.
    #[must_use]
    pub const fn operation(&self) -> Operation {
        self.asked.operation()
    }

    /// The operation with the caller's own draw, if it gave one. Only a test environment may use it.
    #[must_use]
    pub fn operation_with_draw(&self) -> Operation {
        match self.draw {
            Some(draw) => self.asked.clone().with_draw(draw).operation(),
            None => self.operation(),
        }
    }

    /// The caller's own time, if it gave one. Only a test environment may use it.
    #[must_use]
    pub const fn caller_time(&self) -> Option<Timestamp> {
        self.now
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Single,
    Batch,
    Gate,
}

/// The outcome of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The store decided the check.
    Decided(Verdict),
    /// The store did not answer, for this reason. The policy's `on_error` decides.
    Unavailable(String),
}

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

async fn read_body(server: &mut impl Server) -> Result<Vec<u8>, Response> {
    match server.body().await {
        Ok(body) if body.len() <= MAX_BODY_BYTES => Ok(body),
        Ok(body) => Err(BodyError::TooLarge(body.len()).response()),
        Err(error) => Err(error.response()),
    }
}

impl BodyError {
    fn response(self) -> Response {
        match self {
            Self::TooLarge(bytes) => {
                let found = match bytes > MAX_DRAINED_BYTES {
                    true => alloc::format!("more than {MAX_DRAINED_BYTES}"),
                    false => bytes.to_string(),
                };
                Problem::BodyTooLarge.response(alloc::format!(
                    "expected a body of at most {MAX_BODY_BYTES} bytes, found {found}"
                ))
            }
            Self::TooLate(after) => Problem::BodyTooLate.response(alloc::format!(
                "expected the whole body within {after:?} after the head, found a part of it"
            )),
            Self::Incomplete => Problem::InvalidRequest
                .response("expected the whole body, found a part of it".to_string()),
        }
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

impl Plan {
    /// The response, given the outcome of each check.
    fn respond(&self, outcomes: Vec<Outcome>) -> Response {
        if outcomes.len() != self.checks.len() {
            return internal_error("not every check was decided".to_string());
        }
        let told = self.checks.iter().zip(outcomes).map(|(check, outcome)| match outcome {
            Outcome::Decided(verdict) => Outcome::Decided(check.asked.said(verdict)),
            unavailable => unavailable,
        });
        let told: Vec<Outcome> = told.collect();
        let answers = self.checks.iter().zip(&told);
        let answers: Vec<_> =
            answers.map(|(Check { asked, .. }, outcome)| Answer { asked, outcome }).collect();
        match (self.form, answers.as_slice()) {
            (Form::Gate, [answer]) => gate(answer),
            // `on_error` is for requests: a key that is not blocked or reset must not look as if it were
            (Form::Single, [Answer { asked, outcome: Outcome::Unavailable(reason) }])
                if matches!(asked.operation(), Operation::Block(_) | Operation::Reset(_)) =>
            {
                Problem::ReducedCapacity.response(reason.clone())
            }
            (Form::Single, [answer]) => {
                let mut response = answer_json(200, forms::single(answer));
                if let Outcome::Decided(verdict) = answer.outcome {
                    headers::add(&mut response.headers, answer, verdict);
                }
                response
            }
            (_, answers) => answer_json(200, forms::batch(answers)),
        }
    }
}

/// An operation that a caller asked for, and its outcome.
#[derive(Clone, Copy)]
struct Answer<'a> {
    asked: &'a Asked,
    outcome: &'a Outcome,
}

impl Answer<'_> {
    fn policy(&self) -> &Policy {
        self.asked.resolved().policy()
    }

    /// The limits on the key; `None` if the key is listed.
    fn limits(&self) -> Option<&Limits> {
        self.asked.resolved().limits()
    }

    /// Whether the request passes, given the decision, `shadow` and `on_error`.
    fn passes(&self) -> bool {
        match self.outcome {
            Outcome::Decided(verdict) => verdict.decision.is_allowed() || self.policy().is_shadow(),
            Outcome::Unavailable(_) => {
                self.policy().on_error() == OnError::Open || self.policy().is_shadow()
            }
        }
    }
}

/// The problem type with which the HTTP API answers this error.
#[must_use]
pub const fn problem_type(error: &AskError) -> &'static str {
    error.problem().r#type()
}

/// The verdict on an operation in JSON, as the HTTP API answers it.
#[must_use]
pub fn answer(asked: &Asked, verdict: Verdict) -> String {
    let outcome = &Outcome::Decided(asked.said(verdict));
    forms::single(&Answer { asked, outcome })
}

/// The headers that an answer to a request gets if it passes.
///
/// # Errors
/// The response refuses the request.
pub(crate) fn gate_headers(
    check: &Check,
    outcome: &Outcome,
) -> Result<Vec<(&'static str, String)>, Response> {
    let told = match outcome {
        Outcome::Decided(verdict) => Outcome::Decided(check.asked.said(verdict.clone())),
        unavailable => unavailable.clone(),
    };
    let answer = Answer { asked: &check.asked, outcome: &told };
    if !answer.passes() {
        return Err(gate(&answer));
    }
    let mut headers = Vec::new();
    if let Outcome::Decided(verdict) = &told {
        headers::add(&mut headers, &answer, verdict);
    }
    Ok(headers)
}

fn gate(answer: &Answer<'_>) -> Response {
    let mut response = match answer.outcome {
        _ if answer.passes() => problem::no_content(),
        Outcome::Decided(verdict) => problem::refused(answer.limits(), verdict),
        Outcome::Unavailable(reason) => Problem::ReducedCapacity.response(reason.clone()),
    };
    if let Outcome::Decided(verdict) = answer.outcome {
        headers::add(&mut response.headers, answer, verdict);
    }
    response
}
