//! `connections`: so many connections at once, counted by their owners. A request opens one,
//! whatever it costs.

use tidegate_core::Timestamp;
use tidegate_core::lease::connections::{Config, State};
use tidegate_core::lease::{Held, Leases};

use super::algorithm::{Algorithm, Answer, held};
use super::{Kind, Limit};
use crate::request::{Operation, Request};

impl Algorithm for Config {
    const KIND: Kind = Kind::Lease;

    fn ask(&self, state: &mut State<&mut [u64]>, now: Timestamp, request: &Request) -> Answer {
        Ok(self.open(state, now, held(request)?, request.places())?)
    }

    fn look(&self, state: &State<&[u64]>, now: Timestamp, request: &Request) -> Answer {
        let owner = request.lease.unwrap_or_default(); // without one, an owner that is not there yet
        Ok(self.peek(state, now, owner, request.places())?)
    }

    fn needs_lease(&self, request: &Request) -> bool {
        request.cost > 0
    }

    fn hold(
        &self,
        state: &mut State<&mut [u64]>,
        now: Timestamp,
        operation: &Operation,
    ) -> Option<Held> {
        match *operation {
            Operation::Heartbeat(owner) => Some(self.heartbeat(state, now, owner)),
            Operation::Release(owner) => Some(self.close(state, now, owner, 1)),
            Operation::Count(owner, count) => {
                let recorded = self.report(state, now, owner, count);
                Some(recorded.map_or(Held::Unknown, |_| Held::Live { cost: count }))
            }
            _ => None,
        }
    }

    fn of(limit: &Limit) -> Option<&Self> {
        match limit {
            Limit::Connections(config) => Some(config),
            _ => None,
        }
    }

    fn adopt(
        &self,
        own: &mut State<&mut [u64]>,
        old: &Self,
        held: &State<&[u64]>,
        _: (u64, u64),
    ) -> bool {
        Leases::adopt(self, own, old, held);
        true
    }
}
