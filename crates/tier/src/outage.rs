//! What a node decides by itself while its store cannot be asked, under a policy with `on_error = "local"`.
//!
//! **Share.** Each of n nodes has the n-th part of the limits: in its share a unit counts n times, when it is taken and when it is
//! given back. A share begins with the state that the node last knew, so the node grants at most the n-th part of what was left
//! then. Nothing is repaid: the store never hears of it. A share goes on until its state equals a fresh one, also in a next
//! outage.
//!
//! **Bound.** In any period an outage costs at most one more limit: the shares of n nodes are one limit, and the store itself never
//! grants more than one.
//!
//! **Number of nodes.** The driver tells [`Authority::handle_nodes`](crate::Authority::handle_nodes) how many nodes were last seen, and
//! the policy may [say](tidegate_gate::Policy::least_nodes) that they are at least so many. A process is one node, however many
//! stores it has: see [`Shares`]. A node that has had no answer from the store since it began has no share, because the process
//! before it may have used it up.
//!
//! **What is decided.** Checks, peeks, reservations, and commits of reservations of the share. Everything else is left to the store,
//! also the commit of a reservation that the store has. The answers are not kept for repeats: a repeat is another request. An
//! edit of a policy, or the end of an override, changes a share as it changes a stored state.
//!
//! ```
//! use core::num::NonZeroU64;
//! use std::sync::Arc;
//! use tidegate_gate::{Operation, Policy, Resolved, Timestamp};
//! use tidegate_tier::outage::{Fleet, Outage, Standing};
//!
//! let policy = "limits = [{ algorithm = 'fixed_window', limit = 8, period = '1h' }]\non_error = 'local'";
//! let policy = Arc::new(Policy::parse("login", policy).unwrap());
//! let resolved = Resolved::new(&policy, "user:42").unwrap();
//! let mut outage = Outage::new(1 << 20);
//! let check = Operation::from(1);
//! let alone = Standing::default();
//! assert!(outage.decide(alone, &resolved, Timestamp(0), &check, None).is_none(), "it knows no number of nodes");
//!
//! let four = Standing { nodes: NonZeroU64::new(4), ..alone };
//! let mut decide = || outage.decide(four, &resolved, Timestamp(0), &check, None).unwrap().unwrap().decision.is_allowed();
//! assert_eq!([decide(), decide(), decide()], [true, true, false], "a quarter of 8");
//! ```

mod fleet;
mod partition;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::num::NonZeroU64;

use tidegate_gate::{
    Micros, OnError, Operation, Resolved, Timestamp, Transaction, TransactionError, Verdict,
};

use crate::count::less;
pub use fleet::Fleet;
use partition::Partition;

/// What a node knows of its store, and of the other nodes on it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Standing {
    /// The number of the store among those of the process.
    pub store: u64,
    /// How many nodes were last seen, this one included.
    pub nodes: Option<NonZeroU64>,
    /// The store has answered since the node began.
    pub has_answered: bool,
}

/// Lends the shares of the process, of which there is one [`Outage`], to a function.
pub type OfProcess = fn(&mut dyn FnMut(&mut Outage));

/// Where the shares of a node are.
#[derive(Debug)]
pub enum Shares {
    /// In the node.
    Own(Outage),
    /// In the process, which is one node with all its stores.
    Process(OfProcess),
}

impl Shares {
    /// The same as [`Outage::decide`].
    pub fn decide(
        &mut self,
        standing: Standing,
        resolved: &Resolved,
        now: Timestamp,
        operation: &Operation,
        known: Option<&Transaction>,
    ) -> Option<Result<Verdict, TransactionError>> {
        let mut decided = None;
        let mut decide = |outage: &mut Outage| {
            decided = outage.decide(standing, resolved, now, operation, known);
        };
        match self {
            Self::Own(outage) => decide(outage),
            Self::Process(lend) => lend(&mut decide),
        }
        decided
    }
}

/// The shares of a node. The [module](self) says what they are.
#[derive(Debug)]
pub struct Outage {
    most_bytes: usize,
    /// By their stores, the names of their policies, and their own. A search in order has no collisions, and takes little code.
    #[expect(
        clippy::vec_box,
        reason = "a new partition moves all behind it, which are then small"
    )]
    partitions: Vec<Box<Partition>>,
    bytes: usize,
    /// When states that equal fresh ones were last looked for.
    swept: Timestamp,
}

impl Outage {
    /// How many bytes a process may spend, unless it has little memory.
    pub const MOST_BYTES: usize = 32 << 20;

    /// A node without shares. Once its states take this many bytes, requests on further keys are not decided.
    #[must_use]
    pub const fn new(most_bytes: usize) -> Self {
        Self { most_bytes, partitions: Vec::new(), bytes: 0, swept: Timestamp::EPOCH }
    }

    /// Decides an operation by the node's share. `known` is a transaction that knows what the store held of the key. `None` if the
    /// node cannot decide it.
    pub fn decide(
        &mut self,
        standing: Standing,
        resolved: &Resolved,
        now: Timestamp,
        operation: &Operation,
        known: Option<&Transaction>,
    ) -> Option<Result<Verdict, TransactionError>> {
        if resolved.policy().on_error() != OnError::Local || resolved.limits().is_none() {
            return None;
        }
        let Standing { store, nodes, has_answered } = standing;
        let least = resolved.policy().least_nodes().filter(|_| has_answered || nodes.is_some());
        let nodes = nodes.max(least.and_then(NonZeroU64::new))?;
        if self.bytes >= self.most_bytes {
            self.sweep(now);
        }
        let is_full = self.bytes >= self.most_bytes;
        let wanted = (store, resolved.policy().name(), resolved.partition());
        let at = match self.partitions.binary_search_by(|other| other.place().cmp(&wanted)) {
            Ok(at) => at,
            Err(_) if is_full => return None,
            Err(at) => {
                let partition = Partition::new(store, resolved);
                self.bytes = self.bytes.saturating_add(partition.bytes());
                self.partitions.insert(at, Box::new(partition));
                at
            }
        };
        let partition = self.partitions.get_mut(at)?;
        let bytes = partition.bytes();
        if partition.is_fresh(now) {
            **partition = Partition::new(store, resolved);
        }
        partition.go_on_under(resolved, now);
        let verdict = partition.decide((resolved, nodes), now, operation, (known, is_full));
        self.bytes = less(self.bytes, bytes).saturating_add(partition.bytes());
        verdict
    }

    /// Forgets the states that equal fresh ones, at most once a second.
    fn sweep(&mut self, now: Timestamp) {
        if now.saturating_since(self.swept).max(self.swept.saturating_since(now)) < SWEEP_EVERY {
            return;
        }
        self.swept = now;
        self.partitions.retain(|partition| !partition.is_fresh(now));
        let bytes = self.partitions.iter().map(|partition| partition.bytes());
        self.bytes = bytes.fold(0, usize::saturating_add);
    }
}

const SWEEP_EVERY: Micros = Micros::SECOND;
