//! Policies that are swapped while the server runs.

use std::path::Path;
use std::thread;

use serde_json::json;
use tempfile::tempdir;
use tidegate::local::WorkerdOptions;
use tidegate_tests::{Reply, Served, TOKEN, kept_memory, worker};

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

fn tag(reply: &Reply) -> String {
    reply.header("etag").expect("a tag").to_owned()
}

pub fn policies_are_shown(served: &Served) {
    let shown = served.api.get("/v1/policies", &[]);
    assert_eq!(
        (shown.status, shown.get("version"), shown.get("needs_token")),
        (200, json!(1), json!(true))
    );
    assert_eq!(shown.header("content-type"), Some("application/json"));
    let hash = shown.get("hash");
    assert_eq!(tag(&shown), format!("\"{}\"", hash.as_str().unwrap()));
    let policies = shown.get("policies");
    let open = policies.as_array().unwrap().iter().find(|policy| policy["name"] == "open").unwrap();
    assert_eq!((&open["on_error"], &open["placement"]), (&json!("open"), &json!("shard:4")));
    assert_eq!(open["limits"][0]["limit"], 5);
    assert_eq!((&open["remember_us"], &open["persist_ahead"]), (&json!(null), &json!(false)));
    let file = served.api.get("/v1/policies/file", &[]);
    assert_eq!((file.status, file.text.as_str()), (200, POLICIES));
    assert_eq!(tag(&file), tag(&shown));
    assert_eq!(served.api.get("/v1/policies/history", &[]).get("versions"), json!([]));
    assert_eq!(served.api.get("/v1/policies/file?version=2", &[]).status, 404);
}

pub fn another_file_is_put_in_force_and_the_one_before_restored(served: &Served) {
    assert_eq!(limit(served, "k"), 5);
    let actor = [("if-match", "*"), ("x-tidegate-actor", "alice")];
    let put = served.api.put_with("/v1/policies", &actor, &edited(7));
    assert_eq!(
        (put.status, put.get("version"), put.get("previous")),
        (200, json!(2), json!(1)),
        "{put:?}"
    );
    assert_eq!(limit(served, "k"), 7);
    let shown = served.api.get("/v1/policies", &[]);
    assert_eq!((shown.get("version"), tag(&shown)), (json!(2), tag(&put)));

    let restored = served.api.post_with("/v1/policies/restore", &[("if-match", &tag(&put))], "");
    assert_eq!((restored.status, restored.get("version")), (200, json!(3)), "{restored:?}");
    assert_eq!(limit(served, "k"), 5);
    let history = served.api.get("/v1/policies/history", &[]).get("versions");
    let versions: Vec<_> = history.as_array().unwrap().iter().collect();
    let by = |place: usize| {
        (&versions[place]["version"], &versions[place]["by"], &versions[place]["in_force"])
    };
    assert_eq!(by(0), (&json!(3), &json!("administration"), &json!(true)));
    assert_eq!(by(1), (&json!(2), &json!("alice"), &json!(false)));
    assert_eq!(by(2), (&json!(1), &json!("deployment"), &json!(false)));
    assert_eq!((&versions[0]["restores"], &versions[0]["hash"]), (&json!(1), &versions[2]["hash"]));
    assert_eq!(served.api.get("/v1/policies/file?version=2", &[]).text, edited(7));
    let second = served.api.post_with("/v1/policies/restore?version=2", &[("if-match", "*")], "");
    assert_eq!((second.get("version"), limit(served, "k")), (json!(4), json!(7)), "{second:?}");
}

pub fn two_who_change_the_same_file_hear_of_each_other(served: &Served) {
    let seen = tag(&served.api.get("/v1/policies", &[]));
    assert_eq!(served.api.put("/v1/policies", edited(6)).status, 428);
    let first = served.api.put_with("/v1/policies", &[("if-match", &seen)], &edited(7));
    assert_eq!(first.status, 200, "{first:?}");
    let late = served.api.put_with("/v1/policies", &[("if-match", &seen)], &edited(8));
    assert_eq!((late.status, late.get("type")), (412, json!("urn:tidegate:policies-changed")));
    assert_eq!(tag(&late), tag(&first));
    let late = served.api.post_with("/v1/policies/restore", &[("if-match", &seen)], "");
    assert_eq!(late.status, 412);
    assert_eq!(limit(served, "k"), 7);
}

pub fn a_wrong_file_is_refused_with_its_place(served: &Served) {
    let wrong = "[policies.a]\nlimits = [{ algorithm = 'fixed_window', limit = 0, period = '1s' }]";
    let refused = served.api.put_policies(wrong);
    assert_eq!(
        (refused.status, refused.get("type")),
        (400, json!("urn:tidegate:invalid-policies"))
    );
    assert_eq!((refused.get("line"), refused.get("column")), (json!(2), json!(49)), "{refused:?}");
    assert_eq!(refused.get("path"), "policies.a.limits[0].limit");
    assert_eq!(served.api.put_policies("").status, 400);
    assert_eq!(served.api.put_policies(&"#".repeat(262_145)).status, 413);
    let actor = [("if-match", "*"), ("x-tidegate-actor", &*"a".repeat(129))];
    assert_eq!(served.api.put_with("/v1/policies", &actor, &edited(7)).status, 400);
    let wrong = served.api.post_with("/v1/policies/restore?version=0", &[("if-match", "*")], "");
    assert_eq!(wrong.status, 400);
    let body = served.api.post_with("/v1/policies/restore", &[("if-match", "*")], &edited(7));
    assert_eq!((body.status, body.get("type")), (400, json!("urn:tidegate:invalid-request")));
    let none = served.api.post_with("/v1/policies/restore", &[("if-match", "*")], "");
    assert_eq!((none.status, none.get("type")), (404, json!("urn:tidegate:not-found")));
    assert_eq!(served.api.get("/v1/policies", &[]).get("version"), 1);
}

pub fn an_edit_keeps_the_states_of_all_other_policies(served: &Served) {
    let check = |policy: &str, key: &str| served.api.check(policy, key, 1, None);
    let lease = check("jobs", "k").get("lease").as_str().unwrap().to_owned();
    assert_eq!(check("day", "k").get("remaining"), 2);
    assert_eq!(check("open", "k").get("remaining"), 4);
    // new limits count afresh, and the limits of the other policies go on
    assert_eq!(served.api.put_policies(&edited(9)).status, 200);
    assert_eq!(check("day", "k").get("remaining"), 1);
    assert_eq!(check("open", "k").get("remaining"), 8);
    let kept =
        edited(9).replace("on_error = \"open\"", "on_error = \"open\"\non_change = \"keep\"");
    assert_eq!(served.api.put_policies(&kept).status, 200);
    assert_eq!(check("open", "kept").get("remaining"), 8);
    let kept = kept.replace("capacity = 9", "capacity = 20");
    assert_eq!(served.api.put_policies(&kept).status, 200);
    assert_eq!(check("open", "kept").get("remaining"), 18, "the unit that was used stays used");
    let body = json!({ "policy": "jobs", "key": "k" }).to_string();
    assert_eq!(served.api.put(&format!("/v1/leases/{lease}"), body).get("live"), true);
    let gone =
        "[policies.other]\nlimits = [{ algorithm = 'fixed_window', limit = 1, period = '1d' }]";
    assert_eq!(served.api.put_policies(gone).status, 200);
    assert_eq!((check("day", "k").status, check("other", "k").status), (404, 200));
}

pub fn only_the_token_for_administration_changes_policies(served: &Served) {
    for token in [None, Some("another")] {
        let api = served.api.with(token);
        assert_eq!(api.put_policies(&edited(7)).status, 401);
        assert_eq!(api.post("/v1/policies/restore", "").status, 401);
        for target in ["/v1/policies", "/v1/policies/history", "/v1/policies/file"] {
            assert_eq!(api.get(target, &[]).status, 401, "{target}");
        }
    }
    assert_eq!(served.api.post("/v1/policies", "").status, 405);
    assert_eq!(served.api.delete("/v1/policies/history").status, 405);
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
    for (fields, granted) in [
        (bucket, afresh),
        (places, [true, true, false]),
        (log, [true, true, false]),
        (bucket, [true, false, false]),
        (&format!("on_change = 'keep'\n{bucket}"), afresh),
        (&format!("on_change = 'keep'\n{}", bucket.replace('4', "5")), [true, true, false]),
        (&format!("placement = 'shard:3'\n{bucket}"), afresh),
        (places, over),
        (log, over),
    ] {
        assert_eq!(restarted(fields), granted, "{fields}");
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
