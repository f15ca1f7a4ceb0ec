//! What a policy file says, and which errors it leads to.

mod file;
mod gateway;
mod identity;
mod limits;
mod metering;
mod nodes;
mod outage;
mod policy;
mod routes;
mod timed;
mod warnings;

use super::{Cost, OnError, Placement, Policies};
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
    assert_eq!(
        api.key_sources(),
        [KeySource::Header("x-api-key".into()).into(), KeySource::Ip.into()]
    );
    assert_eq!(*api.cost(), Cost::Header { name: "x-cost".into(), default: 1 });
    assert_eq!((api.on_error(), api.placement()), (OnError::Open, Placement::Shard(16)));
    assert_eq!((api.limits().capacity(), api.limits().words()), (500, 2 + 16 + 2));

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
