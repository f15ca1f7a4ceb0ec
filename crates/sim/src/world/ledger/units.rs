//! The units that a limit with reservations counts: all of its grants once more, with the costs that are known by now.

use std::collections::VecDeque;

use tidegate_core::bucket;
use tidegate_core::hold::Counter;
use tidegate_core::window::calendar::Boundaries;
use tidegate_core::window::{fixed, log, sliding};
use tidegate_gate::{Limiter, RateLimiter};

use crate::world::tally::Tally;

/// The grants of a limit.
#[derive(Clone, Debug, Default)]
pub(super) struct Units {
    grants: VecDeque<Grant>,
    /// The number of the first of them.
    first: usize,
    /// What the grants before the first one have left behind: of a bucket the level, in units of 1/period, of
    /// windows that start at a grant the start of the last one.
    before: Option<Before>,
    is_lost: Lost,
}

#[derive(Clone, Copy, Debug)]
struct Grant {
    at: u64,
    /// The units when it was granted, and those that it has cost.
    taken: u64,
    units: u64,
    /// What came back at this time, in place of a grant: units, or of a bucket 1/period of units.
    back: u128,
    /// It may still turn out to have cost another number of units.
    is_held: bool,
}

#[derive(Clone, Copy, Debug)]
struct Before {
    at: u64,
    spent: u128,
}

/// Whether the account is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Lost {
    #[default]
    No,
    /// A window counts what is not known until this time.
    Until(u64),
    /// The level of a bucket is not known before it is full.
    UntilFull,
    /// Refusals count.
    ForEver,
}

impl Units {
    /// Something was done. The first operation begins to fill a bucket that starts empty.
    pub(super) fn begin<B: Boundaries>(&mut self, counter: &Counter<B>, now: u64) {
        if let Counter::TokenBucket(bucket) = counter {
            let spent = if bucket.starts_empty() { full(bucket) } else { 0 };
            self.before.get_or_insert(Before { at: now, spent });
        }
        if matches!(self.is_lost, Lost::Until(until) if until <= now) {
            self.is_lost = Lost::No;
        }
        self.forget(counter, now);
    }

    /// Units are taken. Returns the number of the grant.
    pub(super) fn take(&mut self, at: u64, units: u64, is_held: bool) -> usize {
        self.grants.push_back(Grant { at, taken: units, units, back: 0, is_held });
        self.first + self.grants.len() - 1
    }

    /// A grant has really cost so many units.
    pub(super) fn settle(&mut self, grant: usize, units: u64) {
        let place = grant.checked_sub(self.first);
        if let Some(grant) = place.and_then(|place| self.grants.get_mut(place)) {
            (grant.units, grant.is_held) = (units, false);
        }
    }

    /// Units that count at this time come back, except those that live reservations hold. Returns whether fewer came back.
    pub(super) fn give_back<B: Boundaries>(
        &mut self,
        counter: &Counter<B>,
        now: u64,
        units: u64,
    ) -> bool {
        let Some(most) = self.not_held(counter, now).filter(|_| self.is_lost == Lost::No) else {
            self.lose(counter, now);
            return false;
        };
        let scale = match counter {
            Counter::TokenBucket(bucket) => bucket.rate().1.0,
            _ => 1,
        };
        let wanted = u128::from(units) * u128::from(scale);
        let back = wanted.min(most);
        self.grants.push_back(Grant { at: now, taken: 0, units: 0, back, is_held: false });
        back < wanted
    }

    /// What would count with a grant at this time if all that is held had cost nothing, as in [`Grant::back`].
    fn not_held<B: Boundaries>(&self, counter: &Counter<B>, now: u64) -> Option<u128> {
        let mut free = self.clone();
        free.grants.iter_mut().filter(|grant| grant.is_held).for_each(|grant| grant.units = 0);
        let units = match counter {
            Counter::Calendar(_) => return None, // no world has one
            Counter::TokenBucket(bucket) => return Some(free.spent(bucket, now)),
            Counter::FixedWindow(window) => free.in_window(window, now),
            Counter::SlidingWindow(window) => {
                let length = segment(window);
                free.sum(|at| at / length == now / length)
            }
            Counter::SlidingLog(_) => free.sum(|at| at == now),
        };
        u128::try_from(units).ok()
    }

    /// It is not known how many units come back or are forgotten.
    pub(super) fn lose<B: Boundaries>(&mut self, counter: &Counter<B>, now: u64) {
        self.is_lost = match (self.is_lost, counter) {
            (Lost::ForEver, _) => Lost::ForEver,
            (_, Counter::TokenBucket(_)) => Lost::UntilFull,
            _ => Lost::Until(now.saturating_add(3 * period(counter))),
        };
    }

    pub(super) const fn lose_for_ever(&mut self) {
        self.is_lost = Lost::ForEver;
    }

    /// A request was refused. Returns whether it counts; then nothing more is known.
    pub(super) fn refused<B: Boundaries>(&mut self, counter: &Counter<B>) -> bool {
        let counts =
            matches!(counter, Counter::SlidingLog(log) if log.denied() == log::Denied::Counted);
        if counts {
            self.is_lost = Lost::ForEver;
        }
        counts
    }

    /// The units that are left; below 0 if more was used than the limit. `None` if that is not known.
    pub(super) fn left<B: Boundaries>(&self, counter: &Counter<B>, now: u64) -> Option<i128> {
        if self.is_lost != Lost::No {
            return None;
        }
        Some(match counter {
            Counter::Calendar(_) => return None, // no world has one
            Counter::TokenBucket(bucket) => {
                let left = i128::try_from(full(bucket)).ok()?
                    - i128::try_from(self.spent(bucket, now)).ok()?;
                left.div_euclid(i128::from(bucket.rate().1.0)) // down: a started token cannot be taken
            }
            Counter::FixedWindow(window) => {
                i128::from(window.limit()) - self.in_window(window, now)
            }
            Counter::SlidingWindow(window) => {
                let [whole, trailing] = self.in_segments(window, now);
                i128::from(window.limit()) - whole - trailing
            }
            Counter::SlidingLog(log) => {
                let left = log.windows().iter().map(|window| {
                    i128::from(window.limit) - self.since(now.saturating_sub(window.period.0))
                });
                left.min()?
            }
        })
    }

    /// Fails if other units remain than must be left.
    pub(super) fn check<B: Boundaries>(
        &self,
        counter: &Counter<B>,
        now: u64,
        remaining: u64,
        tally: &mut Tally,
    ) -> Result<(), String> {
        let Some(left) = self.left(counter, now) else { return Ok(()) };
        tally.add(match counter {
            Counter::TokenBucket(_) => "a bucket was that of a replay",
            _ => "a window was that of a replay",
        });
        if left < 0 {
            tally.add("commits used more than a limit");
        }
        match left.max(0) == i128::from(remaining) {
            true => Ok(()),
            false => {
                Err(format!("{left} units are left at {now}, and {remaining} remain: {self:?}"))
            }
        }
    }

    /// Of a debt of more than its limit, a window forgets what is beyond.
    pub(super) fn note_debt<B: Boundaries>(&mut self, counter: &Counter<B>, now: u64) {
        let forgets = match counter {
            Counter::TokenBucket(_) | Counter::Calendar(_) => false,
            Counter::FixedWindow(window) => {
                self.in_window(window, now) > 2 * i128::from(window.limit())
            }
            Counter::SlidingWindow(window) => {
                let [whole, trailing] = self.in_segments(window, now);
                whole.max(trailing) > 2 * i128::from(window.limit())
            }
            Counter::SlidingLog(log) => {
                let most = log.windows().iter().map(|window| window.limit).max().unwrap_or(0);
                self.since(now.saturating_sub(log.period().0)) > i128::from(most)
            }
        };
        if forgets {
            self.lose(counter, now);
        }
    }

    /// A bucket that is full after all, but for the units that were just taken, is known again. Nothing may be held.
    pub(super) fn find_again<B: Boundaries>(
        &mut self,
        counter: &Counter<B>,
        now: u64,
        (remaining, taken): (u64, u64),
    ) {
        if let Counter::TokenBucket(bucket) = counter
            && self.is_lost == Lost::UntilFull
            && remaining + taken == bucket.capacity()
        {
            self.first += self.grants.len();
            self.grants.clear();
            let spent = u128::from(taken) * u128::from(bucket.rate().1.0);
            (self.before, self.is_lost) = (Some(Before { at: now, spent }), Lost::No);
        }
    }

    /// Forgets the first grants, which change no more.
    fn forget<B: Boundaries>(&mut self, counter: &Counter<B>, now: u64) {
        let oldest = now.saturating_sub(3 * period(counter));
        while let Some(grant) = self.grants.front().copied().filter(|grant| !grant.is_held) {
            match counter {
                Counter::TokenBucket(bucket) => {
                    self.before = self.before.map(|before| before.then(bucket, grant));
                }
                _ if grant.at >= oldest => return,
                Counter::FixedWindow(window) => {
                    self.before = begins(self.before, grant, window.period().0);
                }
                _ => {}
            }
            self.grants.pop_front();
            self.first += 1;
        }
    }

    /// The level of a bucket, in units of 1/period.
    fn spent(&self, bucket: &bucket::Config, now: u64) -> u128 {
        let before = self.before.unwrap_or(Before { at: now, spent: 0 });
        let last = self.grants.iter().fold(before, |before, grant| before.then(bucket, *grant));
        last.flows_in(bucket, now)
    }

    /// The units in the present window.
    fn in_window(&self, window: &fixed::Config, now: u64) -> i128 {
        let period = window.period().0;
        let start = match window.starts_at_first() {
            false => now - now % period,
            true => {
                let each = self.grants.iter();
                let last = each.fold(self.before, |last, grant| begins(last, *grant, period));
                match last.filter(|last| now < last.at + period) {
                    Some(last) => last.at,
                    None => return 0,
                }
            }
        };
        self.sum(|at| at >= start)
    }

    /// The units in the whole segments, and those of the trailing segment as far as they still count, rounded up.
    fn in_segments(&self, window: &sliding::Config, now: u64) -> [i128; 2] {
        let length = segment(window);
        let trailing = now / length - window.period().0 / length;
        let covered = i128::from(length - now % length);
        let weighted = self.sum(|at| at / length == trailing) * covered;
        let weighted = (weighted + i128::from(length) - 1) / i128::from(length);
        [self.sum(|at| at / length > trailing), weighted]
    }

    /// The units that were granted after this time.
    fn since(&self, oldest: u64) -> i128 {
        self.sum(|at| at > oldest)
    }

    fn sum(&self, counts: impl Fn(u64) -> bool) -> i128 {
        let counted = self.grants.iter().filter(|grant| counts(grant.at));
        let units = counted
            .map(|grant| i128::from(grant.units) - i128::try_from(grant.back).unwrap_or(i128::MAX));
        units.sum()
    }
}

impl Before {
    fn flows_in(self, bucket: &bucket::Config, now: u64) -> u128 {
        let inflow = u128::from(bucket.rate().0) * u128::from(now.saturating_sub(self.at));
        self.spent.saturating_sub(inflow)
    }

    /// The level after a further grant, or after units came back. A debt is at most one more capacity.
    fn then(self, bucket: &bucket::Config, grant: Grant) -> Self {
        let spent = self.flows_in(bucket, grant.at);
        let taken = u128::from(grant.units) * u128::from(bucket.rate().1.0);
        let deepest = (2 * full(bucket)).max(spent);
        let spent = (spent + taken).min(deepest).saturating_sub(grant.back);
        Self { at: grant.at, spent }
    }
}

/// The start of the last window after a further grant. The first one outside of a window begins one.
fn begins(last: Option<Before>, grant: Grant, period: u64) -> Option<Before> {
    let is_outside = last.is_none_or(|last| grant.at >= last.at + period);
    match is_outside && grant.taken > 0 {
        true => Some(Before { at: grant.at, spent: 0 }),
        false => last,
    }
}

/// The length of a segment.
fn segment(window: &sliding::Config) -> u64 {
    window.period().0 / u64::try_from(window.segments()).unwrap_or(u64::MAX)
}

fn full(bucket: &bucket::Config) -> u128 {
    u128::from(bucket.capacity()) * u128::from(bucket.rate().1.0)
}

fn period<B: Boundaries>(counter: &Counter<B>) -> u64 {
    match counter {
        Counter::TokenBucket(bucket) => bucket.period().0,
        Counter::FixedWindow(window) => window.period().0,
        Counter::Calendar(window) => window.period().0,
        Counter::SlidingWindow(window) => window.period().0,
        Counter::SlidingLog(log) => log.period().0,
    }
}
