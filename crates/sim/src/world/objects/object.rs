//! An object: its real authority and replies, and beside them what its driver can know of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use anyhow::anyhow;
use tidegate_gate::{Micros, Policies, Timestamp};
use tidegate_tier::Authority;
use tidegate_tier::authority::{self, Swap};
use tidegate_tier::wire::{AuthorityOptions, Inbox, Place};

use super::wiretap::Name;
use crate::world::clock::Clock;
use crate::world::compared::Compared;
use crate::world::front::Run;
use crate::world::policies::{all, text_of};
use crate::world::setup::Setup;

/// Why storage failed.
pub(in crate::world) type Fault = &'static str;

#[derive(Debug)]
pub(in crate::world) struct Object {
    pub(in crate::world) authority: Authority<Place, Fault>,
    pub(in crate::world) inbox: Inbox<Run>,
    /// Both revisions.
    pub(in crate::world) policies: Vec<Policies>,
    pub(super) revision: usize,
    pub(super) clock: Clock,
    pub(super) born: u64,
    pub(super) refuses: bool,
    pub(super) partitions: BTreeMap<usize, Partition>,
    /// The records that the object must know.
    pub(super) known: BTreeSet<usize>,
    /// The questions that this life has begun.
    pub(super) begun: BTreeSet<Name>,
    /// The last operation of each node on each group, and the number of its question.
    pub(super) last: BTreeMap<(Run, usize), (usize, u64)>,
}

/// What waits for a partition.
#[derive(Debug, Default)]
pub(super) struct Partition {
    /// The operations that are not decided.
    pub(super) waiting: VecDeque<usize>,
    /// The operations whose swap is not over.
    pub(super) batch: Batch,
    pub(super) is_swapping: bool,
}

/// Operations and the times at which they are decided.
pub(super) type Batch = Vec<(usize, Timestamp)>;

/// A swap under way to storage and back.
#[derive(Debug)]
pub(super) struct UnderWay {
    pub(super) object: usize,
    pub(super) swap: Swap,
    pub(super) parts: Vec<Part>,
}

#[derive(Debug)]
pub(super) struct Part {
    pub(super) partition: usize,
    pub(super) records: Vec<Compared>,
    pub(super) outcome: Option<authority::SwapOutcome<Fault>>,
}

impl Part {
    /// Whether the partition reads what it must know before it decides.
    pub(super) fn reads(&self) -> bool {
        self.records.iter().any(|record| !record.is_known)
    }
}

impl Object {
    pub(in crate::world) fn new(setup: &Setup, number: usize) -> anyhow::Result<Self> {
        let policies: anyhow::Result<Vec<_>> =
            [0, 1].map(|revision| parse(setup, revision)).into_iter().collect();
        Ok(Self {
            authority: Authority::new(setup.authority(setup.is_only_writer)),
            inbox: inbox(setup),
            policies: policies?,
            revision: 0,
            clock: setup.clock(number),
            born: 0,
            refuses: false,
            partitions: BTreeMap::new(),
            known: BTreeSet::new(),
            begun: BTreeSet::new(),
            last: BTreeMap::new(),
        })
    }

    /// Its memory is gone.
    pub(in crate::world) fn restart(&mut self, setup: &Setup, now: u64) {
        self.authority = Authority::new(setup.authority(setup.is_only_writer));
        (self.inbox, self.born) = (inbox(setup), now);
        self.partitions.clear();
        self.known.clear();
        self.begun.clear();
        self.last.clear();
    }

    /// The times that the authority is told.
    pub(in crate::world) fn times(&self, start: u64, now: u64) -> (Timestamp, Micros) {
        (self.clock.at(start, now), Micros(now - self.born))
    }

    /// Whether anything waits for a decision or for storage.
    pub(super) fn has_work(&self) -> bool {
        self.partitions
            .values()
            .any(|partition| !partition.waiting.is_empty() || !partition.batch.is_empty())
    }
}

fn parse(setup: &Setup, revision: usize) -> anyhow::Result<Policies> {
    let mut text = String::new();
    for (name, texts) in all().filter(|(name, _)| setup.policies.iter().any(|own| own == name)) {
        let own = text_of(texts, revision);
        text.push_str(&format!("[policies.{name}]\n{own}\n"));
    }
    Policies::parse(&text).map_err(|error| anyhow!("{error}"))
}

fn inbox(setup: &Setup) -> Inbox<Run> {
    // a copy may come as long after the reply as a message is under way
    let time = Micros(2 * setup.linger + 1);
    Inbox::new(AuthorityOptions { bytes: setup.bytes, time, ..AuthorityOptions::default() })
}
