use std::format;
use std::string::{String, ToString};
use std::sync::Arc;

use tidegate_core::{MAX_QUANTITY, Micros, Timestamp};

use super::{KeyHasher, Table, TableError};
use crate::policy::Policy;
use crate::request::{Operation, OperationError, Request};
use crate::resolved::Resolved;

/// With room for all that a test asks.
fn table() -> Table {
    Table::new(1 << 20, KeyHasher::new(1))
}

/// As small as it may be for these limits.
fn small_table(policy: &Policy) -> Table {
    Table::new(Table::least_bytes(policy), KeyHasher::new(1))
}

/// Asks for 1 by `key-0`, `key-1` and so on until there is no room; how many there were.
fn fill(table: &mut Table, policy: &Policy, now: Timestamp) -> usize {
    let full = |count: &usize| match table.decide(policy, &format!("key-{count}"), now, 1) {
        Err(error) => matches!(error, TableError::Full { .. }),
        Ok(decision) => !decision.is_allowed(),
    };
    (0..1_000_000).find(full).unwrap()
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
fn blocks_of_known_keys_stay_within_the_bound() {
    let policy = policy();
    let mut table = small_table(&policy);
    let keys = fill(&mut table, &policy, Timestamp(0));
    let most = Table::least_bytes(&policy);
    let mut block = |count| {
        let block = Operation::Block(Micros::SECOND);
        let answer = table.operate(&policy, &format!("key-{count}"), Timestamp(1), block);
        assert!(table.bytes() <= most, "{} bytes", table.bytes());
        answer.is_ok()
    };
    let blocked = (0..keys).take_while(|count| block(*count)).count();
    assert!(0 < blocked && blocked < keys, "{blocked} of {keys}");
}

#[test]
fn an_allocation_counts_in_pages_from_128_kib_on() {
    let heap = |words| super::Entry::heap_of(0, words);
    assert_eq!([heap(16_383), heap(16_384)], [128 << 10, 132 << 10]);
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
fn a_full_table_learns_no_key_until_one_expires_and_loosens_no_limit() {
    let policy = policy();
    let (mut table, max_bytes) = (small_table(&policy), Table::least_bytes(&policy));
    let count = fill(&mut table, &policy, Timestamp(0));
    assert!(count > 10 && table.len() == count && table.bytes() <= max_bytes);
    assert!(table.decide(&policy, "key-0", Timestamp(0), 1).unwrap().is_allowed());
    let at = |seconds: u64| Timestamp(seconds * 500_000);
    let full = table.decide(&policy, "d", at(0), 1);
    assert_eq!(full, Err(TableError::Full { max_bytes }));
    assert_eq!(
        full.unwrap_err().to_string(),
        format!("no room for a new key: the keys in use fill all {max_bytes} bytes")
    );
    assert!(!table.decide(&policy, "key-0", at(1), 2).unwrap().is_allowed(), "it is remembered");
    assert!(table.decide(&policy, "d", at(2), 1).unwrap().is_allowed(), "all were full again");
    assert_eq!(table.len(), 1);
}

#[test]
fn a_flood_of_new_keys_keeps_the_table_at_its_size() {
    let (policy, max_bytes) = (policy(), 200_000);
    let mut table = Table::new(max_bytes, KeyHasher::new(1));
    let mut refused = 0;
    for i in 0..100_000_u64 {
        // 10 µs apart: 100,000 keys in a second, each in use for half a second
        let key: String = format!("key-{i}");
        refused += u64::from(table.decide(&policy, &key, Timestamp(i * 10), 1).is_err());
        assert!(table.bytes() <= max_bytes);
    }
    assert_eq!(refused, 100_000 - u64::try_from(table.len()).unwrap());
    assert!((896..=1_792).contains(&table.len()), "{} keys", table.len());
}

/// Removed entries leave places behind that a hash table would rather grow than use.
#[test]
fn a_table_at_its_bound_learns_as_many_keys_as_expire() {
    let text = "limits = [{ algorithm = 'token_bucket', capacity = 10, rate = '1/s' }]";
    let policy = Policy::parse("p", text).unwrap();
    let mut table = Table::new(150_000, KeyHasher::new(1));
    let most = fill(&mut table, &policy, Timestamp(0));
    for second in 1..100_u64 {
        for i in 0..2_000 {
            // 1 to 9 s in use
            let (key, cost) = (format!("{second}-{i}"), 1 + (second * 31 + i * 17) % 9);
            let now = Timestamp(second * 1_000_000 + i * 500);
            let _ = table.decide(&policy, &key, now, cost);
        }
        assert!(table.bytes() <= 150_000);
        assert!(table.len() * 8 > most * 7, "{} of {most} keys", table.len());
    }
}

/// Whom an organisation's limit refuses cannot be let in by filling the table, nor keep others out.
#[test]
fn a_refusal_needs_no_room() {
    let text = "limits = [
        { algorithm = 'token_bucket', name = 'user', capacity = 5, rate = '1/d' },
        { algorithm = 'fixed_window', name = 'organisation', depth = 1, limit = 2, period = '1d' },
    ]";
    let policy = Policy::parse("p", text).unwrap();
    let (mut table, max_bytes) = (small_table(&policy), Table::least_bytes(&policy));
    let mut decide = |key: &str, at: u64| {
        let decision = table.decide(&policy, key, Timestamp(at), 1);
        (decision.map(|decision| decision.is_allowed()), table.len(), table.bytes())
    };
    assert!(matches!(decide("acme/0", 0), (Ok(true), 2, _)));
    assert!(matches!(decide("acme/1", 1), (Ok(true), 3, _)));
    for user in 2..1_000 {
        let (allowed, _, bytes) = decide(&format!("acme/{user}"), user);
        assert!(allowed == Ok(false) && bytes <= max_bytes / 2, "{bytes} of {max_bytes}");
    }
    let (_, refused, _) = decide("acme/1000", 1_000);
    let full = (0..1_000).find(|user| decide(&format!("other-{user}/0"), 1_001 + user).0.is_err());
    assert!(full.is_some_and(|users| users > 5), "half the room was left");
    let (allowed, len, _) = decide("acme/1001", 3_000);
    assert!(allowed == Ok(false) && len > refused + 10);
}

#[test]
fn sweeping_forgets_what_equals_a_fresh_state_and_nothing_else() {
    let (policy, mut table) = (policy(), table());
    assert!(table.decide(&policy, "a", Timestamp(0), 2).unwrap().is_allowed());
    assert!(table.decide(&policy, "b", Timestamp(0), 1).unwrap().is_allowed());
    table.sweep(&policy, Timestamp(499_999));
    assert_eq!(table.len(), 2);
    table.sweep(&policy, Timestamp(500_000));
    assert!(
        table.words(policy.limits(), "a").is_some() && table.words(policy.limits(), "b").is_none()
    );
    table.sweep(&policy, Timestamp(1_000_000));
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
    table.sweep(&policy, Timestamp(1_000_000));
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
fn a_full_table_takes_all_parts_of_a_key_or_none() {
    let text = "limits = [
        { name = 'user', algorithm = 'fixed_window', limit = 2, period = '1s' },
        { name = 'org', depth = 1, algorithm = 'sliding_log', rates = ['900/s'] },
    ]";
    let policy = Policy::parse("p", text).unwrap();
    let mut table = small_table(&policy);
    let mut decide = |key: &str| {
        let before = table.bytes();
        let decided = table.decide(&policy, key, Timestamp(0), 1);
        assert!(decided.is_ok() || table.bytes() == before, "nothing has changed");
        (decided.is_ok(), table.len())
    };
    let full = (0..100).find(|org| !decide(&format!("{org}/alice")).0).unwrap();
    assert_eq!(decide("another/alice"), (false, 2 * full), "no room for the organisation");
    assert_eq!(decide("0/bob"), (true, 2 * full + 1), "there is for the user alone");
    assert_eq!(decide("0/alice"), (true, 2 * full + 1));
    assert_eq!(decide("another/alice"), (false, 2 * full + 1));
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
    table.sweep(&policy, Timestamp(0));
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
        deny = ['ip:::ffff:198.51.100.0/120', 'ip:2001:db8:*', 'ip:10.0.*']
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
    assert!(table.decide(&policy, "ip:198.51.101.3", Timestamp(0), 1).unwrap().is_allowed());
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

#[test]
fn blocks_are_kept_within_the_bound_and_end() {
    let policy = policy();
    let mut table = Table::new(1 << 20, KeyHasher::new(1));
    let block = |seconds: u64| Operation::Block(Micros(seconds * 1_000_000));
    let ask = |table: &mut Table, key: &str, now: u64, operation: Operation| {
        let verdict = table.operate(&policy, key, Timestamp(now), operation);
        verdict.map(|verdict| verdict.decision.is_allowed())
    };
    // a key that is in use, and one that is not
    assert_eq!(ask(&mut table, "a", 0, 1.into()), Ok(true));
    for key in ["a", "a key that is too long to be kept inline anywhere"] {
        assert_eq!(ask(&mut table, key, 0, block(9)), Ok(true));
        assert_eq!(ask(&mut table, key, 1, 1.into()), Ok(false));
        let decision = table.decide(&policy, key, Timestamp(1), 1).unwrap();
        assert_eq!(decision.retry_after(), Micros(8_999_999));
    }
    table.sweep(&policy, Timestamp(8_999_999));
    assert_eq!(table.len(), 2, "blocks last longer than what was used");
    assert_eq!(ask(&mut table, "a", 8_999_999, 1.into()), Ok(false));
    assert_eq!(ask(&mut table, "a", 9_000_000, 2.into()), Ok(true));
    table.sweep(&policy, Timestamp(20_000_000));
    assert_eq!((table.len(), table.heap), (0, 0));

    let mut full = Table::new(Table::least_bytes(&policy), KeyHasher::new(1));
    let mut blocked = 0;
    while ask(&mut full, &format!("key-{blocked}"), 0, block(9)).is_ok() {
        assert!(full.bytes() <= Table::least_bytes(&policy));
        blocked += 1;
    }
    assert!(blocked > 10, "{blocked}");
    assert_eq!(ask(&mut full, "key-0", 1, 1.into()), Ok(false), "it is still blocked");
    assert_eq!(ask(&mut full, "key-0", 1, block(0)), Ok(true));
    assert_eq!(
        ask(&mut full, "key-0", 1, block(9)),
        Ok(true),
        "a key that is known needs no new place"
    );
}

#[test]
fn a_short_key_and_a_small_state_take_only_their_place_in_the_hash_table() {
    let inline = size_of::<String>();
    let bytes = |key: usize, words: usize| {
        let rates = format!("rates = ['{}/m']", words - 2); // a log has two words and one for each unit
        let text = format!("limits = [{{ algorithm = 'sliding_log', {rates} }}]");
        let (policy, mut table) = (Policy::parse("p", &text).unwrap(), table());
        assert_eq!(policy.limits().words(), words);
        assert!(table.decide(&policy, &"k".repeat(key), Timestamp(0), 1).unwrap().is_allowed());
        table.bytes()
    };
    let (two_words, mut table) = (policy(), table());
    assert!(table.decide(&two_words, "k", Timestamp(0), 1).unwrap().is_allowed());
    assert_eq!([bytes(1, 3), bytes(inline, 3)], [table.bytes(); 2]);
    assert!(bytes(inline + 1, 3) > bytes(inline, 3) && bytes(inline, 4) > bytes(inline, 3));
}

/// Carries all states of a table over an edit.
fn edited(table: &mut Table, from: &Policy, to: &Policy) -> Table {
    let mut next = Table::new(1 << 20, KeyHasher::new(2));
    for state in table.close().into_carried(from, to) {
        assert!(next.adopt(state));
    }
    next
}

#[test]
fn an_edit_keeps_the_states_that_a_store_would_keep() {
    let policy = |limit: u64, rest: &str| {
        let text = format!(
            "limits = [{{ algorithm = 'fixed_window', limit = {limit}, period = '1d' }}]\n{rest}"
        );
        Policy::parse("p", &text).unwrap()
    };
    let remaining = |table: &mut Table, policy: &Policy| {
        table.decide(policy, "k", Timestamp(1), 0).unwrap().remaining()
    };
    for (from, to, left) in [
        (policy(10, ""), policy(10, "on_error = 'open'"), 7),
        (policy(10, ""), policy(5, ""), 5),
        (policy(10, "on_change = 'keep'"), policy(5, "on_change = 'keep'"), 2),
        (policy(10, "on_change = 'keep'"), policy(20, "on_change = 'proportional'"), 14),
        (policy(10, ""), policy(5, "on_change = 'keep'"), 5),
    ] {
        let mut table = table();
        assert!(table.decide(&from, "k", Timestamp(0), 3).unwrap().is_allowed());
        let mut next = edited(&mut table, &from, &to);
        assert_eq!(remaining(&mut next, &to), left, "{from:?} {to:?}");
        // a request that was under way grants nothing more by the old policy
        let late = table.decide(&from, "k", Timestamp(1), 1);
        assert_eq!(late, Err(TableError::Full { max_bytes: 0 }));
    }
}

#[test]
fn a_block_and_a_state_beyond_the_bound_are_carried_over_too() {
    let (from, to) = (policy(), policy());
    let mut table = table();
    for key in 0..1_000 {
        assert!(table.decide(&from, &format!("{key}"), Timestamp(0), 2).unwrap().is_allowed());
    }
    table.operate(&from, "7", Timestamp(0), Operation::Block(Micros::SECOND)).unwrap();
    let mut next = edited(&mut table, &from, &to);
    next.set_max_bytes(Table::least_bytes(&to));
    for key in 0..1_000 {
        let refused = next.decide(&to, &format!("{key}"), Timestamp(600_000), 1).unwrap();
        assert_eq!(refused.is_allowed(), key != 7, "{key}");
    }
    assert!(next.decide(&to, "new", Timestamp(0), 1).is_err());
}
