//! Tests of the steps that middleware takes: the headers that it must read, and the forms of those that it adds.

use std::borrow::ToOwned;
use std::string::String;
use std::vec;
use std::vec::Vec;

use tidegate_gate::{KeyHasher, Operation, Policies, Table, Timestamp};

use crate::{
    Check, Exchange, Head, Headers, Keyed, OlderForm, Outcome, Served, Step, key_headers, key_of,
};

#[track_caller]
fn names(rest: &str, key: &str) -> Vec<String> {
    let limits = "limits = [{ algorithm = 'fixed_window', limit = 2, period = '1d' }]";
    let file = std::format!("{rest}\n[policies.p]\nkey = {key}\n{limits}");
    let policies = Policies::parse(&file).unwrap();
    key_headers(policies.gateway(), policies.get("p").unwrap())
}

#[test]
fn only_the_headers_that_the_sources_need_are_read() {
    assert!(names("", "['ip', 'query:a', 'country']").is_empty());
    let all = "['header:X-A', ['cookie:a', 'header:x-b'], ['cookie:b', 'header:x-a']]";
    assert_eq!(names("", all), ["x-a", "x_a", "connection", "cookie", "x-b", "x_b"]);
    assert_eq!(names("trusted_proxies = ['10.0.0.0/8']", "['ip']"), ["x-forwarded-for"]);
    let jwt = "[jwt]\nalgorithms = ['HS256']\nkeys = 'K'\nsource = 'cookie:session'";
    assert_eq!(names(jwt, "['unverified_jwt:sub', 'jwt:sub']"), ["cookie", "connection"]);
}

#[test]
fn middleware_takes_no_token_for_absent() {
    let token =
        "Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let policies = Policies::parse(
        "jwt = { algorithms = ['HS256'], keys = 'K' }\n[policies.p]\nkey = ['jwt:sub', 'ip']\n\
         limits = [{ algorithm = 'fixed_window', limit = 2, period = '1d' }]",
    )
    .unwrap();
    let key = |header: &dyn Fn(&str) -> Option<String>| {
        let client_ip = &|| "192.0.2.7".parse().ok();
        let head = Head { header, client_ip, ..Head::default() };
        key_of(policies.gateway(), policies.get("p").unwrap(), &head)
    };
    assert_eq!(key(&|_| Some(token.into())).unwrap_err().status, 500);
    assert_eq!(key(&|_| None).unwrap(), "ip:192.0.2.7");
}

/// The headers of two requests on one key, the second of which is refused.
fn both(limits: &str, form: OlderForm) -> [Headers; 2] {
    let file = std::format!("[policies.p]\nlimits = [{limits}]");
    let policies = Policies::parse(&file).unwrap();
    let policy = policies.get("p").unwrap();
    let mut table = Table::new(1 << 20, KeyHasher::new(0));
    let mut id = 0;
    [Timestamp(86_400_000_000), Timestamp(86_400_500_000)].map(|now| {
        id += 1;
        let asked = Keyed { key: "user:42", form: Some(form), ..Keyed::default() };
        let mut exchange = Exchange::of_key(policy, &asked, &mut || Some(id));
        let Step::Decide([check]) = exchange.step() else { panic!() };
        let verdict = table.ask(check.resolved(), now, &check.operation()).unwrap();
        exchange.decided(vec![Outcome::Decided(verdict)]);
        let Step::Done(served) = exchange.step() else { panic!() };
        match served {
            Served::Pass(pass) => pass.headers,
            Served::Response(response) => {
                let all = response.headers.into_iter();
                let of_limits =
                    all.filter(|(name, _)| name.contains("ratelimit") || *name == "retry-after");
                of_limits.collect()
            }
        }
    })
}

const TWO: &str = "{ name = 'm', algorithm = 'fixed_window', limit = 1, period = '1m' }, \
     { name = 'd', algorithm = 'fixed_window', limit = 9, period = '1d' }";

#[test]
fn older_forms_tell_of_the_limit_that_is_closest() {
    let own = |all: [&[(&'static str, &str)]; 2]| {
        all.map(|all| {
            all.iter().map(|(name, value)| (*name, (*value).to_owned().into())).collect::<Vec<_>>()
        })
    };
    assert_eq!(
        both(TWO, OlderForm::Draft7),
        own([
            &[
                ("ratelimit-policy", "1;w=60, 9;w=86400"),
                ("ratelimit", "limit=1, remaining=0, reset=60")
            ],
            &[
                ("ratelimit-policy", "1;w=60, 9;w=86400"),
                ("ratelimit", "limit=1, remaining=0, reset=60"),
                ("retry-after", "60")
            ],
        ])
    );
    assert_eq!(
        both(TWO, OlderForm::Draft6)[0],
        own([
            &[
                ("ratelimit-policy", "1;w=60, 9;w=86400"),
                ("ratelimit-limit", "1"),
                ("ratelimit-remaining", "0"),
                ("ratelimit-reset", "60")
            ],
            &[]
        ])[0]
    );
    assert_eq!(
        both(TWO, OlderForm::X)[1],
        own([
            &[
                ("x-ratelimit-limit", "1"),
                ("x-ratelimit-remaining", "0"),
                ("x-ratelimit-reset", "86460"), // the time, in seconds
                ("retry-after", "60")
            ],
            &[]
        ])[0]
    );
}

#[test]
fn a_lease_comes_back_at_no_known_time() {
    let leases = "{ algorithm = 'concurrency', capacity = 2, time_to_live = '30s' }";
    let [granted, _] = both(leases, OlderForm::Draft7);
    let expected =
        vec![("ratelimit-policy", "2".into()), ("ratelimit", "limit=2, remaining=1".into())];
    assert_eq!(granted, expected);
}

#[test]
fn an_unknown_form_is_refused() {
    for (name, form) in [
        ("draft-7", OlderForm::Draft7),
        ("draft-6", OlderForm::Draft6),
        ("x-ratelimit", OlderForm::X),
    ] {
        assert_eq!(name.parse(), Ok(form));
    }
    let error = "draft-5".parse::<OlderForm>().unwrap_err();
    assert_eq!(error, "expected \"draft-7\", \"draft-6\" or \"x-ratelimit\", found \"draft-5\"");
}

#[test]
fn middleware_says_the_cost_and_the_class_of_a_request() {
    let limit =
        "{ algorithm = 'fleet_usage', capacity = 10, reserve = '50%', time_to_live = '30s' }";
    let file = &std::format!("[policies.p]\nlimits = [{limit}]");
    let policies = Policies::parse(file).unwrap();
    let policy = policies.get("p").unwrap();
    let asked =
        Keyed { key: "user:42", cost: Some(3), class: Some("critical"), ..Keyed::default() };
    let mut exchange = Exchange::of_key(policy, &asked, &mut || Some(1));
    let Step::Decide([check]) = exchange.step() else { panic!("{exchange:?}") };
    let Operation::Decide(request) = check.operation() else { panic!("{check:?}") };
    assert_eq!((request.cost, Some(request.class)), (3, policy.class("critical")));

    let asked = Keyed { class: Some("x"), ..asked };
    let mut exchange = Exchange::of_key(policy, &asked, &mut || Some(1));
    let Step::Done(Served::Response(response)) = exchange.step() else { panic!("{exchange:?}") };
    assert!(response.body.contains("`class`: expected one of default, critical; found"));
}

#[test]
fn a_store_that_never_waits_is_asked_in_one_call_for_what_the_steps_lead_to() {
    let leases = "{ algorithm = 'concurrency', capacity = 1, time_to_live = '30s' }";
    let units = "{ name = 'm', algorithm = 'fixed_window', limit = 3, period = '1m' }";
    let mut all = Vec::new();
    for (limits, more) in [
        (TWO, ""),
        (TWO, "shadow = true"),
        (TWO, "deny = ['user:42']"),
        (TWO, "on_error = 'closed'"),
        (leases, ""),
        (units, "reservations = { time_to_live = '30s' }"),
    ] {
        let file = std::format!("[policies.p]\n{more}\nlimits = [{limits}]");
        let policies = Policies::parse(&file).unwrap();
        let policy = policies.get("p").unwrap();
        let reserves = more.starts_with("reservations");
        for (cost, form, away) in [
            (None, None, false),
            (Some(2), Some(OlderForm::X), false),
            (Some(10), None, false),
            (None, None, true),
        ] {
            let asked = Keyed { key: "user:42", cost, form, reserves, ..Keyed::default() };
            let mut tables = [(); 2].map(|()| Table::new(1 << 20, KeyHasher::new(0)));
            for now in [Timestamp(86_400_000_000), Timestamp(86_400_500_000)] {
                let mut decide = |table: usize, check: &Check| {
                    let verdict = tables[table].ask(check.resolved(), now, &check.operation());
                    match away {
                        true => Outcome::Unavailable("away".to_owned()),
                        false => Outcome::Decided(verdict.unwrap()),
                    }
                };
                let at_once =
                    Exchange::at_once(policy, &asked, &mut || Some(7), |check| decide(0, check));
                let mut exchange = Exchange::of_key(policy, &asked, &mut || Some(7));
                let served = loop {
                    match exchange.step() {
                        Step::Decide(checks) => {
                            let outcomes = checks.iter().map(|check| decide(1, check)).collect();
                            exchange.decided(outcomes);
                        }
                        Step::Done(served) => break served,
                        step => panic!("{step:?}"),
                    }
                };
                all.push(matches!(served, Served::Pass(_)));
                let at_once =
                    at_once.map_or_else(Served::Response, |pass| Served::Pass(pass.into()));
                assert_eq!(at_once, served, "{more} {limits} {asked:?}");
            }
        }
    }
    assert!(all.contains(&true) && all.contains(&false));
}
