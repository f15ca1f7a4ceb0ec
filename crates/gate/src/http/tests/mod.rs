//! Each call as an adapter drives it: good, bad, what it consumes, what it answers.

mod access;
mod check;
mod echo;
mod gate;
mod keys;
mod leases;
mod metrics;
mod units;

use core::pin::pin;
use core::task::{Context, Poll, Waker};
use std::string::{String, ToString};
use std::vec::Vec;

use serde_json::Value;
use tidegate_core::Timestamp;

use super::call::Call;
use super::{Access, BodyError, Check, Head, Outcome, Plan, Response, Step, Tokens, respond, step};
use crate::policy::Policies;
use crate::table::{KeyHasher, Table};

const POLICIES: &str = r#"
[policies.api]
limits = [
  { algorithm = "token_bucket", name = "burst", capacity = 3, rate = "3/s" },
  { algorithm = "fixed_window", name = "minute", limit = 5, period = "1m" },
]
key = ["header:x-api-key", "ip"]
cost = { header = "x-cost" }

[policies.open]
limits = [{ algorithm = "fixed_window", limit = 5, period = "1m" }]
on_error = "open"
"#;

const TOKEN: (&str, &str) = ("authorization", "Bearer secret");
const SECOND: u64 = 1_000_000;
/// The begin of a minute, and of a part of 6 s.
const START: u64 = 600 * SECOND;

fn policies() -> Policies {
    Policies::parse(POLICIES).unwrap()
}

fn read_check(policies: &Policies, body: impl AsRef<str>) -> Result<Plan, Response> {
    Call::Check.read(policies, body.as_ref(), &mut || Some(7))
}

fn send(method: &str, target: &str, headers: &[(&str, &str)]) -> Step {
    let tokens = Tokens { decisions: Some("secret".into()), administration: Some("admin".into()) };
    let access = Access::new(&policies(), tokens).unwrap();
    step_of(&policies(), &access, (method, target), headers)
}

fn step_of(
    policies: &Policies,
    access: &Access,
    line: (&str, &str),
    headers: &[(&str, &str)],
) -> Step {
    with_head(line, headers, |head| planned(step(policies, access, head, &mut || Some(7))))
}

/// Calls a function with the head of a request.
fn with_head<T>(
    (method, target): (&str, &str),
    headers: &[(&str, &str)],
    call: impl FnOnce(&Head<'_>) -> T,
) -> T {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let header = |name: &str| {
        headers.iter().find(|header| header.0 == name).map(|header| header.1.to_string())
    };
    let head = Head {
        method,
        path,
        query,
        header: &header,
        client_ip: &|| Some("192.0.2.7".into()),
        country: None,
        now: Timestamp(START),
    };
    call(&head)
}

/// The plan of a gate that has nothing to verify.
fn planned(step: Step) -> Step {
    let Step::Gate(gate) = step else { return step };
    let mut server = Server::new(POLICIES);
    let mut exchange = Exchange { body: Ok(Vec::new()), server: &mut server };
    match pin!(gate.plan(&mut exchange)).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(plan)) => Step::Decide(plan),
        Poll::Ready(Err(response)) => Step::Answer(response),
        Poll::Pending => panic!("this server never waits"),
    }
}

fn answer(step: Step) -> Response {
    let Step::Answer(response) = step else { panic!("{step:?}") };
    response
}

fn header<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
    response.headers.iter().find(|header| header.0 == name).map(|header| header.1.as_str())
}

fn json(response: &Response) -> Value {
    serde_json::from_str(&response.body).unwrap_or_else(|_| panic!("{response:?}"))
}

/// A server that is open to everybody, with states in a table and a clock that a test sets.
struct Server {
    policies: Policies,
    table: Table,
    now: Timestamp,
}

impl Server {
    fn new(policies: &str) -> Self {
        let policies = Policies::parse(policies).unwrap();
        let table = Table::new(1 << 20, KeyHasher::new(0));
        Self { policies, table, now: Timestamp(START) }
    }

    fn wait(&mut self, seconds: u64) {
        self.now.0 += seconds * SECOND;
    }

    fn call(&mut self, method: &str, target: &str, body: &str) -> Response {
        self.call_with(method, target, Ok(body.as_bytes().to_vec()), &[])
    }

    fn call_with(
        &mut self,
        method: &str,
        target: &str,
        body: Result<Vec<u8>, BodyError>,
        headers: &[(&str, &str)],
    ) -> Response {
        let policies = self.policies.clone();
        let mut exchange = Exchange { body, server: self };
        let response = with_head((method, target), headers, |head| {
            respond(&policies, &Access::OPEN, head, &mut exchange)
        });
        match pin!(response).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(response) => response,
            Poll::Pending => panic!("this server never waits"),
        }
    }

    fn decide(&mut self, check: &Check) -> Outcome {
        let verdict = self.table.ask(check.resolved(), self.now, &check.operation());
        Outcome::Decided(verdict.unwrap())
    }

    fn answer(&mut self, plan: &Plan) -> Response {
        plan.respond(plan.checks.iter().map(|check| self.decide(check)).collect())
    }

    /// Of a call that must be decided.
    #[track_caller]
    fn json(&mut self, method: &str, target: &str, body: &str) -> Value {
        let response = self.call(method, target, body);
        assert_eq!(response.status, 200, "{response:?}");
        assert_eq!(header(&response, "content-type"), Some("application/json"));
        json(&response)
    }

    #[track_caller]
    fn post(&mut self, path: &str, body: &str) -> Value {
        self.json("POST", path, body)
    }

    /// There is nothing to decide then, so nothing is consumed.
    #[track_caller]
    fn refuses(&mut self, (method, target): (&str, &str), body: &str, detail: &str) {
        let response = self.call(method, target, body);
        let problem = json(&response);
        assert_eq!(response.status, 400, "{target} {body}: {problem}");
        assert_eq!(header(&response, "content-type"), Some("application/problem+json"));
        assert_eq!(problem["type"], "urn:tidegate:invalid-request", "{target} {body}");
        let found = problem["detail"].as_str().unwrap();
        assert!(found.contains(detail), "{target} {body}: {found}");
    }
}

/// One request to the server.
struct Exchange<'a> {
    body: Result<Vec<u8>, BodyError>,
    server: &'a mut Server,
}

impl super::Server for Exchange<'_> {
    async fn body(&mut self) -> Result<Vec<u8>, BodyError> {
        self.body.clone()
    }

    async fn decide(&mut self, checks: &[Check]) -> Vec<Outcome> {
        checks.iter().map(|check| self.server.decide(check)).collect()
    }

    fn random(&mut self) -> Option<u64> {
        Some(7)
    }
}

/// A body about the policy `p` and the key `k`.
fn about(rest: &str) -> String {
    std::format!("{{\"policy\":\"p\",\"key\":\"k\"{rest}}}")
}
