//! The same requests on every server: the same status, the same headers, the same bytes. The order of headers with
//! different names means nothing (RFC 9110 §5.3), and a Worker's runtime has an order of its own.

use tidegate_tests::{Reply, Served, a_cluster, cluster, memory, redis, worker, worker_options};

use crate::POLICIES;

/// One request a line, one after another: method, target, headers in brackets, body. No answer depends on the time, because each
/// span is a whole number of days that have just begun, or is blanked out.
const REQUESTS: &str = r##"
GET /healthz
GET /nothing
POST /healthz
POST /v1/check {"policy":"day","key":"k","cost":2}
POST /v1/check {"policy":"day","key":"k","cost":2}
POST /v1/check {"policy":"day","key":"k","cost":9}
POST /v1/check {"policy":"none","key":"k"}
POST /v1/check {"policy":"day","key":""}
POST /v1/check {"policy":"day",
POST /v1/check {"checks":[{"policy":"day","key":"b"},{"policy":"trial","key":"b"}]}
POST /v1/check {"policy":"special","key":"bot-7"}
POST /v1/check {"policy":"jobs","key":"k","lease":"a"}
GET /v1/gate?policy=day&key=k&cost=2
GET /v1/gate?policy=day [x-api-key: alice | x-cost: 3]
GET /v1/gate?policy=special&key=bot-7
GET /v1/gate?policy=jobs&key=k
POST /v1/leases {"policy":"jobs","key":"k","lease":"b"}
POST /v1/leases {"policy":"jobs","key":"k","lease":"c"}
PUT /v1/leases/a {"policy":"jobs","key":"k"}
DELETE /v1/leases/a?policy=jobs&key=k
POST /v1/refund {"policy":"day","key":"k","units":1}
POST /v1/refund {"policy":"day","key":"k","units":2,"granted_at_us":1,"granted":1}
POST /v1/admit {"policy":"day","key":"c","headers":"draft-6","one_of_several":true}
POST /v1/budget {"policy":"spread","key":"k","lease":"n","wants":7}
POST /v1/report {"policy":"account","key":"k","admitted":1,"suppressed":0}
POST /v1/check {"policy":"open","key":"a","cost":3}
POST /v1/check {"policy":"open","key":"a:b","cost":3}
POST /v1/check {"policy":"open","key":":a","cost":3}
POST /v1/check {"policy":"open","key":"a\u0000","cost":3}
POST /v1/check {"policy":"open","key":"ключ","cost":3}
POST /v1/check {"policy":"open","key":"../../x","cost":3}
POST /v1/check {"policy":"open","key":"a","cost":3}
POST /v1/check {"policy":"open","key":"a","cost":0}
POST /v1/check {"checks":[{"policy":"open","key":"o","cost":4},{"policy":"day","key":"o","cost":3},{"policy":"open","key":"o","cost":2},{"policy":"open","key":"o","cost":1}]}
POST /v1/check {"policy":"day","key":"t","cost":2}
POST /v1/check {"all_or_nothing":true,"checks":[{"policy":"open","key":"t","cost":3},{"policy":"jobs","key":"t","lease":"t"},{"policy":"day","key":"t","cost":2},{"policy":"open","key":"u"}]}
GET /v1/keys/open/t
GET /v1/keys/jobs/t
GET /v1/keys/open/u
POST /v1/explain {"policy":"log","key":"why","cost":99}
POST /v1/explain {"policy":"special","key":"bot-7"}
POST /v1/check no json
POST /v1/check
POST /v1/check {"policy":"open","key":"k","colour":1}
POST /v1/check {"policy":"open","key":"k","cost":-1}
POST /v1/check {"policy":"open","key":"k","cost":1.5}
POST /v1/check {"policy":"open","key":"k","cost":6}
POST /v1/check ["open","k"]
POST /v1/check {"policy":"open","key":"ip:192.0.2.05"}
POST /v1/check {"checks":[{"policy":"open","key":"k"},{"policy":"open","key":""}]}
GET /v1/check
GET /v1/gate?policy=tenants [x-tenant: acme | cookie: theme=dark; sid=a]
GET /v1/gate?policy=tenants [x-tenant: acme | cookie: theme=dark; sid=a]
GET /v1/gate?policy=tenants [x-tenant: acme/x | cookie: theme=dark; sid=b]
GET /v1/gate?policy=tenants [x-tenant: acme | cookie: theme=dark; sid=b]
GET /v1/gate?policy=tenants [x-tenant: acme | cookie: theme=dark; sid=c]
GET /v1/keys/tenants/header:x-tenant:acme%252Fx%2Fcookie:sid:b
GET /v1/gate?policy=tenants [cf-connecting-ip: 127.0.0.1 | x-forwarded-for: 6.6.6.6, 203.0.113.9, 127.0.0.2]
GET /v1/gate?policy=tenants [cf-connecting-ip: 127.0.0.1 | x-forwarded-for: 7.7.7.7, 203.0.113.9]
GET /v1/gate?policy=tenants [cf-connecting-ip: 127.0.0.1 | x-forwarded-for: 203.0.113.10]
GET /v1/gate?policy=day [x-api-key: eve | x-cost: 1 | x-cost: 3]
GET /v1/gate?policy=day [x-api-key: eve | x-cost: 0]
GET /v1/gate?policy=day [cf-connecting-ip: 127.0.0.1 | x-forwarded-for: 203.0.113.77 | x-api-key: eve | x-api-key: bob | x-cost: 3]
GET /v1/gate?policy=day [cf-connecting-ip: 127.0.0.1 | x-forwarded-for: 203.0.113.77 | x-api-key: eve | x_api_key: bob]
GET /v1/gate?policy=day [cf-connecting-ip: 127.0.0.1 | x-forwarded-for: 203.0.113.77 | x-api-key: ]
POST /v1/leases {"policy":"jobs","key":"l","lease":"a"}
POST /v1/leases {"policy":"jobs","key":"l","lease":"a"}
POST /v1/leases {"policy":"jobs","key":"l","lease":"é/?#"}
POST /v1/leases {"policy":"jobs","key":"l","lease":"c"}
PUT /v1/leases/%C3%A9%2F%3F%23 {"policy":"jobs","key":"l"}
DELETE /v1/leases/%C3%A9%2F%3F%23?policy=jobs&key=l
DELETE /v1/leases/%C3%A9%2F%3F%23?policy=jobs&key=l
DELETE /v1/leases/a?policy=jobs&key=%EF%BF
POST /v1/leases {"policy":"sockets","key":"l","lease":"1"}
POST /v1/leases {"policy":"sockets","key":"l","lease":"1"}
PUT /v1/leases/2 {"policy":"sockets","key":"l","count":2}
POST /v1/leases {"policy":"sockets","key":"l","lease":"3"}
DELETE /v1/leases/1?policy=sockets&key=l
PUT /v1/leases/a {"policy":"jobs","key":"l","count":1}
POST /v1/leases {"policy":"day","key":"l","lease":"a"}
POST /v1/leases {"policy":"jobs","key":"l","lease":""}
POST /v1/budget {"policy":"spread","key":"k","lease":"n","wants":1,"left":1}
POST /v1/refund {"policy":"spread","key":"k","units":30}
POST /v1/refund {"policy":"spread","key":"k","units":0}
POST /v1/check {"policy":"special","key":"user:42","cost":3}
POST /v1/check {"policy":"special","key":"user:43","cost":2}
POST /v1/check {"policy":"special","key":"worker-1","lease":"w"}
POST /v1/check {"policy":"special","key":"worker-1","lease":"x"}
POST /v1/check {"policy":"special","key":"monitor"}
POST /v1/check {"policy":"special","key":"ip:2001:db8::7"}
POST /v1/check {"policy":"special","key":"ip:192.0.2.9"}
POST /v1/check {"policy":"special","key":"ip:2001:db9::1"}
POST /v1/check {"policy":"special","key":"ip:2001:DB9:0:0:ffff::2"}
POST /v1/check {"policy":"special","key":"ip:198.51.100.1"}
POST /v1/check {"policy":"special","key":"ip:::ffff:198.51.100.1"}
POST /v1/check {"policy":"tree","key":"acme/alice"}
POST /v1/check {"policy":"tree","key":"acme/alice"}
POST /v1/check {"policy":"tree","key":"acme/alice"}
POST /v1/check {"policy":"tree","key":"acme/bob"}
POST /v1/check {"policy":"tree","key":"acme/bob"}
POST /v1/check {"policy":"tree","key":"acme"}
POST /v1/check {"policy":"tree","key":"other/alice"}
GET /v1/gate?policy=tree&key=acme/carol
POST /v1/check {"policy":"trial","key":"k"}
POST /v1/check {"policy":"trial","key":"k"}
GET /v1/gate?policy=trial&key=k
POST /v1/check {"policy":"planned","key":"k"}
POST /v1/check {"policy":"planned","key":"k"}
POST /v1/check {"policy":"planned","key":"k"}
POST /v1/check {"policy":"planned","key":"k"}
POST /v1/check {"policy":"planned","key":"k"}
GET /v1/gate?policy=planned&key=k
GET /v1/gate?policy=login&key=k
GET /v1/gate?policy=login&key=k
GET /v1/gate?policy=login&key=k
GET /v1/gate?policy=login&key=k
POST /v1/check {"policy":"login","key":"k"}
POST /v1/check [idempotency-key: a] {"policy":"orders","key":"k","cost":2}
POST /v1/check [idempotency-key: a] {"policy":"orders","key":"k","cost":2}
POST /v1/check [idempotency-key: a] {"policy":"orders","key":"k","cost":3}
POST /v1/reservations {"policy":"orders","key":"r","cost":4,"id":"r"}
POST /v1/reservations {"policy":"orders","key":"r","cost":4,"id":"r"}
POST /v1/reservations/r/commit {"policy":"orders","key":"r","actual":1}
POST /v1/reservations/r/commit {"policy":"orders","key":"r","actual":1}
GET /v1/keys/orders/r
POST /v1/keys/open/b/block {"for":86400000000}
POST /v1/check {"policy":"open","key":"b","cost":0}
GET /v1/gate?policy=open&key=b
POST /v1/keys/open/b/block {"for":0}
GET /v1/keys/open/b
GET /v1/keys/day/k
DELETE /v1/keys/day/k
POST /v1/keys/day/k/block {"for":60000000}
GET /v1/policies
GET /v1/policies/file
GET /v1/policies/history
PUT /v1/policies x
PUT /v1/policies [if-match: "x"] x
PUT /v1/policies [if-match: *] policies.a.limits = [1]
PUT /v1/policies [if-match: *] {"policies":{"a":{"limits":[1]}}}
PUT /v1/policies [if-match: * | x-tidegate-actor: ] x
PUT /v1/policies [if-match: * | x-tidegate-actor: bob] policies.next.limits = [{ algorithm = 'fixed_window', limit = 1, period = '1d' }]
PUT /v1/policies [if-match: *] policies.next.limits = [{ algorithm = 'fixed_window', limit = 1, period = '1d' }]
GET /v1/policies
GET /v1/policies/file?version=1
GET /v1/policies/file?version=x
POST /v1/policies/restore?version=7 [if-match: *]
POST /v1/policies/restore [if-match: *]
POST /v1/policies/restore
PATCH /v1/policies
"##;

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
    for request in REQUESTS.trim().lines() {
        let expected = answer(first, request);
        for served in rest {
            assert_eq!(answer(served, request), expected, "{request:?}");
        }
    }
}

/// The status, the headers that the server chooses, and the body.
fn answer(served: &Served, request: &str) -> (u16, Vec<(String, String)>, String) {
    let (method, rest) = request.split_once(' ').unwrap();
    let (target, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let (sent, body) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((sent, body)) if sent.contains(": ") => (sent, body.trim_start()),
        _ => ("", rest),
    };
    let sent: Vec<_> = sent.split(" | ").filter_map(|header| header.split_once(": ")).collect();
    let Reply { status, headers, text } = served.api.request(method, target, &sent, body);
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
