//! A node: its real local part and authority, and beside them what the node's driver can know of them.

use std::collections::VecDeque;

use tidegate_gate::{Id, Micros, Timestamp, Verdict};
use tidegate_tier::authority::{Options, Swap};
use tidegate_tier::{Authority, NodeCache, cache};

use super::clock::Clock;
use super::known::Known;
use super::setup::Setup;

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
    pub(super) local: NodeCache,
    /// What the local part may know.
    pub(super) known: Known,
    /// The answers that came while the node was stopped.
    pub(super) inbox: Vec<(usize, Verdict)>,
    /// The node goes on at this time.
    pub(super) stopped_until: u64,
    /// The number of the node, and how often its local part has started anew.
    pub(super) run: (usize, u64),
    pub(super) clock: Clock,
    ticks_ppm: i64,
    /// The revision of the policies that the node has: 0 or 1.
    pub(super) revision: usize,
    /// When the node started.
    pub(super) born: u64,
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
    pub(super) is_flying: bool,
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
        let drift = setup.drifts_ppm.get(number).copied().unwrap_or(0);
        let run = (number, 0);
        Self {
            authority: authority(setup),
            local: local_part(setup, run),
            known: Known::default(),
            inbox: Vec::new(),
            stopped_until: 0,
            run,
            clock: Clock::new(drift, setup.skew),
            ticks_ppm: setup.ticks_ppm.get(number).copied().unwrap_or(0),
            revision: 0,
            born,
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
        let Self { clock, revision, run: (number, run), .. } = *self;
        let new = Self::new(setup, number, self.partitions.len(), now);
        *self = Self { clock, revision, run: (number, run), ..new };
        self.restart_local(setup);
    }

    /// The local part forgets everything, and takes units under another id.
    pub(super) fn restart_local(&mut self, setup: &Setup) {
        self.run.1 += 1;
        self.local = local_part(setup, self.run);
        self.known = Known::default();
        self.inbox.clear();
    }

    /// The id under which the node takes units.
    pub(super) fn holder(&self) -> Id {
        holder(self.run)
    }

    /// The time by a clock that never goes back.
    pub(super) fn monotonic(&self, now: u64) -> Micros {
        let passed = i128::from(now.saturating_sub(self.born));
        let shown = passed * (1_000_000 + i128::from(self.ticks_ppm)) / 1_000_000;
        Micros(u64::try_from(shown).unwrap_or(0))
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

fn holder((number, run): (usize, u64)) -> Id {
    Id([u64::try_from(number).unwrap_or(u64::MAX), run])
}

fn local_part(setup: &Setup, run: (usize, u64)) -> NodeCache {
    let (node, most_keys) = (holder(run), setup.most_keys);
    NodeCache::new(cache::Options { node, most_keys, seed: setup.start })
}

fn authority(setup: &Setup) -> Authority<usize, Fault> {
    Authority::new(Options {
        remembered: setup.remembered,
        is_only_writer: false,
        most_waiting: setup.most_waiting,
        most_records: setup.most_records,
        ttl_margin: Micros(setup.ttl_margin),
        patience: Micros(setup.patience),
        most_wait: Micros(setup.most_wait),
        seed: setup.start,
    })
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

/// A record that the storage compares and writes.
#[derive(Clone, Debug)]
pub(super) struct Compared {
    pub(super) record: usize,
    pub(super) found: Option<Vec<u8>>,
    pub(super) becomes: Option<Vec<u8>>,
    pub(super) ttl: Option<Micros>,
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
    Swapped(Vec<Result<tidegate_gate::Verdict, super::replay::Undone>>),
    /// It found other bytes, or refused to write: the bytes of the part's records, and the states of the partition
    /// at that moment.
    Read { found: Vec<Option<Vec<u8>>>, states: super::replay::States, is_refused: bool },
}
