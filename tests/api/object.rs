//! Behaviour of the Worker alone: its clock, its storage, its configuration.

use serde_json::json;
use tempfile::tempdir;
use tidegate::local::{Workerd, WorkerdOptions};
use tidegate_tests::{Api, Reply, TOKEN, until, worker};

use crate::POLICIES;
use crate::storage::{count, selected, sql};

fn worker_options() -> WorkerdOptions {
    tidegate_tests::worker_options(POLICIES)
}

#[test]
fn a_restart_of_the_runtime_grants_nothing_twice() {
    let storage = tempdir().unwrap();
    let options =
        || WorkerdOptions { storage: Some(storage.path().to_owned()), ..worker_options() };
    let mut granted = 0;
    for _ in 0..4 {
        let served = worker(options());
        for policy in ["day", "open"] {
            for _ in 0..2 {
                if served.api.check(policy, "k", 1, None).get("allowed") == true {
                    granted += 1;
                }
            }
        }
        // dropping `served` kills the runtime, so nothing can be saved at shutdown
    }
    assert_eq!(granted, 3 + 5);
}

/// A statement may have 100 parameters, and a row takes three.
#[test]
fn a_batch_on_many_keys_of_one_partition_is_stored() {
    let policies = "auth = 'none'
        [policies.team]
        limits = [{ algorithm = 'fixed_window', limit = 1000, period = '365d', depth = 0 },
                  { algorithm = 'fixed_window', limit = 1, period = '365d' }]";
    let storage = tempdir().unwrap();
    let start = || {
        let storage = Some(storage.path().to_owned());
        worker(WorkerdOptions { policies: policies.to_owned(), storage, ..worker_options() })
    };
    let allowed = |served: &tidegate_tests::Served, keys: std::ops::Range<u32>| {
        let checks: Vec<_> =
            keys.map(|key| json!({ "policy": "team", "key": format!("k{key}") })).collect();
        let reply = served.api.post("/v1/check", json!({ "checks": checks }).to_string());
        let decisions = reply.get("decisions");
        let decisions = decisions.as_array().expect("decisions").clone();
        let allowed = |decision: &&serde_json::Value| {
            decision["allowed"] == true && decision.get("degraded").is_none()
        };
        decisions.iter().filter(allowed).count()
    };
    let served = start();
    assert_eq!(
        [allowed(&served, 0..33), allowed(&served, 100..133), allowed(&served, 200..500)],
        [33, 33, 300]
    );
    drop(served);
    assert_eq!(allowed(&start(), 0..500), 134, "those that were not asked about before");
    // the last of several statements fails
    let broken = "CREATE TRIGGER broken BEFORE INSERT ON states WHEN NEW.name LIKE '%k599%'
        BEGIN SELECT RAISE(ABORT, 'the disk is full'); END";
    sql(storage.path(), broken);
    assert_eq!(allowed(&start(), 500..600), 0);
    sql(storage.path(), "DROP TRIGGER broken");
    assert_eq!(allowed(&start(), 500..600), 100, "nothing of the batch was stored");
}

#[test]
fn leases_and_budgets_outlive_a_restart_of_the_runtime() {
    let storage = tempdir().unwrap();
    let start =
        || worker(WorkerdOptions { storage: Some(storage.path().to_owned()), ..worker_options() });
    let about = |policy: &str, rest: serde_json::Value| {
        let mut body = json!({ "policy": policy, "key": "k" });
        body.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        body.to_string()
    };
    let released = "/v1/leases/released?policy=jobs&key=k";
    let granted_at = {
        let served = start();
        for lease in ["held", "released"] {
            let acquired = served.api.post("/v1/leases", about("jobs", json!({ "lease": lease })));
            assert_eq!(acquired.get("allowed"), true, "{acquired:?}");
        }
        assert_eq!(served.api.delete(released).get("live"), true);
        let counted = about("sockets", json!({ "count": 3 }));
        assert_eq!(served.api.put("/v1/leases/node", counted).get("live"), true);
        for _ in 0..4 {
            served.api.check("login", "k", 1, None);
        }
        let wants = about("spread", json!({ "lease": "node", "wants": 40 }));
        let granted = served.api.post("/v1/budget", wants).get("budget");
        assert_eq!(granted["granted"], 40);
        granted["granted_at_us"].clone()
    };
    let served = start();
    assert_eq!(
        served.api.delete(released).get("live"),
        false,
        "the lease was released before the restart"
    );
    assert_eq!(served.api.put("/v1/leases/held", about("jobs", json!({}))).get("live"), true);
    let acquire = |lease: &str| {
        served.api.post("/v1/leases", about("jobs", json!({ "lease": lease }))).get("allowed")
    };
    assert_eq!((acquire("second"), acquire("third")), (json!(true), json!(false)));
    let opened = served.api.post("/v1/leases", about("sockets", json!({ "lease": "other" })));
    assert_eq!(opened.get("allowed"), false);
    let refused = served.api.check("login", "k", 1, None);
    assert!(refused.get("retry_after_us").as_u64().unwrap() > 86_400_000_000, "the penalty lasts");
    let back = json!({ "lease": "node", "wants": 0, "granted_at_us": granted_at, "left": 15 });
    let back = served.api.post("/v1/budget", about("spread", back));
    assert_eq!((back.get("live"), &back.get("limits")[0]["remaining"]), (json!(true), &json!(75)));
}

#[test]
fn a_bucket_that_starts_empty_fills_from_its_first_refusal() {
    let storage = tempdir().unwrap();
    let start =
        || worker(WorkerdOptions { storage: Some(storage.path().to_owned()), ..worker_options() });
    let refused = start().api.check("warming", "k", 1, None);
    assert_eq!(refused.get("allowed"), false);
    let wait = |refused: &Reply| refused.get("retry_after_us").as_u64().unwrap();
    let again = start().api.check("warming", "k", 1, None);
    assert!(wait(&again) < wait(&refused), "the bucket started over: {again:?}");
}

#[test]
fn a_given_time_outlives_a_restart_of_the_runtime() {
    let storage = tempdir().unwrap();
    let check = |now| {
        let storage = Some(storage.path().to_owned());
        let options = WorkerdOptions { storage, trust_caller_time: true, ..worker_options() };
        worker(options).api.check("open", "k", 5, Some(now))
    };
    assert_eq!(check(7).get("allowed"), true);
    assert_eq!(check(1_007).get("allowed"), false);
    assert_eq!(check(7).get("at_us"), 1_007, "the refusal moved the key's clock");
}

#[test]
fn a_test_environment_may_let_a_lease_end() {
    let served = worker(WorkerdOptions { trust_caller_time: true, ..worker_options() });
    let day = 86_400_000_000_u64;
    let body = |now: u64| json!({ "policy": "jobs", "key": "k", "now_us": now }).to_string();
    let acquired = served.api.post("/v1/leases", body(7));
    let lease = acquired.get("lease").as_str().unwrap().to_owned();
    let path = format!("/v1/leases/{lease}");
    assert_eq!(served.api.put(&path, body(6 + day)).get("live"), true);
    let release = format!("{path}?policy=jobs&key=k&now_us={}", 6 + 2 * day);
    assert_eq!(
        served.api.delete(&release).get("live"),
        false,
        "nobody renewed the lease for a day"
    );
}

#[test]
fn a_test_environment_may_draw() {
    let served = worker(WorkerdOptions { trust_caller_time: true, ..worker_options() });
    let report = json!({
        "policy": "account", "key": "k", "now_us": 7, "admitted": 1, "suppressed": 1,
    });
    // two units in 7 us under a limit of one in 6 s: all but a tiny fraction is to be refused
    let factor = served.api.post("/v1/report", report.to_string()).get("factor").as_u64().unwrap();
    let check = |draw: u64| {
        let body = json!({ "policy": "account", "key": "k", "now_us": 7, "draw": draw });
        served.api.post("/v1/check", body.to_string()).get("allowed")
    };
    assert_eq!(check(factor - 1), false);
    assert_eq!(check(u64::from(u32::MAX)), true);
}

#[test]
fn a_test_environment_may_give_the_time() {
    let served = worker(WorkerdOptions { trust_caller_time: true, ..worker_options() });
    let day = 86_400_000_000;
    let check = |now| served.api.check("open", "k", 5, Some(now));
    assert_eq!(check(7).get("allowed"), true);
    let refused = check(8);
    assert_eq!(refused.get("retry_after_us"), 5 * day - 1);
    assert_eq!(check(7 + 5 * day - 1).get("retry_after_us"), 1);
    assert_eq!(check(7 + 5 * day).get("allowed"), true);
}

#[test]
fn without_a_token_only_health_is_served() {
    let served = worker(WorkerdOptions { token: None, ..worker_options() });
    assert_eq!(served.api.get("/healthz", &[]).status, 200);
    let reply = Api::new(&served.url, Some("")).check("open", "k", 1, None);
    assert_eq!(reply.status, 401);
    assert!(reply.text.contains("no token is configured"), "{reply:?}");
    let policies = format!("auth = \"none\"\n{POLICIES}");
    let open = worker(WorkerdOptions { token: None, policies, ..worker_options() });
    assert_eq!(open.api.check("open", "k", 1, None).get("allowed"), true);
}

#[test]
fn another_policy_file_needs_no_new_build() {
    let policies = "auth = 'none'\n[policies.mine]\n\
        limits = [{ algorithm = 'fixed_window', limit = 2, period = '365d' }]";
    let options = WorkerdOptions { policies: policies.to_owned(), ..WorkerdOptions::default() };
    let served = worker(options);
    assert_eq!(served.api.check("mine", "k", 2, None).get("allowed"), true);
    assert_eq!(served.api.check("mine", "k", 1, None).get("allowed"), false);
}

#[test]
fn a_foreign_or_truncated_state_is_an_error_and_not_a_grant() {
    for (bytes, reason) in [
        ("x'00'", "expected version 3, found 0"),
        ("x'01'", "expected version 3, found 1"),
        ("x'03'", "bytes, found 1"),
        ("x''", "bytes, found 0"),
        ("zeroblob(length(blob))", "expected version 3, found 0"),
        ("''", "bytes, found 0"),
        ("'hello'", "bytes, found 0"),
        ("97", "bytes, found 0"),
        ("1000000000000000", "bytes, found 0"),
        ("-1.5", "bytes, found 0"),
        ("substr(blob, 1, 20)", "bytes, found 20"),
        (
            "CAST(x'03' || x'0000000000000000' || substr(blob, 10) AS BLOB)",
            "found 0000000000000000",
        ),
        (
            "CAST(substr(blob, 1, 9) || x'ffffffffffffff0f' || substr(blob, 18) AS BLOB)",
            "no more than these limits can grant",
        ),
    ] {
        let storage = tempdir().unwrap();
        let options = || WorkerdOptions {
            policies: POLICIES.replace("\nlimits", "\non_change = 'reset'\nlimits"),
            storage: Some(storage.path().to_owned()),
            ..worker_options()
        };
        {
            let served = worker(options());
            assert_eq!(served.api.check("day", "k", 1, None).get("allowed"), true);
            assert_eq!(served.api.check("open", "k", 1, None).get("allowed"), true);
        }
        let update = format!("UPDATE states SET blob = {bytes}");
        assert_eq!(sql(storage.path(), &update), 2);
        let served = worker(options());
        let closed = served.api.check("day", "k", 1, None);
        assert_eq!((closed.status, closed.get("allowed")), (200, json!(false)), "{bytes}");
        assert!(closed.get("degraded").as_str().unwrap().contains(reason), "{bytes}: {closed:?}");
        let gate = served.api.get("/v1/gate?policy=day&key=k", &[]);
        assert_eq!(gate.status, 503);
        for answer in [&closed, &gate] {
            assert!(!answer.text.contains("tidegate:{"), "callers learn no names: {answer:?}");
        }
        let open = served.api.check("open", "k", 1, None);
        assert_eq!(open.get("allowed"), true, "the policy's on_error lets it pass: {open:?}");
        assert!(open.get("degraded").as_str().unwrap().contains(reason));
        let status = served.api.get("/v1/status", &[]).json();
        let store = json!({ "name": "object", "answers": true });
        assert_eq!(status["store"], store, "it concerns this key alone");
        assert_eq!(served.api.get("/v1/gate?policy=open&key=k", &[]).status, 204);
        assert_eq!(served.api.check("day", "other", 1, None).get("allowed"), true);
        // only what these limits wrote themselves is replaced by a reset
        let is_own = ["bytes, found 1", "bytes, found 20", "no more than these limits can grant"];
        let is_own = is_own.contains(&reason);
        let reset = served.api.delete("/v1/keys/open/k");
        assert_eq!(reset.status, if is_own { 200 } else { 503 }, "{bytes}: {reset:?}");
        let next = served.api.check("open", "k", 1, None);
        assert_eq!(next.get("degraded").is_null(), is_own, "{bytes}: {next:?}");
    }
}

#[test]
fn an_object_that_is_only_looked_at_stores_nothing() {
    let storage = tempdir().unwrap();
    {
        let storage = Some(storage.path().to_owned());
        let served = worker(WorkerdOptions { storage, ..worker_options() });
        assert_eq!(served.api.check("open", "k", 0, None).get("remaining"), 5);
        assert_eq!(served.api.get("/v1/keys/open/other?cost=1", &[]).get("allowed"), true);
    }
    assert_eq!(selected(storage.path(), "SELECT COUNT(*) + 1 FROM states"), 0, "there is no table");
}

#[test]
fn a_write_that_fails_half_way_charges_nothing() {
    let policies = "auth = 'none'\n[policies.team]\nlimits = [
        { algorithm = 'fixed_window', name = 'team', depth = 1, limit = 9, period = '365d' },
        { algorithm = 'fixed_window', name = 'user', limit = 9, period = '365d' } ]";
    let storage = tempdir().unwrap();
    let start = || {
        worker(WorkerdOptions {
            policies: policies.to_owned(),
            storage: Some(storage.path().to_owned()),
            ..WorkerdOptions::default()
        })
    };
    let remaining = |reply: &Reply| {
        [0, 1].map(|limit| reply.get("limits")[limit]["remaining"].as_u64().unwrap())
    };
    assert_eq!(remaining(&start().api.check("team", "acme/alice", 1, None)), [8, 8]);
    let broken = "CREATE TRIGGER broken BEFORE INSERT ON states WHEN NEW.name LIKE '%alice%'
        BEGIN SELECT RAISE(ABORT, 'the disk is full'); END";
    sql(storage.path(), broken);
    {
        let served = start();
        let failed = served.api.check("team", "acme/alice", 1, None);
        let reason = "durable object: store: its storage failed";
        assert_eq!(failed.get("degraded"), reason, "callers learn nothing of the storage");
        let looked = served.api.check("team", "acme/alice", 0, None);
        assert_eq!(remaining(&looked), [8, 8], "nothing is charged in memory");
    }
    sql(storage.path(), "DROP TRIGGER broken");
    let served = start();
    let looked = served.api.check("team", "acme/alice", 0, None);
    assert_eq!(remaining(&looked), [8, 8], "nothing is charged in storage");
    assert_eq!(remaining(&served.api.check("team", "acme/bob", 1, None)), [7, 8]);
}

#[test]
fn the_alarm_deletes_expired_states() {
    // the state expires within a millisecond; at its next alarm the object deletes all its storage
    let policies = "auth = 'none'\n[policies.short]\n\
        limits = [{ algorithm = 'token_bucket', capacity = 1, rate = '1/ms' }]";
    let storage = tempdir().unwrap();
    let options = WorkerdOptions {
        policies: policies.to_owned(),
        storage: Some(storage.path().to_owned()),
        alarm_after_ms: Some(1),
        ..WorkerdOptions::default()
    };
    let served = worker(options);
    assert_eq!(served.api.check("short", "k", 1, None).get("allowed"), true);
    until("the state is deleted", || count(storage.path()) == 0);
    assert_eq!(served.api.check("short", "k", 1, None).get("allowed"), true, "the key begins anew");
}

#[test]
fn a_worker_that_ignores_given_times_cannot_be_replayed_against() {
    let server = Workerd::start(&worker_options()).unwrap();
    let policies = tidegate::gate::Policies::parse(POLICIES).unwrap();
    let target = tidegate::replay::Target {
        policies: POLICIES.to_owned(),
        worker: Some(server.url().to_owned()),
        token: Some(TOKEN.to_owned()),
        ..tidegate::replay::Target::default()
    };
    let kind = tidegate::replay::BackendKind::Worker;
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let error = runtime
        .block_on(tidegate::replay::Backend::start(kind, &policies, &target))
        .expect_err("it must not be believed");
    assert!(error.to_string().contains("TIDEGATE_TRUST_CALLER_TIME"), "{error}");
}
