//! Replit, "Limiting WebSocket connections".
//!
//! | the source has | here |
//! |---|---|
//! | 10 calls a second for each address, with a key for each second | `run`: one state, and exactly 10 pass; in the published system an eleventh passes |
//! | open connections of a user, summed over all servers; a limit of its own (5 here) | `websocket` |
//! | a count expires after 10 minutes unless refreshed, every 3 minutes | the same numbers |
//!
//! What the author was missing: each request searches for all keys of a user, and each refresh for all keys
//! of a server. Between the sum and the count two servers may both pass. A server that restarts under its old
//! name refreshes for ever the connections that it no longer has.

use serde_json::json;
use tidegate_gate::Micros;
use tidegate_tests::{Reply, Served};

use crate::{MINUTE, SECOND, System, assert_refused_by, at, batch, number, number_of};

const USER: &str = "user:42";

#[test]
fn ten_runs_pass_in_a_second_and_the_eleventh_waits_for_its_end() {
    let mut runs = System::of("run");
    for run in 0..10 {
        let passed = runs.operate(USER, at(run * 50_000), 1).decision;
        assert_eq!((passed.is_allowed(), passed.remaining()), (true, 9 - run));
    }
    let refused = runs.operate(USER, at(700_000), 1).decision;
    assert_eq!((refused.is_allowed(), refused.retry_after()), (false, Micros(300_000)));
    assert!(!runs.passes(USER, at(SECOND - 1), 1));
    assert_eq!(runs.operate(USER, at(SECOND), 1).decision.remaining(), 9);

    // the published system refuses a caller who finds that more than ten have been counted
    let mut counted = 0;
    for _ in 0..20 {
        if counted <= 10 {
            counted += 1;
        }
    }
    assert_eq!(counted, 11);
}

#[test]
fn a_user_is_one_state_however_long_it_runs_code() {
    let mut runs = System::of("run");
    for second in 0..60 {
        assert!(runs.passes(USER, at(second * SECOND), 10));
        assert_eq!(runs.states(), 1, "one state, and not one for each second");
    }
    assert_eq!(runs.states_left(at(60 * SECOND)), 0);
}

/// A user with five connections on three servers.
fn three_servers() -> System {
    let mut sockets = System::of("websocket");
    for (server, remaining) in [("a", 4), ("a", 3), ("b", 2), ("b", 1), ("c", 0)] {
        let opened = sockets.acquire(USER, at(0), server).decision;
        assert_eq!((opened.is_allowed(), opened.remaining()), (true, remaining), "{server}");
    }
    sockets
}

#[test]
fn the_sum_over_all_servers_is_limited_without_a_search() {
    let mut sockets = three_servers();
    for server in ["a", "b", "c", "d"] {
        assert!(!sockets.acquire(USER, at(1), server).decision.is_allowed(), "{server}");
    }
    assert_eq!(sockets.states(), 1, "one state for all servers of a user");
    assert!(sockets.acquire("user:7", at(1), "a").decision.is_allowed(), "another user");
    assert_eq!(sockets.release(USER, at(2), "b").effect.live(), Some(true));
    assert!(sockets.acquire(USER, at(2), "d").decision.is_allowed());
}

#[test]
fn the_connections_of_a_dead_server_end_ten_minutes_after_its_last_refresh() {
    let mut sockets = three_servers();
    for server in ["a", "b", "c"] {
        assert_eq!(sockets.renew(USER, at(3 * MINUTE), server).effect.live(), Some(true));
    }
    // c dies, and the other servers go on
    for minute in [6, 9, 12] {
        for server in ["a", "b"] {
            assert_eq!(sockets.renew(USER, at(minute * MINUTE), server).effect.live(), Some(true));
        }
        let refused = sockets.acquire(USER, at(minute * MINUTE), "a").decision;
        assert!(!refused.is_allowed());
        assert_eq!(
            refused.retry_after(),
            Micros((13 - minute) * MINUTE),
            "the wait ends when the connections of c end"
        );
    }
    assert!(!sockets.acquire(USER, at(13 * MINUTE - 1), "a").decision.is_allowed());
    assert!(sockets.acquire(USER, at(13 * MINUTE), "a").decision.is_allowed());
    assert_eq!(
        sockets.renew(USER, at(13 * MINUTE), "c").effect.live(),
        Some(false),
        "c is told so"
    );
}

/// The author's first solution, and the reason for his second.
#[test]
fn without_an_expiry_dead_servers_count_for_ever() {
    let mut sockets = System::edited("websocket", "expiry = \"10m\"", "expiry = \"36500d\"");
    for _ in 0..5 {
        assert!(sockets.acquire(USER, at(0), "dead").decision.is_allowed());
    }
    assert!(!sockets.acquire(USER, at(365 * 24 * 60 * MINUTE), "a").decision.is_allowed());
}

#[test]
fn a_server_that_restarts_reports_its_connections() {
    let mut sockets = three_servers();
    // the server restarts within the 10 minutes under its old name and reports that it has no connections
    let counted = sockets.count(USER, at(MINUTE), "a", 0);
    assert_eq!((counted.effect.live(), counted.decision.remaining()), (Some(true), 2));
    assert_eq!(
        sockets.release(USER, at(MINUTE), "a").effect.live(),
        Some(false),
        "the count does not fall below zero"
    );
    assert_eq!(sockets.operate(USER, at(MINUTE), 0).decision.remaining(), 2);
}

#[test]
fn the_count_of_a_server_that_was_cut_off_holds_even_above_the_limit() {
    let mut sockets = three_servers();
    for server in ["a", "b"] {
        sockets.renew(USER, at(9 * MINUTE), server);
    }
    assert!(sockets.acquire(USER, at(11 * MINUTE), "d").decision.is_allowed(), "c has vanished");
    // c had only lost its network: its connection is still open, so six are open
    sockets.count(USER, at(12 * MINUTE), "c", 1);
    for (server, opens) in [("a", false), ("b", true)] {
        assert!(!sockets.acquire(USER, at(12 * MINUTE), "d").decision.is_allowed());
        assert_eq!(sockets.release(USER, at(12 * MINUTE), server).effect.live(), Some(true));
        let opened = sockets.acquire(USER, at(12 * MINUTE), "d").decision;
        assert_eq!(opened.is_allowed(), opens, "after one of {server} is closed");
    }
}

pub fn ten_runs_pass_over_http(served: &Served) {
    let run = json!({ "policy": "run", "key": USER });
    let decisions = batch(served, &vec![run; 11]);
    let allowed: Vec<_> = decisions.iter().map(|decision| decision["allowed"] == true).collect();
    assert_eq!(allowed, [[true; 10].as_slice(), &[false]].concat());
    let eleventh = &decisions[10];
    let into_second = number(eleventh, "at_us") % SECOND;
    assert_eq!(number(eleventh, "retry_after_us"), SECOND - into_second, "the end of the second");

    // a caller who takes all ten at a time soon asks twice in one second
    let gate = || served.api.get("/v1/gate?policy=run&key=user:7&cost=10", &[]);
    let passed = gate();
    assert_eq!((passed.status, passed.header("ratelimit-policy")), (204, Some("\"run\";q=10;w=1")));
    let refused = (0..100).map(|_| gate()).find(|reply| reply.status != 204);
    assert_refused_by(&refused.expect("a refusal"), 429, "quota-exceeded", "run");
}

fn open(served: &Served, user: &str, server: &str) -> Reply {
    let body = json!({ "policy": "websocket", "key": user, "lease": server });
    served.api.post("/v1/leases", body.to_string())
}

pub fn five_connections_are_open_over_http(served: &Served) {
    for (server, remaining) in [("a", 4), ("a", 3), ("b", 2), ("b", 1), ("c", 0)] {
        let opened = open(served, USER, server);
        assert_eq!((opened.get("allowed"), opened.get("lease")), (json!(true), json!(server)));
        assert_eq!(number_of(&opened, "remaining"), remaining);
    }
    let sixth = open(served, USER, "c");
    assert_eq!(sixth.get("allowed"), false, "{sixth:?}");
    let quota = "\"websocket\";q=5;qu=\"concurrent-requests\"";
    assert_eq!(sixth.header("ratelimit-policy"), Some(quota));
    let wait = number_of(&sixth, "retry_after_us");
    assert!(
        (1..=10 * MINUTE).contains(&wait),
        "{wait}: the time until the connections of a server end"
    );
    assert!(sixth.header("ratelimit").unwrap().starts_with("\"websocket\";r=0;t="));

    let lease = |server: &str| format!("/v1/leases/{server}");
    let refreshed = json!({ "policy": "websocket", "key": USER });
    let refreshed = served.api.put(&lease("c"), refreshed.to_string());
    assert_eq!((refreshed.get("live"), number_of(&refreshed, "remaining")), (json!(true), 0));
    // a has restarted with one of its two connections
    let counted = json!({ "policy": "websocket", "key": USER, "count": 1 });
    let counted = served.api.put(&lease("a"), counted.to_string());
    assert_eq!((counted.get("live"), number_of(&counted, "remaining")), (json!(true), 1));
    assert_eq!(open(served, USER, "c").get("allowed"), true);

    let close =
        |server: &str| served.api.delete(&format!("{}?policy=websocket&key={USER}", lease(server)));
    for (live, remaining) in [(true, 1), (false, 1)] {
        let closed = close("a");
        assert_eq!(closed.get("live"), live, "the second time no connection is left to close");
        assert_eq!(number_of(&closed, "remaining"), remaining);
    }
}

pub fn servers_that_open_at_once_share_the_five(served: &Served) {
    let opened: usize = std::thread::scope(|scope| {
        let servers: Vec<_> = ["a", "b", "c", "d"]
            .map(|server| {
                scope.spawn(move || {
                    let opens = |_: &u8| open(served, USER, server).get("allowed") == true;
                    (0..3).filter(opens).count()
                })
            })
            .into();
        servers.into_iter().map(|server| server.join().unwrap()).sum()
    });
    assert_eq!(opened, 5);
}
