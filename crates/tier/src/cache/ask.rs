//! What a node is asked, and what it is told.

use alloc::vec::Vec;

use tidegate_gate::{Id, Micros, Operation, Resolved, Verdict};

use super::answer::LocalVerdict;

/// Who a node is, and how much it remembers.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The id under which the node takes units. It must differ from the ids of all other nodes, and from that
    /// of an earlier run of this node.
    pub node: Id,
    /// The most keys that the node remembers. A key takes some 400 bytes, or 800 if the node reports, and never
    /// more than 4 KiB with its name. Beyond this number the node forgets keys that it was not asked about lately.
    pub most_keys: usize,
    /// The seed of the hash table of the keys. It should differ from node to node, so that callers cannot
    /// choose keys that collide.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { node: Id::default(), most_keys: 1 << 14, seed: 0 }
    }
}

/// What to do about an operation, in this order.
#[derive(Debug)]
#[must_use = "the caller waits for an answer"]
pub struct NodeStep {
    /// The answer. Without one, ask the authority.
    pub answer: Option<LocalVerdict>,
    /// Operations of the node itself. Ask the authority for them, one after the other, and tell
    /// [`NodeCache::handle_verdict`](super::NodeCache::handle_verdict) the verdicts. No caller waits for them.
    pub own: Vec<Transmit>,
}

/// An operation of the node itself, to ask the authority for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The key.
    pub resolved: Resolved,
    /// The operation.
    pub operation: Operation,
}

/// What the node makes of an operation.
#[derive(Debug)]
pub(super) enum Next {
    Answer(LocalVerdict),
    /// Ask the authority, and then for units.
    Forward {
        budget: Option<Operation>,
    },
}

/// The authority's verdict on an operation.
#[derive(Clone, Copy, Debug)]
pub struct VerdictOf<'a> {
    /// The key.
    pub resolved: &'a Resolved,
    /// The operation.
    pub operation: &'a Operation,
    /// The verdict.
    pub verdict: &'a Verdict,
    /// The time of the [`NodeCache::ask`](super::NodeCache::ask) that said to ask the authority.
    pub sent: Micros,
    /// The time at which the verdict arrived, by the same clock.
    pub at: Micros,
}
