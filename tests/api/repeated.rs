//! Calls that a caller repeats because it does not know whether they arrived.

use std::thread;

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
