use std::format;
use std::string::ToString;
use std::sync::Arc;
use std::vec::Vec;

use tidegate_core::lease::Id;
use tidegate_core::shed::{Draw, Share};
use tidegate_core::{Decision, Micros, Timestamp};

use super::{Ask, AskError, Asked};
use crate::decide::Verdict;
use crate::limit::{Budget, Grant, Operation, Request, Unspent};
use crate::policy::{Idempotency, Policy};

const LIMITS: &str = "allow = ['listed']
limits = [{ algorithm = 'fixed_window', limit = 5, period = '1m' }]";

fn policy(shadow: bool) -> Arc<Policy> {
    Arc::new(Policy::parse("p", &format!("shadow = {shadow}\n{LIMITS}")).unwrap())
}

#[test]
fn a_cost_that_the_limits_can_never_grant_is_an_error_except_in_a_shadow() {
    let (policy, shadow) = (policy(false), policy(true));
    for (json, key, too_much) in [
        (r#"{"check":{"cost":5}}"#, "k", None),
        (r#"{"check":{"cost":6}}"#, "k", Some(6)),
        (r#"{"peek":{"cost":5}}"#, "k", None),
        (r#"{"peek":{"cost":7}}"#, "k", Some(7)),
        (r#"{"check":{"cost":6}}"#, "listed", None),
        (r#"{"refund":{"units":6}}"#, "k", None),
        (r#"{"reset":{}}"#, "k", None),
    ] {
        let ask = Ask::parse(json).unwrap();
        let asked = ask.clone().resolve_any_cost(&policy, key, &mut || None).unwrap();
        assert_eq!(asked.costs_too_much(), too_much.is_some(), "{json}");
        assert!(too_much.is_none() || asked.operation().is_peek(), "{json} takes nothing");
        let found = match ask.clone().resolve(&policy, key, &mut || None) {
            Err(AskError::Cost(error)) => Some((error.cost, error.capacity)),
            found => found.map(|_| None).unwrap(),
        };
        assert_eq!(found, too_much.map(|cost| (cost, 5)), "{json}");
        assert!(ask.resolve(&shadow, key, &mut || None).is_ok(), "{json}: a shadow only reports");
    }
}

#[test]
fn an_error_in_json_names_its_field_if_it_is_in_one() {
    for (json, expected) in [
        (r#"{"check":{"cost":-1}}"#, "`check.cost`: expected a whole number from 0 to"),
        (r#"{"check":{"coost":1}}"#, "`check.coost`: expected"),
        ("[]", "expected an object, found an array"),
        ("{", "expected a name in quotes, found the end of the text at line 1, column 2"),
        (r#"{"reset":{}} {}"#, "expected the end of the text, found `{` at line 1, column 14"),
        (r#"{"check":[]}"#, "`check`: expected an object, found an array"),
        (r#"{"check":null}"#, "`check`: expected an object, found null"),
        (r#"{"reset":null}"#, "`reset`: expected an object, found null"),
        (r#"{"reset":{"a":1}}"#, "`reset.a`: expected no field, found the field \"a\""),
        (r#"{"reset":{},"peek":{}}"#, "`peek`: expected no other field, found the field \"peek\""),
        ("{}", "expected one field, found an object"),
    ] {
        let error = Ask::parse(json).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{json}: {error}");
    }
}

#[test]
fn a_peek_asks_for_nothing_and_for_no_lease_unless_it_says_so() {
    let limits = "limits = [{ algorithm = 'concurrency', capacity = 5, time_to_live = '1m' }]";
    let policy = Arc::new(Policy::parse("p", limits).unwrap());
    let peeked = |json: &str| {
        let ask = Ask::parse(json).unwrap();
        let asked = ask.resolve(&policy, "k", &mut || Some(7)).unwrap();
        let Operation::Peek(Request { cost, lease, .. }) = asked.operation() else {
            panic!("{json}")
        };
        assert_eq!(asked.lease(), None, "{json} acquires none");
        (cost, lease == Some(asked.resolved().lease_id("a")), lease.is_none())
    };
    assert_eq!(peeked(r#"{"peek":{}}"#), (0, false, true));
    assert_eq!(peeked(r#"{"peek":{"cost":2}}"#), (2, false, true));
    assert_eq!(peeked(r#"{"peek":{"cost":2,"lease":"a"}}"#), (2, true, false));
}

const SEVERAL: [(&str, &str); 4] = [
    ("rate", "{ algorithm = 'token_bucket', capacity = 5, rate = '1/s' }"),
    ("jobs", "{ algorithm = 'concurrency', capacity = 5, time_to_live = '1m' }"),
    ("busy", "{ algorithm = 'utilization' }"),
    (
        "budget",
        "{ algorithm = 'fixed_window', limit = 50, period = '1m' }, { algorithm = 'budget', most = 50, time = '1m' }",
    ),
];

/// An operation under the limit of this name, where all random numbers are this one.
fn asked(name: &str, json: &str, random: Option<u64>) -> Result<Asked, AskError> {
    let (_, limit) = SEVERAL.into_iter().find(|(own, _)| *own == name).unwrap();
    let reservations = if name == "rate" { "reservations = {}\n" } else { "" };
    let policy = Policy::parse("p", &format!("{reservations}limits = [{limit}]")).unwrap();
    Ask::parse(json).unwrap().resolve_any_cost(&policy.into(), "k", &mut || random)
}

#[test]
fn a_request_for_a_lease_takes_one() {
    let lease = |name, json| asked(name, json, Some(7)).unwrap().require_lease();
    assert_eq!(lease("jobs", r#"{"check":{}}"#), Ok(()));
    assert_eq!(lease("jobs", r#"{"check":{"cost":6}}"#), Ok(()), "it is refused for ever");
    assert_eq!(lease("jobs", r#"{"check":{"cost":0}}"#), Err(AskError::FreeLease));
    let none = Err(AskError::NoLeases { policy: "p".into() });
    assert_eq!(lease("rate", r#"{"check":{}}"#), none);
    for json in [r#"{"renew":{"lease":"a"}}"#, r#"{"release":{"lease":"a"}}"#] {
        assert_eq!(asked("rate", json, None).map(|_| ()), none, "{json}");
        assert_eq!(asked("jobs", json, None).unwrap().lease(), Some("a"));
    }
}

#[test]
fn a_lease_has_the_callers_name_or_a_drawn_one() {
    let named = |json| {
        let asked = asked("jobs", json, Some(7)).unwrap();
        let Operation::Decide(Request { lease, .. }) = asked.operation() else { panic!("{json}") };
        let name = asked.lease().map(ToString::to_string);
        assert_eq!(lease, name.as_deref().map(|name| asked.resolved().lease_id(name)), "{json}");
        name
    };
    let drawn = "00000000000000070000000000000007";
    assert_eq!(named(r#"{"check":{}}"#).as_deref(), Some(drawn));
    assert_eq!(named(r#"{"check":{"lease":"a"}}"#).as_deref(), Some("a"));
    assert_eq!(named(r#"{"check":{"cost":0}}"#), None);
    let nameless = asked("jobs", r#"{"check":{}}"#, None);
    assert_eq!(nameless.map(|_| ()), Err(AskError::NoRandomness));
    let free = asked("jobs", r#"{"check":{"cost":0,"lease":"a"}}"#, None).unwrap();
    assert_eq!(free.lease(), None, "a request without a cost acquires none");
}

#[test]
fn only_what_makes_or_ends_a_reservation_is_of_one() {
    let is_of = |json| asked("rate", json, Some(7)).unwrap().is_of_reservation();
    assert!(is_of(r#"{"reserve":{"cost":1}}"#) && is_of(r#"{"commit":{"id":"a","actual":1}}"#));
    assert!(!is_of(r#"{"check":{}}"#) && !is_of(r#"{"refund":{"units":1}}"#));
}

#[test]
fn a_request_has_the_signal_and_the_draw_of_its_caller() {
    let of = |name, json, random| {
        let asked = asked(name, json, random).unwrap();
        let request = match asked.operation() {
            Operation::Decide(request) | Operation::Peek(request) => request,
            other => panic!("{other:?}"),
        };
        assert_eq!(asked.draw(), Some(request.draw));
        (request.signal, request.draw)
    };
    let random = Some(9 << 32 | 1);
    assert_eq!(of("busy", r#"{"check":{}}"#, random), (None, Draw(9)));
    assert_eq!(of("busy", r#"{"check":{}}"#, None), (None, Draw(0)), "shed whatever may be shed");
    let own = r#"{"check":{"draw":5,"signal_ppm":700000}}"#;
    assert_eq!(of("busy", own, random), (Share::from_ppm(700_000), Draw(5)));
    assert_eq!(of("rate", r#"{"check":{}}"#, random), (None, Draw(0)), "nothing is shed");
    assert_eq!(of("rate", r#"{"reserve":{"cost":1,"draw":3}}"#, random), (None, Draw(3)));
    assert_eq!(of("busy", r#"{"peek":{}}"#, random), (None, Draw(0)), "whatever is drawn");
    assert_eq!(asked("rate", r#"{"reset":{}}"#, None).unwrap().draw(), None);
}

#[test]
fn a_cost_that_is_too_high_is_refused_for_ever() {
    let (limit, reset_after) = (5, Micros(1));
    let decision = Decision::Allow { limit, remaining: 5, reset_after };
    let verdict = Verdict::listed(Timestamp(7), decision);
    let said = |json| asked("rate", json, None).unwrap().said(verdict.clone()).decision;
    assert_eq!(said(r#"{"check":{"cost":5}}"#), decision);
    let refused = said(r#"{"check":{"cost":6}}"#);
    assert_eq!((refused.is_allowed(), refused.retry_after()), (false, Micros::MAX));
}

#[test]
fn a_refund_names_its_grant_whole_or_not_at_all() {
    let refund = |rest: &str| {
        let json = format!("{{\"refund\":{{\"units\":3{rest}}}}}");
        asked("rate", &json, None).map(|asked| asked.operation())
    };
    assert_eq!(refund(""), Ok(Operation::Refund(3)));
    let of = |units| Operation::RefundOf(Grant { at: Timestamp(8), units }, 3);
    assert_eq!(refund(r#","granted_at_us":8,"granted":4"#), Ok(of(4)));
    assert_eq!(refund(r#","granted_at_us":8,"granted":3"#), Ok(of(3)));
    let beyond = Err(AskError::BeyondGrant { units: 3, granted: 2 });
    assert_eq!(refund(r#","granted_at_us":8,"granted":2"#), beyond);
    for half in [r#","granted_at_us":8"#, r#","granted":3"#] {
        assert_eq!(refund(half), Err(AskError::HalfGrant));
    }
}

#[test]
fn a_holder_returns_units_with_the_time_of_their_grant_or_none() {
    let budget = |rest: &str| {
        let json = format!("{{\"budget\":{{\"lease\":\"a\",\"wants\":3{rest}}}}}");
        asked("budget", &json, None).map(|asked| match asked.operation() {
            Operation::Budget(Budget { wants, unspent, .. }) => (wants, unspent),
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(budget(""), Ok((3, None)));
    let unspent = Unspent { granted_at: Timestamp(8), left: 2 };
    assert_eq!(budget(r#","granted_at_us":8,"left":2"#), Ok((3, Some(unspent))));
    for half in [r#","granted_at_us":8"#, r#","left":2"#] {
        assert_eq!(budget(half), Err(AskError::HalfUnspent));
    }
}

#[test]
fn an_operation_needs_a_limit_of_its_algorithm() {
    let connections = r#"{"renew":{"lease":"a","count":2}}"#;
    let budget = r#"{"budget":{"lease":"a","wants":3}}"#;
    let report = r#"{"report":{"admitted":1,"suppressed":0}}"#;
    for (name, json, algorithm) in [
        ("jobs", connections, "connections"),
        ("rate", budget, "budget"),
        ("busy", report, "suppression"),
    ] {
        let missing = asked(name, json, None).map(|_| ());
        assert_eq!(missing, Err(AskError::NoLimit { policy: "p".into(), algorithm }), "{json}");
    }
    assert!(asked("budget", budget, None).is_ok());
}

#[test]
fn what_a_request_took_is_given_back() {
    let granted = Decision::Allow { limit: 5, remaining: 3, reset_after: Micros(1) };
    let (limit, remaining, retry_after) = (5, 3, Micros(1));
    let refused = Decision::Deny { limit, remaining, retry_after, reset_after: retry_after };
    let of = |decision| Verdict::listed(Timestamp(7), decision);
    let undone = |asked: Asked, verdict: Option<Decision>| {
        let verdict = verdict.map(of);
        asked.undone(verdict.as_ref()).iter().map(Asked::operation).collect::<Vec<_>>()
    };
    let ask = |name, json| asked(name, json, Some(7)).unwrap();
    let two = r#"{"check":{"cost":2}}"#;
    let back = Operation::RefundOf(Grant { at: Timestamp(7), units: 2 }, 2);
    assert_eq!(undone(ask("rate", two), Some(granted)), [back]);
    assert_eq!(undone(ask("rate", two), None), [], "it is not known whether it took them");
    assert_eq!(undone(ask("rate", two), Some(refused)), []);
    assert_eq!(undone(ask("rate", r#"{"check":{"cost":0}}"#), Some(granted)), []);
    assert_eq!(undone(ask("rate", r#"{"refund":{"units":1}}"#), Some(granted)), []);
    let listed = Ask::parse(two).unwrap().resolve(&policy(false), "listed", &mut || None).unwrap();
    assert_eq!(undone(listed, Some(granted)), []);
    let lease = ask("jobs", r#"{"check":{"cost":2,"lease":"a"}}"#);
    let release = Operation::Release(lease.resolved().lease_id("a"));
    assert_eq!(undone(lease.clone(), Some(granted)), [back, release]);
    assert_eq!(undone(lease, None), [release]);
    let reserved = ask("rate", r#"{"reserve":{"cost":2,"id":"a"}}"#);
    let commit = Operation::Commit(reserved.resolved().lease_id("a"), 0);
    assert_eq!([undone(reserved.clone(), Some(granted)), undone(reserved, None)], [[commit]; 2]);
}

#[test]
fn a_span_is_written_in_microseconds_or_with_its_unit() {
    let span = |written: &str| {
        let json = format!("{{\"block\":{{\"for\":{written}}}}}");
        match asked("rate", &json, None).unwrap().operation() {
            Operation::Block(span) => span.0,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((span("90000000"), span("\"90s\"")), (90_000_000, 90_000_000));
    for (written, found) in [("null", "null"), ("-1", "the integer `-1`")] {
        let error = Ask::parse(&format!(r#"{{"block":{{"for":{written}}}}}"#)).unwrap_err();
        let expected = format!(
            "`block.for`: expected a whole number from 0 to 9007199254740991 in µs, or a span such as \"90s\"; found {found}"
        );
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn an_owner_has_fewer_than_2_to_the_32_connections() {
    for (count, fits) in [(u64::from(u32::MAX), true), (1 << 32, false)] {
        let json = format!("{{\"renew\":{{\"lease\":\"a\",\"count\":{count}}}}}");
        assert_eq!(Ask::parse(&json).is_ok(), fits, "{count}");
    }
}

#[test]
fn a_repeat_is_known_if_the_policy_keeps_answers() {
    let idempotency = Idempotency { id: Id([0, 1]), request: 7 };
    for more in ["idempotency = '1m'", ""] {
        let policy = Policy::parse("p", &format!("{more}\n{LIMITS}")).unwrap();
        let ask = Ask::parse(r#"{"check":{}}"#).unwrap();
        let asked = ask.resolve(&policy.into(), "k", &mut || None).unwrap();
        let known = asked.known_by(idempotency);
        match more {
            "" => assert!(matches!(known, Err(AskError::NoIdempotency { .. })), "{known:?}"),
            _ => assert_eq!(known.unwrap().resolved().idempotency(), Some(idempotency)),
        }
    }
}

#[test]
fn only_limits_that_can_never_grant_the_cost_refuse_for_ever() {
    let policy = "shadow = true
        limits = [
          { algorithm = 'fixed_window', limit = 5, period = '1m' },
          { algorithm = 'fixed_window', limit = 9, period = '1m' },
        ]";
    let policy = Arc::new(Policy::parse("p", policy).unwrap());
    let ask = Ask::parse(r#"{"check":{"cost":9}}"#).unwrap();
    let asked = ask.resolve(&policy, "k", &mut || None).unwrap();
    let looked = policy.limits();
    let mut words = std::vec![0; looked.words()];
    let verdict = looked.operate(&mut words, Timestamp(7), &asked.operation()).unwrap();
    let said = asked.said(verdict);
    let waits = [said.decision, said.limits[0], said.limits[1]].map(|said| said.retry_after());
    assert_eq!(waits, [Micros::MAX, Micros::MAX, Micros::ZERO]);
}

#[test]
fn a_request_is_looked_at_as_a_peek() {
    let check = asked("rate", r#"{"check":{"cost":2}}"#, None).unwrap();
    let Operation::Decide(request) = check.operation() else { panic!("{check:?}") };
    assert_eq!(check.looked().operation(), Operation::Peek(request));
    let reset = asked("rate", r#"{"reset":{}}"#, None).unwrap();
    assert_eq!(reset.looked(), reset);
}

#[test]
fn some_requests_leave_something_and_some_payers_keep_all() {
    let window = "algorithm = 'fixed_window', limit = 5, period = '1m'";
    let payers = format!(
        "{{ name = 'a', {window}, payer = true }}, {{ name = 'b', {window}, payer = true }}"
    );
    let first = format!("{{ {window}, start = 'first' }}");
    let window = format!("{{ {window} }}");
    let bucket = "{ algorithm = 'token_bucket', capacity = 5, rate = '1/s' }";
    let (check, reserve) = (r#"{"check":{}}"#, r#"{"reserve":{"cost":1}}"#);
    for (limits, more, json, leaves_nothing, keeps_units) in [
        (window.as_str(), "", check, true, false),
        (&first, "", check, false, false), // the window goes on
        (bucket, "", check, false, false), // what may have flowed in
        (bucket, "reservations = {}", check, false, false),
        (bucket, "reservations = {}", reserve, true, false),
        (&payers, "", check, false, true),
        (&payers, "", r#"{"check":{"cost":0}}"#, true, false),
        (&payers, "reservations = {}", reserve, true, false),
        (&payers, "reservations = {}", check, false, true),
    ] {
        let policy = Policy::parse("p", &format!("{more}\nlimits = [{limits}]")).unwrap();
        let ask = Ask::parse(json).unwrap();
        let asked = ask.resolve(&policy.into(), "k", &mut || Some(7)).unwrap();
        let found = (asked.leaves_nothing(), asked.keeps_units());
        assert_eq!(found, (leaves_nothing, keeps_units), "{limits} {more} {json}");
    }
}
