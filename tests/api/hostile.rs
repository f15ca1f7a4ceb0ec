//! Hostile requests to the gateway: each is refused or has no effect, and nothing is consumed.

use std::io::Write as _;

use tidegate_tests::Served;

use crate::gateway::{ALICE, problem, start, start_with};
use crate::held::wait_for;
use crate::upstream::{connect, read, send};

#[test]
fn no_trick_reaches_another_path_or_host() {
    let (served, upstream) = start();
    for target in [
        "/api//echo",
        "//evil.example/api/echo",
        "/api/../base/echo",
        "/api/%2e%2e/base/echo",
        "/api/.%2e/x",
        "/api%2Fecho",
        "/api/..%2f..%2f",
        "/api/%5cecho",
        "/api\\echo",
        "/api/%00",
        "/api/%0d%0ax",
        "/api/%zz",
        "http://evil.example/",
        "http://evil.example:80/other",
        "https://evil.example/other",
        "@evil.example/",
        "*",
        "/other/api/echo",
        "/api/..;/../other",
        "/api/..;/base/echo",
        "/api/..%3b/base/echo",
        "/api/%2e%2e;x/base/echo",
        "/api/.;/echo",
        "evil.example:80",
    ] {
        let reply = send(&served, &format!("GET {target}"), &[ALICE]);
        // 0: the runtime itself closes the connection
        assert!([0, 400, 404].contains(&reply.status), "{target}: {reply:?}");
    }
    for host in ["user@gateway.example", "gateway.example/../..", "evil.example#", "a b", ""] {
        let reply = send(&served, "GET /other", &[("host", host)]);
        assert!([0, 400, 404].contains(&reply.status), "{host}: {reply:?}");
    }
    assert_eq!(upstream.seen(), 0);
    for host in ["a b", "a,b", "a%zz", "a|b", "[::1", "x:80a", "x:65536", "é", "", ":80", "a@b"] {
        let reply = send(&served, "GET /api/echo", &[ALICE, ("host", host)]);
        assert_eq!(reply.status, 400, "{host}: {reply:?}"); // the runtime itself refuses some
    }
    problem(&send(&served, "GET /api/echo", &[ALICE, ("host", "a b")]), 400, ":invalid-request");
    for target in [
        "rpc://x/v1/keys/api/k",
        "rpc://tidegate/healthz",
        "RPC://x/healthz",
        "ws://x/healthz",
        "file:///healthz",
        "data:,x",
        "javascript:0",
        "http:/healthz",
        "http:healthz",
        "x:/healthz",
        "//healthz",
        "/rpc://x/healthz",
        "%2Fhealthz",
        "?healthz",
        "#/healthz",
    ] {
        let reply = send(&served, &format!("GET {target}"), &[ALICE]);
        assert!([0, 400, 404].contains(&reply.status), "{target}: {reply:?}");
        let reply = send(&served, "GET /healthz", &[ALICE, ("host", target)]);
        assert!([0, 400, 404].contains(&reply.status), "{target}: {reply:?}");
    }
    assert_eq!(upstream.seen(), 0);
    for host in ["evil.example", "evil.example:80", "user@evil.example", "user:pass@evil.example"] {
        let absolute =
            send(&served, &format!("GET http://{host}/api/echo"), &[("x-api-key", host)]);
        assert_eq!(absolute.sent("host").join(","), upstream.address, "{absolute:?}");
    }
    let left =
        served.api.get("/_tidegate/v1/keys/api/header:x-api-key:alice", &[]).get("remaining");
    assert_eq!(left, 3, "nothing was consumed");
}

/// Between JavaScript and WebAssembly lines separate the parts of a text, braces mark the partition in a name, and names are
/// parameters of SQL.
#[test]
fn a_key_with_the_signs_of_every_format_is_only_a_key() {
    let policies = "auth = 'none'\napi_path = '/_tidegate'\n\
        routes = [{ match = '/held/*', policy = 'held', upstream = 'http://UPSTREAM' }]\n\
        [policies.held]\nkey = ['query:token']\n\
        limits = [{ algorithm = 'concurrency', capacity = 1, time_to_live = '1h' },\n\
                  { algorithm = 'fixed_window', limit = 2, period = '365d' }]";
    let (served, _upstream) = start_with(policies, None);
    let tokens = [
        "%27)%3BDROP%20TABLE%20states%3B--",
        "%7Bheld:victim%7Dx:0",
        "a%2Fb",
        "%25%7D%22%5C",
        "%c3%a9%e2%80%a8",
        "ip:192.0.2.1",
    ];
    for (place, token) in (0..).zip(tokens) {
        for request in 1..=2 {
            let reply = send(&served, &format!("GET /held/echo?token={token}"), &[]);
            assert_eq!(reply.status, 200, "{token}: {reply:?}");
            assert!(reply.all("x-evil").is_empty(), "{reply:?}");
            wait_for(&served, "released", 2 * place + request); // under its own key
        }
        let third = send(&served, &format!("GET /held/echo?token={token}"), &[]);
        problem(&third, 429, "#quota-exceeded");
    }
    // a control character ends the value for some servers, so such a value is no key
    for token in ["%0a", "a%0a%0ab%0d%0ax-evil:1", "0%0aheld%0avictim%0alease", "a%2Fb%00%01"] {
        let reply = send(&served, &format!("GET /held/echo?token={token}"), &[]);
        problem(&reply, 400, "urn:tidegate:invalid-request");
        assert!(reply.all("x-evil").is_empty(), "{reply:?}");
    }
    assert_eq!(send(&served, "GET /held/echo?token=victim", &[]).status, 200);
}

/// What a route allowed is what the upstream gets: no header makes another request of it.
#[test]
fn an_upgrade_changes_no_method() {
    let policies = "auth = 'none'\n\
        routes = [{ match = '/api/*', methods = ['OPTIONS'], upstream = 'http://UPSTREAM' },\n\
                  { match = '/api/*', policy = 'api', upstream = 'http://UPSTREAM' }]\n\
        [policies.api]\nkey = ['header:x-api-key']\n\
        limits = [{ algorithm = 'fixed_window', limit = 12, period = '365d' }]";
    let (served, _upstream) = start_with(policies, None);
    for upgrade in ["websocket", "WebSocket", "websocket, h2c", "h2c"] {
        let fields = [
            ALICE,
            ("upgrade", upgrade),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        for method in ["OPTIONS", "HEAD", "PUT", "DELETE"] {
            let reply = send(&served, &format!("{method} /api/{method}"), &fields);
            assert_eq!(reply.status, 200, "{method}, {upgrade}: {reply:?}");
            if method != "HEAD" {
                assert_eq!(reply.json()["line"], format!("{method} /api/{method} HTTP/1.1"));
                assert_eq!(reply.sent("upgrade"), [""; 0], "{reply:?}");
            }
        }
    }
    assert_eq!(send(&served, "OPTIONS /api/x", &[ALICE]).status, 200);
    assert_eq!(send(&served, "PUT /api/x", &[ALICE]).status, 429);
}

#[test]
fn an_upgrade_takes_no_body_away() {
    let (served, upstream) = start();
    let upload = |head: &str| {
        let mut stream = connect(&served);
        write!(stream, "{head}host: h\r\nconnection: close\r\nupgrade: websocket\r\n").unwrap();
        stream
    };
    for method in ["POST", "GET", "DELETE"] {
        let mut stream = upload(&format!("{method} /base/echo HTTP/1.1\r\n"));
        write!(stream, "content-length: 5\r\n\r\nhello").unwrap();
        let reply = read(&mut stream);
        assert_eq!(reply.json()["line"], format!("{method} /v2/base/echo HTTP/1.1"), "{reply:?}");
        assert_eq!(reply.json()["body"], "hello", "{reply:?}");
        assert_eq!(reply.sent("upgrade"), [""; 0], "{reply:?}");
    }
    let mut stream = upload("PUT /base/upload HTTP/1.1\r\n");
    write!(stream, "transfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n").unwrap();
    write!(stream, "5\r\nlater\r\n0\r\n\r\n").unwrap();
    assert_eq!(read(&mut stream).status, 200);
    assert_eq!(upstream.received.try_iter().collect::<String>(), "firstlater");
}

#[test]
fn no_header_names_another_path() {
    let (served, _upstream) = start();
    let fields =
        [ALICE, ("x-original-url", "/admin"), ("x-rewrite-url", "/admin"), ("x_rewrite_url", "/")];
    let reply = send(&served, "GET /api/echo", &fields);
    assert_eq!(reply.json()["line"], "GET /api/echo HTTP/1.1");
    for name in ["x-original-url", "x-rewrite-url", "x_rewrite_url"] {
        assert_eq!(reply.sent(name), [""; 0], "{name}: {reply:?}");
    }
}

#[test]
fn oversized_requests_are_refused_and_nothing_is_consumed() {
    let (served, upstream) = start();
    let long = "x".repeat(16_384);
    problem(&send(&served, &format!("GET /api/{long}"), &[ALICE]), 414, ":target-too-long");
    problem(&send(&served, &format!("GET /api/?{long}"), &[ALICE]), 414, ":target-too-long");
    let huge = "x".repeat(1_000_000);
    for field in [("x-big", huge.as_str()), ("cookie", &huge), ("authorization", &huge)] {
        let reply = send(&served, "GET /api/echo", &[ALICE, field]);
        assert!([0, 400, 413, 431].contains(&reply.status), "{}: {}", field.0, reply.head);
    }
    assert_eq!(upstream.seen(), 0);
    let left =
        served.api.get("/_tidegate/v1/keys/api/header:x-api-key:alice", &[]).get("remaining");
    assert_eq!(left, 3);
    let cookies = "sid=a;".repeat(5_000);
    assert_eq!(send(&served, "GET /api/echo", &[ALICE, ("cookie", &cookies)]).status, 200);
    let key = "k".repeat(20_000);
    assert_eq!(send(&served, "GET /api/echo", &[("x-api-key", &key)]).status, 200);
}

#[test]
fn no_text_of_a_caller_reaches_a_page() {
    let (served, _upstream) = start();
    let script = "\"><script>alert(1)</script>";
    let fields = [("x-api-key", script), ("referer", script), ("accept", "text/html")];
    let escaped = "%22%3E%3Cscript%3Ealert(1)%3C/script%3E";
    assert_eq!(send(&served, "GET /users/echo", &fields).status, 200);
    for (target, status) in [("/users", 429), ("/other", 404), ("/api/%2f", 400), ("/down", 502)] {
        let page = send(&served, &format!("GET {target}/{escaped}?{escaped}"), &fields);
        assert_eq!(page.status, status, "{page:?}");
        assert_eq!(page.all("content-type"), ["text/html; charset=utf-8"]);
        assert!(!page.head.contains("alert") && !page.body.contains("alert"), "{page:?}");
    }
}

#[test]
fn a_spoofed_address_is_not_the_key() {
    let (served, _upstream) = start();
    let from = |ip: &str, forwarded: &str| {
        let fields =
            [("cf-connecting-ip", ip), ("x-forwarded-for", forwarded), ("x-real-ip", forwarded)];
        send(&served, "GET /by-ip/echo", &fields).status
    };
    assert_eq!(from("203.0.113.9", "6.6.6.1"), 200);
    assert_eq!(from("203.0.113.9", "6.6.6.2"), 429);
    assert_eq!(from("203.0.113.10", "203.0.113.9"), 200);
}

#[test]
fn a_cookie_is_found_in_whatever_line_it_is() {
    let (served, _upstream) = start();
    let send = |cookies: &[&str]| {
        let mut fields = vec![("x-api-key", "nobody")];
        fields.extend(cookies.iter().map(|cookie| ("cookie", *cookie)));
        send(&served, "GET /sessions/echo", &fields)
    };
    let left = |cookies: &[&str]| send(cookies).all("ratelimit")[1].clone();
    for (place, cookies) in
        [vec!["sid=abc"], vec!["a=1", "sid=abc"], vec!["sid=abc", "a=1"]].iter().enumerate()
    {
        let left = left(cookies);
        assert!(left.contains(&format!("r={}", 4 - place)), "{cookies:?}: {left}");
    }
    let twice = left(&["sid=abc", "sid=def"]);
    assert!(twice.contains("r=4"), "the next source is the key: {twice}");
}

pub(crate) fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

pub(crate) fn signed(served: &Served, algorithm: &str, head: &str, payload: &str) -> String {
    let target = format!("/test/sign?{algorithm}&{}&{}", encoded(head), encoded(payload));
    served.api.get(&target, &[]).text
}

/// Claims of a token for this gateway.
pub(crate) fn claims(others: &str) -> String {
    format!(r#"{{"iss":"us","aud":["other","api"],{others}}}"#)
}

#[test]
fn a_verified_token_names_the_caller_and_no_other_does() {
    let (served, _upstream) = start();
    let passes = |token: &str, key: &str| {
        let bearer = format!("Bearer {token}");
        send(&served, "GET /users/echo", &[("authorization", &bearer), ("x-api-key", key)]).status
            == 200
    };
    let counted = |key: &str| {
        let key = served.api.get(&format!("/_tidegate/v1/keys/users/{key}"), &[]);
        key.get("remaining") == 0
    };
    for algorithm in ["HS256", "RS256", "ES256"] {
        for kid in ["", &format!(",\"kid\":\"{algorithm}\"")] {
            let (head, sub) =
                (format!("{{\"alg\":\"{algorithm}\"{kid}}}"), format!("{algorithm}{}", kid.len()));
            let token = signed(&served, algorithm, &head, &claims(&format!("\"sub\":\"{sub}\"")));
            assert!(passes(&token, &sub), "{algorithm}");
            assert!(
                counted(&format!("jwt:sub:{sub}")) && !counted(&format!("header:x-api-key:{sub}"))
            );
            assert!(!passes(&token, "another"), "the key is the claim");
        }
    }
    let victim = &claims(r#""sub":"victim""#);
    let genuine = signed(&served, "ES256", r#"{"alg":"ES256"}"#, victim);
    let [head, payload, signature]: [&str; 3] =
        genuine.split('.').collect::<Vec<_>>().try_into().unwrap();
    let [other, none] = [r#"{"sub":"other"}"#, r#"{"alg":"none"}"#].map(|text| {
        let token = signed(&served, "HS256", text, text);
        token.split('.').next().unwrap().to_owned()
    });
    let forged = [
        format!("{head}.{other}.{signature}"),
        format!("{none}.{payload}."),
        format!("{none}.{payload}.{signature}"),
        signed(&served, "confused", r#"{"alg":"HS256"}"#, victim),
        signed(&served, "confused", r#"{"alg":"HS256","kid":"RS256"}"#, victim),
        signed(&served, "HS256", r#"{"alg":"RS256"}"#, victim),
        signed(&served, "HS256", r#"{"alg":"HS256","kid":"unknown"}"#, victim),
        signed(
            &served,
            "HS256",
            r#"{"alg":"HS256"}"#,
            &claims(r#""sub":"victim","exp":1000000000"#),
        ),
        signed(
            &served,
            "HS256",
            r#"{"alg":"HS256"}"#,
            &claims(r#""sub":"victim","nbf":99999999999"#),
        ),
        signed(&served, "HS256", r#"{"alg":"HS256"}"#, &claims(r#""sub":"x","sub":"victim""#)),
        signed(&served, "HS256", r#"{"alg":"HS256"}"#, r#"{"sub":"victim","aud":"api"}"#),
        signed(
            &served,
            "HS256",
            r#"{"alg":"HS256"}"#,
            r#"{"sub":"victim","iss":"us","aud":"other"}"#,
        ),
        format!("{genuine}x"),
        "x".repeat(20_000),
    ];
    for (place, token) in forged.iter().enumerate() {
        let key = format!("caller-{place}");
        assert!(passes(token, &key), "{token}");
        assert!(counted(&format!("header:x-api-key:{key}")), "the next source is the key: {token}");
    }
    assert!(!counted("jwt:sub:victim"));
    assert!(passes(&genuine, "x"));
    let gate = |token: &str| {
        let bearer = format!("Bearer {token}");
        served.api.get("/_tidegate/v1/gate?policy=users", &[("authorization", &bearer)]).status
    };
    assert_eq!(gate(&genuine), 429, "the API finds the same key");
    assert_eq!(gate(&forged[0]), 400);
}
