//! An object: its real authority and replies, and beside them what its driver can know of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use anyhow::anyhow;
use tidegate_gate::{Micros, Policies, Timestamp};
use tidegate_tier::Authority;
use tidegate_tier::authority::{self, Swap};
use tidegate_tier::wire::{AuthorityOptions, Inbox, Place};

use super::super::clock::Clock;
use super::super::policies::EDITED;
use super::node::Run;
use super::policies::all;
use super::setup::Setup;
use super::wiretap::Name;

/// Why storage failed.
pub(super) type Fault = &'static str;

#[derive(Debug)]
pub(super) struct Object {
    pub(super) authority: Authority<Place, Fault>,
    pub(super) inbox: Inbox<Run>,
    /// Both revisions.
    pub(super) policies: Vec<Policies>,
    pub(super) revision: usize,
    pub(super) clock: Clock,
    pub(super) born: u64,
    pub(super) refuses: bool,
    pub(super) partitions: BTreeMap<usize, Partition>,
    /// The records that the object must know.
    pub(super) known: BTreeSet<usize>,
    /// The questions that this life has begun.
    pub(super) begun: BTreeSet<Name>,
    /// The last operation of each node on each partition, and the number of its question.
    pub(super) last: BTreeMap<(Run, usize), (usize, u64)>,
}

/// What waits for a partition.
#[derive(Debug, Default)]
pub(super) struct Partition {
    /// The operations that are not decided.
    pub(super) waiting: VecDeque<usize>,
    /// The operations whose swap is not over.
    pub(super) batch: Batch,
    pub(super) is_flying: bool,
}

/// Operations and the times at which they are decided.
pub(super) type Batch = Vec<(usize, Timestamp)>;

/// A swap under way to storage and back.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) object: usize,
    pub(super) swap: Swap,
    pub(super) parts: Vec<Part>,
}

#[derive(Debug)]
pub(super) struct Part {
    pub(super) partition: usize,
    pub(super) records: Vec<Compared>,
    pub(super) outcome: Option<authority::Outcome<Fault>>,
}

#[derive(Debug)]
pub(super) struct Compared {
    pub(super) record: usize,
    pub(super) found: Option<Vec<u8>>,
    pub(super) is_known: bool,
    pub(super) becomes: Option<Vec<u8>>,
    pub(super) ttl: Option<Micros>,
}

impl Part {
    /// Whether the partition reads what it must know before it decides.
    pub(super) fn reads(&self) -> bool {
        self.records.iter().any(|record| !record.is_known)
    }
}

impl Object {
    pub(super) fn new(setup: &Setup, number: usize) -> anyhow::Result<Self> {
        let policies: anyhow::Result<Vec<_>> =
            [0, 1].map(|revision| parse(setup, revision)).into_iter().collect();
        let drift = i64::try_from(setup.drift_ppm)?;
        let drift = if number.is_multiple_of(2) { drift } else { -drift };
        Ok(Self {
            authority: authority(setup),
            inbox: inbox(setup),
            policies: policies?,
            revision: 0,
            clock: Clock::new(drift, setup.skew),
            born: 0,
            refuses: false,
            partitions: BTreeMap::new(),
            known: BTreeSet::new(),
            begun: BTreeSet::new(),
            last: BTreeMap::new(),
        })
    }

    /// Its memory is gone.
    pub(super) fn restart(&mut self, setup: &Setup, now: u64) {
        (self.authority, self.inbox, self.born) = (authority(setup), inbox(setup), now);
        self.partitions.clear();
        self.known.clear();
        self.begun.clear();
        self.last.clear();
    }

    /// The times that the authority is told.
    pub(super) fn times(&self, start: u64, now: u64) -> (Timestamp, Micros) {
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
        let own = texts.split(EDITED).nth(revision).unwrap_or(texts);
        text.push_str(&format!("[policies.{name}]\n{own}\n"));
    }
    Policies::parse(&text).map_err(|error| anyhow!("{error}"))
}

fn inbox(setup: &Setup) -> Inbox<Run> {
    let bytes = usize::try_from(setup.bytes).unwrap_or(usize::MAX);
    // a copy may come as long after the reply as a message is under way
    let time = Micros(2 * setup.linger + 1);
    Inbox::new(AuthorityOptions { bytes, time, ..AuthorityOptions::default() })
}

fn authority(setup: &Setup) -> Authority<Place, Fault> {
    let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    Authority::new(authority::Options {
        remembered: size(setup.remembered),
        most_waiting: size(setup.most_waiting),
        is_only_writer: true,
        most_records: size(setup.most_records),
        ttl_margin: Micros(setup.ttl_margin),
        patience: Micros(setup.patience),
        most_wait: Micros(setup.most_wait),
        seed: setup.start,
    })
}
