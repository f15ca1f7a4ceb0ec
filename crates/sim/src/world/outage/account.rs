//! The grants of the hosts, counted without the code of the limiters.

use std::collections::{BTreeMap, BTreeSet};

use crate::world::violation::{Checked, Invariant, check};

/// The units that were granted, by record.
#[derive(Debug, Default)]
pub(super) struct Account {
    by_store: BTreeMap<usize, u64>,
    /// Since the store went away.
    by_shares: BTreeMap<usize, u64>,
    /// Of each host in each of its lives.
    by_life: BTreeMap<(usize, usize, u64), u64>,
    /// The lives of hosts that the store has answered.
    answered: BTreeSet<(usize, u64)>,
}

impl Account {
    /// The store goes away.
    pub(super) fn begin(&mut self) {
        self.by_shares.clear();
    }

    /// The store has answered a host.
    pub(super) fn answered(&mut self, host: usize, life: u64) {
        self.answered.insert((host, life));
    }

    /// The store has granted a request. It hears of no share, so it grants one limit.
    pub(super) fn by_store(&mut self, (record, limit): (usize, u64), cost: u64) -> Checked {
        let units = self.by_store.entry(record).or_default();
        *units += cost;
        check(*units <= limit, Invariant::Bound, || {
            format!("the store has granted {units} of {limit} units of record {record}")
        })
    }

    /// A host has granted a request by its share: in any period an outage costs at most one more limit. A host that has begun anew has
    /// no share before the store has answered it.
    pub(super) fn by_share(
        &mut self,
        (record, limit): (usize, u64),
        (host, life, hosts): (usize, u64, u64),
        cost: u64,
    ) -> Checked {
        let all = self.by_shares.entry(record).or_default();
        *all += cost;
        let own = self.by_life.entry((record, host, life)).or_default();
        *own += cost;
        let holds = *all <= limit && hosts * *own <= limit && self.answered.contains(&(host, life));
        check(holds, Invariant::Bound, || {
            format!(
                "host {host} of {hosts} has granted {own} units of record {record}, and all {all} of {limit}"
            )
        })
    }
}
