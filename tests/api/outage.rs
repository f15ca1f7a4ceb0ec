//! The Worker under `on_error = "local"` while a Durable Object cannot be asked.

use serde_json::json;
use tidegate::local::WorkerdOptions;
use tidegate_tests::{Served, worker};

use crate::faults::{arm, options};

/// A unit comes back after a year.
const POLICIES: &str = "auth = 'none'\n\
    [policies.shared]\non_error = 'local'\nnodes = 4\n\
    limits = [{ algorithm = 'fixed_window', limit = 100, period = '365d' }]\n\
    [policies.unknown]\non_error = 'local'\n\
    limits = [{ algorithm = 'fixed_window', limit = 100, period = '365d' }]\n\
    [policies.reserved]\non_error = 'local'\nnodes = 4\nreservations = {}\n\
    limits = [{ algorithm = 'fixed_window', limit = 100, period = '365d' }]\n";

const BY_SHARE: &str = "the store is unavailable, so this node decided by its share of the limits";

fn served() -> Served {
    worker(WorkerdOptions { policies: POLICIES.to_owned(), ..options() })
}

#[test]
fn an_isolate_goes_on_with_its_share_and_repays_nothing() {
    let served = served();
    let check = || served.api.check("shared", "k", 1, None);
    assert_eq!(check().get("remaining"), 99);
    for passes in [true; 25].into_iter().chain([false; 3]) {
        arm(&served, "throw before");
        let reply = check();
        let said = (reply.get("allowed"), reply.get("degraded"));
        assert_eq!(said, (json!(passes), json!(BY_SHARE)), "a quarter of 100: {reply:?}");
        assert!(reply.header("ratelimit").is_some(), "{reply:?}");
    }
    let decided = check();
    let said = (decided.get("remaining"), decided.get("degraded"));
    assert_eq!(said, (json!(98), json!(null)), "the object decides again: {decided:?}");
    assert_eq!(check().get("remaining"), 97, "and hears nothing of the outage");
    let metrics = served.api.get("/metrics", &[]).text;
    for counter in [("local_allowed", 25), ("local_refused", 3), ("closed", 0)] {
        let (answer, count) = counter;
        let line =
            format!("tidegate_on_error_total{{policy=\"shared\",answer=\"{answer}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
}

#[test]
fn an_isolate_that_is_told_no_number_of_nodes_refuses() {
    let served = served();
    assert_eq!(served.api.check("unknown", "k", 1, None).get("remaining"), 99);
    arm(&served, "throw before");
    let reply = served.api.check("unknown", "k", 1, None);
    let reason = json!("durable object: no reply came, so the outcome is unknown");
    assert_eq!((reply.get("allowed"), reply.get("degraded")), (json!(false), reason), "{reply:?}");
}

#[test]
fn a_commit_that_no_object_has_taken_is_repeated_by_the_caller() {
    let served = served();
    let body = r#"{"policy":"reserved","key":"k","cost":40}"#;
    let reserved = served.api.post("/v1/reservations", body);
    assert_eq!((reserved.get("reserved"), reserved.get("remaining")), (json!(40), json!(60)));
    let id = reserved.get("id").as_str().unwrap().to_owned();
    let commit = || {
        let target = format!("/v1/reservations/{id}/commit");
        served.api.post(&target, r#"{"policy":"reserved","key":"k","actual":15}"#)
    };
    arm(&served, "throw before");
    assert!(commit().get("degraded").is_string());
    let check = || served.api.check("reserved", "k", 0, None).get("remaining");
    assert_eq!(check(), 60, "the object answers again");
    assert_eq!((commit().get("charged"), check()), (json!(15), json!(85)));
}
