//! Which route a request takes, and what a policy file says of a gateway.

use std::borrow::ToOwned;
use std::format;
use std::net::IpAddr;
use std::string::{String, ToString};
use std::sync::Arc;
use std::vec::Vec;

use crate::policy::{Path, TwoRoutes};
use crate::{Gateway, KeySource, Network, Policies, Route, RoutePolicy, SignatureAlgorithm};

const LIMIT: &str = "{ algorithm = 'fixed_window', limit = 5, period = '1d' }";

fn gateway(file: &str) -> Gateway {
    let policies = format!("[policies.p]\nlimits = [{LIMIT}]\nreservations = {{}}");
    Policies::parse(&format!("{file}\n{policies}")).unwrap().into_gateway()
}

#[test]
fn a_request_takes_the_first_route_that_includes_it() {
    let gateway = gateway(
        "[[routes]]\nmatch = '/login'\nmethods = ['POST']\nupstream = 'http://login'
        [[routes]]\nmatch = 'www.example.com/api/*'\nupstream = 'http://api'
        [[routes]]\nmatch = '/read/*'\nmethods = ['GET']\nupstream = 'http://read'
        [[routes]]\nmatch = 'h:8080/*'\nupstream = 'http://port'",
    );
    let www = "www.example.com";
    for (authority, path, methods, expected) in [
        ("a", "/login", &["POST"][..], Ok(Some("http://login"))),
        ("a", "/login/", &["POST"], Ok(Some("http://login"))),
        ("a", "/login", &["OPTIONS", "POST"], Ok(Some("http://login"))),
        ("a", "/login", &["GET"], Ok(None)),
        ("a", "/login", &["HEAD"], Ok(None)),
        ("a", "/login/x", &["POST"], Ok(None)),
        (www, "/api", &["PUT"], Ok(Some("http://api"))),
        (www, "/api/x", &["PUT"], Ok(Some("http://api"))),
        (www, "/apix", &["PUT"], Ok(None)),
        ("WWW.Example.com.:443", "/api", &["PUT"], Ok(Some("http://api"))),
        ("example.com", "/api", &["PUT"], Ok(None)),
        ("a", "/read/x", &["GET"], Ok(Some("http://read"))),
        ("a", "/read/x", &["HEAD"], Ok(Some("http://read"))),
        ("a", "/read/x", &["POST"], Ok(None)),
        ("h:8080", "/x", &["GET"], Ok(Some("http://port"))),
        ("h:9090", "/x", &["GET"], Ok(None)),
        ("h", "/x", &["GET"], Ok(None)),
        // an upstream that ignores capitals would take another route, or the only one
        ("h:8080", "/LOGIN", &["POST"], Err(TwoRoutes)),
        ("a", "/LOGIN", &["POST"], Ok(None)),
    ] {
        let route = gateway.route(authority, &Path::of(path).unwrap(), methods);
        let upstream = route.map(|route| route.and_then(Route::upstream));
        assert_eq!(upstream, expected, "{methods:?} {authority}{path}");
    }
}

#[test]
fn the_api_is_served_under_its_path_beside_routes_and_everywhere_without_them() {
    let routes = "routes = [{ match = '/*', upstream = 'http://u' }]";
    let paths = "api_path = '/_t'\nhealth_path = '/health'";
    for (file, path, expected) in [
        (String::new(), "/v1/check", Some("/v1/check")),
        (routes.to_owned(), "/v1/check", None),
        (format!("{paths}\n{routes}"), "/_t/v1/check", Some("/v1/check")),
        (format!("{paths}\n{routes}"), "/_t", None),
        (format!("{paths}\n{routes}"), "/_tx/v1/check", None),
        (format!("{paths}\n{routes}"), "/v1/check", None),
        (format!("{paths}\n{routes}"), "/health", Some("/healthz")),
    ] {
        assert_eq!(gateway(&file).api(path), expected, "{path}, {file}");
    }
}

#[test]
fn a_route_says_what_its_policies_take() {
    let more = "[policies.q]\nlimits = [{ algorithm = 'utilization' }]\nclasses = ['low', 'high']";
    let file = format!(
        "[[routes]]\nmatch = '/a'\nupstream = 'http://u'\npolicy = 'p'\ncost = 5\ncount_preflight = true
        [[routes]]\nmatch = '/b'\nupstream = 'http://u'\npolicies = ['p', 'q']\nclass = 'high'
        actual = {{ field = 'n' }}\norigins = ['https://a', 'https://b']
        [[routes]]\nmatch = '/c'\nupstream = 'http://u'\norigins = ['*']\n{more}"
    );
    let gateway = gateway(&file);
    let said = |route: &Route| {
        let names = route.policies().iter().map(|each| each.policy().name().to_owned());
        let classes = route.policies().iter().map(|each| each.class().map(str::to_owned));
        let origins = route.origins().map(str::to_owned).collect::<Vec<_>>().join(" ");
        let is_metered = route.metering().is_some();
        let names = names.collect::<Vec<_>>().join(" ");
        let bools = (route.counts_preflights(), is_metered);
        (names, classes.collect::<Vec<_>>(), route.cost(), bools, origins)
    };
    let [a, b, c] = gateway.routes() else { panic!("three routes") };
    assert_eq!(said(a), ("p".into(), [None].into(), Some(5), (true, false), "".into()));
    let classes = [None, Some("high".to_owned())].into();
    assert_eq!(said(b), ("p q".into(), classes, None, (false, true), "https://a https://b".into()));
    assert_eq!(said(c), ("".into(), [].into(), None, (false, false), "*".into()));
    assert_eq!(
        [a, b, c].map(ToString::to_string),
        [
            "/a: by p, at a cost of 5, to http://u",
            "/b: by p and q, of class high, at the cost that its answer tells, to http://u",
            "/c: not counted, to http://u",
        ]
    );
    let class = |name| RoutePolicy::policy(&b.policies()[1]).class(name).map(|class| class.0);
    assert_eq!([class("low"), class("high"), class("x")], [Some(0), Some(u16::MAX), None]);
}

#[test]
fn a_gateway_says_how_tokens_are_verified_and_whom_it_trusts() {
    let tokens = "algorithms = ['ES256', 'HS256'], keys = 'JWT_KEYS'";
    let of = |more: &str| gateway(&format!("jwt = {{ {tokens}{more} }}"));
    let full = of(", source = 'cookie:t', issuer = 'https://i', audience = 'a'");
    let jwt = full.jwt().unwrap();
    assert_eq!(jwt.algorithms(), [SignatureAlgorithm::Es256, SignatureAlgorithm::Hs256]);
    assert_eq!((jwt.keys(), jwt.source()), ("JWT_KEYS", &KeySource::Cookie("t".into())));
    assert_eq!((jwt.issuer(), jwt.audience()), (Some("https://i"), Some("a")));
    let plain = of("");
    let jwt = plain.jwt().unwrap();
    assert_eq!(*jwt.source(), KeySource::Header("authorization".into()));
    assert_eq!((jwt.issuer(), jwt.audience(), gateway("").jwt()), (None, None, None));

    let trusted = gateway("trusted_proxies = ['10.0.0.0/8', '::1']");
    let trusts = |address: &str| {
        let address: IpAddr = address.parse().unwrap();
        trusted.trusted_proxies().iter().any(|network: &Network| network.contains(address))
    };
    assert!(trusts("10.1.2.3") && trusts("::1") && !trusts("11.1.2.3") && !trusts("::2"));
}

#[test]
fn policies_say_what_they_need_of_a_server() {
    let jwt = "jwt = { algorithms = ['HS256'], keys = 'K' }";
    for (key, verifies, reads_country) in [
        ("'ip'", false, false),
        ("'unverified_jwt:sub'", false, false),
        ("'jwt:sub'", true, false),
        ("['ip', 'jwt:sub']", true, false),
        ("['ip', 'country']", false, true),
    ] {
        let file = format!("{jwt}\n[policies.p]\nkey = [{key}]\nlimits = [{LIMIT}]");
        let policies = Policies::parse(&file).unwrap();
        let needs = policies.needs_verification().map(|policy| policy.name());
        assert_eq!(needs, verifies.then_some("p"), "{key}");
        assert_eq!(policies.reads_country(), reads_country, "{key}");
    }
}

#[test]
fn an_edit_keeps_the_policies_that_it_leaves_alone() {
    let file = |limit| {
        let b = LIMIT.replace('5', limit);
        let file = format!("[policies.b]\nlimits = [{b}]\n[policies.a]\nlimits = [{LIMIT}]");
        Policies::parse(&file).unwrap()
    };
    let (old, same, edited) = (file("5"), file("5"), file("6"));
    let names: Vec<_> = old.all().iter().map(|policy| policy.name()).collect();
    assert_eq!(names, ["a", "b"]);
    for (edit, shared) in [(same, [true, true]), (edited, [true, false])] {
        let edit = edit.sharing(&old);
        let is_shared = ["a", "b"].map(|name| {
            let [one, other] = [&edit, &old].map(|all| all.get(name).unwrap());
            Arc::ptr_eq(one, other)
        });
        assert_eq!(is_shared, shared);
    }
}
