//! Limits on units over time under a policy with `reservations`: each holds the estimates of requests whose true cost is known later.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use tidegate_core::hold::{Committed, Config, OnExpiry, Reservable, Reserved, State, Terms};
use tidegate_core::lease::Id;
use tidegate_core::lease::budget::Refundable;
use tidegate_core::window::Refund;
use tidegate_core::{Ahead, ConfigError, Decision, Limiter, Micros, RateLimiter, Timestamp};

use super::algorithm::{Algorithm, Decided};
use super::describe::span;
use super::form::LimitForm;
use super::parameters::unfit;
use super::request::{OperationError, Request};
use super::shared::still_counted;
use super::{Kind, Limit, Variant};

/// What is added to the number of an algorithm if it holds.
const HOLDING: u64 = 100;

impl<L: Algorithm + Reservable> Algorithm for Config<L>
where
    Self: Variant,
{
    const KIND: Kind = Kind::Rate;
    const NAME: &'static str = L::NAME;
    const NUMBER: u64 = HOLDING + L::NUMBER;
    const FIELDS: &'static [&'static str] = L::FIELDS;
    const CHARGES_AHEAD: bool = L::CHARGES_AHEAD;

    fn read(form: &LimitForm) -> Result<Self, String> {
        let limiter = L::read(form)?;
        Err(format!("expected a limit without holds, found {}", limiter.describe()))
    }

    fn numbers(&self) -> Vec<u64> {
        let Terms { most, longest, remember, on_expiry } = self.terms();
        let charges = u64::from(on_expiry == OnExpiry::Charge);
        let terms = [most, longest.0, remember.0, charges];
        terms.into_iter().chain(self.limiter().numbers()).collect()
    }

    fn of_numbers(numbers: &[u64]) -> Result<Self, ConfigError> {
        let [most, longest, remember, charges @ (0 | 1), ref own @ ..] = *numbers else {
            return Err(unfit(numbers));
        };
        let on_expiry = if charges == 1 { OnExpiry::Charge } else { OnExpiry::Release };
        let (longest, remember) = (Micros(longest), Micros(remember));
        Self::new(L::of_numbers(own)?, Terms { most, longest, remember, on_expiry })
    }

    fn describe(&self) -> String {
        let Terms { most, longest, .. } = self.terms();
        format!(
            "{}; up to {most} reservations, each for up to {}",
            self.limiter().describe(),
            span(longest)
        )
    }

    fn describe_bound(
        &self,
        state: &State<L, &[u64]>,
        now: Timestamp,
        cost: u64,
    ) -> Option<String> {
        self.limiter().describe_bound(&self.counted(state), now, cost)
    }

    fn decide(
        &self,
        state: &mut State<L, &mut [u64]>,
        now: Timestamp,
        request: &Request,
    ) -> Decided {
        let Request { cost, hold, .. } = *request;
        if cost == 0 {
            return Algorithm::peek(self, &state.borrowed(), now, request);
        }
        // the exact wait of a refusal counts the holds that end meanwhile, but not this refusal
        let before = self.limiter().remembers_refusals();
        let said =
            before.then(|| Algorithm::peek(self, &state.borrowed(), now, request)).transpose()?;
        let decided = match id_of(request) {
            None => Some(Self::decide(self, state, now, cost)?),
            Some(id) => match self.reserve(state, now, id, cost, hold)? {
                Reserved::Decided(decision) => Some(decision),
                Reserved::Again { .. } | Reserved::Ended => None,
                Reserved::Full { .. } => {
                    Algorithm::note_refusal(self, state, now, request);
                    None
                }
            },
        };
        match (decided, said) {
            (Some(decision), _) if decision.is_allowed() => Ok(decision),
            (_, Some(said)) => Ok(said),
            (Some(decision), None) if self.has_no_holds(&state.borrowed()) => Ok(decision),
            _ => Algorithm::peek(self, &state.borrowed(), now, request),
        }
    }

    fn peek(&self, state: &State<L, &[u64]>, now: Timestamp, request: &Request) -> Decided {
        if self.has_no_holds(state) {
            let taken = now.taken_after(state.newest(), self.period());
            return Ok(RateLimiter::peek(
                self.limiter(),
                &self.counted(state),
                taken,
                request.cost,
            )?);
        }
        let mut words = Vec::from(state.words());
        let mut copy = self.state(&mut words[..]).map_err(|_| OperationError::InvalidState)?;
        match Self::peek(self, &mut copy, now, id_of(request), request.cost)? {
            Reserved::Decided(decision) => Ok(decision),
            Reserved::Ended => Err(OperationError::ReservationEnded),
            // a reservation that is repeated takes nothing
            Reserved::Again { .. } | Reserved::Full { .. } => {
                let said =
                    RateLimiter::peek(self.limiter(), &self.counted(&copy), copy.newest(), 0)?;
                let (limit, remaining, reset_after) =
                    (said.limit(), said.remaining(), said.reset_after());
                Ok(Decision::Allow { limit, remaining, reset_after })
            }
        }
    }

    fn capacity(&self) -> u64 {
        Algorithm::capacity(self.limiter())
    }

    fn remembers_refusals(&self) -> bool {
        self.limiter().remembers_refusals()
    }

    fn note_refusal(
        &self,
        state: &mut State<L, &mut [u64]>,
        now: Timestamp,
        request: &Request,
    ) -> Micros {
        self.advance(state, now);
        let newest = state.newest();
        self.counting(state, |limiter, counted| limiter.note_refusal(counted, newest, request))
            .unwrap_or(Micros::MAX)
    }

    fn used(&self, state: &State<L, &[u64]>) -> Option<u64> {
        Algorithm::used(self.limiter(), &self.counted(state))
    }

    fn most_counted(&self) -> u64 {
        self.limiter().most_counted()
    }

    fn countable(&self, state: &State<L, &[u64]>) -> u64 {
        self.limiter().countable(&self.counted(state))
    }

    /// While units are held, the stored state cannot be ahead: what comes back after a commit depends on the order of the grants.
    fn charge_ahead(
        &self,
        state: &mut State<L, &mut [u64]>,
        units: u64,
        span: Micros,
    ) -> Option<Ahead> {
        if !self.has_no_holds(&state.borrowed()) {
            return None;
        }
        self.counting(state, |limiter, counted| {
            Algorithm::charge_ahead(limiter, counted, units, span)
        })?
    }

    fn charge(&self, state: &mut State<L, &mut [u64]>, now: Timestamp, cost: u64) {
        Self::charge(self, state, now, cost);
    }

    fn come_back(&self, unused: &Refundable) -> Refund {
        self.limiter().come_back(unused)
    }

    fn refund(&self, state: &mut State<L, &mut [u64]>, now: Timestamp, unused: &Refundable) {
        let refund = self.come_back(&still_counted(self, unused));
        self.advance(state, now);
        Self::refund(self, state, refund);
    }

    fn commit(
        &self,
        state: &mut State<L, &mut [u64]>,
        now: Timestamp,
        id: Id,
        actual: u64,
    ) -> Option<Committed> {
        Some(Self::commit(self, state, now, id, actual))
    }

    fn held(&self, state: &State<L, &[u64]>, id: Id) -> Option<(u64, Timestamp)> {
        self.find(state, id)
    }

    fn ratio(&self, old: &Self) -> (u64, u64) {
        self.limiter().ratio(old.limiter())
    }

    fn adopt(
        &self,
        own: &mut State<L, &mut [u64]>,
        old: &Self,
        held: &State<L, &[u64]>,
        ratio: (u64, u64),
    ) -> bool {
        let counted = old.counted(held);
        let adopted =
            self.counting(own, |limiter, own| limiter.adopt(own, old.limiter(), &counted, ratio));
        self.remember_holds_of(own, old, held);
        adopted.unwrap_or(false)
    }
}

/// The id under which a request holds its cost, if it does.
fn id_of(request: &Request) -> Option<Id> {
    request.lease.filter(|_| request.reserves())
}

impl Limit {
    /// The same limit on units over time, which holds on these terms; another limit stays as it is.
    ///
    /// # Errors
    /// Fails with [`ConfigError`] if the terms are out of bounds.
    pub(crate) fn holding(self, terms: Terms) -> Result<Self, ConfigError> {
        Ok(match self {
            Self::TokenBucket(limiter) => Self::HoldingTokenBucket(Config::new(limiter, terms)?),
            Self::FixedWindow(limiter) => Self::HoldingFixedWindow(Config::new(limiter, terms)?),
            Self::SlidingWindow(limiter) => {
                Self::HoldingSlidingWindow(Config::new(limiter, terms)?)
            }
            Self::SlidingLog(limiter) => Self::HoldingSlidingLog(Config::new(limiter, terms)?),
            other => other,
        })
    }
}
