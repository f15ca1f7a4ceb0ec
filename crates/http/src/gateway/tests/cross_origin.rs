//! Tests of preflights, and of what pages of other origins may read.

use std::format;
use std::string::ToString;
use std::vec::Vec;

use super::{Gateway, upstream_failed};
use crate::{Header, Headers, Response, Served};

const APP: &str = "https://app.example";
const ROUTES: &str = "
[[routes]]
match = '/api/*'
methods = ['GET', 'PUT']
policy = 'p'
upstream = 'http://u'
origins = ['https://app.example', 'http://localhost:5173']
[[routes]]
match = '/open/*'
policy = 'p'
upstream = 'http://u'
origins = ['*']
[[routes]]
match = '/counted/*'
methods = ['PUT']
policy = 'p'
upstream = 'http://u'
count_preflight = true
[[routes]]
match = '/plain/*'
policy = 'p'
upstream = 'http://u'
";

/// The fields by which a browser lets a page read an answer.
fn fields(headers: &[Header]) -> Headers {
    let is_one = |name: &str| name.starts_with("access-control-") || name == "vary";
    headers.iter().filter(|(name, _)| is_one(name)).cloned().collect()
}

fn refused(gateway: &mut Gateway, path: &str, headers: &[(&str, &str)]) -> Response {
    for _ in 0..4 {
        if let Served::Response(response) =
            gateway.send("GET", &format!("https://h{path}"), headers)
        {
            return response;
        }
    }
    panic!("nothing was refused")
}

fn own(all: &[(&'static str, &str)]) -> Headers {
    all.iter().map(|(name, value)| (*name, (*value).to_string().into())).collect()
}

const EXPOSED: (&str, &str) =
    ("access-control-expose-headers", "RateLimit, RateLimit-Policy, Retry-After");

#[test]
fn a_page_of_an_origin_of_the_route_can_read_a_refusal() {
    let mut gateway = Gateway::new(ROUTES);
    let listed = own(&[
        EXPOSED,
        ("vary", "Origin"),
        ("access-control-allow-origin", APP),
        ("access-control-allow-credentials", "true"),
    ]);
    let problem = refused(&mut gateway, "/api/a", &[("origin", APP)]);
    assert_eq!((problem.status, fields(&problem.headers)), (429, listed.clone()));
    for name in ["ratelimit", "ratelimit-policy", "retry-after"] {
        assert!(problem.headers.iter().any(|(field, _)| *field == name), "{problem:?}");
    }
    let page = refused(&mut gateway, "/api/a", &[("origin", APP), ("accept", "text/html")]);
    assert_eq!(fields(&page.headers), listed, "a page has them, too");
    for headers in [&[][..], &[("origin", "https://evil.example")], &[("origin", "null")]] {
        let problem = refused(&mut gateway, "/api/a", headers);
        assert_eq!(fields(&problem.headers), own(&[EXPOSED, ("vary", "Origin")]), "{headers:?}");
    }
    let all = own(&[EXPOSED, ("access-control-allow-origin", "*")]);
    for headers in [&[][..], &[("origin", "https://evil.example")]] {
        assert_eq!(fields(&refused(&mut gateway, "/open/a", headers).headers), all);
    }
    let problem = refused(&mut gateway, "/plain/a", &[("origin", APP)]);
    assert_eq!(fields(&problem.headers), [], "the route names no origins");
}

#[test]
fn every_answer_of_the_gateway_on_the_route_can_be_read() {
    let mut gateway = Gateway::new(ROUTES);
    let pass = gateway.passes("https://h/open/a");
    assert_eq!(fields(&pass.headers), own(&[EXPOSED]), "the upstream says who may read its answer");
    let failed = upstream_failed(None, &pass.own_fields);
    let all = own(&[EXPOSED, ("access-control-allow-origin", "*")]);
    assert_eq!((failed.status, fields(&failed.headers)), (502, all.clone()));
    gateway.server.fails = true;
    let problem = gateway.refuses("https://h/open/a", &[]);
    assert_eq!((problem.status, fields(&problem.headers)), (503, all));
    let unknown = gateway.refuses("https://h/other", &[("origin", APP)]);
    assert_eq!((unknown.status, fields(&unknown.headers)), (404, Vec::new()), "it has no route");
}

#[test]
fn a_preflight_is_free_and_takes_the_route_that_it_asks_about() {
    let mut gateway = Gateway::new(ROUTES);
    let put = [("origin", APP), ("access-control-request-method", "PUT")];
    let get = [("origin", APP), ("access-control-request-method", "GET")];
    let delete = [("origin", APP), ("access-control-request-method", "DELETE")];
    for asks in [&put, &get] {
        for _ in 0..5 {
            let Served::Pass(pass) = gateway.send("OPTIONS", "https://h/api/a", asks) else {
                panic!("{asks:?}")
            };
            assert_eq!(pass.url.as_deref(), Some("http://u/api/a"));
            assert!(pass.headers.iter().all(|(name, _)| *name != "ratelimit"), "{pass:?}");
        }
    }
    let mut status = |path: &str, asks: &[(&str, &str)]| match gateway.send(
        "OPTIONS",
        &format!("https://h{path}"),
        asks,
    ) {
        Served::Pass(_) => 0,
        Served::Response(response) => response.status,
    };
    assert_eq!(status("/api/a", &delete), 404, "the request would have no route");
    assert_eq!(status("/api/a", &[]), 404, "this is no preflight");
    assert_eq!([0; 3].map(|_| status("/counted/a", &put)), [0, 0, 429], "the route says so");
}

#[test]
fn nothing_but_a_preflight_is_free() {
    let preflight = [("origin", APP), ("access-control-request-method", "PUT")];
    for more in [
        ("x-http-method-override", "PUT"),
        ("x_http_method_override", "PUT"),
        ("x-http_method-override", "PUT"),
        ("x-http-method", "PUT"),
        ("x-method-override", "PUT"),
        ("transfer-encoding", "chunked"),
        ("content-length", "5"),
    ] {
        let mut gateway = Gateway::new(ROUTES);
        let headers = [preflight[0], preflight[1], more];
        let passes = [0; 3].map(|_| {
            matches!(gateway.send("OPTIONS", "https://h/plain/a", &headers), Served::Pass(_))
        });
        assert_eq!(passes, [true, true, false], "{more:?}");
    }
    for (method, headers) in
        [("OPTIONS", &preflight[..1]), ("OPTIONS", &preflight[1..]), ("GET", &preflight)]
    {
        let mut gateway = Gateway::new(ROUTES);
        let passes = [0; 3]
            .map(|_| matches!(gateway.send(method, "https://h/plain/a", headers), Served::Pass(_)));
        assert_eq!(passes, [true, true, false], "{method} {headers:?}");
    }
    let mut gateway = Gateway::new(ROUTES);
    let passes = [0; 3].map(|_| {
        let served = gateway.send("OPTIONS", "https://h/plain/a?_method=PUT", &preflight);
        matches!(served, Served::Pass(_))
    });
    assert_eq!(passes, [true, true, false], "a method in the query");
    let mut gateway = Gateway::new(ROUTES);
    let headers = [preflight[0], preflight[1], ("content-length", "0")];
    for _ in 0..3 {
        let served = gateway.send("OPTIONS", "https://h/plain/a", &headers);
        assert!(matches!(served, Served::Pass(_)), "an empty body is none");
    }
}
