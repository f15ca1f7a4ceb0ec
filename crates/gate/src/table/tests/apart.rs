//! Limits of which each counts apart.

use std::format;
use std::vec::Vec;

use tidegate_core::{Micros, Timestamp};

use super::super::{KeyHasher, Table};
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

/// What a key has left after an edit, of which 3 units were used before and which was blocked.
fn after_an_edit(from: &str, to: &str) -> Vec<u64> {
    let (mut old, from) =
        table().counting_apart(&Policy::parse("p", from).unwrap()).unwrap().unwrap();
    let to = Policy::parse("p", to).unwrap().counting_apart();
    old.operate(&from, "k", Timestamp(7), 3).unwrap();
    old.operate(&from, "k", Timestamp(7), Operation::Block(Micros::SECOND)).unwrap();
    let mut new = Table::new(1 << 20, KeyHasher::new(2));
    for carried in old.close().into_carried(&from, &to, Timestamp(8)) {
        assert!(new.adopt(carried));
    }
    let verdict = new.operate(&to, "k", Timestamp(8), 0).unwrap();
    let is_blocked = verdict.decision.retry_after() > Micros::ZERO;
    let left = verdict.limits.iter().map(|said| said.remaining());
    left.chain([u64::from(is_blocked)]).collect()
}

#[test]
fn an_edit_keeps_counts_by_name_or_numbers_and_a_block_with_its_states() {
    let of = |rule: &str, limits: &[(&str, u64)]| {
        let each = limits.iter().map(|(name, limit)| {
            format!(
                "{{ name = '{name}', algorithm = 'fixed_window', limit = {limit}, period = '1h' }}"
            )
        });
        let each = each.collect::<Vec<_>>().join(", ");
        format!("on_change = '{rule}'\nlimits = [{each}]")
    };
    for (from, to, left) in [
        (of("keep", &[("a", 10)]), of("keep", &[("a", 20)]), &[17, 1][..]),
        (of("keep", &[("a", 10)]), of("keep", &[("b", 10)]), &[7, 1]),
        (of("keep", &[("a", 10)]), of("keep", &[("a", 20), ("b", 10)]), &[17, 10, 1]),
        (of("reset", &[("a", 10)]), of("reset", &[("a", 20)]), &[20, 0]),
        (of("reset", &[("a", 10)]), of("keep", &[("a", 20)]), &[20, 0]),
        (of("reset", &[("a", 10)]), of("keep", &[("a", 10)]), &[7, 1]),
    ] {
        assert_eq!(after_an_edit(&from, &to), left, "{from} {to}");
    }
}
