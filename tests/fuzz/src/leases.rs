//! Who holds what, remembered one by one.

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
    /// Of times before 0 there are some after a clock that came back.
    touched: i128,
    units: u64,
}

impl Leases {
    /// Of a limit with leases that anything is asked for.
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

    /// Whether there was a lease to be renewed, counted or released.
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
            Operation::Count(id, count) if self.counts() => Some(self.count(id, count, at)),
            _ => None,
        }
    }

    /// What a request with this id may still take.
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
            return; // is not counted
        }
        let id = request.lease.expect("one was granted");
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

    /// A lease ends; of connections one is closed.
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

    /// Each lease is one unit, but of connections an owner has several.
    const fn counts(&self) -> bool {
        matches!(self.limit, Limit::Connections(_))
    }
}
