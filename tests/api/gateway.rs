//! The built Worker in front of a real upstream.

use std::io::{Read as _, Write as _};
use std::path::Path;

use serde_json::json;
use tidegate::local::WorkerdOptions;
use tidegate_tests::{Served, worker};

use crate::upstream::{PATIENCE, RawReply, Upstream, connect, read, send};

/// The periods are long, so that no test depends on its speed.
const POLICIES: &str = r#"
auth = "none"
api_path = "/_tidegate"
jwt = { algorithms = ["HS256", "RS256", "ES256"], keys = "JWT_KEYS", issuer = "us", audience = "api" }
routes = [
  { match = "/api/*", policy = "api", upstream = "http://UPSTREAM" },
  { match = "/base/*", upstream = "http://UPSTREAM/v2/" },
  { match = "/held/*", policy = "held", upstream = "http://UPSTREAM" },
  { match = "/sockets/*", policy = "sockets", upstream = "http://UPSTREAM" },
  { match = "/shed/*", policy = "shed", upstream = "http://UPSTREAM" },
  { match = "/users/*", policy = "users", upstream = "http://UPSTREAM" },
  { match = "/by-ip/*", policy = "by-ip", upstream = "http://UPSTREAM" },
  { match = "/sessions/*", policy = "sessions", upstream = "http://UPSTREAM" },
  { match = "/slow/*", policy = "slow", upstream = "http://UPSTREAM" },
  { match = "/down/*", policy = "held", upstream = "http://127.0.0.1:1" },
  { match = "UPSTREAM/*" },
]

[policies.api]
key = ["header:x-api-key"]
cost = { header = "x-cost" }
limits = [{ algorithm = "fixed_window", limit = 3, period = "365d" }]

[policies.by-ip]
limits = [{ algorithm = "fixed_window", limit = 1, period = "365d" }]

[policies.held]
key = ["header:x-api-key"]
limits = [{ algorithm = "concurrency", capacity = 1, time_to_live = "1h" }]

[policies.sockets]
key = ["header:x-api-key"]
limits = [{ algorithm = "connections", limit = 1, expiry = "1h" }]

[policies.shed]
key = ["header:x-api-key"]
limits = [{ algorithm = "suppression", rate = "100/s" }]

[policies.sessions]
key = ["cookie:sid", "header:x-api-key"]
limits = [{ algorithm = "fixed_window", limit = 5, period = "365d" }]

[policies.slow]
key = ["header:x-api-key"]
limits = [{ algorithm = "concurrency", capacity = 1, time_to_live = "3m" }]

[policies.users]
key = ["jwt:sub", "header:x-api-key"]
limits = [{ algorithm = "fixed_window", limit = 1, period = "365d" }]
"#;

pub(crate) fn start() -> (Served, Upstream) {
    start_on(None)
}

pub(crate) fn start_on(storage: Option<&Path>) -> (Served, Upstream) {
    start_with(POLICIES, storage)
}

/// The gateway with these policies, in which `UPSTREAM` is the address of the upstream.
pub(crate) fn start_with(policies: &str, storage: Option<&Path>) -> (Served, Upstream) {
    let upstream = Upstream::start();
    let storage = storage.map(Path::to_owned);
    let served = worker(WorkerdOptions {
        policies: policies.replace("UPSTREAM", &upstream.address),
        entry: Some(include_str!("gateway.js").to_owned()),
        reaches_private: true,
        server_timing: true,
        storage,
        ..WorkerdOptions::default()
    });
    (served, upstream)
}

pub(crate) const ALICE: (&str, &str) = ("x-api-key", "alice");

#[track_caller]
pub(crate) fn problem(reply: &RawReply, status: u16, kind: &str) {
    assert_eq!(reply.status, status, "{reply:?}");
    assert_eq!(reply.all("content-type"), ["application/problem+json"], "{reply:?}");
    assert!(reply.json()["type"].as_str().unwrap().ends_with(kind), "{reply:?}");
}

#[test]
fn a_request_passes_to_the_upstream_and_back() {
    let (served, upstream) = start();
    let mut stream = connect(&served);
    let fields = "host: gateway.example:81\r\nx-api-key: alice\r\ncookie: a=1; b=2\r\nx-cost: 0\r\n\
        cf-connecting-ip: 203.0.113.9\r\nx-forwarded-for: 6.6.6.6\r\nx-forwarded-host: evil\r\n\
        x-forwarded-port: 1\r\nx-real-ip: 6.6.6.6\r\nforwarded: for=6.6.6.6\r\nte: trailers\r\n\
        X_Forwarded_For: 6.6.6.6\r\nX-Forwarded_Proto: https\r\nX_Real_IP: 6.6.6.6\r\n\
        Proxy_Authorization: x\r\nmy_header: 1\r\n\
        connection: close, x-of-connection\r\nx-of-connection: 1\r\nproxy-authorization: x\r\n";
    write!(stream, "PATCH /api/echo?a=%2F..&b HTTP/1.1\r\n{fields}content-length: 5\r\n\r\nhello")
        .unwrap();
    let reply = read(&mut stream);
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(reply.json()["line"], "PATCH /api/echo?a=%2F..&b HTTP/1.1");
    assert_eq!(reply.json()["body"], "hello");
    for (name, value) in [
        ("host", vec![upstream.address.clone()]),
        ("cookie", vec!["a=1; b=2".into()]),
        ("content-length", vec!["5".into()]),
        ("x-forwarded-for", vec!["203.0.113.9".into()]),
        ("x-real-ip", vec!["203.0.113.9".into()]),
        ("x-forwarded-host", vec!["gateway.example:81".into()]),
        ("x-forwarded-proto", vec!["http".into()]),
        ("x-forwarded-port", vec![]),
        ("forwarded", vec![]),
        ("te", vec![]),
        ("x-of-connection", vec![]),
        ("proxy-authorization", vec![]),
        ("x_forwarded_for", vec![]), // CGI and WSGI read `_` as `-`
        ("x-forwarded_proto", vec![]),
        ("x_real_ip", vec![]),
        ("proxy_authorization", vec![]),
        ("my_header", vec!["1".into()]),
    ] {
        assert_eq!(reply.sent(name), value, "{name}: {reply:?}");
    }
    assert_eq!(reply.all("set-cookie"), ["a=1", "b=2"]);
    assert_eq!(reply.all("x-of-connection"), [""; 0]);
    assert_eq!(reply.all("ratelimit-policy"), ["\"api\";q=3;w=31536000"]);
    let limits = reply.all("ratelimit").join(", ");
    assert!(limits.starts_with("\"theirs\";r=1, \"api\";r=2;t="), "the cost is 1: {limits}");
    assert!(reply.all("server-timing").join(",").contains("tidegate;dur="), "{reply:?}");

    let based = send(&served, "GET /base/echo", &[]);
    assert_eq!(based.json()["line"], "GET /v2/base/echo HTTP/1.1");
    assert_eq!(based.all("ratelimit"), ["\"theirs\";r=1"], "it is not counted");
    assert_eq!(based.sent("x-forwarded-for"), [""; 0], "nobody trustworthy names a client");
    let own = send(&served, "GET /echo", &[("host", &upstream.address)]);
    assert_eq!(own.json()["line"], "GET /echo HTTP/1.1", "the route has no upstream");
    let head = send(&served, "HEAD /base/echo", &[]);
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    let queried = send(&served, "QUERY /base/echo", &[]);
    assert_eq!(queried.json()["line"], "QUERY /v2/base/echo HTTP/1.1", "any method passes");
    let redirect = send(&served, "GET /base/redirect", &[]);
    assert_eq!((redirect.status, redirect.all("location")), (302, vec!["/elsewhere".to_owned()]));
    assert_eq!(upstream.seen(), 6, "no redirect was followed");
}

#[test]
fn a_refusal_is_a_problem_or_a_page_and_the_upstream_is_not_asked() {
    let (served, upstream) = start();
    for _ in 0..3 {
        assert_eq!(send(&served, "GET /api/echo", &[ALICE]).status, 200);
    }
    let refused = send(&served, "GET /api/echo", &[ALICE]);
    problem(&refused, 429, "#quota-exceeded");
    let wait: u64 = refused.all("retry-after")[0].parse().unwrap();
    assert!(wait > 0 && wait <= 365 * 86_400);
    assert!(refused.all("server-timing").join(",").starts_with("tidegate;"), "{refused:?}");
    let browser = ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8");
    let page = send(&served, "GET /api/echo", &[ALICE, browser]);
    assert_eq!(
        (page.status, page.all("content-type")),
        (429, vec!["text/html; charset=utf-8".into()])
    );
    assert!(page.body.contains("<h1>Too many requests</h1>"), "{page:?}");
    assert!(!page.all("retry-after").is_empty());
    assert_eq!(send(&served, "GET /api/echo", &[("x-api-key", "bob")]).status, 200);
    problem(&send(&served, "GET /api/echo", &[]), 400, ":invalid-request");
    problem(&send(&served, "GET /other", &[]), 404, ":not-found");
    assert_eq!(upstream.seen(), 4);

    let report = json!({ "policy": "shed", "key": "header:x-api-key:k", "admitted": 600_000_000_000_u64, "suppressed": 0 });
    assert_eq!(served.api.post("/_tidegate/v1/report", report.to_string()).status, 200);
    let shed = send(&served, "GET /shed/echo", &[("x-api-key", "k")]);
    problem(&shed, 503, "#temporary-reduced-capacity");
    let page = send(&served, "GET /shed/echo", &[("x-api-key", "k"), browser]);
    assert!(page.status == 503 && page.body.contains("The site is busy"), "{page:?}");
}

#[test]
fn the_api_is_only_under_its_path() {
    let (served, upstream) = start();
    assert_eq!(served.api.get("/_tidegate/healthz", &[]).status, 200);
    let key = served.api.get("/_tidegate/v1/keys/api/header:x-api-key:alice", &[]);
    assert_eq!(key.get("remaining"), 3);
    for line in ["GET /healthz", "POST /v1/check", "GET /v1/gate?policy=api&key=k"] {
        problem(&send(&served, line, &[("content-length", "0")]), 404, ":not-found");
    }
    assert_eq!(upstream.seen(), 0);
}

#[test]
fn bodies_stream_both_ways() {
    let (served, upstream) = start();
    for path in ["/base/stream", "/held/stream"] {
        let mut stream = connect(&served);
        let head = "HTTP/1.1\r\nhost: h\r\nx-api-key: alice\r\nconnection: close\r\n\r\n";
        write!(stream, "GET {path} {head}").unwrap();
        let mut first = Vec::new();
        while !first.ends_with(b"first") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            first.extend(byte);
        }
        upstream.go.send(()).unwrap(); // the last part is only sent once the first was read
        let mut rest = String::new();
        stream.read_to_string(&mut rest).unwrap();
        assert!(rest.contains("last"), "{rest}");
    }
    let mut stream = connect(&served);
    let head = "HTTP/1.1\r\nhost: h\r\nx-api-key: bob\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
    write!(stream, "POST /base/upload {head}5\r\nfirst\r\n").unwrap();
    assert_eq!(upstream.received.recv_timeout(PATIENCE).unwrap(), "first");
    write!(stream, "5\r\nlater\r\n").unwrap();
    assert_eq!(upstream.received.recv_timeout(PATIENCE).unwrap(), "later");
    write!(stream, "0\r\n\r\n").unwrap();
    assert_eq!(read(&mut stream).status, 200);
}
