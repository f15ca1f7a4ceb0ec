//! Naive leases: remember every lease, and find the live leases by scanning.

use crate::{Outcome, first};

/// One lease.
#[derive(Clone, Copy, Debug)]
struct Lease {
    id: [u64; 2],
    units: i128,
    /// The time at which the lease was acquired or last renewed.
    touched: i128,
    ended: bool,
}

/// The leases of one key of the limiters `concurrency`, `connections` and `fleet`.
#[derive(Clone, Debug)]
pub struct Leases {
    limit: i128,
    period: i128,
    most: usize,
    newest: i128,
    leases: Vec<Lease>,
}

impl Leases {
    /// Makes a limit of `limit` units in at most `most` leases, which expire `period` after their
    /// last touch.
    #[must_use]
    pub fn new(limit: u64, period: u64, most: usize) -> Self {
        let (limit, period) = (limit.into(), period.into());
        Self { limit, period, most, newest: 0, leases: Vec::new() }
    }

    /// Acquires a lease of concurrency. Returns `None` if the cost can never be granted.
    pub fn acquire(&mut self, now: u64, id: [u64; 2], cost: u64) -> Option<Outcome> {
        self.ask(now, id, cost, false)
    }

    /// Opens connections. A live owner gets further units; [`acquire`](Self::acquire) only renews
    /// its lease.
    pub fn open(&mut self, now: u64, id: [u64; 2], cost: u64) -> Option<Outcome> {
        self.ask(now, id, cost, true)
    }

    /// Renews a lease. Returns its units if it is live.
    pub fn renew(&mut self, now: u64, id: [u64; 2]) -> Option<u64> {
        self.settle(now);
        let newest = self.newest;
        let lease = self.find(id)?;
        lease.touched = newest;
        u64::try_from(lease.units).ok()
    }

    /// Takes up to `units` from a lease, or all its units for `u64::MAX`. Returns the units taken if
    /// the lease is live.
    pub fn reduce(&mut self, now: u64, id: [u64; 2], units: u64) -> Option<u64> {
        self.settle(now);
        let lease = self.find(id)?;
        let taken = lease.units.min(units.into());
        lease.units -= taken;
        lease.ended = lease.units == 0;
        u64::try_from(taken).ok()
    }

    /// Sets the units of an owner, whatever the limit is. Returns the new sum, or `None` if there is
    /// no room for the owner or the sum would exceed `greatest`.
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

    /// The facts that determine every later answer: the newest time, and the id, units and touch of
    /// each live lease. A dead lease stays dead.
    #[must_use]
    pub fn essence(&self) -> (i128, Vec<([u64; 2], i128, i128)>) {
        let live = self.live(self.newest);
        (self.newest, live.map(|lease| (lease.id, lease.units, lease.touched)).collect())
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
        // an owner that expires meanwhile leaves room for itself
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
            // the newest time came from a clock that was ahead, so all times move back
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

/// A fleet whose unreserved units low priority may use.
#[derive(Clone, Debug)]
pub struct Fleet {
    capacity: u64,
    low: Leases,
}

impl Fleet {
    /// Makes a fleet of `capacity` units that reserves `reserve` of them for high priority.
    #[must_use]
    pub fn new(capacity: u64, reserve: u64, period: u64, most: usize) -> Self {
        Self { capacity, low: Leases::new(capacity - reserve, period, most) }
    }

    /// Acquires a lease. Returns `None` if the cost can never be granted.
    pub fn acquire(&mut self, now: u64, high: bool, id: [u64; 2], cost: u64) -> Option<Outcome> {
        if !high {
            return self.low.acquire(now, id, cost);
        }
        let mut seen = self.low.clone();
        seen.settle(now);
        let outcome = seen.outcome(true, 0, false);
        Some(Outcome { remaining: self.capacity - seen.live_units(), ..outcome })
    }

    /// Renews a lease. Returns its units if it is live.
    pub fn renew(&mut self, now: u64, id: [u64; 2]) -> Option<u64> {
        self.low.renew(now, id)
    }

    /// Releases a lease. Returns its units if it was live.
    pub fn release(&mut self, now: u64, id: [u64; 2]) -> Option<u64> {
        self.low.reduce(now, id, u64::MAX)
    }

    /// The facts that determine every later answer.
    #[must_use]
    pub fn essence(&self) -> (i128, Vec<([u64; 2], i128, i128)>) {
        self.low.essence()
    }

    /// The units that low priority holds.
    #[must_use]
    pub fn low_units(&self) -> u64 {
        self.low.live_units()
    }
}

/// A holder of budget leases.
#[derive(Clone, Debug)]
struct Holder {
    id: [u64; 2],
    wants: i128,
    account_from: i128,
    /// The time of each grant, and its units that were not given back.
    grants: Vec<(i128, i128)>,
    /// The units of the last grant, or 0 after the holder gave the lease back.
    held: i128,
}

impl Holder {
    /// The time of the last grant, which may have been of 0 units.
    fn last(&self) -> i128 {
        self.grants.last().map_or(i128::MIN, |grant| grant.0)
    }
}

/// A live holder: its id, the units that it wants, the start of its account, the units taken since,
/// the time of its last grant, and the units held of that grant.
pub type LiveHolder = ([u64; 2], [i128; 5]);

/// Budget leases of one key.
#[derive(Clone, Debug)]
pub struct Budget {
    most: i128,
    period: i128,
    holders: usize,
    newest: i128,
    all: Vec<Holder>,
}

impl Budget {
    /// Makes leases of at most `most` units that last `period`, for at most `holders` holders.
    #[must_use]
    pub fn new(most: u64, period: u64, holders: usize) -> Self {
        let (most, period) = (most.into(), period.into());
        Self { most, period, holders, newest: 0, all: Vec::new() }
    }

    /// Grants units. Returns the units and the time of the grant, or `None` if there was no grant,
    /// not even of 0 units.
    pub fn grant(&mut self, now: u64, id: [u64; 2], wants: u64, free: u64) -> Option<(u64, u64)> {
        if wants == 0 {
            return None;
        }
        self.settle(now);
        let now = self.newest;
        let k = match self.find(id) {
            Some(k) if self.all[k].last() == now => return None,
            Some(k) => k,
            None if self.live().count() >= self.holders => return None,
            None => {
                let grants = Vec::new();
                self.all.push(Holder { id, wants: 0, account_from: now, grants, held: 0 });
                self.all.len() - 1
            }
        };
        if now >= self.all[k].account_from + self.period {
            self.all[k].account_from = now;
        }
        self.all[k].wants = wants.into();
        self.all[k].grants.push((now, 0));
        let units = (self.share(k, free.into()) - self.taken(&self.all[k]))
            .max(0)
            .min(free.into())
            .min(self.most);
        self.all[k].grants.pop();
        self.all[k].grants.push((now, units));
        self.all[k].held = units;
        Some((u64::try_from(units).ok()?, u64::try_from(now).ok()?))
    }

    /// Gives back the lease that was granted at `granted_at`. Returns the units given back, the
    /// units granted, and the span since the grant.
    pub fn give_back(
        &mut self,
        now: u64,
        id: [u64; 2],
        granted_at: u64,
        units: u64,
    ) -> Option<(u64, u64, u64)> {
        self.settle(now);
        let now = self.newest;
        let k = self.find(id)?;
        let holder = &mut self.all[k];
        if holder.last() != i128::from(granted_at) || holder.held == 0 {
            return None;
        }
        let (granted, after) = (holder.held, now - holder.last());
        let units = granted.min(units.into());
        holder.held = 0;
        holder.grants.last_mut()?.1 -= units;
        let [units, granted, after] = [units, granted, after].map(|n| u64::try_from(n).ok());
        Some((units?, granted?, after?))
    }

    /// The facts that determine every later answer: the newest time, and the live holders.
    #[must_use]
    pub fn essence(&self) -> (i128, Vec<LiveHolder>) {
        let essence = |holder: &Holder| {
            let over = self.newest >= holder.account_from + self.period;
            let account_from = if over { i128::MIN } else { holder.account_from };
            let taken = self.taken(holder);
            (holder.id, [holder.wants, account_from, taken, holder.last(), holder.held])
        };
        (self.newest, self.live().map(essence).collect())
    }

    /// The span until the state equals a fresh one.
    #[must_use]
    pub fn expires_after(&self) -> u64 {
        first(|d| self.all.iter().all(|holder| holder.last() + self.period <= self.newest + d))
    }

    /// The share of a holder. Finds the greatest level by trying all levels.
    fn share(&self, asker: usize, free: i128) -> i128 {
        let pool = free + self.live().map(|holder| self.taken(holder)).sum::<i128>();
        let needed = |level: i128| self.live().map(|h| h.wants.min(level)).sum::<i128>();
        let wants = self.all[asker].wants;
        let level = (0..=wants).take_while(|&level| needed(level) <= pool).last().unwrap_or(0);
        if level == wants {
            return wants;
        }
        let id = self.all[asker].id;
        let others = self.live().filter(|holder| holder.id != id);
        let over = others.map(|h| (self.taken(h) - h.wants.min(level)).max(0)).sum::<i128>();
        if pool - needed(level) > over { level + 1 } else { level }
    }

    fn taken(&self, holder: &Holder) -> i128 {
        if self.newest >= holder.account_from + self.period {
            return 0;
        }
        let in_account = holder.grants.iter().filter(|grant| grant.0 >= holder.account_from);
        in_account.map(|grant| grant.1).sum()
    }

    fn settle(&mut self, now: u64) {
        let now = i128::from(now);
        if now < self.newest - self.period {
            for holder in &mut self.all {
                holder.account_from -= self.newest - now;
                holder.grants.iter_mut().for_each(|grant| grant.0 -= self.newest - now);
            }
            self.newest = now;
        }
        self.newest = self.newest.max(now);
    }

    fn find(&self, id: [u64; 2]) -> Option<usize> {
        self.all.iter().position(|holder| holder.id == id && self.is_live(holder))
    }

    fn live(&self) -> impl Iterator<Item = &Holder> {
        self.all.iter().filter(|holder| self.is_live(holder))
    }

    fn is_live(&self, holder: &Holder) -> bool {
        self.newest < holder.last().saturating_add(self.period)
    }
}
