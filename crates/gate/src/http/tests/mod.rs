//! Each call as an adapter drives it: good, bad, what it consumes, what it answers.

mod access;
mod check;
mod gate;
mod leases;
mod units;

use std::string::{String, ToString};
use std::vec::Vec;

use serde_json::Value;
use tidegate_core::Timestamp;

use super::{Access, Call, Head, Outcome, Plan, Response, Step, read, step};
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

fn read_check(policies: &Policies, body: &[u8]) -> Result<Plan, Response> {
    read(policies, &Call::Check, body, &mut || Some(7))
}

fn send(method: &str, target: &str, headers: &[(&str, &str)]) -> Step {
    step_of(&policies(), &Access::Token("secret".into()), (method, target), headers)
}

fn step_of(
    policies: &Policies,
    access: &Access,
    (method, target): (&str, &str),
    headers: &[(&str, &str)],
) -> Step {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let header = |name: &str| {
        headers.iter().find(|header| header.0 == name).map(|header| header.1.to_string())
    };
    let head = Head { method, path, query, header: &header, client_ip: Some("192.0.2.7") };
    step(policies, access, &head, &mut || Some(7))
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

/// What an adapter does, open to everybody, with states in a table and a clock that is set.
struct Server {
    policies: Policies,
    table: Table,
    now: Timestamp,
}

impl Server {
    fn new(policies: &str) -> Self {
        let policies = Policies::parse(policies).unwrap();
        let table = Table::new(100, KeyHasher::new(0));
        Self { policies, table, now: Timestamp(START) }
    }

    fn wait(&mut self, seconds: u64) {
        self.now.0 += seconds * SECOND;
    }

    fn call(&mut self, method: &str, target: &str, body: &str) -> Response {
        let plan = match step_of(&self.policies, &Access::Open, (method, target), &[]) {
            Step::Answer(response) => return response,
            Step::Decide(plan) => plan,
            Step::ReadBody(call) => {
                match read(&self.policies, &call, body.as_bytes(), &mut || Some(7)) {
                    Ok(plan) => plan,
                    Err(response) => return response,
                }
            }
        };
        self.decide(&plan)
    }

    fn decide(&mut self, plan: &Plan) -> Response {
        let Self { policies, table, now } = self;
        let operate = |check: &super::Check| {
            let policy = &policies.all()[check.policy];
            Outcome::Decided(table.operate(policy, &check.key, *now, check.operation).unwrap())
        };
        plan.respond(policies, &plan.checks.iter().map(operate).collect::<Vec<_>>())
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

/// A body about the policy `p` and the key `k`.
fn about(rest: &str) -> String {
    std::format!("{{\"policy\":\"p\",\"key\":\"k\"{rest}}}")
}
