//! `concurrency`: so many leases at once. A request takes one place, whatever it costs.

use tidegate_core::lease::concurrency::{Config, State};
use tidegate_core::lease::{Held, Leases};
use tidegate_core::{Limiter, Timestamp};

use super::algorithm::{Algorithm, Answer, held, renewed};
use super::{Kind, Limit};
use crate::request::{Operation, Request};

impl Algorithm for Config {
    const KIND: Kind = Kind::Lease;

    fn ask(&self, state: &mut State<&mut [u64]>, now: Timestamp, request: &Request) -> Answer {
        Ok(self.acquire(state, now, held(request)?, request.places())?)
    }

    fn look(&self, state: &State<&[u64]>, now: Timestamp, request: &Request) -> Answer {
        if request.cost > 0 && request.lease.is_some_and(|id| self.holds(state, now, id)) {
            return Ok(renewed(self.peek(state, now, 0)?, self.period()));
        }
        Ok(self.peek(state, now, request.places())?)
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
            Operation::Heartbeat(id) => Some(self.heartbeat(state, now, id)),
            Operation::Release(id) => Some(self.release(state, now, id)),
            _ => None,
        }
    }

    fn of(limit: &Limit) -> Option<&Self> {
        match limit {
            Limit::Concurrency(config) => Some(config),
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
