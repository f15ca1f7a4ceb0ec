//! Limits of which each counts apart.

use std::vec::Vec;

use tidegate_core::{Micros, Timestamp};

use super::table;
use crate::key::Depth;
use crate::limit::Operation;
use crate::policy::Policy;

const LEVELS: &str = "limits = [
  { name = 'org', depth = 1, algorithm = 'fixed_window', limit = 9, period = '1h' },
  { name = 'user', algorithm = 'fixed_window', limit = 5, period = '1h' },
  { name = 'day', algorithm = 'fixed_window', limit = 7, period = '1d' },
]";

#[test]
fn a_reset_forgets_the_counts_of_its_part_of_the_key_and_of_longer_parts() {
    for (depth, left) in [(Depth::Whole, [8, 5, 7]), (Depth::Parts(1), [9, 5, 7])] {
        let policy = Policy::parse("p", LEVELS).unwrap();
        let (mut table, policy) = table().counting_apart(&policy).unwrap().unwrap();
        let mut ask = |operation| {
            let verdict = table.operate(&policy, "acme/bob", Timestamp(7), operation).unwrap();
            verdict.limits.iter().map(|said| said.remaining()).collect::<Vec<_>>()
        };
        assert_eq!(ask(Operation::from(1)), [8, 4, 6]);
        ask(Operation::Block(Micros::SECOND));
        assert_eq!(ask(Operation::Reset(depth)), left);
        assert_eq!(ask(Operation::from(0)), left);
        assert_eq!(table.len(), usize::from(depth == Depth::Whole));
    }
}
