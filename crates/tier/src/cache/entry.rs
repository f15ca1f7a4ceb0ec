//! What a node remembers of a key.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ptr;

use compact_str::CompactString;
use tidegate_gate::{
    Budget, Id, KeyHasher, Kind, Limiter, Limits, Micros, Operation, Policy, Request, Resolved,
};

use super::ask::{Next, Transmit, VerdictOf};
use super::held::Units;
use super::refusals::{Refusal, Refusals};
use super::reporter::{Reporter, master};

/// A key under one rule of one revision of a policy.
#[derive(Debug)]
pub(super) struct Entry {
    /// While the entry holds the policy, no other limits have this address.
    policy: Arc<Policy>,
    limits: usize,
    key: CompactString,
    /// The most that a request can cost; at a higher cost the authority has an error for the caller.
    most: u64,
    /// A request that names no lease is an error too.
    needs_lease: bool,
    was_used: bool,
    /// The authority may have decided on questions up to this time before units came back.
    relaxed: Option<Micros>,
    refusals: Refusals,
    units: Option<Box<Units>>,
    reporter: Option<Box<Reporter>>,
}

/// Whether the operation gives back or clears anything, so that the key may grant more than before.
#[inline]
pub(super) const fn relaxes(operation: &Operation) -> bool {
    !matches!(
        operation,
        Operation::Decide(_)
            | Operation::Peek(_)
            | Operation::Explain(_)
            | Operation::Report(_)
            | Operation::Heartbeat(_)
            | Operation::Budget(Budget { unspent: None, .. })
    )
}

/// The part of the key under which the node remembers anything: a reporter reports for an account, everything
/// else is about a key.
#[inline]
pub(super) fn part<'r>(resolved: &'r Resolved, limits: &Limits) -> &'r str {
    match limits.records() {
        [record] if resolved.policy().reports() => record.depth().of(resolved.key()),
        _ => resolved.key(),
    }
}

#[inline]
pub(super) fn hash(hasher: &KeyHasher, limits: &Limits, key: &str) -> u64 {
    crate::hash::hash(hasher, ptr::from_ref(limits).addr(), key)
}

impl Entry {
    pub(super) fn new(resolved: &Resolved, limits: &Limits, relaxed: Option<Micros>) -> Self {
        let policy = Arc::clone(resolved.policy());
        let units = policy.local().map(|_| Box::new(Units::sent_for_after(relaxed)));
        let master = master(resolved, limits);
        let reporter = master.map(|master| Box::new(Reporter::new(master)));
        Self {
            policy,
            limits: ptr::from_ref(limits).addr(),
            key: CompactString::new(part(resolved, limits)),
            most: limits.capacity(),
            needs_lease: limits.iter().any(|limit| limit.limit.kind() == Kind::Lease),
            was_used: false,
            relaxed,
            refusals: Refusals::default(),
            units,
            reporter,
        }
    }

    #[inline]
    pub(super) fn is(&self, limits: &Limits, key: &str) -> bool {
        self.limits == ptr::from_ref(limits).addr() && self.key.as_bytes() == key.as_bytes()
    }

    pub(super) fn hash(&self, hasher: &KeyHasher) -> u64 {
        crate::hash::hash(hasher, self.limits, &self.key)
    }

    /// The same entry, which a search for keys to forget then passes over once.
    #[inline]
    pub(super) const fn used(&mut self) -> &mut Self {
        self.was_used = true;
        self
    }

    /// The last time at which units may have come back.
    pub(super) const fn relaxed(&self) -> Option<Micros> {
        self.relaxed
    }

    /// Whether a search for keys to forget passes over this one.
    pub(super) const fn pass_over(&mut self) -> bool {
        core::mem::replace(&mut self.was_used, false)
    }

    /// Whether the node has units of this key to report, so that it must not forget the key.
    pub(super) fn has_unreported(&self) -> bool {
        self.reporter.as_ref().is_some_and(|reporter| reporter.is_queued())
    }

    #[inline]
    pub(super) fn reporter(&mut self) -> Option<&mut Reporter> {
        self.reporter.as_deref_mut()
    }

    #[inline]
    pub(super) fn decide(&mut self, request: &Request, at: Micros, node: Id) -> Next {
        if request.cost == 0 || request.cost > self.most {
            return Next::Forward { budget: None };
        }
        if self.units.is_some() {
            return self.decide_with_units(request, at, node);
        }
        self.peek(request, at)
    }

    fn decide_with_units(&mut self, request: &Request, at: Micros, node: Id) -> Next {
        let Self { policy, units, refusals, .. } = self;
        let (Some(units), Some(config)) = (units, policy.local()) else {
            return Next::Forward { budget: None };
        };
        if units.spend(request.cost, at, config.period()) {
            let answer = self.units.as_ref().and_then(|units| units.answer(at));
            return answer.map_or(Next::Forward { budget: None }, Next::Answer);
        }
        if refusals.answer(request.cost, at).is_some() {
            return self.peek(request, at);
        }
        let budget = units.send_for(config, node, at).map(Operation::Budget);
        if let Some(gives_back) = budget.filter(relaxes) {
            self.relax(&gives_back, at);
        }
        Next::Forward { budget }
    }

    /// Answers a request if it is known to be refused.
    #[inline]
    pub(super) fn peek(&mut self, request: &Request, at: Micros) -> Next {
        let is_error = request.cost > self.most || (self.needs_lease && request.lease.is_none());
        match self.refusals.answer(request.cost, at) {
            Some(answer) if !is_error => Next::Answer(answer),
            _ => Next::Forward { budget: None },
        }
    }

    /// Remembers a refusal, unless it may be older than an operation that gave units back.
    pub(super) fn remember(&mut self, refusal: Refusal, at: Micros) {
        if self.relaxed.is_none_or(|relaxed| relaxed < refusal.sent()) {
            self.refusals.add(refusal, at);
        }
    }

    /// Forgets what an operation at `at` may make untrue.
    pub(super) fn relax(&mut self, operation: &Operation, at: Micros) {
        self.relaxed = self.relaxed.max(Some(at));
        self.refusals.clear();
        if let Operation::Block(_) | Operation::Reset(_) = operation
            && let Some(units) = &mut self.units
        {
            units.forget(at);
        }
    }

    /// What a node that stops asks to give back its units of the key.
    pub(super) fn give_back(&mut self, node: Id, at: Micros) -> Option<Transmit> {
        let operation = Operation::Budget(self.units.as_mut()?.give_back(node)?);
        self.relax(&operation, at);
        let resolved = Resolved::new(&self.policy, &self.key).ok()?;
        Some(Transmit { resolved, operation })
    }

    /// Whether units of the key may be on their way.
    pub(super) fn waits_for_units(&self, at: Micros) -> bool {
        let time = self.policy.local().map(Limiter::period);
        self.units.as_ref().zip(time).is_some_and(|(units, time)| units.are_under_way(at, time))
    }

    /// Takes the units that the authority has granted.
    pub(super) fn take(&mut self, heard: &VerdictOf<'_>) {
        if let Some(units) = &mut self.units {
            units.arrive(heard);
        }
    }
}
