use std::vec;

use proptest::prelude::*;
use tidegate_core::lease::Id;
use tidegate_core::shed::utilization::Class;
use tidegate_core::shed::{Draw, Share};
use tidegate_core::{Micros, Timestamp};

use super::{Budget, Grant, Offered, Operation, Request, Unspent};
use crate::key::Depth;

fn id() -> impl Strategy<Value = Id> {
    any::<[u64; 2]>().prop_map(Id)
}

fn request() -> impl Strategy<Value = Request> {
    let signal = prop_oneof![Just(0), Just(1_000_000), 0..=1_000_000_u32];
    let signal = signal.prop_map(|ppm| Share::from_ppm(ppm).unwrap());
    let bits = (any::<u16>(), any::<u32>());
    let parts = (any::<u64>(), prop::option::of(id()), prop::option::of(signal), bits);
    parts.prop_map(|(cost, lease, signal, (class, draw))| Request {
        cost,
        lease,
        hold: Micros(lease.map_or(0, |Id([_, low])| low % 3)),
        class: Class(class),
        signal,
        draw: Draw(draw),
    })
}

fn operation() -> impl Strategy<Value = Operation> {
    let offered = (prop::option::of(any::<u64>()), any::<u64>(), any::<u64>());
    let unspent = prop::option::of(any::<(u64, u64)>());
    prop_oneof![
        (id(), any::<u64>()).prop_map(|(id, actual)| Operation::Commit(id, actual)),
        request().prop_map(Operation::Decide),
        request().prop_map(Operation::Peek),
        request().prop_map(Operation::Explain),
        any::<[u64; 3]>().prop_map(|[at, units, unused]| {
            Operation::RefundOf(Grant { at: Timestamp(at), units }, unused)
        }),
        any::<u64>().prop_map(Operation::Charge),
        any::<u64>().prop_map(Operation::Refund),
        id().prop_map(Operation::Heartbeat),
        (id(), any::<u64>()).prop_map(|(id, count)| Operation::Count(id, count)),
        id().prop_map(Operation::Release),
        (id(), any::<u64>(), unspent).prop_map(|(holder, wants, unspent)| {
            let unspent = unspent.map(|(at, left)| Unspent { granted_at: Timestamp(at), left });
            Operation::Budget(Budget { holder, wants, unspent })
        }),
        offered.prop_map(|(at, admitted, suppressed)| {
            Operation::Report(Offered { at: at.map(Timestamp), admitted, suppressed })
        }),
        any::<u8>().prop_map(|parts| Operation::Reset(Depth::Parts(parts))),
        Just(Operation::Reset(Depth::Whole)),
        any::<u64>().prop_map(|span| Operation::Block(Micros(span))),
    ]
}

proptest! {
    #[test]
    fn an_operation_is_read_as_it_was_written(operation in operation(), other in operation()) {
        let words = operation.to_words();
        prop_assert_eq!(Operation::from_words(&words), Some(operation));
        prop_assert_eq!(words == other.to_words(), operation == other);
    }

    /// Whatever is read would be written the same.
    #[test]
    fn other_words_are_no_operation(
        kind in 0..15_u64,
        rest in prop::collection::vec(prop_oneof![0..3_u64, Just(256), any::<u64>()], 0..8),
        (written, more) in (operation(), any::<u64>()),
    ) {
        let mut longer = written.to_words();
        longer.push(more);
        for words in [[&[kind], &rest[..]].concat(), longer] {
            let read = Operation::from_words(&words).map(|operation| operation.to_words());
            prop_assert!(read.is_none_or(|read| read == words), "{:?}", words);
        }
        prop_assert_eq!(Operation::from_words(&[]), None);
    }

    #[test]
    fn an_operation_that_asks_for_nothing_or_only_looks_is_a_peek(
        request in request(),
        operation in operation(),
    ) {
        prop_assert!(Operation::Peek(request).is_peek());
        prop_assert!(Operation::Decide(request.peek()).is_peek());
        let asks = matches!(operation, Operation::Decide(request) if request.cost > 0);
        let looks = matches!(
            operation,
            Operation::Decide(_) | Operation::Peek(_) | Operation::Explain(_)
        ) && !asks;
        prop_assert_eq!(operation.is_peek(), looks);
        prop_assert_eq!(request.peek(), Request { cost: 0, ..request });
        prop_assert_eq!(request.places(), u64::from(request.cost > 0));
    }
}

#[test]
fn a_span_of_0_holds_nothing_and_has_no_words() {
    for (words, is_request) in [
        (&[1, 0, 0, 0, 7, 7, 5][..], true),
        (&[1, 0, 0, 0, 7, 7, 0], false),
        (&[1, 0, 0, 0, 7, 7], true),
        (&[1, 0, 0, 0, 7], false),
    ] {
        assert_eq!(Request::from_words(words).is_some(), is_request, "{words:?}");
    }
}
