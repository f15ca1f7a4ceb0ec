//! Tests of routes, of their errors, of hostile targets, and of the answers.

mod admit;
mod cross_origin;
mod fields;
mod metering;
mod paths;
mod several;
mod together;

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

use proptest::prelude::*;
use tidegate_gate::{Effect, KeyHasher, Operation, Policies, Resolved, Table, Timestamp, Verdict};

use super::{Pass, upstream_failed};
use crate::answer::page;
use crate::{
    Access, BodyError, Check, Exchange, Head, Header, NoKeys, Outcome, Response, RevisionTag,
    Served, Server, Step,
};

const LIMITS: &str = "limits = [{ algorithm = 'fixed_window', limit = 2, period = '1d' }]";

struct InMemory {
    /// By policy.
    tables: BTreeMap<String, Table>,
    fails: bool,
    /// The policy whose store does not answer.
    away: Option<&'static str>,
    /// What was asked, by policy.
    asked: Vec<(String, Operation)>,
    /// Whether the signature of each token holds; `None` without keys.
    trusts: Option<bool>,
    /// How many units the last request has reserved.
    reserved: Option<u64>,
}

impl InMemory {
    fn ask(&mut self, resolved: &Resolved, now: Timestamp, operation: &Operation) -> Verdict {
        let name = resolved.policy().name().to_string();
        let new = || Table::new(1 << 20, KeyHasher::new(0));
        self.tables.entry(name).or_insert_with(new).ask(resolved, now, operation).unwrap()
    }

    fn decide(&mut self, check: &Check) -> Outcome {
        let policy = check.resolved().policy().name();
        self.asked.push((policy.to_string(), check.operation()));
        match self.fails || self.away == Some(policy) {
            true => Outcome::Unavailable("away".to_string()),
            false => {
                let now = Timestamp(86_400_000_000);
                let verdict = self.ask(check.resolved(), now, &check.operation());
                self.reserved = match verdict.effect {
                    Effect::Reserved { units, .. } => Some(units),
                    _ => None,
                };
                Outcome::Decided(verdict)
            }
        }
    }
}

struct Gateway {
    policies: Arc<Policies>,
    server: InMemory,
    /// How many random numbers were drawn.
    drawn: u64,
}

impl Gateway {
    #[track_caller]
    fn new(file: &str) -> Self {
        let policies = format!("auth = 'none'\n{file}\n[policies.p]\n{LIMITS}\n");
        let policies = Policies::parse(&policies).unwrap_or_else(|error| panic!("{error}"));
        let policies = policies.into();
        let server = InMemory {
            tables: BTreeMap::new(),
            fails: false,
            away: None,
            asked: Vec::new(),
            trusts: Some(false),
            reserved: None,
        };
        Self { policies, server, drawn: 0 }
    }

    fn send(&mut self, method: &str, url: &str, headers: &[(&str, &str)]) -> Served {
        self.send_body(method, url, headers, Ok(Vec::new()))
    }

    fn send_body(
        &mut self,
        method: &str,
        url: &str,
        headers: &[(&str, &str)],
        body: Result<Vec<u8>, BodyError>,
    ) -> Served {
        let rest = url.strip_prefix("https://").unwrap();
        let (authority, target) = rest.split_at(rest.find('/').unwrap());
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let header = |name: &str| {
            headers.iter().find(|header| header.0 == name).map(|header| header.1.to_string())
        };
        let (client_ip, header) = (&|| "192.0.2.7".parse().ok(), &header);
        let head = Head { method, authority, path, query, header, client_ip, ..Head::default() };
        let (access, revision) = (&Access::OPEN, &RevisionTag::default());
        let server = Server { policies: &self.policies, access, revision, metrics: &String::new };
        let drawn = &mut self.drawn;
        let random = &mut || {
            *drawn += 1;
            Some(*drawn)
        };
        let mut exchange = Exchange::new(&server, &head, random);
        loop {
            match exchange.step() {
                Step::Body => exchange.body(Ok(Vec::new()), random),
                Step::Copy => exchange.body(body.clone(), random),
                Step::Verify(_) => exchange.verified(self.server.trusts.ok_or(NoKeys), random),
                Step::Decide(checks) => {
                    let decided = checks.iter().map(|check| self.server.decide(check)).collect();
                    exchange.decided(decided);
                }
                Step::Change(call) => panic!("{call:?}"),
                step @ (Step::Probe | Step::Watch { .. }) => panic!("{step:?}"),
                Step::Done(served) => return served,
            }
        }
    }

    /// The URL of the upstream, or the status of a refusal.
    fn get(&mut self, url: &str) -> Result<Option<String>, u16> {
        match self.send("GET", url, &[]) {
            Served::Pass(pass) => Ok(pass.url),
            Served::Response(response) => Err(response.status),
        }
    }

    #[track_caller]
    fn passes(&mut self, url: &str) -> Pass {
        match self.send("GET", url, &[]) {
            Served::Pass(pass) => *pass,
            Served::Response(response) => panic!("{response:?}"),
        }
    }

    #[track_caller]
    fn refuses(&mut self, url: &str, headers: &[(&str, &str)]) -> Response {
        match self.send("GET", url, headers) {
            Served::Pass(pass) => panic!("{pass:?}"),
            Served::Response(response) => response,
        }
    }
}

fn url(text: &str) -> Result<Option<String>, u16> {
    Ok(Some(text.to_string()))
}

const ROUTES: &str = "
[[routes]]
match = '/api/*'
methods = ['GET', 'POST']
policy = 'p'
upstream = 'https://origin.example/v2/'
[[routes]]
match = '/login'
upstream = 'http://127.0.0.1:8080'
[[routes]]
match = 'WWW.example.com/*'
";

#[test]
fn the_first_route_that_matches_is_taken() {
    let mut gateway = Gateway::new(ROUTES);
    for (from, to) in [
        ("https://h/api/a?x=%2F../&y=1", url("https://origin.example/v2/api/a?x=%2F../&y=1")),
        ("https://h:8443/login", url("http://127.0.0.1:8080/login")),
        ("https://h/login/", url("http://127.0.0.1:8080/login/")),
        ("https://h/login/x", Err(404)),
        ("https://h/loginx", Err(404)),
        ("https://h/apix", Err(404)),
        ("https://h/", Err(404)),
        ("https://www.Example.com/", Ok(None)),
        ("https://www.example.com/loginx", Ok(None)),
        ("https://www.example.com:81/loginx", Err(404)),
        ("https://www.example.com:80/loginx", Ok(None)),
        ("https://WWW.example.com./loginx", Ok(None)),
        ("https://www.example.com..:443/loginx", Ok(None)),
        ("https://www.example.com:/loginx", Ok(None)),
        ("https://www.example.com.evil/loginx", Err(404)),
        ("https://h/%61pi/%7e", url("https://origin.example/v2/%61pi/%7e")),
    ] {
        assert_eq!(gateway.get(from), to, "{from}");
    }
    let described: Vec<_> =
        gateway.policies.gateway().routes().iter().map(ToString::to_string).collect();
    assert_eq!(
        described,
        [
            "GET, POST /api/*: by p, to https://origin.example/v2",
            "/login: not counted, to http://127.0.0.1:8080",
            "www.example.com/*: not counted, to its own URL",
        ]
    );
    let pass = Gateway::new(ROUTES).passes("https://h/api");
    assert_eq!(pass.client.as_deref(), Some("192.0.2.7"));
    let policy: Header = ("ratelimit-policy", "\"p\";q=2;w=86400".into());
    assert_eq!(pass.headers, [policy, ("ratelimit", "\"p\";r=1;t=86400".into())]);
    let Served::Response(response) = gateway.send("DELETE", "https://h/api/a", &[]) else {
        panic!()
    };
    assert_eq!(response.status, 404, "no route has the method");
    let Served::Pass(pass) = gateway.send("DELETE", "https://www.example.com/api/a", &[]) else {
        panic!()
    };
    assert_eq!((pass.url, pass.headers), (None, Vec::new()), "the next route has it");
    let head = Gateway::new(ROUTES).send("HEAD", "https://www.example.com/api/a", &[]);
    let Served::Pass(pass) = head else { panic!() };
    assert!(pass.url.is_some() && !pass.headers.is_empty(), "a route of GET has HEAD, too");
}

#[test]
fn no_trick_takes_a_request_to_another_path_or_host() {
    let mut gateway = Gateway::new(ROUTES);
    for path in [
        "//",
        "//evil.example/",
        "/api//a",
        "/api/../login",
        "/api/./a",
        "/api/..",
        "/api/%2e%2e/a",
        "/api/.%2E/a",
        "/api/%2e",
        "/api%2fa",
        "/api/..%2Flogin",
        "/api%5Ca",
        "/api\\a",
        "/\\evil/",
        "/api/%00",
        "/api/%0d%0aX:1",
        "/api/%7f",
        "/api/%",
        "/api/%2",
        "/api/%zz",
        "/api/%+1",
        "/api/é",
        "/api/ a",
        "/api/#a",
        "/api?a b",
        "/api?é",
        "/api?a#b",
    ] {
        assert_eq!(gateway.get(&format!("https://h{path}")), Err(400), "{path}");
    }
    for authority in
        ["user@h", "user:pass@h", "h@evil.example", "a b", "a,b", "a%20b", "[::1", "h:x", "h::", ""]
    {
        assert_eq!(gateway.get(&format!("https://{authority}/api/a")), Err(400), "{authority}");
    }
    let long = "a".repeat(16_384 - "/api/".len());
    assert!(gateway.get(&format!("https://h/api/{long}")).is_ok());
    for target in [format!("/api/{long}a"), format!("/api/a?{long}")] {
        assert_eq!(gateway.get(&format!("https://h{target}")), Err(414));
    }
    assert!(gateway.get("https://h/api/@evil.example:80/").is_ok());
    assert_eq!(gateway.get("https://h/api/a"), Err(429), "only what passed was counted");
}

proptest! {
    #[test]
    fn what_passes_is_sent_below_the_upstream(target in "[/.;%235bcefapi?@:\\\\ é-]{0,24}|\\PC{0,40}") {
        let url = format!("https://h/{target}");
        let routes = "[[routes]]\nmatch = '/*'\nupstream = 'https://origin.example/v2'";
        if let Ok(url) = Gateway::new(routes).get(&url) {
            let url = url.unwrap();
            let (path, _) = url.split_once('?').unwrap_or((&url, ""));
            let path = path.strip_prefix("https://origin.example/v2/").unwrap();
            let path = path.to_lowercase().replace("%25", "%").replace("%2e", ".").replace("%3b", ";");
            let mut names = path.split('/').map(|segment| segment.split(';').next());
            prop_assert!(names.all(|name| ![Some(".."), Some(".")].contains(&name)), "{}", url);
            prop_assert!(url.is_ascii() && !path.contains(['\\', '#', ' ']), "{}", url);
        }
    }
}

#[test]
fn the_api_is_served_only_where_the_file_says_so() {
    let api = |file: &str, path: &str| Gateway::new(file).get(&format!("https://h{path}"));
    assert_eq!(api("", "/healthz"), Err(200));
    let routes = format!("{ROUTES}\n[[routes]]\nmatch = '/*'\nupstream = 'http://u'");
    assert_eq!(api(&routes, "/healthz"), url("http://u/healthz"));
    assert_eq!(api(&routes, "/v1/gate"), url("http://u/v1/gate"));
    let routes = format!("api_path = '/_tidegate'\n{routes}");
    assert_eq!(api(&routes, "/healthz"), url("http://u/healthz"));
    assert_eq!(api(&routes, "/_tidegate/healthz"), Err(200));
    assert_eq!(api(&routes, "/_tidegate/other"), Err(404));
    assert_eq!(api(&routes, "/_tidegatex"), url("http://u/_tidegatex"));
    assert_eq!(api(&routes, "/_%74idegate/healthz"), url("http://u/_%74idegate/healthz"));
}

#[test]
fn a_refusal_is_a_problem_or_a_page() {
    let mut gateway = Gateway::new(ROUTES);
    for _ in 0..2 {
        gateway.passes("https://h/api/a");
    }
    let problem = gateway.refuses("https://h/api/a", &[("accept", "*/*")]);
    let header = |response: &Response, name: &str| {
        let found = response.headers.iter().find(|header| header.0 == name);
        found.map(|header| header.1.clone()).unwrap_or_default()
    };
    assert_eq!((problem.status, &*header(&problem, "retry-after")), (429, "86400"));
    assert_eq!(header(&problem, "content-type"), "application/problem+json");
    assert_eq!(header(&problem, "ratelimit"), "\"p\";r=0;t=86400");
    let browser = [("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")];
    let page = gateway.refuses("https://h/api/a", &browser);
    assert_eq!((page.status, &*header(&page, "retry-after")), (429, "86400"));
    assert_eq!(header(&page, "content-type"), "text/html; charset=utf-8");
    assert_eq!(header(&page, "cache-control"), "no-store");
    assert!(page.body.contains("<h1>Too many requests</h1><p>Please try again in 24 hours."));
    let page = gateway.refuses("https://h/<script>", &browser);
    assert!(page.status == 404 && !page.body.contains("script"), "{page:?}");
    gateway.server.fails = true;
    let problem = gateway.refuses("https://h/api/a", &[]);
    assert_eq!(problem.status, 503);
    assert!(problem.body.contains("temporary-reduced-capacity"), "{problem:?}");
    assert_eq!(upstream_failed(None, &[]).status, 502);
    assert!(upstream_failed(Some("text/html"), &[]).body.contains("does not answer"));
}

#[test]
fn a_page_is_for_clients_that_prefer_it() {
    for (accept, prefers) in [
        ("text/html", true),
        ("TEXT/HTML;q=0.1", true),
        ("text/html;q=0", false),
        ("text/html;q=0.000", false),
        ("*/*", false),
        ("", false),
        ("application/json, text/html;q=0.9", false),
        ("application/json;q=0.5, text/html;level=1;q=0.6", true),
        ("application/problem+json, text/html", true),
        ("text/html;q=nonsense", false),
        ("text/html;q=0.99999", false),
    ] {
        assert_eq!(page::is_preferred(accept), prefers, "{accept}");
    }
}

#[test]
fn open_policies_and_shadows_let_pass() {
    let limits = LIMITS.replace('2', "1");
    let mut gateway = Gateway::new(&format!(
        "[[routes]]\nmatch = '/open'\npolicy = 'open'\nupstream = 'http://u'\n\
         [[routes]]\nmatch = '/shadow'\npolicy = 'shadow'\nupstream = 'http://u'\n\
         [policies.open]\non_error = 'open'\ncost = {{ header = 'x-cost' }}\n{limits}\n\
         [policies.shadow]\nshadow = true\n{}",
        limits.replace("1d", "2d") // the policies share a table
    ));
    for _ in 0..3 {
        gateway.passes("https://h/shadow");
    }
    assert_eq!(gateway.get("https://h/open"), url("http://u/open"), "no client chooses its cost");
    assert_eq!(gateway.get("https://h/open"), Err(429));
    gateway.server.fails = true;
    assert_eq!(gateway.passes("https://h/open").headers, []);
    gateway.passes("https://h/shadow");
}

#[test]
fn what_is_held_is_told_with_its_heartbeats() {
    let mut gateway = Gateway::new(
        "[[routes]]\nmatch = '/*'\npolicy = 'held'\nupstream = 'http://u'\n\
         [policies.held]\nkey = ['header:x', 'ip']\nlimits = [{ algorithm = 'connections', limit = 1, expiry = '30s' }]\n\
         deny = ['header:x:bad']",
    );
    let lease = gateway.passes("https://h/").leases.remove(0);
    assert_eq!((lease.policy.as_str(), lease.key.as_str()), ("held", "ip:192.0.2.7"));
    assert_eq!((lease.name.len(), lease.renew_every.0), (32, 10_000_000));
    assert_eq!(gateway.get("https://h/"), Err(429));
    assert_eq!(gateway.refuses("https://h/", &[("x", "bad")]).status, 403);
}

#[test]
fn a_request_needs_a_key_and_a_token_a_signature() {
    let token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let mut gateway = Gateway::new(&format!(
        "jwt = {{ algorithms = ['HS256'], keys = 'KEYS' }}\n\
         [[routes]]\nmatch = '/*'\npolicy = 'users'\nupstream = 'http://u'\n\
         [policies.users]\nkey = ['jwt:sub', ['jwt:sub', 'ip']]\n{LIMITS}"
    ));
    let headers = [("authorization", token)];
    let problem = gateway.refuses("https://h/", &headers);
    assert_eq!(problem.status, 400);
    assert!(problem.body.contains("jwt:sub"), "{problem:?}");
    gateway.server.trusts = Some(true);
    assert!(matches!(gateway.send("GET", "https://h/", &headers), Served::Pass(_)));
}

#[test]
fn without_keys_no_token_counts_as_absent() {
    let token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let mut gateway = Gateway::new(&format!(
        "jwt = {{ algorithms = ['HS256'], keys = 'KEYS' }}\n\
         [[routes]]\nmatch = '/*'\npolicy = 'users'\nupstream = 'http://u'\n\
         [policies.users]\nkey = ['jwt:sub', 'ip']\n{LIMITS}"
    ));
    gateway.server.trusts = None;
    let problem = gateway.refuses("https://h/", &[("authorization", token)]);
    assert_eq!(problem.status, 500);
    assert!(problem.body.contains("urn:tidegate:internal-error"), "{problem:?}");
    for authorization in ["Bearer x", "Basic eDp5"] {
        let served = gateway.send("GET", "https://h/", &[("authorization", authorization)]);
        assert!(matches!(served, Served::Pass(_)), "what is no token needs no keys: {served:?}");
    }
}
