//! The answer to an operation that the store has not done.

use tidegate_gate::{Timestamp, Transaction, Verdict};

use super::ask::{Failure, Queued};
use crate::outage::Outage;

/// Answers operations that the store has not done.
pub(super) struct OnFailure<'a> {
    /// The shares of the node; `None` for an only writer, which is no node.
    pub(super) outage: Option<&'a mut Outage>,
    /// The time of the driver's clock.
    pub(super) now: Option<Timestamp>,
}

impl OnFailure<'_> {
    /// The verdict of the node's share, or else the failure. `known` knows what the store last held.
    pub(super) fn answer<T, E: Clone>(
        &mut self,
        asked: &Queued<T>,
        known: Option<&Transaction>,
        failure: &Failure<E>,
    ) -> Result<Verdict, Failure<E>> {
        self.share(asked, known).unwrap_or_else(|| Err(failure.clone()))
    }

    /// The verdict of the node's share; `None` if the node cannot decide.
    pub(super) fn share<T, E>(
        &mut self,
        asked: &Queued<T>,
        known: Option<&Transaction>,
    ) -> Option<Result<Verdict, Failure<E>>> {
        let Queued { resolved, operation, .. } = asked;
        let outage = self.outage.as_deref_mut()?;
        let verdict = outage.decide(resolved, asked.time(self.now), operation, known)?;
        Some(verdict.map_err(Failure::Transaction))
    }
}
