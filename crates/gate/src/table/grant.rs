//! The account of a grant: what its request has taken, when, and what can still come back.
//!
//! A request is granted on an estimate. Settlements then tell its true cost, any number of times and in both directions, and
//! refunds lower it. The account knows which units the limits still count for the request, so that the limits get back these units
//! and no units of other requests.
//!
//! # Guarantee
//!
//! In any order of settlements and refunds:
//!
//! - A grant gives back at most the units that the limits have counted for it, and these are at most its cost.
//! - A settlement at the cost that the grant already has changes nothing, and neither does a refund of no units.
//!
//! A grant does not know of other changes to the states of its key, such as a reset or an edit of the policy.

use tidegate_core::{MAX_QUANTITY, Timestamp};

use super::{Table, TableError};
use crate::ask::returns_nothing;
use crate::decide::Limits;
use crate::limit::{Operation, Settlement};
use crate::policy::Resolved;

/// What a granted request has taken, and what it can give back. [`Table::settle_grant`] changes it.
///
/// ```
/// # use std::sync::Arc;
/// # use tidegate_gate::{Grant, KeyHasher, Policy, Resolved, Table, Timestamp};
/// let text = r#"{"limits": [{"algorithm": "fixed_window", "limit": 10, "period": "1h"}]}"#;
/// let policy = Arc::new(Policy::parse("api", text).unwrap());
/// let key = Resolved::new(&policy, "alice").unwrap();
/// let (mut table, now) = (Table::new(1 << 20, KeyHasher::new(7)), Timestamp(0));
///
/// table.decide(&policy, "alice", now, 8).unwrap();
/// let mut grant = Grant::new(now, 8);
/// assert_eq!(table.settle_grant(&key, now, &mut grant, 3).unwrap(), 5);
/// assert_eq!(table.settle_grant(&key, now, &mut grant, 3).unwrap(), 0); // the same again
/// assert_eq!(table.decide(&policy, "alice", now, 0).unwrap().remaining(), 7);
///
/// assert_eq!(Grant::cost_after_refund(grant.cost(), 2), Some(1));
/// assert_eq!(Grant::cost_after_refund(grant.cost(), 4), None); // it costs 3
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// The true cost, as far as it is known.
    cost: u64,
    granted_at: Timestamp,
    /// How many of the times are in use.
    times: u64,
    /// The units that the limits count for the request, the oldest first. The rest means nothing.
    taken: [Taken; MOST_TIMES],
}

/// Units that the limits counted at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    at: Timestamp,
    units: u64,
}

/// The most times that a grant remembers.
const MOST_TIMES: usize = 16;

impl Grant {
    /// A request that took `cost` at the time [`Verdict::at`](crate::Verdict::at). A request that was refused took 0.
    #[must_use]
    pub fn new(granted_at: Timestamp, cost: u64) -> Self {
        let mut grant = Self { cost, granted_at, ..Self::default() };
        grant.note_taken(granted_at, cost);
        grant
    }

    /// The true cost, as far as it is known: that of the last settlement.
    #[must_use]
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// The units that the limits count for the request. Fewer than [`cost`](Self::cost) if the limits had no room for a debt.
    #[must_use]
    pub fn counted(&self) -> u64 {
        let times = usize::try_from(self.times).unwrap_or_default();
        self.taken.iter().take(times).fold(0, |sum, taken| sum.saturating_add(taken.units))
    }

    /// The cost of a request after a refund; `None` for more units than its `cost`.
    #[must_use]
    pub const fn cost_after_refund(cost: u64, units: u64) -> Option<u64> {
        cost.checked_sub(units)
    }

    /// The times in use.
    pub(super) fn used(&mut self) -> &mut [Taken] {
        let times = usize::try_from(self.times).unwrap_or_default();
        self.taken.get_mut(..times).unwrap_or_default()
    }

    /// Notes units that were counted at a time.
    fn note_taken(&mut self, at: Timestamp, units: u64) {
        let used = self.used();
        let times = used.len();
        match used.last_mut() {
            // Units that share an earlier time come back at most as early as with their own.
            Some(last) if last.at == at || times == MOST_TIMES => {
                last.units = last.units.saturating_add(units);
            }
            _ => {
                if let Some(next) = self.taken.get_mut(times) {
                    *next = Taken { at, units };
                    self.times = self.times.saturating_add(1);
                }
            }
        }
    }

    /// Notes how many of the newest units are kept.
    fn note_kept(&mut self, units: u64) {
        if let Some(newest) = self.used().last_mut() {
            newest.units = units;
        }
        if units == 0 {
            self.times = self.times.saturating_sub(1);
        }
    }
}

impl Table {
    /// Settles a grant at the true cost of its request, and returns how many units came back. Units beyond the last cost
    /// are taken, even if fewer are available.
    ///
    /// # Errors
    /// Fails with [`TableError`]. The grant then says what has changed.
    #[inline(never)]
    pub fn settle_grant(
        &mut self,
        resolved: &Resolved,
        now: Timestamp,
        grant: &mut Grant,
        cost: u64,
    ) -> Result<u64, TableError> {
        let more = cost.saturating_sub(grant.cost);
        let mut given_back = 0;
        if more > 0 {
            // Units beyond these take the place of units of other requests, so they must not come back.
            let counted = more.min(self.countable(resolved, now));
            let granted_at = grant.granted_at;
            let taken = Settlement { granted_at, reserved: 0, actual: more };
            grant.note_taken(self.settle(resolved, now, taken)?, counted);
        } else if cost < grant.cost {
            given_back = grant.counted().saturating_sub(cost);
            self.give_back(resolved, now, grant, given_back)?;
        }
        grant.cost = cost;
        Ok(given_back)
    }

    /// The newest units come back first, because a log that is full has forgotten the oldest.
    fn give_back(
        &mut self,
        resolved: &Resolved,
        now: Timestamp,
        grant: &mut Grant,
        mut units: u64,
    ) -> Result<(), TableError> {
        while units > 0
            && let Some(newest) = grant.used().last().copied()
        {
            let actual = newest.units.saturating_sub(units);
            let settlement = Settlement { granted_at: newest.at, reserved: newest.units, actual };
            self.settle(resolved, now, settlement)?;
            units = units.saturating_sub(newest.units);
            grant.note_kept(actual);
        }
        Ok(())
    }

    /// Returns the time of the settlement.
    #[inline(never)]
    fn settle(
        &mut self,
        resolved: &Resolved,
        now: Timestamp,
        settlement: Settlement,
    ) -> Result<Timestamp, TableError> {
        let most = resolved.limits().map_or(u64::MAX, Limits::capacity);
        let operation = match returns_nothing(resolved.policy(), most, &settlement) {
            true => Operation::from(0),
            false => Operation::Settle(settlement),
        };
        Ok(self.ask(resolved, now, &operation)?.at)
    }

    /// How many more units the limits on a key can count at `now`. A listed key counts none, so any number fits.
    fn countable(&self, resolved: &Resolved, now: Timestamp) -> u64 {
        let units = resolved.limits().and_then(|limits| {
            limits.countable(&mut self.gather(limits, resolved.key()).ok()?.words, now)
        });
        units.unwrap_or(MAX_QUANTITY)
    }
}
