//! Errors in the rest of a policy.

use crate::decide::Limits;
use crate::key::Pattern;
use crate::policy::source::MAX_NAME_BYTES;
use crate::policy::{Policies, Policy, PolicyError};
use crate::{Id, Idempotency, KeySource, Resolved};
use std::string::{String, ToString};
use std::sync::Arc;
use std::vec::Vec;

#[test]
fn what_is_wrong_with_a_policy_as_a_whole_is_on_the_line_where_it_begins() {
    let limit = "limits = [{ algorithm = 'fixed_window', limit = 5, period = '1s' }]";
    let alone =
        "limits = [{ algorithm = 'penalty', refusals = 1, within = '1m', duration = '5m' }]";
    for (text, message) in [
        (alone.to_string(), "`limits`: expected a limit whose refusals `penalty` counts"),
        (
            std::format!(
                "{limit}\noverrides = {{ a = {{ algorithm = 'token_bucket', capacity = 1 }} }}"
            ),
            "`overrides`: \"a\": expected only fields of `token_bucket`",
        ),
    ] {
        let error = Policies::parse(&std::format!("# api\n\n[policies.api]\n{text}")).unwrap_err();
        assert_eq!((error.line, error.column, error.path.as_str()), (3, 1, "policies.api"));
        assert!(error.message.starts_with(message), "{error}");
    }
}

#[test]
fn two_overrides_of_one_network_are_named_as_they_are_written() {
    let error = Policies::parse(
        "[policies.api]
limits = [{ algorithm = 'fixed_window', limit = 5, period = '1s' }]
[policies.api.overrides]
'ip:192.0.2.1' = { limit = 3 }
'ip:::ffff:192.0.2.1' = { limit = 4 }",
    );
    assert_eq!(
        error.unwrap_err().message,
        "expected each name once, found \"ip:192.0.2.1/32\" twice"
    );
}

#[test]
fn the_shards_of_a_policy_are_1_to_65536() {
    let limits = "limits = [{ algorithm = 'fixed_window', limit = 5, period = '1s' }]";
    for (placement, fits) in [
        ("key", true),
        ("shard:1", true),
        ("shard:65536", true),
        ("shard:65537", false),
        ("shard:0", false),
        ("shard:+1", false),
        ("shard:", false),
        ("keys", false),
    ] {
        let policy = Policy::parse("p", &std::format!("placement = '{placement}'\n{limits}"));
        assert_eq!(policy.is_ok(), fits, "{placement}");
    }
}

#[test]
fn an_error_names_its_line_if_it_is_in_one() {
    let error = Policies::parse("auth = 1").unwrap_err();
    assert!(error.to_string().starts_with("line 1, column 8: auth: expected"), "{error}");
    let nowhere = PolicyError { line: 0, column: 0, ..error };
    assert!(nowhere.to_string().starts_with("auth: expected"), "{nowhere}");
}

#[test]
fn a_policy_says_what_it_was_made_of() {
    let limits = "limits = [{ algorithm = 'fixed_window', name = 'a', limit = 5, period = '1s' }]";
    let policy = |more: &str| Policy::parse("p", &std::format!("{more}\n{limits}")).unwrap();
    let plain = policy("");
    assert_eq!((plain.denied(), plain.allowed(), plain.is_soft()), (&[][..], &[][..], false));
    assert_eq!((plain.ipv6_prefix(), plain.cost().stated()), (64, 1));
    assert!(plain.reservations().is_none() && !plain.reads_token() && !plain.shares_states());
    assert_eq!(plain.describe_persistence(), None);
    let ahead = policy("persist_ahead = { most = 2 }").describe_persistence().unwrap();
    assert!(ahead.starts_with("a Durable Object stores up to 2 units of a key"), "{ahead}");
    assert!(plain.reads(|source| *source == KeySource::Ip), "the default");
    let full = policy(
        "deny = ['a', 'b']\nallow = ['c']\nipv6_prefix = 48\ncost = 3\nreservations = {}\n\
         key = ['header:x-a', ['unverified_jwt:sub', 'ip']]\noverrides = { d = { limit = 9 } }",
    );
    let patterns = |all: &[Pattern]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(patterns(full.denied()), ["\"a\"", "\"b\""]);
    assert_eq!(patterns(full.allowed()), ["\"c\""]);
    assert_eq!((full.ipv6_prefix(), full.cost().stated()), (48, 3));
    assert!(full.reads_token() && full.reads(|source| *source == KeySource::Ip));
    assert!(!full.reads(|source| *source == KeySource::Country));
    let record = &full.limits().records()[0];
    let own = full.overrides()[0].1.records();
    assert!(full.has(record) && full.has(&own[0]) && !plain.has(&own[0]));

    let soft = limits.replace("period = '1s'", "period = '1s', warn_at = '80%', depth = 1");
    let soft = Policy::parse("p", &soft).unwrap();
    assert!(soft.is_soft() && soft.shares_states());
    let changed = full.with_limits_of(&soft);
    assert!(changed.is_soft() && changed.shares_states() && changed.reservations().is_none());
    assert!(changed.overrides().is_empty() && changed.denied().len() == 2, "the lists stay");
}

#[test]
fn the_name_of_a_source_is_bounded_as_it_is_written_in_a_key() {
    const JWT: &str = "jwt = { algorithms = ['HS256'], keys = 'K' }";
    let parsed = |source: &str| {
        let limits = "limits = [{ algorithm = 'fixed_window', limit = 5, period = '1s' }]";
        let file = std::format!("auth = 'none'\n{JWT}\n[policies.p]\nkey = ['{source}']\n{limits}");
        Policies::parse(&file).is_ok()
    };
    for (kind, special) in [("query", "/"), ("unverified_jwt", ":")] {
        for (name, fits) in [
            ("a".repeat(MAX_NAME_BYTES), true),
            ("a".repeat(MAX_NAME_BYTES + 1), false),
            (special.repeat(MAX_NAME_BYTES / 3), true), // three bytes each
            (special.repeat(MAX_NAME_BYTES / 3 + 1), false),
            (String::new(), false),
        ] {
            assert_eq!(parsed(&std::format!("{kind}:{name}")), fits, "{kind} {}", name.len());
        }
    }
    assert!(parsed("cookie:a!b") && !parsed("cookie:a b") && !parsed("cookie:a=b"));
    let part = KeySource::UnverifiedJwt("https://a/b".into()).part("x/y\n%");
    assert_eq!(part, "unverified_jwt:https%3A%2F%2Fa%2Fb:x%2Fy%0A%25");
}

#[test]
fn errors_in_the_rest_of_a_policy_name_their_place_too() {
    let limits = "limits = [{ algorithm = 'fixed_window', limit = 5, period = '1s' }]";
    for (line, place, message) in [
        ("key = ['cookie']", "policies.api.key[0]", "expected \"ip\", \"country\", or a name"),
        ("key = ['header:a b']", "policies.api.key[0]", "found \"header:a b\""),
        ("key = []", "policies.api", "`key`: expected at least one source such as \"ip\""),
        ("cost = 0", "policies.api.cost", "expected a whole number from 1 to"),
        (
            "cost = 6",
            "policies.api",
            "`cost`: expected at most 5, the most that these limits grant at once; found 6",
        ),
        ("cost = { heder = 'x' }", "policies.api.cost.heder", "found the field \"heder\""),
        ("cost = { header = 'x y' }", "policies.api.cost", "found \"x y\""),
        (
            "on_error = 'ignore'",
            "policies.api.on_error",
            "expected one of `open`, `closed`, `local`; found \"ignore\"",
        ),
        ("placement = 'shard:0'", "policies.api.placement", "with N from 1 to 65536"),
        ("shadow = 1", "policies.api.shadow", "expected a boolean"),
        ("ipv6_prefix = 129", "policies.api.ipv6_prefix", "a whole number from 1 to 128"),
        ("ipv6_prefix = 0", "policies.api.ipv6_prefix", "a whole number from 1 to 128"),
        ("deny = ['ip:010.0.0.0/8']", "policies.api.deny[0]", "`ip:` and an address, a network"),
        ("deny = ['ip:10.0.0.0/08']", "policies.api.deny[0]", "`ip:` and an address, a network"),
        ("deny = ['ip:10.0.0.0/+8']", "policies.api.deny[0]", "`ip:` and an address, a network"),
        ("deny = ['ip:10.0.0.0/33']", "policies.api.deny[0]", "`ip:` and an address, a network"),
        ("deny = ['ip:1.2.3']", "policies.api.deny[0]", "`ip:` and an address, a network"),
        ("deny = ['ip:10.0.*']", "policies.api.deny[0]", "`ip:` and an address, a network"),
        ("deny = ['10.9.0.0/16']", "policies.api.deny[0]", "an address with `ip:` before it"),
        ("allow = ['a*b*']", "policies.api.allow[0]", "at most one `*`"),
        ("deny = ['']", "policies.api.deny[0]", "a key of 1 to 512 bytes"),
        (
            "overrides = { 'a*b*' = { limit = 1 } }",
            "policies.api.overrides.a*b*",
            "at most one `*`",
        ),
        (
            "overrides = { a = { algorithm = 'token_bucket', capacity = 1 } }",
            "policies.api",
            "`overrides`: \"a\": expected only fields of `token_bucket` (`capacity`, `rate`, `start`), found `limit`",
        ),
        (
            "overrides = { b = { limit = 1 }, a = { limt = 1 } }",
            "policies.api.overrides.a.limt",
            "expected one of `algorithm`, `name`, `depth`, `shadow`, `warn_at`, `payer`, `limits`, `limit`, `period`, `start`; \
             found the field \"limt\"",
        ),
        (
            "overrides = { a = { capacity = 1 } }",
            "policies.api.overrides.a.capacity",
            "`period`, `start`; found the field \"capacity\"",
        ),
        (
            "overrides = { a = { algorithm = 'budget', rate = '1/s' } }",
            "policies.api.overrides.a.rate",
            "`limits`, `most`, `time`, `max_holders`; found the field \"rate\"",
        ),
        ("overrides = { a = [] }", "policies.api.overrides.a", "found an array"),
        (
            "overrides = { a = { limits = [], limit = 1 } }",
            "policies.api",
            "expected either `limits` or other fields, found both",
        ),
        ("overrides = { a = { limits = [] } }", "policies.api", "expected 1 to 16 limits, found 0"),
        ("overrides = { a = { limit = 0 } }", "policies.api.overrides.a.limit", "integer `0`"),
        ("cost = 4\noverrides = { a = { limit = 3 } }", "policies.api", "expected at most 3, "),
        ("colour = 'red'", "policies.api.colour", "; found the field \"colour\""),
    ] {
        let error =
            Policies::parse(&std::format!("[policies.api]\n{limits}\n{line}\n")).expect_err(line);
        assert_eq!(error.path, place, "{error}");
        assert!(error.message.contains(message), "{error}");
        assert!((1..=4).contains(&error.line), "{error}");
    }
}

#[test]
fn what_only_some_limits_can_do_is_refused_beside_others() {
    let window = "{ algorithm = 'fixed_window', limit = 5, period = '1s' }";
    let log = "{ algorithm = 'sliding_log', rates = ['5/s'] }";
    let budget = "{ algorithm = 'budget', most = 5, time = '1s' }";
    let leases = "{ algorithm = 'concurrency', capacity = 5, time_to_live = '1m' }";
    for (limits, more, message) in [
        (&[window, budget, budget][..], "", "found 2 `budget` beside 1 such limits"),
        (&[leases, budget], "", "found 1 `budget` beside 0 such limits"),
        (&[log], "persist_ahead = {}", "`persist_ahead`: expected only token buckets and windows"),
        (
            &[log],
            "persist_ahead = {}\nreservations = {}",
            "`persist_ahead`: expected only token buckets and windows",
        ),
        (&[log, window], "overrides = { a = { limit = 3 } }", "`overrides`: \"a\": "),
    ] {
        let limits = limits.join(", ");
        let error = Policies::parse(&std::format!("[policies.api]\nlimits = [{limits}]\n{more}"));
        let error = error.unwrap_err();
        assert_eq!(error.path, "policies.api", "{error}");
        assert!(error.message.contains(message), "{error}");
    }
    assert!(Policy::parse("p", &std::format!("limits = [{window}, {budget}]")).is_ok());
}

#[test]
fn an_address_alone_comes_before_every_network_that_contains_it() {
    let text = "limits = [{ algorithm = 'fixed_window', limit = 5, period = '1s' }]
        [overrides]
        'ip:192.0.2.0/24' = { limit = 24 }
        'ip:192.0.2.1' = { limit = 32 }
        'ip:192.0.0.0/16' = { limit = 16 }";
    let policy = Arc::new(Policy::parse("p", text).unwrap());
    for (key, limit) in [("ip:192.0.2.1", 32), ("ip:192.0.2.2", 24), ("ip:192.0.3.1", 16)] {
        let resolved = Resolved::new(&policy, key).unwrap();
        assert_eq!(resolved.limits().map(Limits::capacity), Some(limit), "{key}");
    }
}

#[test]
fn a_long_text_of_the_file_is_quoted_in_part() {
    let long = "x".repeat(100_000);
    let limit = "algorithm = 'fixed_window', limit = 5, period = '1s'";
    let limits = std::format!("limits = [{{ {limit} }}]");
    for policy in [
        std::format!("limits = [{{ {limit}, name = '{long}' }}]"),
        std::format!("limits = [{{ {limit}, {long} = 1 }}]"),
        std::format!("limits = [{{ algorithm = '{long}' }}]"),
        std::format!("limits = [{{ algorithm = 'fixed_window', limit = 5, period = '{long}' }}]"),
        std::format!(
            "limits = [{{ algorithm = 'fixed_window', limit = '{long}', period = '1s' }}]"
        ),
        std::format!("{limits}\nkey = ['{long}']"),
        std::format!("{limits}\nkey = ['header:{long}', 'header:{long}']"),
        std::format!("{limits}\ncost = {{ header = '{long} ' }}"),
        std::format!("{limits}\nplacement = '{long}'"),
        std::format!("{limits}\non_error = '{long}'"),
        std::format!("{limits}\ndeny = ['{long}']"),
        std::format!("{limits}\noverrides = {{ {long} = {{ limit = 1 }} }}"),
        std::format!("{limits}\n{long} = 1"),
    ] {
        let error = Policies::parse(&std::format!("[policies.api]\n{policy}")).unwrap_err();
        assert!(error.to_string().contains("xxx"), "{error}");
        assert!(error.path.len() <= 603, "a path of {} bytes", error.path.len());
        assert!(error.message.len() <= 800, "a message of {} bytes", error.message.len());
    }
}

#[test]
fn a_resolved_key_says_what_it_is_and_whether_another_is_the_same() {
    let text = "limits = [{ algorithm = 'fixed_window', limit = 5, period = '1s' }]\n\
        deny = ['bad']\nallow = ['good']\noverrides = { vip = { limit = 9 } }";
    let [policy, other] = ["p", "p"].map(|name| Arc::new(Policy::parse(name, text).unwrap()));
    let of = |key: &str| Resolved::new(&policy, key).unwrap();
    for (key, is_denied, limits) in
        [("k", false, Some(5)), ("bad", true, None), ("good", false, None), ("vip", false, Some(9))]
    {
        assert_eq!(of(key).is_denied(), is_denied, "{key}");
        assert_eq!(of(key).limits().map(Limits::capacity), limits, "{key}");
        assert_eq!(of(key).rule_number(), policy.rule_number(key), "{key}");
    }
    let address = of("ip:2001:db8::7");
    assert_eq!((address.key(), address.written_key()), ("ip:2001:db8::/64", "ip:2001:db8::7"));

    let idempotency = Idempotency { id: Id([0, 1]), request: 7 };
    let known = of("k").known_by(idempotency);
    assert_eq!(known.idempotency(), Some(idempotency));
    assert_eq!(known.without_idempotency().idempotency(), None);
    assert!(of("k").is_same(&of("k")) && known.is_same(&known.clone()));
    let elsewhere = Resolved::new(&other, "k").unwrap();
    for different in [&of("l"), &of("vip"), &known, &elsewhere] {
        assert!(!of("k").is_same(different), "{different:?}");
    }
    let long = of(&"k".repeat(100));
    assert_eq!((of("k").bytes(), known.bytes()), (0, size_of::<Idempotency>()));
    assert!(long.bytes() >= 200, "the key and how it was written");
}
