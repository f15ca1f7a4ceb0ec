//! What nodes may do without asking.

use std::string::ToString;
use std::vec::Vec;

use tidegate_core::Micros;

use crate::{Depth, Kind, Policies, Policy, Resolved};

const LIMIT: &str = "{ algorithm = 'fixed_window', limit = 5, period = '1s' }";

fn policy(limits: &str, rest: &str) -> Policy {
    Policy::parse("api", &std::format!("limits = [{limits}]\n{rest}")).unwrap()
}

#[test]
fn nodes_ask_for_every_request_unless_the_policy_says_otherwise() {
    let strict = policy(LIMIT, "");
    assert_eq!((strict.remember(), strict.local()), (None, None));
    assert!(!strict.lets_nodes_answer());
    assert!(strict.describe_nodes().is_empty());
    let remembers = policy(LIMIT, "remember = '2s'");
    assert_eq!((remembers.remember(), remembers.local()), (Some(Micros(2_000_000)), None));
    assert_eq!(remembers.limits(), strict.limits());
    assert!(remembers.lets_nodes_answer());
    for limit in [LIMIT, "{ algorithm = 'sliding_log', rates = ['10/m'] }"] {
        assert!(policy(limit, "local = { most = 1, time = '1s' }").lets_nodes_answer(), "{limit}");
    }
}

#[test]
fn each_rule_gets_the_budget_that_nodes_may_take() {
    let policy =
        policy(LIMIT, "local = { most = 100, time = '1s' }\noverrides = { vip = { limit = 9 } }");
    let local = policy.local().unwrap();
    assert_eq!((local.most(), local.max_holders()), (100, 64));
    for limits in [policy.limits(), &policy.overrides()[0].1] {
        let named: Vec<_> = limits.iter().collect();
        assert_eq!((named[0].name.as_str(), named[1].name.as_str()), ("api", "local"));
        assert_eq!((named[1].limit.kind(), named[1].depth), (Kind::Budget, Depth::Whole));
        assert_eq!(limits.capacity(), named[0].limit.capacity());
    }
    let words = policy.describe_nodes();
    assert!(words[0].contains("what the limits grant in the span and 1 s"), "{words:?}");
}

#[test]
fn nodes_may_report_under_a_suppression() {
    let limit = "{ algorithm = 'suppression', rate = '100/s' }";
    assert!(!policy(limit, "").reports() && !policy(limit, "").lets_nodes_answer());
    let policy = policy(limit, "reports = true\noverrides = { vip = { rate = '5/s' } }");
    assert!(policy.reports() && policy.lets_nodes_answer());
    let words = policy.describe_nodes();
    for part in [
        "reports about every 2 s",
        "within its rate in every part of 6 s",
        "by itself lets at most 600 units",
    ] {
        assert!(words[0].contains(part), "{words:?}");
    }
}

#[test]
fn what_nodes_cannot_do_under_a_limit_is_refused() {
    let penalty = "{ algorithm = 'penalty', refusals = 3, within = '1m', duration = '5m' }";
    let counted = "{ algorithm = 'sliding_log', rates = ['10/m'], count_denied = true }";
    let apart = "{ algorithm = 'sliding_log', rates = ['10/m'], min_gap = '200ms' }";
    let leases = "{ algorithm = 'concurrency', capacity = 5, time_to_live = '1s' }";
    let suppression = "{ algorithm = 'suppression', rate = '5/s' }";
    let named = "{ algorithm = 'fixed_window', name = 'local', limit = 5, period = '1s' }";
    let (remember, local) = ("remember = '2s'", "local = { most = 5, time = '1s' }");
    let budget = std::format!("{LIMIT}, {{ algorithm = 'budget', most = 5, time = '1s' }}");
    let many = [LIMIT; 16].join(", ");
    for (limits, line, message) in [
        (
            &*std::format!("{LIMIT}, {penalty}"),
            remember,
            "`remember`: expected only limits that record no",
        ),
        (counted, remember, "found `sliding_log`"),
        (suppression, remember, "found `suppression`"),
        (apart, local, "`local`: expected no `min_gap`"),
        (leases, local, "`local`: expected only limits on units over time"),
        (&*budget, local, "found `budget`"),
        (
            named,
            local,
            "`local`: expected no other limit of the name of its budget, found one named `local`",
        ),
        (&*many, local, "`local`: expected at most 15 limits beside its budget, found 16"),
        ("", local, "`limits`: expected 1 to 16 limits, found 0"),
        (
            LIMIT,
            "reports = true",
            "`reports`: expected one limit, a `suppression`, because a node decides by its factor alone; found `fixed_window`",
        ),
        (&*std::format!("{suppression}, {LIMIT}"), "reports = true", "found 2 limits"),
        (suppression, "reports = true\nremember = '2s'", "found `suppression`"),
        (suppression, "reports = true\nshare_calls = true", "`share_calls`: expected no `reports`"),
        (
            leases,
            "share_calls = true",
            "only limits without leases, because no release should wait",
        ),
        (leases, "share_calls = true", "found `concurrency`"),
        (
            suppression,
            "reports = true\n[policies.api.overrides]\na = { limits = [{ algorithm = 'fixed_window', limit = 5, period = '1s' }] }",
            "`overrides`: \"a\": `reports`: expected",
        ),
        (
            LIMIT,
            "local = { most = 5, time = '1s', max_holders = 5000 }",
            "`local`: `max_holders`: expected",
        ),
        (
            LIMIT,
            "remember = '2s'\n[policies.api.overrides]\na = { limits = [{ algorithm = 'suppression', rate = '5/s' }] }",
            "`overrides`: \"a\": `remember`: expected",
        ),
    ] {
        let text = std::format!("[policies.api]\nlimits = [{limits}]\n{line}");
        let error = Policies::parse(&text).unwrap_err();
        assert_eq!(error.path, "policies.api", "{error}");
        assert!(error.message.contains(message), "{error}");
    }
    for (line, place) in [
        ("remember = 2", "policies.api.remember"),
        ("local = { most = 0, time = '1s' }", "policies.api.local.most"),
        ("local = { most = 1 }", "policies.api.local"),
        ("reports = 'yes'", "policies.api.reports"),
        ("share_calls = 1", "policies.api.share_calls"),
    ] {
        let text = std::format!("[policies.api]\nlimits = [{LIMIT}]\n{line}");
        assert_eq!(Policies::parse(&text).unwrap_err().path, place.to_string());
    }
}

#[test]
fn keys_of_one_object_are_a_group_if_their_policy_shares_calls() {
    let group = |line: &str, key: &str| {
        let text = std::format!("[policies.api]\nlimits = [{LIMIT}]\n{line}");
        let policies = Policies::parse(&text).unwrap();
        let policy = policies.get("api").unwrap();
        assert_eq!(policy.shares_calls(), !line.contains("share_calls = false"));
        Resolved::new(policy, key).unwrap().group().into_owned()
    };
    let apart = "share_calls = false\nplacement = 'shard:1'";
    assert_eq!((&*group(apart, "a"), &*group(apart, "b")), ("a", "b"));
    let shared = "placement = 'shard:1'";
    assert_eq!((&*group(shared, "a"), &*group(shared, "b")), ("api#0", "api#0"));
    assert_eq!(&*group("", "a"), "api:a");
}

#[test]
fn a_policy_that_says_nothing_shares_calls_if_it_can() {
    let shares = |limits: &str, line: &str| {
        let text = std::format!("[policies.api]\nlimits = [{limits}]\n{line}");
        Policies::parse(&text).unwrap().get("api").unwrap().shares_calls()
    };
    let leases = "{ algorithm = 'concurrency', capacity = 5, time_to_live = '1h' }";
    let suppression = "{ algorithm = 'suppression', rate = '1/s' }";
    let lease_override = std::format!("[policies.api.overrides]\n'a' = {{ limits = [{leases}] }}");
    assert!(shares(LIMIT, "") && shares(LIMIT, "share_calls = true"));
    assert!(!shares(LIMIT, "share_calls = false"));
    assert!(!shares(leases, "") && !shares(LIMIT, &lease_override));
    assert!(!shares(suppression, "reports = true") && shares(suppression, ""));
}

#[test]
fn what_makes_little_sense_is_a_warning() {
    let bucket = "{ algorithm = 'token_bucket', capacity = 500, rate = '100/s' }"; // full after 5 s
    let both = std::format!("{bucket}, {LIMIT}");
    let leases =
        std::format!("{LIMIT}, {{ algorithm = 'concurrency', capacity = 5, time_to_live = '1h' }}");
    for (limits, rest, expected) in [
        (bucket, "", &[][..]),
        (bucket, "remember = '5s'\nlocal = { most = 500, time = '5s' }", &[]),
        (
            bucket,
            "local = { most = 501, time = '1s' }",
            &[
                "`local.most`: expected at most 500, which is all that the limits grant at once; found 501. A \
               node that takes all of it leaves nothing to the other nodes",
            ],
        ),
        (
            bucket,
            "local = { most = 1, time = '6s' }",
            &[
                "`local.time`: expected at most 5 s, the period of `api`; found 6 s. In one period all nodes \
               together may grant what the limit grants in 5 s and 6 s",
            ],
        ),
        (
            bucket,
            "remember = '6s'",
            &[
                "`remember`: expected at most 5 s, the longest period of the limits; found 6 s. Units come back \
               within a period, so a node remembers only debts and blocks for longer",
            ],
        ),
        (
            &both,
            "remember = '2s'\nlocal = { most = 6, time = '2s' }",
            &[
                "`local.most`: expected at most 5",
                "`local.time`: expected at most 1 s, the period of `limit-2`",
            ],
        ),
        // the budget of the nodes and leases have periods too, which do not count
        (
            LIMIT,
            "remember = '2s'\nlocal = { most = 1, time = '1s' }",
            &["`remember`: expected at most 1 s"],
        ),
        (&leases, "remember = '2s'", &["`remember`: expected at most 1 s"]),
        (
            LIMIT,
            "remember = '2s'\nlocal = { most = 6, time = '1s' }\noverrides = { vip = { limit = 4, period = '9s' }, low = { period = '500ms' } }",
            &[
                "`local.most`: expected at most 5,",
                "`overrides`: \"low\": `local.most`: expected at most 5,",
                "`overrides`: \"low\": `local.time`: expected at most 500 ms",
                "`overrides`: \"vip\": `local.most`: expected at most 4,",
            ],
        ),
    ] {
        let mut warnings = policy(limits, rest).warnings();
        warnings.sort();
        assert_eq!(warnings.len(), expected.len(), "{rest}: {warnings:?}");
        for (warning, expected) in warnings.iter().zip(expected) {
            assert!(warning.starts_with(expected), "{warning}");
        }
    }
}
