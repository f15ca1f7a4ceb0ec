//! What was granted and returned, counted without the code of the limiters.

mod done;
mod holds;
mod rates;
mod shed;

use std::collections::BTreeMap;

use tidegate_gate::{Decision, Limit, Limiter, Operation, Record};

use super::places::Key;
pub(super) use done::Done;
use holds::{Holds, Room};
use rates::Rates;
use shed::Shed;

/// The account of each limit of each record.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    accounts: BTreeMap<(usize, usize), Account>,
}

/// What a limit has granted. Each kind of limit uses one of the fields.
#[derive(Debug, Default)]
struct Account {
    rates: Rates,
    holds: Holds,
    shed: Shed,
}

impl Ledger {
    /// Counts an operation on a key.
    pub(super) fn count(&mut self, key: &Key, done: &Done<'_>) -> Result<(), String> {
        let Some(limits) = key.resolved.limits().filter(|_| !done.operation.is_peek()) else {
            return Ok(()); // a look moves no clock
        };
        let mut said = done.verdict.limits.iter();
        for (record, place) in limits.records().iter().zip(&key.records) {
            for (at, named) in record.limits().iter().enumerate() {
                let account = self.accounts.entry((*place, at)).or_default();
                let Some(said) = said.next() else {
                    return Err(format!("a limit says nothing: {:?}", done.verdict));
                };
                account.count(&named.limit, done, said)?;
            }
            self.clear_if_reset(record, *place, done.operation);
        }
        Ok(())
    }

    fn clear_if_reset(&mut self, record: &Record, place: usize, operation: &Operation) {
        if matches!(operation, Operation::Reset(depth) if record.depth() >= *depth) {
            self.forget(place);
        }
    }

    pub(super) fn forget(&mut self, record: usize) {
        self.accounts.retain(|(of, _), _| *of != record);
    }

    pub(super) fn clear(&mut self) {
        self.accounts.clear();
    }
}

impl Account {
    fn count(&mut self, limit: &Limit, done: &Done<'_>, said: &Decision) -> Result<(), String> {
        if matches!(done.operation, Operation::Reset(_) | Operation::Block(_)) {
            return Ok(()); // the limits only look, which moves no clock
        }
        is_locked_no_longer_than_stated(limit, said)?;
        match limit {
            Limit::TokenBucket(_)
            | Limit::FixedWindow(_)
            | Limit::SlidingWindow(_)
            | Limit::SlidingLog(_) => self.rates.count(limit, done, said.remaining()),
            Limit::Concurrency(leases) => {
                let (places, holders) = (leases.capacity(), leases.max_leases());
                self.holds.count(Room { places, holders, time: leases.period().0 }, done, said)
            }
            Limit::Connections(owners) => {
                let (places, holders) = (owners.limit(), owners.max_owners());
                let room = Room { places, holders, time: owners.period().0 };
                self.holds.count_owners(room, done, said)
            }
            Limit::Fleet(fleet) => {
                let places = fleet.capacity() - fleet.reserve();
                let room = Room { places, holders: usize::MAX, time: fleet.period().0 };
                self.holds.count_low(room, done)
            }
            Limit::Utilization(config) => self.shed.count_signal(config, done, said),
            Limit::Suppression(config) => self.shed.count_load(config, done, said),
            Limit::Penalty(config) => self.shed.count_refusal(config.terms(), done, said),
            _ => Ok(()),
        }
    }
}

/// What is used comes back within a period, and a debt of one more capacity within another one.
fn is_locked_no_longer_than_stated(limit: &Limit, said: &Decision) -> Result<(), String> {
    let most = limit.period().0.saturating_mul(2);
    match said.retry_after().0 <= most {
        true => Ok(()),
        false => Err(format!("{limit:?} refuses for more than {most} µs: {said:?}")),
    }
}
