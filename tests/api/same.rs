//! The same requests on every server: the same status, the same headers, the same bytes. The order of headers with
//! different names means nothing (RFC 9110 §5.3), and a Worker's runtime has an order of its own.

use tidegate_tests::{Reply, Served, a_cluster, cluster, memory, redis, worker, worker_options};

use crate::POLICIES;

/// Method, target, headers, body.
type Asked = (&'static str, &'static str, &'static [(&'static str, &'static str)], &'static str);

/// Requests one after another. No answer depends on the time, because each span is a whole
/// number of days that have just begun, or is blanked out.
const REQUESTS: &[Asked] = &[
    ("GET", "/healthz", &[], ""),
    ("GET", "/nothing", &[], ""),
    ("POST", "/healthz", &[], ""),
    ("POST", "/v1/check", &[], r#"{"policy":"day","key":"k","cost":2}"#),
    ("POST", "/v1/check", &[], r#"{"policy":"day","key":"k","cost":2}"#),
    ("POST", "/v1/check", &[], r#"{"policy":"day","key":"k","cost":9}"#),
    ("POST", "/v1/check", &[], r#"{"policy":"none","key":"k"}"#),
    ("POST", "/v1/check", &[], r#"{"policy":"day","key":""}"#),
    ("POST", "/v1/check", &[], r#"{"policy":"day","#),
    (
        "POST",
        "/v1/check",
        &[],
        r#"{"checks":[{"policy":"day","key":"b"},{"policy":"trial","key":"b"}]}"#,
    ),
    ("POST", "/v1/check", &[], r#"{"policy":"special","key":"bot-7"}"#),
    ("POST", "/v1/check", &[], r#"{"policy":"jobs","key":"k","lease":"a"}"#),
    ("GET", "/v1/gate?policy=day&key=k&cost=2", &[], ""),
    ("GET", "/v1/gate?policy=day", &[("x-api-key", "alice"), ("x-cost", "3")], ""),
    ("GET", "/v1/gate?policy=special&key=bot-7", &[], ""),
    ("GET", "/v1/gate?policy=jobs&key=k", &[], ""),
    ("POST", "/v1/leases", &[], r#"{"policy":"jobs","key":"k","lease":"b"}"#),
    ("POST", "/v1/leases", &[], r#"{"policy":"jobs","key":"k","lease":"c"}"#),
    ("PUT", "/v1/leases/a", &[], r#"{"policy":"jobs","key":"k"}"#),
    ("DELETE", "/v1/leases/a?policy=jobs&key=k", &[], ""),
    ("POST", "/v1/refund", &[], r#"{"policy":"day","key":"k","units":1}"#),
    (
        "POST",
        "/v1/refund",
        &[],
        r#"{"policy":"day","key":"k","units":2,"granted_at_us":1,"granted":1}"#,
    ),
    (
        "POST",
        "/v1/admit",
        &[],
        r#"{"policy":"day","key":"c","headers":"draft-6","one_of_several":true}"#,
    ),
    ("POST", "/v1/budget", &[], r#"{"policy":"spread","key":"k","lease":"n","wants":7}"#),
    ("POST", "/v1/report", &[], r#"{"policy":"account","key":"k","admitted":1,"suppressed":0}"#),
    ("GET", "/v1/keys/day/k", &[], ""),
    ("DELETE", "/v1/keys/day/k", &[], ""),
    ("POST", "/v1/keys/day/k/block", &[], r#"{"for":60000000}"#),
    ("GET", "/v1/policies", &[], ""),
    ("GET", "/v1/policies/file", &[], ""),
    ("GET", "/v1/policies/history", &[], ""),
    ("PUT", "/v1/policies", &[], "x"),
    ("PUT", "/v1/policies", &[("if-match", "\"x\"")], "x"),
    ("PUT", "/v1/policies", &[("if-match", "*")], "[policies.a]\nlimits = [1]"),
    ("PUT", "/v1/policies", &[("if-match", "*")], "{\"policies\":{\"a\":{\"limits\":[1]}}}"),
    ("PUT", "/v1/policies", &[("if-match", "*"), ("x-tidegate-actor", "")], "x"),
    ("PUT", "/v1/policies", &[("if-match", "*"), ("x-tidegate-actor", "bob")], NEXT),
    ("PUT", "/v1/policies", &[("if-match", "*")], NEXT),
    ("GET", "/v1/policies", &[], ""),
    ("GET", "/v1/policies/file?version=1", &[], ""),
    ("GET", "/v1/policies/file?version=x", &[], ""),
    ("POST", "/v1/policies/restore?version=7", &[("if-match", "*")], ""),
    ("POST", "/v1/policies/restore", &[("if-match", "*")], ""),
    ("POST", "/v1/policies/restore", &[], ""),
    ("PATCH", "/v1/policies", &[], ""),
];

/// Valid, and with other names of policies.
const NEXT: &str =
    "[policies.next]\nlimits = [{ algorithm = 'fixed_window', limit = 1, period = '1d' }]\n";

#[test]
fn every_server_answers_with_the_same_bytes() {
    let nodes = a_cluster();
    let servers = [
        memory(POLICIES),
        redis(POLICIES),
        cluster(POLICIES, &nodes),
        worker(worker_options(POLICIES)),
    ];
    let [first, rest @ ..] = &servers;
    for request in REQUESTS {
        let expected = answer(first, request);
        for served in rest {
            assert_eq!(answer(served, request), expected, "{request:?}");
        }
    }
}

/// The status, the headers that the server chooses, and the body.
fn answer(
    served: &Served,
    (method, target, headers, body): &Asked,
) -> (u16, Vec<(String, String)>, String) {
    let Reply { status, headers, text } = served.api.request(method, target, headers, body);
    let own = |(name, _): &(String, String)| {
        !["date", "content-length", "connection", "transfer-encoding"].contains(&name.as_str())
    };
    let headers = headers.into_iter().filter(own).map(|(name, value)| (name, blanked(&value)));
    let mut headers: Vec<_> = headers.collect();
    headers.sort();
    (status, headers, blanked(&without_origin(text)))
}

/// The text without where the revision in force came from, which an isolate of a Worker does not know.
fn without_origin(mut text: String) -> String {
    let [begin, end] = [",\"source\":", ",\"needs_token\":"].map(|field| text.find(field));
    if let (Some(begin), Some(end)) = (begin, end) {
        text.replace_range(begin..end, "");
    }
    text
}

/// The text with `#` in place of each number that is a time: of more than six digits.
fn blanked(text: &str) -> String {
    let mut blank = String::new();
    for run in text.split_inclusive(|char: char| !char.is_ascii_digit()) {
        let digits = run.trim_end_matches(|char: char| !char.is_ascii_digit());
        match digits.len() {
            0..5 => blank.push_str(run),
            _ => blank.extend(["#", run.get(digits.len()..).unwrap_or("")]),
        }
    }
    blank
}
