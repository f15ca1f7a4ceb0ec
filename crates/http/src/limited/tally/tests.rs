use alloc::string::ToString;
use std::collections::BTreeMap;
use std::vec::Vec;

use proptest::prelude::*;
use tidegate_gate::Timestamp;

use super::super::tests::{HOUR, Row, Server, row, rows};
use super::super::{KeysAs, Limited, List, MOST_LISTS};
use super::{MOST_NODES, Tally};

/// A time in an hour, by the number of the hour.
fn within(hour: u64, minutes: u64) -> Timestamp {
    Timestamp(HOUR * hour + minutes * HOUR / 60)
}

/// What a node has counted: each key once.
fn counted(policy: &str, keys: &[&str], now: Timestamp) -> Vec<List> {
    let mut limited = Limited::default();
    limited.go_on(now);
    keys.iter().for_each(|key| limited.add(policy, Some("limit"), key));
    limited.take()
}

fn rows_of(tally: &mut Tally, now: Timestamp) -> Vec<Row> {
    let lists = tally.lists(now).to_vec();
    let mut all = Limited::default().among(lists, now);
    rows(&serde_json::from_str(&all.top(now, KeysAs::Clear)).unwrap())
}

#[test]
fn what_several_nodes_hand_over_adds_up_and_what_is_repeated_counts_once() {
    let (mut tally, now) = (Tally::default(), within(9, 5));
    for _ in 0..2 {
        tally.take((1, 1), counted("api", &["ann", "ann", "bob"], now), now);
        tally.take((2, 1), counted("api", &["ann", "eve"], now), now);
    }
    let both: &[_] = &[("ann", 3), ("bob", 1), ("eve", 1)];
    assert_eq!(rows_of(&mut tally, now), [row("api", "limit", 5, &[both])]);
    tally.take((1, 3), counted("api", &["bob", "bob", "bob"], now), now);
    tally.take((1, 2), counted("api", &["bob"], now), now); // it has come before its successor, or never will
    tally.take((1, 3), counted("api", &["bob"], now), now);
    let all: &[_] = &[("bob", 4), ("ann", 3), ("eve", 1)];
    assert_eq!(rows_of(&mut tally, now), [row("api", "limit", 8, &[all])]);
}

#[test]
fn a_node_hands_over_only_what_it_has_counted_since() {
    let mut limited = Limited::default();
    limited.go_on(within(9, 5));
    limited.add("api", Some("limit"), "ann");
    assert_eq!(limited.take()[0].refusals, 1);
    assert!(limited.take().is_empty());
    limited.add("api", Some("limit"), "bob");
    let lists = limited.take();
    let keys: Vec<_> = lists[0].hours[0].keys.iter().map(|own| own.item.to_string()).collect();
    assert_eq!((lists[0].refusals, keys), (1, std::vec!["bob".to_string()]));
}

#[test]
fn refusals_count_in_their_own_hour() {
    let mut tally = Tally::default();
    tally.take((1, 1), counted("api", &["early"], within(9, 59)), within(10, 0));
    assert_eq!(rows_of(&mut tally, within(10, 0)), [row("api", "limit", 1, &[&[("early", 1)]])]);
    tally.take((2, 1), counted("api", &["late"], within(10, 1)), within(10, 1));
    tally.take((3, 1), counted("api", &["early"], within(9, 58)), within(10, 2));
    let hours: [&[_]; 2] = [&[("late", 1)], &[("early", 2)]];
    assert_eq!(rows_of(&mut tally, within(10, 2)), [row("api", "limit", 3, &hours)]);
    // a node that was asked nothing for two hours
    tally.take((4, 1), counted("api", &["old"], within(8, 1)), within(10, 3));
    assert_eq!(rows_of(&mut tally, within(10, 3)), [row("api", "limit", 4, &hours)]);
    // a node whose clock is ahead
    tally.take((5, 1), counted("api", &["late"], within(11, 0)), within(10, 4));
    let hours: [&[_]; 2] = [&[("late", 2)], &[("early", 2)]];
    assert_eq!(rows_of(&mut tally, within(10, 4)), [row("api", "limit", 5, &hours)]);
    assert_eq!(rows_of(&mut tally, within(12, 0)), [row("api", "limit", 5, &[])]);
}

#[test]
fn the_memory_of_a_tally_is_bounded_and_limits_that_are_gone_make_room() {
    let mut tally = Tally::default();
    for node in 0..5_000 {
        tally.take((node, 1), counted(&node.to_string(), &["k"], within(9, 0)), within(9, 0));
    }
    assert_eq!(tally.taken.len(), MOST_NODES);
    assert_eq!(tally.lists(within(9, 0)).len(), MOST_LISTS);
    tally.take((0, 2), counted("new", &["k"], within(11, 0)), within(11, 0));
    assert_eq!(rows_of(&mut tally, within(11, 0)), [row("new", "limit", 1, &[&[("k", 1)]])]);
}

#[test]
fn the_status_of_a_node_beside_the_lists_of_all() {
    let mut server = Server::new();
    server.decide("api", "k", 1, Some("away"));
    let lists = counted("shadow", &["of another node"], server.now);
    server.limited = server.limited.among(lists, server.now);
    let status = server.status();
    assert_eq!(status["store"]["last_error"], "away");
    assert_eq!(rows(&status), [row("shadow", "limit", 1, &[&[("of another node", 1)]])]);
}

proptest! {
    #[test]
    fn what_nodes_hand_over_at_any_time_is_what_one_server_would_count_within_the_bound(
        // the node, the key, and whether the node hands over then and whether what it hands over comes twice
        refusals in prop::collection::vec((0..4_usize, any::<u8>(), any::<bool>(), any::<bool>()), 0..400),
    ) {
        let now = within(9, 5);
        let mut nodes: [(Limited, u64); 4] = Default::default();
        let mut tally = Tally::default();
        let mut really = BTreeMap::new();
        for (place, key, hands_over, comes_twice) in &refusals {
            let (limited, number) = &mut nodes[*place];
            let key = (key % 60 * (key % 3)).to_string(); // some keys come more often
            limited.go_on(now);
            limited.add("api", None, &key);
            *really.entry(key).or_default() += 1_u64;
            if *hands_over {
                *number += 1;
                let (node, lists) = (u64::try_from(*place).unwrap(), limited.take());
                if *comes_twice {
                    tally.take((node, *number), lists.clone(), now);
                }
                tally.take((node, *number), lists, now);
            }
        }
        for (place, (limited, number)) in nodes.iter_mut().enumerate() {
            let node = u64::try_from(place).unwrap();
            tally.take((node, *number + 1), limited.take(), now);
        }
        let total = u64::try_from(refusals.len()).unwrap();
        for list in tally.lists(now) {
            let keys = &list.hours[0].keys;
            prop_assert_eq!((list.refusals, keys.total()), (total, total));
            for own in keys.iter() {
                let really = really[&*own.item];
                prop_assert!((own.count - own.error..=own.count).contains(&really), "{:?}: {}", own, really);
                prop_assert!(own.error <= total / 32, "{:?} of {}", own, total);
            }
            for (key, count) in &really {
                let has_place = keys.iter().any(|own| *own.item == **key);
                prop_assert!(has_place || *count <= total / 32, "{} came {} times", key, count);
            }
        }
    }
}
