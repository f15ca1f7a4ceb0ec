//! What several algorithms have in common.

use tidegate_core::lease::Id;
use tidegate_core::lease::budget::Refundable;
use tidegate_core::{Decision, Micros};

use super::algorithm::Algorithm;
use super::request::{OperationError, Request};

/// Implements [`Algorithm`] for a [`RateLimiter`](tidegate_core::RateLimiter).
macro_rules! asks_a_rate_limiter {
    () => {
        const KIND: Kind = Kind::Rate;

        #[inline]
        fn decide(
            &self,
            state: &mut State<&mut [u64]>,
            now: Timestamp,
            request: &Request,
        ) -> Decided {
            Ok(RateLimiter::decide(self, state, now, request.cost)?)
        }

        #[inline]
        fn peek(&self, state: &State<&[u64]>, now: Timestamp, request: &Request) -> Decided {
            Ok(RateLimiter::peek(self, state, now, request.cost)?)
        }

        fn capacity(&self) -> u64 {
            RateLimiter::capacity(self)
        }

        fn used(&self, state: &State<&[u64]>) -> Option<u64> {
            Some(RateLimiter::used(self, state))
        }

        fn charge(&self, state: &mut State<&mut [u64]>, now: Timestamp, cost: u64) {
            RateLimiter::charge(self, state, now, cost);
        }

        fn refund(&self, state: &mut State<&mut [u64]>, now: Timestamp, unused: &Refundable) {
            let refund = self.come_back(&$crate::limit::shared::still_counted(self, unused));
            self.advance(state, now);
            RateLimiter::refund(self, state, refund);
        }
    };
}

/// Charges units ahead as the [`RateLimiter`](tidegate_core::RateLimiter) does.
macro_rules! charges_ahead {
    () => {
        fn charges_ahead(&self) -> bool {
            true
        }

        fn charge_ahead(
            &self,
            state: &mut State<&mut [u64]>,
            units: u64,
            span: Micros,
        ) -> Option<Ahead> {
            RateLimiter::charge_ahead(self, state, units, span)
        }
    };
}

/// Implements the answers of a shedder. `$decide` answers a request and counts it, refused or not. So a
/// peek decides on a copy of the state.
macro_rules! asks_a_shedder {
    ($decide:path) => {
        const KIND: Kind = Kind::Shed;

        fn decide(
            &self,
            state: &mut State<&mut [u64]>,
            now: Timestamp,
            request: &Request,
        ) -> Decided {
            if request.cost == 0 {
                return Algorithm::peek(self, &state.borrowed(), now, request);
            }
            Ok($decide(self, state, now, request))
        }

        fn peek(&self, state: &State<&[u64]>, now: Timestamp, request: &Request) -> Decided {
            let Some((words, [])) = state.words().split_first_chunk() else {
                return Err(OperationError::InvalidState);
            };
            let decision = $decide(self, &mut State::from(*words), now, request);
            Ok(if request.cost == 0 { peeked(decision) } else { decision })
        }

        fn remembers_refusals(&self) -> bool {
            true
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

/// Takes over the leases of another limiter of the same algorithm.
macro_rules! adopts_leases {
    () => {
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

/// The part of unused units that counts as used. If the grant exceeds what counts at once, an edit has made
/// the limit smaller since, and the limit has forgotten the excess already.
pub(super) fn still_counted<A: Algorithm>(limiter: &A, unused: &Refundable) -> Refundable {
    let granted = unused.granted.min(limiter.most_counted());
    let forgotten = unused.granted.saturating_sub(granted);
    Refundable { units: unused.units.saturating_sub(forgotten), granted, ..*unused }
}

/// Scales used units, rounded up: a started unit is used.
pub(crate) fn scaled(used: u64, (to, from): (u64, u64)) -> u64 {
    let product = u128::from(used).saturating_mul(to.into());
    u64::try_from(product.div_ceil(u128::from(from).max(1))).unwrap_or(u64::MAX)
}

/// The same answer to a peek, which always passes.
pub(super) const fn peeked(decision: Decision) -> Decision {
    Decision::Allow {
        limit: decision.limit(),
        remaining: decision.remaining(),
        reset_after: decision.reset_after(),
    }
}

/// The answer to a request that acquires a live lease again, which renews the lease.
pub(super) const fn renewed(peeked: Decision, period: Micros) -> Decision {
    Decision::Allow { limit: peeked.limit(), remaining: peeked.remaining(), reset_after: period }
}

/// The lease under which a request takes a place. A peek takes no place and needs no lease.
pub(super) fn held(request: &Request) -> Result<Id, OperationError> {
    match request.lease {
        Some(id) => Ok(id),
        None if request.cost == 0 => Ok(Id::default()),
        None => Err(OperationError::NeedsLease),
    }
}

pub(super) use {adopts_leases, asks_a_rate_limiter, asks_a_shedder, charges_ahead, holds_leases};
