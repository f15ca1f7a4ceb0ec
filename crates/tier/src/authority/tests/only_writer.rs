//! An authority to whose store nobody else writes.

use super::super::SwapEntry;
use super::*;

/// Asks one after another, a µs apart, and returns how many swaps that took.
fn one_by_one(authority: &mut Tested, policy: &Arc<Policy>, asks: usize) -> usize {
    let ask_one = |token| {
        let (resolved, now) =
            (Resolved::new(policy, "k").unwrap(), 7 + u64::try_from(token).unwrap());
        let (at, operation) = (Micros(0), 1.into());
        authority.ask(Queued { resolved, now: Timestamp(now), at, operation, token });
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
    let (stored, mut next) = (after_a_grant(&policy), Tested::new(options));
    for token in 0..2 {
        ask(&mut next, &policy, "k", 0, token);
    }
    let swap = next.poll_swap((None, Micros(0)), |_| false).unwrap();
    assert_eq!(answers(&mut next), []);
    next.handle(swap, [SwapOutcome::Found(vec![Some(stored)])], (None, Micros(0)));
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
    authority.handle(swap, [SwapOutcome::Failed("full")], (None, Micros(0)));
    assert_eq!(answers(&mut authority), [(0, Err(Failure::Store("full")))]);
    ask(&mut authority, &policy, "k", 0, 1);
    let swap = authority.poll_swap((None, Micros(0)), |_| false).unwrap();
    assert!(!authority.records(&swap, 0).next().unwrap().is_known);
    authority.handle(swap, [SwapOutcome::Failed("away")], (None, Micros(0)));
    assert_eq!(answers(&mut authority), [(1, Err(Failure::Store("away")))], "it could not read");
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
        let found = authority.records(&swap, 0).map(|record| record.found.map(<[u8]>::to_vec));
        let found = found.collect();
        authority.handle(swap, [SwapOutcome::Found(found)], at);
        let (swap, known, writes) = next_swap(&mut authority).unwrap();
        assert_eq!((known, writes), (2, 2 - usize::from(key == "b")), "{key}: the lead stays");
        authority.handle(swap, [SwapOutcome::Swapped], at);
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
        authority.handle(swap, [SwapOutcome::Swapped], (None, Micros(0)));
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
    authority.handle(swap, [SwapOutcome::Found(vec![None])], (None, Micros(0)));
    assert_eq!(answers(&mut authority), [(0, Err(Failure::Contended))]);
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
        let records: Vec<_> = authority.records(&swap, 0).collect();
        let found: Vec<_> = records.iter().map(|record| store.get(record.name).cloned()).collect();
        let is_expected =
            |(record, found): (&SwapEntry<'_>, &Option<Vec<u8>>)| record.found == found.as_deref();
        let outcome = match records.iter().zip(&found).all(is_expected) {
            true => {
                let writes =
                    records.iter().filter_map(|record| Some((record.name, record.becomes?)));
                store.extend(writes.map(|(name, bytes)| (name.into(), bytes.to_vec())));
                SwapOutcome::Swapped
            }
            false => SwapOutcome::Found(found),
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
