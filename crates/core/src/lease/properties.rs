//! Random histories for the tests of all leases.

use proptest::prelude::*;
use tidegate_reference::Outcome;

use super::Id;
use crate::{CostExceedsCapacity, Decision};

/// How the time changes from one operation to the next.
#[derive(Clone, Copy, Debug)]
pub(super) enum Move {
    Ahead(u64),
    Back(u64),
    To(u64),
    /// The time is at (true) or just before (false) the moment that the last refusal named.
    Retry(bool),
}

impl Move {
    pub(super) fn from(self, now: u64, retry_after: u64) -> u64 {
        match self {
            Self::Ahead(by) => now.saturating_add(by),
            Self::Back(by) => now.saturating_sub(by),
            Self::To(time) => time,
            Self::Retry(at) => now.saturating_add(retry_after).saturating_sub(u64::from(!at)),
        }
    }
}

/// Steps up to about `period`, and jumps of the clock.
pub(super) fn moves(period: u64) -> impl Strategy<Value = Move> {
    prop_oneof![
        3 => Just(Move::Ahead(0)),
        6 => (0..=period / 4 + 1).prop_map(Move::Ahead),
        2 => (0..=period + 1).prop_map(Move::Ahead),
        1 => (0..=period * 3).prop_map(Move::Back),
        1 => prop_oneof![Just(0), Just(period / 2), Just(u64::MAX), 0..1_u64 << 40]
            .prop_map(Move::To),
        3 => any::<bool>().prop_map(Move::Retry),
    ]
}

/// One of `most` ids. Ids are equal in one half or the other, and the first id is zero.
pub(super) fn ids(most: u64) -> impl Strategy<Value = Id> {
    (0..most).prop_map(|k| if k % 2 == 0 { Id([k, 0]) } else { Id([0, k]) })
}

pub(super) fn outcome(answer: Result<Decision, CostExceedsCapacity>) -> Option<Outcome> {
    answer.ok().map(|decision| Outcome {
        allowed: decision.is_allowed(),
        remaining: decision.remaining(),
        retry_after: decision.retry_after().0,
        reset_after: decision.reset_after().0,
    })
}
