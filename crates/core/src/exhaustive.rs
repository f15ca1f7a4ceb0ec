//! Every sequence of operations on small configurations, which the tests of each limiter walk through. The operations are decisions
//! and peeks at each of nine times for each cost from 0 to 3, charges of 1 to 3 units, and refunds
//! of 1 to 3 units granted at any time up to the newest. Each answer is compared with the answer of
//! the oracle.
//!
//! Two sequences that lead to the same state and the same oracle have the same continuations. So
//! each pair of state and oracle is a node of a graph, each node is visited once, and sequences are
//! counted along the edges.
//!
//! - If two oracles are the same only when they remember the same history, the walk covers all
//!   sequences of three operations.
//! - If two oracles are the same when the same facts determine their later answers, the graph is
//!   finite. The walk then covers all sequences of any length, at the first nine microseconds and
//!   at the last nine.

use core::hash::Hash;
use std::collections::HashMap;
use std::vec;
use std::vec::Vec;

use crate::properties::{Model, Subject, fresh, outcome};
use crate::window::Refund;
use crate::{State, Timestamp};

const MOST: u64 = 3;
/// At each of nine times: a decision and a peek for each cost from 0 to 3, three refunds and three
/// charges.
const OPERATIONS: u64 = 9 * (4 * 2 + 3 + 3);

type Range = core::ops::RangeInclusive<u64>;

/// All triples of numbers from these ranges.
pub(crate) fn triples(a: Range, b: Range, c: Range) -> impl Iterator<Item = (u64, u64, u64)> {
    a.flat_map(move |a| {
        let c = c.clone();
        b.clone().flat_map(move |b| c.clone().map(move |c| (a, b, c)))
    })
}

/// Compares the answers to every sequence of operations with the oracle's.
pub(crate) fn every_sequence<S: Subject>(subject: S) {
    let first = Place { state: fresh(subject), oracle: subject.oracle() };
    let whole = |place: &Place<S>| (place.state.clone(), place.oracle.clone());
    let essence = |place: &Place<S>| (place.state.clone(), place.oracle.essence());
    let begin = |place: &Place<S>| after_each(subject, place, 0..=8);
    let end = |place: &Place<S>| after_each(subject, place, u64::MAX - 8..=u64::MAX);
    let walked = Graph::walk(first.clone(), Some(3), whole, begin);
    assert_eq!(walked.sequences(3), OPERATIONS.pow(3));
    let walked = Graph::walk(first.clone(), None, essence, begin);
    assert_eq!(walked.sequences(6), OPERATIONS.pow(6));
    let walked = Graph::walk(first, None, essence, end);
    assert_eq!(walked.sequences(6), OPERATIONS.pow(6));
}

/// The end of a sequence: a node of the graph.
#[derive(Clone)]
struct Place<S: Subject> {
    state: State<S, Vec<u64>>,
    oracle: S::Oracle,
}

/// The place after each operation. Compares each answer with the oracle's.
fn after_each<S: Subject>(subject: S, place: &Place<S>, times: Range) -> Vec<Place<S>> {
    let mut places = Vec::new();
    for now in times {
        for cost in 0..=MOST {
            let mut next = place.clone();
            let expected = next.oracle.decide(now, cost);
            let peeked = outcome(subject.peek(&place.state, Timestamp(now), cost));
            let decided = outcome(subject.decide(&mut next.state, Timestamp(now), cost));
            let asked = (now, cost, &place.state, &place.oracle);
            assert_eq!(peeked, expected, "peek {asked:?}");
            assert_eq!(decided, expected, "decide {asked:?}");
            assert!(subject.accepts(&next.state).is_ok(), "{asked:?}");
            places.extend([next, place.clone()]);
        }
        for cost in 1..=MOST {
            let mut next = place.clone();
            let granted_at = Timestamp(now).min(next.state.newest());
            subject.refund(&mut next.state, Refund { granted_at, cost });
            next.oracle.refund(granted_at.0, cost);
            assert!(
                subject.accepts(&next.state).is_ok(),
                "refund {cost} of {now} {:?}",
                place.state
            );
            places.push(next);
            let mut next = place.clone();
            subject.charge(&mut next.state, Timestamp(now), cost);
            next.oracle.charge(now, cost);
            assert!(subject.accepts(&next.state).is_ok(), "charge {cost} {:?}", place.state);
            places.push(next);
        }
    }
    places
}

/// Applies each operation at each of nine times to every reachable place, and so covers all
/// sequences of any length. The number of places must be finite. Places with the same `key` count
/// as one.
pub(crate) fn every_history<P: Clone, K: Eq + Hash, O: Copy>(
    first: P,
    operations: &[O],
    key: impl Fn(&P) -> K,
    apply: impl Fn(&mut P, u64, O),
) {
    let walked = Graph::walk(first, None, key, |place| {
        let at_each = (0..=8).flat_map(|now| operations.iter().map(move |each| (now, *each)));
        let after = at_each.map(|(now, operation)| {
            let mut next = place.clone();
            apply(&mut next, now, operation);
            next
        });
        after.collect()
    });
    let steps = u64::try_from(9 * operations.len()).unwrap();
    assert_eq!(walked.sequences(6), steps.pow(6));
}

/// The places to which each operation leads from each place. The first place is a key never seen.
pub(crate) struct Graph {
    edges: Vec<Vec<usize>>,
}

impl Graph {
    /// Visits all places that `length` operations reach, or all reachable places. Places with the
    /// same `key` count as one. `after_each` returns the place after each operation.
    pub(crate) fn walk<P, K: Eq + Hash>(
        first: P,
        length: Option<usize>,
        key: impl Fn(&P) -> K,
        after_each: impl Fn(&P) -> Vec<P>,
    ) -> Self {
        let mut numbers = HashMap::from([(key(&first), 0)]);
        let mut unvisited = vec![first];
        let mut edges = Vec::new();
        let mut done = 0;
        while !unvisited.is_empty() && length.is_none_or(|length| done < length) {
            done += 1;
            for place in core::mem::take(&mut unvisited) {
                let mut leads_to = Vec::new();
                for next in after_each(&place) {
                    let unused = numbers.len();
                    let number = *numbers.entry(key(&next)).or_insert(unused);
                    if number == unused {
                        unvisited.push(next);
                    }
                    leads_to.push(number);
                }
                edges.push(leads_to);
            }
        }
        edges.resize(numbers.len(), Vec::new());
        Self { edges }
    }

    /// The number of sequences of `length` operations that were walked.
    pub(crate) fn sequences(&self, length: usize) -> u64 {
        let mut ended_at = vec![0; self.edges.len()];
        ended_at[0] = 1;
        for _ in 0..length {
            let mut next = vec![0; self.edges.len()];
            for (leads_to, count) in self.edges.iter().zip(ended_at) {
                for &place in leads_to {
                    next[place] += count;
                }
            }
            ended_at = next;
        }
        ended_at.iter().sum()
    }
}
