//! Calls that a caller repeats because it does not know whether they arrived.

use std::thread;

use serde_json::json;
use tidegate_tests::{Reply, Served};

fn post(served: &Served, key: &str, target: &str, body: &str) -> Reply {
    served.api.post_with(target, &[("idempotency-key", key)], body)
}

pub fn a_call_that_comes_often_is_taken_once(served: &Served) {
    let body = r#"{"policy":"orders","key":"often","cost":2}"#;
    let replies: Vec<_> = thread::scope(|scope| {
        let calls: Vec<_> =
            (0..8).map(|_| scope.spawn(|| post(served, "a", "/v1/check", body))).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    for reply in &replies {
        assert_eq!((reply.status, &reply.text), (200, &replies[0].text), "{reply:?}");
    }
    assert_eq!(replies[0].get("remaining"), 3);
    let other = post(served, "b", "/v1/check", body);
    assert_eq!(other.get("remaining"), 1, "the eight took 2 units of 5");
    assert_eq!(post(served, "\"a\"", "/v1/check", body).text, replies[0].text);
}

pub fn another_call_with_the_same_idempotency_key_is_refused(served: &Served) {
    let body = r#"{"policy":"orders","key":"other","cost":2}"#;
    assert_eq!(post(served, "a", "/v1/check", body).get("remaining"), 3);
    let dearer = body.replace("2}", "3}");
    let refused = post(served, "a", "/v1/check", &dearer);
    assert_eq!(
        (refused.status, refused.get("type")),
        (422, json!("urn:tidegate:idempotency-key-reused"))
    );
    assert_eq!(served.api.get("/v1/keys/orders/other", &[]).get("remaining"), 3);
    // a refusal is not kept
    assert_eq!(post(served, "c", "/v1/check", &body.replace("2}", "4}")).get("allowed"), false);
    assert_eq!(post(served, "c", "/v1/check", body).get("remaining"), 1);
    let without = post(served, "a", "/v1/check", r#"{"policy":"day","key":"k"}"#);
    assert_eq!(without.status, 400, "{without:?}");
}

pub fn a_repeated_reservation_is_the_same_and_so_is_its_commit(served: &Served) {
    let body = r#"{"policy":"orders","key":"reserved","cost":4}"#;
    let first = post(served, "a", "/v1/reservations", body);
    assert_eq!((first.status, first.get("remaining")), (200, json!(1)), "{first:?}");
    assert_eq!(post(served, "a", "/v1/reservations", body).text, first.text);
    let commit = format!("/v1/reservations/{}/commit", first.get("id").as_str().unwrap());
    let actual = r#"{"policy":"orders","key":"reserved","actual":1}"#;
    let committed = post(served, "b", &commit, actual);
    assert_eq!((committed.get("charged"), committed.get("remaining")), (json!(1), json!(4)));
    assert_eq!(post(served, "b", &commit, actual).text, committed.text);
    assert_eq!(post(served, "b", &commit, &actual.replace("1}", "2}")).status, 422);
    assert_eq!(post(served, "a", "/v1/reservations", body).text, first.text);
    assert_eq!(served.api.get("/v1/keys/orders/reserved", &[]).get("remaining"), 4);
}
