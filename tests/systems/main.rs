//! Five published systems: Replit, Ably, senderista, ClassDojo, Stripe. They are rebuilt from the policy file
//! that `docs/policies.md` shows, and run as their sources describe.
//!
//! Each module is one system. It names its source, what the source has, and what its author was missing. Its
//! tests assert both: what the source has, with its constants, and what is better here.
//!
//! - Some stories run in the gate of this process. They give the times, draws and names.
//! - Other stories run over HTTP on every server, at the server's own time. Assertions that depend on the time
//!   use the `at_us` of the answers. The few calls of a story must be answered within a minute.

mod ably;
mod classdojo;
mod replit;
mod senderista;
mod stripe;
mod stripe_shedders;

use std::fs;
use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};
use tidegate_gate::{
    Id, KeyHasher, Operation, Policies, Policy, Request, Resolved, Table, Timestamp, Verdict,
};
use tidegate_tests::{Reply, Served, blocks, file, on_every_server};

const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;

/// The time at which stories begin. A second, a minute and a 6 s part of a suppression begin at it too.
const START: u64 = 1_700_000_040 * SECOND;

/// The policy file, read from `docs/policies.md` so that no second copy exists.
static POLICIES: LazyLock<String> = LazyLock::new(|| {
    let document = fs::read_to_string(file("../docs/policies.md")).unwrap();
    let (_, section) = document.split_once("## Five systems that were published").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let published: Vec<_> =
        blocks(section).into_iter().filter(|block| block.mark == "accepted").collect();
    let [only] = published.as_slice() else { panic!("{} policy files", published.len()) };
    only.text.clone()
});

/// A time of a story, in microseconds since the story began.
fn at(since_start_us: u64) -> Timestamp {
    Timestamp(START + since_start_us)
}

/// One of the policies and the states of its keys. A story gives the times.
#[derive(Clone)]
struct System {
    policy: Arc<Policy>,
    table: Table,
}

impl System {
    /// The policy as it is in the file.
    fn of(policy: &str) -> Self {
        Self::parse(policy, &POLICIES)
    }

    /// The policy with this text of the file replaced.
    fn edited(policy: &str, from: &str, to: &str) -> Self {
        assert_eq!(POLICIES.matches(from).count(), 1, "{from}");
        Self::parse(policy, &POLICIES.replace(from, to))
    }

    fn parse(policy: &str, file: &str) -> Self {
        let policies = Policies::parse(file).unwrap();
        let policy = policies.get(policy).unwrap_or_else(|| panic!("no policy {policy}"));
        Self { policy: policy.clone(), table: Table::new(1 << 20, KeyHasher::new(1)) }
    }

    fn operate(&mut self, key: &str, now: Timestamp, operation: impl Into<Operation>) -> Verdict {
        self.table.operate(&self.policy, key, now, operation).unwrap()
    }

    /// Whether a request with only a cost passes.
    fn passes(&mut self, key: &str, now: Timestamp, cost: u64) -> bool {
        self.operate(key, now, cost).decision.is_allowed()
    }

    /// Acquires a lease, or opens a connection of this owner.
    fn acquire(&mut self, key: &str, now: Timestamp, lease: &str) -> Verdict {
        let request = Request { lease: Some(self.lease(key, lease)), ..Request::of(1) };
        self.operate(key, now, request)
    }

    fn lease(&self, key: &str, lease: &str) -> Id {
        Resolved::new(&self.policy, key).unwrap().lease_id(lease)
    }

    fn renew(&mut self, key: &str, now: Timestamp, lease: &str) -> Verdict {
        let id = self.lease(key, lease);
        self.operate(key, now, Operation::Heartbeat(id))
    }

    fn count(&mut self, key: &str, now: Timestamp, lease: &str, count: u64) -> Verdict {
        let id = self.lease(key, lease);
        self.operate(key, now, Operation::Count(id, count))
    }

    fn release(&mut self, key: &str, now: Timestamp, lease: &str) -> Verdict {
        let id = self.lease(key, lease);
        self.operate(key, now, Operation::Release(id))
    }

    /// The number of states.
    fn states(&self) -> usize {
        self.table.len()
    }

    /// The number of states that are left after expired ones are forgotten.
    fn states_left(&mut self, now: Timestamp) -> usize {
        self.table.sweep(now);
        self.table.len()
    }
}

/// The decisions of a batch, in their order. Those on one key are all made at one time.
fn batch(served: &Served, checks: &[Value]) -> Vec<Value> {
    let reply = served.api.post("/v1/check", json!({ "checks": checks }).to_string());
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.get("decisions").as_array().unwrap().clone()
}

/// A field of an answer that is a whole number.
fn number(answer: &Value, field: &str) -> u64 {
    answer[field].as_u64().unwrap_or_else(|| panic!("no {field} in {answer}"))
}

/// A field of a reply that is a whole number. The reply must be one to a call that decides.
fn number_of(reply: &Reply, field: &str) -> u64 {
    assert_eq!(reply.status, 200, "{reply:?}");
    number(&reply.json(), field)
}

/// Asserts that a refusal at the gate names the same wait and the same limit in its headers and its body.
fn assert_refused_by(reply: &Reply, status: u16, problem: &str, limit: &str) {
    assert_eq!(reply.status, status, "{reply:?}");
    let types = "https://iana.org/assignments/http-problem-types#";
    assert_eq!(reply.get("type"), format!("{types}{problem}"));
    assert_eq!(reply.get("violated-policies"), json!([limit]));
    let wait = reply.get("retry_after_us").as_u64().unwrap();
    assert!(wait > 0, "{reply:?}");
    assert_eq!(reply.header("retry-after"), Some(wait.div_ceil(SECOND).to_string().as_str()));
    assert_eq!(reply.header("cache-control"), Some("no-store"));
}

on_every_server!(
    &crate::POLICIES;
    replit:
        ten_runs_pass_over_http,
        five_connections_are_open_over_http,
        servers_that_open_at_once_share_the_five;
    ably:
        reporters_are_told_the_factor_over_http;
    senderista:
        a_thousand_pass_in_a_minute_over_http,
        clients_share_one_window;
    classdojo:
        every_attempt_counts_over_http,
        dozens_of_workers_share_one_log_over_http;
    stripe:
        requests_are_limited_over_http,
        an_expensive_request_gives_units_back_over_http;
    stripe_shedders:
        a_fifth_of_the_fleet_is_reserved_over_http,
        the_first_call_under_load_sheds_nothing_over_http;
);
