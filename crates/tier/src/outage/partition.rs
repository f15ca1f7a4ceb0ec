//! The share of one partition.

use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use core::num::NonZeroU64;

use compact_str::CompactString;
use tidegate_gate::{
    Answered, Id, KeySlots, Operation, Policy, Request, Resolved, Timestamp, Transaction,
    TransactionError, Verdict,
};

/// An operation that the store must be told, because the node has decided it by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owed {
    /// The key.
    pub resolved: Resolved,
    /// The operation: a charge, or a commit.
    pub operation: Operation,
}

/// What came of telling the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The store has done the operation, or never can.
    Done,
    /// The store has not done it.
    NotDone,
    /// Nobody knows whether the store has done it.
    Unknown,
}

/// A partition of which the node has a share.
#[derive(Debug)]
pub(super) struct Partition {
    policy: Arc<Policy>,
    nodes: NonZeroU64,
    /// Its stored states are those that the node last knew. Its writes are never stored.
    transaction: Transaction,
    granted: BTreeMap<CompactString, Granted>,
    commits: BTreeMap<Id, (Resolved, u64)>,
    /// How many operations the store is being told.
    told: usize,
    bytes: usize,
}

/// What the node granted a key by itself, beside reservations.
#[derive(Debug)]
struct Granted {
    resolved: Resolved,
    units: u64,
    /// The units of which the store is being told.
    told: u64,
}

impl Partition {
    pub(super) fn new(policy: &Arc<Policy>, nodes: NonZeroU64) -> Self {
        Self {
            policy: Arc::clone(policy),
            nodes,
            transaction: Transaction::default(),
            granted: BTreeMap::new(),
            commits: BTreeMap::new(),
            told: 0,
            bytes: size_of::<Self>(),
        }
    }

    /// Whether the partition is one of this policy, perhaps in another revision that did not edit the policy.
    pub(super) fn is_of(&mut self, policy: &Arc<Policy>) -> bool {
        if !Arc::ptr_eq(&self.policy, policy) {
            if self.policy != *policy {
                return false;
            }
            self.policy = Arc::clone(policy); // the next look is a short one
        }
        true
    }

    /// The commits of which the store is to be told.
    pub(super) fn commits(&self) -> usize {
        self.commits.len()
    }

    /// An estimate of its bytes of memory.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the store must be told something.
    pub(super) fn owes(&self) -> bool {
        !self.commits.is_empty() || self.granted.values().any(|granted| granted.units > 0)
    }

    /// Whether the store must be told something, or is being told.
    pub(super) fn is_needed(&self) -> bool {
        self.told > 0 || self.owes()
    }

    pub(super) fn is_fresh(&self, now: Timestamp) -> bool {
        self.told == 0 && self.commits.is_empty() && self.transaction.is_fresh(now)
    }

    /// Decides an operation. `None` if the key is a new one and there `is_no_room`.
    pub(super) fn decide(
        &mut self,
        resolved: &Resolved,
        now: Timestamp,
        operation: &Operation,
        known: Option<&Transaction>,
        is_no_room: bool,
    ) -> Option<Result<Verdict, TransactionError>> {
        let is_known = !self.policy.shares_states() || self.granted.contains_key(resolved.key());
        if is_no_room && !is_known {
            return None;
        }
        let resolved = resolved.without_idempotency(); // an answer that a node gives by itself is not kept
        let records = self.transaction.len();
        let own = self.transaction.join(&resolved);
        let is_new = self.transaction.len() > records;
        let before = if is_new { 0 } else { self.transaction.bytes_of(&own) };
        if let Some(known) = known {
            self.transaction.learn(&own, known);
        }
        let verdict = self.operate(&own, &resolved, now, operation);
        let after = self.transaction.bytes_of(&own);
        self.bytes = self.bytes.saturating_sub(before).saturating_add(after);
        Some(verdict)
    }

    fn operate(
        &mut self,
        own: &KeySlots,
        resolved: &Resolved,
        now: Timestamp,
        operation: &Operation,
    ) -> Result<Verdict, TransactionError> {
        let Answered { verdict, .. } = self.transaction.operate(own, now, operation)?;
        let mut verdict = Verdict { degraded: true, ..verdict };
        match operation {
            Operation::Decide(request) if request.cost > 0 && verdict.decision.is_allowed() => {
                verdict = self.charge_the_others(own, now, request, verdict);
                if !request.reserves() {
                    self.grant(resolved, request.cost);
                }
            }
            Operation::Commit(id, actual) => {
                self.commits.entry(*id).or_insert_with(|| (resolved.clone(), *actual));
            }
            _ => {}
        }
        Ok(verdict)
    }

    /// Charges what the other nodes may grant meanwhile. Afterwards the limits say what is left for all nodes together.
    fn charge_the_others(
        &mut self,
        own: &KeySlots,
        now: Timestamp,
        request: &Request,
        granted: Verdict,
    ) -> Verdict {
        let others = self.nodes.get().saturating_sub(1);
        let units = request.cost.saturating_mul(others);
        if units == 0 {
            return granted;
        }
        let charged = self.transaction.operate(own, now, &Operation::Charge(units));
        let Ok(Answered { verdict: charged, .. }) = charged else { return granted };
        let mut limits = granted.limits;
        for (said, after) in limits.iter_mut().zip(charged.limits) {
            if said.is_allowed() {
                *said = after; // a limit in shadow may have refused, and goes on to say so
            }
        }
        Verdict { decision: charged.decision, limits, ..granted }
    }

    fn grant(&mut self, resolved: &Resolved, units: u64) {
        let key = CompactString::new(resolved.key());
        let granted = self.granted.entry(key).or_insert_with(|| {
            self.bytes = self.bytes.saturating_add(size_of::<Granted>());
            Granted { resolved: resolved.clone(), units: 0, told: 0 }
        });
        granted.units = granted.units.saturating_add(units);
    }

    /// Takes what the store must be told.
    pub(super) fn take_owed(&mut self, now: Timestamp, owed: &mut VecDeque<Owed>) {
        let before = owed.len();
        for (id, (resolved, actual)) in core::mem::take(&mut self.commits) {
            owed.push_back(Owed { resolved, operation: Operation::Commit(id, actual) });
        }
        let nodes = self.nodes.get();
        for granted in self.granted.values_mut().filter(|granted| granted.units > 0) {
            let own = self.transaction.join(&granted.resolved);
            let counted = self.transaction.used_since_stored(&own, now, nodes);
            let units = counted.min(granted.units);
            granted.units = 0;
            if units > 0 {
                granted.told = granted.told.saturating_add(units);
                let resolved = granted.resolved.clone();
                owed.push_back(Owed { resolved, operation: Operation::Charge(units) });
            }
        }
        self.granted.retain(|_, granted| granted.told > 0);
        self.told = self.told.saturating_add(owed.len().saturating_sub(before));
    }

    /// Takes what came of telling the store. Returns how many commits need not be told any more.
    pub(super) fn told(&mut self, owed: Owed, told: Told) -> usize {
        self.told = self.told.saturating_sub(1);
        let Owed { resolved, operation } = owed;
        match operation {
            Operation::Commit(id, actual) => {
                let (Entry::Vacant(again), Told::NotDone | Told::Unknown) =
                    (self.commits.entry(id), told)
                else {
                    return 1;
                };
                again.insert((resolved, actual));
            }
            Operation::Charge(units) => {
                let Some(granted) = self.granted.get_mut(resolved.key()) else { return 0 };
                granted.told = granted.told.saturating_sub(units);
                if told == Told::NotDone {
                    granted.units = granted.units.saturating_add(units);
                }
                self.granted.retain(|_, granted| granted.units > 0 || granted.told > 0);
            }
            _ => {}
        }
        0
    }
}
