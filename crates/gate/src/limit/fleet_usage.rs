//! `fleet_usage`: so many leases at once, a share of them for the most important class alone. A
//! request takes one place, whatever it costs.

use tidegate_core::lease::{Held, Id, Leases};
use tidegate_core::shed::fleet::{Config, Priority, State};
use tidegate_core::shed::utilization::Class;
use tidegate_core::{Limiter, Timestamp};

use super::algorithm::{Algorithm, Answer, held, renewed};
use super::{Kind, Limit};
use crate::request::{Operation, OperationError, Request};

impl Algorithm for Config {
    const KIND: Kind = Kind::Lease;

    fn ask(&self, state: &mut State<&mut [u64]>, now: Timestamp, request: &Request) -> Answer {
        let id = counted(request)?;
        if request.cost > 0 {
            self.advance(state, now); // which high priority by itself does not
        }
        Ok(self.acquire(state, now, priority(request), id, request.places())?)
    }

    fn look(&self, state: &State<&[u64]>, now: Timestamp, request: &Request) -> Answer {
        let priority = priority(request);
        let known = request.lease.is_some_and(|id| self.holds(state, now, id));
        if request.cost > 0 && priority == Priority::Low && known {
            return Ok(renewed(self.peek(state, now, priority, 0)?, self.period()));
        }
        Ok(self.peek(state, now, priority, request.places())?)
    }

    fn needs_lease(&self, request: &Request) -> bool {
        request.cost > 0 && priority(request) == Priority::Low
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
            Limit::Fleet(config) => Some(config),
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

/// The lease that a request takes a place under; requests of high priority are not counted.
fn counted(request: &Request) -> Result<Id, OperationError> {
    match priority(request) {
        Priority::Low => held(request),
        Priority::High => Ok(Id::default()),
    }
}

/// A request of the most important class is never refused.
const fn priority(request: &Request) -> Priority {
    if request.class.0 == Class::CRITICAL.0 { Priority::High } else { Priority::Low }
}
