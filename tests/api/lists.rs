//! Who is limited in a Worker of two isolates.

use serde_json::{Value, json};
use tidegate::local::WorkerdOptions;
use tidegate_tests::{Served, worker, worker_options};

use crate::surface::keys_of;

const POLICIES: &str = "[policies.login]\n\
    limits = [{ algorithm = 'fixed_window', limit = 1, period = '365d' }]\n";

/// The headers of a request to one of the two isolates.
type Isolate = [(&'static str, &'static str); 1];

const FIRST: Isolate = [("x-isolate", "first")];
const SECOND: Isolate = [("x-isolate", "second")];

/// Each request of an isolate first asks for the policies in force, and so hands over what the isolate has counted.
fn two_isolates() -> Served {
    let entry = Some(include_str!("lists.js").to_owned());
    let variables = vec![("TIDEGATE_POLICIES_DELAY_MS".to_owned(), "0".to_owned())];
    worker(WorkerdOptions { entry, second: true, variables, ..worker_options(POLICIES) })
}

fn refuse(served: &Served, isolate: Isolate, key: &str, times: u64) {
    for _ in 0..times {
        let body = json!({ "policy": "login", "key": key }).to_string();
        let refused = served.api.post_with("/v1/check", &isolate, &body);
        assert_eq!((refused.status, refused.get("allowed")), (200, json!(false)), "{refused:?}");
    }
}

/// Uses up the limits of keys.
fn use_up(served: &Served, keys: &[&str]) {
    for key in keys {
        assert_eq!(served.api.check("login", key, 1, None).get("allowed"), true);
    }
}

/// Lets an isolate hand over what it has counted.
fn hand_over(served: &Served, isolate: Isolate) {
    assert_eq!(served.api.get("/healthz", &isolate).status, 200);
}

/// All refusals of the limit, and the keys that were refused.
fn top(served: &Served, isolate: Isolate) -> (Value, Value) {
    let answer = served.api.get("/v1/top?keys=clear", &isolate);
    assert_eq!(answer.status, 200, "{answer:?}");
    let list = &answer.get("top")[0];
    (list["refusals"].clone(), keys_of(list).into())
}

fn key(key: &str, count: u64) -> Value {
    json!({ "key": key, "count": count, "error": 0 })
}

fn arm(served: &Served, fault: &str) {
    assert_eq!(served.api.get(&format!("/fault/arm?{fault}"), &[]).text, "armed");
}

#[test]
fn what_two_isolates_have_refused_is_added_up() {
    let served = two_isolates();
    use_up(&served, &["ann", "bob"]);
    refuse(&served, FIRST, "ann", 3);
    refuse(&served, SECOND, "ann", 2);
    refuse(&served, SECOND, "bob", 4);
    hand_over(&served, SECOND);
    let both = (json!(9), json!([key("ann", 5), key("bob", 4)]));
    assert_eq!(top(&served, FIRST), both);
    assert_eq!(top(&served, SECOND), both, "nothing is counted twice");
    refuse(&served, SECOND, "bob", 3);
    let newest = (json!(12), json!([key("bob", 7), key("ann", 5)]));
    assert_eq!(top(&served, SECOND), newest, "the isolate hands in its newest counts");
    let status = served.api.get("/v1/status?keys=clear", &FIRST);
    assert_eq!(json!(keys_of(&status.get("top")[0])), newest.1, "{status:?}");
    assert_eq!(status.get("store")["name"], "object");
}

#[test]
fn what_is_handed_over_again_because_the_answer_was_lost_counts_once() {
    let served = two_isolates();
    use_up(&served, &["ann"]);
    refuse(&served, SECOND, "ann", 2);
    arm(&served, "after");
    hand_over(&served, SECOND); // the object has counted it
    hand_over(&served, SECOND); // and gets it again
    assert_eq!(top(&served, FIRST), (json!(2), json!([key("ann", 2)])));
    refuse(&served, SECOND, "ann", 1);
    arm(&served, "before");
    hand_over(&served, SECOND); // the object has not counted it
    assert_eq!(top(&served, FIRST), (json!(2), json!([key("ann", 2)])));
    hand_over(&served, SECOND);
    assert_eq!(top(&served, FIRST), (json!(3), json!([key("ann", 3)])));
}

#[test]
fn an_object_that_fails_is_an_error_and_the_status_says_that_it_is_not_known() {
    // the isolate asks for the policies once, so the faults are for the lists
    let entry = Some(include_str!("lists.js").to_owned());
    let variables = vec![("TIDEGATE_POLICIES_DELAY_MS".to_owned(), "3600000".to_owned())];
    let options = WorkerdOptions { entry, variables, ..worker_options(POLICIES) };
    let served = worker(options);
    use_up(&served, &["ann"]);
    refuse(&served, FIRST, "ann", 2);
    arm(&served, "before");
    let failed = served.api.get("/v1/top", &FIRST);
    assert_eq!((failed.status, failed.get("type")), (503, json!("urn:tidegate:not-ready")));
    arm(&served, "after");
    let status = served.api.get("/v1/status", &FIRST);
    assert_eq!((status.status, status.get("top")), (200, Value::Null), "{status:?}");
    assert_eq!(status.get("policies")[0]["decisions"]["refused"], 2);
    assert_eq!(top(&served, FIRST), (json!(2), json!([key("ann", 2)])));
}

#[test]
fn bytes_that_hold_no_lists_are_an_error_and_count_nothing() {
    let served = two_isolates();
    use_up(&served, &["ann"]);
    refuse(&served, FIRST, "ann", 1);
    let lists = top(&served, FIRST);
    let no_lists = "Error: expected lists of this version, found another text";
    for text in ["garbage", "", "\u{2}", "\u{1}\u{1}\u{1}\u{5}login"] {
        let answer = served.api.post("/fault/hand", text);
        assert_eq!(answer.text, no_lists, "{text:?}");
    }
    assert_eq!(top(&served, FIRST), lists);
}

#[test]
fn without_a_token_for_administration_an_isolate_answers_for_itself() {
    let entry = Some(include_str!("lists.js").to_owned());
    let policies = format!("auth = 'none'\n{POLICIES}");
    let served =
        worker(WorkerdOptions { policies, entry, second: true, ..WorkerdOptions::default() });
    use_up(&served, &["ann"]);
    refuse(&served, FIRST, "ann", 2);
    refuse(&served, SECOND, "ann", 1);
    let refusals =
        |isolate: Isolate| served.api.get("/v1/top", &isolate).get("top")[0]["refusals"].clone();
    assert_eq!((refusals(FIRST), refusals(SECOND)), (json!(2), json!(1)));
    assert_eq!(served.api.get("/v1/status", &SECOND).get("top")[0]["refusals"], 1);
}
