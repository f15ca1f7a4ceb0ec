//! `connections`: a number of connections at once, counted by owner. A request opens one connection,
//! whatever its cost.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use tidegate_core::Timestamp;
use tidegate_core::lease::connections::DEFAULT_EXPIRY;
use tidegate_core::lease::connections::{Config, State};
use tidegate_core::lease::{Held, Leases};
use tidegate_core::{ConfigError, Limiter, Micros};

use super::Kind;
use super::algorithm::{Algorithm, Decided, adopts_leases, held};
use super::build::{required, text};
use super::describe::span;
use super::form::LimitForm;
use super::parameters::{unfit, wide};
use super::request::{Operation, Request};

impl Algorithm for Config {
    const NAME: &'static str = "connections";
    const NUMBER: u64 = 7;
    const FIELDS: &'static [&'static str] = &["limit", "expiry", "max_owners"];

    fn read(form: &LimitForm) -> Result<Self, String> {
        let limit = required("limit", form.limit)?.get();
        let expiry = form.expiry.map_or(DEFAULT_EXPIRY, |span| span.0);
        let owners = form.max_owners.map_or(DEFAULT_MAX_OWNERS, |owners| owners.get());
        Self::new(limit, expiry, owners).map_err(text)
    }

    fn numbers(&self) -> Vec<u64> {
        [self.limit(), self.period().0, wide(self.max_owners())].into()
    }

    fn of_numbers(numbers: &[u64]) -> Result<Self, ConfigError> {
        let [limit, expiry, owners] = *numbers else { return Err(unfit(numbers)) };
        Self::new(limit, Micros(expiry), owners)
    }

    fn describe(&self) -> String {
        let (limit, owners, expiry) = (self.limit(), self.max_owners(), span(self.period()));
        format!(
            "{limit} connections of up to {owners} owners; an owner that sends nothing for {expiry} is \
             forgotten"
        )
    }

    const KIND: Kind = Kind::Lease;

    fn decide(&self, state: &mut State<&mut [u64]>, now: Timestamp, request: &Request) -> Decided {
        Ok(self.open(state, now, held(request)?, request.places())?)
    }

    fn peek(&self, state: &State<&[u64]>, now: Timestamp, request: &Request) -> Decided {
        let owner = request.lease.unwrap_or_default(); // by default an owner that the state does not have yet
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

    adopts_leases!();
}

/// More than the number of server processes that usually hold the connections of one key.
const DEFAULT_MAX_OWNERS: u64 = 64;
