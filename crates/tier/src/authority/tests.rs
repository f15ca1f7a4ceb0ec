use std::collections::BTreeMap;
use std::string::String;
use std::sync::Arc;
use std::vec::Vec;
use std::{format, vec};

use tidegate_gate::{
    Id, Idempotency, Micros, Operation, Policy, Request, Resolved, Timestamp, Verdict,
};

mod memory;
mod only_writer;
mod outage;

use super::{Authority, Failure, Options, Queued, Swap, SwapOutcome};

const WINDOW: &str = "limits = [{ algorithm = 'fixed_window', limit = 1_000_000, period = '1m' }]";

const SHARED: &str =
    "limits = [{ algorithm = 'fixed_window', limit = 1_000_000, period = '1m', depth = 0 }]";

const TWO_DEPTHS: &str = "limits = [
  { algorithm = 'fixed_window', limit = 1_000_000, period = '1m', depth = 0 },
  { algorithm = 'fixed_window', limit = 9, period = '1m' },
]";

type Tested = Authority<usize, &'static str>;

fn ask(authority: &mut Tested, policy: &Arc<Policy>, key: &str, at: u64, token: usize) {
    let resolved = Resolved::new(policy, key).unwrap();
    let operation = 1.into();
    authority.ask(Queued { resolved, now: Timestamp(7), at: Micros(at), operation, token });
}

fn policy(text: &str) -> Arc<Policy> {
    Arc::new(Policy::parse("p", text).unwrap())
}

/// The bytes that an authority stores for a grant to the key `k`.
fn after_a_grant(policy: &Arc<Policy>) -> Vec<u8> {
    let mut authority = Tested::new(Options::default());
    ask(&mut authority, policy, "k", 0, 0);
    let swap = authority.poll_swap((None, Micros(0)), |_| false).unwrap();
    authority.records(&swap, 0).next().unwrap().becomes.unwrap().to_vec()
}

/// Sends what waits to a store that is always as expected, and returns how many swaps that took.
fn send_all(authority: &mut Tested) -> usize {
    let mut swaps = 0;
    while let Some(swap) = authority.poll_swap((None, Micros(0)), |_| false) {
        let outcomes = vec![SwapOutcome::Swapped; swap.len()];
        authority.handle(swap, outcomes, (None, Micros(0)));
        swaps += 1;
    }
    swaps
}

/// The records of the next swap of one partition: how many are known, and how many are to be written.
fn next_swap(authority: &mut Tested) -> Option<(Swap, usize, usize)> {
    let swap = authority.poll_swap((None, Micros(0)), |_| false)?;
    let known = authority.records(&swap, 0).filter(|record| record.is_known).count();
    let writes = authority.records(&swap, 0).filter(|record| record.becomes.is_some()).count();
    Some((swap, known, writes))
}

fn answers(authority: &mut Tested) -> Vec<(usize, Result<bool, Failure<&'static str>>)> {
    let mut answers = Vec::new();
    while let Some((token, answer, _)) = authority.poll_answer() {
        answers.push((token, answer.map(|verdict| verdict.decision.is_allowed())));
    }
    answers
}

#[test]
fn queues_have_a_length() {
    let most_of_a_key = Failure::Overloaded { most: 8_192 };
    let of_a_partition = Failure::Overloaded { most: 16_384 };
    for (text, keys, most, failure) in [
        (WINDOW, 1, 8_192, most_of_a_key.clone()),
        (SHARED, 1, 8_192, most_of_a_key),
        (SHARED, 100, 16_384, of_a_partition),
    ] {
        let (mut authority, policy) = (Tested::new(Options::default()), policy(text));
        for token in 0..20_000 {
            ask(&mut authority, &policy, &format!("k{}", token % keys), 0, token);
        }
        let refused = answers(&mut authority);
        assert_eq!(refused.len(), 20_000 - most, "{text}");
        assert!(
            refused
                .iter()
                .all(|(token, answer)| { *token >= most && *answer == Err(failure.clone()) })
        );
        let overloaded = usize::try_from(authority.overloaded()).unwrap();
        assert_eq!((authority.waiting(), overloaded), (most, 20_000 - most));
        assert_eq!(
            send_all(&mut authority),
            1,
            "all that waits for a partition is decided together"
        );
        let granted = answers(&mut authority);
        assert!(
            granted
                .iter()
                .enumerate()
                .all(|(place, (token, answer))| { place == *token && *answer == Ok(true) })
        );
        assert_eq!((granted.len(), authority.waiting()), (most, 0));
        // the places are free again
        ask(&mut authority, &policy, "k0", 0, 0);
        assert_eq!(authority.waiting(), 1);
    }
    let options = Options { most_waiting: 3, ..Options::default() };
    let (mut authority, policy) = (Tested::new(options), policy(WINDOW));
    for token in 0..5 {
        ask(&mut authority, &policy, &format!("k{token}"), 0, token);
    }
    let failure = Failure::Overloaded { most: 3 };
    assert_eq!(answers(&mut authority), [(3, Err(failure.clone())), (4, Err(failure))]);
}

#[test]
fn what_waited_too_long_is_not_begun() {
    let options = Options { most_wait: Micros(10), ..Options::default() };
    let (mut authority, policy) = (Tested::new(options), policy(WINDOW));
    for (token, at) in [0, 1, 2].into_iter().enumerate() {
        ask(&mut authority, &policy, "k", at, token);
    }
    let swap = authority.poll_swap((None, Micros(12)), |_| false).unwrap();
    assert_eq!(answers(&mut authority), [(0, Err(Failure::TooLate)), (1, Err(Failure::TooLate))]);
    authority.handle(swap, [SwapOutcome::Failed("no answer")], (None, Micros(12)));
    assert_eq!(answers(&mut authority), [(2, Err(Failure::Store("no answer")))]);
}

#[test]
fn what_nobody_waits_for_is_left_out_unless_it_reports() {
    let text = "limits = [{ algorithm = 'concurrency', capacity = 2, time_to_live = '1m' }]";
    let (mut authority, policy) = (Tested::new(Options::default()), policy(text));
    let resolved = Resolved::new(&policy, "k").unwrap();
    let id = Id([1, 0]);
    let acquire = Operation::Decide(Request { lease: Some(id), ..Request::of(1) });
    for (token, operation) in [acquire, Operation::Release(id), acquire].into_iter().enumerate() {
        let (resolved, now, at) = (resolved.clone(), Timestamp(7), Micros(0));
        authority.ask(Queued { resolved, now, at, operation, token });
    }
    let swap = authority.poll_swap((None, Micros(0)), |token| *token < 2).unwrap();
    authority.handle(swap, [SwapOutcome::Swapped], (None, Micros(0)));
    let answered: Vec<usize> =
        answers(&mut authority).into_iter().map(|(token, _)| token).collect();
    assert_eq!((answered, authority.waiting()), (vec![1, 2], 0));
}

#[test]
fn a_store_that_is_known_not_to_answer_fails_what_waits_and_not_what_is_under_way() {
    let (mut authority, policy) = (Tested::new(Options::default()), policy(WINDOW));
    ask(&mut authority, &policy, "a", 0, 0);
    let swap = authority.poll_swap((None, Micros(0)), |_| false).unwrap();
    for (token, key) in [(1, "a"), (2, "b"), (3, "b")] {
        ask(&mut authority, &policy, key, 0, token);
    }
    authority.fail_waiting(&"away", None);
    let away = || Err(Failure::Store("away"));
    assert_eq!(answers(&mut authority), [(2, away()), (3, away())]);
    assert_eq!(authority.waiting(), 2, "the operations on the partition that is under way");
    authority.handle(swap, [SwapOutcome::Swapped], (None, Micros(0)));
    assert_eq!(answers(&mut authority), [(0, Ok(true))]);
    assert_eq!((send_all(&mut authority), answers(&mut authority)), (1, vec![(1, Ok(true))]));
    ask(&mut authority, &policy, "b", 0, 4);
    assert_eq!((send_all(&mut authority), answers(&mut authority)), (1, vec![(4, Ok(true))]));
}

#[test]
fn the_operations_on_a_key_are_counted_until_each_is_answered() {
    let (mut authority, policy) = (Tested::new(Options::default()), policy(SHARED));
    let resolved = Resolved::new(&policy, "k").unwrap();
    let never = Operation::from(2_000_000);
    authority.ask(Queued {
        resolved,
        now: Timestamp(7),
        at: Micros(0),
        operation: never,
        token: 0,
    });
    (1..8_192).for_each(|token| ask(&mut authority, &policy, "k", 0, token));
    let swap = authority.poll_swap((None, Micros(0)), |_| false).unwrap();
    let refused = answers(&mut authority);
    assert!(matches!(refused[..], [(0, Err(Failure::Transaction(_)))]), "{refused:?}");
    (0..2).for_each(|token| ask(&mut authority, &policy, "k", 0, token));
    let overloaded = Failure::Overloaded { most: 8_192 };
    assert_eq!(answers(&mut authority), [(1, Err(overloaded))], "one place is free");
    authority.handle(swap, [SwapOutcome::Swapped], (None, Micros(0)));
    assert_eq!(answers(&mut authority).len(), 8_191);
}

#[test]
fn the_time_of_a_refusal_is_stored_also_if_it_was_answered_before() {
    let policy = policy("limits = [{ algorithm = 'fixed_window', limit = 1, period = '1m' }]");
    let (stored, mut next) = (after_a_grant(&policy), Tested::new(Options::default()));
    let resolved = Resolved::new(&policy, "k").unwrap();
    next.ask(Queued { resolved, now: Timestamp(9), at: Micros(0), operation: 1.into(), token: 0 });
    let swap = next.poll_swap((None, Micros(0)), |_| false).unwrap();
    next.handle(swap, [SwapOutcome::Found(vec![Some(stored)])], (None, Micros(0)));
    assert_eq!(answers(&mut next), [(0, Ok(false))]);
    let (_, known, writes) = next_swap(&mut next).expect("a swap for the newest time");
    assert_eq!((known, writes), (1, 1));
}

#[test]
fn a_swap_takes_partitions_until_it_has_its_records() {
    for (most_records, sizes) in [(2, &[2, 2, 1][..]), (0, &[1, 1, 1, 1, 1]), (64, &[5])] {
        let options = Options { most_records, ..Options::default() };
        let (mut authority, policy) = (Tested::new(options), policy(WINDOW));
        for token in 0..5 {
            ask(&mut authority, &policy, &format!("k{token}"), 0, token);
        }
        let mut found = Vec::new();
        while let Some(swap) = authority.poll_swap((None, Micros(0)), |_| false) {
            found.push(swap.len());
            let outcomes = vec![SwapOutcome::Swapped; swap.len()];
            authority.handle(swap, outcomes, (None, Micros(0)));
        }
        assert_eq!(found, sizes, "{most_records}");
    }
}

#[test]
fn what_is_written_is_kept_twice_as_long_as_needed_and_so_the_next_writes_set_no_time() {
    let options = Options { ttl_margin: Micros(5), ..Options::default() };
    let (mut authority, policy) = (Tested::new(options), policy(WINDOW));
    let needed = 60_000_000 - 7 + 5; // until the window ends, and longer
    let mut keep_at = |at| {
        ask(&mut authority, &policy, "k", at, 0);
        let swap = authority.poll_swap((None, Micros(at)), |_| false).unwrap();
        let keep = authority.records(&swap, 0).next().unwrap().ttl;
        authority.handle(swap, [SwapOutcome::Swapped], (None, Micros(at)));
        keep
    };
    assert_eq!(keep_at(0), Some(Micros(2 * needed)));
    assert_eq!(keep_at(1), None);
    assert_eq!(keep_at(needed), None);
    assert_eq!(keep_at(needed + 1), Some(Micros(2 * needed)));
    assert_eq!(keep_at(2 * needed + 1), None);
}

#[test]
fn an_operation_is_decided_at_its_own_time_while_that_is_at_most_half_a_period_old() {
    let policy = policy("limits = [{ algorithm = 'fixed_window', limit = 9, period = '10us' }]");
    for (now, decided) in [(7, 7), (12, 7), (13, 13)] {
        let mut authority = Tested::new(Options::default());
        ask(&mut authority, &policy, "k", 0, 0); // at 7
        let swap = authority.poll_swap((Some(Timestamp(now)), Micros(0)), |_| false).unwrap();
        authority.handle(swap, [SwapOutcome::Swapped], (None, Micros(0)));
        let (_, answer, _) = authority.poll_answer().unwrap();
        assert_eq!(answer.unwrap().at, Timestamp(decided), "at {now}");
    }
}

#[test]
fn a_peek_is_answered_once_the_store_has_confirmed_what_it_read() {
    let (mut authority, policy) = (Tested::new(Options::default()), policy(WINDOW));
    let resolved = Resolved::new(&policy, "k").unwrap();
    let operation = Operation::Peek(Request::of(1));
    authority.ask(Queued { resolved, now: Timestamp(7), at: Micros(0), operation, token: 0 });
    assert_eq!(send_all(&mut authority), 1);
    assert_eq!(answers(&mut authority), [(0, Ok(true))]);
}

#[test]
fn what_is_refused_stays_refused_if_the_store_refuses_to_write() {
    let policy = policy("limits = [{ algorithm = 'fixed_window', limit = 1, period = '1m' }]");
    let (stored, mut next) = (after_a_grant(&policy), Tested::new(Options::default()));
    let resolved = Resolved::new(&policy, "k").unwrap();
    for (token, operation) in [1.into(), Operation::Refund(1), 0.into()].into_iter().enumerate() {
        let (resolved, now) = (resolved.clone(), Timestamp(7));
        next.ask(Queued { resolved, now, at: Micros(0), operation, token });
    }
    let swap = next.poll_swap((None, Micros(0)), |_| false).unwrap();
    next.handle(swap, [SwapOutcome::Refused(vec![Some(stored)], "full")], (None, Micros(0)));
    let failed = Err(Failure::Store("full"));
    assert_eq!(answers(&mut next), [(0, Ok(false)), (1, failed), (2, Ok(true))]);
}

/// A store, the bytes under each name, and what an authority that has it for its own answers to a request.
fn ask_alone(
    store: &mut BTreeMap<String, Vec<u8>>,
    authority: &mut Tested,
    resolved: Resolved,
) -> (usize, Verdict) {
    let (now, operation) = (Timestamp(7), 1.into());
    authority.ask(Queued { resolved, now, operation, at: Micros(0), token: 0 });
    let mut swaps = 0;
    while let Some(swap) = authority.poll_swap((None, Micros(0)), |_| false) {
        swaps += 1;
        let records: Vec<_> = authority.records(&swap, 0).collect();
        let is_expected =
            records.iter().all(|record| store.get(record.name).map(Vec::as_slice) == record.found);
        let outcome = match is_expected {
            true => {
                for record in records {
                    if let Some(bytes) = record.becomes {
                        store.insert(record.name.into(), bytes.into());
                    }
                }
                SwapOutcome::Swapped
            }
            false => {
                let names = records.iter().map(|record| store.get(record.name).cloned());
                SwapOutcome::Found(names.collect())
            }
        };
        authority.handle(swap, [outcome], (None, Micros(0)));
    }
    (swaps, authority.poll_answer().unwrap().1.unwrap())
}

#[test]
fn a_repeat_at_another_authority_gets_the_answer_of_the_first() {
    let text =
        "idempotency = '1h'\nlimits = [{ algorithm = 'fixed_window', limit = 5, period = '1m' }]";
    let (policy, mut store) = (policy(text), BTreeMap::new());
    let known = Idempotency { id: Id([1, 2]), request: 3 };
    let resolved = Resolved::new(&policy, "k").unwrap().known_by(known);
    let authority = || Tested::new(Options::default());
    let [mut one, mut other] = [authority(), authority()];
    let (swaps, first) = ask_alone(&mut store, &mut one, resolved.clone());
    assert_eq!((swaps, store.len()), (1, 2), "state and answer are written together");
    let before = store.clone();
    let (swaps, repeated) = ask_alone(&mut store, &mut other, resolved.clone());
    assert_eq!((swaps, &repeated), (1, &first), "the guess that nothing is stored was wrong");
    assert_eq!(ask_alone(&mut store, &mut one, resolved), (1, first), "the state was as expected");
    assert_eq!(store, before);
    // an only writer reads before it decides
    let mut only = Tested::new(Options { is_only_writer: true, ..Options::default() });
    let resolved = Resolved::new(&policy, "k").unwrap().known_by(known);
    assert_eq!(ask_alone(&mut store, &mut only, resolved).1, repeated);
    assert_eq!(store, before);
}
