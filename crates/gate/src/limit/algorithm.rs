//! The interface between a policy and an algorithm, and how the limiters of `core` implement it.

use alloc::string::String;
use alloc::vec::Vec;

use tidegate_core::lease::budget::{Allowance, Refundable};
use tidegate_core::lease::{Held, Id};
use tidegate_core::shed::Probability;
use tidegate_core::shed::suppression::Report;
use tidegate_core::window::Refund;
use tidegate_core::{Ahead, ConfigError, Decision, Limiter, Micros, State, Timestamp};

use super::form::LimitForm;
use super::request::{Operation, OperationError, Request, Unspent};
use super::{Kind, Limit, Variant, ask};

pub(crate) type Decided = Result<Decision, OperationError>;

/// Why a limit refuses, in the order of precedence. The problem types of the HTTP API have
/// these names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The service sheds load. The caller did nothing wrong and may try another server.
    ReducedCapacity,
    /// The caller used up what the limit grants.
    QuotaExceeded,
    /// The caller went on after refusals.
    AbnormalUsage,
}

impl Kind {
    const fn cause(self) -> Cause {
        match self {
            Self::Shed => Cause::ReducedCapacity,
            Self::Rate | Self::Lease | Self::Budget => Cause::QuotaExceeded,
        }
    }
}

/// The interface between a policy and an algorithm, beyond [`Limiter`]. Each algorithm implements it in its
/// own file.
///
/// If [`decide`](Self::decide) grants a request, [`peek`](Self::peek) gives the same answer before, and at a cost
/// of 0 also after.
pub(crate) trait Algorithm: Limiter + Variant {
    /// The kind of the algorithm.
    const KIND: Kind;

    /// Why the algorithm refuses.
    const CAUSE: Cause = Self::KIND.cause();

    /// Whether the algorithm refuses everything after refusals by other limits, and for no other reason. A
    /// policy of such limits alone does nothing.
    const PUNISHES_REFUSALS: bool = false;

    /// The name of the algorithm in the policy file.
    const NAME: &'static str;

    /// The number of the algorithm in [parameters](Limit::parameters). No other algorithm may ever have it,
    /// because fingerprints of stored states contain it.
    const NUMBER: u64;

    /// The fields of the algorithm in the policy file, beside those of every limit.
    const FIELDS: &'static [&'static str];

    /// Reads the configuration from the policy file.
    ///
    /// # Errors
    /// The message says what was expected and what was found. The caller adds the place.
    fn read(form: &LimitForm) -> Result<Self, String>;

    /// Takes over the number of classes that may be shed, which the policy sets.
    ///
    /// # Errors
    /// Fails with [`ConfigError`] if the algorithm cannot distinguish this number of classes.
    fn set_classes(&mut self, _shed: u16) -> Result<(), ConfigError> {
        Ok(())
    }

    /// The configuration in numbers. No other configuration of the algorithm has the same numbers.
    fn numbers(&self) -> Vec<u64>;

    /// The configuration with these [`numbers`](Self::numbers).
    ///
    /// # Errors
    /// Fails with [`ConfigError`] for numbers that no configuration has.
    fn of_numbers(numbers: &[u64]) -> Result<Self, ConfigError>;

    /// The numbers that tell states of the limit from those of other limits. They leave out what may change while states
    /// stay. A limit [of these numbers](Self::of_numbers) can say what its states count.
    fn identity(&self) -> Vec<u64> {
        self.numbers()
    }

    /// The numbers that a count belongs to: limits that differ in other numbers alone go on with each other's states.
    fn count(&self) -> Vec<u64> {
        self.numbers()
    }

    /// Goes on with a state of a limit that has the same [`count`](Self::count).
    fn go_on_from(&self, _state: &mut State<Self, &mut [u64]>, _old: &Self) {}

    /// A description of the limit in words, with exact quantities.
    fn describe(&self) -> String;

    /// The number of the part that makes a request wait longest; `None` if none does, and for an algorithm of one part.
    fn held_by(&self, _state: &State<Self, &[u64]>, _now: Timestamp, _cost: u64) -> Option<u8> {
        None
    }

    /// A description of the part with this number; `None` if there is no such part.
    fn describe_part(&self, _part: u8) -> Option<String> {
        None
    }

    /// Decides on a request. A cost of 0 is a peek.
    fn decide(
        &self,
        state: &mut State<Self, &mut [u64]>,
        now: Timestamp,
        request: &Request,
    ) -> Decided;

    /// Answers as [`decide`](Self::decide) would, and changes nothing.
    fn peek(&self, state: &State<Self, &[u64]>, now: Timestamp, request: &Request) -> Decided;

    /// The most units that can be granted at once; unlimited for an algorithm that counts no units.
    fn capacity(&self) -> u64 {
        u64::MAX
    }

    /// Whether a refusal changes more of the state than its newest time.
    fn remembers_refusals(&self) -> bool {
        false
    }

    /// Refuses a request that this limiter `grants`, or refuses too, and records the refusal. Returns what
    /// the limiter says of the request, and how long the same request then has to wait because of it.
    fn refuse(
        &self,
        state: &mut State<Self, &mut [u64]>,
        now: Timestamp,
        request: &Request,
        grants: bool,
    ) -> Result<(Decision, Micros), OperationError> {
        if grants {
            let wait = self.note_refusal(state, now, request);
            let said = Algorithm::peek(self, &state.borrowed(), now, &request.peek())?; // nothing was taken
            return Ok((said, wait));
        }
        let said = Algorithm::peek(self, &state.borrowed(), now, request)?;
        let wait = self.note_refusal(state, now, request);
        Ok((said, wait.max(said.retry_after())))
    }

    /// Records a request that any limiter of the policy refused. Returns how long the same request now has
    /// to wait because of recorded refusals.
    fn note_refusal(
        &self,
        state: &mut State<Self, &mut [u64]>,
        now: Timestamp,
        _request: &Request,
    ) -> Micros {
        self.advance(state, now);
        Micros::ZERO
    }

    /// The units that count as used at the newest time, which may exceed the capacity; `None` for an
    /// algorithm that counts no units.
    fn used(&self, _state: &State<Self, &[u64]>) -> Option<u64> {
        None
    }

    /// How many units the state remembers, or leases; `None` for an algorithm that counts neither.
    fn remembered(&self, state: &State<Self, &[u64]>) -> Option<u64> {
        self.used(state)
    }

    /// The most that a state can remember: units beyond the capacity are a debt.
    fn most_counted(&self) -> u64 {
        Algorithm::capacity(self).saturating_mul(2)
    }

    /// Whether [`charge_ahead`](Self::charge_ahead) can make the state stricter in advance, or need not do so.
    fn charges_ahead(&self) -> bool {
        false
    }

    /// Charges units before they are granted. `None` if that is not possible; nothing has changed then.
    fn charge_ahead(
        &self,
        _state: &mut State<Self, &mut [u64]>,
        _units: u64,
        _span: Micros,
    ) -> Option<Ahead> {
        None
    }

    /// Takes units that were already spent, for an algorithm that counts units.
    fn charge(&self, _state: &mut State<Self, &mut [u64]>, _now: Timestamp, _cost: u64) {}

    /// The form in which a limiter on units over time takes unused units back.
    fn come_back(&self, unused: &Refundable) -> Refund {
        unused.to_window()
    }

    /// Returns units that were not used, for an algorithm that counts units.
    fn refund(&self, _: &mut State<Self, &mut [u64]>, _now: Timestamp, _unused: &Refundable) {}

    /// Whether the algorithm would hold a lease for this request.
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

    /// The number of units that correspond to one unit under `old`, as a fraction.
    fn ratio(&self, old: &Self) -> (u64, u64) {
        (Algorithm::capacity(self), Algorithm::capacity(old))
    }

    /// Takes over the leases, or the units with their times, of the same algorithm with other numbers. Units
    /// are scaled by the ratio. `false` if the algorithm keeps nothing of this kind.
    fn adopt(
        &self,
        _own: &mut State<Self, &mut [u64]>,
        _old: &Self,
        _held: &State<Self, &[u64]>,
        _ratio: (u64, u64),
    ) -> bool {
        false
    }

    /// Grants a holder some of the `available` units, for a budget.
    fn grant(
        &self,
        _state: &mut State<Self, &mut [u64]>,
        _now: Timestamp,
        (_holder, _wants): (Id, u64),
        _available: u64,
    ) -> Option<Allowance> {
        None
    }

    /// Takes back a holder's unspent units, for a budget.
    fn give_back(
        &self,
        _state: &mut State<Self, &mut [u64]>,
        _now: Timestamp,
        _holder: Id,
        _unspent: Unspent,
    ) -> Option<Refundable> {
        None
    }

    /// The fraction of the load that reporters must refuse, for an algorithm that has reporters.
    fn factor(&self, _state: &State<Self, &[u64]>, _now: Timestamp) -> Option<Probability> {
        None
    }

    /// Counts the load that a reporter was offered, for an algorithm that has reporters.
    fn report(&self, _state: &mut State<Self, &mut [u64]>, _now: Timestamp, _report: Report) {}
}

impl Limit {
    /// The name of the algorithm in the policy file.
    pub(crate) fn algorithm(&self) -> &'static str {
        const fn name<A: Algorithm>(_: &A) -> &'static str {
            A::NAME
        }
        ask!(self, |limiter| name(limiter))
    }

    /// Why this limit refuses.
    #[must_use]
    pub fn cause(&self) -> Cause {
        const fn cause<A: Algorithm>(_: &A) -> Cause {
            A::CAUSE
        }
        ask!(self, |limiter| cause(limiter))
    }

    /// Whether the limit refuses everything after refusals by other limits, and for no other reason.
    pub(crate) fn punishes_refusals(&self) -> bool {
        const fn punishes<A: Algorithm>(_: &A) -> bool {
            A::PUNISHES_REFUSALS
        }
        ask!(self, |limiter| punishes(limiter))
    }

    /// Whether the state of the limit can be [charged ahead](Self::charge_ahead).
    pub(crate) fn charges_ahead(&self) -> bool {
        ask!(self, |limiter| limiter.charges_ahead())
    }

    /// The most units that a state can remember, or leases.
    pub(crate) fn most_counted(&self) -> u64 {
        ask!(self, |limiter| limiter.most_counted())
    }

    /// The form in which the limit takes unused units back.
    pub(crate) fn come_back(&self, unused: &Refundable) -> Refund {
        ask!(self, |limiter| limiter.come_back(unused))
    }

    /// Takes over the number of classes that may be shed, which the policy sets.
    ///
    /// # Errors
    /// Fails with [`ConfigError`] if the limit cannot distinguish this number of classes.
    pub(crate) fn set_classes(&mut self, shed: u16) -> Result<(), ConfigError> {
        ask!(self, |limiter| limiter.set_classes(shed))
    }

    /// The number of units under this limit that correspond to one unit under `old`, as a fraction.
    pub(crate) fn ratio(&self, old: &Self) -> (u64, u64) {
        fn ratio<A: Algorithm>(limiter: &A, old: &Limit) -> Option<(u64, u64)> {
            A::of(old).map(|old| limiter.ratio(old))
        }
        ask!(self, |limiter| ratio(limiter, old)).unwrap_or((self.capacity(), old.capacity()))
    }
}

/// Implements [`Algorithm`] for a [`RateLimiter`](tidegate_core::RateLimiter).
macro_rules! asks_a_rate_limiter {
    () => {
        const KIND: Kind = Kind::Rate;

        #[inline(always)] // a call would move the answer in memory
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
            let refund = self.come_back(&$crate::limit::algorithm::still_counted(self, unused));
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
        fn remembered(&self, state: &State<&[u64]>) -> Option<u64> {
            Some(Leases::count(self, state))
        }

        fn most_counted(&self) -> u64 {
            Leases::most(self)
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
