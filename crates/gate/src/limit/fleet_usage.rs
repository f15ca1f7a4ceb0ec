//! `fleet_usage`: a number of leases at once, of which a share is reserved for the most important class. A
//! request takes one place, whatever its cost.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use tidegate_core::lease::{Held, Id, Leases};
use tidegate_core::shed::fleet::{Config, Priority, State};
use tidegate_core::shed::utilization::Class;
use tidegate_core::{ConfigError, Micros};
use tidegate_core::{Limiter, Timestamp};

use super::Kind;
use super::algorithm::{Algorithm, Cause, Decided, adopts_leases, held, holds_leases, renewed};
use super::build::{required, text};
use super::describe::{room, span};
use super::form::LimitForm;
use super::parameters::{unfit, wide};
use super::request::{Operation, OperationError, Request};

impl Algorithm for Config {
    const NAME: &'static str = "fleet_usage";
    const NUMBER: u64 = 8;
    const FIELDS: &'static [&'static str] = &["capacity", "reserve", "time_to_live", "max_leases"];

    fn read(form: &LimitForm) -> Result<Self, String> {
        let capacity = required("capacity", form.capacity)?.get();
        let reserve = required("reserve", form.reserve)?.0.ppm().into();
        let time_to_live = required("time_to_live", form.time_to_live)?.0;
        let leases = form.max_leases(capacity);
        Self::with_share(capacity, reserve, time_to_live, leases).map_err(text)
    }

    fn numbers(&self) -> Vec<u64> {
        [self.capacity(), self.reserve(), self.period().0, wide(self.max_leases())].into()
    }

    fn of_numbers(numbers: &[u64]) -> Result<Self, ConfigError> {
        let [capacity, reserve, time_to_live, leases] = *numbers else {
            return Err(unfit(numbers));
        };
        Self::new(capacity, reserve, Micros(time_to_live), leases)
    }

    fn describe(&self) -> String {
        let (capacity, reserve, lives) = (self.capacity(), self.reserve(), span(self.period()));
        let room = room(self.max_leases(), capacity.saturating_sub(reserve));
        format!(
            "{capacity} at once, {reserve} of them for the most important class alone, each for \
             {lives} unless renewed{room}"
        )
    }

    const KIND: Kind = Kind::Lease;
    const CAUSE: Cause = Cause::ReducedCapacity;

    fn decide(&self, state: &mut State<&mut [u64]>, now: Timestamp, request: &Request) -> Decided {
        let id = counted(request)?;
        if request.cost > 0 {
            self.advance(state, now); // `acquire` does not at high priority
        }
        Ok(self.acquire(state, now, priority(request), id, request.places())?)
    }

    fn peek(&self, state: &State<&[u64]>, now: Timestamp, request: &Request) -> Decided {
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

    holds_leases!();
    adopts_leases!();
}

/// The lease under which a request takes a place. Requests of high priority are not counted.
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
