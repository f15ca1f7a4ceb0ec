//! What was granted and returned, counted without the code of the limiters.

use std::collections::{BTreeMap, VecDeque};

use tidegate_gate::{Id, Limit, Limiter, Operation, RateLimiter, Slice, Timestamp, Verdict};

use super::places::Key;

/// How many grants of a limit are remembered: more than a period can have.
const REMEMBERED: usize = 64;

/// The grants of each limit of each slice.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    accounts: BTreeMap<(usize, usize), Account>,
}

#[derive(Debug, Default)]
struct Account {
    /// Units came back twice, or were granted before the storage lost the account. So the bound is unknown.
    is_lost: bool,
    /// The last grants.
    grants: VecDeque<Grant>,
    /// For a fixed window: its number, and the units that count as used in it.
    window: (u64, u64),
    /// For leases: when each expires.
    leases: BTreeMap<Id, u64>,
}

#[derive(Debug)]
struct Grant {
    operation: usize,
    at: u64,
    units: u64,
}

/// An operation that was done, with its number, and the number of the grant that it settles.
pub(super) struct Done<'a> {
    pub(super) number: usize,
    pub(super) settles: Option<usize>,
    pub(super) operation: &'a Operation,
    pub(super) verdict: &'a Verdict,
}

impl Ledger {
    /// Counts an operation on a key.
    pub(super) fn count(&mut self, key: &Key, done: &Done<'_>) -> Result<(), String> {
        let Some(limits) = key.resolved.limits().filter(|_| !done.operation.is_peek()) else {
            return Ok(()); // a look moves no clock
        };
        let mut said = done.verdict.limits.iter();
        for (slice, place) in limits.slices().iter().zip(&key.slices) {
            for (at, named) in slice.limits().iter().enumerate() {
                let account = self.accounts.entry((*place, at)).or_default();
                let said = said.next().map_or(0, |said| said.remaining());
                account.count(&named.limit, done, said)?;
            }
            self.clear_if_reset(slice, *place, done.operation);
        }
        Ok(())
    }

    fn clear_if_reset(&mut self, slice: &Slice, place: usize, operation: &Operation) {
        if matches!(operation, Operation::Reset(depth) if slice.depth() >= *depth) {
            self.forget(place);
        }
    }

    pub(super) fn forget(&mut self, slice: usize) {
        self.accounts.retain(|(of, _), _| *of != slice);
    }

    pub(super) fn clear(&mut self) {
        self.accounts.clear();
    }
}

impl Account {
    fn count(&mut self, limit: &Limit, done: &Done<'_>, remaining: u64) -> Result<(), String> {
        if matches!(done.operation, Operation::Reset(_)) {
            return Ok(());
        }
        let is_settled = |grant: &Grant| Some(grant.operation) == done.settles;
        self.is_lost |= done.settles.is_some() && !self.grants.iter().any(is_settled);
        if self.is_lost {
            return Ok(());
        }
        self.count_grant(done);
        match limit {
            Limit::FixedWindow(window) => {
                let (limit, period) = (window.limit(), window.period().0);
                self.count_window(limit, period, done, remaining)
            }
            Limit::TokenBucket(bucket) if !bucket.starts_empty() => {
                let (units, period) = bucket.rate();
                let capacity = u128::from(bucket.capacity()) * u128::from(period.0);
                let most = |span: u64| capacity + u128::from(units) * u128::from(span);
                self.check_spans(|granted, span| {
                    u128::from(granted) * u128::from(period.0) <= most(span)
                })
            }
            Limit::SlidingLog(log) => {
                let windows = log.windows();
                self.check_spans(|granted, span| {
                    windows.iter().all(|window| span >= window.period.0 || granted <= window.limit)
                })
            }
            Limit::Concurrency(leases) => {
                let (most, time) = (leases.capacity(), leases.period().0);
                self.count_leases(most, time, done)
            }
            _ => Ok(()),
        }
    }

    /// The units that are used must be those that were granted and not returned.
    fn count_window(
        &mut self,
        limit: u64,
        period: u64,
        done: &Done<'_>,
        remaining: u64,
    ) -> Result<(), String> {
        let now = window_of(done.verdict.at, period);
        let (window, used) = &mut self.window;
        if *window != now {
            (*window, *used) = (now, 0);
        }
        match done.operation {
            Operation::Decide(request) if done.verdict.decision.is_allowed() => {
                *used += request.cost;
                if *used > limit {
                    return Err(format!("{used} units granted in a window of {limit}"));
                }
            }
            Operation::Settle(settlement) => {
                if window_of(settlement.granted_at, period) == now {
                    *used =
                        used.saturating_sub(settlement.reserved.saturating_sub(settlement.actual));
                }
                *used += settlement.actual.saturating_sub(settlement.reserved);
            }
            _ => {}
        }
        match limit.saturating_sub(*used) == remaining {
            true => Ok(()),
            false => Err(format!("{used} of {limit} units are used, and {remaining} remain")),
        }
    }

    /// Units that come back count as never granted.
    fn count_grant(&mut self, done: &Done<'_>) {
        match done.operation {
            Operation::Decide(request) if done.verdict.decision.is_allowed() => {
                let (operation, at, units) = (done.number, done.verdict.at.0, request.cost);
                self.grants.push_back(Grant { operation, at, units });
                if self.grants.len() > REMEMBERED {
                    self.grants.pop_front();
                }
            }
            Operation::Settle(settlement) => {
                let back = settlement.reserved.saturating_sub(settlement.actual);
                let granted = |grant: &&mut Grant| Some(grant.operation) == done.settles;
                if let Some(grant) = self.grants.iter_mut().find(granted) {
                    grant.units = grant.units.saturating_sub(back);
                }
            }
            _ => {}
        }
    }

    /// Checks the units of every span that ends with the last grant.
    fn check_spans(&self, is_within: impl Fn(u64, u64) -> bool) -> Result<(), String> {
        let Some(last) = self.grants.back() else { return Ok(()) };
        let mut granted = 0;
        for grant in self.grants.iter().rev() {
            granted += grant.units;
            let span = last.at.saturating_sub(grant.at);
            if grant.units > 0 && !is_within(granted, span) {
                return Err(format!("{granted} units granted in {span} µs"));
            }
        }
        Ok(())
    }

    fn count_leases(&mut self, most: u64, time: u64, done: &Done<'_>) -> Result<(), String> {
        let now = done.verdict.at.0;
        self.leases.retain(|_, expires_at| *expires_at > now);
        let was_live = match done.operation {
            Operation::Decide(request) if done.verdict.decision.is_allowed() => {
                if let Some(id) = request.lease.filter(|_| request.cost > 0) {
                    self.leases.insert(id, now.saturating_add(time));
                }
                None
            }
            Operation::Heartbeat(id) => Some(match self.leases.get_mut(id) {
                Some(expires_at) => {
                    *expires_at = now.saturating_add(time);
                    true
                }
                None => false,
            }),
            Operation::Release(id) => Some(self.leases.remove(id).is_some()),
            _ => None,
        };
        let live = done.verdict.effect.live();
        if was_live.is_some() && live != was_live {
            return Err(format!("a lease is said to be live: {live:?}; it is: {was_live:?}"));
        }
        let held = u64::try_from(self.leases.len()).unwrap_or(u64::MAX);
        match held <= most {
            true => Ok(()),
            false => Err(format!("{held} leases are held of {most}")),
        }
    }
}

fn window_of(at: Timestamp, period: u64) -> u64 {
    at.0.checked_div(period).unwrap_or(0)
}
