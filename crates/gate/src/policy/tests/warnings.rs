//! Warnings about keys that a client can invent.

use crate::policy::Policies;
use std::format;
use std::string::String;

const RATE: &str = "{ algorithm = 'fixed_window', limit = 5, period = '1s' }";

/// The first warning about the policy with these sources, and with limits of these fields.
#[track_caller]
fn warning(key: &str, limits: &str) -> Option<String> {
    let jwt = "jwt = { algorithms = ['HS256'], keys = 'K' }";
    let file = format!("{jwt}\n[policies.p]\nkey = {key}\nlimits = [{limits}]");
    let policies = Policies::parse(&file).unwrap_or_else(|error| panic!("{error}"));
    policies.get("p").unwrap().warnings().into_iter().next()
}

#[test]
fn a_policy_that_does_not_limit_who_invents_keys_is_warned_about() {
    for (key, found) in [
        ("['header:x-api-key', 'ip']", "\"header:x-api-key\""),
        ("['cookie:sid', 'ip']", "\"cookie:sid\""),
        ("['query:token']", "\"query:token\""),
        ("['unverified_jwt:sub', 'ip']", "\"unverified_jwt:sub\""),
        ("['jwt:sub', 'header:x', 'ip']", "\"header:x\""),
        ("['ip', ['ip', 'header:x']]", "\"ip\" and \"header:x\""),
        ("[['jwt:sub', 'header:x']]", "\"jwt:sub\" and \"header:x\""),
    ] {
        let warning = warning(key, RATE).unwrap();
        let start = "`key`: expected a limit that counts by what no client can invent, such as \"ip\" or \"jwt:sub\"; \
                     found only limits by ";
        let text = warning.strip_prefix(start).unwrap_or_else(|| panic!("{warning}"));
        assert!(text.starts_with(&format!("{found}. A client that")), "{warning}");
    }
    for key in ["['ip']", "['jwt:sub', 'ip']", "['country']", "[['jwt:sub', 'ip']]"] {
        assert_eq!(warning(key, RATE), None, "{key}");
    }
}

#[test]
fn a_second_limit_by_address_is_enough() {
    let by = |depth: u8| {
        format!("{RATE}, {}", RATE.replace("limit =", &format!("depth = {depth}, limit =")))
    };
    assert_eq!(warning("[['ip', 'header:x'], 'ip']", &by(1)), None);
    assert_eq!(warning("[['ip', 'country', 'header:x']]", &by(2)), None);
    assert_eq!(warning("['header:x', 'ip']", &by(0)), None, "all keys together");
    assert!(warning("[['header:x', 'ip'], 'ip']", &by(1)).is_some(), "depth 1 is the header");
    assert!(warning("[['ip', 'header:x'], 'cookie:a']", &by(1)).is_some());
    assert!(warning("[['ip', 'header:x']]", &by(2)).is_some());
    let leases = "{ algorithm = 'concurrency', capacity = 1, time_to_live = '1s', depth = 1 }";
    assert_eq!(warning("[['ip', 'header:x']]", &format!("{RATE}, {leases}")), None);
    assert_eq!(warning("['header:x']", "{ algorithm = 'utilization' }"), None, "it knows no keys");
}

#[test]
fn a_policy_by_address_beside_it_on_each_route_is_enough() {
    let about = |routes: &str| {
        let file = format!(
            "routes = [{routes}]
             [policies.address]\nlimits = [{RATE}]
             [policies.key]\nkey = ['header:x']\nlimits = [{RATE}]
             [policies.shadow]\nshadow = true\nlimits = [{RATE}]
             [policies.load]\nlimits = [{{ algorithm = 'utilization' }}]"
        );
        let policies = Policies::parse(&file).unwrap_or_else(|error| panic!("{error}"));
        policies.warnings_about(policies.get("key").unwrap()).len()
    };
    let by = |policies: &str| format!("{{ match = '/*', upstream = 'http://u', {policies} }}");
    let both = by("policies = ['address', 'key']");
    assert_eq!(about(&both), 0);
    assert_eq!(about(&format!("{both}, {}", by("policies = ['key', 'load', 'address']"))), 0);
    assert_eq!(about(""), 1, "no route has it, so callers of the API name the key");
    assert_eq!(about(&format!("{both}, {}", by("policy = 'key'"))), 1, "a route without the other");
    assert_eq!(about(&by("policies = ['shadow', 'key']")), 1, "a shadow refuses nobody");
    assert_eq!(about(&by("policies = ['load', 'key']")), 1, "it knows no clients");
}
