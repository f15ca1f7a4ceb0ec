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
//! repeated, so it may be lost; a commit is taken once, and is repeated until the store has it.
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

use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, VecDeque};
use core::num::NonZeroU64;

use compact_str::CompactString;
use tidegate_gate::{
    Micros, OnError, Operation, Resolved, Timestamp, Transaction, TransactionError, Verdict,
};

use crate::count::less;
pub use fleet::Fleet;
use partition::Partition;
pub use partition::{Owed, Told};

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
    partitions: BTreeMap<Place, Partition>,
    bytes: usize,
    commits: usize,
    /// The partitions of which the store must be told something.
    due: VecDeque<Place>,
    /// What the store must be told next.
    owed: VecDeque<Owed>,
    /// When states that equal fresh ones were last looked for.
    swept: Timestamp,
}

/// The names of a policy and of a partition.
type Place = (CompactString, CompactString);

fn place(resolved: &Resolved) -> Place {
    (CompactString::new(resolved.policy().name()), CompactString::new(resolved.partition()))
}

impl Outage {
    /// A node that knows no other nodes.
    #[must_use]
    pub const fn new(options: Options) -> Self {
        Self {
            options,
            nodes: None,
            partitions: BTreeMap::new(),
            bytes: 0,
            commits: 0,
            due: VecDeque::new(),
            owed: VecDeque::new(),
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
            Operation::Decide(_) | Operation::Peek(_) => true,
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
        let at = place(resolved);
        let is_full = self.bytes >= self.options.most_bytes;
        let partition = match self.partitions.entry(at.clone()) {
            Entry::Occupied(found) => {
                let partition = found.into_mut();
                if !partition.is_of(resolved.policy()) {
                    // an edit starts the shares of the policy anew
                    partition.take_owed(now, &mut self.owed);
                    self.bytes = less(self.bytes, partition.bytes());
                    *partition = Partition::new(resolved.policy(), nodes);
                    self.bytes = self.bytes.saturating_add(partition.bytes());
                }
                partition
            }
            Entry::Vacant(_) if is_full => return None,
            Entry::Vacant(new) => {
                let partition = Partition::new(resolved.policy(), nodes);
                self.bytes = self.bytes.saturating_add(partition.bytes());
                new.insert(partition)
            }
        };
        let (before, owed, commits) = (partition.bytes(), partition.owes(), partition.commits());
        let verdict = partition.decide(resolved, now, operation, known, is_full)?;
        self.bytes = less(self.bytes, before).saturating_add(partition.bytes());
        self.commits = less(self.commits, commits).saturating_add(partition.commits());
        if partition.owes() && !owed {
            self.due.push_back(at);
        }
        Some(verdict)
    }

    /// What the store must be told next, once it answers again.
    pub fn poll_owed(&mut self, now: Timestamp) -> Option<Owed> {
        while self.owed.is_empty() {
            let at = self.due.pop_front()?;
            if let Some(partition) = self.partitions.get_mut(&at) {
                partition.take_owed(now, &mut self.owed);
                self.tidy(&at);
            }
        }
        self.owed.pop_front()
    }

    /// What the store must be told of a partition, now that it has answered about it.
    pub fn poll_owed_of(&mut self, resolved: &Resolved, now: Timestamp) -> Option<Owed> {
        let partition = self.partitions.get_mut(&place(resolved))?;
        let mut own = VecDeque::new();
        partition.take_owed(now, &mut own);
        let first = own.pop_front();
        own.into_iter().for_each(|owed| self.give_back(owed));
        self.tidy(&place(resolved));
        first
    }

    /// Takes what came of telling the store.
    pub fn handle_told(&mut self, owed: Owed, told: Told) {
        let at = place(&owed.resolved);
        let Some(partition) = self.partitions.get_mut(&at) else {
            if let Operation::Commit(..) = owed.operation {
                match told {
                    Told::Done => self.commits = less(self.commits, 1),
                    Told::NotDone | Told::Unknown => self.owed.push_back(owed),
                }
            }
            return;
        };
        let owes = partition.owes();
        let commits = partition.told(owed, told);
        self.commits = less(self.commits, commits);
        if partition.owes() && !owes {
            self.due.push_back(at.clone());
        }
        self.tidy(&at);
    }

    fn give_back(&mut self, owed: Owed) {
        self.handle_told(owed, Told::NotDone);
    }

    /// Takes note that the store answers again: forgets the shares of which it need not be told.
    pub fn handle_back(&mut self) {
        self.partitions.retain(|_, partition| partition.is_needed());
        self.count();
    }

    /// Whether the node remembers nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }

    /// Forgets a partition of which nothing is needed any more.
    fn tidy(&mut self, at: &Place) {
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
        self.partitions.retain(|_, partition| !partition.is_fresh(now));
        self.count();
    }

    fn count(&mut self) {
        let bytes = self.partitions.values().map(Partition::bytes);
        self.bytes = bytes.fold(0, usize::saturating_add);
    }
}

const SWEEP_EVERY: Micros = Micros::SECOND;
