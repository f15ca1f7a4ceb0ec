use std::format;
use std::string::ToString;
use std::sync::Arc;

use super::{Ask, AskError};
use crate::limit::{Operation, Request};
use crate::policy::Policy;

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
