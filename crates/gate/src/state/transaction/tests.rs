mod open;

use std::collections::BTreeMap;
use std::format;
use std::string::{String, ToString};
use std::sync::Arc;
use std::vec::Vec;

use tidegate_core::{Micros, Timestamp};

use super::{Answered, Due, KeySlots, Transaction, TransactionError};
use crate::key::Depth;
use crate::limit::{Operation, OperationError, Request};
use crate::policy::{Policy, Resolved};
use crate::state::blob::BlobError;

const ORG_AND_USER: &str = "limits = [
  { algorithm = 'fixed_window', name = 'user', limit = 2, period = '1m' },
  { algorithm = 'fixed_window', name = 'org', depth = 1, limit = 3, period = '1m' },
]";

pub(super) type Store = BTreeMap<String, Vec<u8>>;

pub(super) fn resolve(policy: &str, keys: &[&str]) -> Vec<Resolved> {
    let policy = Arc::new(Policy::parse("p", policy).unwrap());
    keys.iter().map(|key| Resolved::new(&policy, key).unwrap()).collect()
}

pub(super) fn load(store: &Store, asked: &[Resolved]) -> (Transaction, Vec<KeySlots>) {
    let mut transaction = Transaction::default();
    let joined_keys = asked.iter().map(|resolved| transaction.join(resolved)).collect();
    let found: Vec<_> = transaction.names().map(|name| store.get(name).cloned()).collect();
    transaction.load(found);
    (transaction, joined_keys)
}

pub(super) fn save(store: &mut Store, transaction: &mut Transaction) -> Vec<Due> {
    let mut due = Vec::new();
    for used in transaction.used() {
        assert_eq!(used.found, store.get(used.name).map(Vec::as_slice));
        if let Some(write) = used.write {
            due.push(write.due);
            store.insert(write.name.into(), write.bytes.into());
        }
    }
    transaction.stored(|_| Micros::ZERO);
    due
}

/// One operation by itself.
fn alone(store: &mut Store, key: &Resolved, operation: impl Into<Operation>) -> Answered {
    let (mut transaction, joined_keys) = load(store, core::slice::from_ref(key));
    let answered = transaction.operate(&joined_keys[0], Timestamp(7), &operation.into()).unwrap();
    save(store, &mut transaction);
    answered
}

#[test]
fn operations_of_a_partition_see_each_other_and_write_each_record_once() {
    let asked = resolve(ORG_AND_USER, &["acme/a", "acme/b", "acme/a", "acme/b", "acme/b"]);
    let mut together = Store::new();
    let (mut transaction, joined_keys) = load(&together, &asked);
    assert_eq!(transaction.names().len(), 3, "acme and two users");
    let mut allowed = Vec::new();
    for joined in &joined_keys {
        let answered = transaction.operate(joined, Timestamp(7), &1.into()).unwrap();
        assert!(!answered.is_settled, "each depends on what the first one takes");
        allowed.push(answered.verdict.decision.is_allowed());
    }
    assert_eq!(allowed, [true, true, true, false, false]);
    assert_eq!(save(&mut together, &mut transaction).len(), 3);

    let mut one_by_one = Store::new();
    for (key, allowed) in asked.iter().zip(allowed) {
        let answered = alone(&mut one_by_one, key, 1);
        assert_eq!(answered.verdict.decision.is_allowed(), allowed);
    }
    assert_eq!(together, one_by_one);
}

#[test]
fn a_refusal_is_settled_and_its_newest_time_is_written_afterwards() {
    let asked =
        resolve("limits = [{ algorithm = 'fixed_window', limit = 1, period = '1m' }]", &["k"]);
    let mut store = Store::new();
    assert!(!alone(&mut store, &asked[0], 1).is_settled, "a grant must be stored first");
    let (mut transaction, joined_keys) = load(&store, &asked);
    let refused = transaction.operate(&joined_keys[0], Timestamp(8), &1.into()).unwrap();
    assert!(refused.is_settled && !refused.verdict.decision.is_allowed());
    assert!(!refused.verdict.is_listed(), "it may pass later");
    assert_eq!(save(&mut store, &mut transaction), [Due::AfterAnswer]);
    let (mut transaction, joined_keys) = load(&store, &asked);
    assert!(transaction.operate(&joined_keys[0], Timestamp(8), &0.into()).unwrap().is_settled);
    assert_eq!(save(&mut store, &mut transaction), [], "a peek writes nothing");
    transaction.operate(&joined_keys[0], Timestamp(8), &1.into()).unwrap();
    assert_eq!(
        save(&mut store, &mut transaction),
        [],
        "nor does a refusal at the time that is stored"
    );
}

#[test]
fn a_refusal_that_is_remembered_must_be_stored_first() {
    for (policy, refused_first) in [
        (
            "limits = [{ algorithm = 'token_bucket', capacity = 1, rate = '1/m', start = 'empty' }]",
            true,
        ),
        (
            "limits = [{ algorithm = 'fixed_window', limit = 1, period = '1m' },
                       { algorithm = 'penalty', refusals = 3, within = '1m', duration = '1m' }]",
            false,
        ),
        ("limits = [{ algorithm = 'sliding_log', rates = ['1/m'], count_denied = true }]", false),
    ] {
        let asked = resolve(policy, &["k"]);
        let mut store = Store::new();
        if !refused_first {
            alone(&mut store, &asked[0], 1);
        }
        let (mut transaction, joined_keys) = load(&store, &asked);
        let refused = transaction.operate(&joined_keys[0], Timestamp(9), &1.into()).unwrap();
        assert!(!refused.verdict.decision.is_allowed() && !refused.is_settled, "{policy}");
        assert_eq!(save(&mut store, &mut transaction), [Due::BeforeAnswer], "{policy}");
    }
}

#[test]
fn bytes_that_are_no_state_fail_the_operations_that_need_them_alone() {
    let asked = resolve(ORG_AND_USER, &["acme/a", "acme/b"]);
    let mut transaction = Transaction::default();
    let joined_keys: Vec<_> = asked.iter().map(|resolved| transaction.join(resolved)).collect();
    let of_b = transaction.names().position(|name| name.contains("}/b:")).unwrap();
    let found: Vec<_> = (0..transaction.names().len())
        .map(|at| (at == of_b).then(|| b"foreign".to_vec()))
        .collect();
    transaction.load(found);
    assert!(transaction.operate(&joined_keys[0], Timestamp(7), &1.into()).is_ok());
    let error = transaction.operate(&joined_keys[1], Timestamp(7), &1.into()).unwrap_err();
    assert!(
        matches!(error, TransactionError::Blob { error: BlobError::Version { .. }, .. }),
        "{error}"
    );
    let TransactionError::Blob { name, error: why } = &error else { unreachable!() };
    assert_eq!(error.to_string(), format!("{name:?}: {why}"));
    assert_eq!(transaction.writes().count(), 2, "those of acme and a");
}

#[test]
fn a_reset_heals_what_its_own_limits_wrote_and_leaves_what_others_may_need() {
    let asked = resolve(ORG_AND_USER, &["acme/a"]);
    let reset = Operation::Reset(Depth::of_own("acme/a"));
    let mut good = Store::new();
    alone(&mut good, &asked[0], 1);
    let name = |part: &str| good.keys().find(|name| name.contains(part)).unwrap().clone();
    let (org, user) = (name("}:"), name("}/a:"));
    let broken = |change: fn(&mut Vec<u8>)| {
        let mut bytes = good[&user].clone();
        change(&mut bytes);
        bytes
    };
    for (bytes, heals) in [
        (broken(|bytes| bytes.truncate(20)), true),
        (broken(|bytes| bytes.push(0)), true),
        (broken(|bytes| bytes[9..17].fill(0xff)), true), // more than the limit grants
        (broken(|bytes| bytes[0] = 9), false),           // a newer version
        (broken(|bytes| bytes[1] ^= 1), false),          // of other limits
        (broken(Vec::clear), false),
        (b"foreign".to_vec(), false),
    ] {
        let mut store = good.clone();
        store.insert(user.clone(), bytes.clone());
        let (mut transaction, joined) = load(&store, &asked);
        assert!(transaction.operate(&joined[0], Timestamp(8), &1.into()).is_err(), "{bytes:?}");
        let healed = transaction.operate(&joined[0], Timestamp(8), &reset);
        assert_eq!(healed.is_ok(), heals, "{bytes:?}");
        save(&mut store, &mut transaction);
        assert_eq!(store[&org], good[&org], "another key needs it");
        if heals {
            assert!(!healed.unwrap().is_settled, "{bytes:?}");
            let next = alone(&mut store, &asked[0], 2).verdict.decision;
            assert!(next.is_allowed(), "{bytes:?}: it begins afresh");
        } else {
            assert_eq!(store[&user], bytes);
            let check = transaction.operate(&joined[0], Timestamp(9), &1.into());
            assert!(check.is_err(), "a reset that fails changes nothing: {bytes:?}");
        }
    }
}

#[test]
fn a_reset_heals_no_record_that_other_keys_share() {
    let asked = resolve(ORG_AND_USER, &["acme/a"]);
    let mut store = Store::new();
    alone(&mut store, &asked[0], 1);
    store
        .iter_mut()
        .filter(|(name, _)| name.contains("}:"))
        .for_each(|(_, bytes)| bytes.truncate(20));
    let before = store.clone();
    let (mut transaction, joined) = load(&store, &asked);
    let reset = Operation::Reset(Depth::of_own("acme/a"));
    assert!(transaction.operate(&joined[0], Timestamp(8), &reset).is_err());
    save(&mut store, &mut transaction);
    assert_eq!(store, before);
}

#[test]
fn an_operation_that_cannot_be_done_changes_nothing() {
    let policy = "limits = [{ algorithm = 'fixed_window', limit = 3, period = '1m' },
                            { algorithm = 'concurrency', capacity = 1, time_to_live = '1m' }]";
    let asked = resolve(policy, &["k"]);
    let (mut transaction, joined_keys) = load(&Store::new(), &asked);
    let error = transaction.operate(&joined_keys[0], Timestamp(7), &1.into()).unwrap_err();
    assert_eq!(error, TransactionError::Operation(OperationError::NeedsLease));
    let lease = Some(asked[0].lease_id("a"));
    let much = Operation::Decide(Request { lease, ..Request::of(4) });
    let error = transaction.operate(&joined_keys[0], Timestamp(7), &much).unwrap_err();
    assert!(matches!(error, TransactionError::Operation(OperationError::Cost(_))), "{error}");
    assert_eq!(transaction.writes().count(), 0);
}

#[test]
fn a_record_is_kept_until_it_equals_a_fresh_one() {
    let asked =
        resolve("limits = [{ algorithm = 'token_bucket', capacity = 9, rate = '1/s' }]", &["k"]);
    let (mut transaction, joined_keys) = load(&Store::new(), &asked);
    transaction.operate(&joined_keys[0], Timestamp(7), &3.into()).unwrap();
    let [used] = &transaction.used().collect::<Vec<_>>()[..] else { panic!("one record") };
    assert_eq!((used.found, used.write.unwrap().time_to_live), (None, Micros(3_000_000)));
}

#[test]
fn a_listed_key_needs_nothing() {
    let policy =
        "deny = ['k']\nlimits = [{ algorithm = 'fixed_window', limit = 3, period = '1m' }]";
    let asked = resolve(policy, &["k"]);
    let (mut transaction, joined_keys) = load(&Store::new(), &asked);
    assert_eq!(transaction.names().len(), 0);
    let answered = transaction.operate(&joined_keys[0], Timestamp(7), &1.into()).unwrap();
    assert!(answered.is_settled && answered.verdict.is_listed());
}

#[test]
fn a_block_is_stored_and_ends_by_itself() {
    for policy in [
        "limits = [{ algorithm = 'fixed_window', limit = 2, period = '1s' }]",
        "limits = [{ algorithm = 'fixed_window', limit = 2, period = '1s' }]\non_change = 'keep'",
        "limits = [{ algorithm = 'sliding_log', rates = ['40/s'] }]", // stored in runs
    ] {
        let asked = resolve(policy, &["k"]);
        let mut store = Store::new();
        let at = |store: &mut Store, now, operation: Operation| {
            let (mut transaction, joined_keys) = load(store, &asked);
            let answered =
                transaction.operate(&joined_keys[0], Timestamp(now), &operation).unwrap();
            let due = save(store, &mut transaction);
            (answered.verdict.decision, due)
        };
        let (blocked, due) = at(&mut store, 7, Operation::Block(Micros(5_000_000)));
        assert_eq!((blocked.retry_after(), due), (Micros(5_000_000), [Due::BeforeAnswer].into()));
        let (refused, due) = at(&mut store, 8, 1.into());
        assert_eq!((refused.retry_after(), due), (Micros(4_999_999), [Due::AfterAnswer].into()));
        let (looked, _) = at(&mut store, 5_000_006, 0.into());
        assert_eq!((looked.retry_after(), looked.remaining()), (Micros(1), 0), "{policy}");
        let (granted, due) = at(&mut store, 5_000_007, 1.into());
        assert!(granted.is_allowed() && due == [Due::BeforeAnswer], "{policy}");
        let _ = at(&mut store, 5_000_008, Operation::Block(Micros(5_000_000)));
        let _ = at(&mut store, 5_000_009, Operation::Reset(crate::key::Depth::of_own("k")));
        assert!(at(&mut store, 5_000_010, 1.into()).0.is_allowed(), "{policy}");
    }
}

#[test]
fn an_operation_that_leaves_a_key_never_seen_fresh_stores_nothing() {
    for limit in [
        "algorithm = 'fixed_window', limit = 2, period = '1m'",
        "algorithm = 'token_bucket', capacity = 2, rate = '1/s'",
        "algorithm = 'sliding_log', rates = ['2/m'], count_denied = true",
    ] {
        let key = &resolve(&format!("limits = [{{ {limit} }}]"), &["k"])[0];
        for operation in [Operation::Reset(Depth::Whole), Operation::Block(Micros(0))] {
            let mut store = Store::new();
            assert!(alone(&mut store, key, operation).verdict.decision.is_allowed());
            assert_eq!(store, Store::new(), "{limit}, {operation:?}");
            // a transaction that stays open goes on expecting nothing in the store
            let (mut transaction, joined_keys) = load(&store, std::slice::from_ref(key));
            for operation in [operation, 1.into(), operation] {
                transaction.operate(&joined_keys[0], Timestamp(7), &operation).unwrap();
                save(&mut store, &mut transaction);
            }
            // a stored state is overwritten
            let _ = alone(&mut store, key, 1);
            let stored = store.clone();
            let _ = alone(&mut store, key, operation);
            assert_eq!(store == stored, matches!(operation, Operation::Block(_)), "{operation:?}");
        }
    }
}

#[test]
fn an_error_escapes_the_name_in_it() {
    let error =
        TransactionError::Blob { name: "k\nerror: \u{1b}".into(), error: BlobError::Invalid };
    assert!(error.to_string().starts_with("\"k\\nerror: \\u{1b}\": "), "{error}");
}

#[test]
fn a_block_outlives_the_state_that_it_stands_beside() {
    let asked =
        resolve("limits = [{ algorithm = 'fixed_window', limit = 2, period = '1s' }]", &["k"]);
    let (mut transaction, joined_keys) = load(&Store::new(), &asked);
    transaction.operate(&joined_keys[0], Timestamp(7), &1.into()).unwrap();
    transaction
        .operate(&joined_keys[0], Timestamp(7), &Operation::Block(Micros(60_000_000)))
        .unwrap();
    let [write] = &transaction.writes().collect::<Vec<_>>()[..] else { panic!("one record") };
    assert_eq!(write.time_to_live, Micros(60_000_000));
}

#[test]
fn a_block_that_is_over_leaves_the_stored_bytes() {
    let asked =
        resolve("limits = [{ algorithm = 'fixed_window', limit = 2, period = '1d' }]", &["k"]);
    let mut store = Store::new();
    let bytes = |store: &Store| store.values().map(Vec::len).sum::<usize>();
    alone(&mut store, &asked[0], 1);
    let unblocked = bytes(&store);
    alone(&mut store, &asked[0], Operation::Block(Micros(1)));
    assert_eq!(bytes(&store), unblocked + 16);
    let (mut transaction, joined_keys) = load(&store, &asked);
    transaction.operate(&joined_keys[0], Timestamp(1_000_000), &1.into()).unwrap();
    save(&mut store, &mut transaction);
    assert_eq!(bytes(&store), unblocked);
}

#[test]
fn a_refusal_on_a_state_that_was_carried_over_is_stored_first() {
    let minute =
        "limits = [{ algorithm = 'fixed_window', limit = 1, period = '1m' }]\non_change = 'keep'";
    let hour = &minute.replace("1m", "1h");
    let mut store = Store::new();
    alone(&mut store, &resolve(minute, &["k"])[0], 1);
    let asked = resolve(hour, &["k"]);
    let (mut transaction, joined_keys) = load(&store, &asked);
    let refused = transaction.operate(&joined_keys[0], Timestamp(8), &1.into()).unwrap();
    assert!(!refused.verdict.decision.is_allowed() && !refused.is_settled);
    assert_eq!(
        save(&mut store, &mut transaction),
        [Due::BeforeAnswer],
        "the stored minute would expire"
    );
    assert!(alone(&mut store, &asked[0], 1).is_settled, "from then on it is an hour");
}

#[test]
fn a_transaction_that_stays_open_decides_as_one_that_loads() {
    let asked = resolve(ORG_AND_USER, &["acme/a", "acme/b"]);
    let (mut store, mut loading) = (Store::new(), Store::new());
    let mut open = Transaction::default();
    for (at, key) in [0, 1, 0, 1, 1, 0].into_iter().enumerate() {
        let now = Timestamp(u64::try_from(at).unwrap() * 20_000_000);
        let joined = open.join(&asked[key]);
        let told = open.operate(&joined, now, &1.into()).unwrap();
        assert_eq!(open.used().count(), 2, "the records of this key alone");
        save(&mut store, &mut open);
        let (mut transaction, joined_keys) = load(&loading, &asked);
        assert_eq!(transaction.operate(&joined_keys[key], now, &1.into()).unwrap(), told);
        save(&mut loading, &mut transaction);
        assert_eq!(store, loading);
    }
    assert_eq!((open.len(), open.used().count()), (3, 0));
}

#[test]
fn a_transaction_that_expected_other_bytes_does_its_operations_again() {
    let asked = resolve(ORG_AND_USER, &["acme/a", "acme/b"]);
    let mut store = Store::new();
    for _ in 0..2 {
        alone(&mut store, &asked[0], 1);
    }
    let mut transaction = Transaction::default();
    let joined = transaction.join(&asked[0]);
    assert!(
        transaction
            .operate(&joined, Timestamp(7), &1.into())
            .unwrap()
            .verdict
            .decision
            .is_allowed()
    );
    assert!(transaction.used().all(|used| used.found.is_none()));
    let found: Vec<_> = transaction.used().map(|used| store.get(used.name).cloned()).collect();
    transaction.found(found);
    assert_eq!(transaction.used().count(), 0);
    let refused = transaction.operate(&joined, Timestamp(7), &1.into()).unwrap();
    assert!(!refused.verdict.decision.is_allowed());
    assert_eq!(save(&mut store, &mut transaction), [], "the newest time has not changed");
    // the transaction still remembers the records that were not used
    let b = transaction.join(&asked[1]);
    assert!(
        transaction.operate(&b, Timestamp(7), &1.into()).unwrap().verdict.decision.is_allowed()
    );
    assert_eq!(save(&mut store, &mut transaction).len(), 2);
}
