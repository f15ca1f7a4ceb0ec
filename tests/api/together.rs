//! Several policies on one request: the built Worker in front of an upstream.

use std::thread;

use tidegate_tests::{Served, until};

use crate::gateway::{problem, start_with};
use crate::held::wait_for;
use crate::upstream::{RawReply, Upstream, send};

/// The periods are long, so that no test depends on its speed. Each policy is in an object of its own.
const POLICIES: &str = r#"
auth = "none"
api_path = "/_tidegate"
jwt = { algorithms = ["HS256"], keys = "JWT_KEYS" }
routes = [
  { match = "/api/*", policies = ["by_address", "by_key"], upstream = "http://UPSTREAM" },
  { match = "/known/*", policies = ["by_address", "known"], upstream = "http://UPSTREAM" },
  { match = "/held/*", policies = ["jobs", "sessions", "by_key"], upstream = "http://UPSTREAM" },
  { match = "/metered/*", policies = ["by_address", "tokens", "bytes"], upstream = "http://UPSTREAM", estimate = 500, actual = { bytes = 1 } },
  { match = "/both/*", policies = ["tokens", "by_key"], upstream = "http://UPSTREAM", estimate = 500, actual = { bytes = 1 } },
]

[policies.by_address]
limits = [
  { algorithm = "fixed_window", name = "burst", limit = 20, period = "365d" },
  { algorithm = "token_bucket", name = "day", capacity = 90, rate = "1/365d" },
]

[policies.by_key]
key = ["header:x-api-key"]
limits = [{ algorithm = "fixed_window", limit = 3, period = "365d" }]

[policies.known]
key = ["header:x-api-key"]
remember = "1h"
limits = [{ algorithm = "fixed_window", limit = 1, period = "365d" }]

[policies.jobs]
limits = [{ algorithm = "concurrency", capacity = 1, time_to_live = "1h" }]

[policies.sessions]
key = ["header:x-api-key"]
limits = [{ algorithm = "connections", limit = 1, expiry = "1h" }]

[policies.tokens]
key = ["header:x-api-key"]
limits = [{ algorithm = "fixed_window", limit = 1_000_000, period = "365d" }]
reservations = {}

[policies.bytes]
limits = [{ algorithm = "fixed_window", limit = 1_000_000, period = "365d" }]
reservations = {}
"#;

const ADDRESS: &str = "ip:127.0.0.1";

fn start() -> (Served, Upstream) {
    start_with(POLICIES, None)
}

fn ask(served: &Served, path: &str, key: &str) -> RawReply {
    let fields = [("x-api-key", key), ("cf-connecting-ip", "127.0.0.1")];
    send(served, &format!("GET {path}"), &fields)
}

fn left(served: &Served, policy: &str, key: &str) -> u64 {
    let key = served.api.get(&format!("/_tidegate/v1/keys/{policy}/{key}"), &[]);
    key.get("remaining").as_u64().unwrap_or_else(|| panic!("{key:?}"))
}

#[test]
fn a_request_passes_every_policy_or_takes_nothing() {
    let (served, upstream) = start();
    let reply = ask(&served, "/api/echo", "alice");
    assert_eq!(reply.status, 200, "{reply:?}");
    let policies = r#""by_address/burst";q=20;w=31536000, "by_address/day";q=90;w=2838240000, "by_key";q=3;w=31536000"#;
    assert_eq!(reply.all("ratelimit-policy"), [policies]);
    assert!(reply.all("server-timing")[0].ends_with("desc=\"object\""), "{reply:?}");
    for _ in 0..2 {
        assert_eq!(ask(&served, "/api/echo", "alice").status, 200);
    }
    for _ in 0..3 {
        let refused = ask(&served, "/api/echo", "alice");
        problem(&refused, 429, "#quota-exceeded");
        assert_eq!(refused.json()["policy"], "by_key");
        assert_eq!(refused.all("ratelimit-policy"), [r#""by_key";q=3;w=31536000"#]);
    }
    problem(
        &send(&served, "GET /api/echo", &[("cf-connecting-ip", "127.0.0.1")]),
        400,
        ":invalid-request",
    );
    assert_eq!((left(&served, "by_address", ADDRESS), upstream.seen()), (17, 3));
}

#[test]
fn a_refusal_that_the_isolate_remembers_gives_back_what_an_object_granted() {
    let (served, upstream) = start();
    assert_eq!(ask(&served, "/known/echo", "alice").status, 200);
    for _ in 0..5 {
        problem(&ask(&served, "/known/echo", "alice"), 429, "#quota-exceeded");
    }
    assert_eq!((left(&served, "by_address", ADDRESS), upstream.seen()), (19, 1));
}

#[test]
fn requests_at_the_same_moment_are_never_granted_more_than_a_policy_has() {
    let (served, upstream) = start();
    let passed = |key: usize| {
        let replies = (0..8).map(|_| ask(&served, "/api/echo", &format!("key-{key}")).status);
        replies.filter(|status| *status == 200).count()
    };
    let passed: Vec<usize> = thread::scope(|scope| {
        let all: Vec<_> = (0..16).map(|key| scope.spawn(move || passed(key))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let total = passed.iter().sum::<usize>();
    assert!(passed.iter().all(|passed| *passed <= 3) && total <= 20, "{passed:?}");
    assert_eq!(upstream.seen(), total);
    assert_eq!(left(&served, "by_address", ADDRESS), u64::try_from(20 - total).unwrap());
}

#[test]
fn every_lease_is_released_at_the_end_and_by_a_refusal() {
    let (served, _upstream) = start();
    for round in 1..=3 {
        assert_eq!(ask(&served, "/held/echo", "alice").status, 200);
        wait_for(&served, "released", 2 * round);
    }
    for _ in 0..3 {
        problem(&ask(&served, "/held/echo", "alice"), 429, "#quota-exceeded");
        assert_eq!(left(&served, "jobs", ADDRESS), 1);
        assert_eq!(left(&served, "sessions", "header:x-api-key:alice"), 1);
    }
}

/// Waits for calls that are still under way.
fn wait_until_left(served: &Served, policy: &str, key: &str, expected: u64) {
    until(format_args!("{expected} are left of {policy}"), || {
        left(served, policy, key) == expected
    });
}

fn bytes_of(reply: &RawReply) -> u64 {
    assert_eq!(reply.status, 200, "{reply:?}");
    u64::try_from(reply.body.len()).unwrap()
}

#[test]
fn every_reservation_is_committed_at_the_true_cost() {
    let (served, _upstream) = start();
    let used = bytes_of(&ask(&served, "/metered/echo", "alice"));
    wait_until_left(&served, "tokens", "header:x-api-key:alice", 1_000_000 - used);
    wait_until_left(&served, "bytes", ADDRESS, 1_000_000 - used);
    assert_eq!(left(&served, "by_address", ADDRESS), 19, "it took its own cost");
    let used: u64 = (0..3).map(|_| bytes_of(&ask(&served, "/both/echo", "bob"))).sum();
    wait_until_left(&served, "tokens", "header:x-api-key:bob", 1_000_000 - used);
    for _ in 0..3 {
        problem(&ask(&served, "/both/echo", "bob"), 429, "#quota-exceeded");
        assert_eq!(left(&served, "tokens", "header:x-api-key:bob"), 1_000_000 - used);
    }
}
