//! What a server tells about itself: counters, times, events.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use serde_json::{Value, json};
use tidegate::local::WorkerdOptions;
use tidegate::serve::{Files, Watch};
use tidegate_tests::{Served, TOKEN, until, watched_memory, worker, worker_options};

use crate::POLICIES;
use crate::faults::{arm, counted};

pub fn decisions_are_counted_by_policy_and_outcome(served: &Served) {
    let check = |policy: &str, cost: u64| served.api.check(policy, "a secret key", cost, None);
    for cost in [2, 2, 1, 0] {
        check("day", cost);
    }
    check("trial", 1);
    check("trial", 1);
    check("special", 9); // an error of the caller
    assert_eq!(served.api.get("/v1/gate?policy=open&key=k", &[]).status, 204);
    let metrics = served.api.get("/metrics", &[]);
    assert_eq!(metrics.status, 200);
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    assert_eq!(metrics.header("content-type"), Some(kind));
    for line in [
        r#"tidegate_decisions_total{policy="day",outcome="allowed"} 2"#,
        r#"tidegate_decisions_total{policy="day",outcome="refused"} 1"#,
        r#"tidegate_decisions_total{policy="trial",outcome="allowed"} 1"#,
        r#"tidegate_decisions_total{policy="trial",outcome="shadow_refused"} 1"#,
        r#"tidegate_decisions_total{policy="open",outcome="allowed"} 1"#,
        r#"tidegate_decisions_total{policy="special",outcome="error"} 0"#,
        r#"tidegate_local_answers_total{kind="remembered"} 0"#,
        "tidegate_policies_version 1",
    ] {
        assert!(metrics.text.lines().any(|own| own == line), "{line}\n{}", metrics.text);
    }
    assert!(!metrics.text.contains("secret"), "keys are no labels");
    assert_eq!(served.api.with(None).get("/metrics", &[]).status, 401);
    assert_eq!(served.api.post("/metrics", "").status, 405);
}

pub fn reservations_are_counted_by_what_became_of_them(served: &Served) {
    let call = |end: &str, rest: Value| {
        let mut body = json!({ "policy": "orders", "key": "k" });
        body.as_object_mut().unwrap().append(&mut rest.as_object().unwrap().clone());
        served.api.post(&format!("/v1/reservations{end}"), body.to_string()).get("allowed")
    };
    for id in ["a", "b", "c", "d"] {
        assert_eq!(call("", json!({ "cost": 1, "id": id })), true, "{id}");
    }
    assert_eq!(call("", json!({ "cost": 1, "id": "e" })), false, "all places are taken");
    let explained = served.api.post("/v1/explain", r#"{"policy":"orders","key":"k"}"#);
    let text = explained.get("text");
    let no_place = " A reservation would find no place: all 4 of `orders` are taken.";
    assert!(
        explained.get("allowed") == true && text.as_str().unwrap().ends_with(no_place),
        "{text}"
    );
    call("/a/commit", json!({ "actual": 2 }));
    call("/b/release", json!({}));
    call("/unknown/commit", json!({ "actual": 1 }));
    let metrics = served.api.get("/metrics", &[]).text;
    for line in [
        r#"tidegate_reservations_total{policy="orders",outcome="reserved"} 4"#,
        r#"tidegate_reservations_total{policy="orders",outcome="no_place"} 1"#,
        r#"tidegate_reserved_units_total{policy="orders"} 4"#,
        r#"tidegate_commits_total{policy="orders",late="false"} 2"#,
        r#"tidegate_commits_total{policy="orders",late="true"} 1"#,
        r#"tidegate_committed_units_total{policy="orders",late="false"} 2"#,
        r#"tidegate_committed_units_total{policy="orders",late="true"} 1"#,
    ] {
        assert!(metrics.lines().any(|own| own == line), "{line}\n{metrics}");
    }
    let status = served.api.get("/v1/status", &[]).json();
    let policies = status["policies"].as_array().unwrap();
    let own = policies.iter().find(|policy| policy["name"] == "orders").unwrap();
    let counted = json!({
        "reserved": 4, "refused": 0, "no_place": 1, "reserved_units": 4,
        "committed": 2, "committed_units": 2, "late": 1, "late_units": 1,
    });
    assert_eq!(own["reservations"], counted);
}

pub fn nobody_is_told_how_long_the_store_took(served: &Served) {
    assert_eq!(served.api.check("day", "k", 1, None).header("server-timing"), None);
}

pub fn half_a_body_consumes_nothing(served: &Served) {
    let body = r#"{"policy":"day","key":"k","cost":3}"#;
    let address = served.url.strip_prefix("http://").unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    let head = format!("POST /v1/check HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}");
    write!(client, "{head}\r\ncontent-length: {}\r\n\r\n{}", body.len(), &body[..20]).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    let _ = client.read_to_string(&mut answer); // some servers reset the connection after the answer
    let detail = "expected the whole body, found a part of it";
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains(detail), "{answer}");
    assert_eq!(served.api.check("day", "k", 3, None).get("allowed"), true);
}

/// The number of milliseconds, if the header has one.
fn millis(timing: &str) -> Option<&str> {
    timing.split(';').find_map(|part| part.strip_prefix("dur="))
}

#[test]
fn a_host_tells_how_long_its_store_took() {
    let watch = Watch { server_timing: true, ..Watch::default() };
    let served = watched_memory(Files::new(POLICIES.to_owned()), watch);
    let reply = served.api.check("day", "k", 1, None);
    let timing = reply.header("server-timing").unwrap();
    assert!(timing.ends_with(";desc=\"memory\""), "{timing}");
    assert!(millis(timing).unwrap().parse::<f64>().unwrap() > 0.0, "{timing}");
    assert_eq!(served.api.get("/v1/policies", &[]).header("server-timing"), None);
    let metrics = served.api.get("/metrics", &[]).text;
    assert!(metrics.contains("tidegate_request_duration_seconds_count 2"), "{metrics}");
}

/// An isolate remembers a refusal.
const REMEMBERED: &str = "[policies.hot]\nremember = '1h'\n\
    limits = [{ algorithm = 'fixed_window', limit = 1, period = '365d' }]\n";

#[test]
fn a_worker_tells_where_a_decision_was_made() {
    let served = worker(WorkerdOptions { server_timing: true, ..worker_options(REMEMBERED) });
    let check = || served.api.check("hot", "k", 1, None);
    for (allowed, place) in [(true, "object"), (false, "object"), (false, "isolate")] {
        let reply = check();
        let timing = reply.header("server-timing").unwrap();
        assert_eq!(
            (reply.get("allowed"), timing.contains(place)),
            (json!(allowed), true),
            "{timing}"
        );
        // the clock of an isolate stands still while it computes
        assert_eq!(millis(timing).is_some(), place == "object", "{timing}");
    }
    let metrics = served.api.get("/metrics", &[]).text;
    assert!(metrics.contains("tidegate_local_answers_total{kind=\"remembered\"} 1\n"), "{metrics}");
    let refused = "tidegate_decisions_total{policy=\"hot\",outcome=\"refused\"} 2\n";
    assert!(metrics.contains(refused), "{metrics}");
}

#[test]
fn an_event_is_written_for_each_policy_and_outcome_of_a_request() {
    let entry = Some(include_str!("faults.js").to_owned());
    let served = worker(WorkerdOptions { entry, ..worker_options(POLICIES) });
    arm(&served, "write events");
    let check = |policy: &str, cost: u64| json!({ "policy": policy, "key": "k", "cost": cost });
    let checks = [check("day", 2), check("day", 1), check("day", 1), check("trial", 1)];
    served.api.post("/v1/check", json!({ "checks": checks }).to_string());
    until("three events are written", || counted(&served, "events").as_array().unwrap().len() == 3);
    let events = counted(&served, "events");
    let event = |place: usize| {
        let event = &events[place];
        (
            event["indexes"].clone(),
            event["blobs"].clone(),
            event["doubles"][0].clone(),
            event["doubles"][1].clone(),
        )
    };
    let expected = |policy: &str, outcome: &str, checks: u64, cost: u64| {
        (json!([policy]), json!([policy, outcome]), json!(checks), json!(cost))
    };
    assert_eq!(event(0), expected("day", "allowed", 2, 3));
    assert_eq!(event(1), expected("day", "refused", 1, 1));
    assert_eq!(event(2), expected("trial", "allowed", 1, 1));
    assert!(matches!(events[0]["doubles"][2], Value::Number(_)), "microseconds: {events}");
}
