//! What a node decides by itself while its store cannot be asked, under a policy with `on_error = "local"`.
//!
//! **Share.** Each of n nodes goes on from the states that it last knew, and lets every grant count n times: it takes the cost of
//! the request, and charges n − 1 times the cost more. So the nodes need not hear of each other. Of what was left, each node
//! grants at most the n-th part and one request more, because a request passes as long as there is room for its own cost. A node
//! that knows nothing of a key starts from a full limit, so it grants at most the n-th part of the limit, and one request more.
//!
//! **Bound.** Let a limit grant at most G units in some span. If n nodes divide it, they grant in that span together at most G, and
//! n − 1 times the largest cost; of what the limit had granted before, only that counts which a node did not know. The debt of a limit
//! ends at twice its capacity: if n costs are more than that, each node grants one request in a period.
//!
//! **Number of nodes.** The driver tells with [`Outage::handle_nodes`] how many nodes were last seen, and the policy may
//! [say](tidegate_gate::Policy::least_nodes) that they are at least so many. A node that knows no number decides nothing.
//!
//! **What is decided.** Checks, peeks, and commits of reservations. Everything else is left to the store. The answers are not kept for
//! repeats: a repeat is another request. An edit of a policy starts its shares anew.
//!
//! **The return of the store.** [`Outage::poll_owed`] says what the store must be told: the units that the node granted, as far as
//! they still count, and the commits. The driver tells [`Outage::handle_told`] what came of it. A charge whose fate is unknown is not
//! repeated, so it may be lost: the share of its partition then goes on until the store has decided on the partition. A commit is taken once, and is repeated until the store has it.
//!
//! ```
//! use std::sync::Arc;
//! use tidegate_gate::{Operation, Policy, Resolved, Timestamp};
//! use tidegate_tier::outage::{Options, Outage};
//!
//! let policy = "limits = [{ algorithm = 'fixed_window', limit = 8, period = '1h' }]\non_error = 'local'";
//! let policy = Arc::new(Policy::parse("login", policy).unwrap());
//! let resolved = Resolved::new(&policy, "user:42").unwrap();
//! let mut outage = Outage::new(Options::default());
//! let check = Operation::from(1);
//! assert!(outage.decide(&resolved, Timestamp(0), &check, None).is_none(), "the node knows no number of nodes");
//!
//! outage.handle_nodes(4);
//! let mut decide = || outage.decide(&resolved, Timestamp(0), &check, None).unwrap().unwrap().decision.is_allowed();
//! assert_eq!([decide(), decide(), decide()], [true, true, false], "a quarter of 8");
//! assert_eq!(outage.poll_owed(Timestamp(0)).unwrap().operation, Operation::Charge(2));
//! ```

mod fleet;
mod partition;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::num::NonZeroU64;

use tidegate_gate::{
    Micros, OnError, Operation, Resolved, Timestamp, Transaction, TransactionError, Verdict,
};

use crate::cache::Transmit;
use crate::count::less;
pub use fleet::Fleet;
use partition::Partition;
pub use partition::Told;

/// How much a node remembers in an outage.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The most bytes of states. Requests on further keys are not decided.
    pub most_bytes: usize,
    /// The most commits that wait for the store. Further ones are not taken.
    pub most_commits: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { most_bytes: 32 << 20, most_commits: 1 << 14 }
    }
}

/// The shares of a node. The [module](self) says how to drive it.
#[derive(Debug)]
pub struct Outage {
    options: Options,
    /// How many nodes were last seen.
    nodes: Option<NonZeroU64>,
    /// By the names of their policies, and by their own. A search in order has no collisions, and takes little code.
    #[expect(
        clippy::vec_box,
        reason = "a new partition moves all behind it, which are then small"
    )]
    partitions: Vec<Box<Partition>>,
    bytes: usize,
    commits: usize,
    /// Some partition has something of which the store must be told.
    is_due: bool,
    /// What the store must be told next.
    owed: Vec<Transmit>,
    /// When states that equal fresh ones were last looked for.
    swept: Timestamp,
}

impl Outage {
    /// A node that knows no other nodes.
    #[must_use]
    pub const fn new(options: Options) -> Self {
        Self {
            options,
            nodes: None,
            partitions: Vec::new(),
            bytes: 0,
            commits: 0,
            is_due: false,
            owed: Vec::new(),
            swept: Timestamp::EPOCH,
        }
    }

    /// Whether a policy lets nodes decide by their shares.
    #[must_use]
    pub fn is_for(resolved: &Resolved) -> bool {
        resolved.policy().on_error() == OnError::Local && resolved.limits().is_some()
    }

    /// Takes the number of nodes last seen, this one included.
    pub fn handle_nodes(&mut self, nodes: u64) {
        self.nodes = NonZeroU64::new(nodes).or(self.nodes);
    }

    /// Decides an operation by the node's share. `known` is a transaction that knows what the store held of the key. `None` if the
    /// node cannot decide it.
    pub fn decide(
        &mut self,
        resolved: &Resolved,
        now: Timestamp,
        operation: &Operation,
        known: Option<&Transaction>,
    ) -> Option<Result<Verdict, TransactionError>> {
        let is_one = match operation {
            Operation::Decide(_) | Operation::Peek(_) | Operation::Explain(_) => true,
            Operation::Commit(..) => self.commits < self.options.most_commits,
            _ => false,
        };
        if !is_one || !Self::is_for(resolved) {
            return None;
        }
        let least = resolved.policy().least_nodes().and_then(NonZeroU64::new);
        let nodes = self.nodes.max(least)?;
        if self.bytes >= self.options.most_bytes {
            self.sweep(now);
        }
        let is_full = self.bytes >= self.options.most_bytes;
        let at = match self.find(place(resolved)) {
            Ok(at) => at,
            Err(_) if is_full => return None,
            Err(at) => {
                let partition = Partition::new(resolved, nodes);
                self.bytes = self.bytes.saturating_add(partition.bytes());
                self.partitions.insert(at, Box::new(partition));
                at
            }
        };
        let (verdict, commits) = self.change(at, |partition, owed| {
            if !Arc::ptr_eq(partition.policy(), resolved.policy()) {
                // an edit starts the shares of the policy anew
                partition.take_owed(now, owed);
                *partition = Partition::new(resolved, nodes);
            }
            let commits = partition.commits();
            let verdict = partition.decide(resolved, now, operation, known, is_full);
            (verdict, partition.commits().saturating_sub(commits))
        })?;
        self.commits = self.commits.saturating_add(commits);
        verdict
    }

    /// Changes a partition, and takes note of what has changed.
    fn change<R>(
        &mut self,
        at: usize,
        change: impl FnOnce(&mut Partition, &mut Vec<Transmit>) -> R,
    ) -> Option<R> {
        let partition = self.partitions.get_mut(at)?;
        let bytes = partition.bytes();
        let changed = change(partition, &mut self.owed);
        self.bytes = less(self.bytes, bytes).saturating_add(partition.bytes());
        self.is_due |= partition.is_due();
        Some(changed)
    }

    /// What the store must be told next, once it answers again.
    pub fn poll_owed(&mut self, now: Timestamp) -> Option<Transmit> {
        if self.owed.is_empty() && core::mem::take(&mut self.is_due) {
            for partition in &mut self.partitions {
                partition.take_owed(now, &mut self.owed);
            }
            self.handle_back();
        }
        self.owed.pop()
    }

    /// Takes note that the authority of a key has answered: it is among those that [`poll_owed`](Self::poll_owed) tells next.
    pub fn handle_answered(&mut self, resolved: &Resolved, now: Timestamp) {
        if let Ok(at) = self.find(place(resolved)) {
            self.change(at, |partition, owed| {
                partition.decided();
                partition.take_owed(now, owed);
            });
            self.tidy(at);
        }
    }

    /// Takes note that the store has decided on a partition of a policy, of which these are the names.
    pub fn handle_decided(&mut self, policy: &str, partition: &str) {
        if let Ok(at) = self.find((policy, partition)) {
            self.change(at, |partition, _| partition.decided());
            self.tidy(at);
        }
    }

    /// What the authorities that have answered must be told next.
    pub fn poll_answered(&mut self) -> Option<Transmit> {
        self.owed.pop()
    }

    /// Takes what came of telling the store.
    pub fn handle_told(&mut self, owed: Transmit, told: Told) {
        let is_commit = matches!(owed.operation, Operation::Commit(..));
        let done = match self.find(place(&owed.resolved)) {
            Ok(at) => {
                let done = self.change(at, |partition, _| partition.told(owed, told)).unwrap_or(0);
                self.tidy(at);
                done
            }
            Err(_) if !is_commit => 0,
            Err(_) if told == Told::Done => 1,
            Err(_) => {
                self.owed.push(owed); // an edit has ended its partition
                0
            }
        };
        self.commits = less(self.commits, done);
    }

    /// Takes note that the store answers again: forgets the shares of which it need not be told.
    pub fn handle_back(&mut self) {
        self.partitions.retain(|partition| partition.is_needed());
        self.count();
    }

    /// Whether the node remembers nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.partitions.is_empty() && self.owed.is_empty()
    }

    /// The place of a partition, or the place where it belongs.
    fn find(&self, wanted: (&str, &str)) -> Result<usize, usize> {
        self.partitions.binary_search_by(|partition| partition.place().cmp(&wanted))
    }

    /// Forgets a partition of which nothing is needed any more.
    fn tidy(&mut self, at: usize) {
        if let Some(partition) = self.partitions.get(at)
            && !partition.is_needed()
        {
            self.bytes = less(self.bytes, partition.bytes());
            self.partitions.remove(at);
        }
    }

    /// Forgets the states that equal fresh ones, at most once a second.
    fn sweep(&mut self, now: Timestamp) {
        if now.saturating_since(self.swept).max(self.swept.saturating_since(now)) < SWEEP_EVERY {
            return;
        }
        self.swept = now;
        self.partitions.retain(|partition| !partition.is_fresh(now));
        self.count();
    }

    fn count(&mut self) {
        let bytes = self.partitions.iter().map(|partition| partition.bytes());
        self.bytes = bytes.fold(0, usize::saturating_add);
    }
}

/// The names of a policy and of a partition.
fn place(resolved: &Resolved) -> (&str, &str) {
    (resolved.policy().name(), resolved.partition())
}

const SWEEP_EVERY: Micros = Micros::SECOND;
