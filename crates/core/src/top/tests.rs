use std::vec::Vec;

use proptest::prelude::*;

use super::{Counted, Top};

fn counted<const K: usize>(stream: &[u8]) -> Top<u8, K> {
    let mut top = Top::new();
    for item in stream {
        top.count(|own| own == item, || *item);
    }
    top
}

/// Counts by scanning the whole stream.
fn naive(stream: &[u8], item: u8) -> u64 {
    u64::try_from(stream.iter().filter(|own| **own == item).count()).unwrap()
}

/// The promises of the module about one stream.
fn keeps_its_promises<const K: usize>(stream: &[u8]) {
    let top = counted::<K>(stream);
    assert_eq!(top.iter().map(|own| own.count).sum::<u64>(), top.total(), "{stream:?}");
    keeps_promises_about(&top, stream);
}

/// The promises of the module about streams that were counted apart and merged.
fn keeps_promises_about<const K: usize>(top: &Top<u8, K>, stream: &[u8]) {
    let total = u64::try_from(stream.len()).unwrap();
    let bound = total / u64::try_from(K).unwrap();
    assert_eq!(top.total(), total);
    assert!(top.iter().map(|own| own.count).sum::<u64>() <= total, "{stream:?}");
    for own in top.iter() {
        let really = naive(stream, own.item);
        let range = own.count - own.error..=own.count;
        assert!(range.contains(&really), "{own:?} came {really} times in {stream:?}");
        assert!(own.error <= bound, "{own:?} of {total} in {stream:?}");
    }
    for item in stream.iter().filter(|item| naive(stream, **item) > bound) {
        let places = top.iter().filter(|own| own.item == *item).count();
        assert_eq!(places, 1, "{item} in {stream:?}");
    }
}

#[test]
fn every_short_stream_is_counted_within_the_bound() {
    for length in 0..=7_u32 {
        for number in 0..4_usize.pow(length) {
            let digit = |place| u8::try_from(number / 4_usize.pow(place) % 4).unwrap();
            let stream: Vec<u8> = (0..length).map(digit).collect();
            keeps_its_promises::<1>(&stream);
            keeps_its_promises::<2>(&stream);
            keeps_its_promises::<3>(&stream);
            keeps_its_promises::<4>(&stream);
        }
    }
}

proptest! {
    #[test]
    fn a_long_stream_is_counted_within_the_bound(
        // some items come much more often than others
        stream in prop::collection::vec(prop_oneof![0..4_u8, 0..20_u8, any::<u8>()], 0..2_000),
    ) {
        keeps_its_promises::<1>(&stream);
        keeps_its_promises::<8>(&stream);
        keeps_its_promises::<32>(&stream);
    }
}

/// Merges neighbours, as the draws say which, until one list is left. Then counts what comes last.
fn merged<const K: usize>(streams: &[Vec<u8>], order: &[usize], last: &[u8]) -> Top<u8, K> {
    let mut lists: Vec<Top<u8, K>> = streams.iter().map(|stream| counted(stream)).collect();
    let mut order = order.iter().cycle();
    while lists.len() > 1 {
        let place = order.next().unwrap() % (lists.len() - 1);
        let right = lists.remove(place + 1);
        lists[place].merge(right, |own, other| own == other);
    }
    let mut top = lists.pop().unwrap_or_default();
    for item in last {
        top.count(|own| own == item, || *item);
    }
    top
}

fn keeps_its_promises_when_merged<const K: usize>(
    (streams, order, last): (&[Vec<u8>], &[usize], &[u8]),
) {
    let all: Vec<u8> = streams.iter().flatten().chain(last).copied().collect();
    keeps_promises_about(&merged::<K>(streams, order, last), &all);
}

proptest! {
    #[test]
    fn streams_that_are_merged_in_any_order_are_counted_within_the_bound_of_one_stream(
        streams in prop::collection::vec(
            prop::collection::vec(prop_oneof![0..4_u8, 0..20_u8, any::<u8>()], 0..200),
            0..8,
        ),
        order in prop::collection::vec(any::<usize>(), 1..8),
        last in prop::collection::vec(prop_oneof![0..4_u8, any::<u8>()], 0..50),
    ) {
        let merge = (&streams[..], &order[..], &last[..]);
        keeps_its_promises_when_merged::<1>(merge);
        keeps_its_promises_when_merged::<2>(merge);
        keeps_its_promises_when_merged::<8>(merge);
        keeps_its_promises_when_merged::<32>(merge);
    }
}

#[test]
fn all_short_streams_are_merged_within_the_bound() {
    let streams: Vec<Vec<u8>> = (0..=4_u32)
        .flat_map(|length| (0..3_usize.pow(length)).map(move |number| (length, number)))
        .map(|(length, number)| {
            let digit = |place| u8::try_from(number / 3_usize.pow(place) % 3).unwrap();
            (0..length).map(digit).collect()
        })
        .collect();
    for left in &streams {
        for right in &streams {
            // the items of the second stream are others, but for one
            let right: Vec<u8> = right.iter().map(|item| item + 2).collect();
            let both = [left.clone(), right];
            keeps_its_promises_when_merged::<1>((&both, &[0], &[]));
            keeps_its_promises_when_merged::<2>((&both, &[0], &[]));
            keeps_its_promises_when_merged::<3>((&both, &[0], &[]));
        }
    }
}

#[test]
fn an_item_that_may_have_come_in_the_other_stream_says_how_often_at_most() {
    let mut top = counted::<2>(&[7, 7, 7, 8]);
    top.merge(counted(&[9, 9, 6, 6, 6]), |own, other| own == other);
    let found: Vec<_> = top.iter().map(|own| (own.item, own.count, own.error)).collect();
    assert_eq!(found, [(7, 5, 2), (6, 4, 1)]);
    assert_eq!(top.total(), 9);
}

#[test]
fn places_that_no_stream_fills_are_refused() {
    let of = |total, counted: &[(u8, u64, u64)]| {
        let counted = counted.iter().map(|&(item, count, error)| Counted { item, count, error });
        Top::<u8, 2>::of_places(total, counted, |own, other| own == other)
    };
    let top = of(9, &[(7, 5, 4), (8, 3, 0)]).unwrap();
    assert_eq!((top.total(), top.iter().map(|own| own.count).sum()), (9, 8_u64));
    assert!(of(9, &[(7, 5, 4), (8, 5, 0)]).is_none(), "more than the total");
    assert!(of(9, &[(7, 4, 0), (7, 5, 0)]).is_none(), "an item has two places");
    assert!(of(9, &[(7, 4, 4)]).is_none(), "it never came");
    assert!(of(9, &[(7, 0, 0)]).is_none(), "it never came");
    assert!(of(9, &[(7, 1, 0), (8, 1, 0), (9, 1, 0)]).is_none(), "more than two places");
    assert!(of(u64::MAX, &[(7, u64::MAX, 0), (8, 1, 0)]).is_none(), "a sum that wraps");
}

#[test]
fn as_long_as_there_are_places_the_counts_are_exact() {
    let top = counted::<3>(&[7, 8, 7, 9, 7]);
    let found: Vec<_> = top.iter().map(|own| (own.item, own.count, own.error)).collect();
    assert_eq!(found, [(7, 3, 0), (8, 1, 0), (9, 1, 0)]);
}

#[test]
fn without_places_only_the_total_is_counted() {
    let top = counted::<0>(&[7, 7]);
    assert_eq!((top.total(), top.iter().count()), (2, 0));
}

#[test]
fn a_known_item_is_not_made_again() {
    let mut top = counted::<1>(&[7]);
    top.count(|own| *own == 7, || panic!("it has a place"));
    assert_eq!(top.total(), 2);
}
