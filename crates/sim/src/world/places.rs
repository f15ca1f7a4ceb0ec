//! The keys, homes and slices of a world, each with its number.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use tidegate_gate::{Policy, Resolved, blob};

use super::setup::{EDITED, POLICIES, Setup};

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
    pub(super) holds_leases: bool,
    /// Both editions of the policy have the same limits.
    pub(super) is_unedited: bool,
}

impl Places {
    pub(super) fn new(setup: &Setup) -> anyhow::Result<Self> {
        let mut places = Self {
            keys: vec![],
            of_edition: 0,
            slices: vec![],
            homes: vec![],
            by_name: BTreeMap::new(),
        };
        for edition in [0, 1] {
            places.of_edition = places.keys.len();
            for name in &setup.policies {
                let found = POLICIES.iter().find(|(known, _)| known == name);
                let (_, texts) = found.with_context(|| format!("policies: `{name}` is unknown"))?;
                let text = texts.split(EDITED).nth(edition).unwrap_or(texts);
                let policy =
                    Policy::parse(name, text).map_err(|error| anyhow!("{name}: {error}"))?;
                let policy = Arc::new(policy);
                for number in 0..setup.keys {
                    let resolved = Resolved::new(&policy, &format!("k/{number}"))?;
                    places.add(resolved, !texts.contains(EDITED))?;
                }
            }
        }
        Ok(places)
    }

    fn add(&mut self, resolved: Resolved, is_unedited: bool) -> anyhow::Result<()> {
        let limits = resolved.limits().context("the key is listed")?;
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
        for slice in limits.slices() {
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
        let holds_leases = resolved.policy().name() == "leases";
        self.keys.push(Key { resolved, home, slices, holds_leases, is_unedited });
        Ok(())
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
