use std::string::ToString;

use serde_json::json;
use tidegate_gate::Timestamp;

use super::{SECOND, START, Server, about, answer, header, send};

const JOBS: &str = "
[policies.p]
limits = [{ algorithm = 'concurrency', capacity = 2, time_to_live = '30s' }]
[policies.sockets]
limits = [{ algorithm = 'connections', limit = 3, expiry = '30s' }]
[policies.rate]
limits = [{ algorithm = 'fixed_window', limit = 1, period = '1h' }]
[policies.rate.overrides]
'worker-*' = { limits = [{ algorithm = 'concurrency', capacity = 1, time_to_live = '30s' }] }";

const A: &str = "/v1/leases/a";
const RELEASE_A: &str = "/v1/leases/a?policy=p&key=k";

#[test]
fn leases_are_acquired_renewed_and_released() {
    let mut server = Server::new(JOBS);
    let first = server.post("/v1/leases", &about(",\"lease\":\"a\""));
    let expected = json!({
        "policy": "p", "allowed": true, "limit": 2, "remaining": 1, "retry_after_us": 0,
        "reset_after_us": 30 * SECOND, "at_us": super::START, "lease": "a", "renew_every_us": 10 * SECOND,
        "limits": [{
            "name": "p", "allowed": true, "limit": 2, "remaining": 1, "retry_after_us": 0,
            "reset_after_us": 30 * SECOND,
        }],
    });
    assert_eq!(first, expected);
    let again = server.post("/v1/leases", &about(",\"lease\":\"a\""));
    assert_eq!(again["remaining"], 1, "the same lease");
    let random = server.post("/v1/leases", &about(""));
    assert_eq!(random["lease"], "00000000000000070000000000000007", "two draws");
    assert_eq!((&random["allowed"], &random["remaining"]), (&json!(true), &json!(0)));
    let refused = server.post("/v1/leases", &about(",\"lease\":\"c\""));
    assert_eq!(
        (&refused["allowed"], &refused["retry_after_us"]),
        (&json!(false), &json!(30 * SECOND))
    );

    server.wait(10);
    let renewed = server.json("PUT", A, &about(""));
    assert_eq!((&renewed["live"], &renewed["remaining"]), (&json!(true), &json!(0)));
    assert_eq!((&renewed["allowed"], &renewed["lease"]), (&json!(true), &json!("a")));
    server.wait(20);
    let looked = server.post("/v1/check", &about(",\"cost\":0"));
    assert_eq!(looked["remaining"], 1, "the other is lost after 30 s, this one has 10 s left");
    assert_eq!(looked.get("lease"), None, "who looks gets none");

    let released = server.json("DELETE", RELEASE_A, "");
    assert_eq!((&released["live"], &released["remaining"]), (&json!(true), &json!(2)));
    let twice = server.json("DELETE", RELEASE_A, "");
    assert_eq!((&twice["live"], &twice["remaining"]), (&json!(false), &json!(2)));
    assert_eq!(server.json("PUT", A, &about(""))["live"], false, "it is gone");
}

#[test]
fn a_lease_ends_after_its_time_to_live_and_not_before() {
    let mut server = Server::new(JOBS);
    server.post("/v1/leases", &about(",\"lease\":\"a\""));
    server.now.0 += 30 * SECOND - 1;
    assert_eq!(server.json("PUT", A, &about(""))["live"], true);
    server.now.0 += 30 * SECOND;
    assert_eq!(server.json("PUT", A, &about(""))["live"], false);
    assert_eq!(server.json("DELETE", RELEASE_A, "")["live"], false);
}

#[test]
fn a_check_of_a_policy_with_leases_acquires_one() {
    let mut server = Server::new(JOBS);
    let check = about(",\"lease\":\"a\"");
    assert_eq!(server.post("/v1/check", &check)["lease"], "a");
    let batch = std::format!(
        "{{\"checks\":[{},{}]}}",
        about(",\"lease\":\"b\""),
        about(",\"lease\":\"c\"")
    );
    let answer = server.post("/v1/check", &batch);
    assert_eq!(
        (&answer["decisions"][0]["lease"], &answer["decisions"][0]["allowed"]),
        (&json!("b"), &json!(true))
    );
    assert_eq!(answer["decisions"][1]["allowed"], false);
    assert_eq!(server.json("DELETE", RELEASE_A, "")["live"], true);
}

#[test]
fn headers_tell_how_many_may_be_held_at_once() {
    let mut server = Server::new(JOBS);
    let policy = Some("\"p\";q=2;qu=\"concurrent-requests\"");
    for (lease, status, wait) in
        [("a", "\"p\";r=1", None), ("b", "\"p\";r=0", None), ("c", "\"p\";r=0;t=5", Some("5"))]
    {
        let response =
            server.call("POST", "/v1/leases", &about(&std::format!(",\"lease\":\"{lease}\"")));
        assert_eq!(
            (header(&response, "ratelimit-policy"), header(&response, "ratelimit")),
            (policy, Some(status))
        );
        assert_eq!(header(&response, "retry-after"), wait);
        for name in ["ratelimit-policy", "ratelimit"] {
            let field = header(&response, name).unwrap();
            assert_eq!(sfv::Parser::new(field).parse::<sfv::List>().unwrap().len(), 1);
        }
    }
    let released = server.call("DELETE", RELEASE_A, "");
    assert_eq!(header(&released, "ratelimit"), Some("\"p\";r=1"));
}

#[test]
fn whoever_waits_for_a_lease_is_told_a_time_that_the_policy_names() {
    let lease = "{ name = 'l', algorithm = 'concurrency', capacity = 1, time_to_live = '10m' }";
    let unit = "{ name = 'u', algorithm = 'fixed_window', limit = 2, period = '1m' }";
    let check = |limits: &str, lease: &str| match limits.contains("concurrency") {
        true => about(&std::format!(",\"lease\":\"{lease}\"")),
        false => about(""),
    };
    // the policy, how many requests come before, and the seconds that the next one is told to wait
    for (fields, limits, before, expected) in [
        ("", lease.into(), 1, "5"),
        ("lease_retry_after = '1500ms'", lease.into(), 1, "2"),
        ("lease_retry_after = '1h'", lease.into(), 1, "600"),
        ("", std::format!("{lease}, {unit}"), 1, "5"),
        ("lease_retry_after = '2m'", std::format!("{lease}, {unit}"), 1, "120"),
        ("", unit.to_string(), 2, "60"),
    ] {
        let file = std::format!("[policies.p]\n{fields}\nlimits = [{limits}]");
        let mut server = Server::new(&file);
        server.now = Timestamp(START - START % (60 * SECOND));
        for _ in 0..before {
            assert_eq!(server.post("/v1/check", &check(&limits, "a"))["allowed"], true);
        }
        let refused = server.call("POST", "/v1/check", &check(&limits, "b"));
        assert_eq!(header(&refused, "retry-after"), Some(expected), "{file}");
    }
    // a limit on units refuses as well, and for longer than the policy says of leases
    let limits = std::format!("{lease}, {}", unit.replace('2', "1"));
    let mut server = Server::new(&std::format!("[policies.p]\nlimits = [{limits}]"));
    server.now = Timestamp(START - START % (60 * SECOND));
    assert_eq!(server.post("/v1/check", &check(&limits, "a"))["allowed"], true);
    let refused = server.call("POST", "/v1/check", &check(&limits, "b"));
    assert_eq!(header(&refused, "retry-after"), Some("60"));
    let exact = super::json(&refused);
    assert_eq!(exact["retry_after_us"], 600 * SECOND, "a check says when the lease expires");
    // a block is no lease
    server.post("/v1/keys/p/k/block", &std::format!("{{\"for\":{}}}", 900 * SECOND));
    let refused = server.call("POST", "/v1/check", &check(&limits, "b"));
    assert_eq!(header(&refused, "retry-after"), Some("900"));
}

#[test]
fn connections_are_counted_by_their_owner() {
    let mut server = Server::new(JOBS);
    let body = |rest: &str| std::format!("{{\"policy\":\"sockets\",\"key\":\"k\"{rest}}}");
    let open = body(",\"lease\":\"node-1\"");
    assert_eq!(server.post("/v1/leases", &open)["remaining"], 2);
    assert_eq!(server.post("/v1/leases", &open)["remaining"], 1, "one more of the same owner");
    let counted = server.json("PUT", "/v1/leases/node-2", &body(",\"count\":4"));
    assert_eq!((&counted["live"], &counted["remaining"]), (&json!(true), &json!(0)), "they exist");
    assert_eq!(server.post("/v1/leases", &open)["allowed"], false);
    assert_eq!(server.json("PUT", "/v1/leases/node-1", &body(""))["live"], true);
    assert_eq!(server.json("PUT", "/v1/leases/node-3", &body(""))["live"], false);
    // 4096 owners of that many are still less than 2^53: none keeps another from being counted
    let most = server.json("PUT", "/v1/leases/node-2", &body(",\"count\":4294967295"));
    assert_eq!((&most["live"], &most["remaining"]), (&json!(true), &json!(0)));
    assert_eq!(server.json("PUT", "/v1/leases/node-1", &body(",\"count\":2"))["live"], true);
    for count in ["4294967296", "9007199254740991"] {
        let detail = std::format!(
            "`count`: expected a whole number from 0 to 4294967295, found the integer `{count}`"
        );
        let body = body(&std::format!(",\"count\":{count}"));
        server.refuses(("PUT", "/v1/leases/node-1"), &body, &detail);
    }
    let none = server.json("PUT", "/v1/leases/node-2", &body(",\"count\":0"));
    assert_eq!(none["remaining"], 1);
    let close = "/v1/leases/node-1?policy=sockets&key=k";
    assert_eq!(server.json("DELETE", close, "")["remaining"], 2);
    assert_eq!(server.json("DELETE", close, "")["live"], true);
    assert_eq!(server.json("DELETE", close, "")["live"], false, "it has none left");
}

#[test]
fn a_lease_is_named_by_any_text_percent_encoded() {
    for (name, target) in [
        ("a/b", "a%2Fb"),
        ("a/b", "a/b"),
        ("a b", "a%20b"),
        ("a+b", "a+b"),
        ("é?#", "%C3%A9%3f%23"),
        ("100%", "100%25"),
        ("%zz", "%zz"),
        ("\u{0}", "%00"),
        (&"é".repeat(64), &"%c3%a9".repeat(64)),
    ] {
        let mut server = Server::new(JOBS);
        let lease = json!({ "policy": "p", "key": "k", "lease": name }).to_string();
        assert_eq!(server.post("/v1/leases", &lease)["lease"], name);
        let path = std::format!("/v1/leases/{target}");
        let renewed = server.json("PUT", &path, &about(""));
        assert_eq!((&renewed["live"], &renewed["lease"]), (&json!(true), &json!(name)), "{target}");
        let released = server.json("DELETE", &(path + "?policy=p&key=k"), "");
        assert_eq!(released["live"], true, "{target}");
    }
}

#[test]
fn bad_leases_are_refused_and_nothing_is_consumed() {
    let mut server = Server::new(JOBS);
    let acquire = ("POST", "/v1/leases");
    let long = std::format!(",\"lease\":\"{}\"", "a".repeat(129));
    let rate = |rest: &str| std::format!("{{\"policy\":\"rate\",\"key\":\"k\"{rest}}}");
    for (body, detail) in [
        ("", "expected a value, found the end of the text"),
        ("{}", "missing field `policy`"),
        ("{\"policy\":\"p\"}", "missing field `key`"),
        (&about(",\"ttl\":1"), "; found the field \"ttl\""),
        (&about(",\"lease\":\"\""), "`lease`: expected 1 to 128 bytes, found 0"),
        (&about(&long), "`lease`: expected 1 to 128 bytes, found 129"),
        (&about(",\"lease\":1"), "`lease`: expected a string, found the integer `1`"),
        (&about(",\"lease\":\"a\",\"cost\":0"), "`cost`: expected at least 1, found 0"),
        (&about(",\"checks\":[]"), "found the field \"checks\""),
        (
            &rate(""),
            "`policy`: expected a policy that limits leases, found \"rate\", which limits none",
        ),
        (
            &rate(",\"lease\":\"a\""),
            "`policy`: expected a policy that limits leases, found \"rate\", which limits none",
        ),
    ] {
        server.refuses(acquire, body, detail);
    }
    for (target, body, detail) in [
        (A, "", "expected a value, found the end of the text"),
        (A, "{}", "missing field `policy`"),
        (A, &about(",\"lease\":\"a\""), "found the field \"lease\""),
        (A, &about(",\"cost\":1"), "found the field \"cost\""),
        (A, &about(",\"count\":-1"), "`count`: expected a whole number"),
        (
            A,
            &about(",\"count\":1"),
            "`policy`: expected a policy with a limit `connections`, found \"p\", which has none",
        ),
        (
            A,
            &rate(""),
            "`policy`: expected a policy that limits leases, found \"rate\", which limits none",
        ),
        (
            &std::format!("/v1/leases/{}", "a".repeat(129)),
            &about(""),
            "`lease`: expected 1 to 128 bytes, found 129",
        ),
        ("/v1/leases/%ff", &about(""), "`lease`: expected UTF-8 in the path"),
        ("/v1/leases/a%C3", &about(""), "`lease`: expected UTF-8 in the path"),
    ] {
        server.refuses(("PUT", target), body, detail);
    }
    for (target, detail) in [
        (A, "the query: expected `policy`, found no such field"),
        ("/v1/leases/a?policy=p", "the query: expected `key`, found no such field"),
        (
            "/v1/leases/a?policy=p&key=k&cost=1",
            "the query: expected one of `policy`, `key`, `now_us`; found \"cost\"",
        ),
        ("/v1/leases/a?policy=p&key=k&key=k", "the query: expected `key` once, found it twice"),
        ("/v1/leases/a?policy=p&key=%ff", "the query: expected UTF-8, found \"key=%ff\""),
        ("/v1/leases/a?policy=p&key=k&now_us=x", "9007199254740991, found \"x\""),
        (
            "/v1/leases/a?policy=rate&key=k",
            "`policy`: expected a policy that limits leases, found \"rate\", which limits none",
        ),
        ("/v1/leases/%ff?policy=p&key=k", "`lease`: expected UTF-8 in the path"),
    ] {
        server.refuses(("DELETE", target), "", detail);
    }
    assert_eq!(server.post("/v1/check", &rate(""))["allowed"], true, "it had its one left");
    let other = "{\"policy\":\"rate\",\"key\":\"worker-1\",\"lease\":\"a\"}";
    assert_eq!(server.post("/v1/leases", other)["allowed"], true, "an override has leases");
}

#[test]
fn a_lease_of_no_policy_or_key_is_refused_as_a_check_is() {
    let mut server = Server::new(JOBS);
    let long = "k".repeat(513);
    for (method, target, policy, key, status) in [
        ("POST", "/v1/leases", "none", "k", 404),
        ("POST", "/v1/leases", "p", "", 400),
        ("POST", "/v1/leases", "p", &long, 400),
        ("PUT", A, "none", "k", 404),
        ("PUT", A, "p", "", 400),
        ("DELETE", A, "none", "k", 404),
        ("DELETE", A, "p", "", 400),
        ("DELETE", A, "p", &long, 400),
    ] {
        let body = json!({ "policy": policy, "key": key }).to_string();
        let target = match method {
            "DELETE" => std::format!("{target}?policy={policy}&key={key}"),
            _ => target.to_string(),
        };
        let response = server.call(method, &target, &body);
        let r#type =
            if status == 404 { "urn:tidegate:unknown-policy" } else { "urn:tidegate:invalid-key" };
        assert_eq!(
            (response.status, &super::json(&response)["type"]),
            (status, &json!(r#type)),
            "{method} {key}"
        );
    }
}

#[test]
fn leases_have_methods_of_their_own() {
    for (method, target, status, allow) in [
        ("GET", "/v1/leases", 405, Some("POST")),
        ("PUT", "/v1/leases", 405, Some("POST")),
        ("GET", A, 405, Some("PUT, DELETE")),
        ("POST", A, 405, Some("PUT, DELETE")),
        ("PUT", "/v1/leases/", 404, None),
        ("PUT", A, 401, None),
        ("DELETE", RELEASE_A, 401, None),
        ("POST", "/v1/leases", 401, None),
    ] {
        let response = answer(send(method, target, &[]));
        assert_eq!(
            (response.status, header(&response, "allow")),
            (status, allow),
            "{method} {target}"
        );
    }
}

#[test]
fn in_shadow_a_lease_that_is_not_held_is_not_live() {
    let mut server = Server::new(
        "[policies.p]
shadow = true
limits = [{ algorithm = 'concurrency', capacity = 1, time_to_live = '30s' }]",
    );
    assert_eq!(server.post("/v1/leases", &about(",\"lease\":\"a\""))["would_allow"], true);
    let passed = server.post("/v1/leases", &about(",\"lease\":\"b\""));
    assert_eq!((&passed["allowed"], &passed["would_allow"]), (&json!(true), &json!(false)));
    assert_eq!(server.json("PUT", "/v1/leases/b", &about(""))["live"], false);
    assert_eq!(server.json("PUT", A, &about(""))["live"], true);
}
