//! What the built Worker says to pages of other origins, and what a route says of its requests.

use crate::gateway::{ALICE, problem, start_with};
use crate::upstream::{RawReply, send};

const POLICIES: &str = r#"
auth = "none"
health_path = "/up"
routes = [
  { match = "/api/dear", policy = "api", cost = 3, origins = ["https://app.example"], upstream = "http://UPSTREAM" },
  { match = "/api/*", methods = ["PUT"], policy = "api", origins = ["https://app.example"], upstream = "http://UPSTREAM" },
  { match = "/down/*", policy = "api", origins = ["*"], upstream = "http://127.0.0.1:1" },
  { match = "/held/pay", policy = "fleet", class = "critical", upstream = "http://UPSTREAM" },
  { match = "/held/*", policy = "fleet", upstream = "http://UPSTREAM" },
]

[policies.api]
key = ["header:x-api-key"]
limits = [{ algorithm = "fixed_window", limit = 3, period = "365d" }]

[policies.fleet]
key = ["header:x-api-key"]
limits = [{ algorithm = "fleet_usage", capacity = 2, reserve = "50%", time_to_live = "1h" }]
"#;

const APP: (&str, &str) = ("origin", "https://app.example");

#[track_caller]
fn is_for_the_app(reply: &RawReply) {
    for (name, value) in [
        ("access-control-allow-origin", "https://app.example"),
        ("access-control-allow-credentials", "true"),
        ("access-control-expose-headers", "RateLimit, RateLimit-Policy, Retry-After"),
        ("vary", "Origin"),
    ] {
        assert_eq!(reply.all(name), [value], "{name}: {reply:?}");
    }
}

#[test]
fn a_page_can_read_what_the_gateway_answers_and_its_preflights_are_free() {
    let (served, upstream) = start_with(POLICIES, None);
    let preflight = [APP, ("access-control-request-method", "PUT")];
    for _ in 0..5 {
        let passed = send(&served, "OPTIONS /api/echo", &preflight);
        assert_eq!(passed.json()["line"], "OPTIONS /api/echo HTTP/1.1");
        assert_eq!(passed.all("ratelimit"), ["\"theirs\";r=1"], "it is not counted");
    }
    let granted = send(&served, "PUT /api/dear", &[ALICE, APP, ("content-length", "0")]);
    assert!(granted.all("ratelimit").join(", ").contains("\"api\";r=0"), "it costs 3: {granted:?}");
    assert_eq!(
        granted.all("access-control-expose-headers"),
        ["RateLimit, RateLimit-Policy, Retry-After"]
    );
    let refused = send(&served, "PUT /api/echo", &[ALICE, APP, ("content-length", "0")]);
    problem(&refused, 429, "#quota-exceeded");
    is_for_the_app(&refused);
    let page = send(&served, "PUT /api/echo", &[ALICE, APP, ("accept", "text/html")]);
    assert_eq!(page.status, 429);
    is_for_the_app(&page);
    let without_key = send(&served, "PUT /api/echo", &[APP]);
    problem(&without_key, 400, ":invalid-request");
    is_for_the_app(&without_key);
    let evil = send(&served, "PUT /api/echo", &[ALICE, ("origin", "https://evil.example")]);
    assert_eq!((evil.status, evil.all("access-control-allow-origin")), (429, Vec::new()));
    let down = send(&served, "GET /down/x", &[("x-api-key", "bob"), APP]);
    problem(&down, 502, ":upstream-failed");
    assert_eq!(down.all("access-control-allow-origin"), ["*"]);
    assert_eq!(upstream.seen(), 6);
}

#[test]
fn health_is_beside_the_routes() {
    let (served, upstream) = start_with(POLICIES, None);
    let health = send(&served, "GET /up", &[]);
    assert_eq!((health.status, health.body.as_str()), (200, r#"{"status":"ok"}"#));
    problem(&send(&served, "GET /healthz", &[]), 404, ":not-found");
    assert_eq!(upstream.seen(), 0);
}

#[test]
fn a_place_that_is_taken_is_asked_for_again_soon() {
    let (served, upstream) = start_with(POLICIES, None);
    let mut stream = crate::upstream::connect(&served);
    let seen = upstream.seen();
    std::io::Write::write_all(
        &mut stream,
        b"GET /held/silent HTTP/1.1\r\nhost: h\r\nx-api-key: alice\r\n\r\n",
    )
    .unwrap();
    upstream.wait_for_more_than(seen);
    let refused = send(&served, "GET /held/echo", &[ALICE]);
    problem(&refused, 503, "#temporary-reduced-capacity");
    assert_eq!(refused.all("retry-after"), ["5"], "and not the hour after which it expires");
    assert_eq!(refused.json()["retry_after_us"], 5_000_000);
    assert_eq!(send(&served, "GET /held/pay", &[ALICE]).status, 200, "its class is critical");
}
