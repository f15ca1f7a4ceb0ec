use std::string::{String, ToString};
use std::sync::Arc;
use std::vec::Vec;

use proptest::prelude::*;
use tidegate_core::lease::Id;
use tidegate_core::shed::Probability;
use tidegate_core::{Decision, Micros, Timestamp};

use super::{HEAD, decode, encode_into, name, to_words, verdict, words};
use crate::decide::{Effect, Verdict};
use crate::limit::Operation;
use crate::policy::{Idempotency, Policy, Resolved};
use crate::state::blob::BlobError;
use crate::state::{Answered, Due, Transaction, TransactionError};
use crate::table::{KeyHasher, Table, TableError};

const LIMITS: &str = "
    idempotency = '10m'
    limits = [{ algorithm = 'token_bucket', capacity = 5, rate = '1/m' }]";
const A: Id = Id([1, 2]);
const ALLOWED: Decision = Decision::Allow { limit: 5, remaining: 2, reset_after: Micros(4) };

fn policy(text: &str) -> Arc<Policy> {
    Arc::new(Policy::parse("p", text).unwrap())
}

fn asked(policy: &Arc<Policy>, key: &str, id: Id, request: u64) -> Resolved {
    Resolved::new(policy, key).unwrap().known_by(Idempotency { id, request })
}

/// The name of a write, when it is due, and its time to live.
type Written = (String, Due, Micros);

/// A store of bytes, with one transaction for each operation.
#[derive(Default)]
struct Store(std::collections::BTreeMap<String, Vec<u8>>);

impl Store {
    fn operate(
        &mut self,
        of: &Resolved,
        now: u64,
        operation: impl Into<Operation>,
    ) -> Result<(Answered, Vec<Written>), TransactionError> {
        let mut transaction = Transaction::default();
        let joined = transaction.join(of);
        let found: Vec<_> = transaction.names().map(|name| self.0.get(name).cloned()).collect();
        transaction.load(found);
        let answered = transaction.operate(&joined, Timestamp(now), &operation.into())?;
        let writes = transaction.writes().map(|write| {
            self.0.insert(write.name.into(), write.bytes.into());
            (write.name.to_string(), write.due, write.time_to_live)
        });
        Ok((answered, writes.collect()))
    }
}

#[test]
fn an_answer_is_written_with_the_state_and_before_it_is_sent() {
    let policy = policy(LIMITS);
    let (mut store, first) = (Store::default(), asked(&policy, "a%}/b", A, 9));
    let (answered, writes) = store.operate(&first, 100, 2).unwrap();
    assert!(answered.verdict.decision.is_allowed() && !answered.is_settled);
    let [state, answer] = &writes[..] else { panic!("{writes:?}") };
    assert!(state.0.starts_with("tidegate:{p:a%25%7D/b}:"), "{}", state.0);
    let expected = "tidegate:{p:a%25%7D/b}:answer:00000000000000010000000000000002";
    assert_eq!(*answer, (expected.to_string(), Due::BeforeAnswer, Micros(600_000_000)));
    assert_eq!(name(&policy, "a%}/b", A), expected);

    let (repeated, writes) = store.operate(&first, 200, 2).unwrap();
    assert_eq!(
        (repeated.verdict, repeated.is_settled, writes),
        (answered.verdict, true, [].into())
    );
    let (other, writes) = store.operate(&asked(&policy, "a%}/b", A, 8), 200, 2).unwrap();
    assert_eq!((other.verdict.effect, writes), (Effect::OtherRequest, [].into()));
    assert_eq!(other.verdict.decision.retry_after(), Micros(600_000_000 - 100));
    // afterwards the key of idempotency is free again
    let (anew, writes) = store.operate(&asked(&policy, "a%}/b", A, 8), 600_000_100, 2).unwrap();
    assert_eq!((anew.verdict.at, writes.len()), (Timestamp(600_000_100), 2));
}

#[test]
fn the_bytes_of_an_answer_are_golden() {
    let policy = policy(LIMITS);
    let (mut store, first) = (Store::default(), asked(&policy, "k", A, 9));
    store.operate(&first, 100, 2).unwrap();
    let bytes = &store.0[&name(&policy, "k", A)];
    let words = [
        9, // what was asked
        600_000_100,
        100, // the time of the verdict
        1,
        5,
        3,
        0,
        120_000_000, // the decision
        u64::MAX,    // no factor
        0,
        0,
        0,
        0, // no effect
        1,
        5,
        3,
        0,
        120_000_000, // the only limit
    ];
    let golden: Vec<u8> =
        [5].into_iter().chain(words.into_iter().flat_map(u64::to_le_bytes)).collect();
    assert_eq!(*bytes, golden);
}

#[test]
fn bytes_that_are_no_answer_are_an_error_and_nothing_is_taken() {
    let policy = policy(LIMITS);
    let (mut store, first) = (Store::default(), asked(&policy, "k", A, 9));
    store.operate(&first, 100, 2).unwrap();
    let answer = name(&policy, "k", A);
    let good = store.0[&answer].clone();
    let changed = |place: usize, to: u8| {
        let mut bytes = good.clone();
        bytes[place] = to;
        bytes
    };
    for bytes in [
        Vec::new(),
        changed(0, 3),
        good[..good.len() - 1].to_vec(),
        good[..good.len() - 8].to_vec(),
        changed(1 + 3 * 8, 2),  // neither a grant nor a refusal
        changed(1 + 6 * 8, 1),  // a grant that waits
        changed(1 + 8 * 8, 0),  // no factor
        changed(1 + 9 * 8, 77), // no effect
    ] {
        let before = store.0.clone();
        store.0.insert(answer.clone(), bytes.clone());
        let error = store.operate(&first, 200, 2).unwrap_err();
        assert!(
            matches!(&error, TransactionError::Blob { name, .. } if *name == answer),
            "{bytes:?}: {error}"
        );
        store.0 = before;
    }
    let version = BlobError::Version { found: 3, expected: 5 };
    assert_eq!(decode(&changed(0, 3)), Err(version));
}

#[test]
fn an_answer_of_another_length_is_an_error_that_says_so() {
    let granted = |limits: usize| Verdict {
        limits: std::vec![ALLOWED; limits],
        ..Verdict::listed(Timestamp(3), ALLOWED)
    };
    for limits in [0, 1, 3] {
        let answer = to_words(9, Timestamp(8), &granted(limits));
        assert_eq!(answer.len(), words(limits));
        let mut bytes = Vec::new();
        encode_into(&mut bytes, &answer);
        assert_eq!(decode(&bytes), Ok(answer));
        for wrong in [1, HEAD * 8 - 7, bytes.len() - 1] {
            let length = BlobError::Length { found: wrong, expected: HEAD * 8 + 1 };
            assert_eq!(decode(&bytes[..wrong]), Err(length));
        }
    }
}

#[test]
fn a_verdict_is_read_back_as_it_was() {
    let (limit, remaining, reset_after) = (5, 0, Micros(4));
    let denied = Decision::Deny { limit, remaining, retry_after: Micros(3), reset_after };
    let granted = Verdict::listed(Timestamp(3), ALLOWED);
    for expected in [
        Verdict { factor: Some(Probability::CERTAIN), ..granted.clone() },
        Verdict { decision: denied, limits: [ALLOWED, denied].into(), ..granted.clone() },
        granted,
    ] {
        let answer = to_words(9, Timestamp(8), &expected);
        let asked = Idempotency { id: A, request: 9 };
        assert_eq!(verdict(&answer, asked, Timestamp(7)), Some(expected));
        assert_eq!(verdict(&answer, asked, Timestamp(8)), None);
    }
}

#[test]
fn a_repeat_waits_for_the_write_of_the_first_answer() {
    let first = asked(&policy(LIMITS), "k", A, 9);
    let mut transaction = Transaction::default();
    let joined = transaction.join(&first);
    transaction.load([None, None]);
    let settled = |transaction: &mut Transaction| {
        transaction.operate(&joined, Timestamp(7), &2.into()).unwrap().is_settled
    };
    assert_eq!([0; 2].map(|_| settled(&mut transaction)), [false; 2]);
    transaction.stored(|_| Micros::ZERO);
    assert!(settled(&mut transaction));
}

#[test]
fn without_the_field_or_on_a_listed_key_no_answer_is_kept() {
    let without = policy("limits = [{ algorithm = 'token_bucket', capacity = 5, rate = '1/m' }]");
    let listed = policy(&(String::from("allow = ['k']\n") + LIMITS));
    for (policy, kept) in [(without, 1), (listed, 0)] {
        let (mut store, first) = (Store::default(), asked(&policy, "k", A, 9));
        let (_, writes) = store.operate(&first, 100, 2).unwrap();
        assert_eq!(writes.len(), kept);
    }
}

#[test]
fn a_sweep_forgets_the_answers_that_are_kept_no_longer() {
    let policy = policy(LIMITS);
    let mut table = table(1 << 16);
    let ask = |table: &mut Table, id: u64, now: u64| {
        let of = asked(&policy, "k", Id([id, 0]), 9);
        table.ask_once(&of, Timestamp(now), &Operation::Refund(1)).unwrap().at
    };
    assert_eq!([ask(&mut table, 1, 5), ask(&mut table, 2, 7)], [Timestamp(5), Timestamp(7)]);
    let bytes = table.bytes();
    table.sweep(Timestamp(600_000_005));
    assert!(table.bytes() < bytes);
    assert_eq!(ask(&mut table, 2, 600_000_006), Timestamp(7), "it is kept for a bit");
}

fn table(max_bytes: usize) -> Table {
    Table::new(max_bytes, KeyHasher::new(7))
}

#[test]
fn a_full_table_refuses_a_request_whose_answer_it_could_not_keep() {
    let policy = policy(LIMITS);
    let mut table = table(Table::least_bytes(&policy) + 4_000);
    let mut ask = |id: u64, now: u64| {
        let of = asked(&policy, "k", Id([id, 0]), 9);
        let answer = table.ask_once(&of, Timestamp(now), &Operation::Refund(1));
        let most = Table::least_bytes(&policy) + 4_000;
        assert!(table.bytes() <= most / 2 + 1_000, "half of the room stays for keys");
        answer
    };
    let full = (0..1_000).find(|id| ask(*id, 0).is_err()).unwrap();
    assert!(full > 10, "{full}");
    assert!(matches!(ask(full, 1), Err(TableError::Full { .. })));
    assert_eq!(ask(0, 500_000_000).unwrap().at, Timestamp(0), "kept");
    assert_eq!(ask(full, 600_000_000).unwrap().at, Timestamp(600_000_000), "there is room again");
}

#[test]
fn no_key_passes_uncounted_because_an_answer_has_no_room() {
    let open = policy(&(String::from("on_error = 'open'\n") + LIMITS));
    let mut table = table(Table::least_bytes(&open) + 4_000);
    let mut granted = 0;
    for id in 0..1_000 {
        let of = asked(&open, "k", Id([id, 0]), 9);
        let verdict = table.ask_once(&of, Timestamp(0), &Operation::from(1)).unwrap();
        granted += u64::from(verdict.decision.is_allowed());
        // returns nothing, and fills the room of answers
        table
            .ask_once(&asked(&open, "k", Id([id, 1]), 9), Timestamp(0), &Operation::Release(A))
            .unwrap();
    }
    assert_eq!(granted, 5);
    // half of the room stays for other keys
    let other = Resolved::new(&open, "other").unwrap();
    assert!(table.ask(&other, Timestamp(0), &Operation::from(1)).unwrap().decision.is_allowed());
}

#[test]
fn kept_answers_live_through_an_edit_of_the_policy() {
    let (before, after) = (policy(LIMITS), policy(&LIMITS.replace("capacity = 5", "capacity = 6")));
    let (mut old, mut new) = (table(1 << 16), table(1 << 16));
    let first = old.ask_once(&asked(&before, "k", A, 9), Timestamp(3), &2.into()).unwrap();
    for carried in old.close().into_carried(&before, &after, Timestamp(3)) {
        assert_eq!(carried.key(), "k");
        assert!(new.adopt(carried));
    }
    let repeated = new.ask_once(&asked(&after, "k", A, 9), Timestamp(4), &2.into()).unwrap();
    assert_eq!(repeated, first);
    assert!(old.ask_once(&asked(&before, "k", A, 9), Timestamp(4), &2.into()).is_err(), "closed");
}

proptest! {
    /// Promised in docs/http.md: repeats take nothing, in memory as in a store.
    #[test]
    fn with_repeats_in_any_order_the_state_is_that_of_each_request_once(
        calls in prop::collection::vec((0_u64..6, 0_u64..40_000_000), 1..60),
    ) {
        let policy = policy(LIMITS);
        let plain = Resolved::new(&policy, "k").unwrap();
        let (mut store, mut memory, mut once) = (Store::default(), table(1 << 20), table(1 << 20));
        let (mut now, mut granted) = (0, std::collections::BTreeMap::new());
        for (id, wait) in calls {
            now += wait;
            let (of, cost) = (asked(&policy, "k", Id([id, 0]), id), 1 + id % 3);
            let stored = store.operate(&of, now, cost).unwrap().0.verdict;
            let kept = memory.ask_once(&of, Timestamp(now), &cost.into()).unwrap();
            prop_assert_eq!(&stored, &kept);
            let known: Option<&Verdict> = granted.get(&id).filter(|first: &&Verdict| now < first.at.0 + 600_000_000);
            match known {
                Some(first) => prop_assert_eq!(first, &kept),
                None => {
                    let expected = once.ask(&plain, Timestamp(now), &cost.into()).unwrap();
                    prop_assert_eq!(&expected, &kept);
                    if expected.decision.is_allowed() {
                        granted.insert(id, expected);
                    }
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_an_answer_or_an_error(mut bytes: Vec<u8>, starts: bool) {
        if let (true, Some(first)) = (starts, bytes.first_mut()) {
            *first = 5;
        }
        if let Ok(words) = decode(&bytes) {
            let mut again = Vec::new();
            encode_into(&mut again, &words);
            prop_assert_eq!(again, bytes);
            verdict(&words, Idempotency { id: A, request: words[0] }, Timestamp(0));
        }
    }
}
