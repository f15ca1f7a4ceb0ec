use alloc::{format, vec};

use super::{describe, describe_routes, describe_without_keys};
use crate::{Operation, Policies, Policy, Request, Rule, Timestamp, blob};

const POLICY: &str = "
  limits = [
    { name = 'user', algorithm = 'token_bucket', capacity = 5, rate = '1/s' },
    { name = 'organisation', depth = 1, algorithm = 'sliding_log', rates = ['20/m'] },
  ]
  [overrides]
  'acme/vip' = { limits = [{ algorithm = 'token_bucket', capacity = 9, rate = '1/s' }] }";

fn policy(on_change: &str) -> Policy {
    Policy::parse("api", &format!("on_change = '{on_change}'\n{POLICY}")).unwrap()
}

#[test]
fn a_policy_is_described_with_the_sizes_and_names_of_its_states() {
    let limits = "\
api: no description
  organisation: 20 in any 1 m, by the first part of the key
  user: bursts of 5, then every 1 s; full after 5 s
";
    let end = "by client address; in an outage a request is refused; on Workers each key in its \
               own object; stored as";
    assert_eq!(
        describe(&policy("reset")),
        format!(
            "{limits}  \"acme/vip\" has its own limits, stored as 25 bytes under 3fb3f012c1663886:
    api: bursts of 9, then every 1 s; full after 9 s
  an edit of the limits starts each key afresh
  {end} at most 191 bytes under ea9595e3f5fd492c and 25 bytes under 2cd8df4df0e07950
"
        )
    );
    assert_eq!(
        describe(&policy("keep")),
        format!(
            "{limits}  \"acme/vip\" has its own limits, stored as 83 bytes under 188554ef891dc264:
    api: bursts of 9, then every 1 s; full after 9 s
  {end} at most 249 bytes under 3f2da46d410f6f4f and 83 bytes under af64724c8602eb6e
"
        )
    );
}

#[test]
fn a_policy_says_where_its_objects_are() {
    let limit = "limits = [{ algorithm = 'token_bucket', capacity = 5, rate = '1/s' }]";
    for (placement, words) in [("key", "each key in its own object"), ("shard:16", "in 16 objects")]
    {
        let policy = Policy::parse("api", &format!("placement = '{placement}'\n{limit}")).unwrap();
        assert!(describe(&policy).contains(words), "{}", describe(&policy));
    }
}

#[test]
fn who_may_not_know_keys_is_told_how_many_have_rules_of_their_own() {
    let lists = "deny = ['bot-*']\nallow = ['monitor', 'ip:192.0.2.7']";
    let policy = Policy::parse("api", &format!("{lists}\n{POLICY}")).unwrap();
    let (whole, told) = (describe(&policy), describe_without_keys(&policy));
    for named in ["acme/vip", "bot-*", "monitor", "192.0.2.7", "under 188554ef891dc264"] {
        assert!(whole.contains(named) && !told.contains(named), "{named}: {whole}{told}");
    }
    let counts = "
  keys or patterns with their own limits: 1
  always denied: 1
  always allowed: 2
  by client address";
    assert!(told.contains(counts), "{told}");
    let plain = Policy::parse("api", &POLICY[..POLICY.find("[overrides]").unwrap()]).unwrap();
    assert_eq!(describe_without_keys(&plain), describe(&plain));
}

#[test]
fn what_nodes_may_do_without_asking_is_described_with_its_cost() {
    let text = "
      remember = '2s'
      local = { most = 100, time = '1s' }
      limits = [{ algorithm = 'token_bucket', capacity = 5, rate = '1/s' }]";
    let described = describe(&Policy::parse("api", text).unwrap());
    let nodes = "
  local: up to 100 units for 1 s, granted to up to 64 holders, which spend them without asking
  a node remembers a refusal for up to 2 s; after a refund, a reset, an edit or the end of a block, other nodes may refuse a key for up to 2 s longer
  a node that is asked often takes up to 100 units of a key in advance and spends them within 1 s; in any span all nodes together grant at most what the limits grant in the span and 1 s; a block or an edit stops other nodes after at most 1 s
  by client address";
    assert!(described.contains(nodes), "{described}");
}

/// Stored records have the sizes and names that the description shows.
#[test]
fn what_is_stored_is_what_is_described() {
    let now = Timestamp(1_700_000_000_000_000);
    for policy in ["reset", "keep", "proportional"].map(policy) {
        let described = describe(&policy);
        for key in ["acme/bob", "acme/vip"] {
            let Rule::Limited(limits, _) = policy.rule(key) else { panic!("{key} is on a list") };
            let mut words = vec![0; limits.words()];
            for at in 0..20 {
                let now = Timestamp(now.0 + at * 1_000_000);
                let operation = Operation::Decide(Request::of(1));
                assert!(limits.operate(&mut words, now, &operation).unwrap().decision.is_allowed());
            }
            for (part, words) in limits.split(&words) {
                let name = blob::name(&policy, part, key);
                let (_, end) = name.rsplit_once(':').unwrap();
                let size = blob::encode(&policy, part, words).len();
                assert!(described.contains(&format!("{size} bytes under {end}")), "{described}");
            }
        }
    }
}

#[test]
fn control_characters_of_a_policy_are_escaped_and_other_letters_are_not() {
    let text = "
      description = \"für \\u001b[31mÄnne\\nx: y\\u0007\\u009b 'q'\"
      deny = [\"u\\u001b[0m\"]
      limits = [{ algorithm = 'token_bucket', capacity = 5, rate = '1/s' }]
      [overrides]
      \"o\\u001b[0m\" = { capacity = 9 }";
    let described = describe(&Policy::parse("api", text).unwrap());
    let first = described.lines().next().unwrap();
    assert_eq!(first, "api: für \\u{1b}[31mÄnne\\nx: y\\u{7}\\u{9b} 'q'");
    assert!(described.chars().all(|char| char == '\n' || !char.is_control()), "{described:?}");
}

#[test]
fn what_a_limit_does_beside_refusing_is_described() {
    let window = "algorithm = 'fixed_window', limit = 5, period = '1s'";
    let text = format!(
        "limits = [
           {{ name = 'a', {window}, shadow = true, warn_at = '80%' }},
           {{ name = 'b', {window}, payer = true }},
           {{ name = 'c', {window}, payer = true }},
           {{ name = 'd', {window} }},
         ]"
    );
    let policy = Policy::parse("p", &text).unwrap();
    let described: alloc::vec::Vec<_> =
        policy.limits().iter().map(|limit| limit.describe_softness()).collect();
    let [shadow, first, next] = [
        ", in shadow: it refuses nothing, warns at 80 %",
        ", pays first",
        ", pays if 1 before it have no room",
    ];
    assert_eq!(described, [shadow, first, next, ""]);
}

#[test]
fn routes_are_described_with_the_paths_beside_them() {
    let policies = "auth = 'none'\n{more}[[routes]]\nmatch = '/a/*'\nupstream = 'http://u'\n\
        [policies.p]\nlimits = [{ algorithm = 'fixed_window', limit = 5, period = '1s' }]";
    let routes = |more: &str| {
        let policies = Policies::parse(&policies.replace("{more}", more)).unwrap();
        describe_routes(policies.gateway())
    };
    let plain =
        "routes\n  /a/*: not counted, to http://u\n  a Worker does not serve the decision API";
    assert_eq!(routes("").as_deref(), Some(plain));
    let all = routes("api_path = '/api'\nhealth_path = '/up'\n").unwrap();
    let end = "\n  a Worker serves the decision API under /api\n  the gateway's health is at /up";
    assert!(all.ends_with(end), "{all}");
    let none = Policies::parse(
        "auth = 'none'\n[policies.p]\nlimits = [{ algorithm = 'fixed_window', limit = 5, period = '1s' }]",
    );
    assert_eq!(describe_routes(none.unwrap().gateway()), None);
}
