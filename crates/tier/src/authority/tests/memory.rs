//! What an authority remembers of partitions on which nothing waits.

use super::*;

#[test]
fn what_is_remembered_counts_each_copy_of_a_name() {
    let remembered = |length: usize| {
        let (mut authority, policy) = (Tested::new(Options::default()), policy(WINDOW));
        ask(&mut authority, &policy, &"k".repeat(length), 0, 0);
        send_all(&mut authority);
        authority.remembered()
    };
    // the partition and its record have names, and the joined has the key as it was written and as it counts
    assert!(remembered(512) >= remembered(1) + 4 * 500, "{}", remembered(512) - remembered(1));
}

#[test]
fn a_partition_of_many_keys_needs_several_swaps_and_is_forgotten_before_it_grows_too_large() {
    let text = "limits = [
      { algorithm = 'fixed_window', limit = 1_000_000, period = '1m', depth = 0 },
      { algorithm = 'fixed_window', limit = 9, period = '1m' },
    ]";
    let (mut authority, policy) = (Tested::new(Options::default()), policy(text));
    for token in 0..5_000 {
        ask(&mut authority, &policy, &format!("k{token}"), 0, token);
    }
    assert_eq!(send_all(&mut authority), 3, "2,048 records each");
    assert_eq!(answers(&mut authority).len(), 5_000);
    assert!(authority.remembered() < 2_048 * 1_000, "{}", authority.remembered());
}

#[test]
fn a_partition_remembers_up_to_1024_records_and_swaps_up_to_2048() {
    for (keys, is_remembered) in [(1_023, true), (1_024, false)] {
        let (mut authority, policy) = (Tested::new(Options::default()), policy(TWO_DEPTHS));
        (0..keys).for_each(|key| ask(&mut authority, &policy, &format!("k{key}"), 0, key));
        assert_eq!(send_all(&mut authority), 1);
        ask(&mut authority, &policy, "k0", 0, 0);
        let (_, known, _) = next_swap(&mut authority).unwrap();
        assert_eq!(known, if is_remembered { 2 } else { 0 }, "{keys} keys and their partition");
    }
    let (mut authority, policy) = (Tested::new(Options::default()), policy(TWO_DEPTHS));
    (0..5_000).for_each(|key| ask(&mut authority, &policy, &format!("k{key}"), 0, key));
    let (swap, _, writes) = next_swap(&mut authority).unwrap();
    assert_eq!((authority.records(&swap, 0).count(), writes), (2_048, 2_048));
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
    assert_eq!(small.remembered(), of_a_key, "room for one partition");
}

#[test]
fn partitions_of_other_names_are_others() {
    let (mut authority, policy) = (Tested::new(Options::default()), policy(WINDOW));
    (0..2_000).for_each(|key| ask(&mut authority, &policy, &format!("k{key}"), 0, key));
    let mut partitions = 0;
    while let Some(swap) = authority.poll_swap((None, Micros(0)), |_| false) {
        partitions += swap.len();
    }
    assert_eq!(partitions, 2_000);
}

/// More than a part of a table in memory holds.
#[test]
fn every_partition_is_found_again_however_many_there_are() {
    const KEYS: usize = 40_000;
    let (mut authority, policy) = (Tested::new(Options::default()), policy(WINDOW));
    for round in 0..2 {
        (0..KEYS).for_each(|key| ask(&mut authority, &policy, &format!("k{key}"), 0, key));
        let mut known = 0;
        while let Some(swap) = authority.poll_swap((None, Micros(0)), |_| false) {
            for partition in 0..swap.len() {
                let records = authority.records(&swap, partition);
                known += records.filter(|record| record.found.is_some()).count();
            }
            let swapped = vec![SwapOutcome::Swapped; swap.len()];
            authority.handle(swap, swapped, (None, Micros(0)));
        }
        assert_eq!((answers(&mut authority).len(), known), (KEYS, round * KEYS));
    }
}

#[test]
fn a_partition_in_use_is_passed_over_once() {
    let (mut authority, policy) = (Tested::new(Options::default()), policy(WINDOW));
    ask(&mut authority, &policy, "often", 0, 0);
    send_all(&mut authority);
    let most = 4 * authority.remembered();
    let mut small = Tested::new(Options { remembered: most, ..Options::default() });
    let mut knows = |key: &str| {
        ask(&mut small, &policy, key, 0, 0);
        let (swap, known, _) = next_swap(&mut small).unwrap();
        small.handle(swap, [SwapOutcome::Swapped], (None, Micros(0)));
        assert!(small.remembered() <= most);
        known == 1
    };
    let mut known = 0;
    for key in 0..100 {
        assert!(!knows(&format!("k{key:04}")));
        known += usize::from(knows("often"));
    }
    assert!(known >= 90, "{known} of 100 times");
    assert!(!knows("k0001"));
}

#[test]
fn a_partition_on_which_operations_wait_is_not_forgotten() {
    let (mut authority, policy) =
        (Tested::new(Options { remembered: 0, ..Options::default() }), policy(WINDOW));
    ask(&mut authority, &policy, "waits", 0, 0);
    let swap = authority.poll_swap((None, Micros(0)), |_| false).unwrap();
    for key in 0..100 {
        ask(&mut authority, &policy, &format!("k{key}"), 0, 1);
        assert_eq!((send_all(&mut authority), answers(&mut authority).len()), (1, 1));
        assert_eq!(authority.remembered(), 0);
    }
    authority.handle(swap, [SwapOutcome::Swapped], (None, Micros(0)));
    assert_eq!(answers(&mut authority), [(0, Ok(true))]);
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
