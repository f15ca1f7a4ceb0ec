//! A node: the real one, and beside it what its callers wait for.

use std::collections::{BTreeMap, VecDeque};

use tidegate_gate::Micros;
use tidegate_tier::Node as Asks;
use tidegate_tier::Outage;
use tidegate_tier::outage::Shares;
use tidegate_tier::wire::{NodeOptions, Outbox};

use crate::world::front::{Front, Run, cache_options, id};
use crate::world::setup::Setup;

#[derive(Debug)]
pub(in crate::world) struct Node {
    pub(in crate::world) front: Front,
    pub(in crate::world) asks: Asks<usize>,
    /// The operations that are in no question, by policy and group.
    pub(in crate::world) queues: BTreeMap<(String, String), VecDeque<usize>>,
}

impl Node {
    pub(in crate::world) fn new(setup: &Setup, run: Run, revision: usize) -> Self {
        let outbox = NodeOptions {
            node: id(run),
            most: setup.most,
            most_of_a_group: setup.most_of_a_group,
            most_under_way: setup.most_under_way,
            most_operations: setup.most_operations,
            most_bytes: setup.most_bytes,
            deadline: Micros(setup.deadline),
        };
        Self {
            front: Front::new(setup, run, revision, 0),
            asks: Asks::new(
                cache_options(setup, run),
                outbox,
                (0, Shares::Own(Outage::new(1 << 20))),
            ),
            queues: BTreeMap::new(),
        }
    }

    /// The node's outbox.
    pub(in crate::world) const fn outbox(&mut self) -> &mut Outbox<Option<usize>> {
        self.asks.outbox()
    }
}
