//! A node: a real authority, and beside it what the node's driver can know of it.

use std::collections::VecDeque;

use tidegate_gate::{Micros, Timestamp};
use tidegate_tier::Authority;
use tidegate_tier::authority::{Options, Swap};

use super::clock::Clock;
use super::setup::Setup;

/// Why the storage failed an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// No reply came in time.
    Deadline,
    /// The storage refused to write.
    Refused,
}

/// A node and its callers. Operations, homes and slices are numbers.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) authority: Authority<usize, Fault>,
    pub(super) clock: Clock,
    /// The edition of the policies that the node has: 0 or 1.
    pub(super) edition: usize,
    /// When the node started.
    pub(super) born: u64,
    pub(super) homes: Vec<Home>,
    /// The homes that the authority decides next, in this order.
    pub(super) ready: VecDeque<usize>,
    /// How many operations are not answered.
    pub(super) waiting: usize,
    pub(super) overloaded: u64,
}

/// What waits for a home.
#[derive(Clone, Debug, Default)]
pub(super) struct Home {
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
    pub(super) fn new(setup: &Setup, number: usize, homes: usize, born: u64) -> Self {
        let drift = setup.drifts_ppm.get(number).copied().unwrap_or(0);
        Self {
            authority: authority(setup),
            clock: Clock::new(drift, setup.skew),
            edition: 0,
            born,
            homes: vec![Home::default(); homes],
            ready: VecDeque::new(),
            waiting: 0,
            overloaded: 0,
        }
    }

    /// Whether operations are decided and not sent.
    pub(super) fn has_decided(&self) -> bool {
        self.ready.iter().any(|home| !self.homes[*home].batch.is_empty())
    }

    /// Forgets everything but the time.
    pub(super) fn crash(&mut self, setup: &Setup, now: u64) {
        let (clock, homes) = (self.clock, self.homes.len());
        *self = Self { clock, ..Self::new(setup, 0, homes, now) };
    }
}

impl Home {
    /// Whether anything is left to be decided or written.
    pub(super) fn has_work(&self) -> bool {
        self.is_decided() || !self.waiting.is_empty()
    }

    /// Whether anything that is decided waits for a swap.
    pub(super) fn is_decided(&self) -> bool {
        self.needs_write || self.batch.iter().any(|decided| !decided.is_answered)
    }

    /// The authority has forgotten the states of the home.
    pub(super) fn forget(&mut self) {
        self.batch.clear();
        (self.needs_write, self.lost_since) = (false, None);
    }
}

fn authority(setup: &Setup) -> Authority<usize, Fault> {
    Authority::new(Options {
        remembered: setup.remembered,
        most_waiting: setup.most_waiting,
        most_slices: setup.most_slices,
        keep_longer: Micros(setup.keep_longer),
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

/// The part of a swap that concerns one home.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) home: usize,
    pub(super) slices: Vec<Compared>,
    pub(super) batch: Vec<Decided>,
    pub(super) stage: Stage,
    pub(super) outcome: Option<Outcome>,
}

/// A slice that the storage compares and writes.
#[derive(Clone, Debug)]
pub(super) struct Compared {
    pub(super) slice: usize,
    pub(super) found: Option<Vec<u8>>,
    pub(super) becomes: Option<Vec<u8>>,
    pub(super) keep: Option<Micros>,
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
    /// It found other bytes, or refused to write: the bytes of the part's slices, and the states of the home
    /// at that moment.
    Read { found: Vec<Option<Vec<u8>>>, states: super::replay::States, is_refused: bool },
}
