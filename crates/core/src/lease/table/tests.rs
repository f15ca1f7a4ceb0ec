use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::{Ends, FIELDS, Found, LINKS, Layout, MAX_ENTRIES, NEWEST, TOUCHED, Table, VALUE};
use crate::lease::Id;
use crate::lease::properties::{Move, ids, moves};
use crate::{ConfigError, Micros, Timestamp};

const WIDTH: usize = FIELDS + 1;

fn layout(entries: u64, period: u64) -> Layout<WIDTH> {
    Layout::new("entries", entries, Micros(period)).unwrap()
}

fn insert(table: &mut Table<&mut [u64], WIDTH>, id: Id, value: u64) -> Option<usize> {
    let found = table.search(id);
    assert_eq!(found.place, 0);
    table.insert(found, id, value)
}

fn remove(table: &mut Table<&mut [u64], WIDTH>, place: usize) {
    table.remove(Found { slot: table.slot_of(place), place });
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    /// Inserts the id, or touches its entry if the table has one.
    Touch(u64),
    Set(u64),
    Remove,
    Advance,
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        6 => (0..100_u64).prop_map(Operation::Touch),
        1 => (0..100_u64).prop_map(Operation::Set),
        2 => Just(Operation::Remove),
        1 => Just(Operation::Advance),
    ]
}

/// The entries of the table, the oldest first.
fn entries(table: &Table<&mut [u64], WIDTH>) -> Vec<(Id, u64, u64, u64)> {
    let mut place = table.ends().oldest;
    let mut entries = Vec::new();
    while place != 0 {
        let (value, extra) = (table.value(place), table.extra(place, 0));
        entries.push((table.id(place), value, extra, table.age(place).0));
        place = table.links(place).later;
    }
    entries
}

#[test]
fn has_room_for_1_to_4096() {
    for entries in [0, MAX_ENTRIES + 1, u64::MAX] {
        let expected = ConfigError::OutOfRange {
            field: "leases",
            found: entries,
            least: 1,
            most: MAX_ENTRIES,
        };
        assert_eq!(Layout::<FIELDS>::new("leases", entries, Micros(1)).unwrap_err(), expected);
    }
    // words: head + slots / 4 + entries
    for (entries, words) in
        [(1, 3 + 1 + 5), (3, 3 + 2 + 15), (1_000, 3 + 512 + 5_000), (4_096, 3 + 2_048 + 20_480)]
    {
        assert_eq!(Layout::<FIELDS>::new("leases", entries, Micros(1)).unwrap().words(), words);
    }
}

#[test]
fn a_full_table_finds_all_and_takes_no_more() {
    let layout = layout(MAX_ENTRIES, 1_000);
    let mut words = vec![0; layout.words()];
    let mut table = Table::new(layout, &mut words[..]);
    for k in 0..MAX_ENTRIES {
        table.advance(Timestamp(k / 10));
        assert!(insert(&mut table, Id([k, 7]), k).is_some());
    }
    assert!(insert(&mut table, Id([0, 8]), 1).is_none());
    assert_eq!(table.check(), Ok(()));
    for k in (0..MAX_ENTRIES).step_by(3) {
        let place = table.find(Id([k, 7])).unwrap();
        assert_eq!(table.value(place), k);
        remove(&mut table, place);
    }
    assert_eq!(table.check(), Ok(()));
    for k in 0..MAX_ENTRIES {
        assert_eq!(table.find(Id([k, 7])).is_some(), k % 3 != 0);
    }
    table.advance(Timestamp(1_000_000));
    assert!(words[1..].iter().all(|&word| word == 0), "nothing is left behind");
}

/// The slots are a part of stored states.
#[test]
fn an_id_keeps_its_slot() {
    let layout = layout(1_000, 1);
    let mut words = vec![0; layout.words()];
    let table = Table::new(layout, &mut words[..]);
    for (id, slot) in [([1, 0], 1_265), ([0, 1], 1_355), ([7, 42], 428), ([u64::MAX; 2], 1_602)] {
        assert_eq!(table.home(Id(id)), slot, "{id:?}");
    }
}

#[test]
fn a_search_among_consecutive_ids_looks_at_few_slots() {
    let layout = layout(1_000, 1);
    let kinds: [fn(u64) -> Id; 4] =
        [|k| Id([k, 0]), |k| Id([0, k]), |k| Id([k << 32, k]), |k| Id([k * 1_000_000, k << 48])];
    for id in kinds {
        let mut words = vec![0; layout.words()];
        let mut table = Table::new(layout, &mut words[..]);
        let mut looked = 0;
        for k in 0..1_000 {
            let place = insert(&mut table, id(k), 1).unwrap();
            let slot = table.slot_of(place);
            looked += slot.wrapping_sub(table.home(id(k))) & layout.mask;
        }
        assert!(looked < 2_000, "{looked} beside the first");
    }
}

#[test]
fn an_entry_behind_the_last_is_noticed() {
    let layout = layout(2, 100);
    let mut words = vec![0; layout.words()];
    let mut table = Table::new(layout, &mut words[..]);
    // place 2 has the id 0 and is otherwise zero; place 1 belongs to no entry
    for (place, accepted) in [(1, true), (2, false)] {
        table.set_ends(Ends { count: 1, oldest: place, latest: place });
        table.set_slot(table.home(Id([0, 0])), place);
        assert_eq!(table.check().is_ok(), accepted);
    }
}

#[test]
fn an_entry_out_of_order_or_of_time_or_of_its_slot_is_noticed() {
    let layout = layout(4, 100);
    let mut words = vec![0; layout.words()];
    let mut table = Table::new(layout, &mut words[..]);
    for (now, id) in [(10, 1), (20, 2), (30, 3)] {
        table.advance(Timestamp(now));
        insert(&mut table, Id([id, 0]), 1);
    }
    // the second entry was touched between its neighbours
    for (touched, accepted) in [(20, true), (10, true), (30, true), (9, false), (31, false)] {
        table.set_field(2, TOUCHED, touched);
        assert_eq!(table.check().is_ok(), accepted, "{touched}");
    }
    table.set_field(2, TOUCHED, 20);
    for (touched, accepted) in [(0_u64.wrapping_sub(69), true), (0_u64.wrapping_sub(70), false)] {
        table.set_field(1, TOUCHED, touched);
        assert_eq!(table.check().is_ok(), accepted, "99 or 100 before the newest time");
    }
    table.set_field(1, TOUCHED, 10);
    for id in 0..1_000 {
        table.set_field(1, 0, id);
        let found = table.find(Id([id, 0])) == Some(1);
        assert_eq!(table.check().is_ok(), found, "{id}");
        assert!(!found || ![2, 3].contains(&id), "another entry has it");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn equals_a_list_in_order_of_touch(
        (most, period) in (1..20_u64, 1..200_u64),
        steps in proptest::collection::vec((moves(100), ids(30), operation()), 1..120),
    ) {
        let layout = layout(most, period);
        let mut words = vec![0; layout.words()];
        let mut table = Table::new(layout, &mut words[..]);
        // (id, value, extra, touched), the oldest first
        let mut list: Vec<(Id, u64, u64, i128)> = Vec::new();
        let (mut now, mut newest) = (1_000_000, 0_i128);
        for (to, id, operation) in steps {
            now = Move::from(to, now, 0);
            let at = i128::from(now);
            if at < newest - i128::from(period) {
                list.iter_mut().for_each(|entry| entry.3 -= newest - at);
                newest = at;
            }
            newest = newest.max(at);
            list.retain(|entry| entry.3 + i128::from(period) > newest);
            let live = table.live(Timestamp(now));
            let sum = list.iter().map(|entry| entry.1).sum::<u64>();
            prop_assert_eq!((live.count, live.sum), (list.len(), sum));
            table.advance(Timestamp(now));
            let known = list.iter().position(|entry| entry.0 == id);
            let place = table.find(id);
            prop_assert_eq!(place.is_some(), known.is_some());
            match (operation, known, place) {
                (Operation::Touch(_), Some(k), Some(place)) => {
                    let entry = list.remove(k);
                    list.push((entry.0, entry.1, entry.2, newest));
                    table.touch(place);
                }
                (Operation::Touch(value), ..) => {
                    let room = list.len() < usize::try_from(most).unwrap();
                    let place = insert(&mut table, id, value);
                    prop_assert_eq!(place.is_some(), room);
                    if let Some(place) = place {
                        list.push((id, value, value + 1, newest));
                        table.set_extra(place, 0, value + 1);
                    }
                }
                (Operation::Set(value), Some(k), Some(place)) => {
                    list[k].1 = value;
                    table.set_value(place, value);
                }
                (Operation::Remove, Some(k), Some(place)) => {
                    list.remove(k);
                    remove(&mut table, place);
                }
                _ => {}
            }
            prop_assert_eq!(table.check(), Ok(()));
            let expected: Vec<_> = list
                .iter()
                .map(|entry| (entry.0, entry.1, entry.2, u64::try_from(newest - entry.3).unwrap()))
                .collect();
            prop_assert_eq!(entries(&table), expected);
        }
    }

    #[test]
    fn a_flipped_bit_in_what_holds_it_together_is_noticed(
        most in 1..12_u64,
        steps in proptest::collection::vec((moves(100), ids(15), operation()), 1..60),
        (at, bit) in (any::<proptest::sample::Index>(), 0..64_u32),
    ) {
        let layout = layout(most, 100);
        let mut words = vec![0; layout.words()];
        let mut table = Table::new(layout, &mut words[..]);
        let mut now = 0;
        for (to, id, operation) in steps {
            now = Move::from(to, now, 0);
            table.advance(Timestamp(now));
            match (operation, table.find(id)) {
                (Operation::Remove, Some(place)) => remove(&mut table, place),
                (_, Some(place)) => table.touch(place),
                (_, None) => {
                    insert(&mut table, id, 1);
                }
            }
        }
        let at = at.index(words.len());
        words[at] ^= 1 << bit;
        let mut table = Table::new(layout, &mut words[..]);
        let orders = match at.checked_sub(layout.base(1)) {
            Some(at) => [VALUE, LINKS].contains(&(at % WIDTH)) || at / WIDTH >= table.count(),
            None => at != NEWEST,
        };
        prop_assert!(!orders || table.check().is_err(), "word {}, bit {}", at, bit);
        // a table with another time, id or extra word may be valid, and then works
        if table.check().is_ok() {
            let count = table.count();
            prop_assert_eq!(entries(&table).len(), count);
            table.advance(Timestamp(now));
            prop_assert_eq!(table.check(), Ok(()));
        } else {
            table.advance(Timestamp(now)); // does not panic, and ends
            insert(&mut table, Id([99, 99]), 1);
        }
    }

    #[test]
    fn random_words_are_no_table(
        most in 1..8_u64,
        words in proptest::collection::vec(prop_oneof![Just(0), 0..3_u64, any::<u64>()], 100),
        now: u64,
    ) {
        let layout = layout(most, 100);
        let mut words = words[..layout.words()].to_vec();
        let empty = words[1..].iter().all(|&word| word == 0);
        let mut table = Table::new(layout, &mut words[..]);
        prop_assert_eq!(table.check().is_ok(), empty);
        table.advance(Timestamp(now)); // no panic, and it ends
        if table.find(Id([1, 1])).is_none() {
            insert(&mut table, Id([1, 1]), 1);
        }
    }
}
