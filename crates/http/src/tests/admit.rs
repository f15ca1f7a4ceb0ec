//! `POST /v1/admit`: what becomes of a request behind middleware.

use alloc::sync::Arc;
use std::format;
use std::string::ToString;
use std::vec::Vec;

use serde_json::json;
use tidegate_gate::{Operation, Policies, Share};

use super::{SECOND, START, Server, about, header, planned, sent};
use crate::{Access, Check, Exchange, Keyed};

const POLICIES: &str = "
[policies.p]
limits = [{ algorithm = 'fixed_window', limit = 5, period = '1h' }]
cost = 2
deny = ['mallory']
[policies.jobs]
limits = [{ algorithm = 'concurrency', capacity = 1, time_to_live = '30s' }]
[policies.tokens]
limits = [{ algorithm = 'token_bucket', capacity = 100, rate = '1/h' }]
reservations = { time_to_live = '1m' }
[policies.plans]
limits = [
  { algorithm = 'token_bucket', name = 'plan', capacity = 5, rate = '1/h', payer = true },
  { algorithm = 'token_bucket', name = 'more', capacity = 5, rate = '1/h', payer = true },
]";

#[test]
fn a_request_is_granted_with_its_headers_and_what_can_come_back() {
    let mut server = Server::new(POLICIES);
    let first = server.call("POST", "/v1/admit", &about(""));
    assert_eq!((first.status, header(&first, "ratelimit")), (200, None), "they are in the body");
    let expected = json!({
        "policy": "p",
        "headers": [
            { "name": "ratelimit-policy", "value": "\"p\";q=5;w=3600" },
            { "name": "ratelimit", "value": "\"p\";r=3;t=3000" },
        ],
        "grant": { "at_us": START, "units": 2 },
        "remaining": 3,
    });
    assert_eq!(super::json(&first), expected);
    let older = server.post("/v1/admit", &about(",\"cost\":1,\"headers\":\"x-ratelimit\""));
    assert_eq!(older["headers"][0], json!({ "name": "x-ratelimit-limit", "value": "5" }));
    let plans = "{\"policy\":\"plans\",\"key\":\"k\",\"one_of_several\":true}";
    let named = server.post("/v1/admit", plans)["headers"][0]["value"].clone();
    assert!(named.as_str().unwrap().starts_with("\"plans/"), "{named}");
    let looked = server.post("/v1/admit", &about(",\"cost\":0"));
    assert_eq!((looked.get("grant"), &looked["remaining"]), (None, &json!(2)), "it took nothing");
}

#[test]
fn a_refusal_is_the_response_that_a_client_gets() {
    let mut server = Server::new(POLICIES);
    server.post("/v1/admit", &about(",\"cost\":4"));
    let refused = server.post("/v1/admit", &about(""));
    assert_eq!(refused["refusal"]["status"], 429);
    let body = refused["refusal"]["body"].as_str().unwrap();
    assert!(body.contains("quota-exceeded") && body.contains("violated-policies"), "{body}");
    let names = refused["headers"].as_array().unwrap().iter().map(|header| &header["name"]);
    let names: Vec<_> = names.filter_map(serde_json::Value::as_str).collect();
    for name in ["retry-after", "ratelimit", "ratelimit-policy", "content-type", "cache-control"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    assert_eq!((refused.get("grant"), &refused["remaining"]), (None, &json!(1)));
    let denied = server.post("/v1/admit", "{\"policy\":\"p\",\"key\":\"mallory\"}");
    assert_eq!(denied["refusal"]["status"], 403);
    let body = denied["refusal"]["body"].as_str().unwrap();
    assert!(body.contains("\"detail\":\"the key is on the policy's list `deny`\""), "{body}");
}

#[test]
fn a_refusal_says_what_the_client_waits_for() {
    let mut server = Server::new(POLICIES);
    server.post("/v1/leases", "{\"policy\":\"jobs\",\"key\":\"k\",\"lease\":\"other\"}");
    let mut detail = |body: &str| {
        let refused = server.post("/v1/admit", body)["refusal"]["body"].clone();
        let body = serde_json::from_str::<serde_json::Value>(refused.as_str()?).unwrap();
        Some(body["detail"].as_str().unwrap().to_string())
    };
    let jobs = "{\"policy\":\"jobs\",\"key\":\"k\"}";
    let full = "all places are taken; try again in 5 s"; // of 30: a lease usually ends before
    assert_eq!(detail(jobs).as_deref(), Some(full));
    assert_eq!(detail(&about(",\"cost\":5")), None);
    let spent = "the same request is granted in 3000 s";
    assert_eq!(detail(&about("")).as_deref(), Some(spent));
    server.json("POST", "/v1/keys/p/fresh/block", "{\"for\":\"90s\"}");
    let blocked = super::json(&server.call("GET", "/v1/gate?policy=p&key=fresh", ""));
    assert_eq!(blocked["detail"], "the key is blocked for 90 s");
}

#[test]
fn a_call_brings_the_class_and_the_signal() {
    const FILE: &str = "
[policies.p]
limits = [
  { algorithm = 'utilization', name = 'busy' },
  { algorithm = 'token_bucket', capacity = 100, rate = '1/h' },
]
reservations = { time_to_live = '1m' }";
    let policies = Arc::new(Policies::parse(FILE).unwrap());
    let policy = policies.get("p").unwrap();
    let of = |check: &Check| match check.operation() {
        Operation::Decide(request) => (request.class, request.signal, request.reserves()),
        other => panic!("{other:?}"),
    };
    for reserves in [false, true] {
        let expected = (policy.class("critical").unwrap(), Share::from_ppm(700_000), reserves);
        let rest = format!(",\"class\":\"critical\",\"signal_ppm\":700000,\"reserves\":{reserves}");
        let mut exchange = sent(&policies, &Access::OPEN, ("POST", "/v1/admit"), &[]);
        exchange.body(Ok(about(&rest).into()), &mut || Some(7));
        assert_eq!(of(&planned(exchange).unwrap().1[0]), expected);
        let (class, signal_ppm) = (Some("critical"), Some(700_000));
        let asked = Keyed { key: "k", class, signal_ppm, reserves, ..Keyed::default() };
        let exchange = Exchange::of_key(policy, &asked, &mut || Some(7));
        assert_eq!(of(&planned(exchange).unwrap().1[0]), expected);
    }
}

#[test]
fn a_lease_is_named_and_a_reservation_is_held() {
    let mut server = Server::new(POLICIES);
    let jobs = "{\"policy\":\"jobs\",\"key\":\"k\"}";
    server.post("/v1/leases", "{\"policy\":\"jobs\",\"key\":\"k\",\"lease\":\"other\"}");
    assert_eq!(server.post("/v1/admit", jobs)["refusal"]["status"], 429);
    server.call("DELETE", "/v1/leases/other?policy=jobs&key=k", "");
    let held = server.post("/v1/admit", jobs);
    let name = held["lease"]["name"].as_str().unwrap();
    assert_eq!((name.len(), &held["lease"]["renew_every_us"]), (32, &json!(10 * SECOND)));
    let path = format!("/v1/leases/{name}?policy=jobs&key=k");
    assert_eq!(super::json(&server.call("DELETE", &path, ""))["live"], true);

    let reserve = "{\"policy\":\"tokens\",\"key\":\"k\",\"cost\":40,\"reserves\":true,\"may_come_back\":true}";
    let reserved = server.post("/v1/admit", reserve);
    assert_eq!((&reserved["reservation"]["units"], reserved.get("grant")), (&json!(40), None));
    let path =
        format!("/v1/reservations/{}/commit", reserved["reservation"]["id"].as_str().unwrap());
    let body = "{\"policy\":\"tokens\",\"key\":\"k\",\"actual\":3}";
    assert_eq!(server.post(&path, body)["remaining"], 97);
}

#[test]
fn a_lease_says_when_to_renew_it() {
    let mut server = Server::new(POLICIES);
    let jobs = |lease: &str| format!("{{\"policy\":\"jobs\",\"key\":\"k\",\"lease\":\"{lease}\"}}");
    assert_eq!(server.post("/v1/leases", &jobs("a"))["renew_every_us"], 10 * SECOND);
    let refused = server.post("/v1/leases", &jobs("b"));
    assert_eq!((&refused["allowed"], refused.get("renew_every_us")), (&json!(false), None));
    assert_eq!(server.post("/v1/check", &about("")).get("renew_every_us"), None);
}

#[test]
fn bad_requests_are_refused_and_nothing_is_consumed() {
    let mut server = Server::new(POLICIES);
    let plans = "{\"policy\":\"plans\",\"key\":\"k\",\"may_come_back\":true}";
    for (body, detail) in [
        (about(",\"headers\":\"draft-1\""), "`headers`: expected \"draft-7\", \"draft-6\""),
        (about(",\"reserves\":true"), "expected a policy with `reservations`, found \"p\""),
        (about(",\"reserves\":1"), "`reserves`: expected a boolean"),
        (about(",\"lease\":\"a\""), "found the field \"lease\""),
        (plans.into(), "`policy`: expected a policy without `payer` before others"),
    ] {
        server.refuses(("POST", "/v1/admit"), &body, detail);
    }
    assert_eq!(server.post("/v1/check", &about(",\"cost\":0"))["remaining"], 5);
    let last = server.post("/v1/admit", "{\"policy\":\"plans\",\"key\":\"k\"}");
    assert_eq!((last.get("refusal"), last.get("grant")), (None, None), "nothing can come back");
}
