use std::collections::BTreeMap;
use std::format;
use std::string::String;
use std::sync::Arc;
use std::vec;
use std::vec::Vec;

use crate::limit::{Operation, Request};
use crate::policy::{Policy, Resolved};
use crate::state::{KeySlots, Transaction};
use proptest::prelude::*;
use tidegate_core::{Micros, Timestamp};

const BUCKET: &str = "{ algorithm = 'token_bucket', capacity = 500, rate = '100/s' }";

fn resolved(limits: &str, ahead: &str) -> Resolved {
    let text = format!("limits = [{limits}]\n{ahead}");
    Resolved::new(&Arc::new(Policy::parse("p", &text).unwrap()), "user").unwrap()
}

/// The only writer of a store, and the store.
struct Owner {
    resolved: Resolved,
    store: BTreeMap<String, Vec<u8>>,
    transaction: Transaction,
    joined: KeySlots,
    writes: usize,
}

impl Owner {
    fn new(resolved: Resolved) -> Self {
        let mut transaction = Transaction::of_only_writer();
        let joined = transaction.join(&resolved);
        let mut owner = Self { resolved, store: BTreeMap::new(), transaction, joined, writes: 0 };
        owner.restart();
        owner
    }

    /// Forgets everything but the stored states.
    fn restart(&mut self) {
        self.transaction = Transaction::of_only_writer();
        self.joined = self.transaction.join(&self.resolved);
        let found: Vec<_> =
            self.transaction.names().map(|name| self.store.get(name).cloned()).collect();
        self.transaction.load(found);
    }

    /// The units that are left, if the operation was a peek or was granted.
    fn operate(&mut self, now: u64, operation: impl Into<Operation>) -> Option<u64> {
        let now = Timestamp(1_700_000_000_000_000 + now);
        let answered = self.transaction.operate(&self.joined, now, &operation.into()).unwrap();
        let due: Vec<_> = self
            .transaction
            .writes()
            .map(|write| (String::from(write.name), write.bytes.to_vec()))
            .collect();
        assert!(due.is_empty() || !answered.is_settled, "the answer waits for the write");
        self.writes += usize::from(!due.is_empty());
        self.store.extend(due);
        self.transaction.stored(|_| Micros::ZERO);
        let decision = answered.verdict.decision;
        decision.is_allowed().then(|| decision.remaining())
    }
}

#[test]
fn one_write_covers_the_units_that_are_stored_ahead() {
    let mut owner = Owner::new(resolved(BUCKET, "persist_ahead = { most = 50 }"));
    for granted in 1..=120 {
        assert_eq!(owner.operate(0, 1), Some(500 - granted));
    }
    assert_eq!(owner.writes, 3, "for the 1st, the 52nd and the 103rd grant");
    owner.restart();
    // 103 grants, 50 units ahead, and what flows in within 1 s
    assert_eq!(owner.operate(0, 0), Some(500 - 103 - 50 - 100));
}

#[test]
fn a_budget_beside_other_limits_needs_no_charge() {
    let limits = format!("{BUCKET}, {{ algorithm = 'budget', most = 9, time = '1s' }}");
    let mut owner = Owner::new(resolved(&limits, "persist_ahead = { most = 50 }"));
    for granted in 1..=51 {
        assert_eq!(owner.operate(0, 1), Some(500 - granted));
    }
    assert_eq!(owner.writes, 1);
}

#[test]
fn a_limit_without_units_keeps_the_others_from_being_charged() {
    let limits = "{ algorithm = 'token_bucket', capacity = 120, rate = '1/d' },
                  { algorithm = 'fixed_window', limit = 100, period = '1s' }";
    let mut owner = Owner::new(resolved(limits, "persist_ahead = { most = 50 }"));
    assert_eq!(owner.operate(0, 100), Some(0));
    owner.restart();
    assert_eq!(owner.operate(1_000_000, 0), Some(20));
}

#[test]
fn a_grant_that_is_decided_after_the_time_is_written() {
    let mut owner = Owner::new(resolved(BUCKET, "persist_ahead = { most = 50, time = '200ms' }"));
    for (now, writes) in [(0, 1), (199_999, 1), (200_000, 2), (399_999, 2), (400_000, 3)] {
        assert!(owner.operate(now, 1).is_some());
        assert_eq!(owner.writes, writes, "at {now} µs");
    }
    // a clock that goes back by less than a period is taken to stand still
    assert!(owner.operate(399_000, 1).is_some());
    assert_eq!(owner.writes, 3);
    // one that goes back further is believed, and the charge was for later times
    let mut owner = Owner::new(resolved(BUCKET, "persist_ahead = {}"));
    assert!(owner.operate(60_000_000, 1).is_some());
    assert!(owner.operate(10_000_000, 1).is_some());
    assert_eq!(owner.writes, 2);
}

#[test]
fn a_refusal_needs_no_write_and_other_operations_need_one() {
    let window = "{ algorithm = 'fixed_window', limit = 5, period = '1h' }";
    let mut owner = Owner::new(resolved(window, "persist_ahead = { most = 1 }"));
    for (granted, writes) in
        [(true, 1), (true, 1), (true, 2), (true, 2), (true, 3), (false, 3), (false, 3)]
    {
        assert_eq!((owner.operate(0, 1).is_some(), owner.writes), (granted, writes));
    }
    for (writes, operation) in (4..).zip([
        Operation::Refund(3),
        Operation::Charge(1),
        Operation::Block(Micros::SECOND),
        Operation::Block(Micros::ZERO),
        Operation::Reset(crate::Depth::Whole),
    ]) {
        owner.operate(0, operation);
        assert_eq!(owner.writes, writes, "{operation:?}");
    }
}

#[test]
fn a_store_with_other_writers_holds_each_grant() {
    let asked = resolved(BUCKET, "persist_ahead = { most = 50 }");
    let (mut transaction, strict) = (Transaction::default(), resolved(BUCKET, ""));
    let (mut other, now) = (Transaction::of_only_writer(), Timestamp(1_700_000_000_000_000));
    let (joined, other_joined) = (transaction.join(&asked), other.join(&strict));
    for _ in 0..3 {
        assert!(!transaction.operate(&joined, now, &1.into()).unwrap().is_settled);
        assert!(!other.operate(&other_joined, now, &1.into()).unwrap().is_settled);
        let bytes =
            |transaction: &mut Transaction| transaction.writes().next().unwrap().bytes.to_vec();
        assert_eq!(bytes(&mut transaction), bytes(&mut other), "nothing is ahead");
        transaction.stored(|_| Micros::ZERO);
        other.stored(|_| Micros::ZERO);
    }
}

#[test]
fn nothing_is_answered_on_the_guess_that_nothing_is_stored() {
    let mut owner = Owner::new(resolved(BUCKET, "persist_ahead = {}"));
    owner.transaction = Transaction::of_only_writer();
    owner.joined = owner.transaction.join(&owner.resolved);
    let answered = owner.transaction.operate(&owner.joined, Timestamp(7), &0.into()).unwrap();
    assert!(!answered.is_settled);
}

#[test]
fn bytes_that_are_replaced_cover_nothing() {
    let mut owner = Owner::new(resolved(BUCKET, "persist_ahead = { most = 1 }"));
    assert_eq!(owner.operate(0, 1), Some(499));
    let old: Vec<_> = owner.store.values().cloned().map(Some).collect();
    assert_eq!((owner.operate(0, 1), owner.writes), (Some(498), 1));
    assert_eq!((owner.operate(0, 1), owner.writes), (Some(497), 2));
    owner.transaction.load(old);
    let left = 500 - 1 - 1 - 100; // what the old bytes say
    assert_eq!((owner.operate(0, 1), owner.writes), (Some(left - 1), 3));
}

#[test]
fn only_states_that_can_be_stricter_are_stored_ahead() {
    let log = "{ algorithm = 'sliding_log', rates = ['10/m'] }";
    let leases = "{ algorithm = 'concurrency', capacity = 5, time_to_live = '1s' }";
    for (limits, found) in [(log, "`sliding_log`"), (leases, "`concurrency`")] {
        let text = format!("limits = [{BUCKET}, {limits}]\npersist_ahead = {{}}");
        let error = Policy::parse("p", &text).unwrap_err();
        assert!(error.message.contains("expected only token buckets and windows"), "{error}");
        assert!(error.message.contains(found), "{error}");
    }
    let strict = resolved(log, "persist_ahead = { most = 0 }");
    assert_eq!(strict.policy().persist_ahead(), None);
}

#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Ask(u64),
    Refund(u64),
    Charge(u64),
    Crash,
}

fn limits() -> impl Strategy<Value = String> {
    let bucket = (1..20_u64, 1..20_u64, 1..2_000_u64).prop_map(|(capacity, units, ms)| {
        format!("{{ algorithm = 'token_bucket', capacity = {capacity}, rate = '{units}/{ms}ms' }}")
    });
    let fixed = (1..20_u64, 1..2_000_u64).prop_map(|(limit, ms)| {
        format!("{{ algorithm = 'fixed_window', limit = {limit}, period = '{ms}ms' }}")
    });
    let sliding = (1..20_u64, 1..200_u64, 1..6_u64).prop_map(|(limit, ms, segments)| {
        let ms = ms * segments;
        format!(
            "{{ algorithm = 'sliding_window', limit = {limit}, period = '{ms}ms', segments = {segments} }}"
        )
    });
    let one = prop_oneof![bucket, fixed, sliding];
    prop::collection::vec(one, 1..4).prop_map(|all| all.join(", "))
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..300_000_u64).prop_map(Step::Wait),
        10 => (1..4_u64).prop_map(Step::Ask),
        1 => (1..4_u64).prop_map(Step::Refund),
        1 => (1..4_u64).prop_map(Step::Charge),
        2 => Just(Step::Crash),
    ];
    prop::collection::vec(step, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Beside it is a key that never crashes: it would have granted whatever the other grants.
    #[test]
    fn a_crash_grants_nothing_twice(
        limits in limits(),
        (most, time) in (1..15_u64, 1..1_000_u64),
        steps in steps(),
    ) {
        let ahead = format!("persist_ahead = {{ most = {most}, time = '{time}ms' }}");
        let mut owner = Owner::new(resolved(&limits, &ahead));
        let kept = owner.resolved.clone();
        let kept = kept.limits().unwrap();
        let (mut words, mut now) = (vec![0; kept.words()], 0_u64);
        // a state forgives debts beyond its limit, and one with a charge ahead does so sooner
        let mut may_charge = kept.capacity();
        for step in steps {
            let at = Timestamp(1_700_000_000_000_000 + now);
            let operation = match step {
                Step::Wait(by) => {
                    now += by;
                    continue;
                }
                Step::Crash => {
                    owner.restart();
                    continue;
                }
                Step::Ask(cost) if cost > kept.capacity() => continue,
                Step::Ask(cost) => {
                    if owner.operate(now, cost).is_some() {
                        let request = Request::of(cost);
                        let said = kept.decide(&mut words, at, &request).unwrap();
                        prop_assert!(said.is_allowed(), "{} at {} µs", cost, now);
                    }
                    continue;
                }
                Step::Refund(units) => Operation::Refund(units),
                Step::Charge(actual) if actual > may_charge => continue,
                Step::Charge(actual) => {
                    may_charge -= actual;
                    Operation::Charge(actual)
                }
            };
            owner.operate(now, operation);
            let _ = kept.operate(&mut words, at, &operation).unwrap();
        }
    }
}
