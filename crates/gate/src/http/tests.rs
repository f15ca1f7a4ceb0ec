use std::string::{String, ToString};
use std::vec::Vec;

use tidegate_core::Timestamp;

use super::{Access, Form, Head, MAX_BODY_BYTES, Outcome, Plan, Response, Step, read, step};
use crate::policy::Policies;
use crate::table::{KeyHasher, Table};

const POLICIES: &str = r#"
[policies.api]
limits = [
  { algorithm = "token_bucket", name = "burst", capacity = 3, rate = "3/s" },
  { algorithm = "fixed_window", name = "minute", limit = 5, period = "1m" },
]
key = ["header:x-api-key", "ip"]
cost = { header = "x-cost" }

[policies.open]
limits = [{ algorithm = "fixed_window", limit = 5, period = "1m" }]
on_error = "open"
"#;

fn policies() -> Policies {
    Policies::parse(POLICIES).unwrap()
}

fn token() -> Access {
    Access::Token("secret".into())
}

fn send(method: &str, target: &str, headers: &[(&str, &str)]) -> Step {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let header = |name: &str| {
        headers.iter().find(|header| header.0 == name).map(|header| header.1.to_string())
    };
    let head = Head { method, path, query, header: &header, client_ip: Some("192.0.2.7") };
    step(&policies(), &token(), &head)
}

fn answer(step: Step) -> Response {
    let Step::Answer(response) = step else { panic!("{step:?}") };
    response
}

fn header<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
    response.headers.iter().find(|header| header.0 == name).map(|header| header.1.as_str())
}

const TOKEN: (&str, &str) = ("authorization", "Bearer secret");

#[test]
fn only_health_is_open_to_everyone() {
    assert_eq!(answer(send("GET", "/healthz", &[])).status, 200);
    for target in ["/v1/check", "/v1/gate?policy=api&key=k"] {
        let method = if target == "/v1/check" { "POST" } else { "GET" };
        for headers in [
            &[][..],
            &[("authorization", "Bearer wrong")],
            &[("authorization", "Bearer ")],
            &[("authorization", "secret")],
            &[("authorization", "Basic secret")],
        ] {
            let response = answer(send(method, target, headers));
            assert_eq!(response.status, 401, "{target} {headers:?}");
            assert_eq!(header(&response, "www-authenticate"), Some("Bearer"));
        }
        assert!(!matches!(send(method, target, &[TOKEN]), Step::Answer(_)));
        assert!(!matches!(
            send(method, target, &[("authorization", "bearer secret")]),
            Step::Answer(_)
        ));
    }
}

#[test]
fn without_a_token_all_is_shut_unless_the_file_says_otherwise() {
    let shut = Access::new(&policies(), None);
    assert!(matches!(shut, Access::Shut));
    assert_eq!(shut.check(Some("Bearer ")).unwrap_err().status, 401);
    assert!(matches!(Access::new(&policies(), Some(String::new())), Access::Shut));
    let open = Policies::parse(&("auth = \"none\"\n".to_string() + POLICIES)).unwrap();
    assert!(matches!(Access::new(&open, None), Access::Open));
    assert!(matches!(Access::new(&open, Some("t".into())), Access::Token(_)));
}

#[test]
fn what_is_not_there_is_said_to_be_not_there() {
    assert_eq!(answer(send("GET", "/", &[TOKEN])).status, 404);
    let response = answer(send("GET", "/v1/check", &[TOKEN]));
    assert_eq!((response.status, header(&response, "allow")), (405, Some("POST")));
}

#[track_caller]
fn refused(body: impl AsRef<[u8]>, status: u16, r#type: &str, detail: &str) {
    let response = read(&policies(), body.as_ref()).expect_err(detail);
    let problem: serde_json::Value = serde_json::from_str(&response.body).unwrap();
    assert_eq!((response.status, problem["status"].as_u64()), (status, Some(status.into())));
    assert_eq!(header(&response, "content-type"), Some("application/problem+json"));
    assert_eq!(problem["type"], r#type, "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains(detail), "{problem}");
}

#[test]
fn bad_bodies_get_a_problem_that_says_what_was_found_and_what_is_allowed() {
    let invalid = "urn:tidegate:invalid-request";
    let body = |rest: &str| std::format!("{{\"policy\":\"api\",\"key\":\"k\"{rest}}}");
    refused("", 400, invalid, "EOF");
    refused("no json", 400, invalid, "line 1 column");
    refused([0xff, 0xfe], 400, invalid, "line 1 column");
    refused("[]", 400, invalid, "");
    refused("{}", 400, invalid, "allowed are `policy`, `key` and `cost`, or `checks` alone");
    refused("{\"policy\":\"api\"}", 400, invalid, "allowed are");
    refused(body(",\"colour\":1"), 400, invalid, "unknown field `colour`, expected one of");
    refused(body("} {"), 400, invalid, "trailing characters");
    let whole = "expected a whole number from 0 to 9007199254740991";
    for cost in
        ["-1", "1.5", "1.0", "9007199254740992", "18446744073709551616", "1e99", "\"1\"", "true"]
    {
        refused(body(&std::format!(",\"cost\":{cost}")), 400, invalid, whole);
    }
    refused(body(",\"cost\":NaN"), 400, invalid, "cost: ");
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
        "there are: api, open",
    );
    let key = |key: &str| std::format!("{{\"policy\":\"api\",\"key\":\"{key}\"}}");
    refused(key(""), 400, "urn:tidegate:invalid-key", "found 0 bytes, allowed are 1 to 512");
    refused(key(&"k".repeat(10_240)), 400, "urn:tidegate:invalid-key", "found 10240 bytes");
    assert!(read(&policies(), key(&"k".repeat(512)).as_bytes()).is_ok());
    refused(" ".repeat(MAX_BODY_BYTES + 1), 413, "urn:tidegate:body-too-large", "262144 bytes");
    refused("{\"checks\":[]}", 400, invalid, "found 0, allowed are 1 to 1000");
    refused("[".repeat(200_000), 400, invalid, "");
    let batch = std::format!("{{\"checks\":[{},{}]}}", key("k"), key(""));
    refused(batch, 400, "urn:tidegate:invalid-key", "checks[1]: `key`: found 0 bytes");
}

#[test]
fn bad_gate_queries_get_one_too() {
    for (query, status, detail) in [
        ("", 400, "no field `policy`"),
        ("policy=x&key=k", 404, "there are: api, open"),
        ("policy=api&key=", 400, "found 0 bytes"),
        ("policy=api&policy=api&key=k", 400, "two fields `policy`"),
        ("policy=api&key=k&cost=-1", 400, "found \"-1\""),
        ("policy=api&key=k&cost=+1", 400, "found \" 1\""),
        ("policy=api&key=k&cost=9007199254740992", 400, "allowed is a whole number"),
        ("policy=api&key=k&cost=4", 400, "the most at once is 3"),
        ("policy=api&key=k%ff", 400, "the query field `key` is not UTF-8"),
        ("policy=api&key=k&colour=red", 400, "found the query field `colour`"),
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
        assert!(response.body.contains("allowed is a whole number from 1 to"), "{}", response.body);
    }
}

#[test]
fn a_gate_finds_its_key_and_cost_in_the_request() {
    let plan = |target: &str, headers: &[(&str, &str)]| {
        let Step::Decide(plan) = send("GET", target, headers) else { panic!() };
        (plan.checks[0].key.clone(), plan.checks[0].cost)
    };
    let api = "/v1/gate?policy=api";
    assert_eq!(plan(api, &[TOKEN]), ("ip:192.0.2.7".to_string(), 1));
    let keyed = [TOKEN, ("x-api-key", "a b"), ("x-cost", "2")];
    assert_eq!(plan(api, &keyed), ("header:x-api-key:a b".to_string(), 2));
    assert_eq!(plan("/v1/gate?policy=api&key=%C3%A9&cost=3", &keyed), ("é".to_string(), 3));
}

fn decide(plan: &Plan, table: &mut Table) -> Response {
    let policies = policies();
    let outcomes: Vec<Outcome> = plan
        .checks
        .iter()
        .map(|check| {
            let policy = &policies.all()[check.policy];
            let now = check.now.unwrap_or(Timestamp(600_000_000));
            let verdict = table.operate(policy, &check.key, now, check.cost);
            Outcome::Decided(verdict.unwrap())
        })
        .collect();
    plan.respond(&policies, &outcomes)
}

#[test]
fn a_check_answers_with_every_limit_and_the_fields_of_the_draft() {
    let mut table = Table::new(10, KeyHasher::new(0));
    let body = r#"{"policy":"api","key":"k","cost":3}"#;
    let plan = read(&policies(), body.as_bytes()).unwrap();
    let response = decide(&plan, &mut table);
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
    let refused = decide(&plan, &mut table);
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
    let plan = read(&policies(), body.as_bytes()).unwrap();
    assert_eq!(plan.checks[0].now, Some(Timestamp(7)));
    let response = decide(&plan, &mut Table::new(10, KeyHasher::new(0)));
    let body: serde_json::Value = serde_json::from_str(&response.body).unwrap();
    let allowed: Vec<_> =
        body["decisions"].as_array().unwrap().iter().map(|one| &one["allowed"]).collect();
    assert_eq!(allowed, [true, false]);
    assert_eq!(header(&response, "ratelimit"), None);
}

#[test]
fn a_gate_lets_through_or_says_when() {
    let Step::Decide(plan) = send("GET", "/v1/gate?policy=api&key=k&cost=2", &[TOKEN]) else {
        panic!()
    };
    let mut table = Table::new(10, KeyHasher::new(0));
    let passed = decide(&plan, &mut table);
    assert_eq!((passed.status, passed.body.as_str()), (204, ""));
    let refused = decide(&plan, &mut table);
    assert_eq!((refused.status, header(&refused, "retry-after")), (429, Some("1")));
    assert_eq!(header(&refused, "ratelimit"), Some("\"burst\";r=1;t=1, \"minute\";r=3"));
    let problem: serde_json::Value = serde_json::from_str(&refused.body).unwrap();
    assert_eq!(problem["violated-policies"], serde_json::json!(["burst"]));
    assert_eq!(problem["retry_after_us"], 333_334);
    assert_eq!(header(&refused, "cache-control"), Some("no-store"));
}

#[test]
fn an_outage_means_what_the_policy_says() {
    let outcome = [Outcome::Unavailable("redis: connection refused".into())];
    for (policy, allowed, status) in [("api", false, 503), ("open", true, 204)] {
        let body = std::format!("{{\"policy\":\"{policy}\",\"key\":\"k\"}}");
        let response = read(&policies(), body.as_bytes()).unwrap().respond(&policies(), &outcome);
        let answer: serde_json::Value = serde_json::from_str(&response.body).unwrap();
        assert_eq!((response.status, &answer["allowed"]), (200, &allowed.into()));
        assert_eq!(answer["degraded"], "redis: connection refused");
        let target = std::format!("/v1/gate?policy={policy}&key=k");
        let Step::Decide(plan) = send("GET", &target, &[TOKEN]) else { panic!() };
        assert_eq!(plan.respond(&policies(), &outcome).status, status);
    }
}

#[test]
fn in_shadow_everything_passes_and_says_what_would_have_been() {
    let text = "auth = 'none'
[policies.new]
shadow = true
limits = [{ algorithm = 'fixed_window', limit = 1, period = '1s' }]";
    let policies = Policies::parse(text).unwrap();
    let mut table = Table::new(10, KeyHasher::new(0));
    let mut ask = |plan: &Plan| {
        let verdict = table.operate(&policies.all()[0], &plan.checks[0].key, Timestamp(0), 1);
        plan.respond(&policies, &[Outcome::Decided(verdict.unwrap())])
    };
    let plan = read(&policies, br#"{"policy":"new","key":"k"}"#).unwrap();
    for (would_allow, wait) in [(true, 0), (false, 1_000_000)] {
        let response = ask(&plan);
        let answer: serde_json::Value = serde_json::from_str(&response.body).unwrap();
        assert_eq!(
            (&answer["allowed"], &answer["would_allow"]),
            (&true.into(), &would_allow.into())
        );
        assert_eq!(answer["retry_after_us"], wait);
        assert_eq!(header(&response, "retry-after"), None, "nobody is told to wait");
    }
    let gate = Plan { form: Form::Gate, ..plan };
    assert_eq!(ask(&gate).status, 204);
}

#[test]
fn who_is_listed_is_told_no_quota() {
    let text = "auth = 'none'
[policies.p]
deny = ['ip:192.0.2.0/24']
allow = ['ip:198.51.100.0/24']
limits = [{ algorithm = 'fixed_window', limit = 1, period = '1s' }]";
    let policies = Policies::parse(text).unwrap();
    let mut table = Table::new(10, KeyHasher::new(0));
    for (ip, status) in [("192.0.2.7", 403), ("198.51.100.7", 204), ("203.0.113.7", 204)] {
        let header = |_: &str| None;
        let (query, client_ip) = ("policy=p", Some(ip));
        let head = Head { method: "GET", path: "/v1/gate", query, header: &header, client_ip };
        let Step::Decide(plan) = step(&policies, &Access::Open, &head) else { panic!() };
        let key = &plan.checks[0].key;
        let verdict = table.operate(&policies.all()[0], key, Timestamp(0), 1).unwrap();
        let response = plan.respond(&policies, &[Outcome::Decided(verdict)]);
        assert_eq!(response.status, status, "{ip}");
        let counted = ip.starts_with("203");
        assert_eq!(self::header(&response, "ratelimit").is_some(), counted, "{ip}");
        assert_eq!(self::header(&response, "retry-after"), None, "{ip}");
    }
}
