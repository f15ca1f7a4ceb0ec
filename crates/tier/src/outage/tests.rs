mod histories;

use std::format;
use std::sync::Arc;
use std::vec::Vec;

use tidegate_gate::{
    Effect, Id, Idempotency, Micros, Operation, Policy, Request, Resolved, Timestamp, Transaction,
    Verdict,
};

use super::{Options, Outage, Told, Transmit};

fn policy(text: &str) -> Arc<Policy> {
    Arc::new(Policy::parse("p", &format!("on_error = 'local'\n{text}")).unwrap())
}

fn window(limit: u64) -> Arc<Policy> {
    policy(&format!("limits = [{{ algorithm = 'fixed_window', limit = {limit}, period = '1h' }}]"))
}

fn on(policy: &Arc<Policy>, key: &str) -> Resolved {
    Resolved::new(policy, key).unwrap()
}

fn outage(nodes: u64) -> Outage {
    let mut outage = Outage::new(Options::default());
    outage.handle_nodes(nodes);
    outage
}

/// A transaction that has seen these grants.
fn seen(resolved: &Resolved, grants: &[(u64, u64)]) -> Transaction {
    let mut transaction = Transaction::default();
    let own = transaction.join(resolved);
    for (now, cost) in grants {
        transaction.operate(&own, Timestamp(*now), &Operation::from(*cost)).unwrap();
    }
    transaction.stored(|_| Micros::ZERO);
    transaction
}

fn decide(outage: &mut Outage, resolved: &Resolved, now: u64, cost: u64) -> Option<Verdict> {
    let verdict = outage.decide(resolved, Timestamp(now), &cost.into(), None)?.unwrap();
    assert!(verdict.degraded);
    Some(verdict)
}

fn passes(outage: &mut Outage, resolved: &Resolved, now: u64, cost: u64) -> bool {
    decide(outage, resolved, now, cost).unwrap().decision.is_allowed()
}

/// What the store must be told. It is told all.
fn owed(outage: &mut Outage, now: u64) -> Vec<Operation> {
    let mut all = Vec::new();
    while let Some(owed) = outage.poll_owed(Timestamp(now)) {
        all.push(owed.operation);
        outage.handle_told(owed, Told::Done);
    }
    all
}

#[test]
fn a_node_passes_one_request_even_if_its_share_is_less() {
    let (policy, mut outage) = (window(5), outage(8));
    let key = on(&policy, "k");
    assert!(passes(&mut outage, &key, 1, 1));
    assert!(!passes(&mut outage, &key, 2, 1));
    assert!(passes(&mut outage, &key, 3_600_000_000, 5), "once more in the next window");
    assert!(!passes(&mut outage, &key, 3_600_000_001, 1));
}

#[test]
fn a_node_that_knows_no_number_of_nodes_decides_nothing() {
    let policy = window(5);
    let mut outage = Outage::new(Options::default());
    assert_eq!(decide(&mut outage, &on(&policy, "k"), 1, 1), None);
    outage.handle_nodes(0);
    assert_eq!(decide(&mut outage, &on(&policy, "k"), 1, 1), None);
}

#[test]
fn the_policy_says_the_least_number_of_nodes() {
    let text = "nodes = 4\nlimits = [{ algorithm = 'fixed_window', limit = 8, period = '1h' }]";
    let policy = policy(text);
    for (seen, expected) in [(0, 2), (1, 2), (4, 2), (8, 1)] {
        let (mut outage, key) = (outage(seen), on(&policy, "k"));
        let granted = (0..8).filter(|_| passes(&mut outage, &key, 1, 1)).count();
        assert_eq!(granted, expected, "{seen} nodes were seen");
    }
}

#[test]
fn only_checks_peeks_and_commits_are_decided() {
    let (policy, mut outage) = (window(5), outage(2));
    let key = on(&policy, "k");
    for operation in [
        Operation::Refund(1),
        Operation::Charge(1),
        Operation::Release(Id::default()),
        Operation::Block(Micros(1)),
    ] {
        assert!(outage.decide(&key, Timestamp(1), &operation, None).is_none(), "{operation:?}");
    }
    assert!(outage.decide(&key, Timestamp(1), &Operation::Peek(Request::of(1)), None).is_some());
    assert_eq!(outage.poll_owed(Timestamp(1)), None, "a peek takes nothing");
    let listed = Arc::new(Policy::parse("p", "on_error = 'local'\nallow = ['k']\nlimits = [{ algorithm = 'fixed_window', limit = 1, period = '1h' }]").unwrap());
    assert!(outage.decide(&on(&listed, "k"), Timestamp(1), &1.into(), None).is_none());
    let closed = "limits = [{ algorithm = 'fixed_window', limit = 1, period = '1h' }]";
    let closed = Arc::new(Policy::parse("p", closed).unwrap());
    assert!(outage.decide(&on(&closed, "k"), Timestamp(1), &1.into(), None).is_none());
}

#[test]
fn what_no_longer_counts_is_not_charged() {
    let policy = policy(
        "limits = [{ algorithm = 'fixed_window', limit = 100, period = '1s' },
                   { algorithm = 'fixed_window', limit = 1000, period = '1h' }]",
    );
    let (mut outage, key) = (outage(2), on(&policy, "k"));
    for second in 1..=3 {
        assert!(passes(&mut outage, &key, second * 1_000_000, 10));
    }
    assert_eq!(owed(&mut outage, 3_500_000), [Operation::Charge(30)], "the hour counts them all");
    for now in [3_000_000, 3_600_000_000, 3_600_000_001] {
        assert!(passes(&mut outage, &key, now, 1));
    }
    assert_eq!(owed(&mut outage, 3_600_000_002), [Operation::Charge(2)], "those of this hour");
    assert!(passes(&mut outage, &key, 3_600_000_003, 1));
    assert_eq!(owed(&mut outage, 7_200_000_000), [], "no window counts it");
    assert!(outage.is_empty());
}

#[test]
fn a_charge_whose_fate_is_unknown_is_not_repeated() {
    let policy = window(100);
    for (told, expected) in
        [(Told::Done, None), (Told::Unknown, None), (Told::NotDone, Some(Operation::Charge(3)))]
    {
        let (mut outage, key) = (outage(2), on(&policy, "k"));
        assert!(passes(&mut outage, &key, 1, 3));
        let first = outage.poll_owed(Timestamp(2)).unwrap();
        assert_eq!(outage.poll_owed(Timestamp(2)), None);
        outage.handle_told(first, told);
        let again = outage.poll_owed(Timestamp(3));
        assert_eq!(again.as_ref().map(|owed| owed.operation), expected, "{told:?}");
        assert_eq!(outage.is_empty(), told == Told::Done);
    }
}

#[test]
fn a_key_goes_on_with_its_share_until_the_store_has_its_charge() {
    let (policy, mut outage) = (window(10), outage(2));
    let key = on(&policy, "k");
    assert!(passes(&mut outage, &key, 1, 5));
    let first = outage.poll_owed(Timestamp(2)).unwrap();
    outage.handle_back();
    assert!(!passes(&mut outage, &key, 3, 1), "the store fails once more");
    outage.handle_told(first, Told::NotDone);
    assert!(!passes(&mut outage, &key, 4, 1));
    assert_eq!(owed(&mut outage, 5), [Operation::Charge(5)]);
    assert!(passes(&mut outage, &key, 6, 1), "the share has begun anew");
}

fn reserving() -> Arc<Policy> {
    policy(
        "reservations = {}\nlimits = [{ algorithm = 'fixed_window', limit = 100, period = '1h' }]",
    )
}

#[test]
fn a_commit_is_told_until_the_store_has_it_and_a_reservation_never() {
    let (policy, mut outage, id) = (reserving(), outage(2), Id([7, 7]));
    let key = on(&policy, "k");
    let reserve = Request { lease: Some(id), hold: Micros(60_000_000), ..Request::of(10) };
    let verdict = outage.decide(&key, Timestamp(1), &reserve.into(), None).unwrap().unwrap();
    assert!(matches!(verdict.effect, Effect::Reserved { units: 10, .. }));
    assert_eq!(outage.poll_owed(Timestamp(1)), None, "its cost is not known yet");
    for _ in 0..2 {
        let commit = Operation::Commit(id, 4);
        let verdict = outage.decide(&key, Timestamp(2), &commit, None).unwrap().unwrap();
        let committed = Effect::Committed { charged: 4, late: false, by: None };
        assert_eq!(verdict.effect, committed);
    }
    for told in [Told::Unknown, Told::NotDone, Told::Done] {
        let owed = outage.poll_owed(Timestamp(3)).unwrap();
        assert_eq!(owed.operation, Operation::Commit(id, 4));
        outage.handle_told(owed, told);
    }
    assert_eq!(outage.poll_owed(Timestamp(4)), None);
    assert!(outage.is_empty());
}

#[test]
fn commits_that_have_no_room_are_not_taken() {
    let policy = reserving();
    let mut outage = Outage::new(Options { most_commits: 2, ..Options::default() });
    outage.handle_nodes(2);
    let key = on(&policy, "k");
    let commit = |outage: &mut Outage, id| {
        outage.decide(&key, Timestamp(1), &Operation::Commit(Id([id, id]), 1), None).is_some()
    };
    assert_eq!([1, 2, 3].map(|id| commit(&mut outage, id)), [true, true, false]);
    assert_eq!(owed(&mut outage, 2).len(), 2);
    assert!(commit(&mut outage, 3));
}

#[test]
fn memory_is_bounded_and_comes_back_with_time() {
    let policy = window(5);
    let mut outage = Outage::new(Options { most_bytes: 20_000, ..Options::default() });
    outage.handle_nodes(1);
    let full =
        (0..1_000).find(|n| decide(&mut outage, &on(&policy, &format!("k{n}")), 1, 1).is_none());
    assert!(full.is_some_and(|keys| keys > 5), "{full:?}");
    assert!(decide(&mut outage, &on(&policy, "k0"), 2, 1).is_some(), "a known key goes on");
    assert!(decide(&mut outage, &on(&policy, "new"), 3_600_000_000, 1).is_some());
}

#[test]
fn memory_of_a_shared_partition_is_bounded_too() {
    let policy = policy(
        "limits = [{ algorithm = 'fixed_window', limit = 1000000, period = '1h', depth = 0 },
                   { algorithm = 'fixed_window', limit = 5, period = '1h' }]",
    );
    let mut outage = Outage::new(Options { most_bytes: 20_000, ..Options::default() });
    outage.handle_nodes(1);
    let taken = |n: &i32| decide(&mut outage, &on(&policy, &format!("k{n}")), 1, 1).is_some();
    let taken = (0..1_000).filter(taken).count();
    assert!((5..200).contains(&taken), "{taken}");
    assert!(decide(&mut outage, &on(&policy, "k0"), 2, 1).is_some());
}

#[test]
fn keys_that_share_a_limit_share_it_in_an_outage() {
    let policy = policy(
        "limits = [{ algorithm = 'fixed_window', limit = 10, period = '1h', depth = 1 },
                   { algorithm = 'fixed_window', limit = 100, period = '1h' }]",
    );
    let mut outage = outage(2);
    let [a, b] = ["acme/a", "acme/b"].map(|key| on(&policy, key));
    assert!(passes(&mut outage, &a, 1, 3));
    assert!(passes(&mut outage, &b, 1, 2));
    assert!(!passes(&mut outage, &a, 1, 1) && !passes(&mut outage, &b, 1, 1));
    assert_eq!(owed(&mut outage, 2), [Operation::Charge(2), Operation::Charge(3)]);
}

#[test]
fn a_limit_in_shadow_goes_on_to_say_what_it_refuses() {
    let policy = policy(
        "limits = [{ algorithm = 'fixed_window', limit = 4, period = '1h', shadow = true },
                   { algorithm = 'fixed_window', limit = 100, period = '1h' }]",
    );
    let (mut outage, key) = (outage(2), on(&policy, "k"));
    let shadow = |verdict: Verdict| {
        assert!(verdict.decision.is_allowed());
        verdict.limits[0].is_allowed()
    };
    let mut check = || shadow(decide(&mut outage, &key, 1, 1).unwrap());
    assert_eq!([check(), check(), check()], [true, true, false]);
}

#[test]
fn a_repeat_in_an_outage_is_another_request() {
    let policy = policy(
        "idempotency = '1h'\nlimits = [{ algorithm = 'fixed_window', limit = 2, period = '1h' }]",
    );
    let mut outage = outage(1);
    let key = on(&policy, "k").known_by(Idempotency { id: Id([1, 1]), request: 1 });
    let passes = [1, 2, 3].map(|now| passes(&mut outage, &key, now, 1));
    assert_eq!(passes, [true, true, false]);
    assert_eq!(owed(&mut outage, 4), [Operation::Charge(2)]);
}

#[test]
fn an_edit_starts_the_shares_anew_and_loses_no_charge() {
    let mut outage = outage(2);
    assert!(passes(&mut outage, &on(&window(10), "k"), 1, 5));
    assert!(passes(&mut outage, &on(&window(20), "k"), 3, 5));
    assert_eq!(owed(&mut outage, 4), [Operation::Charge(5), Operation::Charge(5)]);
    assert!(outage.is_empty());
}

#[test]
fn what_is_owed_of_one_partition_is_told_alone() {
    let (policy, mut outage) = (window(10), outage(2));
    let [a, b] = ["a", "b"].map(|key| on(&policy, key));
    assert!(passes(&mut outage, &a, 1, 1) && passes(&mut outage, &b, 1, 2));
    assert_eq!(outage.poll_answered(), None);
    outage.handle_answered(&b, Timestamp(2));
    let owed: Transmit = outage.poll_answered().unwrap();
    assert_eq!((owed.resolved.key(), owed.operation), ("b", Operation::Charge(2)));
    assert_eq!(outage.poll_answered(), None);
    outage.handle_told(owed, Told::Done);
    assert_eq!(outage.poll_owed(Timestamp(2)).unwrap().resolved.key(), "a");
}

#[test]
fn what_is_learnt_later_does_not_undo_what_was_granted() {
    let (policy, mut outage) = (window(10), outage(1));
    let key = on(&policy, "k");
    assert!(passes(&mut outage, &key, 1, 8));
    let known = seen(&key, &[(1, 1)]);
    let verdict = outage.decide(&key, Timestamp(2), &3.into(), Some(&known)).unwrap().unwrap();
    assert!(!verdict.decision.is_allowed());
}

#[test]
fn a_share_whose_charge_is_lost_goes_on_until_the_store_has_decided() {
    let (policy, mut outage) = (window(10), outage(2));
    let key = on(&policy, "k");
    assert!(passes(&mut outage, &key, 1, 5));
    for _ in 0..3 {
        outage.handle_back();
        if let Some(owed) = outage.poll_owed(Timestamp(2)) {
            outage.handle_told(owed, Told::Unknown);
        }
        assert!(!passes(&mut outage, &key, 3, 1), "a store that never answers gives no new share");
    }
    outage.handle_decided("p", "k");
    assert!(outage.is_empty());
    assert!(passes(&mut outage, &key, 4, 1));
}
