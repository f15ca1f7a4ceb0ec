//! A node: its real local part and flights, and beside them what its callers wait for.

use std::collections::{BTreeMap, VecDeque};

use tidegate_gate::{Id, Micros, Verdict};
use tidegate_tier::wire::{NodeOptions, Outbox};
use tidegate_tier::{NodeCache, cache};

use super::setup::Setup;

/// The number of a node, and how often it has started again.
pub(super) type Run = (usize, u64);

#[derive(Debug)]
pub(super) struct Node {
    pub(super) run: Run,
    pub(super) local: NodeCache,
    pub(super) flights: Outbox<usize>,
    /// The operations that are in no question, by policy and partition.
    pub(super) queues: BTreeMap<(String, String), VecDeque<usize>>,
    pub(super) revision: usize,
    pub(super) stopped_until: u64,
    ticks_ppm: u64,
    /// The refusals that the node has heard: the key, the cost, when it asked, and the verdict.
    pub(super) refusals: Vec<(usize, u64, Micros, Verdict)>,
}

/// No two runs have the same.
pub(super) fn id((node, run): Run) -> Id {
    Id([u64::try_from(node).unwrap_or(u64::MAX), run])
}

impl Node {
    pub(super) fn new(setup: &Setup, run: Run, revision: usize) -> Self {
        let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let node = id(run);
        let ticks_ppm = match run.0.is_multiple_of(2) {
            true => 1_000_000 + setup.ticks_ppm,
            false => 1_000_000 - setup.ticks_ppm,
        };
        Self {
            run,
            local: NodeCache::new(cache::Options {
                node,
                most_keys: size(setup.most_keys),
                seed: 0,
            }),
            flights: Outbox::new(NodeOptions {
                node,
                most: size(setup.most),
                most_under_way: size(setup.most_under_way),
                most_operations: size(setup.most_operations),
                most_bytes: size(setup.most_bytes),
                deadline: Micros(setup.deadline),
                ..NodeOptions::default()
            }),
            queues: BTreeMap::new(),
            revision,
            stopped_until: 0,
            ticks_ppm,
            refusals: Vec::new(),
        }
    }

    /// The time by a clock that never goes back.
    pub(super) fn at(&self, now: u64) -> Micros {
        let shown = u128::from(now) * u128::from(self.ticks_ppm) / 1_000_000;
        Micros(u64::try_from(shown).unwrap_or(u64::MAX))
    }
}
