use core::slice::from_ref;
use std::vec::Vec;

use tidegate_core::Timestamp;

use crate::policy::Resolved;
use crate::state::transaction::tests::{Store, load, resolve, save};
use crate::state::{KeySlots, Transaction};

const LIMITS: &str = "limits = [
  { algorithm = 'fixed_window', name = 'user', limit = 9, period = '1m' },
  { algorithm = 'fixed_window', name = 'org', depth = 1, limit = 90, period = '1m' },
]";

const MINUTE: u64 = 60_000_000;

/// A store in which the key `acme/a` has used these units at 7 µs, and the key.
fn stored(units: u64) -> (Store, Resolved) {
    let keys = resolve(LIMITS, &["acme/a"]);
    let mut store = Store::new();
    let (mut transaction, joined) = load(&store, &keys);
    grant(&mut transaction, &joined[0], units);
    save(&mut store, &mut transaction);
    (store, keys.into_iter().next().unwrap())
}

fn grant(transaction: &mut Transaction, joined: &KeySlots, units: u64) {
    let answered = transaction.operate(joined, Timestamp(7), &units.into()).unwrap();
    assert!(answered.verdict.decision.is_allowed());
}

/// The units that the user has left.
fn left(transaction: &mut Transaction, joined: &KeySlots) -> u64 {
    let answered = transaction.operate(joined, Timestamp(7), &0.into()).unwrap();
    answered.verdict.decision.remaining()
}

#[test]
fn what_is_not_stored_is_taken_back_and_what_is_known_stays() {
    let (store, key) = stored(2);
    let (mut transaction, joined) = load(&store, from_ref(&key));
    grant(&mut transaction, &joined[0], 3);
    assert_eq!(left(&mut transaction, &joined[0]), 4);
    transaction.revert();
    assert_eq!((left(&mut transaction, &joined[0]), transaction.writes().count()), (7, 0));
    assert!(transaction.knows(&joined[0]));

    let mut unknown = Transaction::default();
    let joined = unknown.join(&key);
    grant(&mut unknown, &joined, 3);
    unknown.revert();
    assert_eq!((left(&mut unknown, &joined), unknown.knows(&joined)), (9, false));
}

#[test]
fn a_transaction_learns_what_another_one_knows_of_a_key_that_is_new_to_it() {
    let (store, key) = stored(2);
    let known = || load(&store, from_ref(&key)).0;
    let unreadable = || {
        let broken = store.keys().map(|name| (name.clone(), b"foreign".to_vec())).collect();
        load(&broken, from_ref(&key)).0
    };
    let unknown = || {
        let mut transaction = Transaction::default();
        let _ = transaction.join(&key);
        transaction
    };
    let granted = |mut transaction: Transaction| {
        let joined = transaction.join(&key);
        grant(&mut transaction, &joined, 1);
        transaction
    };
    for (case, own, other, expected) in [
        ("it takes over what is stored", unknown(), known(), (7, true)),
        ("it has no other key", unknown(), Transaction::default(), (9, false)),
        ("nothing is known of the key", unknown(), unknown(), (9, false)),
        ("the bytes are no state", unknown(), unreadable(), (9, false)),
        ("it has decided on the key", granted(unknown()), known(), (8, false)),
        ("it knows the key", load(&Store::new(), from_ref(&key)).0, known(), (9, true)),
    ] {
        let mut own = own;
        let joined = own.join(&key);
        own.learn(&joined, |name| other.stored_as(name));
        assert_eq!((left(&mut own, &joined), own.knows(&joined)), expected, "{case}");
    }
}

#[test]
fn a_transaction_is_fresh_once_no_state_differs_from_a_fresh_one() {
    let (store, key) = stored(2);
    let (transaction, _) = load(&store, from_ref(&key));
    for (now, is_fresh) in [(7, false), (MINUTE - 1, false), (MINUTE, true)] {
        assert_eq!(transaction.is_fresh(Timestamp(now)), is_fresh, "at {now}");
    }
    assert!(load(&Store::new(), &[key]).0.is_fresh(Timestamp(7)));
}

#[test]
fn the_bytes_of_a_key_are_those_of_its_records() {
    let keys = resolve(LIMITS, &["acme/a", "acme/b"]);
    let (transaction, joined) = load(&Store::new(), &keys);
    assert!(transaction.has(&keys[1]) && !Transaction::default().has(&keys[1]));
    let of: Vec<_> = joined.iter().map(|joined| transaction.bytes_of(joined)).collect();
    let names = transaction.names().map(str::len).sum::<usize>();
    assert!(of[0] == of[1] && of[0] > names, "{of:?}");
    // both keys share the record of acme
    assert!(transaction.bytes() > of[0] && transaction.bytes() < of[0] * 2 + names, "{of:?}");
}
