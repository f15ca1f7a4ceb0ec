//! `concurrency`: a number of leases at once. A request takes one place, whatever its cost.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use tidegate_core::lease::concurrency::{Config, State};
use tidegate_core::lease::{Held, Leases};
use tidegate_core::{ConfigError, Micros};
use tidegate_core::{Limiter, Timestamp};

use super::Kind;
use super::algorithm::{Algorithm, Decided, adopts_leases, held, holds_leases, renewed};
use super::build::{required, text};
use super::describe::{room, span};
use super::form::LimitForm;
use super::parameters::{unfit, wide};
use super::request::{Operation, Request};

impl Algorithm for Config {
    const NAME: &'static str = "concurrency";
    const NUMBER: u64 = 6;
    const FIELDS: &'static [&'static str] = &["capacity", "time_to_live", "max_leases"];

    fn read(form: &LimitForm) -> Result<Self, String> {
        let capacity = required("capacity", form.capacity)?.get();
        let time_to_live = required("time_to_live", form.time_to_live)?.0;
        Self::new(capacity, time_to_live, form.max_leases(capacity)).map_err(text)
    }

    fn numbers(&self) -> Vec<u64> {
        [self.capacity(), self.period().0, wide(self.max_leases())].into()
    }

    fn of_numbers(numbers: &[u64]) -> Result<Self, ConfigError> {
        let [capacity, time_to_live, leases] = *numbers else { return Err(unfit(numbers)) };
        Self::new(capacity, Micros(time_to_live), leases)
    }

    fn describe(&self) -> String {
        let (capacity, lives) = (self.capacity(), span(self.period()));
        let room = room(self.max_leases(), capacity);
        format!("{capacity} at once, each for {lives} unless renewed{room}")
    }

    const KIND: Kind = Kind::Lease;

    fn decide(&self, state: &mut State<&mut [u64]>, now: Timestamp, request: &Request) -> Decided {
        Ok(self.acquire(state, now, held(request)?, request.places())?)
    }

    fn peek(&self, state: &State<&[u64]>, now: Timestamp, request: &Request) -> Decided {
        if request.cost > 0 && request.lease.is_some_and(|id| self.holds(state, now, id)) {
            return Ok(renewed(self.peek(state, now, 0)?, self.period()));
        }
        Ok(self.peek(state, now, request.places())?)
    }

    fn needs_lease(&self, request: &Request) -> bool {
        request.cost > 0
    }

    holds_leases!();
    adopts_leases!();
}
