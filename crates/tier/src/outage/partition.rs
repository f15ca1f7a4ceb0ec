//! The share of one partition.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;
use core::num::NonZeroU64;

use tidegate_gate::{
    Answered, KeySlots, Operation, Policy, Request, Resolved, Timestamp, Transaction,
    TransactionError, Verdict,
};

use crate::cache::Transmit;

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
    /// A key of the partition.
    of: Resolved,
    nodes: NonZeroU64,
    /// Its stored states are those that the node last knew. Its writes are never stored.
    transaction: Transaction,
    /// By the keys.
    #[expect(clippy::vec_box, reason = "a new key moves all behind it, which are then small")]
    granted: Vec<Box<Granted>>,
    commits: Vec<Transmit>,
    /// The store must be told something.
    is_due: bool,
    /// How many operations the store is being told.
    told: usize,
    /// Nobody knows whether the store has taken a charge, so the share goes on until the store has decided on the partition.
    is_lost: bool,
    bytes: usize,
}

/// What the node granted a key by itself, beside reservations.
#[derive(Debug)]
struct Granted {
    key: KeySlots,
    units: u64,
}

impl Partition {
    pub(super) fn new(resolved: &Resolved, nodes: NonZeroU64) -> Self {
        Self {
            of: resolved.clone(),
            nodes,
            transaction: Transaction::default(),
            granted: Vec::new(),
            commits: Vec::new(),
            is_due: false,
            told: 0,
            is_lost: false,
            bytes: size_of::<Self>(),
        }
    }

    /// The revision of the policy.
    pub(super) const fn policy(&self) -> &Arc<Policy> {
        self.of.policy()
    }

    /// The names of the policy and of the partition.
    pub(super) fn place(&self) -> (&str, &str) {
        (self.of.policy().name(), self.of.partition())
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
    pub(super) const fn is_due(&self) -> bool {
        self.is_due
    }

    /// Whether the share must go on.
    pub(super) const fn is_needed(&self) -> bool {
        self.told > 0 || self.is_due || self.is_lost
    }

    /// Takes note that the store has decided on the partition.
    pub(super) const fn decided(&mut self) {
        self.is_lost = false;
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
        let is_known = !self.policy().shares_states() || self.find(resolved.key()).is_ok();
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
        let verdict = self.operate(&own, now, operation);
        let after = self.transaction.bytes_of(&own);
        self.bytes = self.bytes.saturating_sub(before).saturating_add(after);
        Some(verdict)
    }

    fn operate(
        &mut self,
        own: &KeySlots,
        now: Timestamp,
        operation: &Operation,
    ) -> Result<Verdict, TransactionError> {
        let Answered { verdict, .. } = self.transaction.operate(own, now, operation)?;
        let mut verdict = Verdict { degraded: true, ..verdict };
        match operation {
            Operation::Decide(request) if request.cost > 0 && verdict.decision.is_allowed() => {
                verdict = self.charge_the_others(own, now, request, verdict);
                if !request.reserves() {
                    self.grant(own, request.cost);
                }
            }
            Operation::Commit(id, actual) => {
                self.commit(Transmit {
                    resolved: own.resolved().clone(),
                    operation: Operation::Commit(*id, *actual),
                });
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

    fn find(&self, key: &str) -> Result<usize, usize> {
        self.granted.binary_search_by(|granted| granted.key.resolved().key().cmp(key))
    }

    fn grant(&mut self, key: &KeySlots, units: u64) {
        self.is_due = true;
        match self.find(key.resolved().key()) {
            Ok(at) => {
                let granted = self.granted.get_mut(at);
                granted.into_iter().for_each(|own| own.units = own.units.saturating_add(units));
            }
            Err(at) => {
                self.bytes = self.bytes.saturating_add(size_of::<Granted>());
                self.granted.insert(at, Box::new(Granted { key: key.clone(), units }));
            }
        }
    }

    /// Takes a commit that the store must be told. Returns whether it is a new one: of several of one id the first counts.
    fn commit(&mut self, owed: Transmit) -> bool {
        self.is_due = true;
        let id = |owed: &Transmit| match owed.operation {
            Operation::Commit(id, _) => Some(id),
            _ => None,
        };
        let is_new = self.commits.iter().all(|other| id(other) != id(&owed));
        if is_new {
            self.commits.push(owed);
        }
        is_new
    }

    /// Takes what the store must be told.
    pub(super) fn take_owed(&mut self, now: Timestamp, owed: &mut Vec<Transmit>) {
        if !mem::take(&mut self.is_due) {
            return;
        }
        let before = owed.len();
        owed.append(&mut self.commits);
        let granted = mem::take(&mut self.granted);
        let bytes = granted.len().saturating_mul(size_of::<Granted>());
        self.bytes = self.bytes.saturating_sub(bytes);
        for granted in granted {
            let Granted { key, units } = *granted;
            let counted = self.transaction.used_since_stored(&key, now, self.nodes.get());
            let units = counted.min(units);
            if units > 0 {
                let resolved = key.resolved().clone();
                owed.push(Transmit { resolved, operation: Operation::Charge(units) });
            }
        }
        self.told = self.told.saturating_add(owed.len().saturating_sub(before));
    }

    /// Takes what came of telling the store. Returns how many commits need not be told any more.
    pub(super) fn told(&mut self, owed: Transmit, told: Told) -> usize {
        self.told = self.told.saturating_sub(1);
        match (owed.operation, told) {
            (Operation::Charge(units), Told::NotDone) => {
                let key = self.transaction.join(&owed.resolved);
                self.grant(&key, units);
            }
            (Operation::Charge(_), Told::Unknown) => self.is_lost = true,
            (Operation::Commit(..), Told::Done) => return 1,
            (Operation::Commit(..), _) => return usize::from(!self.commit(owed)),
            _ => {}
        }
        0
    }
}
