//! Limits on units over time under a policy with `reservations`: each holds the estimates of requests whose true cost is known later.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use tidegate_core::hold::{self, Counter, OnExpiry, Reserved, Terms, Times};
use tidegate_core::lease::Id;
use tidegate_core::lease::budget::Refundable;
use tidegate_core::window::Refund;
use tidegate_core::window::calendar::Calendar;
use tidegate_core::{Ahead, ConfigError, Decision, Limiter, Micros, Timestamp};

use super::algorithm::{Algorithm, Decided, still_counted};
use super::calendar_window::zone::Shifts;
use super::describe::span;
use super::form::LimitForm;
use super::parameters::unfit;
use super::request::{OperationError, Request};
use super::{Kind, Limit};

pub type Config = hold::Config<Calendar<Shifts>>;
pub(super) type State<W> = hold::State<W, Calendar<Shifts>>;

impl Algorithm for Config {
    const KIND: Kind = Kind::Rate;
    const NAME: &'static str = "reservations";
    const NUMBER: u64 = 100;
    const FIELDS: &'static [&'static str] = &[];

    fn read(_: &LimitForm) -> Result<Self, String> {
        Err(format!("expected `{}` as a field of the policy, found a limit", Self::NAME))
    }

    fn numbers(&self) -> Vec<u64> {
        terms_of(self).into_iter().chain(counting(self).parameters()).collect()
    }

    fn identity(&self) -> Vec<u64> {
        terms_of(self).into_iter().chain(counting(self).identity()).collect()
    }

    fn of_numbers(numbers: &[u64]) -> Result<Self, ConfigError> {
        let [most, longest, remember, charges @ (0 | 1), ref own @ ..] = *numbers else {
            return Err(unfit(numbers));
        };
        let on_expiry = if charges == 1 { OnExpiry::Charge } else { OnExpiry::Release };
        let (longest, remember) = (Micros(longest), Micros(remember));
        let limit = Limit::from_parameters(own)?;
        let holding = limit.holding(Terms { most, longest, remember, on_expiry })?;
        holding.ok_or_else(|| unfit(numbers))
    }

    fn describe(&self) -> String {
        let Terms { most, longest, .. } = self.terms();
        let (limit, longest) = (counting(self).describe(), span(longest));
        format!("{limit}; up to {most} reservations, each for up to {longest}")
    }

    fn held_by(&self, state: &State<&[u64]>, now: Timestamp, cost: u64) -> Option<u8> {
        counting(self).held_by(self.counted(state), now, cost)
    }

    fn describe_part(&self, part: u8) -> Option<String> {
        counting(self).describe_part(part)
    }

    fn decide(&self, state: &mut State<&mut [u64]>, now: Timestamp, request: &Request) -> Decided {
        let Request { cost, hold, .. } = *request;
        if cost == 0 {
            return Algorithm::peek(self, &state.borrowed(), now, request);
        }
        // the exact wait of a refusal counts the holds that end meanwhile, but not this refusal
        let before = Algorithm::remembers_refusals(self);
        let said =
            before.then(|| Algorithm::peek(self, &state.borrowed(), now, request)).transpose()?;
        let decided = match id_of(request) {
            None => Some(self.decide(state, now, cost)?),
            Some(id) => match self.reserve(state, now, id, cost, hold)? {
                Reserved::Decided(decision) => Some(decision),
                Reserved::Again { .. } => None,
                Reserved::Ended | Reserved::Full { .. } => {
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

    fn peek(&self, state: &State<&[u64]>, now: Timestamp, request: &Request) -> Decided {
        if self.has_no_holds(state) {
            return Ok(self.peek_counted(state, now, request.cost)?);
        }
        if id_of(request).is_none() && self.ends_nothing(state, now) {
            let said = self.peek_counted(state, now, request.cost)?;
            if said.is_allowed() {
                return Ok(said); // the wait of a refusal would depend on the holds
            }
        }
        let mut words = Vec::from(state.words());
        let mut copy = self.state(&mut words[..]).map_err(|_| OperationError::InvalidState)?;
        match self.peek(&mut copy, now, id_of(request), request.cost)? {
            Reserved::Decided(decision) => Ok(decision),
            // a reservation that is repeated takes nothing
            Reserved::Again { .. } | Reserved::Ended | Reserved::Full { .. } => {
                match self.peek(&mut copy, now, None, 0)? {
                    Reserved::Decided(decision) => Ok(decision),
                    _ => Err(OperationError::InvalidState),
                }
            }
        }
    }

    fn capacity(&self) -> u64 {
        self.capacity()
    }

    fn remembers_refusals(&self) -> bool {
        matches!(self.counter(), Counter::SlidingLog(_)) && counting(self).remembers_refusals()
    }

    /// While there are holds, only a peek knows the exact wait: it counts those that end meanwhile, and this refusal.
    fn refuse(
        &self,
        state: &mut State<&mut [u64]>,
        now: Timestamp,
        request: &Request,
        grants: bool,
    ) -> Result<(Decision, Micros), OperationError> {
        let has_holds = !self.has_no_holds(&state.borrowed());
        if grants {
            let wait = self.note_refusal(state, now, request);
            let said = Algorithm::peek(self, &state.borrowed(), now, &request.peek())?; // nothing was taken
            return Ok((said, wait));
        }
        let said = Algorithm::peek(self, &state.borrowed(), now, request)?;
        let wait = self.note_refusal(state, now, request);
        let wait = if has_holds { Micros::ZERO } else { wait };
        Ok((said, wait.max(said.retry_after())))
    }

    fn note_refusal(
        &self,
        state: &mut State<&mut [u64]>,
        now: Timestamp,
        request: &Request,
    ) -> Micros {
        self.advance(state, now);
        let newest = state.newest();
        self.change_counted(state, |words| counting(self).note_refusal(words, newest, request))
            .unwrap_or(Micros::MAX)
    }

    fn used(&self, state: &State<&[u64]>) -> Option<u64> {
        counting(self).used(self.counted(state))
    }

    fn remembered(&self, state: &State<&[u64]>) -> Option<u64> {
        counting(self).remembered(self.counted(state))
    }

    fn most_counted(&self) -> u64 {
        counting(self).most_counted()
    }

    fn charges_ahead(&self) -> bool {
        counting(self).charges_ahead()
    }

    /// While units are held, the stored state cannot be ahead: what comes back after a commit depends on the order of the grants.
    fn charge_ahead(
        &self,
        state: &mut State<&mut [u64]>,
        units: u64,
        span: Micros,
    ) -> Option<Ahead> {
        if !self.has_no_holds(&state.borrowed()) {
            return None;
        }
        self.change_counted(state, |words| counting(self).charge_ahead(words, units, span))?
    }

    fn charge(&self, state: &mut State<&mut [u64]>, now: Timestamp, cost: u64) {
        self.charge(state, now, cost);
    }

    fn come_back(&self, unused: &Refundable) -> Refund {
        counting(self).come_back(unused)
    }

    fn refund(&self, state: &mut State<&mut [u64]>, now: Timestamp, unused: &Refundable) {
        let refund = self.come_back(&still_counted(self, unused));
        self.advance(state, now);
        self.refund(state, refund);
    }

    fn ratio(&self, old: &Self) -> (u64, u64) {
        counting(self).ratio(&counting(old))
    }

    fn adopt(
        &self,
        own: &mut State<&mut [u64]>,
        old: &Self,
        held: &State<&[u64]>,
        ratio: (u64, u64),
    ) -> bool {
        if ratio.0 == ratio.1 && takes_over(self, own, old, held) {
            return true;
        }
        let counted = old.counted(held);
        let adopted = self.change_counted(own, |words| {
            counting(self).adopts(words, &counting(old), counted, ratio)
        });
        self.remember_holds_of(own, old, held);
        adopted.unwrap_or(false)
    }
}

/// Goes on with a key that counted, and held, under other numbers. `false` if its holds end.
fn takes_over(
    config: &Config,
    own: &mut State<&mut [u64]>,
    old: &Config,
    held: &State<&[u64]>,
) -> bool {
    let mut words = Vec::from(held.words());
    let Ok(mut before) = old.state(&mut words[..]) else { return false };
    config.take_over(own, old, &mut before, |words, counted| {
        let (limit, old) = (counting(config), counting(old));
        if old.remembered(counted)? > limit.most_counted() {
            return None;
        }
        if limit.adopts(words, &old, counted, (1, 1)) {
            return Some(Times::Kept);
        }
        let newest = old.newest(counted);
        limit.advance(words, newest);
        limit.continue_used(words, newest, (&old, counted), (1, 1));
        Some(Times::Newest)
    })
}

/// The terms in numbers.
fn terms_of(config: &Config) -> [u64; 4] {
    let Terms { most, longest, remember, on_expiry } = config.terms();
    [most, longest.0, remember.0, u64::from(on_expiry == OnExpiry::Charge)]
}

/// The limit that counts the units.
fn counting(config: &Config) -> Limit {
    match *config.counter() {
        Counter::Calendar(ref limiter) => Limit::Calendar(limiter.clone()),
        Counter::TokenBucket(limiter) => Limit::TokenBucket(limiter),
        Counter::FixedWindow(limiter) => Limit::FixedWindow(limiter),
        Counter::SlidingWindow(limiter) => Limit::SlidingWindow(limiter),
        Counter::SlidingLog(limiter) => Limit::SlidingLog(limiter),
    }
}

/// The id under which a request holds its cost, if it does.
fn id_of(request: &Request) -> Option<Id> {
    request.lease.filter(|_| request.reserves())
}

impl Limit {
    /// The same limit, which holds on these terms; `None` if it is no limit on units over time.
    ///
    /// # Errors
    /// Fails with [`ConfigError`] if the terms are out of bounds.
    pub(crate) fn holding(&self, terms: Terms) -> Result<Option<Config>, ConfigError> {
        let counter: Counter<Calendar<Shifts>> = match *self {
            Self::Calendar(ref limiter) => limiter.clone().into(),
            Self::TokenBucket(limiter) => limiter.into(),
            Self::FixedWindow(limiter) => limiter.into(),
            Self::SlidingWindow(limiter) => limiter.into(),
            Self::SlidingLog(limiter) => limiter.into(),
            _ => return Ok(None),
        };
        Config::new(counter, terms).map(Some)
    }
}
