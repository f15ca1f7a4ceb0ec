//! An operation that was done: what it took and returned.

use tidegate_gate::{Budget, Effect, Operation, Unspent, Verdict};

/// An operation that was done, with its number, and the number of the grant whose units it returns.
pub(in crate::world) struct Done<'a> {
    pub(in crate::world) number: usize,
    pub(in crate::world) returns: Option<usize>,
    pub(in crate::world) operation: &'a Operation,
    pub(in crate::world) verdict: &'a Verdict,
}

impl Done<'_> {
    pub(super) fn now(&self) -> u64 {
        self.verdict.at.0
    }

    /// The units that the operation took.
    pub(super) fn taken(&self) -> u64 {
        match (self.operation, self.verdict.effect) {
            (Operation::Decide(request), _) if self.verdict.decision.is_allowed() => request.cost,
            (Operation::Budget(_), Effect::Budget { allowance, .. }) => allowance.left,
            _ => 0,
        }
    }

    /// The units that the operation returned, and the time at which they were granted.
    pub(super) fn returned(&self) -> (u64, u64) {
        match (self.operation, self.verdict.effect) {
            (Operation::Refund(units), _) => (*units, self.now()),
            (
                Operation::Budget(Budget { unspent: Some(Unspent { granted_at, left }), .. }),
                Effect::Budget { returned: Some(true), .. },
            ) => (*left, granted_at.0),
            _ => (0, self.now()),
        }
    }
}
