//! What a policy asks of an algorithm.

use alloc::string::String;
use alloc::vec::Vec;

use tidegate_core::lease::budget::{Allowance, Refundable};
use tidegate_core::lease::{Held, Id};
use tidegate_core::shed::Probability;
use tidegate_core::shed::suppression::Report;
use tidegate_core::{ConfigError, Decision, Limiter, Micros, State, Timestamp};

use super::{Kind, Limit};
use crate::policy::limit::LimitForm;
use crate::request::{Operation, OperationError, Request, Unspent};

pub(crate) type Answer = Result<Decision, OperationError>;

/// What a policy asks of an algorithm, beyond what every [`Limiter`] does. Each algorithm answers in
/// its own file.
///
/// What [`ask`](Self::ask) grants is what [`look`](Self::look) said before, and what a look at a cost
/// of 0 says afterwards.
pub(crate) trait Algorithm: Limiter {
    /// What it is about.
    const KIND: Kind;

    /// Its name in the policy file.
    const NAME: &'static str;

    /// Its number in [parameters](Limit::parameters), which no other algorithm ever has: it is part of
    /// the fingerprint of stored states.
    const NUMBER: u64;

    /// The fields that it has in the policy file, beside those that every limit has.
    const FIELDS: &'static [&'static str];

    /// The algorithm with the numbers of the policy file.
    ///
    /// # Errors
    /// What is wrong, in words; the policy file adds the place.
    fn read(form: &LimitForm) -> Result<Self, String>;

    /// The configuration in numbers, to tell it from any other of the same algorithm.
    fn numbers(&self) -> Vec<u64>;

    /// The configuration with these [`numbers`](Self::numbers).
    ///
    /// # Errors
    /// [`ConfigError`] for numbers that no configuration has.
    fn of_numbers(numbers: &[u64]) -> Result<Self, ConfigError>;

    /// The limit in words, every quantity exact.
    fn describe(&self) -> String;

    /// Decides on a request; a cost of 0 is a look.
    fn ask(&self, state: &mut State<Self, &mut [u64]>, now: Timestamp, request: &Request)
    -> Answer;

    /// What [`ask`](Self::ask) would answer; changes nothing.
    fn look(&self, state: &State<Self, &[u64]>, now: Timestamp, request: &Request) -> Answer;

    /// The most that can be granted at once: anything, for an algorithm that counts no units.
    fn most_at_once(&self) -> u64 {
        u64::MAX
    }

    /// Whether a refusal leaves more than the newest time behind.
    fn remembers_refusals(&self) -> bool {
        false
    }

    /// Takes notice of a request that was refused, whoever refused it, and says how long the same
    /// request now has to wait for what the algorithm remembers of refusals.
    fn note_refusal(
        &self,
        state: &mut State<Self, &mut [u64]>,
        now: Timestamp,
        _request: &Request,
    ) -> Micros {
        self.advance(state, now);
        Micros::ZERO
    }

    /// The units that count as used at the newest time, also beyond the capacity; `None` for an
    /// algorithm that counts no units.
    fn units_used(&self, _state: &State<Self, &[u64]>) -> Option<u64> {
        None
    }

    /// Takes units that were spent already, for an algorithm that counts units.
    fn spend(&self, _state: &mut State<Self, &mut [u64]>, _now: Timestamp, _cost: u64) {}

    /// Gives back units that were not used, for an algorithm that counts units.
    fn restore(&self, _: &mut State<Self, &mut [u64]>, _now: Timestamp, _unused: &Refundable) {}

    /// Whether it would hold a lease for this request.
    fn needs_lease(&self, _request: &Request) -> bool {
        false
    }

    /// Renews, counts or releases a lease; `None` for an algorithm without leases, or for another
    /// operation.
    fn hold(
        &self,
        _state: &mut State<Self, &mut [u64]>,
        _now: Timestamp,
        _operation: &Operation,
    ) -> Option<Held> {
        None
    }

    /// The algorithm of a limit, if it is this one and has what another can [`adopt`](Self::adopt).
    fn of(_limit: &Limit) -> Option<&Self> {
        None
    }

    /// Takes over what the same algorithm with other numbers holds, or remembers by its time: so many
    /// units for so many. `false` if it has no such things.
    fn adopt(
        &self,
        _own: &mut State<Self, &mut [u64]>,
        _old: &Self,
        _held: &State<Self, &[u64]>,
        _ratio: (u64, u64),
    ) -> bool {
        false
    }

    /// Grants a holder units out of the `available` ones, for a budget.
    fn grant(
        &self,
        _state: &mut State<Self, &mut [u64]>,
        _now: Timestamp,
        (_holder, _wants): (Id, u64),
        _available: u64,
    ) -> Option<Allowance> {
        None
    }

    /// What comes back of a holder's units, for a budget.
    fn give_back(
        &self,
        _state: &mut State<Self, &mut [u64]>,
        _now: Timestamp,
        _holder: Id,
        _unspent: Unspent,
    ) -> Option<Refundable> {
        None
    }

    /// The fraction of the load that reporters are to refuse, for an algorithm that has reporters.
    fn factor(&self, _state: &State<Self, &[u64]>, _now: Timestamp) -> Option<Probability> {
        None
    }

    /// Counts what a reporter has seen, for an algorithm that has reporters.
    fn report(&self, _state: &mut State<Self, &mut [u64]>, _now: Timestamp, _report: Report) {}
}

/// What a [`RateLimiter`](tidegate_core::RateLimiter) answers, whichever it is. `$come_back` says
/// what comes back of units that were not used.
macro_rules! asks_a_rate_limiter {
    (|$limiter:ident, $unused:ident| $come_back:expr) => {
        const KIND: Kind = Kind::Rate;

        #[inline]
        fn ask(&self, state: &mut State<&mut [u64]>, now: Timestamp, request: &Request) -> Answer {
            Ok(self.decide(state, now, request.cost)?)
        }

        fn look(&self, state: &State<&[u64]>, now: Timestamp, request: &Request) -> Answer {
            Ok(self.peek(state, now, request.cost)?)
        }

        fn most_at_once(&self) -> u64 {
            self.capacity()
        }

        fn units_used(&self, state: &State<&[u64]>) -> Option<u64> {
            Some(self.used(state))
        }

        fn spend(&self, state: &mut State<&mut [u64]>, now: Timestamp, cost: u64) {
            self.charge(state, now, cost);
        }

        fn restore(&self, state: &mut State<&mut [u64]>, now: Timestamp, $unused: &Refundable) {
            let $limiter = self;
            let come_back = $come_back;
            self.advance(state, now);
            self.refund(state, come_back);
        }
    };
}

/// Renews and releases the leases of a limiter that holds each by its id.
macro_rules! holds_leases {
    () => {
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
    };
}

/// Takes over the leases of the variant of [`Limit`] that holds them.
macro_rules! adopts_leases {
    ($variant:ident) => {
        fn of(limit: &Limit) -> Option<&Self> {
            match limit {
                Limit::$variant(config) => Some(config),
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
    };
}

/// The same answer to someone who only looks: to look is free.
pub(super) const fn looked(decision: Decision) -> Decision {
    Decision::Allow {
        limit: decision.limit(),
        remaining: decision.remaining(),
        reset_after: decision.reset_after(),
    }
}

/// The answer to a request that renews a live lease: to acquire it again is a heartbeat.
pub(super) const fn renewed(looked: Decision, period: Micros) -> Decision {
    Decision::Allow { limit: looked.limit(), remaining: looked.remaining(), reset_after: period }
}

/// The lease that a request takes a place under. A peek takes none and needs none.
pub(super) fn held(request: &Request) -> Result<Id, OperationError> {
    match request.lease {
        Some(id) => Ok(id),
        None if request.cost == 0 => Ok(Id::default()),
        None => Err(OperationError::NeedsLease),
    }
}

pub(super) use {adopts_leases, asks_a_rate_limiter, holds_leases};
