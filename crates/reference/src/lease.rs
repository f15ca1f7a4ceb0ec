//! Naive leases: every one ever acquired is remembered, and who is live is found by scanning.

use crate::{Outcome, first};

/// What a table of leases knows of one.
#[derive(Clone, Copy, Debug)]
struct Lease {
    id: [u64; 2],
    units: i128,
    /// When it was acquired or last renewed.
    touched: i128,
    ended: bool,
}

/// Leases of one key, as the limiters of concurrency, of connections by owner and of the fleet
/// see them.
#[derive(Clone, Debug)]
pub struct Leases {
    limit: i128,
    period: i128,
    most: usize,
    newest: i128,
    leases: Vec<Lease>,
}

impl Leases {
    /// At most `limit` units in at most `most` leases, each expiring `period` after its touch.
    #[must_use]
    pub fn new(limit: u64, period: u64, most: usize) -> Self {
        let (limit, period) = (limit.into(), period.into());
        Self { limit, period, most, newest: 0, leases: Vec::new() }
    }

    /// Concurrency's acquire: the answer, or `None` if the cost can never be granted.
    pub fn acquire(&mut self, now: u64, id: [u64; 2], cost: u64) -> Option<Outcome> {
        self.ask(now, id, cost, false)
    }

    /// Connections' open: as acquire, but a live owner grows instead of being renewed alone.
    pub fn open(&mut self, now: u64, id: [u64; 2], cost: u64) -> Option<Outcome> {
        self.ask(now, id, cost, true)
    }

    /// Renews: the units held, if live.
    pub fn renew(&mut self, now: u64, id: [u64; 2]) -> Option<u64> {
        self.settle(now);
        let newest = self.newest;
        let lease = self.find(id)?;
        lease.touched = newest;
        u64::try_from(lease.units).ok()
    }

    /// Takes up to `units` away, all of them for `u64::MAX`: what was there to take, if live.
    pub fn reduce(&mut self, now: u64, id: [u64; 2], units: u64) -> Option<u64> {
        self.settle(now);
        let lease = self.find(id)?;
        let taken = lease.units.min(units.into());
        lease.units -= taken;
        lease.ended = lease.units == 0;
        u64::try_from(taken).ok()
    }

    /// Sets what an owner has, whatever the limit: the sum then, or `None` if there is no room or
    /// the sum would exceed `greatest`.
    pub fn set(&mut self, now: u64, id: [u64; 2], units: u64, greatest: u64) -> Option<u64> {
        self.settle(now);
        let newest = self.newest;
        let known = self.find(id).map_or(0, |lease| lease.units);
        if known == 0 && units > 0 && self.count(newest) >= self.most {
            return None;
        }
        if self.units(newest) - known + i128::from(units) > greatest.into() {
            return None;
        }
        if let Some(lease) = self.find(id) {
            lease.ended = true;
        }
        if units > 0 {
            self.leases.push(Lease { id, units: units.into(), touched: newest, ended: false });
        }
        u64::try_from(self.units(newest)).ok()
    }

    /// The units live at the newest time.
    #[must_use]
    pub fn live_units(&self) -> u64 {
        u64::try_from(self.units(self.newest)).unwrap_or(u64::MAX)
    }

    fn ask(&mut self, now: u64, id: [u64; 2], cost: u64, grows: bool) -> Option<Outcome> {
        if i128::from(cost) > self.limit {
            return None;
        }
        if cost == 0 {
            let mut settled = self.clone();
            settled.settle(now);
            let needs_room = !grows || settled.find(id).is_none();
            return Some(settled.outcome(true, 0, needs_room));
        }
        self.settle(now);
        let now = self.newest;
        let known = self.find(id).is_some();
        if known && !grows {
            self.find(id)?.touched = now;
            return Some(self.outcome(true, 0, true));
        }
        // an owner that expires meanwhile leaves its own room behind
        let fits = |d: i128| {
            let (units, count) = (self.units(now + d), self.count(now + d));
            units + i128::from(cost) <= self.limit && (known || count < self.most)
        };
        if !fits(0) {
            let retry_after = first(fits);
            return Some(self.outcome(false, retry_after, !grows || !known));
        }
        match self.find(id) {
            Some(lease) => {
                lease.units += i128::from(cost);
                lease.touched = now;
            }
            None => {
                let lease = Lease { id, units: cost.into(), touched: now, ended: false };
                self.leases.push(lease);
            }
        }
        Some(self.outcome(true, 0, !grows))
    }

    fn outcome(&self, allowed: bool, retry_after: u64, needs_room: bool) -> Outcome {
        let now = self.newest;
        let room = !needs_room || self.count(now) < self.most;
        let left = if room { (self.limit - self.units(now)).max(0) } else { 0 };
        Outcome {
            allowed,
            remaining: u64::try_from(left).unwrap_or(u64::MAX),
            retry_after,
            reset_after: first(|d| self.count(now + d) == 0),
        }
    }

    fn settle(&mut self, now: u64) {
        let now = i128::from(now);
        if now < self.newest - self.period {
            // the newest time came from a clock ahead: everything happened that much earlier
            for lease in &mut self.leases {
                lease.touched -= self.newest - now;
            }
            self.newest = now;
        }
        self.newest = self.newest.max(now);
    }

    fn find(&mut self, id: [u64; 2]) -> Option<&mut Lease> {
        let (newest, period) = (self.newest, self.period);
        self.leases.iter_mut().find(|lease| lease.id == id && lease.is_live(newest, period))
    }

    fn units(&self, t: i128) -> i128 {
        self.live(t).map(|lease| lease.units).sum()
    }

    fn count(&self, t: i128) -> usize {
        self.live(t).count()
    }

    fn live(&self, t: i128) -> impl Iterator<Item = &Lease> {
        self.leases.iter().filter(move |lease| lease.is_live(t, self.period))
    }
}

impl Lease {
    fn is_live(&self, t: i128, period: i128) -> bool {
        !self.ended && self.touched <= t && t < self.touched + period
    }
}

/// A fleet of which low priority may use what is not reserved.
#[derive(Clone, Debug)]
pub struct Fleet {
    capacity: u64,
    low: Leases,
}

impl Fleet {
    /// `reserve` of `capacity` units are for high priority alone.
    #[must_use]
    pub fn new(capacity: u64, reserve: u64, period: u64, most: usize) -> Self {
        Self { capacity, low: Leases::new(capacity - reserve, period, most) }
    }

    /// The answer, or `None` if the cost can never be granted.
    pub fn acquire(&mut self, now: u64, high: bool, id: [u64; 2], cost: u64) -> Option<Outcome> {
        if !high {
            return self.low.acquire(now, id, cost);
        }
        let mut seen = self.low.clone();
        seen.settle(now);
        let outcome = seen.outcome(true, 0, false);
        Some(Outcome { remaining: self.capacity - seen.live_units(), ..outcome })
    }

    /// Renews: the units held, if live.
    pub fn renew(&mut self, now: u64, id: [u64; 2]) -> Option<u64> {
        self.low.renew(now, id)
    }

    /// Releases: the units held, if live.
    pub fn release(&mut self, now: u64, id: [u64; 2]) -> Option<u64> {
        self.low.reduce(now, id, u64::MAX)
    }

    /// The units that low priority holds.
    #[must_use]
    pub fn low_units(&self) -> u64 {
        self.low.live_units()
    }
}
