//! The keys, partitions and records of a world, each with its number.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use tidegate_gate::{Kind, Limit, Limits, Policy, Resolved, blob};

use super::policies::{EDITED, all, text_of};
use super::setup::Setup;

#[derive(Debug)]
pub(super) struct Places {
    /// The keys under the first revision of their policies, and then under the second.
    pub(super) keys: Vec<Key>,
    /// The number of keys of an revision.
    pub(super) of_revision: usize,
    /// The names of the records.
    pub(super) records: Vec<String>,
    /// The records of each partition.
    pub(super) partitions: Vec<Vec<usize>>,
    by_name: BTreeMap<String, usize>,
}

/// A key that callers ask about.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) resolved: Resolved,
    pub(super) partition: usize,
    /// The number of the first key whose questions go the same way, one after another.
    pub(super) group: usize,
    /// The records of the key's limits, in their order.
    pub(super) records: Vec<usize>,
    pub(super) kinds: Kinds,
    /// Both revisions of the policy have the same limits.
    pub(super) is_unedited: bool,
}

/// What the limits on a key count.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Kinds {
    pub(super) leases: bool,
    pub(super) connections: bool,
    pub(super) classes: bool,
    pub(super) reports: bool,
    /// Callers may reserve units.
    pub(super) reserves: bool,
    /// Callers may take units in advance.
    pub(super) lends: bool,
    /// Some limits pay, and units come back to them by a commit alone.
    pub(super) pays: bool,
}

impl Places {
    pub(super) fn new(setup: &Setup) -> anyhow::Result<Self> {
        let mut places = Self {
            keys: vec![],
            of_revision: 0,
            records: vec![],
            partitions: vec![],
            by_name: BTreeMap::new(),
        };
        for revision in [0, 1] {
            places.of_revision = places.keys.len();
            for name in &setup.policies {
                let found = all().find(|(known, _)| known == name);
                let (_, texts) = found.with_context(|| format!("policies: `{name}` is unknown"))?;
                let text = text_of(texts, revision);
                let policy =
                    Policy::parse(name, &text).map_err(|error| anyhow!("{name}: {error}"))?;
                let policy = Arc::new(policy);
                for number in 0..setup.keys {
                    let resolved = Resolved::new(&policy, &format!("k/{number}"))?;
                    places.add(resolved, !texts.contains(EDITED));
                }
            }
        }
        Ok(places)
    }

    fn add(&mut self, resolved: Resolved, is_unedited: bool) {
        let is_partition = |key: &Key| {
            Arc::ptr_eq(key.resolved.policy(), resolved.policy())
                && key.resolved.partition() == resolved.partition()
        };
        let known = self.keys.iter().find(|key| is_partition(key));
        let partition = known.map_or(self.partitions.len(), |key| key.partition);
        if partition == self.partitions.len() {
            self.partitions.push(Vec::new());
        }
        let is_group = |key: &Key| {
            Arc::ptr_eq(key.resolved.policy(), resolved.policy())
                && key.resolved.group() == resolved.group()
        };
        let group = self.keys.iter().position(is_group).unwrap_or(self.keys.len());
        let mut records = Vec::new();
        // a listed key has no records
        for record in resolved.limits().map_or(&[][..], Limits::records) {
            let name = blob::name(resolved.policy(), record, resolved.key());
            let next = self.records.len();
            let record = *self.by_name.entry(name.clone()).or_insert(next);
            if record == next {
                self.records.push(name);
            }
            if !self.partitions[partition].contains(&record) {
                self.partitions[partition].push(record);
            }
            records.push(record);
        }
        let kinds = Kinds::of(&resolved);
        self.keys.push(Key { resolved, partition, group, records, kinds, is_unedited });
    }

    /// The longest period of the limits on any key, in µs.
    pub(super) fn longest_period(&self) -> u64 {
        let limits = self.keys.iter().filter_map(|key| key.resolved.limits());
        limits.map(|limits| limits.period().0).max().unwrap_or(0)
    }

    /// The longest span for which a reservation is live or remembered, in µs.
    pub(super) fn longest_reservation(&self) -> u64 {
        let own = self.keys.iter().filter_map(|key| key.resolved.policy().reservations());
        own.map(|own| own.terms().longest.0 + own.terms().remember.0).max().unwrap_or(0)
    }

    /// The number of a key under this revision of its policy.
    pub(super) fn key_of(&self, resolved: &Resolved, revision: usize) -> Option<usize> {
        let mut keys = self.keys.iter().enumerate().skip(revision * self.of_revision);
        keys.find(|(_, key)| key.resolved == *resolved).map(|(number, _)| number)
    }

    /// The record of this name.
    pub(super) fn record_named(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }
}

impl Kinds {
    fn of(resolved: &Resolved) -> Self {
        let reserves = resolved.policy().reservations().is_some();
        let mut kinds = Self { reserves, ..Self::default() };
        for named in resolved.limits().into_iter().flat_map(Limits::iter) {
            kinds.leases |= named.limit.kind() == Kind::Lease;
            kinds.pays |= named.payer.is_some();
            match named.limit {
                Limit::Connections(_) => kinds.connections = true,
                Limit::Fleet(_) | Limit::Utilization(_) => kinds.classes = true,
                Limit::Suppression(_) => (kinds.classes, kinds.reports) = (true, true),
                Limit::Budget(_) => kinds.lends = resolved.policy().local().is_none(),
                _ => {}
            }
        }
        kinds
    }
}
