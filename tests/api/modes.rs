//! What a policy lets an isolate answer without an object, and lets an object grant without a write.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tempfile::tempdir;
use tidegate::local::WorkerdOptions;
use tidegate_tests::{Served, until, worker};

use crate::faults::{arm, counted, later, options, wait_for};
use crate::storage::{selected, sql};

/// Units come back after a year, so that no test depends on its speed.
const POLICIES: &str = "auth = 'none'
[policies.strict]
limits = [{ algorithm = 'token_bucket', capacity = 1000, rate = '1/d' }]
[policies.sharded]
placement = 'shard:4'
limits = [{ algorithm = 'token_bucket', capacity = 1000, rate = '1/d' }]
[policies.refused]
remember = '1h'
limits = [{ algorithm = 'token_bucket', capacity = 1000, rate = '1/d' }]
[policies.borrowed]
local = { most = 50, time = '1h' }
limits = [{ algorithm = 'token_bucket', capacity = 1000, rate = '1/d' }]
[policies.both]
placement = 'shard:4'
local = { most = 25, time = '1h' }
persist_ahead = { most = 50, time = '1h' }
limits = [{ algorithm = 'token_bucket', capacity = 1000, rate = '1/d' }]
[policies.ahead]
persist_ahead = { most = 50, time = '1h' }
limits = [{ algorithm = 'token_bucket', capacity = 1000, rate = '1/d' }]
[policies.hot]
persist_ahead = { most = 100, time = '1h' }
limits = [{ algorithm = 'token_bucket', capacity = 10000, rate = '1/d' }]
[policies.remembered]
remember = '1h'
limits = [{ algorithm = 'token_bucket', capacity = 1, rate = '1/30d' }]
[policies.lent]
local = { most = 50, time = '1h' }
limits = [{ algorithm = 'token_bucket', capacity = 500, rate = '1/d' }]
[policies.shared]
limits = [{ algorithm = 'token_bucket', capacity = 1000, rate = '1/d' }]
[policies.shared_and_remembered]
remember = '1h'
limits = [{ algorithm = 'token_bucket', capacity = 1, rate = '1/30d' }]
[policies.reported]
reports = true
limits = [{ algorithm = 'suppression', rate = '10/s' }]
";

fn start(storage: Option<&Path>) -> Served {
    let storage = storage.map(Path::to_owned);
    worker(WorkerdOptions { policies: POLICIES.to_owned(), storage, ..options() })
}

fn passes(served: &Served, policy: &str, key: &str) -> bool {
    let reply = served.api.get(&format!("/v1/gate?policy={policy}&key={key}"), &[]);
    let is_shed = reply.text.contains("temporary-reduced-capacity");
    assert!([204, 429].contains(&reply.status) || is_shed, "{reply:?}");
    reply.status == 204
}

/// How many of these requests pass.
fn grants(served: &Served, policy: &str, requests: usize) -> u64 {
    (0..requests).map(|_| u64::from(passes(served, policy, "k"))).sum()
}

#[test]
fn one_write_covers_many_grants() {
    let storage = tempdir().unwrap();
    for policy in ["strict", "hot"] {
        assert!(passes(&start(Some(storage.path())), policy, "k"));
    }
    sql(storage.path(), "CREATE TABLE writes (policy TEXT)");
    let counted = "CREATE TRIGGER counted BEFORE INSERT ON states
        BEGIN INSERT INTO writes VALUES (NEW.name); END";
    sql(storage.path(), counted);
    let served = start(Some(storage.path()));
    let writes = |policy: &str| {
        let count = format!("SELECT COUNT(*) FROM writes WHERE policy LIKE '%{{{policy}:%'");
        selected(storage.path(), &count)
    };
    assert_eq!(grants(&served, "strict", 50), 50);
    assert_eq!(writes("strict"), 50);
    assert_eq!(grants(&served, "hot", 1_000), 1_000);
    let found = writes("hot");
    assert!((10..=20).contains(&found), "{found} writes for 1000 grants");
}

/// How often the runtime is killed under load.
const CRASHES: u64 = 5;

/// How many clients ask at the same time.
const CLIENTS: u64 = 4;

/// Asks until the runtime is killed.
fn ask_until_killed(url: &str, policy: &str, granted: &AtomicU64) {
    let request = format!("GET /v1/gate?policy={policy}&key=k HTTP/1.1\r\nhost: x\r\n\r\n");
    let Ok(mut stream) = TcpStream::connect(url.strip_prefix("http://").unwrap()) else { return };
    let mut answer = [0; 4_096];
    while stream.write_all(request.as_bytes()).is_ok()
        && let Ok(length) = stream.read(&mut answer)
        && length > 0
    {
        granted.fetch_add(u64::from(answer.starts_with(b"HTTP/1.1 204")), Ordering::SeqCst);
    }
}

/// Kills the runtime under load, starts it on the same storage, and then takes what is left. Returns all grants. After
/// each crash no more may be left than what no client was granted.
fn grants_over_crashes(policy: &str) -> u64 {
    let (storage, granted) = (tempdir().unwrap(), AtomicU64::new(0));
    for crash in 1..=CRASHES {
        let served = start(Some(storage.path()));
        let url = served.url.clone();
        thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| ask_until_killed(&url, policy, &granted));
            }
            until("some are granted", || granted.load(Ordering::SeqCst) >= 60 * crash);
            drop(served);
        });
        let granted = granted.load(Ordering::SeqCst);
        let left = start(Some(storage.path())).api.check(policy, "k", 0, None).get("remaining");
        assert!(left.as_u64().unwrap() + granted <= 1_000, "{policy}: {granted}, {left} left");
    }
    let served = start(Some(storage.path()));
    while passes(&served, policy, "k") {
        granted.fetch_add(1, Ordering::SeqCst);
    }
    granted.into_inner()
}

/// A policy of each mode, and the most units that a crash may lose.
const MOST_LOST: [(&str, u64); 6] =
    [("strict", 0), ("sharded", 0), ("refused", 0), ("ahead", 50), ("borrowed", 50), ("both", 75)];

#[test]
fn crashes_under_load_grant_nothing_twice() {
    for (policy, most) in MOST_LOST {
        let granted = grants_over_crashes(policy);
        println!("{policy}: {granted} of 1000 granted over {CRASHES} crashes");
        // what was granted to a client that did not hear of it is lost too; a bucket also loses what flows in
        let lost = CRASHES * (most + CLIENTS + 1);
        assert!((1_000 - lost..=1_000).contains(&granted), "{policy}: {granted}");
    }
}

#[test]
fn a_clock_that_goes_back_between_restarts_grants_nothing_twice() {
    for (policy, most) in MOST_LOST {
        let storage = tempdir().unwrap();
        let mut granted = 0;
        for days in [3, 0, 2, -2, 1] {
            let served = start(Some(storage.path()));
            later(&served, days * 86_400_000);
            granted += grants(&served, policy, 150);
        }
        let served = start(Some(storage.path()));
        while passes(&served, policy, "k") {
            granted += 1;
        }
        let lost = if most > 0 { 6 * (most + 1) } else { 0 };
        assert!((1_000 - lost..=1_000).contains(&granted), "{policy}: {granted}");
    }
}

#[test]
fn a_refusal_that_is_known_asks_no_object() {
    let served = start(None);
    assert!(passes(&served, "remembered", "k"));
    let refused = served.api.check("remembered", "k", 1, None).get("retry_after_us");
    let calls = counted(&served, "calls");
    arm(&served, "throw before");
    later(&served, 60_000);
    for _ in 0..10 {
        let again = served.api.check("remembered", "k", 1, None);
        assert_eq!((again.status, again.get("allowed")), (200, false.into()));
        let wait = |value: &serde_json::Value| value.as_u64().unwrap();
        assert!(wait(&again.get("retry_after_us")) <= wait(&refused) - 60_000_000, "{again:?}");
    }
    assert_eq!(counted(&served, "calls"), calls);
    assert!(!served.api.check("remembered", "other", 1, None).get("degraded").is_null());

    assert_eq!(served.api.delete("/v1/keys/remembered/k").status, 200);
    assert!(passes(&served, "remembered", "k"), "the isolate forgets what it has reset");
    assert!(!passes(&served, "remembered", "k"));
    later(&served, 3_600_000);
    let calls = counted(&served, "calls").as_u64().unwrap();
    assert!(!passes(&served, "remembered", "k"));
    assert_eq!(counted(&served, "calls"), calls + 1, "`remember` has passed");
}

#[test]
fn units_in_advance_are_never_more_than_the_limits_grant() {
    let storage = tempdir().unwrap();
    let mut granted = 0;
    for _ in 0..4 {
        // the isolate ends with what it holds
        let served = start(Some(storage.path()));
        granted += grants(&served, "lent", 100);
        let calls = counted(&served, "calls").as_u64().unwrap();
        assert!(calls < 30, "{calls} calls for 100 grants");
    }
    assert!(granted <= 400);
    let served = start(Some(storage.path()));
    granted += grants(&served, "lent", 200);
    assert!((500 - 4 * 50..=500).contains(&granted), "{granted}");
}

#[test]
fn units_are_spent_within_their_time() {
    let served = start(None);
    assert_eq!(grants(&served, "lent", 12), 12);
    let calls = counted(&served, "calls");
    assert!(passes(&served, "lent", "k"));
    assert_eq!(counted(&served, "calls"), calls, "the isolate holds units");
    later(&served, 3_600_000);
    assert!(passes(&served, "lent", "k"));
    assert_ne!(counted(&served, "calls"), calls, "their time has passed");
}

#[test]
fn a_load_is_reported_and_suppressed() {
    let served = start(None);
    served.api.get("/fault/stand", &[]); // all requests come in one part of 6 s
    // the object decides on the first, and the isolate admits what the rate grants in a part
    assert_eq!(grants(&served, "reported", 300), 61);
    let calls = counted(&served, "calls").as_u64().unwrap();
    assert!((1..=2).contains(&calls), "{calls} calls for 300 requests");
    for _ in 0..2 {
        later(&served, 6_000); // whatever was offered before is due now
        let reply = served.api.check("reported", "k", 1, None);
        assert!(reply.get("degraded").is_null(), "{reply:?}");
    }
    assert!(counted(&served, "calls").as_u64().unwrap() > calls, "the load was reported");
}

/// Lets the object hold a call of the policy `shared`, and then asks so often more at the same time. Returns the answers.
fn asked_meanwhile(served: &Served, more: u64, then: impl FnOnce()) -> Vec<serde_json::Value> {
    thread::scope(|scope| {
        arm(served, "hold");
        let ask = || served.api.check("shared", "k", 1, None);
        let mut all = vec![scope.spawn(ask)];
        wait_for(served, "held", 1);
        all.extend((0..more).map(|_| scope.spawn(ask)));
        wait_for(served, "underWay", more + 1);
        assert_eq!(counted(served, "calls"), 1);
        then();
        all.into_iter().map(|answer| answer.join().unwrap().get("remaining")).collect()
    })
}

#[test]
fn checks_that_come_while_a_call_is_under_way_share_the_next_one() {
    let served = start(None);
    let release = || drop(served.api.get("/fault/release", &[]));
    let mut left = asked_meanwhile(&served, 20, release);
    left.sort_by_key(serde_json::Value::as_u64);
    assert_eq!(left, (979..=999).map(serde_json::Value::from).collect::<Vec<_>>());
    assert_eq!(counted(&served, "calls"), 2);
    assert_eq!(counted(&served, "underWay"), 0);
    assert_eq!(served.api.check("shared", "k", 1, None).get("remaining"), 978);
    assert_eq!(counted(&served, "calls"), 3);
}

#[test]
fn a_trap_ends_the_wait_for_a_shared_call() {
    let served = start(None);
    let trap = || {
        arm(&served, "trap in begin");
        assert_eq!(served.api.check("strict", "k", 1, None).status, 500);
        served.api.get("/fault/release", &[]);
    };
    // the outcome of all of them is unknown
    assert_eq!(asked_meanwhile(&served, 5, trap), vec![serde_json::Value::Null; 6]);
    assert_eq!(served.api.check("shared", "k", 1, None).get("remaining"), 998);
}

#[test]
fn a_client_that_leaves_does_not_stop_a_shared_call() {
    let served = start(None);
    arm(&served, "hold");
    let mut client = TcpStream::connect(served.url.strip_prefix("http://").unwrap()).unwrap();
    // the end of a connection with an unread answer is a reset, which the runtime sees at once
    let (first, asked) = ("GET /healthz", "GET /v1/gate?policy=shared&key=k");
    write!(client, "{first} HTTP/1.1\r\nhost: x\r\n\r\n{asked} HTTP/1.1\r\nhost: x\r\n\r\n")
        .unwrap();
    wait_for(&served, "held", 1);
    thread::scope(|scope| {
        let waits = scope.spawn(|| served.api.check("shared", "k", 1, None));
        wait_for(&served, "underWay", 2);
        drop(client);
        // a later request shows that the runtime has seen the end of the connection
        assert!(passes(&served, "strict", "k"));
        served.api.get("/fault/release", &[]);
        assert_eq!(waits.join().unwrap().get("remaining"), 998);
    });
    wait_for(&served, "underWay", 0);
}

#[test]
fn a_shared_call_without_an_answer_is_given_up() {
    let served = start(None);
    thread::scope(|scope| {
        arm(&served, "hold");
        let ask = || served.api.check("shared", "k", 1, None);
        let held = scope.spawn(ask);
        wait_for(&served, "held", 1);
        let waits = scope.spawn(ask);
        wait_for(&served, "underWay", 2);
        later(&served, 31_000);
        let given_up = waits.join().unwrap();
        assert!(!given_up.get("degraded").is_null(), "{given_up:?}");
        served.api.get("/fault/release", &[]);
        assert!(!held.join().unwrap().get("degraded").is_null());
    });
    assert_eq!(served.api.check("shared", "k", 1, None).get("remaining"), 998);
}

#[test]
fn requests_that_the_isolate_answers_by_itself_leave_nothing_to_wake() {
    let served = start(None);
    assert_eq!(grants(&served, "shared_and_remembered", 50), 1);
    assert_eq!(counted(&served, "calls"), 2);
    assert_eq!(served.api.get("/fault/woken", &[]).get("woken"), 0);
}
