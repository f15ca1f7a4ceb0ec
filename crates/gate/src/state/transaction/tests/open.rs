//! A transaction that stays open remembers states of the store.

use std::format;

use super::{ORG_AND_USER, Store, alone, load, resolve};
use crate::state::Transaction;
use tidegate_core::Timestamp;

const LIMIT: &str = "limits = [{ algorithm = 'fixed_window', limit = 5, period = '1m' }]";

#[test]
fn an_only_writer_takes_from_the_store_what_it_does_not_know() {
    let key = &resolve(LIMIT, &["k"])[0];
    let mut store = Store::new();
    alone(&mut store, key, 2);
    let bytes = store.values().next().unwrap();
    for (mut transaction, left) in
        [(Transaction::of_only_writer(), [3, 3]), (Transaction::default(), [3, 5])]
    {
        let joined = transaction.join(key);
        assert!(!transaction.knows(&joined));
        for (found, left) in [Some(bytes.clone()), None].into_iter().zip(left) {
            transaction.touch(&joined);
            transaction.found([found]);
            assert!(transaction.knows(&joined));
            let answered = transaction.operate(&joined, Timestamp(7), &0.into()).unwrap();
            assert_eq!(answered.verdict.decision.remaining(), left);
        }
    }
}

#[test]
fn unreadable_bytes_are_forgotten_and_the_rest_stays_known() {
    let keys = resolve(LIMIT, &["a", "b"]);
    let mut store = Store::new();
    keys.iter().for_each(|key| drop(alone(&mut store, key, 2)));
    let of_a = store.keys().find(|name| name.contains(":a}")).unwrap().clone();
    store.insert(of_a, b"foreign".to_vec());
    let (mut transaction, joined) = load(&store, &keys);
    assert!(transaction.operate(&joined[0], Timestamp(7), &1.into()).is_err());
    transaction.forget_unreadable();
    let known = [0, 1].map(|at| transaction.knows(&joined[at]));
    assert_eq!(known, [false, true]);
    let remaining = [0, 1].map(|at| {
        let answered = transaction.operate(&joined[at], Timestamp(7), &0.into()).unwrap();
        answered.verdict.decision.remaining()
    });
    assert_eq!(remaining, [5, 3]);
}

#[test]
fn a_state_is_carried_over_at_the_time_of_the_first_operation() {
    let bucket = |rate: &str| {
        let limit = format!("algorithm = 'token_bucket', capacity = 100, rate = '{rate}'");
        resolve(&format!("on_change = 'keep'\nlimits = [{{ {limit} }}]"), &["k"])
    };
    let mut store = Store::new();
    alone(&mut store, &bucket("10/s")[0], 100);
    let (mut transaction, joined) = load(&store, &bucket("1/m"));
    let later = Timestamp(9_000_007);
    let answered = transaction.operate(&joined[0], later, &0.into()).unwrap();
    assert_eq!(answered.verdict.decision.remaining(), 90, "in 9 s at the old rate");
}

#[test]
fn a_transaction_and_its_keys_say_what_memory_they_take() {
    let keys = resolve(ORG_AND_USER, &["acme/a", "acme/b", &"x".repeat(100)]);
    let mut transaction = Transaction::default();
    assert!(transaction.is_empty() && transaction.bytes() == 0);
    let [a, b, long] = [0, 1, 2].map(|at| transaction.join(&keys[at]));
    assert!(!transaction.is_empty());
    let names = transaction.names().map(str::len).sum::<usize>();
    assert!(transaction.bytes() > names);
    assert!(a.is_of(&keys[0]) && !a.is_of(&keys[1]) && b.is_of(&keys[1]));
    assert_eq!((a.bytes(), long.bytes()), (0, 200), "the key and how it was written");
    let three = ORG_AND_USER.replace(
        "]",
        "{ algorithm = 'fixed_window', name = 'all', depth = 0, limit = 9, period = '1m' }]",
    );
    let joined = transaction.join(&resolve(&three, &["acme/a"])[0]);
    assert!(joined.bytes() >= 3 * size_of::<usize>(), "three records have no room in place");
}
