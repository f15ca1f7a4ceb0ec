//! The keys, homes and slices of a world, each with its number.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use tidegate_gate::{Kind, Limit, Limits, Policy, Resolved, blob};

use super::policies::{EDITED, POLICIES};
use super::setup::Setup;

/// The names and the texts of policies.
pub(super) type Texts = [(&'static str, &'static str)];

#[derive(Debug)]
pub(super) struct Places {
    /// The keys under the first edition of their policies, and then under the second.
    pub(super) keys: Vec<Key>,
    /// The number of keys of an edition.
    pub(super) of_edition: usize,
    /// The names of the slices.
    pub(super) slices: Vec<String>,
    /// The slices of each home.
    pub(super) homes: Vec<Vec<usize>>,
    by_name: BTreeMap<String, usize>,
}

/// A key that callers ask about.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) resolved: Resolved,
    pub(super) home: usize,
    /// The slices of the key's limits, in their order.
    pub(super) slices: Vec<usize>,
    pub(super) kinds: Kinds,
    /// Both editions of the policy have the same limits.
    pub(super) is_unedited: bool,
}

/// What the limits on a key count.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Kinds {
    pub(super) leases: bool,
    pub(super) connections: bool,
    pub(super) classes: bool,
    pub(super) reports: bool,
    /// Callers may take units in advance.
    pub(super) lends: bool,
}

impl Places {
    pub(super) fn new(setup: &Setup) -> anyhow::Result<Self> {
        Self::of(&setup.policies, setup.keys, &POLICIES)
    }

    /// The first keys of these policies.
    pub(super) fn of(policies: &[String], keys: usize, all: &Texts) -> anyhow::Result<Self> {
        let mut places = Self {
            keys: vec![],
            of_edition: 0,
            slices: vec![],
            homes: vec![],
            by_name: BTreeMap::new(),
        };
        for edition in [0, 1] {
            places.of_edition = places.keys.len();
            for name in policies {
                let found = all.iter().find(|(known, _)| known == name);
                let (_, texts) = found.with_context(|| format!("policies: `{name}` is unknown"))?;
                let text = texts.split(EDITED).nth(edition).unwrap_or(texts);
                let policy =
                    Policy::parse(name, text).map_err(|error| anyhow!("{name}: {error}"))?;
                let policy = Arc::new(policy);
                for number in 0..keys {
                    let resolved = Resolved::new(&policy, &format!("k/{number}"))?;
                    places.add(resolved, !texts.contains(EDITED));
                }
            }
        }
        Ok(places)
    }

    fn add(&mut self, resolved: Resolved, is_unedited: bool) {
        let is_home = |key: &Key| {
            Arc::ptr_eq(key.resolved.policy(), resolved.policy())
                && key.resolved.home() == resolved.home()
        };
        let known = self.keys.iter().find(|key| is_home(key));
        let home = known.map_or(self.homes.len(), |key| key.home);
        if home == self.homes.len() {
            self.homes.push(Vec::new());
        }
        let mut slices = Vec::new();
        // a listed key has no slices
        for slice in resolved.limits().map_or(&[][..], Limits::slices) {
            let name = blob::name(resolved.policy(), slice, resolved.key());
            let next = self.slices.len();
            let slice = *self.by_name.entry(name.clone()).or_insert(next);
            if slice == next {
                self.slices.push(name);
            }
            if !self.homes[home].contains(&slice) {
                self.homes[home].push(slice);
            }
            slices.push(slice);
        }
        let kinds = Kinds::of(&resolved);
        self.keys.push(Key { resolved, home, slices, kinds, is_unedited });
    }

    /// The longest period of the limits on any key, in µs.
    pub(super) fn longest_period(&self) -> u64 {
        let limits = self.keys.iter().filter_map(|key| key.resolved.limits());
        limits.map(|limits| limits.period().0).max().unwrap_or(0)
    }

    /// The slice of this name.
    pub(super) fn slice_named(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }
}

impl Kinds {
    fn of(resolved: &Resolved) -> Self {
        let mut kinds = Self::default();
        for named in resolved.limits().into_iter().flat_map(Limits::iter) {
            kinds.leases |= named.limit.kind() == Kind::Lease;
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
