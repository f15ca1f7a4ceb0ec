//! Who a request is from, at the gateway of the built Worker: one client has one key, however it writes it, and one path
//! has one route.

use tidegate_tests::Served;

use crate::gateway::{problem, start_with};
use crate::upstream::send;

/// The periods are long, so that no test depends on its speed.
const POLICIES: &str = r#"
auth = "none"
routes = [
  { match = "/cookie/*", policy = "cookie", upstream = "http://UPSTREAM" },
  { match = "/header/*", policy = "header", upstream = "http://UPSTREAM" },
  { match = "/query/*", policy = "query", upstream = "http://UPSTREAM" },
  { match = "/both/*", policy = "both", upstream = "http://UPSTREAM" },
  { match = "/login", policy = "login", upstream = "http://UPSTREAM" },
  { match = "/*", upstream = "http://UPSTREAM" },
]

[policies.cookie]
key = ["cookie:sid", "ip"]
limits = [{ algorithm = "fixed_window", limit = 3, period = "365d" }]

[policies.header]
key = ["header:x-api-key", "ip"]
limits = [{ algorithm = "fixed_window", limit = 3, period = "365d" }]

[policies.query]
key = ["query:tok", "ip"]
limits = [{ algorithm = "fixed_window", limit = 3, period = "365d" }]

[policies.both]
key = [["ip", "header:x-api-key"], "ip"]
limits = [
  { name = "key", algorithm = "fixed_window", limit = 3, period = "365d" },
  { name = "address", depth = 1, algorithm = "fixed_window", limit = 5, period = "365d" },
]

[policies.login]
limits = [{ algorithm = "fixed_window", limit = 3, period = "365d" }]
"#;

/// How many of ten requests pass, which one client sends from one address.
fn passing(
    served: &Served,
    ip: &str,
    request: impl Fn(usize) -> (String, Vec<(String, String)>),
) -> usize {
    let passes = |number: &usize| {
        let (path, headers) = request(*number);
        let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let headers: Vec<_> = headers.chain([("cf-connecting-ip", ip)]).collect();
        let reply = send(served, &format!("GET {path}"), &headers);
        assert!([200, 429].contains(&reply.status), "{path} {headers:?}: {reply:?}");
        reply.status == 200
    };
    (0..10).filter(passes).count()
}

fn header(name: &str, value: impl Into<String>) -> (String, String) {
    (name.to_owned(), value.into())
}

#[test]
fn one_client_has_one_key_however_it_writes_it() {
    let (served, _upstream) = start_with(POLICIES, None);
    let passing = |ip, request: &dyn Fn(usize) -> (&'static str, String, Vec<(String, String)>)| {
        passing(&served, ip, |number| {
            let (path, query, headers) = request(number);
            (format!("{path}{query}"), headers)
        })
    };
    let spellings = [
        "abc",
        "%61bc",
        "a%62c",
        "ab%63",
        "%61%62c",
        "a%62%63",
        "%61b%63",
        "%61%62%63",
        "\"abc\"",
        "\"%61bc\"",
    ];
    let found = passing("192.0.2.1", &|number| {
        (
            "/cookie/echo",
            String::new(),
            vec![header("cookie", format!("sid={}", spellings[number]))],
        )
    });
    assert_eq!(found, 3, "spellings of a session");
    let found = passing("192.0.2.2", &|number| {
        let cookie = header("cookie", format!("sid={number}"));
        ("/cookie/echo", String::new(), vec![cookie, header("connection", "cookie")])
    });
    assert_eq!(found, 3, "the upstream does not see the cookies");
    let found = passing("192.0.2.3", &|number| {
        ("/cookie/echo", String::new(), vec![header("cookie", format!("sid={number}; %73id=abc"))])
    });
    assert_eq!(found, 3, "encoded names");
    let found = passing("192.0.2.4", &|number| {
        let key = header("x-api-key", format!("invented-{number}"));
        ("/header/echo", String::new(), vec![key, header("connection", "X-Api-Key, close")])
    });
    assert_eq!(found, 3, "the upstream does not see the header");
    for (ip, name) in
        [("192.0.2.5", "X_Api_Key"), ("192.0.2.6", "X-Api_Key"), ("192.0.2.7", "X-Api-Key")]
    {
        let found = passing(ip, &|number| {
            let invented = header("x-api-key", format!("invented-{number}"));
            ("/header/echo", String::new(), vec![invented, header(name, "real")])
        });
        assert_eq!(found, 3, "{name}");
    }
    for (ip, query) in [
        ("192.0.2.8", "?tok=N;tok=real"),
        ("192.0.2.9", "?tok=real;x=N"),
        ("192.0.2.10", "?TOK=real&tok=N"),
    ] {
        let found =
            passing(ip, &|number| ("/query/echo", query.replace('N', &number.to_string()), vec![]));
        assert_eq!(found, 3, "{query}");
    }
    let found = passing("192.0.2.11", &|number| {
        ("/both/echo", String::new(), vec![header("x-api-key", format!("invented-{number}"))])
    });
    assert_eq!(found, 5, "the address has a limit beside those of its keys");
}

#[test]
fn one_path_has_one_route() {
    let (served, upstream) = start_with(POLICIES, None);
    let ip = ("cf-connecting-ip", "192.0.2.1");
    for path in [
        "/login;x",
        "/login;",
        "/login%3bx",
        "/logi%256e",
        "/LOGIN",
        "/;x/login",
        "/public/..;/login",
        "/public/..;x=1/login",
        "/public/..%3b/login",
        "/public/%2e%2e;/login",
        "/public/.;/login",
        "/public/%252e%252e/login",
        "/public/..%252flogin",
    ] {
        problem(&send(&served, &format!("GET {path}"), &[ip]), 400, ":invalid-request");
    }
    assert_eq!(upstream.seen(), 0);
    for _ in 0..3 {
        send(&served, "GET /login/", &[ip]);
    }
    problem(&send(&served, "GET /login", &[ip]), 429, "#quota-exceeded");
    let cars = send(&served, "GET /cars;color=red/echo", &[ip]);
    assert_eq!(cars.json()["line"], "GET /cars;color=red/echo HTTP/1.1");
}
