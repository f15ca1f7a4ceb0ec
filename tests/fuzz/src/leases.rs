//! A model of leases, which remembers each holder.

use tidegate_gate::{Decision, Id, Limit, MAX_QUANTITY, Operation, Request, Timestamp};

pub struct Leases {
    limit: Limit,
    most: u64,
    time_to_live: u64,
    places: usize,
    holders: Vec<Holder>,
}

struct Holder {
    id: Id,
    /// The time of the last renewal. It may be below 0 after the clock went back.
    touched: i128,
    units: u64,
}

impl Leases {
    /// The model of a limit, if the limit has leases.
    pub fn of(limit: Limit) -> Option<Self> {
        let (most, places) = match limit {
            Limit::Concurrency(config) => (config.capacity(), config.max_leases()),
            Limit::Connections(config) => (config.limit(), config.max_owners()),
            Limit::Fleet(config) => (config.capacity() - config.reserve(), config.max_leases()),
            _ => return None,
        };
        let time_to_live = limit.period().0;
        Some(Self { limit, most, time_to_live, places, holders: Vec::new() })
    }

    /// Does an operation. Returns whether it found a lease to renew, count or release.
    pub fn operate(
        &mut self,
        newest: Timestamp,
        at: Timestamp,
        operation: &Operation,
        decision: Option<Decision>,
    ) -> Option<bool> {
        self.pass(newest, at);
        match *operation {
            Operation::Decide(request)
                if request.cost > 0 && decision.is_some_and(|it| it.is_allowed()) =>
            {
                self.granted(request, at);
                None
            }
            Operation::Heartbeat(id) => {
                Some(self.find(id).map(|place| self.touch(place, at)).is_some())
            }
            Operation::Release(id) => {
                Some(self.find(id).map(|place| self.release(place)).is_some())
            }
            // a reservation is over, and so is the lease of its id
            Operation::Commit(id, _) => {
                self.find(id).map(|place| self.release(place));
                None
            }
            Operation::Count(id, count) if self.counts() => Some(self.count(id, count, at)),
            _ => None,
        }
    }

    /// The units that a request with this identity may still take.
    pub fn remaining(&self, id: Id) -> u64 {
        let known = self.counts() && self.find(id).is_some();
        if known || self.holders.len() < self.places {
            self.most.saturating_sub(self.units())
        } else {
            0
        }
    }

    pub const fn limit(&self) -> &Limit {
        &self.limit
    }

    fn pass(&mut self, newest: Timestamp, at: Timestamp) {
        let back = i128::from(newest.0.saturating_sub(at.0));
        let (at, time_to_live) = (i128::from(at.0), i128::from(self.time_to_live));
        for holder in &mut self.holders {
            holder.touched -= back;
        }
        self.holders.retain(|holder| at - holder.touched < time_to_live);
    }

    fn granted(&mut self, request: Request, at: Timestamp) {
        if matches!(self.limit, Limit::Fleet(_)) && request.class.0 == u16::MAX {
            return; // a critical request is not counted
        }
        let id = request.lease.expect("a granted request has a lease");
        match self.find(id) {
            Some(place) => {
                self.touch(place, at);
                self.holders[place].units += u64::from(self.counts());
            }
            None => self.holders.push(Holder { id, touched: at.0.into(), units: 1 }),
        }
        assert!(self.holders.len() <= self.places, "more than {} holders", self.places);
        assert!(self.units() <= self.most, "more than {} live", self.most);
    }

    fn count(&mut self, id: Id, count: u64, at: Timestamp) -> bool {
        let place = self.find(id);
        let others = self.units() - place.map_or(0, |place| self.holders[place].units);
        if others.saturating_add(count) > MAX_QUANTITY {
            return false;
        }
        match place {
            Some(place) if count == 0 => drop(self.holders.remove(place)),
            Some(place) => {
                self.touch(place, at);
                self.holders[place].units = count;
            }
            None if count == 0 => {}
            None if self.holders.len() == self.places => return false,
            None => self.holders.push(Holder { id, touched: at.0.into(), units: count }),
        }
        true
    }

    fn touch(&mut self, place: usize, at: Timestamp) {
        self.holders[place].touched = at.0.into();
    }

    /// Ends a lease, or closes one connection of an owner.
    fn release(&mut self, place: usize) {
        self.holders[place].units -= 1;
        if self.holders[place].units == 0 {
            self.holders.remove(place);
        }
    }

    fn find(&self, id: Id) -> Option<usize> {
        self.holders.iter().position(|holder| holder.id == id)
    }

    fn units(&self) -> u64 {
        self.holders.iter().map(|holder| holder.units).sum()
    }

    /// Whether an owner may have several units, as with connections. A lease is one unit.
    const fn counts(&self) -> bool {
        matches!(self.limit, Limit::Connections(_))
    }
}
