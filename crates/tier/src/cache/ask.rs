//! What a node is asked, and what it is told.

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

/// What to do about an operation.
#[derive(Debug)]
#[must_use = "the caller waits for an answer"]
pub enum Next {
    /// Send this answer.
    Answer(LocalVerdict),
    /// Ask the authority.
    Forward {
        /// An operation of the node itself. Ask the authority for it after the other one, and tell
        /// [`NodeCache::handle_verdict`](super::NodeCache::handle_verdict) the verdict.
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
