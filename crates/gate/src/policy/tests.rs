use std::string::{String, ToString};

use super::{Cost, OnError, Placement, Policies, Policy};
use crate::{KeySource, Limit};

const TOML: &str = r#"
auth = "none"

[policies.api]
description = "public API"
limits = [
  { algorithm = "token_bucket", name = "burst", capacity = 500, rate = "100/s" },
  { algorithm = "sliding_window", limit = 10_000, period = "1h", segments = 12 },
  { algorithm = "fixed_window", limit = 100_000, period = "1d" },
]
key = ["header:X-Api-Key", "ip"]
cost = { header = "x-cost" }
on_error = "open"
placement = "shard:16"

[policies.login]
limits = [{ algorithm = "token_bucket", capacity = 5, rate = "5/15m" }]
"#;

const JSON: &str = r#"{ "auth": "none", "policies": {
  "api": {
    "description": "public API",
    "limits": [
      { "algorithm": "token_bucket", "name": "burst", "capacity": 500, "rate": "100/s" },
      { "algorithm": "sliding_window", "limit": 10000, "period": "1h", "segments": 12 },
      { "algorithm": "fixed_window", "limit": 100000, "period": "1d" }
    ],
    "key": ["header:X-Api-Key", "ip"], "cost": { "header": "x-cost" },
    "on_error": "open", "placement": "shard:16"
  },
  "login": { "limits": [{ "algorithm": "token_bucket", "capacity": 5, "rate": "5/15m" }] }
} }"#;

#[test]
fn toml_and_json_of_the_same_shape_are_the_same_policies() {
    let policies = Policies::parse(TOML).unwrap();
    assert_eq!(policies, Policies::parse(JSON).unwrap());
    assert!(!policies.needs_token());

    let api = policies.get("api").unwrap();
    assert_eq!(api.description(), Some("public API"));
    let names: std::vec::Vec<_> = api.limits().iter().map(|limit| limit.name.as_str()).collect();
    assert_eq!(names, ["burst", "limit-2", "limit-3"]);
    assert_eq!(api.key_sources(), [KeySource::Header("x-api-key".into()), KeySource::Ip]);
    assert_eq!(*api.cost(), Cost::Header { name: "x-cost".into(), default: 1 });
    assert_eq!((api.on_error(), api.placement()), (OnError::Open, Placement::Shard(16)));
    assert_eq!((api.limits().most_at_once(), api.limits().words()), (500, 2 + 16 + 2));

    let login = policies.get("login").unwrap();
    assert_eq!(
        login.limits().iter().next().unwrap().name,
        "login",
        "a single limit is called after its policy"
    );
    let Limit::TokenBucket(bucket) = login.limits().iter().next().unwrap().limit else { panic!() };
    assert_eq!((bucket.rate().0, bucket.rate().1.0), (1, 180_000_000));
    assert_eq!((login.on_error(), login.placement()), (OnError::Closed, Placement::Key));
    assert!(policies.get("other").is_none());
}

#[test]
fn a_file_without_auth_needs_a_token() {
    let text = "[policies.a]\nlimits = [{ algorithm = 'fixed_window', limit = 1, period = '1s' }]";
    assert!(Policies::parse(text).unwrap().needs_token());
}

#[test]
fn an_identity_changes_with_the_rule_and_the_limits_and_with_nothing_else() {
    let policy = |limits: &str, rest: &str| {
        Policy::parse("p", &std::format!("limits = [{limits}]\n{rest}")).unwrap().limits().slices()
            [0]
        .identity()
    };
    let one = "{ algorithm = 'token_bucket', capacity = 5, rate = '1/s' }";
    let same = "{ algorithm = 'token_bucket', name = 'x', capacity = 5, rate = '60/m' }";
    let other = "{ algorithm = 'token_bucket', capacity = 5, rate = '2/s' }";
    assert_eq!(policy(one, ""), policy(same, "description = 'd'\non_error = 'open'"));
    assert_ne!(policy(one, ""), policy(other, ""));
    assert_ne!(policy(one, ""), policy(&std::format!("{one}, {other}"), ""));
    assert_eq!(policy(one, ""), 0x2cd8df4df0e07950, "stored states are found by it");
    let kept = |limits| policy(limits, "on_change = 'keep'");
    assert_eq!(kept(one), kept(other));
    assert_eq!(kept(one), policy(one, "on_change = 'proportional'"));
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
            rules.flat_map(|own| own.slices()).map(|it| it.identity()).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 7, "{on_change}");
    }
}

/// The limit `LIMIT` on line 3 of a file, with what it leads to.
#[track_caller]
fn check(limit: &str, place: (usize, &str), message: &str) {
    let text = std::format!("[policies.api]\nlimits = [\n  {{ {limit} }},\n]\n");
    let error = Policies::parse(&text).expect_err(limit);
    assert_eq!((error.line, error.path.as_str()), place, "{error}");
    assert!(error.message.contains(message), "{error}");
    assert!(error.column > 0);
}

#[test]
fn errors_name_the_place_and_what_was_expected_and_what_was_found() {
    let rate = (3, "policies.api.limits[0].rate");
    let bucket =
        |rate: &str| std::format!("algorithm = 'token_bucket', capacity = 5, rate = {rate}");
    for (found, message) in [
        ("'0/s'", "expected a whole number above 0, a slash and a span"),
        ("'-1/s'", "found \"-1/s\""),
        ("'+1/s'", "found \"+1/s\""),
        ("'1.5/s'", "found \"1.5/s\""),
        ("'NaN/s'", "found \"NaN/s\""),
        ("'9007199254740992/s'", "found \"9007199254740992/s\""),
        ("'99999999999999999999999/s'", "found"),
        ("'1/s/s'", "found"),
        ("'1/fortnight'", "found"),
        ("'1/0s'", "found"),
        ("'1/999999d'", "found"),
        ("'/s'", "found"),
        ("''", "found"),
        ("5", "expected a string, found the integer `5`"),
    ] {
        check(&bucket(found), rate, message);
    }
    let capacity = (3, "policies.api.limits[0].capacity");
    for found in ["0", "-5", "1.5", "nan", "inf", "'5'", "9007199254740992"] {
        let limit = std::format!("algorithm = 'token_bucket', capacity = {found}, rate = '1/s'");
        check(&limit, capacity, "expected a whole number from 1 to 9007199254740991");
    }
    let limit = (3, "policies.api.limits[0]");
    for (found, message) in [
        ("algorithm = 'token_bucket', rate = '1/s'", "missing field `capacity`"),
        (
            "algorithm = 'fixed_window', limit = 5, rate = '1/s', period = '1s'",
            "expected only fields of `fixed_window` (`limit`, `period`), found `rate`",
        ),
        (
            "algorithm = 'sliding_window', limit = 5, period = '1s', segments = 7",
            "`segments`: expected a number that divides the period 1s into whole microseconds, found 7; \
             the nearest period that 7 divides is 999999us",
        ),
        (
            "algorithm = 'fleet_usage', capacity = 10, reserve = '95%', time_to_live = '1m'",
            "`reserve`: expected 0.0001% to 90%, found 95%",
        ),
        (
            "algorithm = 'utilization', good = '80.5%', bad = '70%'",
            "`good`: expected 0% < good ≤ bad < 100%, found good = 80.5% and bad = 70%",
        ),
        (
            "algorithm = 'utilization', delay = '9000000000s', full = '9000000000s'",
            "because exact 64-bit arithmetic cannot hold more beside the other values; found",
        ),
        (
            "algorithm = 'penalty', refusals = 1, within = '1m', duration = '5m', max = '90s'",
            "`max`: expected 5m to 285 years, found 90s",
        ),
        (
            "algorithm = 'penalty', refusals = 1, within = '1m', duration = '100000d', \
             forgive_after = '100000d'",
            "`forgive_after`: expected at most 367199254740991us, because exact 64-bit arithmetic cannot \
             hold more beside the other values; found 100000d",
        ),
        (
            "algorithm = 'token_bucket', capacity = 9_007_199_254_740_991, rate = '7/d'",
            "expected at most 729",
        ),
        ("algorithm = 'sliding_window', limit = 5, period = '1s', segments = 500", "1 to 120"),
        ("algorithm = 'sliding_window', limit = 5, period = '1s', segments = 0", "1 to 120"),
        ("limit = 5", "missing field `algorithm`"),
    ] {
        check(found, limit, message);
    }
    check(
        "algorithm = 'leaky', limit = 5",
        (3, "policies.api.limits[0].algorithm"),
        "expected one of `token_bucket`, `fixed_window`, `sliding_window`, ",
    );
    check(
        "algorithm = 'fixed_window', limt = 5, period = '1s'",
        (3, "policies.api.limits[0].limt"),
        "; found the field \"limt\"",
    );
    check(
        "algorithm = 'fixed_window', limit = 5, period = '1s', name = 'a b'",
        (3, "policies.api.limits[0].name"),
        "expected a name of 1 to 64 letters, digits, `_`, `-` and `.`; found \"a b\"",
    );
    for depth in ["-1", "256", "1.5"] {
        check(
            &std::format!("algorithm = 'fixed_window', limit = 5, period = '1s', depth = {depth}"),
            (3, "policies.api.limits[0].depth"),
            "expected a whole number from 0 to 255",
        );
    }
}

#[test]
fn what_is_wrong_with_a_policy_as_a_whole_is_on_the_line_where_it_begins() {
    let limit = "limits = [{ algorithm = 'fixed_window', limit = 5, period = '1s' }]";
    let alone =
        "limits = [{ algorithm = 'penalty', refusals = 1, within = '1m', duration = '5m' }]";
    for (text, message) in [
        (alone.to_string(), "`limits`: expected a limit whose refusals `penalty` counts"),
        (
            std::format!("{limit}\noverrides = {{ a = {{ capacity = 1 }} }}"),
            "`overrides`: \"a\": expected only fields of `fixed_window`",
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
fn a_mark_of_the_byte_order_is_no_part_of_the_file() {
    for text in [TOML, JSON] {
        let marked = std::format!("\u{feff}{text}");
        assert_eq!(Policies::parse(&marked).unwrap(), Policies::parse(text).unwrap());
    }
    let error = Policies::parse("\u{feff}[policies.a]\nlimits = []").unwrap_err();
    assert_eq!((error.line, error.column), (1, 1));
}

#[test]
fn what_is_no_json_has_the_path_that_led_there() {
    for (text, path) in [
        ("{", ""),
        ("{\"policies\":{\"a\":{\"limits\":[{\"algorithm\" x", "policies.a.limits[0]"),
        ("{\"policies\":{\"a\" x", "policies"),
    ] {
        let error = Policies::parse(text).unwrap_err();
        assert_eq!(error.path, path, "{error}");
    }
}

#[test]
fn errors_in_the_rest_of_a_policy_name_their_place_too() {
    let limits = "limits = [{ algorithm = 'fixed_window', limit = 5, period = '1s' }]";
    for (line, place, message) in [
        ("key = ['cookie']", "policies.api.key[0]", "expected \"ip\" or \"header:NAME\""),
        ("key = ['header:a b']", "policies.api.key[0]", "found \"header:a b\""),
        ("key = []", "policies.api", "`key`: expected at least one of \"ip\""),
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
            "expected `open` or `closed`, found \"ignore\"",
        ),
        ("placement = 'shard:0'", "policies.api.placement", "with N from 1 to 65536"),
        ("shadow = 1", "policies.api.shadow", "expected a boolean"),
        ("ipv6_prefix = 129", "policies.api.ipv6_prefix", "a whole number from 1 to 128"),
        ("ipv6_prefix = 0", "policies.api.ipv6_prefix", "a whole number from 1 to 128"),
        ("deny = ['ip:1.2.3']", "policies.api.deny[0]", "`ip:` and an address or a network"),
        ("deny = ['10.9.0.0/16']", "policies.api.deny[0]", "an address with `ip:` before it"),
        ("allow = ['a*b*']", "policies.api.allow[0]", "at most one `*`"),
        ("deny = ['']", "policies.api.deny[0]", "a key of 1 to 512 bytes"),
        (
            "overrides = { 'a*b*' = { limit = 1 } }",
            "policies.api.overrides.a*b*",
            "at most one `*`",
        ),
        (
            "overrides = { a = { capacity = 1 } }",
            "policies.api",
            "`overrides`: \"a\": expected only fields of `fixed_window` (`limit`, `period`), found `capacity`",
        ),
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
fn errors_in_json_have_their_place() {
    let text = JSON.replace("\"5/15m\"", "\"0/s\"");
    let error = Policies::parse(&text).unwrap_err();
    assert_eq!((error.line, error.path.as_str()), (12, "policies.login.limits[0].rate"));
    assert!(error.message.ends_with("; found \"0/s\""), "{error}");
    assert!(!error.message.contains("at line"), "{error}");
}

#[test]
fn a_list_is_no_table_however_well_its_fields_are_ordered() {
    let limit = "{\"algorithm\":\"fixed_window\",\"limit\":1,\"period\":\"1s\"}";
    let limits = std::format!("\"limits\":[{limit}]");
    let file = |policies: &str| std::format!("{{\"policies\":{policies}}}");
    for (text, path) in [
        (file(&std::format!("{{\"a\":[null,[{limit}]]}}")), "policies.a"),
        (file("{\"a\":[]}"), "policies.a"),
        (file("{\"a\":{\"limits\":[[\"fixed_window\"]]}}"), "policies.a.limits[0]"),
        (
            file(&std::format!("{{\"a\":{{{limits},\"overrides\":{{\"k\":[null,null]}}}}}}")),
            "policies.a.overrides.k",
        ),
        (file(&std::format!("{{\"a\":{{{limits},\"cost\":[\"x-cost\"]}}}}")), "policies.a.cost"),
        ("policies = []".into(), "policies"),
        ("[policies]\na = ['d', []]".into(), "policies.a"),
    ] {
        let error = Policies::parse(&text).expect_err(&text);
        assert_eq!(error.path, path, "{error}");
        assert!(error.message.starts_with("expected a"), "{error}");
        assert!(error.message.ends_with(" found an array"), "{error}");
        assert!(!error.message.contains("struct"), "{error}");
    }
}

#[test]
fn two_policies_of_one_name_are_an_error() {
    let limits = "{\"limits\":[{\"algorithm\":\"fixed_window\",\"limit\":1,\"period\":\"1s\"}]}";
    let text = std::format!("{{\"policies\":{{\"a\":{limits},\"a\":{limits}}}}}");
    let error = Policies::parse(&text).unwrap_err();
    assert_eq!(error.message, "expected each name once, found \"a\" twice");
    assert!(Policies::parse("[policies.a]\nlimits = []\n[policies.a]\nlimits = []").is_err());
}

#[test]
fn what_is_no_policy_file_is_an_error() {
    for text in
        ["", "x", "{", "{}", "[policies]\n\"a b\" = 1", "policies = 3", "{\"policies\":{}} x"]
    {
        assert!(Policies::parse(text).is_err() || text.is_empty(), "{text}");
    }
    assert_eq!(Policies::parse("").unwrap_err().message, "missing field `policies`");
    for empty in ["[policies]", "{\"policies\":{}}"] {
        let error = Policies::parse(empty).unwrap_err();
        assert_eq!(
            (error.line, error.message.as_str()),
            (1, "expected at least one policy, found none")
        );
    }
    let deep: String = core::iter::repeat_n('[', 100_000).collect();
    assert!(Policies::parse(&std::format!("a = {deep}")).is_err());
    assert!(Policies::parse(&std::format!("{{\"a\":{deep}")).is_err());
}

#[test]
fn an_error_reads_as_one_line() {
    let text =
        "[policies.api]\nlimits = [{ algorithm = 'fixed_window', limit = 0, period = '1s' }]";
    assert_eq!(
        Policies::parse(text).unwrap_err().to_string(),
        "line 2, column 49: policies.api.limits[0].limit: expected a whole number from 1 to \
         9007199254740991, found the integer `0`"
    );
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
