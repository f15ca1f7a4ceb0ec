//! Policies that are swapped while the server runs.

use std::path::Path;
use std::thread;

use serde_json::json;
use tempfile::tempdir;
use tidegate::local::WorkerdOptions;
use tidegate_tests::{Served, TOKEN, kept_memory, worker};

use crate::POLICIES;
use crate::faults::{arm, counted, later};

/// The file with other limits on one policy.
pub fn edited(capacity: u64) -> String {
    let open =
        "limits = [{ algorithm = \"token_bucket\", capacity = 5, rate = \"1/d\" }]\non_error";
    assert!(POLICIES.contains(open));
    POLICIES.replace(open, &open.replace('5', &capacity.to_string()))
}

pub fn limit(served: &Served, key: &str) -> serde_json::Value {
    served.api.check("open", key, 0, None).get("limit")
}

pub fn an_edit_keeps_the_states_of_all_other_policies(served: &Served) {
    let check = |policy: &str, key: &str| served.api.check(policy, key, 1, None);
    let lease = check("jobs", "k").get("lease").as_str().unwrap().to_owned();
    assert_eq!(check("day", "k").get("remaining"), 2);
    assert_eq!(check("open", "k").get("remaining"), 4);
    assert_eq!(served.api.put_policies(&edited(9)).status, 200);
    assert_eq!(check("day", "k").get("remaining"), 1);
    assert_eq!(check("open", "k").get("remaining"), 7, "the unit that was used stays used");
    let reset =
        edited(9).replace("on_error = \"open\"", "on_error = \"open\"\non_change = \"reset\"");
    assert_eq!(served.api.put_policies(&reset).status, 200);
    assert_eq!(check("open", "k").get("remaining"), 8);
    let body = json!({ "policy": "jobs", "key": "k" }).to_string();
    assert_eq!(served.api.put(&format!("/v1/leases/{lease}"), body).get("live"), true);
    let gone =
        "[policies.other]\nlimits = [{ algorithm = 'fixed_window', limit = 1, period = '1d' }]";
    assert_eq!(served.api.put_policies(gone).status, 200);
    assert_eq!((check("day", "k").status, check("other", "k").status), (404, 200));
    assert_eq!(served.api.put_policies(POLICIES).status, 200);
    assert_eq!(check("day", "k").get("remaining"), 0, "a policy that comes back goes on");
}

#[test]
fn a_file_that_was_put_in_force_outlives_a_restart_of_the_host() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("policies.toml.revisions");
    for capacity in [6, 7] {
        let served = kept_memory(POLICIES, &path);
        assert_eq!(limit(&served, "k"), capacity - 1);
        assert_eq!(served.api.put_policies(&edited(capacity)).status, 200);
    }
    assert_eq!(limit(&kept_memory(POLICIES, &path), "k"), 7);
    let deployed = edited(30);
    assert_eq!(limit(&kept_memory(&deployed, &path), "k"), 30, "the file itself was edited");
}

#[test]
fn a_file_that_cannot_be_stored_is_not_in_force() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("gone/policies.toml.revisions");
    let served = kept_memory(POLICIES, &path);
    let failed = served.api.put_policies(&edited(7));
    assert_eq!((failed.status, failed.get("type")), (500, json!("urn:tidegate:internal-error")));
    assert!(!failed.text.contains("gone"), "the path reaches no caller: {failed:?}");
    assert_eq!(limit(&served, "k"), 5);
}

pub fn worker_options(storage: Option<&Path>) -> WorkerdOptions {
    let entry = Some(include_str!("faults.js").to_owned());
    let storage = storage.map(Path::to_owned);
    WorkerdOptions { entry, storage, ..tidegate_tests::worker_options(POLICIES) }
}

/// Puts a file in force, of which the isolate that the test asks does not hear.
fn put_elsewhere(served: &Served, file: &str) {
    let body = format!("put\n\nelsewhere\n*\n{file}");
    let put = served.api.post(&format!("/fault/policies?{}", escaped(POLICIES)), body);
    assert_eq!(put.text, "200");
}

pub fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

#[test]
fn a_file_that_was_put_in_force_outlives_a_restart_of_the_worker() {
    let storage = tempdir().unwrap();
    let start = |policies: &str| {
        let policies = policies.to_owned();
        worker(WorkerdOptions { policies, ..worker_options(Some(storage.path())) })
    };
    assert_eq!(start(POLICIES).api.put_policies(&edited(7)).status, 200);
    assert_eq!(limit(&start(POLICIES), "k"), 7);
    assert_eq!(limit(&start(&edited(30)), "k"), 30, "another file was deployed");
    assert_eq!(limit(&start(POLICIES), "k"), 7, "and the earlier one again");
}

#[test]
fn a_restart_with_other_limits_misreads_no_state() {
    let storage = tempdir().unwrap();
    let restarted = |fields: &str| {
        let policies = format!("auth = \"none\"\n[policies.p]\n{fields}\n");
        let served = worker(WorkerdOptions { policies, ..worker_options(Some(storage.path())) });
        let check = || served.api.check("p", "k", 1, None);
        [check(), check(), check()].map(|reply| reply.get("allowed") == true)
    };
    let bucket = "limits = [{ algorithm = 'token_bucket', capacity = 4, rate = '1/d' }]";
    let places = "limits = [{ algorithm = 'concurrency', capacity = 2, time_to_live = '1d' }]";
    let log = "limits = [{ algorithm = 'sliding_log', rates = ['2/d'] }]";
    let (afresh, over) = ([true; 3], [false; 3]);
    let reset = |limits: &str| format!("on_change = 'reset'\n{limits}");
    for (fields, granted) in [
        (reset(bucket), afresh),
        (reset(places), [true, true, false]),
        (reset(log), [true, true, false]),
        (reset(bucket), [true, false, false]),
        (bucket.to_owned(), afresh),
        (bucket.replace('4', "5"), [true, true, false]),
        (reset(&format!("placement = 'shard:3'\n{bucket}")), afresh),
        (reset(places), over),
        (reset(log), over),
    ] {
        assert_eq!(restarted(&fields), granted, "{fields}");
    }
}

#[test]
fn an_isolate_hears_of_another_file_within_its_delay() {
    let variables = vec![("TIDEGATE_POLICIES_DELAY_MS".to_owned(), "3600000".to_owned())];
    let served = worker(WorkerdOptions { variables, ..worker_options(None) });
    assert_eq!(limit(&served, "k"), 5);
    put_elsewhere(&served, &edited(7));
    assert_eq!(limit(&served, "k"), 5);
    later(&served, 3_600_000);
    assert_eq!(limit(&served, "k"), 7);
    put_elsewhere(&served, POLICIES);
    later(&served, 3_600_000);
    assert_eq!(limit(&served, "k"), 5);
}

#[test]
fn an_object_decides_by_the_revision_of_the_isolate_that_asks() {
    let served = worker(worker_options(None));
    assert_eq!(served.api.put_policies(&edited(7)).status, 200);
    for left in [6, 5] {
        arm(&served, "forget the policies"); // as if the object was elsewhere
        assert_eq!(served.api.check("open", "k", 1, None).get("remaining"), left);
    }
    let checks = ["a", "b", "c"].map(|key| json!({ "policy": "open", "key": key }));
    arm(&served, "forget the policies");
    let batch = served.api.post("/v1/check", json!({ "checks": checks }).to_string());
    assert!(!batch.text.contains("degraded"), "{batch:?}");
}

/// A future has no caller that sees it panic.
#[test]
fn after_a_panic_in_a_future_the_next_request_works() {
    let served = worker(worker_options(None));
    assert_eq!(limit(&served, "k"), 5);
    for capacity in 7..10 {
        arm(&served, "panic in a future");
        let lost = served.api.put_policies(&edited(capacity));
        assert_eq!(lost.status, 500, "{lost:?}");
        assert!(lost.text.contains("the Worker began anew"), "{lost:?}");
        assert_eq!(limit(&served, "k"), capacity, "the object had stored the file");
        let left = served.api.check("day", "k", 1, None).get("remaining");
        assert_eq!(left, 9 - capacity, "the objects begin anew, too");
        later(&served, 1_000); // for the next line of the log
    }
    let logged = counted(&served, "logged");
    let lines: Vec<_> =
        logged.as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    let of_panics = |line: &&&str| line.starts_with("WebAssembly begins anew: panicked at ");
    assert_eq!(lines.iter().filter(of_panics).count(), 3, "{lines:?}");
    assert!(lines.len() <= 6, "at most one line a second: {lines:?}");
    assert!(!lines.iter().any(|line| line.contains("Critical")), "another hook logs: {lines:?}");
}

#[test]
fn a_wrong_stored_file_never_takes_the_worker_down() {
    let storage = tempdir().unwrap();
    let line = |file: &str| {
        let over = served_hash(POLICIES);
        format!("tidegate-revisions 1\n2 7 {over} 0 {} alice\n{file}\n", file.len())
    };
    for stored in ["".to_owned(), "x".to_owned(), line("[policies.open]\nlimits = []")] {
        let served = worker(worker_options(Some(storage.path())));
        served.api.post("/fault/store", &stored);
        drop(served);
        let served = worker(worker_options(Some(storage.path())));
        assert_eq!(limit(&served, "k"), 5, "{stored:?}");
        let put = served.api.put_policies(&edited(7));
        assert_eq!((put.status, limit(&served, "k")), (200, json!(7)), "{stored:?}: {put:?}");
    }
}

/// The hash of a deployed file.
fn served_hash(policies: &str) -> String {
    let served = worker(tidegate_tests::worker_options(policies));
    served.api.get("/v1/policies", &[]).get("hash").as_str().unwrap().to_owned()
}

#[test]
fn policies_that_are_swapped_under_load_grant_nothing_twice() {
    for served in [worker(worker_options(None)), tidegate_tests::memory(POLICIES)] {
        let check = || served.api.check("spread", "k", 1, None).get("allowed") == true;
        let granted: usize = thread::scope(|scope| {
            let callers: Vec<_> =
                (0..4).map(|_| scope.spawn(|| (0..50).filter(|_| check()).count())).collect();
            for capacity in 6..16 {
                assert_eq!(served.api.put_policies(&edited(capacity)).status, 200);
            }
            callers.into_iter().map(|caller| caller.join().unwrap()).sum()
        });
        assert_eq!(granted, 100);
        assert_eq!(served.api.with(Some(TOKEN)).get("/v1/policies", &[]).get("version"), 11);
    }
}
