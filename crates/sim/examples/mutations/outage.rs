//! Mutations of the shares by which nodes decide while their store is away.

use super::Mutation;

const PARTITION: &str = "crates/tier/src/outage/partition.rs";

#[rustfmt::skip]
pub(super) const MUTATIONS: [Mutation; 2] = [
    ("a unit of a share counts once", PARTITION,
        "cost.saturating_mul(self.nodes)", "cost.saturating_mul(self.nodes.min(1))"),
    ("a node has a share before the store has answered it", "crates/tier/src/authority/ask.rs",
        "shares.decide(*standing,", "standing.nodes = core::num::NonZeroU64::new(4);\n            shares.decide(*standing,"),
];
