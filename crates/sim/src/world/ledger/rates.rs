//! The units that a limit on units over time has granted.

use std::collections::VecDeque;

use tidegate_core::window::fixed;
use tidegate_gate::{Limit, Limiter, Operation, RateLimiter};

use super::done::Done;

/// How many grants of a limit are remembered: more than a period can have.
const REMEMBERED: usize = 128;

#[derive(Debug, Default)]
pub(super) struct Rates {
    /// Units came back twice, or after a refund of others, or were granted before the storage lost the account. So the
    /// bound is unknown.
    is_lost: bool,
    /// The last grants.
    grants: VecDeque<Grant>,
    /// For a fixed window: its beginning, and the units that count as used in it. A window that starts at its first
    /// grant begins at 0 until it is open.
    window: (u64, u64),
}

#[derive(Debug)]
struct Grant {
    operation: usize,
    at: u64,
    units: u64,
    /// A refund has given back some of the units.
    is_refunded: bool,
}

impl Rates {
    pub(super) fn count(
        &mut self,
        limit: &Limit,
        done: &Done<'_>,
        remaining: u64,
    ) -> Result<(), String> {
        self.take_back(limit, done);
        if self.is_lost {
            return Ok(());
        }
        let units = done.taken();
        if units > 0 {
            let (operation, at) = (done.number, done.now());
            self.grants.push_back(Grant { operation, at, units, is_refunded: false });
            if self.grants.len() > REMEMBERED {
                self.grants.pop_front();
            }
        }
        match limit {
            Limit::FixedWindow(window) => self.count_window(window, done, remaining),
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
            _ => Ok(()),
        }
    }

    /// Units that come back count as never granted. Units that nobody names are those granted last; a log that
    /// counts grants alone takes back only those of this same microsecond.
    fn take_back(&mut self, limit: &Limit, done: &Done<'_>) {
        let (mut units, granted_at) = done.returned();
        if let Operation::Refund(_) = done.operation {
            let is_log = matches!(limit, Limit::SlidingLog(_)) && !limit.remembers_refusals();
            for grant in self.grants.iter_mut().rev() {
                if !is_log || grant.at == granted_at {
                    let back = grant.units.min(units);
                    (grant.units, units) = (grant.units - back, units - back);
                    grant.is_refunded |= back > 0;
                }
            }
        } else if units > 0 {
            let is_bucket = matches!(limit, Limit::TokenBucket(_));
            let granted = |grant: &&mut Grant| Some(grant.operation) == done.returns;
            match self.grants.iter_mut().find(granted) {
                // a holder does not know what a refund has given back, nor how much of it would have flowed in
                Some(grant) if grant.is_refunded && is_bucket => self.is_lost = true,
                Some(grant) if grant.units >= units => grant.units -= units,
                _ => self.is_lost = true,
            }
        }
    }

    /// The units that are used must be those that were granted and not returned.
    fn count_window(
        &mut self,
        config: &fixed::Config,
        done: &Done<'_>,
        remaining: u64,
    ) -> Result<(), String> {
        let (limit, period) = (config.limit(), config.period().0);
        let (begin, used) = &mut self.window;
        let now = match config.starts_at_first() {
            false => done.now() - done.now() % period,
            true if done.now() < *begin + period => *begin,
            true => 0,
        };
        if *begin != now {
            (*begin, *used) = (now, 0);
        }
        let (back, granted_at) = done.returned();
        if (now..now + period).contains(&granted_at) {
            *used = used.saturating_sub(back);
        }
        let taken = done.taken();
        *used += taken;
        if taken > 0 && *begin == 0 {
            *begin = done.now();
        }
        if taken > 0 && *used > limit {
            return Err(format!("{used} units granted in a window of {limit}"));
        }
        match limit.saturating_sub(*used) == remaining {
            true => Ok(()),
            false => Err(format!("{used} of {limit} units are used, and {remaining} remain")),
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
}
