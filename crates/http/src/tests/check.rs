mod bodies;

use std::vec::Vec;

use serde_json::{Value, json};
use tidegate_gate::{Draw, Operation, Policies, Timestamp};

use super::{
    POLICIES, SECOND, START, Server, about, header, policies, read_check, read_check_with,
};

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
