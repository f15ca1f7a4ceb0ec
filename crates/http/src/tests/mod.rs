//! Each call as an adapter drives it: good, bad, what it consumes, what it answers.

mod access;
mod admit;
mod all_or_nothing;
mod check;
mod contract;
mod echo;
mod gate;
mod keys;
mod leases;
mod metrics;
mod reservations;
mod revisions;
mod units;

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use std::borrow::ToOwned;
use std::string::{String, ToString};
use std::vec::Vec;

use serde_json::Value;
use tidegate_gate::{KeyHasher, Policies, Table, Timestamp};

use crate::{
    Access, BodyError, Check, Exchange, Head, Outcome, Response, RevisionTag, Served, Step, Tokens,
};

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
pub(crate) const SECOND: u64 = 1_000_000;
/// The begin of a minute, and of a part of 6 s.
const START: u64 = 600 * SECOND;

fn policies() -> Arc<Policies> {
    Policies::parse(POLICIES).unwrap().into()
}

/// A check with this body, which waits to be decided; or its refusal.
pub(crate) fn read_check(
    policies: &Arc<Policies>,
    body: impl AsRef<str>,
) -> Result<(Exchange, Vec<Check>), Response> {
    read_check_with(policies, body.as_ref(), Some(7))
}

/// The same, where all random numbers are this one.
fn read_check_with(
    policies: &Arc<Policies>,
    body: &str,
    random: Option<u64>,
) -> Result<(Exchange, Vec<Check>), Response> {
    let mut exchange = sent(policies, &Access::OPEN, ("POST", "/v1/check"), &[]);
    exchange.body(Ok(body.into()), &mut || random);
    planned(exchange)
}

/// The checks that an exchange waits for, or its response.
fn planned(mut exchange: Exchange) -> Result<(Exchange, Vec<Check>), Response> {
    match exchange.step() {
        Step::Decide(checks) => {
            let checks = checks.to_vec();
            Ok((exchange, checks))
        }
        Step::Done(Served::Response(response)) => Err(response),
        step => panic!("{step:?}"),
    }
}

/// A request to a server with two tokens.
fn send(method: &str, target: &str, headers: &[(&str, &str)]) -> Exchange {
    let tokens = Tokens { decisions: Some("secret".into()), administration: Some("admin".into()) };
    let access = Access::new(&policies(), tokens).unwrap();
    sent(&policies(), &access, (method, target), headers)
}

fn sent(
    policies: &Arc<Policies>,
    access: &Access,
    line: (&str, &str),
    headers: &[(&str, &str)],
) -> Exchange {
    let revision = &RevisionTag::default();
    let server = crate::Server { policies, access, revision, metrics: &String::new };
    with_head(line, headers, |head| Exchange::new(&server, head, &mut || Some(7)))
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
    let client_ip = &|| "192.0.2.7".parse().ok();
    let now = Timestamp(START);
    call(&Head { method, path, query, header: &header, client_ip, now, ..Head::default() })
}

/// The response of an exchange that waits for nothing.
fn answer(mut exchange: Exchange) -> Response {
    let Step::Done(Served::Response(response)) = exchange.step() else { panic!("{exchange:?}") };
    response
}

/// The response, if these are the outcomes of the checks.
fn decided(mut exchange: Exchange, outcomes: Vec<Outcome>) -> Response {
    exchange.decided(outcomes);
    answer(exchange)
}

pub(crate) fn header<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
    response.headers.iter().find(|header| header.0 == name).map(|header| &*header.1)
}

pub(crate) fn json(response: &Response) -> Value {
    serde_json::from_str(&response.body).unwrap_or_else(|_| panic!("{response:?}"))
}

/// A server that is open to everybody, with states in a table for each policy and a clock that a test sets.
pub(crate) struct Server {
    pub(crate) policies: Arc<Policies>,
    tables: BTreeMap<String, Table>,
    now: Timestamp,
}

impl Server {
    pub(crate) fn new(policies: &str) -> Self {
        let policies = Policies::parse(policies).unwrap().into();
        Self { policies, tables: BTreeMap::new(), now: Timestamp(START) }
    }

    pub(crate) fn wait(&mut self, seconds: u64) {
        self.now.0 += seconds * SECOND;
    }

    pub(crate) fn call(&mut self, method: &str, target: &str, body: &str) -> Response {
        self.call_with(method, target, Ok(body.as_bytes().to_vec()), &[])
    }

    pub(crate) fn call_with(
        &mut self,
        method: &str,
        target: &str,
        body: Result<Vec<u8>, BodyError>,
        headers: &[(&str, &str)],
    ) -> Response {
        let exchange = sent(&self.policies, &Access::OPEN, (method, target), headers);
        self.drive(exchange, &body)
    }

    fn drive(&mut self, mut exchange: Exchange, body: &Result<Vec<u8>, BodyError>) -> Response {
        loop {
            match exchange.step() {
                Step::Body => exchange.body(body.clone(), &mut || Some(7)),
                Step::Decide(checks) => {
                    let outcomes = checks.iter().map(|check| self.decide(check)).collect();
                    exchange.decided(outcomes);
                }
                Step::Done(Served::Response(response)) => return response,
                step => panic!("{step:?}"),
            }
        }
    }

    fn decide(&mut self, check: &Check) -> Outcome {
        let policy = check.resolved().policy().name().to_owned();
        let new = || Table::new(1 << 20, KeyHasher::new(0));
        let table = self.tables.entry(policy).or_insert_with(new);
        let verdict = table.ask_once(check.resolved(), self.now, &check.operation());
        Outcome::Decided(verdict.unwrap())
    }

    /// Of a call that must be decided.
    #[track_caller]
    pub(crate) fn json(&mut self, method: &str, target: &str, body: &str) -> Value {
        let response = self.call(method, target, body);
        assert_eq!(response.status, 200, "{response:?}");
        assert_eq!(header(&response, "content-type"), Some("application/json"));
        json(&response)
    }

    #[track_caller]
    pub(crate) fn post(&mut self, path: &str, body: &str) -> Value {
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
pub(crate) fn about(rest: &str) -> String {
    std::format!("{{\"policy\":\"p\",\"key\":\"k\"{rest}}}")
}
