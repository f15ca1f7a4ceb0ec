//! A node: its real cache and authority, and beside them what the node's driver can know of them.

use std::collections::VecDeque;

use tidegate_gate::{Timestamp, Verdict};
use tidegate_tier::authority::Swap;
use tidegate_tier::{Authority, NodeCache};

use crate::world::clock::Clock;
use crate::world::compared::Compared;
use crate::world::front::{Front, cache_options};
use crate::world::setup::Setup;

/// Why the storage failed an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// No reply came in time.
    Deadline,
    /// The storage refused to write.
    Refused,
}

/// A node and its callers. Operations, partitions and records are numbers.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) authority: Authority<usize, Fault>,
    pub(super) cache: NodeCache,
    pub(super) front: Front,
    /// The answers that came while the node was stopped.
    pub(super) inbox: Vec<(usize, Verdict)>,
    pub(super) clock: Clock,
    pub(super) partitions: Vec<Partition>,
    /// The partitions that the authority decides next, in this order.
    pub(super) ready: VecDeque<usize>,
    /// How many operations are not answered.
    pub(super) waiting: usize,
    pub(super) overloaded: u64,
}

/// What waits for a partition.
#[derive(Clone, Debug, Default)]
pub(super) struct Partition {
    /// The operations that are not decided, in the order in which they came.
    pub(super) waiting: VecDeque<usize>,
    /// The operations that the next swap makes true.
    pub(super) batch: Vec<Decided>,
    pub(super) is_swapping: bool,
    /// A refusal that was answered has moved the newest time, which is not stored yet.
    pub(super) needs_write: bool,
    /// When other writers first came before the present swap, by the node's monotonic clock.
    pub(super) lost_since: Option<u64>,
}

/// An operation and the time at which it is decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decided {
    pub(super) operation: usize,
    pub(super) time: Timestamp,
    /// It was answered from what was read.
    pub(super) is_answered: bool,
}

impl Node {
    pub(super) fn new(setup: &Setup, number: usize, partitions: usize, born: u64) -> Self {
        Self {
            authority: Authority::new(setup.authority(false)),
            cache: NodeCache::new(cache_options(setup, (number, 0))),
            front: Front::new(setup, (number, 0), 0, born),
            inbox: Vec::new(),
            clock: setup.clock(number),
            partitions: vec![Partition::default(); partitions],
            ready: VecDeque::new(),
            waiting: 0,
            overloaded: 0,
        }
    }

    /// Whether operations are decided and not sent.
    pub(super) fn has_decided(&self) -> bool {
        self.ready.iter().any(|partition| !self.partitions[*partition].batch.is_empty())
    }

    /// Forgets everything but the time and the revision of its policies.
    pub(super) fn crash(&mut self, setup: &Setup, now: u64) {
        let Self { clock, front: Front { revision, run: (number, run), .. }, .. } = *self;
        let mut new = Self::new(setup, number, self.partitions.len(), now);
        (new.clock, new.front.revision, new.front.run.1) = (clock, revision, run);
        *self = new;
        self.restart_cache(setup);
    }

    /// The cache forgets everything, and takes units under another id.
    pub(super) fn restart_cache(&mut self, setup: &Setup) {
        let Front { run: (number, run), revision, ticks, stopped_until, .. } = self.front;
        let run = (number, run + 1);
        self.cache = NodeCache::new(cache_options(setup, run));
        let new = Front::new(setup, run, revision, ticks.from);
        self.front = Front { stopped_until, ..new };
        self.inbox.clear();
    }
}

impl Partition {
    /// Whether anything is left to be decided or written.
    pub(super) fn has_work(&self) -> bool {
        self.is_decided() || !self.waiting.is_empty()
    }

    /// Whether anything that is decided waits for a swap.
    pub(super) fn is_decided(&self) -> bool {
        self.needs_write || self.batch.iter().any(|decided| !decided.is_answered)
    }

    /// The authority has forgotten the states of the partition.
    pub(super) fn forget(&mut self) {
        self.batch.clear();
        (self.needs_write, self.lost_since) = (false, None);
    }
}

/// A message to the table, or from it. It concerns the operation of this number.
#[derive(Clone, Debug)]
pub(super) enum Letter {
    Question(usize),
    Reply(usize, Verdict),
}

/// A swap on its way to the storage and back.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) node: usize,
    pub(super) sent: u64,
    /// `None` once the node has taken the outcome, or is no more.
    pub(super) swap: Option<Swap>,
    pub(super) parts: Vec<Part>,
}

/// The part of a swap that concerns one partition.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) partition: usize,
    pub(super) records: Vec<Compared>,
    pub(super) batch: Vec<Decided>,
    pub(super) stage: Stage,
    pub(super) outcome: Option<Outcome>,
}

/// Where a part of a swap is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// On its way to the storage.
    Sent,
    /// Executed; the reply is under way.
    Executed,
    /// The reply has arrived.
    Arrived,
    /// Nothing more comes of it.
    Lost,
}

/// What the storage did.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    /// It wrote, and these are the answers of the batch.
    Swapped(Vec<Result<tidegate_gate::Verdict, crate::world::replay::Undone>>),
    /// It found other bytes, or refused to write: the bytes of the part's records, and the states of the partition
    /// at that moment.
    Read { found: Vec<Option<Vec<u8>>>, states: crate::world::replay::States, is_refused: bool },
}
