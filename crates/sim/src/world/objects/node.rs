//! A node: its real local part and flights, and beside them what its callers wait for.

use std::collections::{BTreeMap, VecDeque};

use tidegate_gate::Micros;
use tidegate_tier::wire::{NodeOptions, Outbox};

use crate::world::front::{Front, Run, id};
use crate::world::setup::Setup;

#[derive(Debug)]
pub(in crate::world) struct Node {
    pub(in crate::world) front: Front,
    pub(in crate::world) flights: Outbox<usize>,
    /// The operations that are in no question, by policy and partition.
    pub(in crate::world) queues: BTreeMap<(String, String), VecDeque<usize>>,
}

impl Node {
    pub(in crate::world) fn new(setup: &Setup, run: Run, revision: usize) -> Self {
        Self {
            front: Front::new(setup, run, revision, 0),
            flights: Outbox::new(NodeOptions {
                node: id(run),
                most: setup.most,
                most_of_a_group: setup.most_of_a_group,
                most_under_way: setup.most_under_way,
                most_operations: setup.most_operations,
                most_bytes: setup.most_bytes,
                deadline: Micros(setup.deadline),
            }),
            queues: BTreeMap::new(),
        }
    }
}
