//! Overrides of one key for a time.

use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

use proptest::prelude::*;
use tidegate_core::{Micros, Timestamp};

use crate::limit::Operation;
use crate::policy::{Policies, PolicyError, Resolved, TimedOverride, TimedPolicies};
use crate::state::Transaction;
use crate::table::{KeyHasher, Table};

const FILE: &str = "[policies.api]
limits = [{ algorithm = 'fixed_window', limit = 5, period = '1m' }]
overrides = { vip = { limit = 8 }, 'vip-*' = { limit = 9 } }
[policies.two]
limits = [
  { algorithm = 'fixed_window', limit = 5, period = '1m' },
  { algorithm = 'fixed_window', limit = 50, period = '1h' },
]
";

fn own(policy: &str, key: &str, fields: &str) -> TimedOverride {
    TimedOverride::new(policy, key, "alice", fields).unwrap()
}

/// The capacity of the rule for a key, and what the text says of its time.
fn rule(text: &str, key: &str, now: u64) -> (u64, Option<u64>, Option<u64>) {
    let timed = TimedPolicies::parse(text, Timestamp(now)).unwrap();
    let policy = timed.policies.get("api").unwrap();
    let limits = policy.limits_of_rule(policy.rule_number(key).unwrap()).unwrap();
    (limits.capacity(), timed.since.map(|at| at.0), timed.ends.map(|at| at.0))
}

#[test]
fn an_override_holds_until_its_end() {
    let all = [
        own("api", "alice", r#"{"limit": 50, "until_us": 10}"#),
        own("api", "vip", r#"{"until_us": 20, "limit": 60}"#),
        own("api", "ip:::ffff:192.0.2.1", r#"{"until_us": 30, "limit": 70}"#),
        own("gone", "alice", r#"{"until_us": 40, "limit": 70}"#),
    ];
    let text = TimedOverride::join(FILE, &all);
    assert_eq!([&text, FILE].map(TimedOverride::file_of), [FILE; 2]);
    for (key, now, expected) in [
        ("alice", 9, (50, None, Some(10))),
        ("alice", 10, (5, Some(10), Some(20))),
        ("vip", 19, (60, Some(10), Some(20))),
        ("vip", 20, (8, Some(20), Some(30))),
        ("vip-1", 9, (9, None, Some(10))),
        ("ip:192.0.2.1", 29, (70, Some(20), Some(30))),
        ("ip:192.0.2.1", 30, (5, Some(30), Some(40))),
        ("alice", 40, (5, Some(40), None)),
    ] {
        assert_eq!(rule(&text, key, now), expected, "{key} at {now}");
    }
    assert_eq!(Policies::parse(&text), Policies::parse(FILE), "to TOML the lines are comments");
}

#[test]
fn an_override_may_have_all_limits() {
    let limits = r#"{"limits": [{"algorithm": "token_bucket", "capacity": 7, "rate": "1/s"}], "until_us": 9}"#;
    let text = TimedOverride::join(FILE, &[own("two", "a", limits)]);
    let policies = TimedPolicies::parse(&text, Timestamp(1)).unwrap().policies;
    assert_eq!(policies.get("two").unwrap().overrides()[0].1.capacity(), 7);
}

#[test]
fn a_text_is_split_as_it_was_joined() {
    let all = [
        own("api", "a\"b\\c\n\u{7f}é", "{\"until_us\":\n 10,\r\n\"limit\": 1}"),
        TimedOverride::new("api", "b", "\"override\":{ x\\", r#"{"until_us":5,"limit":2}"#)
            .unwrap(),
    ];
    let text = TimedOverride::join(FILE, &all);
    assert_eq!(TimedOverride::split(&text), (FILE, all.to_vec()));
    assert_eq!(TimedOverride::join(FILE, &[]), FILE);
    let json = r#"{"policies": {"api": {"limits": [{"algorithm": "fixed_window", "limit": 5, "period": "1m"}]}}}"#;
    assert_eq!(rule(&TimedOverride::join(json, &all[1..]), "b", 1), (2, None, Some(5)));
    let foreign = format!("{text}# what is this\nor that\n# {{}}\n");
    assert_eq!(TimedOverride::split(&foreign).1, all, "other lines are no overrides");
}

#[test]
fn a_wrong_override_is_refused() {
    for (key, fields, expected) in [
        ("", "{\"until_us\":1}", "`key`: expected 1 to 512 bytes, found 0"),
        ("a*", "{\"until_us\":1}", "`key`: expected one key"),
        ("ip:10.0.0.0/8", "{\"until_us\":1}", "`key`"),
        ("a", "", "expected"),
        ("a", "[]", "an object"),
        ("a", "{\"limit\":1}", "missing field `until_us`"),
        ("a", "{\"until_us\":0}", "`until_us`: expected a whole number from 1 to 9007199254740991"),
        ("a", "{\"until_us\":\"soon\"}", "`until_us`: expected"),
        ("a", "{\"until_us\":1} {}", "expected"),
        ("a", "{\"until_us\":1}", "expected `limits`, or a field of the policy's limit"),
    ] {
        let error = TimedOverride::new("api", key, "alice", fields).unwrap_err();
        assert!(error.contains(expected), "{key} {fields}: {error}");
    }
    let long = format!("{{\"until_us\":1,\"name\":\"{}\"}}", "a".repeat(2_048));
    assert!(TimedOverride::new("api", "a", "", &long).unwrap_err().contains("at most 2048 bytes"));
    let wrong = |policy: &str, fields: &str| -> PolicyError {
        let text = TimedOverride::join(FILE, &[own(policy, "a", fields)]);
        TimedPolicies::parse(&text, Timestamp(1)).unwrap_err()
    };
    for (policy, fields, expected) in [
        ("api", r#"{"until_us":9,"capacity":4}"#, "api.overrides.a.capacity: expected one of"),
        ("api", r#"{"until_us":9,"limit":4,"until_us":9}"#, "until_us"),
        ("two", r#"{"until_us":9,"limit":4}"#, "expected `limits` with all limits of these keys"),
        (
            "two",
            r#"{"until_us":9,"limits":[{"algorithm":"fixed_window","limit":4,"period":"1m","depth":1}]}"#,
            "policies.two.overrides: expected overrides of one key that leave the smallest `depth`",
        ),
    ] {
        let error = wrong(policy, fields).to_string();
        assert!(error.contains(expected), "{policy} {fields}: {error}");
    }
}

#[test]
fn overrides_are_bounded_and_replace_each_other() {
    let mut all = Vec::new();
    for number in 0..100 {
        own("api", &number.to_string(), r#"{"until_us":9,"limit":4}"#).put(&mut all).unwrap();
    }
    own("api", "7", r#"{"until_us":8,"limit":4}"#).put(&mut all).unwrap();
    assert_eq!(all.len(), 100);
    let error = own("api", "100", r#"{"until_us":9,"limit":4}"#).put(&mut all).unwrap_err();
    assert!(error.starts_with("expected at most 100 overrides"), "{error}");
}

proptest! {
    #[test]
    fn any_key_and_any_actor_come_back(key in "[^*]{1,60}", by: String, until in 1..100_u64) {
        let fields = format!("{{\"until_us\":{until},\"limit\":7}}");
        let Ok(own) = TimedOverride::new("api", &key, &by, &fields) else {
            prop_assert!(key.starts_with("ip:"), "{}", key);
            return Ok(());
        };
        let text: String = TimedOverride::join(FILE, core::slice::from_ref(&own));
        prop_assert_eq!(TimedOverride::split(&text), (FILE, [own].to_vec()));
    }
}

#[test]
fn a_wait_is_the_first_moment_of_a_grant_over_the_end_of_an_override() {
    const SECOND: u64 = 1_000_000;
    let file = "[policies.api]\nlimits = [{ algorithm = 'fixed_window', limit = 5, period = '1h', start = 'first' }]\n";
    let fields = r#"{"limit": 2, "period": "1d", "until_us": 3600000000}"#;
    let text = TimedOverride::join(file, &[own("api", "k", fields)]);
    let key = |text: &str, now| {
        let timed = TimedPolicies::parse(text, Timestamp(now)).unwrap();
        Resolved::new(timed.policies.get("api").unwrap(), "k").unwrap()
    };
    for (before, wait) in [(0, 3590 * SECOND), (5, 3601 * SECOND)] {
        let (plain, timed) = (key(file, 0), key(&text, 0));
        let mut table = Table::new(1 << 20, KeyHasher::new(2));
        let mut transaction = Transaction::default();
        let mut ask = |key: &Resolved, at: u64, cost: u64| {
            let (at, cost) = (Timestamp(at), Operation::from(cost));
            let said = table.ask(key, at, &cost).unwrap();
            let joined = transaction.join(key);
            assert_eq!(transaction.operate(&joined, at, &cost).unwrap().verdict, said);
            transaction.stored(|_| Micros::ZERO);
            (said.at.0, said.decision.is_allowed(), said.decision.retry_after().0)
        };
        // the former rule has a window from second 11 to 3611
        let _ = ask(&plain, 11 * SECOND, before);
        assert!(ask(&timed, 10 * SECOND, 2).1);
        let (at, _, named) = ask(&timed, 10 * SECOND, 1);
        assert_eq!((at, named), (10 * SECOND, wait), "{before}");
        let passes = 10 * SECOND + wait;
        let then = key(&text, passes);
        assert!(ask(&then, passes, 1).1);
        // a request that came before the end and waited is decided before it
        let (at, passed, _) = ask(&timed, 3605 * SECOND, 1);
        assert_eq!((at, passed), (3600 * SECOND - 1, false));
    }
}
