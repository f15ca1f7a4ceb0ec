mod account;
mod histories;
mod promise;
mod stored;

use std::format;
use std::vec;
use std::vec::Vec;

use tidegate_core::lease::Id;
use tidegate_core::{Micros, Timestamp};

use self::stored::Stored;
use crate::blob::{self, encode, name};
use crate::decide::Record;
use crate::limit::{Grant, Operation, Request};
use crate::policy::Policy;
use crate::state::blob::BlobError;
use crate::table::{KeyHasher, Table};

/// Reads bytes as of their newest time.
fn decode(policy: &Policy, record: &Record, bytes: &[u8]) -> Result<Vec<u64>, BlobError> {
    blob::decode(policy, record, bytes, Timestamp::EPOCH)
}

fn policy(limits: &str, rule: &str) -> Policy {
    Policy::parse("p", &format!("on_change = '{rule}'\nlimits = [{limits}]")).unwrap()
}

fn bucket(capacity: u64, rate: &str) -> std::string::String {
    format!("{{ algorithm = 'token_bucket', capacity = {capacity}, rate = '{rate}' }}")
}

/// What is left of a key under new limits, when so much of the old ones was used.
fn remaining(old: &str, used: u64, new: &str, rule: &str) -> u64 {
    let (old, new) = (policy(old, rule), policy(new, rule));
    let now = Timestamp(1_700_000_000_000_000);
    let mut words = vec![0; old.limits().words()];
    assert!(old.limits().decide(&mut words, now, &Request::of(used)).unwrap().is_allowed());
    let bytes = encode(&old, &old.limits().records()[0], &words);
    let (was, record) = (name(&old, &old.limits().records()[0], "k"), &new.limits().records()[0]);
    assert_eq!(was, name(&new, record, "k"), "it is found again");
    let words = decode(&new, record, &bytes).unwrap();
    assert!(record.accepts(&words).is_ok());
    new.limits().decide(&mut { words }, now, &Request::of(0)).unwrap().remaining()
}

#[test]
fn what_was_used_stays_used_by_the_rule() {
    let window =
        |limit| format!("{{ algorithm = 'fixed_window', limit = {limit}, period = '1m' }}");
    let sliding =
        |limit| format!("{{ algorithm = 'sliding_window', limit = {limit}, period = '1m' }}");
    let log = |limit| format!("{{ algorithm = 'sliding_log', rates = ['{limit}/m'] }}");
    let empty = "{ algorithm = 'token_bucket', capacity = 20, rate = '1/s', start = 'empty' }";
    for (old, used, new, kept, proportional) in [
        (&*bucket(10, "1/s"), 4, &*bucket(20, "1/s"), 16, 12),
        (&bucket(10, "1/s"), 4, &bucket(5, "9/s"), 1, 3),
        (&bucket(10, "1/s"), 10, &bucket(5, "1/s"), 0, 0),
        (&bucket(10, "1/s"), 1, &bucket(3, "1/s"), 2, 2), // 0.3 of a unit is one
        (&bucket(10, "1/s"), 4, empty, 6, 6),             // no more than was left
        (&window(10), 4, &window(20), 16, 12),
        (&window(10), 4, &bucket(20, "1/s"), 16, 12),
        (&sliding(10), 4, &sliding(5), 1, 3),
        (&log(10), 4, &log(20), 16, 12),
        (&log(10), 9, &sliding(5), 0, 0),
        (&window(10), 4, &window(10), 6, 6),
    ] {
        assert_eq!(remaining(old, used, new, "keep"), kept, "{old} to {new}");
        assert_eq!(remaining(old, used, new, "proportional"), proportional, "{old} to {new}");
    }
}

const NOW: Timestamp = Timestamp(1_700_000_000_000_000);

#[test]
fn a_debt_outlives_an_edit() {
    for rule in ["keep", "proportional"] {
        for (new, waits_days) in [(bucket(20, "1/d"), 1), (bucket(10, "2/d"), 6)] {
            let (old, new) = (policy(&bucket(10, "1/d"), rule), policy(&new, rule));
            let mut stored = Stored::default();
            assert!(stored.operate(&old, "k", NOW, 10).decision.is_allowed());
            stored.operate(&old, "k", NOW, Operation::Charge(10));
            let asked = stored.operate(&new, "k", NOW, 1).decision;
            assert!(!asked.is_allowed(), "{rule}: a debt of 10 is 20 used of 20, or more");
            if rule == "keep" {
                assert_eq!(asked.retry_after().0.div_ceil(86_400_000_000), waits_days);
            }
        }
    }
}

/// Nodes with a larger and a smaller limit decide on a key in turns: no more is granted than the larger one grants.
#[test]
fn a_refusal_leaves_what_a_smaller_limit_cannot_count() {
    let window = |name: &str, limit: u64, period: &str| {
        format!("{{ algorithm = '{name}', limit = {limit}, period = '{period}' }}")
    };
    let log = |rates: &str| format!("{{ algorithm = 'sliding_log', rates = [{rates}] }}");
    let leases = |capacity: u64| {
        format!("{{ algorithm = 'concurrency', capacity = {capacity}, time_to_live = '1h' }}")
    };
    let beside = |limit: &str| {
        let other = named("other", 900);
        format!("{}, {other}", limit.replace("{ ", "{ name = 'own', "))
    };
    let mut granted = std::collections::BTreeMap::new();
    for (what, large, small) in [
        ("bucket", bucket(20, "1/d"), bucket(8, "1/d")),
        ("one of two", beside(&bucket(20, "1/d")), beside(&bucket(8, "1/d"))),
        ("log", log("'20/h'"), log("'8/h'")),
        ("one of two rates", log("'1/1us', '20/h'"), log("'1/1us', '8/h'")),
        ("longer", window("fixed_window", 20, "1h"), window("fixed_window", 8, "1d")),
        ("log to window", log("'20/h'"), window("sliding_window", 8, "1h")),
        ("window to bucket", window("fixed_window", 20, "1h"), bucket(8, "1/d")),
        ("leases", leases(20), leases(8)),
    ] {
        let nodes = [policy(&large, "keep"), policy(&small, "keep")];
        let (mut stored, mut sum) = (Stored::default(), 0);
        for turn in 0..100 {
            let now = NOW.saturating_add(Micros(turn));
            let node = &nodes[usize::from(turn >= 20 && turn % 2 == 0)];
            let request = Request { lease: Some(Id([turn, 0])), ..Request::of(1) };
            sum += u64::from(stored.operate(node, "k", now, request).decision.is_allowed());
        }
        granted.insert(what, sum);
    }
    granted.retain(|_, sum| *sum != 20);
    assert_eq!(granted, Default::default());
}

/// The bound of docs/policies.md, "Over several edits": what writes a state that a smaller limit cannot hold lets the larger one grant
/// the excess once more each time.
#[test]
fn a_commit_and_a_remembered_refusal_lose_the_excess_once_each() {
    let log = |limit: u64| {
        format!("{{ algorithm = 'sliding_log', rates = ['{limit}/h'], count_denied = true }}")
    };
    for (large, small, excess, what) in [
        (bucket(20, "1/d"), bucket(8, "1/d"), 4, Operation::Charge(0)),
        (log(20), log(8), 12, Operation::from(1)),
    ] {
        let nodes = [policy(&large, "keep"), policy(&small, "keep")];
        let mut stored = Stored::default();
        assert!(stored.operate(&nodes[0], "k", NOW, 20).decision.is_allowed());
        for _ in 0..3 {
            stored.operate(&nodes[1], "k", NOW, what);
            assert_eq!(stored.remaining(&nodes[0], "k", NOW), excess);
            assert!(stored.operate(&nodes[0], "k", NOW, excess).decision.is_allowed());
        }
    }
}

/// The new rate holds from the first request after the edit on, so no edit reads the past at it.
#[test]
fn what_came_back_before_an_edit_came_back_at_the_old_rate() {
    let later = NOW.saturating_add(Micros(9_000_000));
    for (old, new, left) in [("10/s", "1/m", 90), ("1/m", "10/s", 0), ("10/s", "5/s", 90)] {
        for reservations in ["", "reservations = {}"] {
            let of = |rate| {
                let text =
                    format!("on_change = 'keep'\nlimits = [{}]\n{reservations}", bucket(100, rate));
                Policy::parse("p", &text).unwrap()
            };
            let (old, new) = (of(old), of(new));
            let mut stored = Stored::default();
            assert!(stored.operate(&old, "k", NOW, 100).decision.is_allowed());
            assert_eq!(stored.remaining(&new, "k", later), left, "{reservations}");
            // from then on the new rate holds
            stored.operate(&new, "k", later, 0);
            stored.operate(&new, "k", later, 1);
            let mut table = Table::new(1 << 20, KeyHasher::new(1));
            assert!(table.decide(&old, "k", NOW, 100).unwrap().is_allowed());
            let mut edited = Table::new(1 << 20, KeyHasher::new(1));
            for carried in table.close().into_carried(&old, &new, later) {
                assert!(edited.adopt(carried));
            }
            let remaining = edited.decide(&new, "k", later, 0).unwrap().remaining();
            assert_eq!(remaining, left, "in memory, {reservations}");
        }
    }
}

#[test]
fn a_bucket_that_starts_empty_has_no_more_after_an_edit() {
    let empty = |capacity| {
        format!(
            "{{ algorithm = 'token_bucket', capacity = {capacity}, rate = '1/s', start = 'empty' }}"
        )
    };
    for rule in ["keep", "proportional"] {
        let (small, large) = (policy(&empty(10), rule), policy(&empty(1_000), rule));
        let mut stored = Stored::default();
        assert!(!stored.operate(&small, "k", NOW, 1).decision.is_allowed());
        assert_eq!(stored.remaining(&large, "k", NOW), 0, "{rule}");
        let later = NOW.saturating_add(Micros(3_000_000));
        assert!(stored.operate(&small, "k", later, 1).decision.is_allowed());
        assert_eq!(stored.remaining(&large, "k", later), 2, "{rule}: 2 of 10 were left");
    }
}

fn named(name: &str, capacity: u64) -> std::string::String {
    format!(
        "{{ name = '{name}', algorithm = 'token_bucket', capacity = {capacity}, rate = '1/d' }}"
    )
}

/// What each limit has left for a key of which 4 units were used.
fn left(old: &[std::string::String], new: &[std::string::String], rule: &str) -> Vec<u64> {
    let (old, new) = (policy(&old.join(","), rule), policy(&new.join(","), rule));
    let mut stored = Stored::default();
    assert!(stored.operate(&old, "k", NOW, 4).decision.is_allowed());
    let looked = stored.operate(&new, "k", NOW, 0);
    looked.limits.iter().map(|limit| limit.remaining()).collect()
}

#[test]
fn a_limit_is_found_again_by_its_name() {
    let [a, b, c] = [named("a", 10), named("b", 20), named("c", 30)];
    let is = |old: &[&std::string::String], new: &[&std::string::String], expected: &[u64]| {
        let of = |limits: &[&std::string::String]| -> Vec<_> {
            limits.iter().map(|limit| (*limit).clone()).collect()
        };
        assert_eq!(left(&of(old), &of(new), "keep"), expected, "{old:?} to {new:?}");
    };
    is(&[&a, &b], &[&b, &a], &[16, 6]); // reordered
    is(&[&a, &b], &[&c, &a, &b], &[30, 6, 16]); // inserted: it starts afresh
    is(&[&a, &b, &c], &[&c, &b], &[26, 16]); // removed
    is(&[&a, &b], &[&c, &named("b", 50), &named("a", 12)], &[30, 46, 8]); // and edited
    is(&[&a, &b], &[&named("d", 20), &a], &[16, 6]); // renamed: by its numbers
    is(&[&a, &b], &[&named("d", 21), &a], &[21, 6]); // renamed and edited: another limit
    is(&[&named("a", 10), &named("b", 10)], &[&named("b", 10), &named("a", 9)], &[6, 5]);
    is(&[&b, &named("a", 25)], &[&named("a", 20), &named("d", 20)], &[16, 16]); // each is found once
    let [x, y, z] = [bucket(10, "1/d"), bucket(20, "1/d"), bucket(30, "1/d")];
    is(&[&x, &y], &[&z, &x, &y], &[30, 6, 16]); // without names: by their numbers,
    is(&[&x, &y], &[&z, &y], &[26, 16]); // and what is left by their order
    is(&[&x], &[&z, &x], &[30, 6]); // the only limit is called after its policy, one of two is not
    is(&[&x], &[&a], &[6]);
    is(&[&x], &[&b], &[20]); // a new name and new numbers: another limit
    is(&[&a], &[&y], &[20]);
}

/// Alice and bob count by `depth = 1`, and so do vip and bob, whose limits differ.
#[test]
fn rules_of_a_policy_share_no_state() {
    for on_change in ["reset", "keep", "proportional"] {
        let text = format!(
            "on_change = '{on_change}'
            limits = [{{ algorithm = 'token_bucket', depth = 1, capacity = 10, rate = '1/d' }}]
            [overrides]
            'acme/vip' = {{ capacity = 1_000 }}
            'acme/too' = {{ capacity = 1_000 }}
            'acme/as-all' = {{ capacity = 10 }}"
        );
        let policy = Policy::parse("p", &text).unwrap();
        let mut stored = Stored::default();
        let mut table = Table::new(1 << 20, KeyHasher::new(7));
        let mut granted = std::collections::BTreeMap::new();
        for round in 0..8 {
            let keys = ["acme/bob", "acme/vip", "acme/too", "acme/alice", "acme/as-all"];
            for (key, cost) in keys.into_iter().zip([3, 300, 300, 3, 3]) {
                let decided = stored.operate(&policy, key, NOW, cost).decision;
                assert_eq!(table.decide(&policy, key, NOW, cost), Ok(decided), "{key} {round}");
                *granted.entry(key).or_insert(0) += if decided.is_allowed() { cost } else { 0 };
            }
        }
        let granted: Vec<u64> = granted.into_values().collect();
        assert_eq!(granted, [3, 9, 6, 900, 900], "{on_change}: alice, as-all, bob, too, vip");
    }
}

#[test]
fn leases_stay_held_also_where_fewer_would_have_been_granted() {
    let leases = |capacity| {
        format!(
            "{{ algorithm = 'concurrency', capacity = {capacity}, time_to_live = '1m', max_leases = 9 }}"
        )
    };
    let (old, new) = (policy(&leases(5), "keep"), policy(&leases(2), "keep"));
    let mut words = vec![0; old.limits().words()];
    let held: Vec<Request> =
        (1..=3).map(|id| Request { lease: Some(Id([id, 0])), ..Request::of(1) }).collect();
    for request in &held {
        assert!(old.limits().decide(&mut words, Timestamp(7), request).unwrap().is_allowed());
    }
    let bytes = encode(&old, &old.limits().records()[0], &words);
    let mut words = decode(&new, &new.limits().records()[0], &bytes).unwrap();
    let mut ask = |operation: Operation| {
        let verdict = new.limits().operate(&mut words, Timestamp(8), &operation).unwrap();
        (verdict.decision.is_allowed(), verdict.effect.live())
    };
    let another = Request { lease: Some(Id([9, 0])), ..Request::of(1) };
    assert_eq!(ask(another.into()), (false, None), "3 of 2 are held");
    for request in &held[..2] {
        assert_eq!(ask(Operation::Release(request.lease.unwrap())), (true, Some(true)));
    }
    assert_eq!(ask(another.into()), (true, None));
    assert_eq!(ask(Operation::Release(held[2].lease.unwrap())), (true, Some(true)));
}

#[test]
fn what_is_no_state_of_any_limits_is_refused() {
    let policy = policy(&bucket(10, "1/s"), "keep");
    let record = &policy.limits().records()[0];
    let good = encode(&policy, record, &[4_000_000, 7]);
    assert_eq!(decode(&policy, record, &good), Ok(vec![4_000_000, 7]));
    for length in 0..good.len() {
        assert!(decode(&policy, record, &good[..length]).is_err(), "cut to {length} bytes");
    }
    for at in 0..good.len() - 16 {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        assert!(decode(&policy, record, &bytes).is_err(), "byte {at}");
    }
}

#[test]
fn bytes_that_claim_more_limits_than_a_policy_may_have_are_refused() {
    let policy = policy(&bucket(10, "1/s"), "keep");
    let record = &policy.limits().records()[0];
    let leases = [4, 6, 4_096, 1_000_000, 4_096, 0_u64];
    for count in [16, 17, 10_000] {
        let described = leases.repeat(count);
        let mut bytes = vec![4];
        bytes.extend(record.checksum(&described).to_le_bytes());
        bytes.extend(u16::try_from(described.len()).unwrap().to_le_bytes());
        bytes.extend(described.iter().flat_map(|word| word.to_le_bytes()));
        assert_eq!(record.before(&described).is_some(), count <= 16);
        assert_eq!(decode(&policy, record, &bytes), Err(BlobError::Invalid), "{count} limits");
    }
}

#[test]
fn an_override_starts_afresh_and_leaves_what_was_there() {
    let base =
        "on_change = 'keep'\nlimits = [{ algorithm = 'fixed_window', limit = 10, period = '1d' }]";
    let policy = |rest: &str| Policy::parse("p", &format!("{base}\n{rest}")).unwrap();
    let (without, with) = (policy(""), policy("overrides.vip = { limit = 20 }"));
    let mut stored = Stored::default();
    assert!(stored.operate(&without, "vip", NOW, 4).decision.is_allowed());
    assert!(stored.operate(&with, "vip", NOW, 7).decision.is_allowed());
    assert_eq!(stored.remaining(&with, "vip", NOW), 13, "it was added");
    assert_eq!(stored.remaining(&policy("overrides.vip = { limit = 30 }"), "vip", NOW), 23);
    assert_eq!(stored.remaining(&policy("overrides.'vi*' = { limit = 30 }"), "vip", NOW), 30);
    assert_eq!(
        stored.remaining(&without, "vip", NOW),
        6,
        "it was removed: as the policy's limits stood"
    );
}

/// A limit that an edit leaves alone goes on as it was, whatever becomes of the limits beside it.
#[test]
fn an_edit_of_one_limit_leaves_the_state_of_another() {
    let sliding =
        "{ name = 'a', algorithm = 'sliding_window', limit = 10, period = '1m', segments = 6 }";
    let beside = |limit: u64| {
        format!("{{ name = 'b', algorithm = 'fixed_window', limit = {limit}, period = '1d' }}")
    };
    let [old, new] = [20, 30].map(|limit| policy(&format!("{sliding}, {}", beside(limit)), "keep"));
    let at = |seconds: u64| NOW.saturating_add(Micros(seconds * 1_000_000));
    let mut stored = Stored::default();
    for seconds in [0, 50] {
        assert!(stored.operate(&old, "k", at(seconds), 5).decision.is_allowed());
    }
    assert_eq!(stored.remaining(&new, "k", at(75)), 5, "those of the first second have left");
}

#[test]
fn what_came_back_to_a_bucket_counts_in_a_window_until_its_newest_time() {
    let window = "{ algorithm = 'fixed_window', limit = 100, period = '1d' }";
    let (old, new) = (policy(&bucket(100, "1/s"), "keep"), policy(window, "keep"));
    let mut stored = Stored::default();
    assert!(stored.operate(&old, "k", NOW, 60).decision.is_allowed());
    let later = NOW.saturating_add(Micros(9_000_000));
    assert_eq!(stored.remaining(&new, "k", later), 40);
}

#[test]
fn a_window_of_a_key_ends_when_it_would_have_ended_before_the_edit() {
    let window = |limit: u64| {
        format!("{{ algorithm = 'fixed_window', limit = {limit}, period = '1m', start = 'first' }}")
    };
    let (old, new) = (policy(&window(2), "keep"), policy(&window(3), "keep"));
    let mut stored = Stored::default();
    let at = |seconds: u64| NOW.saturating_add(Micros(seconds * 1_000_000));
    for seconds in [0, 40] {
        assert!(stored.operate(&old, "k", at(seconds), 1).decision.is_allowed());
    }
    let left = [59, 60].map(|seconds| stored.remaining(&new, "k", at(seconds)));
    assert_eq!(left, [1, 3]);
}

#[test]
fn a_share_that_was_used_stays_used_under_reservations() {
    let of = |limit: u64| {
        let limits =
            format!("limits = [{{ algorithm = 'fixed_window', limit = {limit}, period = '1d' }}]");
        Policy::parse("p", &format!("on_change = 'proportional'\nreservations = {{}}\n{limits}"))
            .unwrap()
    };
    let mut stored = Stored::default();
    assert!(stored.operate(&of(10), "k", NOW, 4).decision.is_allowed());
    assert_eq!(stored.remaining(&of(20), "k", NOW), 12);
}

#[test]
fn a_late_refund_after_an_edit_returns_nothing_that_has_flowed_in() {
    let (old, new) = (policy(&bucket(100, "1/s"), "keep"), policy(&bucket(10, "1/s"), "keep"));
    let mut stored = Stored::default();
    assert!(stored.operate(&old, "k", NOW, 100).decision.is_allowed());
    stored.operate(&new, "k", NOW, Operation::Charge(0)); // 20 count from now on
    let later = NOW.saturating_add(Micros(15_000_000));
    assert!(stored.operate(&new, "k", later, 3).decision.is_allowed());
    stored.operate(&new, "k", later, Operation::RefundOf(Grant { at: NOW, units: 100 }, 100));
    assert_eq!(stored.remaining(&new, "k", later), 7, "15 of the 20 had flowed in");
}

#[test]
fn a_limit_of_another_kind_starts_afresh() {
    let leases = "{ algorithm = 'concurrency', capacity = 5, time_to_live = '1m' }";
    let empty = bucket(20, "1/s").replace(" }", ", start = 'empty' }");
    for (new, left) in [(bucket(20, "1/s"), 20), (empty, 0)] {
        let (old, new) = (policy(leases, "keep"), policy(&new, "keep"));
        let mut stored = Stored::default();
        let lease = Request { lease: Some(Id([1, 1])), ..Request::of(1) };
        assert!(stored.operate(&old, "k", NOW, lease).decision.is_allowed());
        assert_eq!(stored.remaining(&new, "k", NOW), left);
        stored.operate(&new, "k", NOW, 1);
        let looked = stored.clone().operate(&old, "k", NOW, 0).decision;
        assert_eq!(looked.remaining(), 5, "and so does the way back");
    }
}

#[test]
fn another_smallest_depth_moves_all_states() {
    let [whole, by_team] = [named("a", 10), named("b", 20).replace(" }", ", depth = 1 }")];
    let user = policy(&whole, "keep");
    let both = policy(&[whole, by_team].join(","), "keep");
    for (old, new) in [(&user, &both), (&both, &user)] {
        let mut stored = Stored::default();
        assert!(stored.operate(old, "acme/bob", NOW, 4).decision.is_allowed());
        assert_eq!(stored.remaining(new, "acme/bob", NOW), 10);
    }
}

/// A log's units keep their times, so that each of its rates goes on counting them.
#[test]
fn all_rates_of_a_log_go_on_counting() {
    let log = |rates: &str| format!("{{ algorithm = 'sliding_log', rates = [{rates}] }}");
    let (old, new) = (log("'10/m', '2/3s'"), log("'12/m', '4/3s'"));
    for (rule, left) in [("keep", 4), ("proportional", 0)] {
        let (old, new) = (policy(&old, rule), policy(&new, rule));
        let mut stored = Stored::default();
        let at = |seconds: u64| NOW.saturating_add(Micros(seconds * 1_000_000));
        for seconds in 0..8 {
            assert!(stored.operate(&old, "k", at(5 * seconds), 1).decision.is_allowed());
        }
        // 8 of 10 in a minute are 8 of 12; their share is more than 12, as 2 are to be 4 in 3 s
        assert_eq!(stored.remaining(&new, "k", at(40)), left, "{rule}");
        assert!(stored.operate(&new, "k", at(70), 1).decision.is_allowed(), "some are too old");
    }
}

#[test]
fn a_refund_of_more_than_an_edit_left_returns_only_what_is_still_counted() {
    let window =
        |limit| format!("{{ algorithm = 'fixed_window', limit = {limit}, period = '1d' }}");
    let sliding =
        |limit| format!("{{ algorithm = 'sliding_window', limit = {limit}, period = '1d' }}");
    let log = |limit| format!("{{ algorithm = 'sliding_log', rates = ['{limit}/d'] }}");
    let of = |limit| [bucket(limit, "1/d"), window(limit), sliding(limit), log(limit)];
    for (old, new) in of(100).into_iter().zip(of(10)) {
        for units in [5, 10, 11, 20, 21, 100] {
            for actual in 0..=10.min(units) {
                let (old, new) = (policy(&old, "keep"), policy(&new, "keep"));
                let mut stored = Stored::default();
                assert!(stored.operate(&old, "k", NOW, units).decision.is_allowed());
                let grant = Grant { at: NOW, units };
                stored.operate(&new, "k", NOW, Operation::RefundOf(grant, units - actual));
                let left = stored.remaining(&new, "k", NOW);
                assert_eq!(left, 10 - actual, "{units} that were {actual} of {new:?}");
            }
        }
    }
}
