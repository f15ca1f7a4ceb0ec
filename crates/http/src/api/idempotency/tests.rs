use std::string::ToString;
use std::vec::Vec;

use serde_json::{Value, json};

use crate::response::Response;
use crate::tests::{SECOND, Server, about, header, json as body_of};

const POLICIES: &str = "
[policies.p]
limits = [{ algorithm = 'fixed_window', name = 'minute', limit = 5, period = '1m' }]
idempotency = '10m'
reservations = { most = 9 }
allow = ['free']
[policies.leases]
limits = [{ algorithm = 'concurrency', capacity = 2, time_to_live = '30s' }]
idempotency = '10m'
[policies.plain]
limits = [{ algorithm = 'fixed_window', limit = 5, period = '1m' }]";

fn call(server: &mut Server, key: &str, path: &str, body: &str) -> Response {
    server.call_with("POST", path, Ok(body.into()), &[("idempotency-key", key)])
}

#[track_caller]
fn post(server: &mut Server, key: &str, path: &str, body: &str) -> Value {
    let response = call(server, key, path, body);
    assert_eq!(response.status, 200, "{response:?}");
    body_of(&response)
}

fn used(server: &mut Server) -> u64 {
    5 - server.json("GET", "/v1/keys/p/k", "")["remaining"].as_u64().unwrap()
}

#[test]
fn a_key_is_a_structured_string_or_bare() {
    let longest = "x".repeat(255);
    for (value, key) in [
        ("\"8e03978e-40d5\"", Some("8e03978e-40d5")),
        ("8e03978e-40d5", Some("8e03978e-40d5")),
        (r#""a\"b\\c""#, Some(r#"a"b\c"#)),
        ("a b", Some("a b")),
        ("a, b", None),
        ("\"a, b\"", Some("a, b")),
        ("\"a\", \"b\"", None),
        (longest.as_str(), Some(longest.as_str())),
        ("", None),
        ("\"\"", None),
        ("\"", None),
        ("\"a", None),
        (r#""a"b""#, None),
        (r#""a\b""#, None),
        (r#""a\""#, None),
        ("a\tb", None),
        ("é", None),
        (&("x".to_string() + &longest), None),
    ] {
        assert_eq!(super::parse(value).as_deref(), key, "{value}");
    }
}

#[test]
fn a_repeated_check_gets_the_same_answer_and_takes_nothing() {
    let mut server = Server::new(POLICIES);
    let first = call(&mut server, "\"a\"", "/v1/check", &about(",\"cost\":2"));
    server.wait(7);
    server.post("/v1/check", &about(",\"cost\":1"));
    assert_eq!(call(&mut server, "a", "/v1/check", &about(",\"cost\":2")), first);
    assert_eq!(used(&mut server), 3);
    // also while the key has no units left, and while it is blocked
    server.post("/v1/check", &about(",\"cost\":2"));
    server.post("/v1/keys/p/k/block", "{\"for\":1000000}");
    assert_eq!(call(&mut server, "a", "/v1/check", &about(",\"cost\":2")), first);
    assert_eq!(post(&mut server, "b", "/v1/check", &about(""))["allowed"], false);
}

#[test]
fn another_request_with_the_key_is_refused_and_takes_nothing() {
    let mut server = Server::new(POLICIES);
    post(&mut server, "a", "/v1/check", &about(",\"cost\":2"));
    for (path, body) in [
        ("/v1/check", about(",\"cost\":1")),
        ("/v1/check", about(",\"cost\":2,\"class\":\"critical\"")),
        ("/v1/reservations", about(",\"cost\":2")),
        ("/v1/refund", about(",\"units\":2")),
        ("/v1/explain", about("")),
    ] {
        let response = call(&mut server, "a", path, &body);
        assert_eq!(response.status, 422, "{path} {body}: {response:?}");
        assert_eq!(body_of(&response)["type"], "urn:tidegate:idempotency-key-reused");
        assert_eq!(used(&mut server), 2, "{path} {body}");
    }
    // the same key of idempotency for another key, or another policy, is another one
    let other = about(",\"cost\":1").replace("\"k\"", "\"other\"");
    assert_eq!(post(&mut server, "a", "/v1/check", &other)["remaining"], 4);
}

#[test]
fn a_refusal_a_peek_and_an_explanation_are_not_kept() {
    let mut server = Server::new(POLICIES);
    server.post("/v1/check", &about(",\"cost\":5"));
    for _ in 0..2 {
        assert_eq!(post(&mut server, "a", "/v1/check", &about(""))["allowed"], false);
    }
    assert_eq!(post(&mut server, "b", "/v1/check", &about(",\"cost\":0"))["remaining"], 0);
    assert_eq!(post(&mut server, "c", "/v1/explain", &about(""))["allowed"], false);
    server.wait(60);
    assert_eq!(post(&mut server, "c", "/v1/explain", &about(""))["allowed"], true);
    let passed = post(&mut server, "a", "/v1/check", &about(""));
    assert_eq!((&passed["allowed"], &passed["remaining"]), (&json!(true), &json!(4)));
    assert_eq!(post(&mut server, "b", "/v1/check", &about(",\"cost\":0"))["remaining"], 4);
    assert_eq!(post(&mut server, "a", "/v1/check", &about("")), passed);
}

#[test]
fn an_answer_is_kept_for_the_time_that_the_policy_names_and_the_server_publishes() {
    let mut server = Server::new(POLICIES);
    let first = post(&mut server, "a", "/v1/check", &about(""));
    server.wait(599);
    assert_eq!(post(&mut server, "a", "/v1/check", &about("")), first);
    server.wait(1);
    let anew = post(&mut server, "a", "/v1/check", &about(""));
    assert_eq!(anew["at_us"], first["at_us"].as_u64().unwrap() + 600 * SECOND);
    let shown = server.json("GET", "/v1/policies", "");
    let of = |place: usize| shown["policies"][place]["idempotency_us"].clone();
    assert_eq!((of(1), of(2)), (json!(600 * SECOND), Value::Null));
}

#[test]
fn a_lease_or_reservation_that_the_server_names_has_the_same_name_again() {
    let mut server = Server::new(POLICIES);
    let reserved = post(&mut server, "a", "/v1/reservations", &about(",\"cost\":3"));
    assert_eq!(post(&mut server, "a", "/v1/reservations", &about(",\"cost\":3")), reserved);
    assert_eq!(used(&mut server), 3);
    let id = reserved["id"].as_str().unwrap();
    let commit = std::format!("/v1/reservations/{id}/commit");
    let committed = post(&mut server, "c", &commit, &about(",\"actual\":1"));
    assert_eq!((&committed["charged"], used(&mut server)), (&json!(1), 1));
    assert_eq!(post(&mut server, "c", &commit, &about(",\"actual\":1")), committed);
    assert_eq!(call(&mut server, "c", &commit, &about(",\"actual\":2")).status, 422);
    // the reservation has ended, and its answer is kept
    assert_eq!(post(&mut server, "a", "/v1/reservations", &about(",\"cost\":3")), reserved);

    let of_leases = about("").replace("\"p\"", "\"leases\"");
    let lease = post(&mut server, "a", "/v1/leases", &of_leases);
    assert_eq!(post(&mut server, "a", "/v1/leases", &of_leases), lease);
    assert_eq!(lease["remaining"], 1);
    let name = lease["lease"].as_str().unwrap();
    let target = std::format!("/v1/leases/{name}?policy=leases&key=k");
    assert_eq!(server.json("DELETE", &target, "")["live"], true);
    assert_ne!(post(&mut server, "b", "/v1/leases", &of_leases)["lease"], lease["lease"]);
    let own = of_leases.replace('}', ",\"lease\":\"own\"}");
    assert_eq!(post(&mut server, "own", "/v1/leases", &own)["lease"], "own", "the caller named it");
}

#[test]
fn a_key_that_could_not_work_is_an_error() {
    let mut server = Server::new(POLICIES);
    let plain = about("").replace("\"p\"", "\"plain\"");
    for (key, body, detail) in [
        ("", &about(""), "`idempotency-key`: expected 1 to 255 printable ASCII characters"),
        ("a", &std::format!("{{\"checks\":[{}]}}", about("")), "expected a request with one check"),
        ("a", &plain, "expected a policy with `idempotency` for a request with an idempotency key"),
    ] {
        let response = call(&mut server, key, "/v1/check", body);
        assert_eq!(response.status, 400);
        let found = body_of(&response)["detail"].as_str().unwrap().to_string();
        assert!(found.contains(detail), "{found}");
    }
    assert_eq!(server.post("/v1/check", &plain)["remaining"], 4, "nothing was taken");
    let free = about("").replace("\"k\"", "\"free\"");
    assert_eq!(post(&mut server, "a", "/v1/check", &free)["allowed"], true);
    // a proxy hands on the headers of a request whose key is for the upstream
    let gate = server.call_with(
        "GET",
        "/v1/gate?policy=plain&key=k",
        Ok(Vec::new()),
        &[("idempotency-key", "")],
    );
    assert_eq!((gate.status, header(&gate, "ratelimit")), (204, Some("\"plain\";r=3;t=60")));
}

#[test]
fn an_edit_makes_no_other_request_of_a_repeat() {
    let mut server = Server::new(POLICIES);
    let first = call(&mut server, "a", "/v1/check", &about(""));
    let edited = POLICIES.replace("idempotency = '10m'", "idempotency = '10m'\ncost = 2");
    server.policies = tidegate_gate::Policies::parse(&edited).unwrap().into();
    assert_eq!(call(&mut server, "a", "/v1/check", &about("")), first);
}
