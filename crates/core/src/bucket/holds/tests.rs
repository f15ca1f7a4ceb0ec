use std::vec::Vec;

use proptest::prelude::*;

use super::Since;

/// An inflow, and then a cost.
type Step = (u64, u64);

fn since(steps: &[Step], deepest: u64) -> Since {
    steps.iter().fold(Since::default(), |mut since, &(inflow, cost)| {
        since.flows_in(inflow, deepest);
        since.takes(cost, deepest);
        since
    })
}

proptest! {
    #[test]
    fn what_came_after_a_hold_joins_what_came_after_the_hold_before(
        deepest in 1..60_u64,
        first in proptest::collection::vec((0..40_u64, 0..40_u64), 0..6),
        second in proptest::collection::vec((0..40_u64, 0..40_u64), 0..6),
        inflow in 0..40_u64,
    ) {
        let mut joined = since(&first, deepest).then(since(&second, deepest), deepest);
        let all: Vec<Step> = first.into_iter().chain(second).collect();
        for last in [false, true] {
            prop_assert!(joined.spent <= deepest - joined.under, "{:?}", joined);
            for before in 0..=deepest {
                let step = |spent: u64, &(inflow, cost): &Step| {
                    (spent.saturating_sub(inflow) + cost).min(deepest)
                };
                let spent = all.iter().fold(before, step);
                let spent = if last { spent.saturating_sub(inflow) } else { spent };
                prop_assert_eq!(joined.after(before, deepest), spent, "{:?} of {}", joined, before);
            }
            joined.flows_in(inflow, deepest); // it goes on as if it had not been joined
        }
    }
}
