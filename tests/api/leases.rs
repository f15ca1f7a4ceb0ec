//! Units that callers hold and give back: leases, connections, reservations, budgets.

use serde_json::{Value, json};
use tidegate_tests::{Reply, Served};

const DAY: u64 = 86_400_000_000;

fn acquire(served: &Served, policy: &str, lease: &str) -> Reply {
    let body = json!({ "policy": policy, "key": "k", "lease": lease });
    served.api.post("/v1/leases", body.to_string())
}

fn renew(served: &Served, policy: &str, lease: &str) -> Reply {
    let body = json!({ "policy": policy, "key": "k" });
    served.api.put(&format!("/v1/leases/{lease}"), body.to_string())
}

fn release(served: &Served, policy: &str, lease: &str) -> Reply {
    served.api.delete(&format!("/v1/leases/{lease}?policy={policy}&key=k"))
}

pub fn leases_are_acquired_renewed_and_released(served: &Served) {
    let first = acquire(served, "jobs", "a");
    assert_eq!((first.status, first.get("allowed")), (200, json!(true)), "{first:?}");
    assert_eq!((first.get("lease"), first.get("remaining")), (json!("a"), json!(1)));
    assert_eq!(
        (first.header("ratelimit-policy"), first.header("ratelimit")),
        (Some("\"jobs\";q=2;qu=\"concurrent-requests\""), Some("\"jobs\";r=1"))
    );
    assert_eq!(acquire(served, "jobs", "a").get("remaining"), 1, "the lease was already held");

    // without a name, both calls give a lease a name that nobody can guess
    let random = served.api.check("jobs", "k", 1, None);
    let name = random.get("lease").as_str().unwrap().to_owned();
    assert_eq!((name.len(), random.get("allowed")), (32, json!(true)), "{random:?}");
    let refused =
        served.api.post("/v1/leases", json!({ "policy": "jobs", "key": "k" }).to_string());
    assert_eq!((refused.status, refused.get("allowed")), (200, json!(false)));
    assert_ne!(refused.get("lease"), name.as_str());
    let retry = refused.get("retry_after_us").as_u64().unwrap();
    assert!((DAY - 3_600_000_000..=DAY).contains(&retry), "{retry}");
    let hint = refused.header("retry-after");
    assert_eq!(hint, Some("5"), "a hint, and not the day after which the lease expires");
    let gate = served.api.get("/v1/keys/jobs/k?cost=1", &[]);
    assert_eq!((gate.get("allowed"), gate.header("retry-after")), (json!(false), Some("5")));

    let renewed = renew(served, "jobs", "a");
    assert_eq!((renewed.status, renewed.get("live")), (200, json!(true)), "{renewed:?}");
    assert_eq!(renew(served, "jobs", "b").get("live"), false);
    let released = release(served, "jobs", &name);
    assert_eq!((released.status, released.get("live")), (200, json!(true)), "{released:?}");
    assert_eq!((released.get("lease"), released.get("remaining")), (json!(name), json!(1)));
    let twice = release(served, "jobs", &name);
    assert_eq!((twice.get("live"), twice.get("remaining")), (json!(false), json!(1)));
    assert_eq!(acquire(served, "jobs", "b").get("allowed"), true, "the released place is free");
}

pub fn a_lease_is_named_by_any_text(served: &Served) {
    for (name, encoded) in [
        ("a/b", "a%2Fb"),
        ("a b", "a%20b"),
        ("a+b", "a+b"),
        ("é?#", "%C3%A9%3F%23"),
        ("100%", "100%25"),
        ("../x", "..%2Fx"),
        (&"é".repeat(64), &"%C3%A9".repeat(64)),
    ] {
        assert_eq!(acquire(served, "jobs", name).get("lease"), name);
        assert_eq!(renew(served, "jobs", encoded).get("live"), true, "{encoded}");
        assert_eq!(release(served, "jobs", encoded).get("live"), true, "{encoded}");
    }
}

pub fn a_lease_on_a_key_of_any_characters_is_released(served: &Served) {
    for (key, encoded) in [("\u{fffd}", "%EF%BF%BD"), ("a b+é", "a+b%2B%C3%A9")] {
        let body = json!({ "policy": "jobs", "key": key, "lease": "a" });
        let body = body.to_string();
        if key.contains('\u{fffd}') {
            assert_eq!(served.api.post("/v1/leases", &body).status, 400); // it may stand for other bytes
        }
        let acquired = served.api.post("/v1/leases", body.replace('\u{fffd}', "\\ufffd"));
        assert_eq!(acquired.get("allowed"), true, "{acquired:?}");
        let released = served.api.delete(&format!("/v1/leases/a?policy=jobs&key={encoded}"));
        assert_eq!(released.get("live"), true, "{released:?}");
    }
    let invalid = served.api.delete("/v1/leases/a?policy=jobs&key=%EF%BF");
    assert_eq!(invalid.get("detail"), "the query: expected UTF-8, found \"key=%EF%BF\"");
}

pub fn connections_are_counted_by_their_owner(served: &Served) {
    assert_eq!(acquire(served, "sockets", "node-1").get("remaining"), 2);
    assert_eq!(acquire(served, "sockets", "node-1").get("remaining"), 1);
    let counted = json!({ "policy": "sockets", "key": "k", "count": 2 }).to_string();
    let counted = served.api.put("/v1/leases/node-2", counted);
    assert_eq!((counted.get("live"), counted.get("remaining")), (json!(true), json!(0)));
    assert_eq!(
        acquire(served, "sockets", "node-3").get("allowed"),
        false,
        "4 connections are open"
    );
    assert_eq!(release(served, "sockets", "node-1").get("live"), true);
    assert_eq!(release(served, "sockets", "node-1").get("remaining"), 1);
    assert_eq!(
        release(served, "sockets", "node-1").get("live"),
        false,
        "node-1 has no connection left"
    );
    assert_eq!(renew(served, "sockets", "node-2").get("live"), true);
}

pub fn concurrent_requests_never_hold_more_than_the_capacity(served: &Served) {
    let granted: usize = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..4)
            .map(|thread| {
                scope.spawn(move || {
                    let granted = |lease: &u64| {
                        let name = format!("{thread}-{lease}");
                        acquire(served, "jobs", &name).get("allowed") == true
                    };
                    (0..5).filter(granted).count()
                })
            })
            .collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).sum()
    });
    assert_eq!(granted, 2);
}

pub fn bad_leases_are_refused_and_nothing_is_consumed(served: &Served) {
    let about = |rest: &str| format!("{{\"policy\":\"jobs\",\"key\":\"k\"{rest}}}");
    let long = "a".repeat(129);
    let post = |body: &str| served.api.post("/v1/leases", body);
    let put = |lease: &str, body: &str| served.api.put(&format!("/v1/leases/{lease}"), body);
    for (reply, detail) in [
        (post("no json"), "expected"),
        (post(&about(",\"ttl\":1")), "found the field \"ttl\""),
        (post(&about(",\"lease\":\"\"")), "`lease`: expected 1 to 128 bytes, found 0"),
        (post(&about(&format!(",\"lease\":\"{long}\""))), "expected 1 to 128 bytes, found 129"),
        (post("{\"policy\":\"day\",\"key\":\"k\"}"), "expected a policy that limits leases"),
        (put("a", "{}"), "missing field `policy`"),
        (put("a", &about(",\"count\":1")), "expected a policy with a limit `connections`"),
        (put(&long, &about("")), "expected 1 to 128 bytes, found 129"),
        (put("%FF", &about("")), "`lease`: expected UTF-8 in the path"),
        (release(served, "day", "a"), "expected a policy that limits leases"),
        (served.api.delete("/v1/leases/a"), "the query: expected `policy`, found no such field"),
        (served.api.get("/v1/gate?policy=jobs&key=k", &[]), "use POST /v1/leases"),
    ] {
        assert_eq!((reply.status, reply.get("type")), (400, json!("urn:tidegate:invalid-request")));
        assert_eq!(reply.header("content-type"), Some("application/problem+json"));
        assert!(reply.get("detail").as_str().unwrap().contains(detail), "{detail}: {reply:?}");
    }
    assert_eq!(served.api.get("/v1/leases/a", &[]).status, 405);
    assert_eq!(served.api.get("/v1/leases", &[]).header("allow"), Some("POST"));
    assert_eq!(served.api.check("jobs", "k", 0, None).get("remaining"), 2);
}

pub fn units_are_refunded(served: &Served) {
    let taken = served.api.check("spread", "k", 50, None);
    assert_eq!(taken.get("limits")[0]["remaining"], 50);
    let refund = |units: i64| {
        let body = json!({ "policy": "spread", "key": "k", "units": units });
        served.api.post("/v1/refund", body.to_string())
    };
    let some = refund(30);
    assert_eq!((some.status, &some.get("limits")[0]["remaining"]), (200, &json!(80)), "{some:?}");
    assert_eq!(refund(90).get("limits")[0]["remaining"], 100, "never more than was taken");
    for bad in [0, -1] {
        assert_eq!(refund(bad).status, 400);
    }
}

pub fn a_refund_that_names_its_grant_returns_its_units_alone(served: &Served) {
    let taken = served.api.check("log", "k", 50, None);
    let refund = |units: u64, granted: Option<u64>| {
        let mut body = json!({ "policy": "log", "key": "k", "units": units });
        if let Some(granted) = granted {
            body["granted_at_us"] = taken.get("at_us");
            body["granted"] = granted.into();
        }
        served.api.post("/v1/refund", body.to_string())
    };
    let later = served.api.check("log", "k", 10, None);
    assert!(later.get("at_us").as_u64() >= taken.get("at_us").as_u64());
    let some = refund(30, Some(50));
    assert_eq!((some.status, some.get("remaining")), (200, json!(70)), "{some:?}");
    assert_eq!(refund(20, Some(20)).get("remaining"), 90);
    let beyond = refund(21, Some(20));
    assert_eq!((beyond.status, beyond.get("type")), (400, json!("urn:tidegate:invalid-request")));
}

pub fn a_budget_takes_units_from_the_rate_and_gives_them_back(served: &Served) {
    let budget = |holder: &str, wants: u64, unspent: Option<(&Value, u64)>| {
        let mut body = json!({ "policy": "spread", "key": "k", "lease": holder, "wants": wants });
        if let Some((granted_at, left)) = unspent {
            body["granted_at_us"] = granted_at.clone();
            body["left"] = left.into();
        }
        served.api.post("/v1/budget", body.to_string())
    };
    let first = budget("node-1", 60, None);
    let allowance = first.get("budget");
    assert_eq!((first.status, &allowance["granted"]), (200, &json!(40)), "{first:?}");
    let at = &allowance["granted_at_us"];
    assert_eq!(allowance["expires_at_us"].as_u64(), at.as_u64().map(|at| at + DAY));
    assert_eq!(first.get("limits")[0]["remaining"], 60);
    let back = budget("node-1", 0, Some((at, 15)));
    assert_eq!((back.get("live"), &back.get("limits")[0]["remaining"]), (json!(true), &json!(75)));
    let twice = budget("node-1", 0, Some((at, 15)));
    assert_eq!(
        (twice.get("live"), &twice.get("limits")[0]["remaining"]),
        (json!(false), &json!(75))
    );
    let second = budget("node-2", 30, None);
    assert_eq!(second.get("budget")["granted"], 30);
    assert_eq!(served.api.check("spread", "k", 46, None).get("allowed"), false, "45 are left");
    let half = json!({ "policy": "spread", "key": "k", "lease": "n", "wants": 1, "left": 1 });
    assert_eq!(served.api.post("/v1/budget", half.to_string()).status, 400);
}
