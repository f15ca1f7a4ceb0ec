//! The HTTP surface, identical wherever it is served.
//!
//! An adapter reads a request and drives it in steps; nothing here waits for anything:
//!
//! 1. [`step`] on the request line and headers: an answer, a [`Plan`], or "read the body";
//! 2. then [`read`] on the body;
//! 3. the adapter decides each of [`Plan::checks`] in its store, in their order per key;
//! 4. [`Plan::respond`] turns the outcomes into the response.

mod access;
mod forms;
mod headers;
mod problem;
#[cfg(test)]
mod tests;

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use tidegate_core::{MAX_QUANTITY, Timestamp};

use crate::decide::Verdict;
use crate::key::check_key;
use crate::limits::Limits;
use crate::policy::{Cost, OnError, Policies, Policy};
pub use access::Access;
pub use forms::{DecisionForm, VerdictForm};
use problem::{Problem, answer_json};

/// The longest body that is read.
pub const MAX_BODY_BYTES: usize = 262_144;
/// Of a body that is longer than allowed so much is read and thrown away before the answer: a client
/// that is still sending when its connection ends may never see why.
pub const MAX_DRAINED_BYTES: usize = 16_777_216;
/// The most checks in one batch.
pub const MAX_CHECKS: usize = 1_000;

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
    ReadBody,
    /// Decide these.
    Decide(Plan),
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
    /// What it costs, at most [`Limits::most_at_once`](crate::Limits::most_at_once).
    pub cost: u64,
    /// The time that the caller gave. Only a test environment honours it.
    pub now: Option<Timestamp>,
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

/// The first step: routing, access, and everything about a request that has no body.
#[must_use]
pub fn step(policies: &Policies, access: &Access, head: &Head<'_>) -> Step {
    let allowed: &[&str] = match head.path {
        "/healthz" | "/v1/gate" => &["GET", "HEAD"],
        "/v1/check" => &["POST"],
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
    if head.path == "/v1/check" {
        return Step::ReadBody;
    }
    match plan_gate(policies, head) {
        Ok(plan) => Step::Decide(plan),
        Err(problem) => Step::Answer(problem),
    }
}

/// The response to a body of more than [`MAX_BODY_BYTES`].
#[must_use]
pub fn body_too_large() -> Response {
    Problem::BodyTooLarge.response(alloc::format!("allowed are {MAX_BODY_BYTES} bytes"))
}

/// The response to a request that the adapter itself could not handle.
#[must_use]
pub fn internal_error(detail: String) -> Response {
    Problem::Internal.response(detail)
}

/// The body of `POST /v1/check`.
///
/// # Errors
/// The response to what is no valid request; nothing is to be decided then.
pub fn read(policies: &Policies, body: &[u8]) -> Result<Plan, Response> {
    if body.len() > MAX_BODY_BYTES {
        return Err(body_too_large());
    }
    let (form, requests) = forms::checks(body)?;
    let mut checks = Vec::with_capacity(requests.len());
    for (place, request) in requests.into_iter().enumerate() {
        let at = || match form {
            Form::Batch => alloc::format!("checks[{place}]: "),
            Form::Single | Form::Gate => String::new(),
        };
        let (index, policy) = find(policies, &request.policy, &at)?;
        let cost = request.cost.map_or(default_cost(policy), |cost| cost.0);
        let now = request.now_us.map(|now| Timestamp(now.0));
        checks.push(validated(policy, Check { policy: index, key: request.key, cost, now }, &at)?);
    }
    Ok(Plan { checks, form })
}

fn plan_gate(policies: &Policies, head: &Head<'_>) -> Result<Plan, Response> {
    let (mut name, mut key, mut cost) = (None, None, None);
    for (field, value) in form_urlencoded::parse(head.query.as_bytes()) {
        let slot = match &*field {
            "policy" => &mut name,
            "key" => &mut key,
            "cost" => &mut cost,
            _ => {
                let allowed = "allowed are `policy`, `key` and `cost`";
                let detail = alloc::format!("found the query field `{field}`, {allowed}");
                return Err(Problem::InvalidRequest.response(detail));
            }
        };
        if value.contains(char::REPLACEMENT_CHARACTER) {
            // different bytes would be decoded alike, and counted as one key
            let detail = alloc::format!("the query field `{field}` is not UTF-8");
            return Err(Problem::InvalidRequest.response(detail));
        }
        if slot.replace(value.into_owned()).is_some() {
            let detail = alloc::format!("the query has two fields `{field}`");
            return Err(Problem::InvalidRequest.response(detail));
        }
    }
    let missing = |detail: &str| Problem::InvalidRequest.response(detail.to_string());
    let name = name.ok_or_else(|| missing("the query has no field `policy`"))?;
    let at = String::new;
    let (index, policy) = find(policies, &name, &at)?;
    let key = key
        .or_else(|| {
            policy
                .key_sources()
                .iter()
                .find_map(|source| source.key_of(head.header, head.client_ip))
        })
        .ok_or_else(|| {
            missing("the query has no field `key`, nor the request what the policy counts by")
        })?;
    let cost = match (cost, policy.cost()) {
        (Some(cost), _) => whole("the query field `cost`", &cost, 0)?,
        (None, Cost::Fixed(cost)) => *cost,
        (None, Cost::Header { name, default }) => match (head.header)(name) {
            // not 0: clients can often set a header, and a peek always passes
            Some(cost) => whole(&alloc::format!("the header `{name}`"), &cost, 1)?,
            None => *default,
        },
    };
    let check = validated(policy, Check { policy: index, key, cost, now: None }, &at)?;
    Ok(Plan { checks: [check].into(), form: Form::Gate })
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

fn validated(policy: &Policy, check: Check, at: &dyn Fn() -> String) -> Result<Check, Response> {
    if let Err(error) = check_key(&check.key) {
        return Err(Problem::InvalidKey.response(alloc::format!("{}{error}", at())));
    }
    let most = policy.limits_for(&check.key).most_at_once();
    if check.cost > most {
        let error = tidegate_core::CostExceedsCapacity { cost: check.cost, capacity: most };
        return Err(Problem::CostExceedsCapacity.response(alloc::format!("{}{error}", at())));
    }
    Ok(check)
}

fn default_cost(policy: &Policy) -> u64 {
    match policy.cost() {
        Cost::Fixed(cost) | Cost::Header { default: cost, .. } => *cost,
    }
}

fn whole(what: &str, text: &str, least: u64) -> Result<u64, Response> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = if digits { text.parse().ok() } else { None };
    number.filter(|number| (least..=MAX_QUANTITY).contains(number)).ok_or_else(|| {
        let allowed = alloc::format!("allowed is a whole number from {least} to {MAX_QUANTITY}");
        Problem::InvalidRequest.response(alloc::format!("{what}: found {text:?}, {allowed}"))
    })
}

impl Plan {
    /// The response, given the outcome of each check in the order of [`checks`](Self::checks).
    #[must_use]
    pub fn respond(&self, policies: &Policies, outcomes: &[Outcome]) -> Response {
        let mut answers = Vec::with_capacity(outcomes.len());
        for (check, outcome) in self.checks.iter().zip(outcomes) {
            let Some(policy) = policies.all().get(check.policy) else { continue };
            answers.push(Answer { policy, limits: policy.limits_for(&check.key), outcome });
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
    outcome: &'a Outcome,
}

impl Answer<'_> {
    /// Whether the request passes, all considered.
    fn passes(&self) -> bool {
        match self.outcome {
            Outcome::Decided(verdict) => verdict.decision.is_allowed() || self.policy.is_shadow(),
            Outcome::Unavailable(_) => self.policy.on_error() == OnError::Open,
        }
    }
}

fn gate(answer: &Answer<'_>) -> Response {
    let mut response = match answer.outcome {
        _ if answer.passes() => problem::no_content(),
        Outcome::Decided(verdict) => problem::refused(answer.limits, verdict),
        Outcome::Unavailable(reason) => Problem::StoreUnavailable.response(reason.clone()),
    };
    if let Outcome::Decided(verdict) = answer.outcome {
        headers::add(&mut response.headers, answer, verdict);
    }
    response
}
