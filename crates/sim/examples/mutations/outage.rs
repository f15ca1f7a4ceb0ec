//! Mutations of the shares by which nodes decide while their store is away.

use super::Mutation;

const PARTITION: &str = "crates/tier/src/outage/partition.rs";

#[rustfmt::skip]
pub(super) const MUTATIONS: [Mutation; 4] = [
    ("a grant of a share counts once", PARTITION,
        "let others = self.nodes.get().saturating_sub(1);", "let others = self.nodes.get().saturating_sub(self.nodes.get());"),
    ("a share begins with a full limit", PARTITION,
        "            self.transaction.learn(&own, known);\n", "            let _ = known;\n"),
    ("the store is told of no grant", PARTITION,
        "            if units > 0 {", "            if false && units > 0 {"),
    ("a charge that was not done is forgotten", PARTITION,
        "                self.grant(&key, units);\n            }\n            (Operation::Charge(_), Told::Unknown)", "                let _ = (key, units);\n            }\n            (Operation::Charge(_), Told::Unknown)"),
];
