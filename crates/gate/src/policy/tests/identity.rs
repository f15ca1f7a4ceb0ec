//! The names that a policy gives its states.

use std::string::ToString;

use super::TOML;
use crate::policy::{Policies, Policy};

#[test]
fn an_identity_changes_with_the_rule_and_the_limits_and_with_nothing_else() {
    let of = |on_change: &str, limits: &str, rest: &str| {
        let text = std::format!("on_change = '{on_change}'\nlimits = [{limits}]\n{rest}");
        Policy::parse("p", &text).unwrap().limits().records()[0].identity()
    };
    let policy = |limits: &str, rest: &str| of("reset", limits, rest);
    let one = "{ algorithm = 'token_bucket', capacity = 5, rate = '1/s' }";
    let same = "{ algorithm = 'token_bucket', name = 'x', capacity = 5, rate = '60/m' }";
    let other = "{ algorithm = 'token_bucket', capacity = 5, rate = '2/s' }";
    assert_eq!(policy(one, ""), policy(same, "description = 'd'\non_error = 'open'"));
    assert_ne!(policy(one, ""), policy(other, ""));
    assert_ne!(policy(one, ""), policy(&std::format!("{one}, {other}"), ""));
    assert_eq!(policy(one, ""), 0x2cd8df4df0e07950, "stored states are found by it");
    let kept = |limits| of("keep", limits, "");
    assert_eq!(kept(one), kept(other));
    assert_eq!(kept(one), of("proportional", one, ""));
    assert_ne!(kept(one), policy(one, ""));
    assert_eq!(kept(one), 0xaf64724c8602eb6e, "stored states are found by it");
}

#[test]
fn no_two_rules_and_no_two_depths_have_one_identity() {
    for on_change in ["reset", "keep"] {
        let text = std::format!(
            "on_change = '{on_change}'
            limits = [
              {{ algorithm = 'fixed_window', limit = 1, period = '1s' }},
              {{ algorithm = 'fixed_window', limit = 1, period = '1s', depth = 0 }},
              {{ algorithm = 'fixed_window', limit = 1, period = '1s', depth = 1 }},
            ]
            [overrides]
            'a' = {{ limits = [{{ algorithm = 'fixed_window', limit = 1, period = '1s' }}] }}
            'a*' = {{ limits = [{{ algorithm = 'fixed_window', limit = 1, period = '1s' }}] }}
            '*a' = {{ limits = [{{ algorithm = 'fixed_window', limit = 1, period = '1s' }}] }}
            'ip:10.0.0.0/8' = {{ limits = [{{ algorithm = 'fixed_window', limit = 1, period = '1s', depth = 0 }}] }}"
        );
        let policy = Policy::parse("p", &text).unwrap();
        let rules = core::iter::once(policy.limits());
        let rules = rules.chain(policy.overrides().iter().map(|(_, own)| own));
        let mut all: std::vec::Vec<u64> =
            rules.flat_map(|own| own.records()).map(|it| it.identity()).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 7, "{on_change}");
    }
}

#[test]
fn a_key_belongs_to_one_object() {
    let policies = Policies::parse(TOML).unwrap();
    assert_eq!(policies.get("login").unwrap().object_name("user:1"), "login:user:1");
    let api = policies.get("api").unwrap();
    assert_eq!(api.object_name("user:1"), "api#11", "for ever: its state is there");
    let shards: std::collections::BTreeSet<_> =
        (0..1_000).map(|i| api.object_name(&i.to_string())).collect();
    assert_eq!(shards.len(), 16);
}
