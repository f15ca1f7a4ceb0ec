//! What gives back what a request was granted.

use alloc::vec::Vec;

use super::Asked;
use crate::decide::{Limits, Verdict};
use crate::limit::{Grant, Limit, Operation, Request};

impl Asked {
    /// The operations that give back what this request was granted, in their order. `verdict` is `None` if its outcome is not
    /// known: then its lease or reservation is ended if there is one, and units that it may have taken stay taken.
    ///
    /// Nothing comes back beyond what the request took: [`leaves_nothing`](Self::leaves_nothing) says whether all of it does. Units of a limit with payers come back to the payer of a reservation alone,
    /// because another grant does not name its payer: [`keeps_units`](Self::keeps_units).
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tidegate_gate::{Ask, KeyHasher, Policy, Table, Timestamp};
    /// let policy = "limits = [{ algorithm = 'fixed_window', limit = 5, period = '1m' }]";
    /// let policy = Arc::new(Policy::parse("login", policy).unwrap());
    /// let ask = Ask::parse(r#"{"check":{"cost":2}}"#).unwrap();
    /// let asked = ask.resolve(&policy, "user:42", &mut || None).unwrap();
    ///
    /// let mut table = Table::new(1 << 20, KeyHasher::new(1));
    /// let mut ask = |asked: &tidegate_gate::Asked| {
    ///     table.ask(asked.resolved(), Timestamp(0), &asked.operation()).unwrap()
    /// };
    /// let granted = ask(&asked);
    /// assert_eq!(granted.decision.remaining(), 3);
    /// let undo = asked.undone(Some(&granted));
    /// assert_eq!(ask(&undo[0]).decision.remaining(), 5);
    /// assert!(undo[0].undone(None).is_empty());
    /// ```
    #[must_use]
    pub fn undone(&self, verdict: Option<&Verdict>) -> Vec<Self> {
        let Operation::Decide(Request { cost, lease, .. }) = self.operation else {
            return Vec::new();
        };
        let is_refused = verdict.is_some_and(|verdict| !verdict.decision.is_allowed());
        if cost == 0 || is_refused || self.resolved.limits().is_none() {
            return Vec::new(); // nothing was taken
        }
        let operations = match lease.filter(|_| self.is_of_reservation()) {
            Some(id) => [Some(Operation::Commit(id, 0)), None],
            None => {
                let units = verdict.map(|verdict| {
                    Operation::RefundOf(Grant { at: verdict.at, units: cost }, cost)
                });
                [units, lease.map(Operation::Release)]
            }
        };
        let undo = |operation| Self { operation, ..self.clone() };
        operations.into_iter().flatten().map(undo).collect()
    }

    /// The same request as a peek.
    #[must_use]
    pub fn looked(&self) -> Self {
        let operation = match self.operation {
            Operation::Decide(request) => Operation::Peek(request),
            other => other,
        };
        Self { operation, ..self.clone() }
    }

    /// Whether the state is as before once the request is [undone](Self::undone). A token bucket keeps what may have flowed in
    /// meanwhile, because it might have been full without the request, and a window that the request has begun goes on. A payer may
    /// [keep all](Self::keeps_units).
    #[must_use]
    pub fn leaves_nothing(&self) -> bool {
        let reserves = self.is_of_reservation();
        let mut limits = self.resolved.limits().into_iter().flat_map(Limits::iter);
        !self.keeps_units()
            && limits.all(|named| match &named.limit {
                Limit::TokenBucket(_) => false,
                Limit::FixedWindow(window) => !window.starts_at_first(),
                Limit::Holding(_) => reserves,
                Limit::SlidingWindow(_)
                | Limit::SlidingLog(_)
                | Limit::Calendar(_)
                | Limit::Concurrency(_)
                | Limit::Connections(_)
                | Limit::Budget(_)
                | Limit::Fleet(_)
                | Limit::Utilization(_)
                | Limit::Suppression(_)
                | Limit::Penalty(_) => true,
            })
    }

    /// Whether the units of this request cannot come back, because a payer takes them and no reservation names the payer.
    #[must_use]
    pub fn keeps_units(&self) -> bool {
        matches!(self.operation, Operation::Decide(Request { cost: 1.., .. }))
            && self.resolved.limits().is_some_and(Limits::have_payers)
            && !self.is_of_reservation()
    }
}
