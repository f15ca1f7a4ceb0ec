//! `POST /v1/check` with `all_or_nothing`.

use std::format;
use std::string::String;
use std::vec;
use std::vec::Vec;

use serde_json::{Value, json};

use super::{Server, header};
use crate::{Exchange, Outcome, Step};

const POLICIES: &str = "
[policies.address]
limits = [{ algorithm = 'fixed_window', limit = 3, period = '1m' }]
[policies.key]
limits = [{ algorithm = 'fixed_window', limit = 2, period = '1h' }]
[policies.open]
on_error = 'open'
limits = [{ algorithm = 'fixed_window', limit = 4, period = '1h' }]
[policies.jobs]
limits = [{ algorithm = 'concurrency', capacity = 1, time_to_live = '1m' }]
[policies.plans]
limits = [
  { algorithm = 'fixed_window', name = 'plan', limit = 5, period = '1d', payer = true },
  { algorithm = 'fixed_window', name = 'credits', limit = 6, period = '1d', payer = true },
]";

/// A call with checks of these policies, each with its cost.
fn body(checks: &[(&str, u64)]) -> String {
    let check = |(policy, cost): &(&str, u64)| {
        format!("{{\"policy\":\"{policy}\",\"key\":\"k\",\"cost\":{cost}}}")
    };
    let checks = checks.iter().map(check).collect::<Vec<_>>().join(",");
    format!("{{\"checks\":[{checks}],\"all_or_nothing\":true}}")
}

/// Whether all passed, and for each decision whether it did, what remained and whether its units came back.
fn decided(answer: &Value) -> (bool, Vec<(bool, u64, Option<bool>)>) {
    let each = answer["decisions"].as_array().unwrap().iter().map(|decision| {
        let (allowed, remaining) = (decision["allowed"].as_bool(), decision["remaining"].as_u64());
        (
            allowed.unwrap(),
            remaining.unwrap(),
            decision.get("returned").map(|one| one.as_bool().unwrap()),
        )
    });
    (answer["allowed"].as_bool().unwrap(), each.collect())
}

#[test]
fn checks_are_granted_together_or_not_at_all() {
    let mut server = Server::new(POLICIES);
    let mut ask = |checks: &[(&str, u64)]| decided(&server.post("/v1/check", &body(checks)));
    assert_eq!(ask(&[("address", 1), ("key", 1)]), (true, vec![(true, 2, None), (true, 1, None)]));
    let refused = ask(&[("address", 1), ("key", 2), ("open", 1)]);
    assert_eq!(refused, (false, vec![(true, 1, Some(true)), (false, 1, None)]));
    assert_eq!(ask(&[("address", 0), ("open", 0)]), (true, vec![(true, 2, None), (true, 4, None)]));
    assert_eq!(ask(&[("address", 3), ("key", 1)]), (false, vec![(false, 2, None)]));
    assert_eq!(ask(&[("key", 1)]), (true, vec![(true, 0, None)]));
    let twice = ask(&[("address", 2), ("open", 2), ("key", 1)]);
    assert_eq!(
        twice,
        (false, vec![(true, 0, Some(true)), (true, 2, Some(true)), (false, 0, None)])
    );
    assert!(ask(&[("address", 2), ("open", 4)]).0);
}

#[test]
fn a_lease_of_a_refused_call_is_released() {
    let mut server = Server::new(POLICIES);
    let mut held = |lease: &str, cost: u64| {
        let job = format!("{{\"policy\":\"jobs\",\"key\":\"k\",\"lease\":\"{lease}\"}},");
        let body = body(&[("key", cost)]).replace("[", &format!("[{job}"));
        server.post("/v1/check", &body)["allowed"].as_bool().unwrap()
    };
    assert!(held("a", 2));
    assert!(!held("b", 0), "all places are taken");
    assert!(!held("a", 1), "the key has no more units, and the lease is released");
    assert!(held("b", 0));
}

#[test]
fn an_answer_says_if_units_may_not_have_come_back() {
    let mut server = Server::new(POLICIES);
    server.post("/v1/check", &body(&[("key", 2)]));
    let call = ("POST", "/v1/check");
    let mut exchange = super::sent(&server.policies, &crate::Access::OPEN, call, &[]);
    exchange.body(Ok(body(&[("open", 1), ("address", 1), ("key", 1)]).into()), &mut || Some(7));
    let away = || Outcome::Unavailable("away".into());
    let mut round = |exchange: &mut Exchange, is_away: &[bool]| {
        let Step::Decide(checks) = exchange.step() else { panic!("{exchange:?}") };
        assert_eq!(checks.len(), is_away.len());
        let each = checks.iter().zip(is_away);
        let each =
            each.map(|(check, away_now)| if *away_now { away() } else { server.decide(check) });
        let outcomes = each.collect();
        exchange.decided(outcomes);
    };
    round(&mut exchange, &[true]); // passes by `on_error`, and may have taken its unit
    round(&mut exchange, &[false]);
    round(&mut exchange, &[false]); // refused
    round(&mut exchange, &[true]); // the undo of the second
    let answer = super::json(&super::answer(exchange));
    let returned: Vec<_> =
        answer["decisions"].as_array().unwrap().iter().map(|one| &one["returned"]).collect();
    assert_eq!(returned, [&json!(false), &json!(false), &Value::Null]);
}

#[test]
fn calls_that_are_no_such_call_are_refused() {
    let mut server = Server::new(POLICIES);
    let nine = body(&[("key", 1); 9]);
    for (body, detail) in [
        (
            "{\"checks\":[],\"all_or_nothing\":true}",
            "`checks`: expected 1 to 8 checks beside `all_or_nothing`, found 0",
        ),
        (&nine, "`checks`: expected 1 to 8 checks beside `all_or_nothing`, found 9"),
        (
            "{\"policy\":\"key\",\"key\":\"k\",\"all_or_nothing\":true}",
            "`all_or_nothing`: expected `checks` beside it, found none",
        ),
        ("{\"checks\":[],\"all_or_nothing\":1}", "`all_or_nothing`: expected"),
        (
            &body(&[("plans", 1), ("key", 1)]),
            "`checks[0]`: expected a policy without `payer` in every check but the last",
        ),
    ] {
        server.refuses(("POST", "/v1/check"), body, detail);
    }
    assert!(
        server.post("/v1/check", &body(&[("key", 1), ("plans", 1)]))["allowed"].as_bool().unwrap()
    );
    let unknown = server.call("POST", "/v1/check", &body(&[("key", 1), ("unknown", 1)]));
    assert_eq!(
        (unknown.status, header(&unknown, "content-type")),
        (404, Some("application/problem+json"))
    );
    assert_eq!(
        decided(&server.post("/v1/check", &body(&[("key", 0)]))).1[0].1,
        1,
        "nothing was decided"
    );
    let plain = body(&[("key", 2), ("address", 1)]).replace("true}", "false}");
    assert_eq!(server.post("/v1/check", &plain).get("allowed"), None, "a batch as before");
}

#[test]
fn units_of_a_bucket_come_back_however_long_the_answers_take() {
    let mut server = Server::new(
        "[policies.bucket]
         limits = [{ algorithm = 'token_bucket', capacity = 100, rate = '100/s' }]
         [policies.key]
         limits = [{ algorithm = 'fixed_window', limit = 1, period = '1h' }]
         [policies.last]
         limits = [{ algorithm = 'fixed_window', limit = 1, period = '1d' }]",
    );
    server.post("/v1/check", &body(&[("last", 1)]));
    server.post("/v1/check", &body(&[("bucket", 50)]));
    let call = ("POST", "/v1/check");
    let mut exchange = super::sent(&server.policies, &crate::Access::OPEN, call, &[]);
    let checks = body(&[("bucket", 1), ("key", 1), ("last", 1), ("key", 1)]);
    exchange.body(Ok(checks.into()), &mut || Some(7));
    while let Step::Decide(checks) = exchange.step() {
        server.now.0 += 1_000;
        let outcomes = checks.iter().map(|check| server.decide(check)).collect();
        exchange.decided(outcomes);
        if let Step::Done(served) = exchange.step() {
            let crate::Served::Response(response) = served else { panic!() };
            let answer = super::json(&response);
            let expected = vec![(true, 49, Some(true)), (true, 0, Some(true)), (false, 0, None)];
            assert_eq!(decided(&answer), (false, expected));
            break;
        }
    }
    assert!(decided(&server.post("/v1/check", &body(&[("key", 1)]))).0);
}
