use std::vec::Vec;

use proptest::prelude::*;

use super::Top;

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

/// The promises of the module.
fn keeps_its_promises<const K: usize>(stream: &[u8]) {
    let top = counted::<K>(stream);
    let total = u64::try_from(stream.len()).unwrap();
    let bound = total / u64::try_from(K).unwrap();
    assert_eq!(top.total(), total);
    assert_eq!(top.iter().map(|own| own.count).sum::<u64>(), total, "{stream:?}");
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
