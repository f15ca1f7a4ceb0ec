use std::collections::BTreeMap;
use std::string::String;
use std::sync::Arc;
use std::vec::Vec;
use std::{format, vec};

use tidegate_gate::{Id, Micros, Operation, Policy, Request, Resolved, Timestamp};

use super::{Asked, Authority, Failure, Options, Outcome};

const WINDOW: &str = "limits = [{ algorithm = 'fixed_window', limit = 1_000_000, period = '1m' }]";

const SHARED: &str =
    "limits = [{ algorithm = 'fixed_window', limit = 1_000_000, period = '1m', depth = 0 }]";

type Tested = Authority<usize, &'static str>;

fn ask(authority: &mut Tested, policy: &Arc<Policy>, key: &str, at: u64, token: usize) {
    let resolved = Resolved::new(policy, key).unwrap();
    let operation = 1.into();
    authority.ask(Asked { resolved, now: Timestamp(7), at: Micros(at), operation, token });
}

fn policy(text: &str) -> Arc<Policy> {
    Arc::new(Policy::parse("p", text).unwrap())
}

/// Sends what waits to a store that is always as expected, and returns how many swaps that took.
fn send_all(authority: &mut Tested) -> usize {
    let mut swaps = 0;
    while let Some(swap) = authority.poll_swap((None, Micros(0)), |_| false) {
        let outcomes = vec![Outcome::Swapped; swap.len()];
        authority.handle(swap, outcomes, (None, Micros(0)));
        swaps += 1;
    }
    swaps
}

fn answers(authority: &mut Tested) -> Vec<(usize, Result<bool, Failure<&'static str>>)> {
    let mut answers = Vec::new();
    while let Some((token, answer)) = authority.poll_answer() {
        answers.push((token, answer.map(|verdict| verdict.decision.is_allowed())));
    }
    answers
}

#[test]
fn queues_have_a_length() {
    let most_of_a_key = Failure::Overloaded { most: 8_192 };
    let most_of_a_home = Failure::Overloaded { most: 16_384 };
    for (text, keys, most, failure) in [
        (WINDOW, 1, 8_192, most_of_a_key.clone()),
        (SHARED, 1, 8_192, most_of_a_key),
        (SHARED, 100, 16_384, most_of_a_home),
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
        assert_eq!(send_all(&mut authority), 1, "all that waits for a home is decided together");
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
    authority.handle(swap, [Outcome::Failed("no answer")], (None, Micros(12)));
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
        authority.ask(Asked { resolved, now, at, operation, token });
    }
    let swap = authority.poll_swap((None, Micros(0)), |token| *token < 2).unwrap();
    authority.handle(swap, [Outcome::Swapped], (None, Micros(0)));
    let answered: Vec<usize> =
        answers(&mut authority).into_iter().map(|(token, _)| token).collect();
    assert_eq!((answered, authority.waiting()), (vec![1, 2], 0));
}

#[test]
fn what_is_remembered_counts_each_copy_of_a_name() {
    let remembered = |length: usize| {
        let (mut authority, policy) = (Tested::new(Options::default()), policy(WINDOW));
        ask(&mut authority, &policy, &"k".repeat(length), 0, 0);
        send_all(&mut authority);
        authority.remembered()
    };
    // the home and its slice have names, and the seat has the key as it was written and as it counts
    assert!(remembered(512) >= remembered(1) + 4 * 500, "{}", remembered(512) - remembered(1));
}

#[test]
fn a_home_of_many_keys_needs_several_swaps_and_is_forgotten_before_it_grows_too_large() {
    let text = "limits = [
      { algorithm = 'fixed_window', limit = 1_000_000, period = '1m', depth = 0 },
      { algorithm = 'fixed_window', limit = 9, period = '1m' },
    ]";
    let (mut authority, policy) = (Tested::new(Options::default()), policy(text));
    for token in 0..5_000 {
        ask(&mut authority, &policy, &format!("k{token}"), 0, token);
    }
    assert_eq!(send_all(&mut authority), 3, "2,048 slices each");
    assert_eq!(answers(&mut authority).len(), 5_000);
    assert!(authority.remembered() < 2_048 * 1_000, "{}", authority.remembered());
}

/// Asks one after another, a µs apart, and returns how many swaps that took.
fn one_by_one(authority: &mut Tested, policy: &Arc<Policy>, asks: usize) -> usize {
    let ask_one = |token| {
        let (resolved, now) =
            (Resolved::new(policy, "k").unwrap(), 7 + u64::try_from(token).unwrap());
        let (at, operation) = (Micros(0), 1.into());
        authority.ask(Asked { resolved, now: Timestamp(now), at, operation, token });
        let swaps = send_all(authority);
        assert_eq!(answers(authority).len(), 1);
        swaps
    };
    (0..asks).map(ask_one).sum()
}

#[test]
fn an_only_writer_answers_without_a_swap_what_needs_no_write() {
    let ahead = policy(&format!("{WINDOW}\npersist_ahead = {{ most = 99 }}"));
    let strict = policy(WINDOW);
    let owner = || Tested::new(Options { is_only_writer: true, ..Options::default() });
    assert_eq!(one_by_one(&mut owner(), &ahead, 1_000), 1 + 10, "it reads, then 100 grants each");
    assert_eq!(one_by_one(&mut owner(), &strict, 1_000), 1 + 1_000);
    assert_eq!(one_by_one(&mut Tested::new(Options::default()), &ahead, 1_000), 1_000);

    let full = policy("limits = [{ algorithm = 'fixed_window', limit = 1, period = '1m' }]");
    for (mut authority, swaps) in [(owner(), 1 + 1), (Tested::new(Options::default()), 10)] {
        assert_eq!(one_by_one(&mut authority, &full, 10), swaps, "one grant and 9 refusals");
    }
}

#[test]
fn an_only_writer_does_not_answer_before_it_has_seen_what_is_stored() {
    let policy = policy("limits = [{ algorithm = 'fixed_window', limit = 1, period = '1m' }]");
    let options = Options { is_only_writer: true, ..Options::default() };
    let (mut first, mut next) = (Tested::new(Options::default()), Tested::new(options));
    ask(&mut first, &policy, "k", 0, 0);
    let swap = first.poll_swap((None, Micros(0)), |_| false).unwrap();
    let stored = first.slices(&swap, 0).next().unwrap().becomes.unwrap().to_vec();
    for token in 0..2 {
        ask(&mut next, &policy, "k", 0, token);
    }
    let swap = next.poll_swap((None, Micros(0)), |_| false).unwrap();
    assert_eq!(answers(&mut next), []);
    next.handle(swap, [Outcome::Found(vec![Some(stored)])], (None, Micros(0)));
    assert_eq!(answers(&mut next), [(0, Ok(false)), (1, Ok(false))]);
}

#[test]
fn an_only_writer_whose_write_failed_asks_what_is_stored() {
    let policy = policy(&format!("{WINDOW}\npersist_ahead = {{}}"));
    let options = Options { is_only_writer: true, ..Options::default() };
    let mut authority = Tested::new(options);
    assert_eq!(one_by_one(&mut authority, &policy, 101), 1 + 1);
    ask(&mut authority, &policy, "k", 0, 0);
    let swap = authority.poll_swap((None, Micros(0)), |_| false).unwrap();
    authority.handle(swap, [Outcome::Failed("full")], (None, Micros(0)));
    assert_eq!(answers(&mut authority), [(0, Err(Failure::Store("full")))]);
    ask(&mut authority, &policy, "k", 0, 1);
    let swap = authority.poll_swap((None, Micros(0)), |_| false).unwrap();
    assert!(!authority.slices(&swap, 0).next().unwrap().is_known);
    authority.handle(swap, [Outcome::Failed("away")], (None, Micros(0)));
    assert_eq!(answers(&mut authority), [(1, Err(Failure::Store("away")))], "it could not read");
}

const TWO_DEPTHS: &str = "limits = [
  { algorithm = 'fixed_window', limit = 1_000_000, period = '1m', depth = 0 },
  { algorithm = 'fixed_window', limit = 9, period = '1m' },
]";

/// The slices of the next swap of one home: how many are known, and how many are to be written.
fn next_swap(authority: &mut Tested) -> Option<(super::Swap, usize, usize)> {
    let swap = authority.poll_swap((None, Micros(0)), |_| false)?;
    let known = authority.slices(&swap, 0).filter(|slice| slice.is_known).count();
    let writes = authority.slices(&swap, 0).filter(|slice| slice.becomes.is_some()).count();
    Some((swap, known, writes))
}

#[test]
fn an_only_writer_undoes_nothing_when_it_reads_a_further_key() {
    let ahead = policy(&format!("{TWO_DEPTHS}\npersist_ahead = {{ most = 99 }}"));
    let options = Options { is_only_writer: true, ..Options::default() };
    let mut authority = Tested::new(options);
    let at = (None, Micros(0));
    for (key, known) in [("a", 0), ("b", 1)] {
        ask(&mut authority, &ahead, key, 0, 0);
        let (swap, found, writes) = next_swap(&mut authority).unwrap();
        assert_eq!((found, writes), (known, 0), "{key}: it reads what it does not know");
        let found = authority.slices(&swap, 0).map(|slice| slice.found.map(<[u8]>::to_vec));
        let found = found.collect();
        authority.handle(swap, [Outcome::Found(found)], at);
        let (swap, known, writes) = next_swap(&mut authority).unwrap();
        assert_eq!((known, writes), (2, 2 - usize::from(key == "b")), "{key}: the lead stays");
        authority.handle(swap, [Outcome::Swapped], at);
    }
    let left =
        |authority: &mut Tested| authority.poll_answer().unwrap().1.unwrap().limits[0].remaining();
    assert_eq!(left(&mut authority), 999_999);
    assert_eq!(left(&mut authority), 999_998);
}

#[test]
fn an_only_writer_decides_what_it_knows_and_then_reads() {
    let strict = policy(TWO_DEPTHS);
    let options = Options { is_only_writer: true, ..Options::default() };
    let mut authority = Tested::new(options);
    ask(&mut authority, &strict, "a", 0, 0);
    assert_eq!((send_all(&mut authority), answers(&mut authority).len()), (2, 1));
    for (token, key) in ["a", "b", "a", "c"].iter().enumerate() {
        ask(&mut authority, &strict, key, 0, token);
    }
    let mut swaps = Vec::new();
    while let Some((swap, known, writes)) = next_swap(&mut authority) {
        authority.handle(swap, [Outcome::Swapped], (None, Micros(0)));
        let order: Vec<usize> = answers(&mut authority).iter().map(|answer| answer.0).collect();
        swaps.push((known, writes, order));
    }
    let expected = [(2, 2, vec![0]), (2, 0, vec![]), (4, 4, vec![1, 2, 3])];
    assert_eq!(swaps, expected, "the first, then what it did not know, then all others");
}

#[test]
fn an_only_writer_that_finds_other_bytes_than_it_wrote_grants_nothing() {
    let strict = policy(WINDOW);
    let options = Options { is_only_writer: true, ..Options::default() };
    let mut authority = Tested::new(options);
    assert_eq!(one_by_one(&mut authority, &strict, 1), 2);
    ask(&mut authority, &strict, "k", 0, 0);
    let swap = authority.poll_swap((None, Micros(0)), |_| false).unwrap();
    authority.handle(swap, [Outcome::Found(vec![None])], (None, Micros(0)));
    assert_eq!(answers(&mut authority), [(0, Err(Failure::Contended))]);
}

#[test]
fn a_store_that_is_known_not_to_answer_fails_what_waits_and_not_what_is_under_way() {
    let (mut authority, policy) = (Tested::new(Options::default()), policy(WINDOW));
    ask(&mut authority, &policy, "a", 0, 0);
    let swap = authority.poll_swap((None, Micros(0)), |_| false).unwrap();
    for (token, key) in [(1, "a"), (2, "b"), (3, "b")] {
        ask(&mut authority, &policy, key, 0, token);
    }
    authority.fail_waiting(&"away");
    let away = || Err(Failure::Store("away"));
    assert_eq!(answers(&mut authority), [(2, away()), (3, away())]);
    assert_eq!(authority.waiting(), 2, "the operations on the home that is under way");
    authority.handle(swap, [Outcome::Swapped], (None, Micros(0)));
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
    authority.ask(Asked { resolved, now: Timestamp(7), at: Micros(0), operation: never, token: 0 });
    (1..8_192).for_each(|token| ask(&mut authority, &policy, "k", 0, token));
    let swap = authority.poll_swap((None, Micros(0)), |_| false).unwrap();
    let refused = answers(&mut authority);
    assert!(matches!(refused[..], [(0, Err(Failure::Session(_)))]), "{refused:?}");
    (0..2).for_each(|token| ask(&mut authority, &policy, "k", 0, token));
    let overloaded = Failure::Overloaded { most: 8_192 };
    assert_eq!(answers(&mut authority), [(1, Err(overloaded))], "one place is free");
    authority.handle(swap, [Outcome::Swapped], (None, Micros(0)));
    assert_eq!(answers(&mut authority).len(), 8_191);
}

#[test]
fn a_home_remembers_up_to_1024_slices_and_swaps_up_to_2048() {
    for (keys, is_remembered) in [(1_023, true), (1_024, false)] {
        let (mut authority, policy) = (Tested::new(Options::default()), policy(TWO_DEPTHS));
        (0..keys).for_each(|key| ask(&mut authority, &policy, &format!("k{key}"), 0, key));
        assert_eq!(send_all(&mut authority), 1);
        ask(&mut authority, &policy, "k0", 0, 0);
        let (_, known, _) = next_swap(&mut authority).unwrap();
        assert_eq!(known, if is_remembered { 2 } else { 0 }, "{keys} keys and their home");
    }
    let (mut authority, policy) = (Tested::new(Options::default()), policy(TWO_DEPTHS));
    (0..5_000).for_each(|key| ask(&mut authority, &policy, &format!("k{key}"), 0, key));
    let (swap, _, writes) = next_swap(&mut authority).unwrap();
    assert_eq!((authority.slices(&swap, 0).count(), writes), (2_048, 2_048));
}

#[test]
fn the_time_of_a_refusal_is_stored_also_if_it_was_answered_before() {
    let policy = policy("limits = [{ algorithm = 'fixed_window', limit = 1, period = '1m' }]");
    let (mut first, mut next) = (Tested::new(Options::default()), Tested::new(Options::default()));
    ask(&mut first, &policy, "k", 0, 0);
    let swap = first.poll_swap((None, Micros(0)), |_| false).unwrap();
    let stored = first.slices(&swap, 0).next().unwrap().becomes.unwrap().to_vec();
    let resolved = Resolved::new(&policy, "k").unwrap();
    next.ask(Asked { resolved, now: Timestamp(9), at: Micros(0), operation: 1.into(), token: 0 });
    let swap = next.poll_swap((None, Micros(0)), |_| false).unwrap();
    next.handle(swap, [Outcome::Found(vec![Some(stored)])], (None, Micros(0)));
    assert_eq!(answers(&mut next), [(0, Ok(false))]);
    let (_, known, writes) = next_swap(&mut next).expect("a swap for the newest time");
    assert_eq!((known, writes), (1, 1));
}

#[test]
fn a_swap_takes_homes_until_it_has_its_slices() {
    for (most_slices, sizes) in [(2, &[2, 2, 1][..]), (0, &[1, 1, 1, 1, 1]), (64, &[5])] {
        let options = Options { most_slices, ..Options::default() };
        let (mut authority, policy) = (Tested::new(options), policy(WINDOW));
        for token in 0..5 {
            ask(&mut authority, &policy, &format!("k{token}"), 0, token);
        }
        let mut found = Vec::new();
        while let Some(swap) = authority.poll_swap((None, Micros(0)), |_| false) {
            found.push(swap.len());
            let outcomes = vec![Outcome::Swapped; swap.len()];
            authority.handle(swap, outcomes, (None, Micros(0)));
        }
        assert_eq!(found, sizes, "{most_slices}");
    }
}

#[test]
fn what_is_written_is_kept_twice_as_long_as_needed_and_so_the_next_writes_set_no_time() {
    let options = Options { keep_longer: Micros(5), ..Options::default() };
    let (mut authority, policy) = (Tested::new(options), policy(WINDOW));
    let needed = 60_000_000 - 7 + 5; // until the window ends, and longer
    let mut keep_at = |at| {
        ask(&mut authority, &policy, "k", at, 0);
        let swap = authority.poll_swap((None, Micros(at)), |_| false).unwrap();
        let keep = authority.slices(&swap, 0).next().unwrap().keep;
        authority.handle(swap, [Outcome::Swapped], (None, Micros(at)));
        keep
    };
    assert_eq!(keep_at(0), Some(Micros(2 * needed)));
    assert_eq!(keep_at(1), None);
    assert_eq!(keep_at(needed), None);
    assert_eq!(keep_at(needed + 1), Some(Micros(2 * needed)));
    assert_eq!(keep_at(2 * needed + 1), None);
}

#[test]
fn what_is_remembered_is_counted_and_bounded() {
    let (mut authority, strict) = (Tested::new(Options::default()), policy(WINDOW));
    let mut remembered = vec![authority.remembered()];
    for token in 0..3 {
        ask(&mut authority, &strict, &format!("k{token}"), 0, token);
        send_all(&mut authority);
        remembered.push(authority.remembered());
    }
    assert_eq!(remembered[0], 0);
    let of_a_key = remembered[1];
    assert!(of_a_key > 100, "at least the name and the states: {of_a_key}");
    assert_eq!(remembered, [0, of_a_key, 2 * of_a_key, 3 * of_a_key]);

    let options = Options { remembered: of_a_key, ..Options::default() };
    let mut small = Tested::new(options);
    for token in 0..3 {
        ask(&mut small, &strict, &format!("k{token}"), 0, token);
        send_all(&mut small);
    }
    assert_eq!(small.remembered(), of_a_key, "room for one home");
}

#[test]
fn an_operation_is_decided_at_its_own_time_while_that_is_at_most_half_a_period_old() {
    let policy = policy("limits = [{ algorithm = 'fixed_window', limit = 9, period = '10us' }]");
    for (now, decided) in [(7, 7), (12, 7), (13, 13)] {
        let mut authority = Tested::new(Options::default());
        ask(&mut authority, &policy, "k", 0, 0); // at 7
        let swap = authority.poll_swap((Some(Timestamp(now)), Micros(0)), |_| false).unwrap();
        authority.handle(swap, [Outcome::Swapped], (None, Micros(0)));
        let (_, answer) = authority.poll_answer().unwrap();
        assert_eq!(answer.unwrap().at, Timestamp(decided), "at {now}");
    }
}

#[test]
fn a_peek_is_answered_once_the_store_has_confirmed_what_it_read() {
    let (mut authority, policy) = (Tested::new(Options::default()), policy(WINDOW));
    let resolved = Resolved::new(&policy, "k").unwrap();
    let operation = Operation::Peek(Request::of(1));
    authority.ask(Asked { resolved, now: Timestamp(7), at: Micros(0), operation, token: 0 });
    assert_eq!(send_all(&mut authority), 1);
    assert_eq!(answers(&mut authority), [(0, Ok(true))]);
}

#[test]
fn what_is_refused_stays_refused_if_the_store_refuses_to_write() {
    let policy = policy("limits = [{ algorithm = 'fixed_window', limit = 1, period = '1m' }]");
    let (mut first, mut next) = (Tested::new(Options::default()), Tested::new(Options::default()));
    ask(&mut first, &policy, "k", 0, 0);
    let swap = first.poll_swap((None, Micros(0)), |_| false).unwrap();
    let stored = first.slices(&swap, 0).next().unwrap().becomes.unwrap().to_vec();
    let resolved = Resolved::new(&policy, "k").unwrap();
    for (token, operation) in [1.into(), Operation::Refund(1), 0.into()].into_iter().enumerate() {
        let (resolved, now) = (resolved.clone(), Timestamp(7));
        next.ask(Asked { resolved, now, at: Micros(0), operation, token });
    }
    let swap = next.poll_swap((None, Micros(0)), |_| false).unwrap();
    next.handle(swap, [Outcome::Refused(vec![Some(stored)], "full")], (None, Micros(0)));
    let failed = Err(Failure::Store("full"));
    assert_eq!(answers(&mut next), [(0, Ok(false)), (1, failed), (2, Ok(true))]);
}

#[test]
fn an_only_writer_that_reads_one_key_after_another_is_not_contended() {
    let policy = policy(TWO_DEPTHS);
    let mut store: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    // one swap, while a further key is asked about
    let mut swap = |authority: &mut Tested, at: u64, then: Option<&str>| {
        let Some(swap) = authority.poll_swap((None, Micros(at)), |_| false) else { return false };
        if let Some(key) = then {
            ask(authority, &policy, key, at, 1);
        }
        let slices: Vec<_> = authority.slices(&swap, 0).collect();
        let found: Vec<_> = slices.iter().map(|slice| store.get(slice.name).cloned()).collect();
        let is_expected =
            |(slice, found): (&super::Slice<'_>, &Option<Vec<u8>>)| slice.found == found.as_deref();
        let outcome = match slices.iter().zip(&found).all(is_expected) {
            true => {
                let writes = slices.iter().filter_map(|slice| Some((slice.name, slice.becomes?)));
                store.extend(writes.map(|(name, bytes)| (name.into(), bytes.to_vec())));
                Outcome::Swapped
            }
            false => Outcome::Found(found),
        };
        authority.handle(swap, [outcome], (None, Micros(at)));
        true
    };
    let options = Options { is_only_writer: true, patience: Micros(0), ..Options::default() };
    let mut first = Tested::new(options);
    for key in ["a", "b"] {
        ask(&mut first, &policy, key, 0, 0);
        while swap(&mut first, 0, None) {}
    }
    let mut next = Tested::new(options);
    ask(&mut next, &policy, "a", 1, 0);
    let mut then = Some("b");
    for at in 1.. {
        if !swap(&mut next, at, then.take()) {
            break;
        }
    }
    assert_eq!(answers(&mut next), [(0, Ok(true)), (1, Ok(true))]);
}

#[test]
fn an_authority_whose_bound_becomes_lower_forgets_what_no_longer_fits() {
    let (mut authority, policy) = (Tested::new(Options::default()), policy(WINDOW));
    for token in 0..10 {
        ask(&mut authority, &policy, &format!("k{token}"), 0, token);
    }
    send_all(&mut authority);
    let half = authority.remembered() / 2;
    authority.remember_at_most(half);
    assert!((1..=half).contains(&authority.remembered()), "{}", authority.remembered());
    authority.remember_at_most(0);
    assert_eq!(authority.remembered(), 0);
    ask(&mut authority, &policy, "k0", 0, 99);
    send_all(&mut authority);
    assert_eq!(answers(&mut authority).len(), 11);
}
