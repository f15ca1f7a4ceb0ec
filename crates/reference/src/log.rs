//! A naive sliding log: keeps a list of all units and counts them anew for each answer.

use crate::{Outcome, first};

/// A naive sliding log for one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Log {
    windows: Vec<(u64, u64)>,
    min_gap: i128,
    counted: bool,
    newest: i128,
    /// The time of each unit, in order of arrival.
    units: Vec<i128>,
}

impl Log {
    /// Makes the log of a key never seen. `windows` are (limit, period in µs), and `min_gap` is in
    /// µs. `counted` says whether the units of refused requests are remembered too.
    #[must_use]
    pub fn new(windows: Vec<(u64, u64)>, min_gap: u64, counted: bool) -> Self {
        Self { windows, min_gap: min_gap.into(), counted, newest: 0, units: Vec::new() }
    }

    /// Decides at `now`. Returns `None` if the cost can never be granted. A cost of 0 changes
    /// nothing.
    pub fn decide(&mut self, now: u64, cost: u64) -> Option<Outcome> {
        if cost > self.most() {
            return None;
        }
        if cost == 0 {
            return Some(self.clone().settle_and_decide(now, 0));
        }
        Some(self.settle_and_decide(now, cost))
    }

    /// Records that another limiter refused a request. Returns how long the same request then has
    /// to wait. A cost of 0 changes nothing.
    pub fn refused(&mut self, now: u64, cost: u64) -> u64 {
        if cost == 0 {
            return 0;
        }
        let now = self.settle(now);
        if self.counted {
            self.remember(now, cost);
        }
        first(|d| self.passes(now + d, cost))
    }

    /// Gives back up to `cost` units remembered at `granted_at`.
    pub fn refund(&mut self, granted_at: u64, cost: u64) {
        for _ in 0..cost {
            let found = self.units.iter().position(|&unit| unit == i128::from(granted_at));
            let Some(found) = found else { return };
            self.units.remove(found);
        }
    }

    /// The facts that determine every later answer: the newest time, and the units that still
    /// count.
    #[must_use]
    pub fn essence(&self) -> Vec<i128> {
        let counting = self.units.iter().filter(|&&unit| self.counts(unit, self.newest));
        std::iter::once(self.newest).chain(counting.copied()).collect()
    }

    /// Remembers units that were spent already.
    pub fn charge(&mut self, now: u64, cost: u64) {
        let now = self.settle(now);
        self.remember(now, cost);
    }

    fn remember(&mut self, now: i128, cost: u64) {
        self.units.extend((0..cost).map(|_| now));
        let kept = self.windows.iter().map(|window| window.0).max().unwrap_or(0);
        while self.units.len() > usize::try_from(kept).unwrap_or(usize::MAX) {
            self.units.remove(0);
        }
    }

    /// Moves to `now` by the clock rule, and returns the time that is taken.
    fn settle(&mut self, now: u64) -> i128 {
        let now = i128::from(now);
        let longest = self.windows.iter().map(|window| i128::from(window.1)).max();
        if now < self.newest - longest.unwrap_or(0).max(self.min_gap) {
            // the newest time came from a clock that was ahead, so the units that still counted
            // then move back, but not before time 0
            let (newest, all) = (self.newest, self.units.clone());
            self.units = all.into_iter().filter(|&unit| self.counts(unit, newest)).collect();
            for unit in &mut self.units {
                *unit = (*unit - (newest - now)).max(0);
            }
            self.newest = now;
        }
        self.newest = now.max(self.newest);
        self.newest
    }

    fn settle_and_decide(&mut self, now: u64, cost: u64) -> Outcome {
        let now = self.settle(now);
        let allowed = cost == 0 || self.passes(now, cost);
        if allowed || self.counted {
            self.remember(now, cost);
        }
        Outcome {
            allowed,
            remaining: (1..=self.most()).rev().find(|&cost| self.passes(now, cost)).unwrap_or(0),
            retry_after: if allowed { 0 } else { first(|d| self.passes(now + d, cost)) },
            reset_after: first(|d| self.units.iter().all(|&unit| !self.counts(unit, now + d))),
        }
    }

    fn passes(&self, t: i128, cost: u64) -> bool {
        let far_enough = self.units.iter().all(|&unit| t - unit >= self.min_gap);
        far_enough
            && self.windows.iter().all(|&(limit, period)| {
                let inside = |unit: &&i128| **unit > t - i128::from(period) && **unit <= t;
                let inside = self.units.iter().filter(inside).count();
                u64::try_from(inside).is_ok_and(|inside| inside + cost <= limit)
            })
    }

    /// Whether the unit still counts at `t`.
    fn counts(&self, unit: i128, t: i128) -> bool {
        t - unit < self.min_gap
            || self.windows.iter().any(|&(_, period)| unit > t - i128::from(period))
    }

    fn most(&self) -> u64 {
        self.windows.iter().map(|window| window.0).min().unwrap_or(0)
    }
}
