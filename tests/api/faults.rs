//! The Worker while its parts fail: WebAssembly traps, objects throw or are evicted, storage refuses to write, replies
//! are lost or asked for twice, clients hang up.

use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::thread;
use std::time::Instant;

use serde_json::json;
use tempfile::tempdir;
use tidegate::local::WorkerdOptions;
use tidegate_tests::{Reply, Served, until, worker};

use crate::storage::{count, selected, sql};

/// A unit comes back after a year.
const POLICIES: &str = "auth = 'none'\n\
    [policies.open]\non_error = 'open'\n\
    limits = [{ algorithm = 'fixed_window', limit = 100, period = '365d' }]\n\
    [policies.closed]\n\
    limits = [{ algorithm = 'fixed_window', limit = 100, period = '365d' }]\n\
    [policies.second]\n\
    limits = [{ algorithm = 'fixed_window', limit = 1, period = '1s' }]\n";

pub(crate) fn options() -> WorkerdOptions {
    let entry = Some(include_str!("faults.js").to_owned());
    WorkerdOptions { policies: POLICIES.to_owned(), entry, ..WorkerdOptions::default() }
}

fn stored(storage: &Path) -> WorkerdOptions {
    WorkerdOptions { storage: Some(storage.to_owned()), ..options() }
}

pub(crate) fn arm(served: &Served, fault: &str) {
    let fault = fault.replace(' ', "%20");
    assert_eq!(served.api.get(&format!("/fault/arm?{fault}"), &[]).text, "armed");
}

/// Moves the clock of the Worker.
pub(crate) fn later(served: &Served, millis: i64) {
    served.api.get(&format!("/fault/later?{millis}"), &[]);
}

/// Calls a method of the object that was asked last.
fn call(served: &Served, method: &str) -> String {
    served.api.get(&format!("/fault/call?{method}"), &[]).text
}

pub(crate) fn counted(served: &Served, what: &str) -> serde_json::Value {
    served.api.get("/fault/count", &[]).get(what)
}

/// Waits until something has been counted so often.
pub(crate) fn wait_for(served: &Served, what: &str, expected: u64) {
    until(format_args!("{what}: {expected}"), || counted(served, what) == expected);
}

fn remaining(served: &Served) -> serde_json::Value {
    served.api.check("closed", "k", 0, None).get("remaining")
}

fn degraded(reply: &Reply) -> bool {
    reply.status == 200 && !reply.get("degraded").is_null()
}

#[test]
fn after_a_trap_the_next_request_works() {
    for fault in ["trap in begin", "trap in text", "trap in reply", "trap in object"] {
        let served = worker(options());
        for round in 1..4 {
            assert_eq!(served.api.check("closed", "k", 1, None).get("allowed"), true, "{fault}");
            assert_eq!(served.api.check("closed", "other", 0, None).get("remaining"), 100);
            arm(&served, fault);
            let failed = served.api.check("closed", "lost", 1, None);
            // a request whose own code traps has no answer; otherwise `on_error` decides
            let is_own = fault == "trap in begin" || fault == "trap in text";
            assert!(
                if is_own { failed.status == 500 } else { degraded(&failed) },
                "{fault}: {failed:?}"
            );
            let next = served.api.check("closed", "k", 0, None);
            assert_eq!(next.get("remaining"), 100 - round, "{fault}: {next:?}");
        }
    }
}

#[test]
fn a_trap_never_gives_a_request_the_answer_to_another() {
    let served = worker(options());
    thread::scope(|scope| {
        arm(&served, "hold");
        let lost = scope.spawn(|| served.api.check("closed", "first", 1, None));
        wait_for(&served, "held", 1);
        arm(&served, "trap in begin");
        assert_eq!(served.api.check("closed", "k", 1, None).status, 500);
        // the new instance gives the same number to this request
        arm(&served, "hold");
        let next = scope.spawn(|| served.api.check("closed", "second", 1, None));
        wait_for(&served, "held", 2);
        served.api.get("/fault/release", &[]);
        let lost = lost.join().unwrap();
        let reason = "the Worker began anew, so the outcome is unknown";
        assert_eq!((lost.get("allowed"), lost.get("degraded")), (json!(false), json!(reason)));
        served.api.get("/fault/release", &[]);
        let next = next.join().unwrap();
        assert_eq!(next.get("allowed"), true, "{next:?}");
    });
}

#[test]
fn a_batch_asks_each_object_once() {
    let policies = POLICIES.replace("limits", "placement = 'shard:2'\nlimits");
    let served = worker(WorkerdOptions { policies, ..options() });
    let checks = (0..40).map(|key| json!({ "policy": "closed", "key": format!("{key}") }));
    let body = json!({ "checks": checks.collect::<Vec<_>>() }).to_string();
    for left in [99, 98] {
        let decisions = served.api.post("/v1/check", &body).get("decisions");
        let all = decisions.as_array().unwrap();
        assert!(all.len() == 40 && all.iter().all(|one| one["remaining"] == left), "{decisions}");
    }
    assert_eq!(counted(&served, "calls"), 4);
}

#[test]
fn an_object_that_throws_answers_the_next_request() {
    let served = worker(options());
    assert_eq!(served.api.check("closed", "k", 1, None).get("allowed"), true);
    for (fault, left) in [("throw before", 99), ("throw after", 98)] {
        arm(&served, fault);
        let failed = served.api.check("closed", "k", 1, None);
        assert_eq!(failed.get("allowed"), false);
        let reason = "durable object: no reply came, so the outcome is unknown";
        assert_eq!(failed.get("degraded"), reason);
        assert_eq!(remaining(&served), left, "{fault}");
    }
    arm(&served, "throw before");
    assert_eq!(served.api.check("open", "k", 1, None).get("allowed"), true);
}

#[test]
fn an_object_that_the_runtime_ends_because_its_disk_is_full_says_so() {
    let storage = tempdir().unwrap();
    let served = worker(stored(storage.path()));
    assert_eq!(served.api.check("closed", "k", 1, None).get("remaining"), 99);
    let reason = json!("durable object: store: its storage failed");
    for (policy, allowed) in [("closed", false), ("open", true)] {
        arm(&served, "fill the disk");
        let failed = served.api.check(policy, "k", 1, None);
        assert_eq!(
            (failed.get("allowed"), failed.get("degraded")),
            (json!(allowed), reason.clone())
        );
        assert!(
            !failed.text.contains("SQLITE"),
            "callers learn nothing of the storage: {failed:?}"
        );
    }
    let logged = counted(&served, "logged").to_string();
    assert!(logged.contains("SQLITE_FULL"), "{logged}");
    assert_eq!(remaining(&served), 99);
}

#[test]
fn an_error_is_logged_with_its_policy_and_without_its_key() {
    let served = worker(options());
    let begun = Instant::now();
    for _ in 0..5 {
        arm(&served, "throw before");
        served.api.check("closed", "a secret key", 1, None);
    }
    let logged = counted(&served, "logged");
    let lines: Vec<_> =
        logged.as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    let with_policy = |line: &&&str| line.starts_with("policy \"closed\", key ");
    let lines_of_checks = lines.iter().filter(with_policy).count() as u64;
    let seconds = begun.elapsed().as_secs();
    assert!(
        (1..=seconds + 1).contains(&lines_of_checks),
        "at most one line a second, in {seconds} s: {lines:?}"
    );
    assert!(lines.iter().all(|line| !line.contains("secret key")), "{lines:?}");
    let known = lines.len();
    assert_eq!(served.api.check("second", "k", 1, None).get("allowed"), true);
    served.api.check("second", "k", 1, None);
    assert_eq!(counted(&served, "logged").as_array().unwrap().len(), known, "no refusals");
}

#[test]
fn an_object_may_take_seconds() {
    let served = worker(options());
    thread::scope(|scope| {
        arm(&served, "hold");
        let slow = scope.spawn(|| served.api.check("closed", "slow", 1, None));
        wait_for(&served, "held", 1);
        later(&served, 5_000);
        assert_eq!(served.api.check("closed", "other", 1, None).get("allowed"), true);
        served.api.get("/fault/release", &[]);
        let slow = slow.join().unwrap();
        assert_eq!(slow.get("allowed"), true, "the object has granted it: {slow:?}");
    });
}

#[test]
fn an_evicted_object_grants_nothing_twice() {
    let served = worker(options());
    for granted in 1..6 {
        assert_eq!(served.api.check("closed", "k", 1, None).get("remaining"), 100 - granted);
        assert!(call(&served, "evict").contains("evicted"));
    }
    assert_eq!(remaining(&served), 95);
}

#[test]
fn a_question_that_comes_twice_is_taken_once() {
    let served = worker(options());
    for granted in 1..4 {
        arm(&served, "repeat");
        let reply = served.api.check("closed", "k", 1, None);
        assert_eq!(reply.get("remaining"), 100 - granted, "{reply:?}");
    }
    assert_eq!(remaining(&served), 97);
}

#[test]
fn an_object_recovers_as_soon_as_its_storage_does() {
    let storage = tempdir().unwrap();
    let served = worker(stored(storage.path()));
    let check = |cost| served.api.check("closed", "k", cost, None);
    assert_eq!(check(1).get("remaining"), 99);
    let broken = "CREATE TRIGGER broken BEFORE INSERT ON states
        BEGIN SELECT RAISE(ABORT, 'the disk is full'); END";
    for left in [99, 98, 97] {
        sql(storage.path(), broken);
        let failed = check(1);
        let reason = "durable object: store: its storage failed";
        assert_eq!((failed.get("allowed"), failed.get("degraded")), (json!(false), json!(reason)));
        assert_eq!(check(0).get("remaining"), left, "a peek needs no write");
        assert_eq!(check(200).status, 400);
        sql(storage.path(), "DROP TRIGGER broken");
        assert_eq!(check(1).get("remaining"), left - 1, "the same object writes again");
    }
}

/// A replay takes longer than the times that it gives.
#[test]
fn a_state_whose_time_was_given_outlives_the_clock_of_its_object() {
    let served = worker(WorkerdOptions { trust_caller_time: true, ..options() });
    let check = || served.api.check("second", "k", 1, Some(1_000)).get("allowed");
    assert_eq!((check(), check()), (true.into(), false.into()));
    later(&served, 3_600_000);
    call(&served, "ring");
    assert_eq!(check(), false);
}

#[test]
fn an_alarm_that_is_late_or_comes_twice_changes_no_decision() {
    let storage = tempdir().unwrap();
    let served = worker(stored(storage.path()));
    let check = || served.api.check("closed", "k", 1, None).get("remaining");
    for left in [99, 98, 97] {
        assert_eq!(check(), left);
        call(&served, "ring");
        call(&served, "ring");
    }
    assert_eq!(count(storage.path()), 1, "the state is kept for its year");
    let short = || served.api.check("second", "k", 1, None).get("allowed") == true;
    until("a unit comes back", short);
    until("the alarm deletes a state whose window has ended", || {
        call(&served, "ring");
        count(storage.path()) == 1
    });
    call(&served, "ring");
    until("a unit comes back", short);
    assert_eq!(check(), 96);
}

#[test]
fn ten_thousand_keys_that_are_idle_leave_nothing() {
    // objects of their own take a hundred times as long to make
    for (placement, batches) in [("shard:64", 100), ("key", 10)] {
        let policies = format!(
            "auth = 'none'\n[policies.short]\nplacement = '{placement}'\n\
            limits = [{{ algorithm = 'token_bucket', capacity = 1, rate = '1/s' }}]"
        );
        let storage = tempdir().unwrap();
        let alarm_after_ms = Some(1);
        let served = worker(WorkerdOptions { policies, alarm_after_ms, ..stored(storage.path()) });
        for batch in 0..batches {
            let check = |n| json!({ "policy": "short", "key": format!("{batch}-{n}") });
            let body = json!({ "checks": (0..100).map(check).collect::<Vec<_>>() });
            let decisions = served.api.post("/v1/check", body.to_string()).get("decisions");
            let granted =
                |one: &&serde_json::Value| one["allowed"] == true && one["degraded"].is_null();
            assert_eq!(decisions.as_array().unwrap().iter().filter(granted).count(), 100);
        }
        // Cloudflare bills even a table without rows
        until("no state and no table is left", || {
            selected(storage.path(), "SELECT COUNT(*) + 1 FROM states") == 0
        });
    }
}

#[test]
fn the_states_that_an_object_remembers_are_bounded_in_bytes() {
    let log =
        |name| format!("{{ algorithm = 'sliding_log', name = 'log{name}', rates = ['1000/d'] }}");
    let logs: Vec<_> = (0..8).map(log).collect(); // each remembers the times of 1000 units, of 8 bytes each
    let policies = format!(
        "auth = 'none'\n[policies.log]\nplacement = 'shard:1'\nlimits = [{}]",
        logs.join(",")
    );
    let served = worker(WorkerdOptions { policies, ..options() });
    let check = |key: u32| served.api.check("log", &key.to_string(), 1_000, None).get("allowed");
    assert!((0..800).all(|key| check(key) == true));
    let memory = counted(&served, "memory").as_u64().unwrap();
    assert!(memory < 40_000_000, "{memory} bytes for 800 states of 64 kB");
    assert!((0..800).all(|key| check(key) == false), "what is forgotten is read again");
}

#[test]
fn nothing_is_remembered_of_a_request_while_its_body_arrives() {
    let served = worker(options());
    let mut clients = Vec::new();
    // the head of a request whose body has no length is read before its body, and once more with it
    for (body, begun) in [("content-length: 9\r\n\r\n{", 0)]
        .into_iter()
        .chain((1..=3).map(|begun| ("transfer-encoding: chunked\r\n\r\n1\r\n{\r\n", begun)))
    {
        let mut client = TcpStream::connect(served.url.strip_prefix("http://").unwrap()).unwrap();
        write!(client, "POST /v1/check HTTP/1.1\r\nhost: x\r\n{body}").unwrap();
        clients.push(client);
        wait_for(&served, "begun", begun);
        assert_eq!(counted(&served, "underWay"), 0);
    }
    drop(clients);
    wait_for(&served, "underWay", 0);
}

#[test]
fn a_client_that_hangs_up_leaves_nothing_behind() {
    let served = worker(options());
    served.api.check("closed", "k", 1, None);
    for _ in 0..5 {
        arm(&served, "hold");
        let mut client = TcpStream::connect(served.url.strip_prefix("http://").unwrap()).unwrap();
        let body = r#"{"policy":"closed","key":"k"}"#;
        // the end of a connection with an unread answer is a reset, which the runtime sees at once
        let first = "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n";
        let head = "POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-length:";
        write!(client, "{first}{head} {}\r\n\r\n{body}", body.len()).unwrap();
        wait_for(&served, "held", 1);
        assert_eq!(counted(&served, "underWay"), 1);
        drop(client);
        // a later request shows that the runtime has seen the end of the connection
        assert_eq!(served.api.check("open", "k", 1, None).get("allowed"), true);
        served.api.get("/fault/release", &[]);
        wait_for(&served, "underWay", 0);
    }
}
