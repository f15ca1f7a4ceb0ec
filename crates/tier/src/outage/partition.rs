//! The share of one partition.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::NonZeroU64;

use tidegate_gate::{
    Decision, Effect, Id, KeySlots, Micros, Operation, OperationError, Request, Resolved,
    Timestamp, Transaction, TransactionError, Verdict, Write,
};

/// A partition of which the node has a share.
#[derive(Debug)]
pub(super) struct Partition {
    store: u64,
    /// A key of the partition.
    of: Resolved,
    /// How often each unit counts: the most nodes that were ever seen, because a unit never counts less than when it was taken.
    nodes: u64,
    /// It begins with the states that the node last knew. Its writes are never stored.
    transaction: Transaction,
    /// What the share had of records under other policies, by their names, and until when it differs from nothing.
    former: BTreeMap<String, (Vec<u8>, Timestamp)>,
    /// The reservations of the share, and when they end.
    reserved: Vec<(Id, Timestamp)>,
    bytes: usize,
}

impl Partition {
    pub(super) fn new(store: u64, resolved: &Resolved) -> Self {
        Self {
            store,
            of: resolved.clone(),
            nodes: 1,
            transaction: Transaction::default(),
            former: BTreeMap::new(),
            reserved: Vec::new(),
            bytes: size_of::<Self>(),
        }
    }

    /// The store, and the names of the policy and of the partition.
    pub(super) fn place(&self) -> (u64, &str, &str) {
        (self.store, self.of.policy().name(), self.of.partition())
    }

    /// Goes on under the policy of this key. Each record stays under its name, as in a store, so an edit or the end of an override gives
    /// no key its share anew that it does not give its limit anew.
    pub(super) fn go_on_under(&mut self, resolved: &Resolved, now: Timestamp) {
        let (own, other) = (self.of.policy(), resolved.policy());
        if Arc::ptr_eq(own, other) || own == other {
            return;
        }
        for Write { name, bytes, time_to_live, .. } in self.transaction.writes() {
            self.former.insert(name.into(), (bytes.into(), now.saturating_add(time_to_live)));
        }
        self.former.retain(|_, (_, until)| *until > now);
        (self.transaction, self.of) = (Transaction::default(), resolved.clone());
        let sizes =
            self.former.iter().map(|(name, (bytes, _))| name.len().saturating_add(bytes.len()));
        self.bytes = sizes.fold(size_of::<Self>(), usize::saturating_add);
    }

    /// An estimate of its bytes of memory.
    pub(super) const fn bytes(&self) -> usize {
        let reserved = self.reserved.capacity().saturating_mul(size_of::<(Id, Timestamp)>());
        self.bytes.saturating_add(reserved)
    }

    pub(super) fn is_fresh(&self, now: Timestamp) -> bool {
        self.transaction.is_fresh(now) && self.former.values().all(|(_, until)| *until <= now)
    }

    /// Decides an operation. `None` if it is none for a share, or if the key is a new one and there `is_no_room`.
    pub(super) fn decide(
        &mut self,
        (resolved, nodes): (&Resolved, NonZeroU64),
        now: Timestamp,
        operation: &Operation,
        (known, is_no_room): (Option<&Transaction>, bool),
    ) -> Option<Result<Verdict, TransactionError>> {
        let resolved = resolved.without_idempotency(); // an answer that a node gives by itself is not kept
        if is_no_room && !self.transaction.has(&resolved) {
            return None;
        }
        self.nodes = self.nodes.max(nodes.get());
        let times = |cost: u64| cost.saturating_mul(self.nodes);
        let of_all = |request: &Request| Request { cost: times(request.cost), ..*request };
        let (of_all, request) = match operation {
            Operation::Decide(request) => (Operation::Decide(of_all(request)), Some(request)),
            Operation::Peek(request) => (Operation::Peek(of_all(request)), Some(request)),
            Operation::Explain(request) => (Operation::Explain(of_all(request)), Some(request)),
            Operation::Commit(id, units) if self.reserved.iter().any(|(own, _)| own == id) => {
                (Operation::Commit(*id, times(*units)), None)
            }
            _ => return None,
        };
        let records = self.transaction.len();
        let own = self.transaction.join(&resolved);
        let is_new = self.transaction.len() > records;
        let before = if is_new { 0 } else { self.transaction.bytes_of(&own) };
        let former = &self.former;
        self.transaction.learn(&own, |name| match former.get(name) {
            Some((bytes, _)) => Some(Some(bytes)),
            None => known?.stored_as(name),
        });
        let verdict = match (self.transaction.operate(&own, now, &of_all), request) {
            (Ok(answered), _) => Ok(self.of_share(answered.verdict)),
            (Err(TransactionError::Operation(OperationError::Cost(_))), Some(request)) => {
                self.too_much(&own, now, request)
            }
            (Err(error), _) => Err(error),
        };
        if let (Ok(Verdict { effect: Effect::Reserved { until, .. }, .. }), Some(id)) =
            (&verdict, request.and_then(|request| request.lease))
        {
            self.remember(id, *until, now);
        }
        let after = self.transaction.bytes_of(&own);
        self.bytes = self.bytes.saturating_sub(before).saturating_add(after);
        Some(verdict)
    }

    /// The refusal of a request that costs more than the whole share. It may pass once the store is back.
    fn too_much(
        &mut self,
        own: &KeySlots,
        now: Timestamp,
        request: &Request,
    ) -> Result<Verdict, TransactionError> {
        // without a share it may be an error
        self.transaction.operate(own, now, &Operation::Peek(*request))?;
        let looked = Operation::Peek(Request { cost: 0, ..*request });
        let looked = self.transaction.operate(own, now, &looked)?;
        let mut verdict = self.of_share(looked.verdict);
        if let Decision::Allow { limit, remaining, reset_after } = verdict.decision {
            let retry_after = reset_after.max(Micros::SECOND);
            verdict.decision = Decision::Deny { limit, remaining, retry_after, reset_after };
            verdict.effect = Effect::Decision;
        }
        Ok(verdict)
    }

    /// A verdict in units that count once.
    fn of_share(&self, mut verdict: Verdict) -> Verdict {
        let once = |units: &mut u64| *units = units.checked_div(self.nodes).unwrap_or(*units);
        for decision in verdict.limits.iter_mut().chain([&mut verdict.decision]) {
            match decision {
                Decision::Allow { remaining, .. } | Decision::Deny { remaining, .. } => {
                    once(remaining);
                }
            }
        }
        match &mut verdict.effect {
            Effect::Reserved { units, .. } | Effect::Committed { charged: units, .. } => {
                once(units);
            }
            _ => {}
        }
        Verdict { degraded: true, ..verdict }
    }

    /// Remembers a reservation, and forgets those that have ended before the memory grows.
    fn remember(&mut self, id: Id, until: Timestamp, now: Timestamp) {
        if self.reserved.iter().any(|(own, _)| *own == id) {
            return;
        }
        if self.reserved.len() == self.reserved.capacity() {
            self.reserved.retain(|(_, until)| *until > now);
        }
        self.reserved.push((id, until));
    }
}
