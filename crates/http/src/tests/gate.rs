use std::string::{String, ToString};
use std::vec::Vec;

use serde_json::json;
use tidegate_gate::{Decision, Micros, Operation, Timestamp, Verdict};

use super::{
    POLICIES, SECOND, START, Server, TOKEN, about, answer, decided, header, planned, policies,
    read_check, send,
};
use crate::plan::{Form, Plan};
use crate::{Access, Exchange, Head, Outcome, RevisionTag, Served};

#[test]
fn bad_gate_queries_get_one_too() {
    for (query, status, detail) in [
        ("", 400, "expected `policy`, found no such field"),
        ("policy=x&key=k", 404, "`policy`: expected one of api, open"),
        ("policy=api&key=", 400, "expected 1 to 512 bytes, found 0"),
        ("policy=api&policy=api&key=k", 400, "expected `policy` once, found it twice"),
        ("policy=api&key=k&cost=-1", 400, "found \"-1\""),
        ("policy=api&key=k&cost=+1", 400, "found \" 1\""),
        ("policy=api&key=k&cost=%2B1", 400, "found \"+1\""),
        ("policy=api&key=k&cost=9007199254740992", 400, "expected a whole number"),
        ("policy=api&key=k&cost=4", 400, "the most at once is 3"),
        ("policy=api&key=k%ff", 400, "the query: expected UTF-8, found \"key=k%ff\""),
        (
            "policy=api&key=k&colour=red",
            400,
            "the query: expected one of `policy`, `key`, `cost`, `class`; found \"colour\"",
        ),
    ] {
        let response = answer(send("GET", &std::format!("/v1/gate?{query}"), &[TOKEN]));
        assert_eq!(response.status, status, "{query}");
        assert!(response.body.replace("\\\"", "\"").contains(detail), "{query}: {}", response.body);
    }
    for cost in ["1.5", "", "0", "0, 5", "-1"] {
        let step = send("GET", "/v1/gate?policy=api&key=k", &[TOKEN, ("x-cost", cost)]);
        let response = answer(step);
        assert_eq!(response.status, 400, "{cost}");
        assert!(response.body.contains("the header `x-cost`"), "{}", response.body);
        assert!(response.body.contains("expected a whole number from 1 to"), "{}", response.body);
    }
}

#[test]
fn a_query_is_refused_where_a_call_takes_none() {
    for (method, path) in [
        ("POST", "/v1/check"),
        ("POST", "/v1/explain"),
        ("POST", "/v1/leases"),
        ("PUT", "/v1/leases/a"),
        ("POST", "/v1/reservations"),
        ("POST", "/v1/reservations/a/commit"),
        ("POST", "/v1/keys/api/k/block"),
        ("GET", "/v1/overrides"),
        ("PUT", "/v1/overrides/api/k"),
        ("DELETE", "/v1/overrides/api/k"),
        ("GET", "/v1/policies"),
        ("PUT", "/v1/policies"),
        ("GET", "/v1/policies/history"),
    ] {
        let target = std::format!("{path}?cost=3");
        let response = answer(send(method, &target, &[("authorization", "Bearer admin")]));
        assert_eq!(response.status, 400, "{method} {path}: {}", response.body);
        let detail = r#"the query: expected none for this call, found \"cost=3\""#;
        assert!(response.body.contains(detail), "{method} {path}: {}", response.body);
        let stranger = answer(send(method, &target, &[]));
        assert_eq!(stranger.status, 401, "{method} {path}");
    }
    for probe in ["/healthz?x", "/metrics?x=1"] {
        assert_eq!(answer(send("GET", probe, &[("authorization", "Bearer admin")])).status, 200);
    }
}

#[test]
fn a_gate_finds_its_key_and_cost_in_the_request() {
    let plan = |target: &str, headers: &[(&str, &str)]| {
        let (_, checks) = planned(send("GET", target, headers)).unwrap();
        let Operation::Decide(request) = checks[0].operation() else { panic!() };
        (checks[0].resolved().key().to_string(), request.cost)
    };
    let api = "/v1/gate?policy=api";
    assert_eq!(plan(api, &[TOKEN]), ("ip:192.0.2.7".to_string(), 1));
    let keyed = [TOKEN, ("x-api-key", "a b"), ("x-cost", "2")];
    assert_eq!(plan(api, &keyed), ("header:x-api-key:a b".to_string(), 2));
    assert_eq!(plan("/v1/gate?policy=api&key=%C3%A9&cost=3", &keyed), ("é".to_string(), 3));
}

#[test]
fn a_gate_lets_through_or_says_when() {
    let mut server = Server::new(POLICIES);
    let mut gate = || server.call("GET", "/v1/gate?policy=api&key=k&cost=2", "");
    let passed = gate();
    assert_eq!((passed.status, passed.body.as_str()), (204, ""));
    let refused = gate();
    assert_eq!((refused.status, header(&refused, "retry-after")), (429, Some("1")));
    assert_eq!(header(&refused, "ratelimit"), Some("\"burst\";r=1;t=1, \"minute\";r=3"));
    let problem = super::json(&refused);
    assert_eq!(problem["violated-policies"], json!(["burst"]));
    assert_eq!(problem["retry_after_us"], 333_334);
    assert_eq!(header(&refused, "cache-control"), Some("no-store"));
}

const TYPES: &str = "https://iana.org/assignments/http-problem-types#";

/// The status, the end of the type, and the names of the limits that a gate refuses by.
#[track_caller]
fn refusal(server: &mut Server, query: &str) -> (u16, String, serde_json::Value) {
    let target = std::format!("/v1/gate?policy=p&key=k{query}");
    let response = server.call("GET", &target, "");
    let problem = super::json(&response);
    assert_eq!(header(&response, "content-type"), Some("application/problem+json"));
    assert_eq!(problem["status"], response.status);
    let wait = problem["retry_after_us"].as_u64().unwrap().div_ceil(SECOND).to_string();
    assert_eq!(header(&response, "retry-after"), Some(wait.as_str()));
    let name = problem["type"].as_str().unwrap().strip_prefix(TYPES).unwrap();
    let detail = match name {
        "temporary-reduced-capacity" => "the service is shedding load; try again",
        _ => "the same request is granted",
    };
    assert_eq!(problem["detail"], std::format!("{detail} in {wait} s"));
    (response.status, name.to_string(), problem["violated-policies"].clone())
}

#[test]
fn a_gate_says_that_load_is_shed_and_tells_of_no_quota() {
    let mut server = Server::new(
        "
[policies.p]
limits = [{ algorithm = 'utilization', name = 'busy', delay = '1s', full = '2s' }]",
    );
    for _ in 0..3 {
        server.post("/v1/check", &about(",\"signal_ppm\":1000000"));
        server.wait(1);
    }
    let shed = (503, "temporary-reduced-capacity".to_string(), json!(["busy"]));
    assert_eq!(refusal(&mut server, ""), shed, "who does not say that it is important is not");
    assert_eq!(refusal(&mut server, "&class=default"), shed);
    let critical = server.call("GET", "/v1/gate?policy=p&key=k&class=critical", "");
    assert_eq!(critical.status, 204);
    assert_eq!(header(&critical, "ratelimit"), None);
    for call in ["/v1/gate?policy=p&key=k&class=vip", "/v1/keys/p/k?class=vip"] {
        server.refuses(("GET", call), "", "expected one of default, critical; found \"vip\"");
    }
}

#[test]
fn a_gate_says_that_an_account_is_suppressed() {
    let mut server = Server::new(
        "
[policies.p]
limits = [{ algorithm = 'suppression', name = 'rate', rate = '100/s' }]",
    );
    server.wait(2);
    server.post("/v1/report", &about(",\"admitted\":60000,\"suppressed\":0"));
    let suppressed = (503, "temporary-reduced-capacity".to_string(), json!(["rate"]));
    assert_eq!(refusal(&mut server, ""), suppressed);
}

#[test]
fn a_gate_says_that_a_penalty_is_for_what_was_done() {
    let mut server = Server::new(
        "
[policies.p]
limits = [
  { algorithm = 'fixed_window', name = 'hour', limit = 1, period = '1h' },
  { algorithm = 'penalty', name = 'penalty', refusals = 2, within = '1m', duration = '5m' },
]",
    );
    assert_eq!(server.call("GET", "/v1/gate?policy=p&key=k", "").status, 204);
    let quota = (429, "quota-exceeded".to_string(), json!(["hour"]));
    assert_eq!(refusal(&mut server, ""), quota);
    let abnormal = (429, "abnormal-usage-detected".to_string(), json!(["hour", "penalty"]));
    assert_eq!(refusal(&mut server, ""), abnormal, "the second refusal begins it");
    server.now = Timestamp(START - START % (3_600 * SECOND) + 3_600 * SECOND - 60 * SECOND);
    assert!(server.now.0 > START + 300 * SECOND);
    assert_eq!(refusal(&mut server, ""), quota, "it is over, the hour is not");
}

#[test]
fn a_penalty_alone_is_told_with_the_quota_that_is_left() {
    let mut server = Server::new(
        "
[policies.p]
limits = [
  { algorithm = 'token_bucket', name = 'rate', capacity = 1, rate = '1/s' },
  { algorithm = 'penalty', name = 'penalty', refusals = 1, within = '1m', duration = '5m' },
]",
    );
    assert_eq!(server.call("GET", "/v1/gate?policy=p&key=k", "").status, 204);
    assert_eq!(refusal(&mut server, "").1, "abnormal-usage-detected");
    server.wait(100);
    let response = server.call("GET", "/v1/gate?policy=p&key=k", "");
    assert_eq!(super::json(&response)["violated-policies"], json!(["penalty"]));
    assert_eq!(header(&response, "retry-after"), Some("200"));
    assert_eq!(header(&response, "ratelimit-policy"), Some("\"rate\";q=1;w=1"));
    assert_eq!(header(&response, "ratelimit"), Some("\"rate\";r=1"), "it is not what refused");
}

#[test]
fn who_has_spent_its_quota_is_told_so_also_while_load_is_shed() {
    let mut server = Server::new(
        "
[policies.p]
limits = [
  { algorithm = 'fixed_window', name = 'hour', limit = 1, period = '1h' },
  { algorithm = 'utilization', name = 'busy', delay = '1s', full = '2s' },
]",
    );
    for _ in 0..3 {
        server.post("/v1/check", &about(",\"signal_ppm\":1000000"));
        server.wait(1);
    }
    let both = (429, "quota-exceeded".to_string(), json!(["hour", "busy"]));
    assert_eq!(refusal(&mut server, ""), both, "another server would refuse it as well");
}

#[test]
fn a_gate_hands_out_no_lease_that_nobody_could_release() {
    for limit in [
        "{ algorithm = 'concurrency', capacity = 2, time_to_live = '30s' }",
        "{ algorithm = 'connections', limit = 2 }",
        "{ algorithm = 'fleet_usage', capacity = 2, reserve = '50%', time_to_live = '30s' }",
    ] {
        let mut server = Server::new(&std::format!(
            "[policies.p]\nlimits = [
              {{ algorithm = 'fixed_window', limit = 9, period = '1h' }}, {limit}]"
        ));
        let detail = "expected a policy without leases, found \"p\"; nobody could release";
        for query in ["", "&cost=0", "&class=critical"] {
            server.refuses(("GET", &std::format!("/v1/gate?policy=p&key=k{query}")), "", detail);
        }
        let answer = server.post("/v1/check", &about(",\"cost\":0"));
        assert_eq!(answer["limits"][0]["remaining"], 9, "nothing was consumed");
    }
}

#[test]
fn a_fleet_that_is_full_would_be_said_to_shed() {
    let mut server = Server::new(
        "
[policies.p]
limits = [{ algorithm = 'fleet_usage', capacity = 2, reserve = '50%', time_to_live = '30s' }]",
    );
    let (_, checks) = read_check(&server.policies, about("")).unwrap();
    let full = about(",\"lease\":\"other\"");
    assert_eq!(server.post("/v1/leases", &full)["allowed"], true);
    let outcomes = checks.iter().map(|check| server.decide(check)).collect();
    let served = Plan { checks, form: Form::Gate, metering: None }.serve(outcomes);
    let Served::Response(refused) = served else { panic!("{served:?}") };
    let problem = super::json(&refused);
    assert_eq!((refused.status, &problem["violated-policies"]), (503, &json!(["p"])));
    assert_eq!(header(&refused, "ratelimit"), Some("\"p\";r=0;t=5"));
    assert_eq!(header(&refused, "retry-after"), Some("5"), "a place is usually given back earlier");
    assert_eq!(problem["retry_after_us"], 5 * SECOND);
}

#[test]
fn an_outage_means_what_the_policy_says() {
    let outcome = [Outcome::Unavailable("redis: connection refused".into())];
    for (policy, allowed, status) in [("api", false, 503), ("open", true, 204)] {
        let body = std::format!("{{\"policy\":\"{policy}\",\"key\":\"k\"}}");
        let (check, _) = read_check(&policies(), body).unwrap();
        let response = decided(check, outcome.to_vec());
        let answer: serde_json::Value = serde_json::from_str(&response.body).unwrap();
        assert_eq!((response.status, &answer["allowed"]), (200, &allowed.into()));
        assert_eq!(answer["degraded"], "redis: connection refused");
        let target = std::format!("/v1/gate?policy={policy}&key=k");
        let gate = decided(send("GET", &target, &[TOKEN]), outcome.to_vec());
        assert_eq!(gate.status, status);
        let found = (status == 503).then(|| super::json(&gate)["detail"].clone());
        assert!(found.is_none_or(|detail| detail == "redis: connection refused"));
    }
}

#[test]
fn a_client_that_can_wait_for_nothing_is_not_told_to_wait() {
    for (retry_after, told) in [(Micros(SECOND), Some("1")), (Micros::MAX, None)] {
        let (limit, remaining, reset_after) = (5, 0, Micros(SECOND));
        let refusal = Decision::Deny { limit, remaining, retry_after, reset_after };
        let outcome = Outcome::Decided(Verdict::listed(Timestamp(START), refusal));
        let refused =
            decided(send("GET", "/v1/gate?policy=open&key=k", &[TOKEN]), [outcome].into());
        assert_eq!((refused.status, header(&refused, "retry-after")), (429, told));
    }
}

#[test]
fn in_shadow_everything_passes_and_says_what_would_have_been() {
    let mut server = Server::new(
        "
[policies.p]
shadow = true
limits = [{ algorithm = 'fixed_window', limit = 1, period = '1s' }]",
    );
    for (would_allow, wait) in [(true, 0), (false, SECOND)] {
        let response = server.call("POST", "/v1/check", &about(""));
        let answer = super::json(&response);
        assert_eq!(
            (&answer["allowed"], &answer["would_allow"]),
            (&json!(true), &json!(would_allow))
        );
        assert_eq!(answer["retry_after_us"], wait);
        assert_eq!(header(&response, "retry-after"), None, "nobody is told to wait");
    }
    assert_eq!(server.call("GET", "/v1/gate?policy=p&key=k", "").status, 204);
}

#[test]
fn in_shadow_a_cost_that_can_never_be_granted_is_refused_for_ever_and_passes() {
    let mut server = Server::new(
        "
[policies.p]
shadow = true
limits = [
  { algorithm = 'fixed_window', name = 'minute', limit = 2, period = '1m' },
  { algorithm = 'fixed_window', name = 'hour', limit = 9, period = '1h' },
]
[policies.leases]
shadow = true
limits = [
  { algorithm = 'fixed_window', name = 'minute', limit = 2, period = '1m' },
  { algorithm = 'concurrency', name = 'jobs', capacity = 3, time_to_live = '1h' },
]",
    );
    let never = 9_007_199_254_740_991_u64;
    for cost in [3, never] {
        let body = about(&std::format!(",\"cost\":{cost}"));
        let response = server.call("POST", "/v1/check", &body);
        let answer = super::json(&response);
        assert_eq!(
            (&answer["allowed"], &answer["would_allow"], &answer["retry_after_us"]),
            (&json!(true), &json!(false), &json!(never))
        );
        assert_eq!((&answer["limit"], &answer["remaining"]), (&json!(2), &json!(2)));
        assert_eq!(answer["limits"][0]["allowed"], false, "{answer}");
        assert_eq!(answer["limits"][1]["allowed"], cost == 3, "{answer}");
        assert_eq!(header(&response, "retry-after"), None);
        let batch = std::format!("{{\"checks\":[{body}]}}");
        assert_eq!(server.post("/v1/check", &batch)["decisions"][0], answer);
        let gate = std::format!("/v1/gate?policy=p&key=k&cost={cost}");
        assert_eq!(server.call("GET", &gate, "").status, 204);
    }

    let leases = |rest: &str| std::format!("{{\"policy\":\"leases\",\"key\":\"k\"{rest}}}");
    let passed = server.post("/v1/leases", &leases(",\"cost\":3,\"lease\":\"a\""));
    assert_eq!((&passed["allowed"], &passed["would_allow"]), (&json!(true), &json!(false)));
    assert_eq!(server.json("PUT", "/v1/leases/a", &leases(""))["live"], false);
    server.refuses(
        ("POST", "/v1/leases"),
        &leases(",\"cost\":0"),
        "found 0; a peek acquires no lease",
    );
}

#[test]
fn who_is_listed_is_told_no_quota() {
    let mut server = Server::new(
        "
[policies.p]
deny = ['ip:192.0.2.0/24']
allow = ['ip:198.51.100.0/24']
limits = [{ algorithm = 'fixed_window', limit = 1, period = '1s' }]",
    );
    // what it costs matters to those who are counted alone
    for (ip, query, status) in [
        ("192.0.2.7", "policy=p&cost=9", 403),
        ("198.51.100.7", "policy=p&cost=9", 204),
        ("203.0.113.7", "policy=p", 204),
    ] {
        let (client_ip, now) = (&|| ip.parse().ok(), Timestamp(START));
        let head = Head { path: "/v1/gate", query, client_ip, now, ..Head::default() };
        let (access, revision) = (&Access::OPEN, &RevisionTag::default());
        let policies = &server.policies.clone();
        let asked = crate::Server { policies, access, revision, metrics: &String::new };
        let response = server.drive(Exchange::new(&asked, &head, &mut || Some(7)), &Ok(Vec::new()));
        assert_eq!(response.status, status, "{ip}");
        let counted = ip.starts_with("203");
        assert_eq!(header(&response, "ratelimit").is_some(), counted, "{ip}");
        assert_eq!(header(&response, "retry-after"), None, "{ip}");
    }
    let most = 9_007_199_254_740_991_u64;
    for (ip, allowed, has, wait) in [("192.0.2.7", false, 0, most), ("198.51.100.7", true, most, 0)]
    {
        for (path, rest) in [
            ("/v1/check", ",\"cost\":9"),
            ("/v1/check", ",\"cost\":0"),
            ("/v1/refund", ",\"units\":9"),
        ] {
            let body = std::format!("{{\"policy\":\"p\",\"key\":\"ip:{ip}\"{rest}}}");
            let mut expected = json!({
                "policy": "p", "allowed": allowed, "limit": has, "remaining": has,
                "retry_after_us": wait, "reset_after_us": wait, "at_us": START, "limits": [],
            });
            if !allowed {
                expected["denied"] = json!(true); // nothing else tells it apart from a refusal
            }
            assert_eq!(server.post(path, &body), expected);
            let response = server.call("POST", path, &body);
            assert_eq!(header(&response, "retry-after"), None, "no wait helps a denied key");
        }
    }
}

#[test]
fn a_denied_key_is_told_apart_from_a_refusal_and_from_a_cost_that_is_too_high() {
    let mut server = Server::new(
        "
[policies.p]
shadow = true
deny = ['bad']
limits = [{ algorithm = 'fixed_window', limit = 1, period = '1s' }]",
    );
    for (key, cost, denied) in [
        ("bad", 1, json!(true)),
        ("k", 1, json!(null)),
        ("k", 1, json!(null)),
        ("k", 2, json!(null)),
    ] {
        let body = std::format!("{{\"policy\":\"p\",\"key\":\"{key}\",\"cost\":{cost}}}");
        let answer = server.post("/v1/check", &body);
        assert_eq!(
            (&answer["allowed"], &answer["denied"]),
            (&json!(true), &denied),
            "{key} {cost}"
        );
        let batch = std::format!("{{\"checks\":[{body}]}}");
        assert_eq!(server.post("/v1/check", &batch)["decisions"][0]["denied"], denied);
    }
}

#[test]
fn a_network_of_ipv6_is_counted_as_one_whatever_the_depth() {
    let mut server = Server::new(
        "
[policies.p]
limits = [
  { algorithm = 'fixed_window', name = 'whole', limit = 9, period = '1h' },
  { algorithm = 'fixed_window', name = 'two', depth = 2, limit = 9, period = '1h' },
  { algorithm = 'fixed_window', name = 'one', depth = 1, limit = 9, period = '1h' },
]",
    );
    let mut left = |key: &str| {
        let answer = server.post("/v1/check", &about("").replace("\"k\"", &json!(key).to_string()));
        let limits = answer["limits"].as_array().unwrap();
        limits.iter().map(|limit| limit["remaining"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(left("ip:2001:db8::1"), [8, 8, 8]);
    assert_eq!(left("ip:2001:db8::2"), [7, 7, 7], "of the same 64 bits");
    assert_eq!(left("ip:2001:db8:0:1::1"), [8, 8, 8]);
    assert_eq!(left("ip:192.0.2.1"), [8, 8, 8]);
}
