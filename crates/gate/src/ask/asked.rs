//! An operation that was checked against the policy of its key: what to do, what the caller is told of it, and what gives back what it
//! was granted.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use tidegate_core::lease::Id;
use tidegate_core::shed::Draw;

use super::{AskError, needs_leases};
use crate::decide::{Effect, Explanation, Limits, Verdict};
use crate::limit::{Grant, Limit, Operation, Request};
use crate::policy::{Idempotency, Resolved};

/// An operation that was checked against the policy of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    resolved: Resolved,
    operation: Operation,
    lease: Option<String>,
    /// What the caller asked, if the limits can never grant its cost. The operation is then a peek.
    beyond: Option<Box<Operation>>,
}

impl Asked {
    /// Listed keys are never counted, so the cost of an operation on them does not matter.
    pub(super) fn new(resolved: Resolved, operation: Operation, lease: Option<String>) -> Self {
        let most = resolved.limits().map_or(u64::MAX, Limits::capacity);
        let beyond = (cost_of(&operation) > most).then(|| Box::new(operation));
        let operation = match operation {
            Operation::Explain(_) if beyond.is_some() => Operation::Explain(Request::of(0)),
            _ if beyond.is_some() => Operation::from(0),
            _ => operation,
        };
        Self { resolved, operation, lease, beyond }
    }

    /// The policy, limits and canonical key of the operation.
    #[must_use]
    pub const fn resolved(&self) -> &Resolved {
        &self.resolved
    }

    /// # Errors
    /// Fails with [`AskError::NoLeases`] or [`AskError::FreeLease`] if the request acquires no lease.
    pub fn require_lease(&self) -> Result<(), AskError> {
        needs_leases(&self.resolved)?;
        match self.operation.is_peek() && self.beyond.is_none() {
            true => Err(AskError::FreeLease),
            false => Ok(()),
        }
    }

    /// Gives a lease or reservation, which the caller has not named, a name that follows from this id. A repeat of the request
    /// then names the same one.
    #[must_use]
    pub fn named_by(mut self, Id([high, low]): Id) -> Self {
        if let (Operation::Decide(request), Some(_)) = (&mut self.operation, &self.lease) {
            let name = format!("{high:016x}{low:016x}");
            request.lease = Some(self.resolved.lease_id(&name));
            self.lease = Some(name);
        }
        self
    }

    /// The same operation, of which a repeat is [known](Resolved::known_by).
    ///
    /// # Errors
    /// Fails with [`AskError::NoIdempotency`] if the policy keeps no answers.
    pub fn known_by(self, idempotency: Idempotency) -> Result<Self, AskError> {
        let policy = self.resolved.policy();
        if policy.idempotency().is_none() {
            return Err(AskError::NoIdempotency { policy: policy.name().into() });
        }
        Ok(Self { resolved: self.resolved.known_by(idempotency), ..self })
    }

    /// The operation to do.
    #[must_use]
    pub const fn operation(&self) -> Operation {
        self.operation
    }

    /// What the caller asked: [`operation`](Self::operation), unless the limits can never grant its cost.
    #[must_use]
    pub fn wanted(&self) -> Operation {
        self.beyond.as_deref().copied().unwrap_or(self.operation)
    }

    /// The name of the lease, or the id of the reservation, that the operation concerns, given by the caller or drawn at random.
    #[must_use]
    pub fn lease(&self) -> Option<&str> {
        self.lease.as_deref()
    }

    /// Whether the operation makes or ends a reservation.
    #[must_use]
    pub const fn is_of_reservation(&self) -> bool {
        is_of_reservation(&self.operation)
    }

    /// Whether [`lease`](Self::lease) is the id of a reservation, also of one that costs more than the limits can grant.
    #[must_use]
    pub fn names_reservation(&self) -> bool {
        is_of_reservation(&self.wanted())
    }

    /// The random bits of the request; `None` for an operation that is not a request.
    #[must_use]
    pub const fn draw(&self) -> Option<Draw> {
        match self.operation {
            Operation::Decide(request) | Operation::Peek(request) | Operation::Explain(request) => {
                Some(request.draw)
            }
            _ => None,
        }
    }

    /// Whether the limits can never grant the cost.
    #[must_use]
    pub const fn costs_too_much(&self) -> bool {
        self.beyond.is_some()
    }

    /// Returns the same request with this draw.
    #[must_use]
    pub const fn with_draw(mut self, draw: Draw) -> Self {
        if let Operation::Decide(request) | Operation::Peek(request) | Operation::Explain(request) =
            &mut self.operation
        {
            request.draw = draw;
        }
        self
    }

    /// The verdict on what the caller asked, given the verdict on [`operation`](Self::operation). They differ
    /// only if the limits can never grant the cost.
    #[must_use]
    pub fn said(&self, verdict: Verdict) -> Verdict {
        match (&self.beyond, self.resolved.limits()) {
            (Some(beyond), Some(limits)) => verdict.refused_for_ever(limits, cost_of(beyond)),
            _ => verdict,
        }
    }

    /// What the operation did, as its answer says it: for a listed key a reservation holds no units, and a commit charges none.
    #[must_use]
    pub fn effect(&self, verdict: &Verdict) -> Effect {
        match self.operation {
            _ if self.resolved.limits().is_some() => verdict.effect,
            Operation::Commit(..) => Effect::Committed { charged: 0, late: false, by: None },
            _ if self.is_of_reservation() => {
                Effect::Reserved { units: 0, until: verdict.at, by: None }
            }
            _ => verdict.effect,
        }
    }

    /// Why the request passes or not by this verdict, as [`said`](Self::said) returns it. `None` unless the caller asked why, or if a
    /// node has decided by its share.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tidegate_gate::{Ask, KeyHasher, Policy, Table, Timestamp};
    ///
    /// let policy = "limits = [{ algorithm = 'sliding_log', rates = ['1/s', '3/m'] }]";
    /// let policy = Arc::new(Policy::parse("log", policy).unwrap());
    /// let mut table = Table::new(1 << 20, KeyHasher::new(1));
    /// let _ = table.decide(&policy, "user:42", Timestamp(0), 1).unwrap();
    ///
    /// let why = Ask::parse(r#"{"explain":{"cost":1}}"#).unwrap();
    /// let why = why.resolve(&policy, "user:42", &mut || None).unwrap();
    /// let verdict = table.ask(why.resolved(), Timestamp(0), &why.operation()).unwrap();
    /// assert_eq!(
    ///     why.explain(&verdict).unwrap().text,
    ///     "`log` refuses (1 in any 1 s): 0 of 1 are left and the request costs 1; it passes in 1 s."
    /// );
    /// ```
    #[must_use]
    pub fn explain(&self, verdict: &Verdict) -> Option<Explanation> {
        if !matches!(self.operation, Operation::Explain(_)) || verdict.degraded {
            return None;
        }
        let why = match self.resolved.limits() {
            Some(limits) => limits.explain(verdict, cost_of(&self.wanted()))?,
            None => Explanation::listed(verdict.decision),
        };
        let in_shadow = self.resolved.policy().is_shadow() && !verdict.decision.is_allowed();
        Some(if in_shadow { why.in_shadow("the policy") } else { why })
    }

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

const fn is_of_reservation(operation: &Operation) -> bool {
    match operation {
        Operation::Commit(..) => true,
        Operation::Decide(request) => request.reserves(),
        _ => false,
    }
}

pub(super) const fn cost_of(operation: &Operation) -> u64 {
    match operation {
        Operation::Decide(request) | Operation::Peek(request) | Operation::Explain(request) => {
            request.cost
        }
        _ => 0,
    }
}
