//! The bound of a table, and a table without room.

use std::format;
use std::string::{String, ToString};

use tidegate_core::{Micros, Timestamp};

use super::super::{Entry, KeyHasher, Table, TableError, entries};
use super::{policy, table};
use crate::key::Depth;
use crate::limit::{Offered, Operation};
use crate::policy::Policy;

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
fn a_table_fills_its_bound_to_the_last_byte() {
    let (policy, most) = (policy(), entries::least_bytes());
    for (most, fits) in [(most, true), (most - 1, false)] {
        let mut table = Table::new(most, KeyHasher::new(1));
        assert_eq!(table.decide(&policy, "k", Timestamp(0), 1).is_ok(), fits);
    }
}

#[test]
fn the_memory_of_keys_that_have_expired_comes_back() {
    let (policy, mut table) = (policy(), Table::new(1 << 22, KeyHasher::new(1)));
    for key in 0..4_000 {
        let _ = table.decide(&policy, &format!("{key}"), Timestamp(0), 1).unwrap();
    }
    let flood = table.bytes();
    let _ = table.decide(&policy, "k", Timestamp(400_000), 1).unwrap();
    table.sweep(Timestamp(500_000));
    assert!(table.len() == 1 && table.bytes() < flood / 64, "{} of {flood}", table.bytes());
}

#[test]
fn an_operation_that_leaves_a_fresh_state_leaves_no_entry() {
    let (policy, mut table) = (policy(), table());
    for operation in [Operation::Reset(Depth::Whole), Operation::Block(Micros::ZERO)] {
        assert!(
            table.operate(&policy, "k", Timestamp(7), operation).unwrap().decision.is_allowed()
        );
        assert!(table.is_empty(), "{operation:?}");
    }
}

#[test]
fn an_allocation_counts_in_pages_from_128_kib_on() {
    let heap = |words| Entry::heap_of(0, words);
    assert_eq!([heap(16_383), heap(16_384)], [128 << 10, 132 << 10]);
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
fn a_refusal_that_would_be_remembered_needs_no_room_either() {
    let text = "limits = [
        { algorithm = 'sliding_log', name = 'user', rates = ['5/d'], count_denied = true },
        { algorithm = 'fixed_window', name = 'organisation', depth = 1, limit = 2, period = '1d' },
    ]";
    let policy = Policy::parse("p", text).unwrap();
    let (mut table, max_bytes) = (small_table(&policy), Table::least_bytes(&policy));
    let mut len = 0;
    for user in 0..1_000 {
        let verdict = table.operate(&policy, &format!("acme/{user}"), Timestamp(user), 1).unwrap();
        assert_eq!(verdict.decision.is_allowed(), user < 2);
        assert!(table.bytes() <= max_bytes && table.len() >= len);
        len = table.len();
    }
    assert!(10 < len && len < 900, "{len}");
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
        assert_eq!(ask(&mut table, key, 0, block(9)), Ok(false), "it is blocked now");
        assert_eq!(ask(&mut table, key, 1, 1.into()), Ok(false));
        let decision = table.decide(&policy, key, Timestamp(1), 1).unwrap();
        assert_eq!(decision.retry_after(), Micros(8_999_999));
    }
    table.sweep(Timestamp(8_999_999));
    assert_eq!(table.len(), 2, "blocks last longer than what was used");
    assert_eq!(ask(&mut table, "a", 8_999_999, 1.into()), Ok(false));
    assert_eq!(ask(&mut table, "a", 9_000_000, 2.into()), Ok(true));
    table.sweep(Timestamp(20_000_000));
    assert_eq!((table.len(), table.heap), (0, 0));

    let mut full = Table::new(Table::least_bytes(&policy), KeyHasher::new(1));
    let mut blocked = 0;
    while ask(&mut full, &format!("key-{blocked}"), 0, block(9)).is_ok() {
        assert!(full.bytes() <= Table::least_bytes(&policy));
        blocked += 1;
    }
    assert!(blocked > 10, "{blocked}");
    let no_room = ask(&mut full, &format!("key-{blocked}"), 1, block(9));
    assert!(matches!(no_room, Err(TableError::Full { .. })), "a block is never lost: {no_room:?}");
    assert_eq!(ask(&mut full, "key-0", 1, 1.into()), Ok(false), "it is still blocked");
    assert_eq!(ask(&mut full, "key-0", 1, block(0)), Ok(true));
    assert_eq!(
        ask(&mut full, "key-0", 1, block(9)),
        Ok(false),
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

#[test]
fn room_that_is_reserved_for_a_new_state_is_taken_by_nothing_else() {
    let limits =
        "limits = [{ algorithm = 'token_bucket', capacity = 20_000, rate = '2/h', depth = 1 },
                  { algorithm = 'suppression', rate = '2/s' }]";
    let policy = Policy::parse("p", limits).unwrap();
    let mut table = Table::new(15 << 19, KeyHasher::new(1));
    for user in 0..14_334 {
        let decided = table.decide(&policy, &format!("old/{user}"), Timestamp(0), 1);
        assert!(decided.unwrap().is_allowed());
    }
    assert_eq!(table.len(), 14_335, "each user, and the organisation");
    // one place is left in the only part: for the report, not for the clock of the organisation's bucket
    let report = Operation::Report(Offered { at: None, admitted: 9, suppressed: 0 });
    let _ = table.operate(&policy, "new/user", Timestamp(1), report).unwrap();
    assert_eq!((table.len(), table.entries.places()), (14_336, 16_384));
}
