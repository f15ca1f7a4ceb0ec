//! Errors in the part of a policy file about the gateway.

use std::format;
use std::string::String;

use super::Policies;
use crate::Metering;
use crate::policy::path::{Path, is_authority};

const LIMITS: &str = "limits = [{ algorithm = 'fixed_window', limit = 2, period = '1d' }]";

const LARGE: &str = "limits = [{ algorithm = 'fixed_window', limit = 99, period = '1d' }]";

const PAYERS: &str = "limits = [
  { algorithm = 'fixed_window', name = 'plan', limit = 5, period = '1d', payer = true },
  { algorithm = 'fixed_window', name = 'credits', limit = 5, period = '1d', payer = true },
]";

#[test]
fn errors_of_the_file_name_their_place() {
    let route = |fields: &str| format!("[[routes]]\n{fields}\n");
    let up = "upstream = 'http://u'";
    let beside = |names: &str, fields: &str| {
        route(&format!("match = '/'\n{up}\npolicies = [{names}]\n{fields}"))
    };
    for (file, path, message) in [
        (route(up), "routes[0]", "missing field `match`"),
        (route("match = '/'"), "routes[0]", "`match`: expected a host before the path"),
        (route("match = 'api/*'\npolicy = 'x'"), "routes[0]", "`policy`: expected the name"),
        (route(&format!("match = '/'\n{up}\ncolour = 1")), "routes[0].colour", "found the field"),
        ("jwt = { algorithms = [], keys = 'K' }".into(), "jwt", "`algorithms`: expected at least"),
        ("jwt = { algorithms = ['none'], keys = 'K' }".into(), "jwt.algorithms[0]", "`HS256`"),
        (
            "jwt = { algorithms = ['HS256'], keys = 'a b' }".into(),
            "jwt",
            "`keys`: expected the name",
        ),
        ("api_path = '/a'".into(), "api_path", "expected `routes` beside it"),
        ("api_path = 'a'".into(), "api_path", "expected a path such as"),
        ("health_path = '/a'".into(), "health_path", "expected `routes` beside it"),
        ("health_path = '/a/'".into(), "health_path", "expected a path such as"),
        (
            route(&format!("match = '/'\n{up}\ncost = 1")),
            "routes[0]",
            "`policy`: expected it beside `class`",
        ),
        (
            route(&format!("match = '/'\n{up}\nclass = 'x'")),
            "routes[0]",
            "`policy`: expected it beside `class`",
        ),
        (
            route(&format!("match = '/'\n{up}\ncount_preflight = true")),
            "routes[0]",
            "`policy`: expected it beside `class`",
        ),
        (
            route(&format!("match = '/'\n{up}\npolicy = 'p'\nclass = 'x'")),
            "routes[0]",
            "`class`: expected one of default, critical; found \"x\"",
        ),
        (
            route(&format!("match = '/'\n{up}\npolicy = 'p'\ncost = 3")),
            "routes[0]",
            "`cost`: expected at most 2",
        ),
        (
            format!(
                "{}[policies.q]\n{LIMITS}\noverrides = {{ 'user:*' = {{ limit = 1 }} }}",
                route(&format!("match = '/'\n{up}\npolicy = 'q'\ncost = 2"))
            ),
            "routes[0]",
            "`cost`: expected at most 1",
        ),
        (route(&format!("match = '/'\n{up}\npolicy = 'p'\ncost = 0")), "routes[0].cost", "from 1"),
        (
            route(&format!("match = '/'\n{up}\nmethods = ['get']")),
            "routes[0].methods[0]",
            "\"get\"",
        ),
        (
            route(&format!("match = '/'\n{up}\nmethods = ['A B']")),
            "routes[0].methods[0]",
            "\"A B\"",
        ),
        (
            route(&format!("match = '/'\n{up}\norigins = ['https://a', '*']")),
            "routes[0]",
            "\"*\" alone",
        ),
        (
            route(&format!("match = '/'\n{up}\npolicy = 'p'\npolicies = ['p', 'q']")),
            "routes[0]",
            "`policies`: expected it or `policy`, found both",
        ),
        (
            route(&format!("match = '/'\n{up}\npolicies = ['p']")),
            "routes[0]",
            "`policies`: expected 2 to 8 policies, found 1; a single policy stands in `policy`",
        ),
        (
            route(&format!("match = '/'\n{up}\npolicies = {:?}", ["p"; 9])),
            "routes[0]",
            "`policies`: expected 2 to 8 policies, found 9",
        ),
        (
            route(&format!("match = '/'\n{up}\npolicies = ['p', 'p']")),
            "routes[0]",
            "`policies`: expected each policy once, found \"p\" twice",
        ),
        (
            route(&format!("match = '/'\n{up}\npolicies = ['p', 'x']")),
            "routes[0]",
            "`policies`: expected names of policies of this file, found \"x\"",
        ),
        (
            format!("{}[policies.q]\n{LARGE}", beside("'q', 'p'", "cost = 3")),
            "routes[0]",
            "`cost`: expected at most 2, the most that \"p\" grants at once; found 3",
        ),
        (
            format!(
                "{}[policies.q]\n{LARGE}\nclasses = ['low', 'high']",
                beside("'q', 'p'", "class = 'x'")
            ),
            "routes[0]",
            "`class`: expected one of low, high, default, critical; found \"x\"",
        ),
        (
            format!("{}[policies.q]\n{LARGE}", beside("'q', 'p'", "count_if = { status = 401 }")),
            "routes[0]",
            "`policies`: expected a policy with `reservations` beside `actual` and `count_if`, found none",
        ),
        (
            format!(
                "{}[policies.q]\n{LARGE}\nreservations = {{}}",
                beside("'p', 'q'", "estimate = 100\nactual = 1")
            ),
            "routes[0]",
            "`estimate`: expected at most 99, the most that \"q\" grants at once; found 100",
        ),
        (
            format!("{}[policies.q]\n{PAYERS}", beside("'q', 'p'", "")),
            "routes[0]",
            "`policies`: expected \"q\" last, or `reservations` of it and `actual` or `count_if` of the route",
        ),
        (
            format!("{}[policies.q]\n{PAYERS}\nreservations = {{}}", beside("'q', 'p'", "")),
            "routes[0]",
            "`policies`: expected \"q\" last",
        ),
        (
            "trusted_proxies = ['10.0.0.1/8']".into(),
            "trusted_proxies[0]",
            "expected the first address of the network, as in \"10.0.0.0/8\"; found",
        ),
        (
            "trusted_proxies = ['::ffff:0:0/96']".into(),
            "trusted_proxies[0]",
            "expected a network of proxies alone",
        ),
        ("trusted_proxies = ['x']".into(), "trusted_proxies[0]", "expected an address"),
        (
            format!("[policies.q]\nkey = ['jwt:sub']\n{LIMITS}"),
            "policies.q.key",
            "expected a table `jwt` in the file",
        ),
        (
            format!("[policies.q]\nkey = [['ip']]\n{LIMITS}"),
            "policies.q.key[0]",
            "expected 2 to 3 joined sources, found 1",
        ),
        (
            format!("[policies.q]\nkey = [['ip', 'cookie:']]\n{LIMITS}"),
            "policies.q.key[0][1]",
            "expected \"ip\"",
        ),
        (
            format!("[policies.q]\nkey = [['ip', 'ip']]\n{LIMITS}"),
            "policies.q.key[0]",
            "expected each source once",
        ),
    ] {
        let error = Policies::parse(&format!("{file}\n[policies.p]\n{LIMITS}")).unwrap_err();
        assert_eq!(error.path, path, "{file}: {error}");
        assert!(error.message.contains(message), "{file}: {error}");
    }
    for bad in [
        "'*'",
        "'/a*'",
        "'/a/*/b'",
        "'/a//*'",
        "'//'",
        "'/../a'",
        "'/%61'",
        "'/a?b'",
        "'h:0/a'",
        "'u@h/a'",
        "'http://h/a'",
        "''",
        "7",
        "'[::]x/a'",
    ] {
        let file = format!("{}\n[policies.p]\n{LIMITS}", route(&format!("match = {bad}\n{up}")));
        let error = Policies::parse(&file).unwrap_err();
        assert_eq!(error.path, "routes[0].match", "{bad}: {error}");
    }
    for bad in [
        "https://a/",
        "https://A",
        "HTTPS://a",
        "https://a:443",
        "http://a:80",
        "a.example",
        "null",
        "://a",
        "https://*.a",
        "https://u@a",
    ] {
        let file = route(&format!("match = '/'\n{up}\norigins = ['{bad}']"));
        let error = Policies::parse(&format!("{file}\n[policies.p]\n{LIMITS}")).unwrap_err();
        assert_eq!(error.path, "routes[0].origins[0]", "{bad}: {error}");
    }
    for bad in [
        "origin.example",
        "ftp://h",
        "https://",
        "https:///a",
        "https://u@h",
        "https://h/a?b",
        "https://h/#",
        "https://h/a/../b",
        "https://h//",
        "https://h:x",
        "https://h:70000",
        "https://h\\\\a",
        "//h",
    ] {
        let file = route(&format!("match = '/'\nupstream = \"{bad}\""));
        let error = Policies::parse(&format!("{file}\n[policies.p]\n{LIMITS}")).unwrap_err();
        assert_eq!(error.path, "routes[0].upstream", "{bad}: {error}");
    }
}

#[test]
fn mistakes_in_a_route_are_named() {
    let error = |fields: &str, policy: &str| -> String {
        let file = format!(
            "routes = [{{ match = '/*', upstream = 'http://u', {fields} }}]
[policies.p]
limits = [{{ algorithm = 'fixed_window', limit = 10, period = '1d' }}]
{policy}"
        );
        let error = Policies::parse(&file).unwrap_err();
        format!("{}: {}", error.path, error.message)
    };
    let held = "reservations = {}";
    let p = "policy = 'p'";
    for (fields, policy, expected) in [
        (
            format!("{p}, actual = {{ field = 'n' }}"),
            "",
            "routes[0]: `policy`: expected a policy with `reservations` beside `actual` and `count_if`, found \"p\", which has none",
        ),
        (
            "actual = { field = 'n' }".into(),
            held,
            "routes[0]: `policy`: expected it beside `class`, `cost`, `count_preflight`, `actual` and `count_if`, found none",
        ),
        (
            format!("{p}, estimate = 3"),
            held,
            "routes[0]: `estimate`: expected `actual` or `count_if` beside it, found none",
        ),
        (
            format!("{p}, if_unknown = 'seen', count_if = {{ status = 401 }}"),
            held,
            "routes[0]: `if_unknown`: expected `actual` beside it, found none",
        ),
        (
            format!("{p}, cost = 1, estimate = 3, actual = {{ field = 'n' }}"),
            held,
            "routes[0]: `estimate`: expected it or `cost`, found both",
        ),
        (
            format!("{p}, estimate = {{ field = 'n' }}, actual = {{ field = 'n' }}"),
            held,
            "routes[0]: `estimate`: expected `otherwise`, which counts if the request does not have the number; found none",
        ),
        (
            format!("{p}, actual = {{ field = 'n', header = 'x' }}"),
            held,
            "routes[0].actual: expected one of `header`, `field` and `bytes`, found none or several",
        ),
        (
            format!("{p}, actual = {{ weight = 2 }}"),
            held,
            "routes[0].actual: expected one of `header`, `field` and `bytes`, found none or several",
        ),
        (
            format!("{p}, actual = 'n'"),
            held,
            "routes[0].actual: expected a whole number above 0, or a table with `field`; found the string \"n\"",
        ),
        (
            format!("{p}, actual = {{ field = 'a..b' }}"),
            held,
            "routes[0].actual.field: expected the path of a field such as \"usage.total_tokens\" in at most 128 bytes, found \"a..b\"",
        ),
        (
            format!("{p}, actual = {{ header = 'a b' }}"),
            held,
            "routes[0].actual: `header`: expected the name of a header, found \"a b\"",
        ),
        (
            format!("{p}, actual = {{ bytes = 4, otherwise = 1 }}"),
            held,
            "routes[0].actual: `otherwise`: expected it without `bytes`, which are always known",
        ),
        (
            format!("{p}, actual = {{ field = 'a', times = 'n' }}"),
            held,
            "routes[0]: `actual`: expected terms without `times`, which is for `estimate`",
        ),
        (
            format!("{p}, actual = {{ felid = 'a' }}"),
            held,
            "routes[0].actual.felid: expected one of `header`, `field`, `bytes`, `times`, `weight`, `otherwise`; found the field \"felid\"",
        ),
        (format!("{p}, actual = []"), held, "routes[0].actual: expected 1 to 8 terms, found 0"),
        (
            format!("{p}, count_if = {{}}"),
            held,
            "routes[0].count_if: expected `status`, or `header` with or without `value`; found something else",
        ),
        (
            format!("{p}, count_if = {{ status = '4xx' }}"),
            held,
            "routes[0].count_if.status: expected a status such as 401, or a range of them such as \"500-599\"; found the string \"4xx\"",
        ),
        (
            format!("{p}, count_if = {{ status = ['499-400'] }}"),
            held,
            "routes[0].count_if.status: expected a status such as 401, or a range of them such as \"500-599\"; found the string \"499-400\"",
        ),
        (
            format!("{p}, count_if = {{ status = 401 }}, if_unknown = 'all'"),
            held,
            "routes[0].if_unknown: expected `estimate` or `seen`, found \"all\"",
        ),
        (
            format!("{p}, estimate = 11, actual = {{ field = 'n' }}"),
            held,
            "routes[0]: `estimate`: expected at most 10, the most that the policy grants at once; found 11",
        ),
    ] {
        assert_eq!(error(&fields, policy), expected, "{fields}");
    }
}

#[test]
fn a_host_has_a_name_or_an_address_and_may_have_a_port() {
    for good in
        ["h", "a-b.example_1", "h:1", "h:65535", "192.0.2.1:80", "[2001:db8::1]", "[::1]:443"]
    {
        assert!(is_authority(good), "{good}");
    }
    for bad in
        ["", ":80", "h:", "h:0", "h:65536", "h:x", "a b", "u@h", "[::1", "[::1]x", "[x]", "é"]
    {
        assert!(!is_authority(bad), "{bad}");
    }
}

#[test]
fn a_path_is_printable_and_has_no_encoded_slash() {
    for bad in [
        "/a b", "/é", "/a\\b", "/a#b", "/a?b", "/%zz", "/%2", "/%2F", "/%5c", "/%0a", "/a/../b",
        "/a//",
    ] {
        assert!(Path::of(bad).is_err(), "{bad}");
    }
    let strict = |path| String::from_utf8(Path::of(path).unwrap().strict().into()).unwrap();
    assert_eq!((strict("/a%20b/"), strict("/a/b")), ("/a b".into(), "/a/b".into()));
}

#[test]
fn an_answer_counts_by_its_status() {
    let counts = |ranges: &str, status| {
        let text = format!("{{\"actual\":1,\"count_if\":{{\"status\":{ranges}}}}}");
        let metering = Metering::parse(&text).unwrap().unwrap();
        metering.count_if().unwrap().includes(status, &|_| None)
    };
    for (ranges, first, last) in
        [("401", 401, 401), ("\"500-599\"", 500, 599), ("[404, \"100-102\"]", 100, 102)]
    {
        assert!(counts(ranges, first) && counts(ranges, last), "{ranges}");
        assert!(!counts(ranges, first - 1) && !counts(ranges, last + 1), "{ranges}");
    }
    assert!(counts("[404, \"100-102\"]", 404));
    for wrong in ["99", "600", "\"404\"", "\"0404-0405\"", "\"404-\"", "[]", "true"] {
        let text = format!("{{\"actual\":1,\"count_if\":{{\"status\":{wrong}}}}}");
        assert!(Metering::parse(&text).is_err(), "{wrong}");
    }
}
