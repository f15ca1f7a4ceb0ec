use core::time::Duration;
use std::string::String;
use std::vec::Vec;

use serde_json::{Value, json};
use tidegate_gate::{Draw, Operation, Policies, Timestamp};

use super::{
    POLICIES, SECOND, START, Server, about, header, policies, read_check, read_check_with,
};
use crate::{BodyError, MAX_BODY_BYTES, MAX_DRAINED_BYTES};

#[track_caller]
fn refused(body: impl AsRef<str>, status: u16, r#type: &str, detail: &str) {
    let response = read_check(&policies(), body).expect_err(detail);
    let problem: Value = serde_json::from_str(&response.body).unwrap();
    assert_eq!((response.status, problem["status"].as_u64()), (status, Some(status.into())));
    assert_eq!(header(&response, "content-type"), Some("application/problem+json"));
    assert_eq!(problem["type"], r#type, "{problem}");
    let found = problem["detail"].as_str().unwrap();
    assert!(found.contains(detail) && !found.contains('?'), "{problem}");
}

#[test]
fn a_body_that_servers_may_read_differently_is_refused_or_read_alike() {
    let mut server = Server::new(POLICIES);
    let mut call = |body: &[u8]| server.call_with("POST", "/v1/check", Ok(body.to_vec()), &[]);
    let with = |key: &[u8]| [&br#"{"policy":"api","key":"#[..], b"\"", key, b"\"}"].concat();
    for key in [&b"\xff"[..], b"\xf0\x9f\x92", "\u{fffd}".as_bytes()] {
        let response = call(&with(key));
        assert_eq!(response.status, 400, "{key:?}");
        assert!(response.body.contains("expected a body in UTF-8 without U+FFFD"), "{key:?}");
    }
    for body in [with(b"\\ufffd"), [&b"\xef\xbb\xbf"[..], &with(b"k")].concat()] {
        assert_eq!(call(&body).status, 200, "{body:?}");
    }
}

#[test]
fn bad_bodies_get_a_problem_that_says_what_was_found_and_what_is_allowed() {
    let invalid = "urn:tidegate:invalid-request";
    let body = |rest: &str| std::format!("{{\"policy\":\"api\",\"key\":\"k\"{rest}}}");
    refused("", 400, invalid, "expected a value, found the end of the text at line 1, column 1");
    refused("no json", 400, invalid, "expected a value, found `n` at line 1, column 1");
    refused(
        "{\"checks\":[{\"policy\" 1",
        400,
        invalid,
        "`checks[0]`: expected `:`, found `1` at line 1, column 22",
    );
    refused("[]", 400, invalid, "expected an object, found an array");
    refused("7", 400, invalid, "expected an object, found the integer `7`");
    refused("{}", 400, invalid, "missing field `policy`");
    refused("{\"policy\":\"p\"}", 400, invalid, "missing field `key`");
    refused("{\"key\":\"k\",\"cost\":2}", 400, invalid, "missing field `policy`");
    refused(body(",\"colour\":1"), 400, invalid, "; found the field \"colour\"");
    refused(body("} {"), 400, invalid, "expected the end of the text, found `{`");
    let whole = "expected a whole number from 0 to 9007199254740991";
    for cost in
        ["-1", "1.5", "1.0", "9007199254740992", "18446744073709551616", "1e99", "\"1\"", "true"]
    {
        refused(body(&std::format!(",\"cost\":{cost}")), 400, invalid, whole);
    }
    refused(body(",\"cost\":NaN"), 400, invalid, "`cost`: ");
    refused(
        body(",\"cost\":4"),
        400,
        "urn:tidegate:cost-exceeds-capacity",
        "the most at once is 3",
    );
    refused(
        "{\"policy\":\"x\",\"key\":\"k\"}",
        404,
        "urn:tidegate:unknown-policy",
        "`policy`: expected one of api, open; found",
    );
    let key = |key: &str| std::format!("{{\"policy\":\"api\",\"key\":\"{key}\"}}");
    refused(key(""), 400, "urn:tidegate:invalid-key", "expected 1 to 512 bytes, found 0");
    refused(
        key(&"k".repeat(10_240)),
        400,
        "urn:tidegate:invalid-key",
        "expected 1 to 512 bytes, found 10240",
    );
    assert!(read_check(&policies(), key(&"k".repeat(512))).is_ok());
    refused("{\"checks\":[]}", 400, invalid, "`checks`: expected 1 to 1000 checks, found 0");
    refused("[".repeat(200_000), 400, invalid, "");
    let batch = std::format!("{{\"checks\":[{},{}]}}", key("k"), key(""));
    refused(
        batch,
        400,
        "urn:tidegate:invalid-key",
        "`checks[1]`: `key`: expected 1 to 512 bytes, found 0",
    );
}

#[test]
fn a_body_that_is_not_whole_or_too_long_is_refused() {
    let mut server = Server::new(POLICIES);
    let mut post = |body| server.call_with("POST", "/v1/check", body, &[]);
    let long = " ".repeat(MAX_BODY_BYTES + 1).into_bytes();
    for (body, status, r#type, detail) in [
        (Ok(long), 413, "body-too-large", "at most 262144 bytes, found 262145"),
        (
            Err(BodyError::TooLarge(MAX_DRAINED_BYTES)),
            413,
            "body-too-large",
            "at most 262144 bytes, found 16777216",
        ),
        (
            Err(BodyError::TooLarge(MAX_DRAINED_BYTES + 1)),
            413,
            "body-too-large",
            "at most 262144 bytes, found more than 16777216",
        ),
        (
            Err(BodyError::TooLate(Duration::from_secs(75))),
            408,
            "body-too-late",
            "within 75s after the head",
        ),
        (
            Err(BodyError::Incomplete),
            400,
            "invalid-request",
            "expected the whole body, found a part of it",
        ),
    ] {
        let response = post(body);
        let problem = super::json(&response);
        assert_eq!((response.status, &problem["status"]), (status, &json!(status)));
        assert_eq!(problem["type"], std::format!("urn:tidegate:{type}"));
        assert!(problem["detail"].as_str().unwrap().contains(detail), "{problem}");
    }
}

#[test]
fn a_list_is_no_object_however_well_its_fields_are_ordered() {
    let mut server = Server::new(
        "
[policies.p]
limits = [
  { algorithm = 'fixed_window', limit = 5, period = '1m' },
  { algorithm = 'budget', most = 5, time = '1m' },
  { algorithm = 'concurrency', capacity = 5, time_to_live = '1m' },
  { algorithm = 'suppression', rate = '1/s' },
]",
    );
    for (method, path, fields) in [
        ("POST", "/v1/check", "null,null,null,null,null,null"),
        ("POST", "/v1/leases", "null,null,null,null,null,null"),
        ("PUT", "/v1/leases/a", "null,null"),
        ("POST", "/v1/refund", "1,null"),
        ("POST", "/v1/budget", "\"n\",1,null,null,null"),
        ("POST", "/v1/report", "null,1,1,null"),
    ] {
        for body in [std::format!("[\"p\",\"k\",{fields}]"), "[\"p\"]".into(), "[]".into()] {
            let expected = "expected an object, found an array";
            server.refuses((method, path), &body, expected);
        }
    }
    let batch = "{\"checks\":[[\"p\",\"k\",null,null,null,null,null,null]]}";
    let expected = "`checks[0]`: expected an object, found an array";
    server.refuses(("POST", "/v1/check"), batch, expected);
    assert_eq!(server.post("/v1/check", &about(",\"cost\":0"))["limits"][0]["remaining"], 5);
}

#[test]
fn what_stands_behind_ip_is_an_address_or_no_key() {
    let mut server = Server::new(
        "
[policies.p]
deny = ['ip:192.0.2.5', 'ip:fe80::/10']
limits = [
  { algorithm = 'fixed_window', limit = 5, period = '1m' },
  { algorithm = 'connections', limit = 5 },
]
[policies.account]
limits = [{ algorithm = 'suppression', rate = '1/s' }]",
    );
    for key in [
        "ip:",
        "ip:banana",
        "ip:192.0.2.05",
        "ip: 192.0.2.5",
        "ip:192.0.2.5:80",
        "ip:192.0.2.5/alice",
        "ip:fe80::1%eth0",
        "ip:[fe80::1]",
        "ip:192.0.2.5/24",
        "ip:192.0.2.6/32",
        "ip:2001:db8::/64",
        "ip:2001:db8::7/128",
        "ip:::ffff:192.0.2.0/120",
    ] {
        let about = |policy: &str, rest: &str| {
            std::format!("{{\"policy\":\"{policy}\",\"key\":\"{key}\"{rest}}}")
        };
        let in_query = form_urlencoded::byte_serialize(key.as_bytes()).collect::<String>();
        let good = "{\"policy\":\"p\",\"key\":\"k\",\"lease\":\"a\"}";
        for (method, target, body) in [
            ("POST", "/v1/check", about("p", "")),
            ("POST", "/v1/check", std::format!("{{\"checks\":[{good},{}]}}", about("p", ""))),
            ("POST", "/v1/leases", about("p", "")),
            ("PUT", "/v1/leases/a", about("p", ",\"count\":1")),
            ("DELETE", &std::format!("/v1/leases/a?policy=p&key={in_query}"), String::new()),
            ("POST", "/v1/refund", about("p", ",\"units\":1")),
            ("POST", "/v1/report", about("account", ",\"admitted\":1,\"suppressed\":0")),
            ("GET", &std::format!("/v1/gate?policy=account&key={in_query}"), String::new()),
        ] {
            let response = server.call(method, target, &body);
            let problem = super::json(&response);
            assert_eq!(
                (response.status, &problem["type"]),
                (400, &json!("urn:tidegate:invalid-key")),
                "{method} {target} {body}"
            );
            let detail = std::format!("after `ip:`, found \"{key}\"");
            assert!(problem["detail"].as_str().unwrap().contains(&detail), "{problem}");
        }
    }
    assert!(server.table.is_empty(), "nothing was consumed");
    for key in ["ip:::ffff:192.0.2.6", "ip:2001:DB8::1", "ip:192.0.2.6", "IP:x"] {
        let body = std::format!("{{\"policy\":\"account\",\"key\":\"{key}\"}}");
        assert_eq!(server.post("/v1/check", &body)["allowed"], true, "{key}");
    }
}

#[test]
fn a_check_answers_with_every_limit_and_the_fields_of_the_draft() {
    let mut server = Server::new(POLICIES);
    let mut check = || server.call("POST", "/v1/check", r#"{"policy":"api","key":"k","cost":3}"#);
    let response = check();
    assert_eq!(response.status, 200);
    assert_eq!(
        response.body,
        "{\"policy\":\"api\",\"allowed\":true,\"limit\":3,\"remaining\":0,\"retry_after_us\":0,\
         \"reset_after_us\":60000000,\"at_us\":600000000,\"limits\":[\
         {\"name\":\"burst\",\"allowed\":true,\"limit\":3,\"remaining\":0,\"retry_after_us\":0,\
         \"reset_after_us\":1000000},\
         {\"name\":\"minute\",\"allowed\":true,\"limit\":5,\"remaining\":2,\"retry_after_us\":0,\
         \"reset_after_us\":60000000}]}"
    );
    let refused = check();
    assert_eq!(refused.status, 200);
    assert!(refused.body.contains("\"allowed\":false"), "{}", refused.body);

    for (response, states) in [
        (&response, "\"burst\";r=0;t=1, \"minute\";r=2;t=60"),
        (&refused, "\"burst\";r=0;t=1, \"minute\";r=2;t=60"),
    ] {
        let limits = "\"burst\";q=3;w=1, \"minute\";q=5;w=60";
        assert_eq!(header(response, "ratelimit-policy"), Some(limits));
        assert_eq!(header(response, "ratelimit"), Some(states));
        for name in ["ratelimit-policy", "ratelimit"] {
            let field = header(response, name).unwrap();
            assert_eq!(sfv::Parser::new(field).parse::<sfv::List>().unwrap().len(), 2);
        }
    }
    assert_eq!(header(&response, "retry-after"), None);
    assert_eq!(header(&refused, "retry-after"), Some("60"));
}

#[test]
fn a_batch_is_answered_in_its_order() {
    let one = r#"{"policy":"open","key":"k","cost":3,"now_us":7}"#;
    let body = std::format!("{{\"checks\":[{one},{one}]}}");
    assert_eq!(read_check(&policies(), &body).unwrap().1[0].caller_time(), Some(Timestamp(7)));
    let response = Server::new(POLICIES).call("POST", "/v1/check", &body);
    let answer = super::json(&response);
    let allowed: Vec<_> =
        answer["decisions"].as_array().unwrap().iter().map(|one| &one["allowed"]).collect();
    assert_eq!(allowed, [true, false]);
    assert_eq!(header(&response, "ratelimit"), None);
}

const BUSY: &str = "
[policies.p]
classes = ['batch', 'default', 'critical']
limits = [{ algorithm = 'utilization', name = 'busy', delay = '1s', full = '2s' }]";

#[test]
fn a_check_brings_its_class_and_the_signal() {
    let mut server = Server::new(BUSY);
    let mut check = |seconds: u64, class: &str| {
        server.now = Timestamp(START + seconds * SECOND);
        let rest = std::format!(",\"class\":\"{class}\",\"signal_ppm\":1000000");
        server.call("POST", "/v1/check", &about(&rest))
    };
    // after 1 s of delay the shed amount grows to 1 in 2 s: the first half of it is the first class
    for (seconds, class, allowed) in [
        (0, "batch", true),
        (1, "batch", true),
        (2, "batch", false),
        (2, "default", true),
        (3, "default", false),
        (3, "critical", true),
    ] {
        let response = check(seconds, class);
        let answer = super::json(&response);
        assert_eq!(answer["allowed"], allowed, "{class} after {seconds} s: {answer}");
        assert_eq!(answer["limits"][0]["limit"], 1);
        assert_eq!(header(&response, "ratelimit"), None, "nobody's quota");
        assert_eq!(header(&response, "ratelimit-policy"), None);
        assert_eq!(header(&response, "retry-after").is_some(), !allowed);
    }
    // 2 s from shedding all to shedding none, were all well from here on
    let answer = super::json(&check(3, "batch"));
    assert_eq!(answer["retry_after_us"], 2 * SECOND);
    let without = server.post("/v1/check", &about(""));
    assert_eq!(without["allowed"], false, "the last signal holds, and the class is the lowest");
}

#[test]
fn a_check_with_a_class_or_signal_that_cannot_be_is_refused() {
    let mut server = Server::new(BUSY);
    let check = ("POST", "/v1/check");
    for (rest, detail) in [
        (",\"class\":\"vip\"", "`class`: expected one of batch, default, critical; found \"vip\""),
        (",\"class\":\"\"", "; found \"\""),
        (",\"class\":1", "`class`: expected a string"),
        (
            ",\"signal_ppm\":1000001",
            "`signal_ppm`: expected a whole number from 0 to 1000000, found the integer `1000001`",
        ),
        (",\"signal_ppm\":-1", "expected a whole number from 0 to 1000000, found the integer `-1`"),
        (
            ",\"signal_ppm\":0.5",
            "expected a whole number from 0 to 1000000, found the number `0.5`",
        ),
        (
            ",\"lease\":\"a\"",
            "`policy`: expected a policy that limits leases, found \"p\", which limits none",
        ),
        (",\"lease\":7", "`lease`: expected a string"),
        (",\"draw\":-1", "expected a whole number from 0 to 4294967295, found the integer `-1`"),
        (",\"draw\":4294967296", "expected a whole number from 0 to 4294967295"),
        (",\"now_us\":-1", "`now_us`: expected a whole number"),
        (",\"checks\":[]", "`checks`: expected no other field beside it"),
    ] {
        server.refuses(check, &about(rest), detail);
    }
    for field in ["class\":\"batch\"", "lease\":\"a\"", "signal_ppm\":1", "draw\":1", "cost\":1"] {
        let body = std::format!("{{\"checks\":[{}],\"{field}}}", about(""));
        server.refuses(check, &body, "`checks`: expected no other field beside it");
    }
    let batch = std::format!("{{\"checks\":[{},{}]}}", about(""), about(",\"signal_ppm\":1000001"));
    server.refuses(
        check,
        &batch,
        "`checks[1].signal_ppm`: expected a whole number from 0 to 1000000, found",
    );
    let batch = std::format!("{{\"checks\":[{},{}]}}", about(""), about(",\"class\":\"vip\""));
    server.refuses(check, &batch, "`checks[1]`: `class`: expected one of");
}

#[test]
fn a_check_that_is_refused_has_changed_nothing() {
    let mut server = Server::new(POLICIES);
    let good = r#"{"policy":"open","key":"k"}"#;
    for bad in [r#"{"policy":"open","key":""}"#, r#"{"policy":"open","key":"k","cost":6}"#] {
        let body = std::format!("{{\"checks\":[{good},{bad}]}}");
        assert_eq!(server.call("POST", "/v1/check", &body).status, 400);
    }
    assert_eq!(server.post("/v1/check", good)["remaining"], 4);
}

#[test]
fn the_largest_quota_is_still_a_field_that_can_be_read() {
    let mut server = Server::new(
        "
[policies.p]
limits = [{ algorithm = 'fixed_window', limit = 9007199254740991, period = '1m' }]",
    );
    let response = server.call("POST", "/v1/check", &about(",\"cost\":1"));
    assert_eq!(super::json(&response)["remaining"], json!(9_007_199_254_740_990_u64));
    for (name, expected) in [
        ("ratelimit-policy", "\"p\";q=999999999999999;w=60"),
        ("ratelimit", "\"p\";r=999999999999999;t=60"),
    ] {
        let field = header(&response, name).unwrap();
        assert_eq!(field, expected);
        assert!(sfv::Parser::new(field).parse::<sfv::List>().is_ok(), "{field}");
    }
}

#[test]
fn without_chance_a_lease_gets_no_name_and_whatever_may_be_shed_is() {
    let policies = Policies::parse(
        "[policies.jobs]
limits = [{ algorithm = 'concurrency', capacity = 1, time_to_live = '1m' }]
[policies.p]
limits = [{ algorithm = 'utilization' }]",
    )
    .unwrap()
    .into();
    let read = |body: &str| read_check_with(&policies, body, None);
    let nameless = read(r#"{"policy":"jobs","key":"k"}"#).unwrap_err();
    assert_eq!(nameless.status, 500);
    assert!(read(r#"{"policy":"jobs","key":"k","lease":"a"}"#).is_ok());
    assert!(read(r#"{"policy":"jobs","key":"k","cost":0}"#).is_ok(), "who looks needs none");
    let Operation::Decide(request) = read(&about("")).unwrap().1[0].operation() else { panic!() };
    assert_eq!(request.draw, Draw(0));
}

#[test]
fn the_draw_of_a_caller_counts_only_where_the_server_asks_for_it() {
    let policies = Policies::parse(BUSY).unwrap().into();
    let drawn = |rest: &str| {
        let read = read_check_with(&policies, &about(rest), Some(5 << 32));
        let check = &read.unwrap().1[0];
        [check.operation(), check.operation_with_draw()].map(|operation| match operation {
            Operation::Decide(request) => request.draw,
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(drawn(",\"draw\":7"), [Draw(5), Draw(7)]);
    assert_eq!(drawn(""), [Draw(5), Draw(5)]);
}

#[test]
fn each_error_of_what_is_asked_has_its_problem_type() {
    use tidegate_gate::AskError;
    for (error, expected) in [
        (AskError::NoWholeKey, "urn:tidegate:invalid-request"),
        (AskError::Listed, "urn:tidegate:invalid-request"),
        (
            AskError::Cost(tidegate_gate::CostExceedsCapacity { cost: 2, capacity: 1 }),
            "urn:tidegate:cost-exceeds-capacity",
        ),
    ] {
        assert_eq!(crate::problem_type(&error), expected, "{error}");
    }
}

#[test]
fn a_verdict_is_worded_as_the_api_words_it() {
    let policies = super::policies();
    let policy = policies.get("open").unwrap();
    let asked = tidegate_gate::Ask::parse(r#"{"check":{"cost":2}}"#).unwrap();
    let asked = asked.resolve(policy, "k", &mut || None).unwrap();
    let mut table = super::Table::new(1 << 20, super::KeyHasher::new(0));
    let now = super::Timestamp(super::START);
    let verdict = table.ask(asked.resolved(), now, &asked.operation()).unwrap();
    let worded: serde_json::Value =
        serde_json::from_str(&crate::operation_json(&asked, verdict)).unwrap();
    assert_eq!((&worded["allowed"], &worded["remaining"]), (&true.into(), &3.into()));
}

#[test]
fn an_answer_by_a_share_has_numbers_and_says_so() {
    let policies: std::sync::Arc<Policies> = Policies::parse(POLICIES).unwrap().into();
    let (exchange, checks) = read_check(&policies, r#"{"policy":"api","key":"k"}"#).unwrap();
    let mut table = tidegate_gate::Table::new(1 << 20, tidegate_gate::KeyHasher::new(0));
    let decided = table.ask(checks[0].resolved(), Timestamp(START), &checks[0].operation());
    let verdict = tidegate_gate::Verdict { degraded: true, ..decided.unwrap() };
    let response = super::decided(exchange, [crate::Outcome::Decided(verdict)].into());
    let answer = super::json(&response);
    assert_eq!((&answer["allowed"], &answer["remaining"]), (&json!(true), &json!(2)), "{answer}");
    let said = "the store is unavailable, so this node decided by its share of the limits";
    assert_eq!(answer["degraded"], said);
    assert!(header(&response, "ratelimit").is_some());
}
