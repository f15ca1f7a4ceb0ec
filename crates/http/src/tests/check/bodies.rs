//! What the body of a check may be.

use core::time::Duration;
use std::string::String;

use serde_json::json;

use super::super::{POLICIES, Server, about, policies, read_check};
use super::refused;
use crate::{BodyError, MAX_BODY_BYTES, MAX_DRAINED_BYTES};

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
    for coding in ["gzip", "Identity", "br, identity"] {
        let headers = [("content-encoding", coding)];
        let response = server.call_with("POST", "/v1/check", Ok(with(b"k")), &headers);
        assert_eq!(response.status, if coding == "Identity" { 200 } else { 415 }, "{coding}");
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
        let problem = crate::tests::json(&response);
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
            let problem = crate::tests::json(&response);
            assert_eq!(
                (response.status, &problem["type"]),
                (400, &json!("urn:tidegate:invalid-key")),
                "{method} {target} {body}"
            );
            let detail = std::format!("after `ip:`, found \"{key}\"");
            assert!(problem["detail"].as_str().unwrap().contains(&detail), "{problem}");
        }
    }
    assert!(server.tables.values().all(tidegate_gate::Table::is_empty), "nothing was consumed");
    for key in ["ip:::ffff:192.0.2.6", "ip:2001:DB8::1", "ip:192.0.2.6", "IP:x"] {
        let body = std::format!("{{\"policy\":\"account\",\"key\":\"{key}\"}}");
        assert_eq!(server.post("/v1/check", &body)["allowed"], true, "{key}");
    }
}
