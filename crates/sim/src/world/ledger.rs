//! What was granted and returned, counted without the code of the limiters.

mod done;
mod holds;
mod rates;
mod reserved;
mod shed;
mod units;

use std::collections::BTreeMap;

use tidegate_core::hold::Committed;
use tidegate_gate::{Decision, Effect, Limit, Limiter, Operation, Record, Timestamp, Verdict};

use super::places::Key;
use super::replay::States;
use super::tally::Tally;
pub(super) use done::Done;
use holds::{Holds, Room};
use rates::Rates;
use reserved::{Reserved, Says};
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
    reserved: Reserved,
}

impl Ledger {
    /// Counts an operation on a key. The states after it are given too.
    pub(super) fn count(
        &mut self,
        key: &Key,
        done: &Done<'_>,
        after: &States,
        tally: &mut Tally,
    ) -> Result<(), String> {
        self.count_each(key, done, after, |_, _| true, tally)
    }

    /// The same for limits with reservations alone.
    pub(super) fn count_reservations(
        &mut self,
        key: &Key,
        done: &Done<'_>,
        after: &States,
        tally: &mut Tally,
    ) -> Result<(), String> {
        // what is stored ahead, or forgotten with it, is not known here
        let is_ahead = key.resolved.policy().persist_ahead().is_some();
        let is_meant = |limit: &Limit, account: &mut Account| {
            if is_ahead {
                account.reserved.lose_units();
            }
            matches!(limit, Limit::Holding(_))
        };
        self.count_each(key, done, after, is_meant, tally)
    }

    fn count_each(
        &mut self,
        key: &Key,
        done: &Done<'_>,
        after: &States,
        is_meant: impl Fn(&Limit, &mut Account) -> bool,
        tally: &mut Tally,
    ) -> Result<(), String> {
        let Some(limits) = key.resolved.limits().filter(|_| !done.operation.is_peek()) else {
            return Ok(()); // a look moves no clock
        };
        let mut said = done.verdict.limits.iter();
        let (mut says, mut full) = (Vec::new(), None);
        for (record, place) in limits.records().iter().zip(&key.records) {
            let words = after
                .words(key, record, *place, Timestamp::EPOCH)
                .map_err(|error| format!("{error:?}"))?
                .0;
            let mut words = words.as_slice();
            for (at, named) in record.limits().iter().enumerate() {
                let account = self.accounts.entry((*place, at)).or_default();
                let Some(own_said) = said.next() else {
                    return Err(format!("a limit says nothing: {:?}", done.verdict));
                };
                let (own, rest) = words.split_at(named.limit.words());
                words = rest;
                let place_of_limit = done.verdict.limits.len() - said.len() - 1;
                match &named.limit {
                    limit if !is_meant(limit, account) => {}
                    // a payer that stands aside takes nothing
                    _ if named.payer.is_some()
                        && done.verdict.effect.payer() != Some(place_of_limit) => {}
                    Limit::Holding(_) if clears(done.operation) => says.push(Says::Nothing),
                    Limit::Holding(limit) => {
                        is_locked_no_longer_than_stated(&named.limit, own_said)?;
                        let own_says =
                            account.reserved.count(limit, done, (own_said, own), tally)?;
                        if own_says == Says::Full && !named.shadow {
                            full = full.or(u8::try_from(place_of_limit).ok());
                        }
                        says.push(own_says);
                    }
                    limit => account.count(limit, done, own_said)?,
                }
            }
            self.clear_if_reset(record, *place, done.operation);
        }
        if limits.paid_by(done.verdict).and_then(|named| named.payer).is_some_and(|place| place > 0)
        {
            tally.add("a later payer paid");
        }
        check_effect(done, &says, full)
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
        if clears(done.operation) {
            return Ok(());
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

/// Whether the limits only look, which moves no clock.
const fn clears(operation: &Operation) -> bool {
    matches!(operation, Operation::Reset(_) | Operation::Block(_))
}

/// The answer about a reservation is that of all limits which hold it: the most that one of them charged, and late if it
/// had ended under one of them. A refusal names the limit that is `full`.
fn check_effect(done: &Done<'_>, says: &[Says], full: Option<u8>) -> Result<(), String> {
    if says.is_empty() || says.contains(&Says::Anything) {
        return Ok(());
    }
    let Verdict { decision, effect: found, .. } = *done.verdict;
    let by = found.payer().and_then(|by| u8::try_from(by).ok());
    let expected = match done.operation {
        Operation::Commit(..) => {
            let committed = says.iter().filter_map(|says| match says {
                Says::Committed(said) => Some(*said),
                _ => None,
            });
            let all = committed.reduce(|one, other| Committed {
                charged: one.charged.max(other.charged),
                late: one.late | other.late,
            });
            all.map(|Committed { charged, late }| Effect::Committed { charged, late, by })
        }
        // a block refuses whatever the limits say
        Operation::Decide(_) if !decision.is_allowed() => {
            let is_blocked = decision.remaining() == 0 && found == Effect::Decision;
            full.filter(|_| !is_blocked).map(|limit| Effect::Full { limit, by: None })
        }
        Operation::Decide(_) => says.iter().find_map(|says| match *says {
            Says::Holds { units, until } => {
                Some(Effect::Reserved { units, until: Timestamp(until), by })
            }
            _ => None,
        }),
        _ => return Ok(()),
    };
    let otherwise = by.map_or(Effect::Decision, |by| Effect::Paid { by });
    let expected = expected.unwrap_or(otherwise);
    match found == expected {
        true => Ok(()),
        false => Err(format!("{:?}: {found:?}, expected {expected:?}", done.operation)),
    }
}

/// What is used comes back within a period, and a debt of one more capacity within another one.
fn is_locked_no_longer_than_stated(limit: &Limit, said: &Decision) -> Result<(), String> {
    let mut most = limit.period().0.saturating_mul(2);
    if let Limit::Holding(limit) = limit {
        // until a reservation ends and is forgotten, so that there is a place for another one
        most += limit.terms().longest.0 + limit.terms().remember.0;
    }
    match said.retry_after().0 <= most {
        true => Ok(()),
        false => Err(format!("{limit:?} refuses for more than {most} µs: {said:?}")),
    }
}
