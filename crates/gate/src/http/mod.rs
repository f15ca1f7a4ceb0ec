//! The HTTP surface, identical wherever it is served.
//!
//! An adapter reads a request and drives it in steps; nothing here waits for anything:
//!
//! 1. [`step`] on the request line and headers: an answer, a [`Plan`], or "read the body";
//! 2. then [`read`] on the body;
//! 3. the adapter decides each of [`Plan::checks`] in its store, in their order per key;
//! 4. [`Plan::respond`] turns the outcomes into the response.

mod access;
mod call;
mod forms;
mod headers;
mod operation;
mod problem;
mod query;
#[cfg(test)]
mod tests;

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use tidegate_core::Timestamp;
use tidegate_core::shed::Draw;

use crate::decide::Verdict;
use crate::key::check_key;
use crate::limits::Limits;
use crate::policy::{OnError, Policies, Policy, Rule};
use crate::request::{Operation, Request, Settlement};
pub use access::{Access, InvalidToken};
pub use forms::{DecisionForm, VerdictForm};
pub use operation::operation;
use problem::{Problem, answer_json};

/// The longest body that is read.
pub const MAX_BODY_BYTES: usize = 262_144;
/// Of a body that is longer than allowed so much is read and thrown away before the answer: a client
/// that is still sending when its connection ends may never see why.
pub const MAX_DRAINED_BYTES: usize = 16_777_216;
/// The most checks in one batch.
pub const MAX_CHECKS: usize = 1_000;

/// Draws a random number that nobody can guess, or fails to.
pub type Chance<'a> = &'a mut dyn FnMut() -> Option<u64>;

/// A request without its body.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "holds a closure")]
pub struct Head<'a> {
    /// In capitals, as on the wire.
    pub method: &'a str,
    /// Such as `/v1/check`.
    pub path: &'a str,
    /// What follows the question mark; may be empty.
    pub query: &'a str,
    /// The value of a header, by its name in lower case.
    pub header: &'a dyn Fn(&str) -> Option<String>,
    /// The client's address, as far as the adapter trusts what says so.
    pub client_ip: Option<&'a str>,
}

/// A response; it is to be sent as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// Names and values.
    pub headers: Vec<(&'static str, String)>,
    /// JSON, or empty.
    pub body: String,
}

/// What to do next about a request.
#[derive(Clone, Debug)]
pub enum Step {
    /// Send this.
    Answer(Response),
    /// Read at most [`MAX_BODY_BYTES`] of body and call [`read`].
    ReadBody(Call),
    /// Decide these.
    Decide(Plan),
}

/// What a body is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Decide, once or in a batch; with leases acquire.
    Check,
    /// Acquire a lease.
    Acquire,
    /// Renew this lease.
    Renew(String),
    /// Settle what was granted on an estimate.
    Settle,
    /// Take units to spend without asking, and give some back.
    Budget,
    /// Count what a reporter has seen.
    Report,
}

/// Checks to be decided, and how their outcomes are answered.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Valid: the policy exists, the key and the cost are within bounds.
    pub checks: Vec<Check>,
    form: Form,
}

/// One request for a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Its place in [`Policies::all`].
    pub policy: usize,
    /// What it is counted by.
    pub key: String,
    /// What is asked. A request for a decision costs at most
    /// [`Limits::most_at_once`](crate::Limits::most_at_once).
    pub operation: Operation,
    /// The lease that it is about, as the caller or chance named it.
    pub lease: Option<String>,
    /// The time that the caller gave. Only a test environment honours it.
    pub now: Option<Timestamp>,
    /// The draw that the caller gave. Only a test environment honours it.
    pub draw: Option<Draw>,
}

impl Check {
    /// What is asked, with the draw that the caller gave.
    #[must_use]
    pub fn with_its_draw(&self) -> Operation {
        match (self.operation, self.draw) {
            (Operation::Decide(request), Some(draw)) => {
                Operation::Decide(Request { draw, ..request })
            }
            (operation, _) => operation,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Single,
    Batch,
    Gate,
}

/// What became of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was decided.
    Decided(Verdict),
    /// The store could not be asked; why. The policy's `on_error` decides.
    Unavailable(String),
}

/// The first step: routing, access, and everything about a request that has no body. `chance` draws
/// random numbers.
#[must_use]
pub fn step(policies: &Policies, access: &Access, head: &Head<'_>, chance: Chance<'_>) -> Step {
    let lease = head.path.strip_prefix("/v1/leases/").filter(|id| !id.is_empty());
    let allowed: &[&str] = match head.path {
        "/healthz" | "/v1/gate" => &["GET", "HEAD"],
        "/v1/check" | "/v1/leases" | "/v1/settle" | "/v1/budget" | "/v1/report" => &["POST"],
        _ if lease.is_some() => &["PUT", "DELETE"],
        _ => return Step::Answer(Problem::NotFound.response(head.path.to_string())),
    };
    if !allowed.contains(&head.method) {
        let detail = alloc::format!("found {}, allowed are {}", head.method, allowed.join(", "));
        let mut response = Problem::MethodNotAllowed.response(detail);
        response.headers.push(("allow", allowed.join(", ")));
        return Step::Answer(response);
    }
    if head.path == "/healthz" {
        return Step::Answer(answer_json(200, "{\"status\":\"ok\"}".to_string()));
    }
    if let Err(refusal) = access.check((head.header)("authorization").as_deref()) {
        return Step::Answer(refusal);
    }
    let planned = match (head.path, lease) {
        ("/v1/check", _) => return Step::ReadBody(Call::Check),
        ("/v1/leases", _) => return Step::ReadBody(Call::Acquire),
        ("/v1/settle", _) => return Step::ReadBody(Call::Settle),
        ("/v1/budget", _) => return Step::ReadBody(Call::Budget),
        ("/v1/report", _) => return Step::ReadBody(Call::Report),
        (_, Some(id)) => match percent_encoding::percent_decode_str(id).decode_utf8() {
            Ok(id) if head.method == "PUT" => return Step::ReadBody(Call::Renew(id.into())),
            Ok(id) => query::release(policies, head, &id),
            // different bytes would be decoded alike, and be one lease
            Err(_) => Err(Problem::InvalidRequest.response("the lease is not UTF-8".to_string())),
        },
        _ => query::gate(policies, head, chance),
    };
    planned.map_or_else(Step::Answer, Step::Decide)
}

/// The response to a body of more than [`MAX_BODY_BYTES`]: so many as were read.
#[must_use]
pub fn body_too_large(bytes: usize) -> Response {
    let found = match bytes > MAX_DRAINED_BYTES {
        true => alloc::format!("more than {MAX_DRAINED_BYTES}"),
        false => bytes.to_string(),
    };
    let detail = alloc::format!("found {found} bytes, allowed are {MAX_BODY_BYTES}");
    Problem::BodyTooLarge.response(detail)
}

/// The response to a body of which not all had come after so long.
#[must_use]
pub fn body_too_late(after: Duration) -> Response {
    Problem::BodyTooLate.response(alloc::format!("allowed are {after:?} from the head on"))
}

/// The response to a request that the adapter itself could not handle.
#[must_use]
pub fn internal_error(detail: String) -> Response {
    Problem::Internal.response(detail)
}

/// A body. `chance` draws random numbers.
///
/// # Errors
/// The response to what is no valid request; nothing is to be decided then.
pub fn read(
    policies: &Policies,
    call: &Call,
    body: &[u8],
    chance: Chance<'_>,
) -> Result<Plan, Response> {
    if body.len() > MAX_BODY_BYTES {
        return Err(body_too_large(body.len()));
    }
    let (form, checks) = call::checks(policies, call, body, chance)?;
    Ok(Plan { checks, form })
}

fn find<'a>(
    policies: &'a Policies,
    name: &str,
    at: &dyn Fn() -> String,
) -> Result<(usize, &'a Policy), Response> {
    let found = policies.index_of(name).and_then(|index| Some((index, policies.all().get(index)?)));
    found.ok_or_else(|| {
        let names: Vec<&str> = policies.all().iter().map(Policy::name).take(20).collect();
        let detail = alloc::format!("{}found {name:?}, there are: {}", at(), names.join(", "));
        Problem::UnknownPolicy.response(detail)
    })
}

/// The key and the cost are within bounds. In shadow a cost that is not is asked about as such.
fn validated(policy: &Policy, check: Check, at: &dyn Fn() -> String) -> Result<Check, Response> {
    if let Err(error) = check_key(&check.key) {
        return Err(Problem::InvalidKey.response(alloc::format!("{}{error}", at())));
    }
    // who stands on a list is not counted, whatever the cost
    let cost = match check.operation {
        Operation::Decide(Request { cost, .. }) => cost,
        Operation::Settle(Settlement { reserved, .. }) => reserved, // it was granted once
        _ => 0,
    };
    if let Rule::Limited(limits, _) = policy.rule(&check.key)
        && let capacity = limits.most_at_once()
        && cost > capacity
    {
        if policy.is_shadow() {
            let operation = match check.operation {
                Operation::Decide(_) => Operation::Unaffordable(cost),
                _ => Operation::from(0), // nothing was taken that could come back
            };
            return Ok(Check { operation, ..check });
        }
        let error = tidegate_core::CostExceedsCapacity { cost, capacity };
        return Err(Problem::CostExceedsCapacity.response(alloc::format!("{}{error}", at())));
    }
    Ok(check)
}

impl Plan {
    /// The response, given the outcome of each check in the order of [`checks`](Self::checks).
    #[must_use]
    pub fn respond(&self, policies: &Policies, outcomes: &[Outcome]) -> Response {
        let mut answers = Vec::with_capacity(outcomes.len());
        for (check, outcome) in self.checks.iter().zip(outcomes) {
            let Some(policy) = policies.all().get(check.policy) else { continue };
            let (limits, lease) = (policy.limits_for(&check.key), check.lease.as_deref());
            answers.push(Answer { policy, limits, lease, outcome });
        }
        if answers.len() != self.checks.len() {
            return internal_error("not every check was decided".to_string());
        }
        match (self.form, answers.as_slice()) {
            (Form::Gate, [answer]) => gate(answer),
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

/// What became of a check, and what it was decided by.
#[derive(Clone, Copy)]
struct Answer<'a> {
    policy: &'a Policy,
    /// Those that hold for its key.
    limits: &'a Limits,
    lease: Option<&'a str>,
    outcome: &'a Outcome,
}

impl Answer<'_> {
    /// Whether the request passes, all considered.
    fn passes(&self) -> bool {
        match self.outcome {
            Outcome::Decided(verdict) => verdict.decision.is_allowed() || self.policy.is_shadow(),
            Outcome::Unavailable(_) => {
                self.policy.on_error() == OnError::Open || self.policy.is_shadow()
            }
        }
    }
}

/// A verdict on a key as `POST /v1/check` answers it, in JSON.
#[must_use]
pub fn answer(policy: &Policy, key: &str, lease: Option<&str>, verdict: &Verdict) -> String {
    let outcome = &Outcome::Decided(verdict.clone());
    forms::single(&Answer { policy, limits: policy.limits_for(key), lease, outcome })
}

fn gate(answer: &Answer<'_>) -> Response {
    let mut response = match answer.outcome {
        _ if answer.passes() => problem::no_content(),
        Outcome::Decided(verdict) => problem::refused(answer.limits, verdict),
        Outcome::Unavailable(reason) => Problem::ReducedCapacity.response(reason.clone()),
    };
    if let Outcome::Decided(verdict) = answer.outcome {
        headers::add(&mut response.headers, answer, verdict);
    }
    response
}
