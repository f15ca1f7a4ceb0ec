mod apart;
mod call_limits;
mod call_limits_bounds;
mod dump;
mod edits;
mod grant;
mod keys;
mod large;
mod room;

use std::format;
use std::sync::Arc;

use tidegate_core::{MAX_QUANTITY, Timestamp};

use super::{KeyHasher, Table, TableError};
use crate::limit::{Operation, OperationError, Request};
use crate::policy::{Policy, Resolved};

/// With room for all that a test asks.
fn table() -> Table {
    Table::new(1 << 20, KeyHasher::new(1))
}

fn policy() -> Policy {
    let text = "limits = [{ algorithm = 'token_bucket', capacity = 2, rate = '2/s' }]";
    Policy::parse("p", text).unwrap()
}

#[test]
fn keys_and_seeds_have_hashes_of_their_own() {
    let hash = |seed, key| KeyHasher::new(seed).hash(key);
    assert_eq!(hash(1, "a"), hash(1, "a"));
    assert_ne!(hash(1, "a"), hash(1, "b"));
    assert_ne!(hash(1, "a"), hash(2, "a"));
}

#[test]
fn a_seed_that_comes_late_loses_no_key() {
    let (policy, mut table) = (policy(), table());
    let hashes = |table: &Table| table.hasher.hash("a");
    let first = hashes(&table);
    table.seed(KeyHasher::new(2));
    assert_ne!(hashes(&table), first);
    let keys = (0..100).map(|key| format!("key {key}"));
    for key in keys.clone() {
        assert!(table.decide(&policy, &key, Timestamp(0), 2).unwrap().is_allowed());
    }
    let second = hashes(&table);
    table.seed(KeyHasher::new(3));
    assert_ne!(hashes(&table), second);
    for key in keys {
        assert!(!table.decide(&policy, &key, Timestamp(0), 1).unwrap().is_allowed());
    }
    assert_eq!(table.len(), 100);
}

#[test]
fn keys_are_counted_apart() {
    let (policy, mut table) = (policy(), table());
    for key in ["a", "b", "", "a longer key than fits anywhere inline, surely"] {
        assert!(table.decide(&policy, key, Timestamp(0), 2).unwrap().is_allowed());
        assert!(!table.decide(&policy, key, Timestamp(0), 1).unwrap().is_allowed());
    }
    assert_eq!((table.len(), table.is_empty()), (4, false));
}

#[test]
fn a_peek_or_an_impossible_cost_remembers_no_key() {
    let (policy, mut table) = (policy(), table());
    assert!(table.decide(&policy, "a", Timestamp(0), 0).unwrap().is_allowed());
    assert!(matches!(
        table.decide(&policy, "a", Timestamp(0), 3),
        Err(TableError::Operation(OperationError::Cost(_)))
    ));
    assert!(table.is_empty() && table.words(policy.limits(), "a").is_none());
}

#[test]
fn sweeping_forgets_what_equals_a_fresh_state_and_nothing_else() {
    let (policy, mut table) = (policy(), table());
    assert!(table.decide(&policy, "a", Timestamp(0), 2).unwrap().is_allowed());
    assert!(table.decide(&policy, "b", Timestamp(0), 1).unwrap().is_allowed());
    table.sweep(Timestamp(499_999));
    assert_eq!(table.len(), 2);
    table.sweep(Timestamp(500_000));
    assert!(
        table.words(policy.limits(), "a").is_some() && table.words(policy.limits(), "b").is_none()
    );
    table.sweep(Timestamp(1_000_000));
    assert!(table.is_empty());
}

const LEVELS: &str = "
limits = [
  { name = 'user', algorithm = 'fixed_window', limit = 2, period = '1s' },
  { name = 'all', depth = 0, algorithm = 'fixed_window', limit = 5, period = '1s' },
  { name = 'org', depth = 1, algorithm = 'fixed_window', limit = 3, period = '1s' },
]";

#[test]
fn a_user_within_an_organisation_within_all_is_granted_by_each_or_taken_from_none() {
    let policy = Policy::parse("p", LEVELS).unwrap();
    let mut table = table();
    let mut decide = |key: &str, cost| {
        let verdict = table.operate(&policy, key, Timestamp(7), cost).unwrap();
        let remaining = verdict.limits.iter().map(|limit| limit.remaining());
        (verdict.decision.is_allowed(), remaining.collect::<std::vec::Vec<_>>())
    };
    // all, organisation, user
    assert_eq!(decide("acme/alice", 2), (true, std::vec![3, 1, 0]));
    assert_eq!(decide("acme/alice", 1), (false, std::vec![3, 1, 0]), "the user's own");
    assert_eq!(decide("acme/bob", 2), (false, std::vec![3, 1, 2]), "the organisation's");
    assert_eq!(decide("acme/bob", 1), (true, std::vec![2, 0, 1]));
    assert_eq!(decide("initech/peter", 2), (true, std::vec![0, 1, 0]));
    assert_eq!(decide("initech/milton", 1), (false, std::vec![0, 1, 2]), "that of all");
    assert_eq!(table.len(), 1 + 2 + 4, "a refused user has been seen");
    table.sweep(Timestamp(1_000_000));
    assert!(table.is_empty());
}

#[test]
fn a_key_that_looks_like_part_of_another_shares_nothing_with_it() {
    let policy = Policy::parse("p", LEVELS).unwrap();
    let mut table = table();
    for key in ["acme", "acme/", "acme/acme"] {
        let verdict = table.operate(&policy, key, Timestamp(7), 1).unwrap();
        assert_eq!(verdict.limits[2].remaining(), 1, "{key}: as a user each is its own");
    }
    assert_eq!(table.len(), 1 + 1 + 3);
}

#[test]
fn overrides_and_lists_hold_for_their_keys() {
    let text = "
        limits = [{ algorithm = 'token_bucket', capacity = 2, rate = '1/s' }]
        deny = ['ip:192.0.2.0/24', 'ip:2001:db8:bad::1', 'bot-*']
        allow = ['ip:192.0.2.7', 'monitor', 'ip:2001:db8:600d::/48']
        [overrides]
        'user:42' = { capacity = 5 }
        'user:*' = { capacity = 3, rate = '3/m' }
        'user:*-vip' = { limits = [
            { algorithm = 'fixed_window', limit = 9, period = '1s' },
            { algorithm = 'fixed_window', limit = 99, period = '1m' },
        ] }";
    let policy = Policy::parse("p", text).unwrap();
    let mut table = table();
    for (key, limit) in [
        ("anybody", 2),
        ("user:42", 5),
        ("user:4", 3),
        ("user:x-vip", 9),
        ("ip:198.51.100.1", 2),
        ("monitor", MAX_QUANTITY),
        ("bot-7", 0),
        ("ip:192.0.2.7", 0), // denied and allowed: denied
        ("ip:192.0.3.7", 2),
        ("ip:::ffff:192.0.2.9", 0), // the same address in IPv6 clothing
        ("ip:2001:db8:bad::1", 0),
        ("ip:2001:db8:bad::2", 2),
        ("ip:2001:db8:600d:7::9", MAX_QUANTITY),
    ] {
        let decision = table.decide(&policy, key, Timestamp(0), 1).unwrap();
        assert_eq!((decision.limit(), decision.is_allowed()), (limit, limit > 0), "{key}");
    }
    assert_eq!(table.len(), 7, "who is listed is not counted");
    table.sweep(Timestamp(0));
    assert_eq!(table.len(), 7, "each by its own limits");
}

#[test]
fn an_ipv6_address_is_counted_by_its_network() {
    for (prefix, alike, other) in [
        ("", "ip:2001:db8:1:2:ffff::1", "ip:2001:db8:1:3::1"),
        ("ipv6_prefix = 56", "ip:2001:db8:1:ff::1", "ip:2001:db8:1:100::1"),
        ("ipv6_prefix = 128", "ip:2001:0DB8:1:2::0001", "ip:2001:db8:1:2::2"),
    ] {
        let text = format!(
            "limits = [{{ algorithm = 'fixed_window', limit = 1, period = '1s' }}]\n{prefix}"
        );
        let policy = Policy::parse("p", &text).unwrap();
        let mut table = table();
        let mut allowed = |key| table.decide(&policy, key, Timestamp(0), 1).unwrap().is_allowed();
        assert!(allowed("ip:2001:db8:1:2::1"));
        assert!(!allowed(alike), "{prefix}");
        assert!(allowed(other), "{prefix}");
        assert!(allowed("ip:192.0.2.1") && !allowed("ip:::ffff:192.0.2.1"));
        assert!(allowed("2001:db8:1:2::1"), "no address unless it says so");
        let policy = Arc::new(policy);
        let object = |key: &str| Resolved::new(&policy, key).unwrap().object_name();
        assert_eq!(object("ip:2001:db8:1:2::1"), object(alike));
    }
}

#[test]
fn an_address_by_any_name_is_on_the_list() {
    let text = "
        deny = ['ip:::ffff:198.51.100.0/120', 'ip:2001:db8::/32', 'ip:10.0.0.0/16', '*:A']
        limits = [{ algorithm = 'fixed_window', limit = 1, period = '1s' }]";
    let policy = Policy::parse("p", text).unwrap();
    let mut table = table();
    for key in [
        "ip:198.51.100.3",
        "ip:::ffff:198.51.100.3",
        "ip:2001:0DB8:1::1",
        "ip:::ffff:10.0.0.1",
        "ip:10.0.0.1",
    ] {
        assert!(!table.decide(&policy, key, Timestamp(0), 1).unwrap().is_allowed(), "{key}");
    }
    for key in ["ip:198.51.101.3", "ip:2001:DB9::A"] {
        assert!(table.decide(&policy, key, Timestamp(0), 1).unwrap().is_allowed(), "{key}");
    }
}

#[test]
fn keys_that_share_a_state_share_no_leases() {
    let text = "limits = [
        { name = 'user', algorithm = 'concurrency', capacity = 2, time_to_live = '60s' },
        { name = 'org', depth = 1, algorithm = 'concurrency', capacity = 3, time_to_live = '60s' },
    ]";
    let policy = Arc::new(Policy::parse("p", text).unwrap());
    let mut table = table();
    let lease = |key: &str| Resolved::new(&policy, key).unwrap().lease_id("job-1");
    let mut ask = |key: &str, operation: Operation| {
        let verdict = table.operate(&policy, key, Timestamp(7), operation).unwrap();
        (verdict.decision.is_allowed(), verdict.effect.live())
    };
    let acquire =
        |key: &str| Operation::from(Request { lease: Some(lease(key)), ..Request::of(1) });
    for user in 1..=5 {
        let key = format!("acme/u{user}");
        assert_eq!(ask(&key, acquire(&key)), (user <= 3, None), "{key}");
    }
    let stranger = "acme/stranger";
    let release = Operation::Release(lease(stranger));
    assert_eq!(ask(stranger, release), (true, Some(false)), "it is not his");
}
