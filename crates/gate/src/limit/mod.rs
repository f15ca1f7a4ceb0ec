//! One limiter of a policy, whichever it is, over state kept as plain words.

mod holds;
mod limiter;
mod parameters;
mod rate;
mod shed;

use limiter::{Answer, Limiter};
pub(crate) use parameters::{read, write};
use tidegate_core::lease::budget::{Allowance, Refundable};
use tidegate_core::lease::{self, Held, Id, budget, concurrency, connections};
use tidegate_core::shed::suppression::Report;
use tidegate_core::shed::utilization::Class;
use tidegate_core::shed::{Probability, fleet, penalty, suppression, utilization};
use tidegate_core::window::{fixed, log, sliding};
use tidegate_core::{Decision, InvalidState, Micros, Timestamp, bucket};

use crate::request::{Operation, OperationError, Request, Unspent};

/// A configured limiter.
///
/// Its state is a slice of [`words`](Self::words) words, all zero for a key never seen. A slice of
/// another length belongs to something else: nothing is ever granted out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// [`tidegate_core::bucket`]
    TokenBucket(bucket::Config),
    /// [`tidegate_core::window::fixed`]
    FixedWindow(fixed::Config),
    /// [`tidegate_core::window::sliding`]
    SlidingWindow(sliding::Config),
    /// [`tidegate_core::window::log`]
    SlidingLog(log::Config),
    /// [`tidegate_core::lease::concurrency`]
    Concurrency(concurrency::Config),
    /// [`tidegate_core::lease::connections`]
    Connections(connections::Config),
    /// [`tidegate_core::lease::budget`], out of the rates of the same policy
    Budget(budget::Config),
    /// [`tidegate_core::shed::fleet`]
    Fleet(fleet::Config),
    /// [`tidegate_core::shed::utilization`]
    Utilization(utilization::Config),
    /// [`tidegate_core::shed::suppression`]
    Suppression(suppression::Config),
    /// [`tidegate_core::shed::penalty`]
    Penalty(penalty::Config),
}

/// What a limit is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Kind {
    /// Units over time.
    Rate,
    /// Places held at once.
    Lease,
    /// Whom to turn away.
    Shed,
    /// Rates spent elsewhere.
    Budget,
}

/// Asks whichever limiter it is.
macro_rules! ask {
    ($limit:expr, |$limiter:ident| $question:expr) => {
        match $limit {
            Limit::TokenBucket($limiter) => $question,
            Limit::FixedWindow($limiter) => $question,
            Limit::SlidingWindow($limiter) => $question,
            Limit::SlidingLog($limiter) => $question,
            Limit::Concurrency($limiter) => $question,
            Limit::Connections($limiter) => $question,
            Limit::Budget($limiter) => $question,
            Limit::Fleet($limiter) => $question,
            Limit::Utilization($limiter) => $question,
            Limit::Suppression($limiter) => $question,
            Limit::Penalty($limiter) => $question,
        }
    };
}

impl Limit {
    /// How many words a state has.
    #[must_use]
    #[inline]
    pub fn words(&self) -> usize {
        ask!(self, |limiter| Limiter::words(limiter))
    }

    /// The most that can be granted at once.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        ask!(self, |limiter| Limiter::capacity(limiter))
    }

    /// The span in which the capacity comes back.
    #[must_use]
    pub fn period(&self) -> Micros {
        ask!(self, |limiter| Limiter::period(limiter))
    }

    /// Decides; a cost of 0 is a peek.
    ///
    /// # Errors
    /// [`OperationError`]; nothing has changed.
    #[inline]
    pub fn decide(
        &self,
        words: &mut [u64],
        now: Timestamp,
        request: &Request,
    ) -> Result<Decision, OperationError> {
        // the most frequent one, and so short that a call would cost as much again
        if let Self::TokenBucket(bucket) = self
            && let Some(answer) = Limiter::decide(bucket, words, now, request)
        {
            return answer;
        }
        self.decide_by_whichever(words, now, request)
    }

    #[inline(never)]
    fn decide_by_whichever(&self, words: &mut [u64], now: Timestamp, request: &Request) -> Answer {
        ask!(self, |limiter| Limiter::decide(limiter, words, now, request))
            .unwrap_or(Err(OperationError::InvalidState))
    }

    /// What [`decide`](Self::decide) would answer; changes nothing.
    ///
    /// # Errors
    /// As [`decide`](Self::decide).
    pub fn peek(
        &self,
        words: &[u64],
        now: Timestamp,
        request: &Request,
    ) -> Result<Decision, OperationError> {
        ask!(self, |limiter| Limiter::peek(limiter, words, now, request))
            .unwrap_or(Err(OperationError::InvalidState))
    }

    /// Moves the state to `now`, as any decision does first; consumes nothing.
    pub fn advance(&self, words: &mut [u64], now: Timestamp) {
        let _ = ask!(self, |limiter| Limiter::advance(limiter, words, now));
    }

    /// Takes notice of a request that was refused, by this limiter or another of the same policy,
    /// and says how long the same request now has to wait for what this limiter remembers of
    /// refusals. A limiter that remembers none moves to `now`.
    pub fn refused(&self, words: &mut [u64], now: Timestamp, request: &Request) -> Micros {
        ask!(self, |limiter| Limiter::refused(limiter, words, now, request)).unwrap_or_default()
    }

    /// Whether a refusal leaves more than the newest time behind.
    #[must_use]
    pub const fn remembers_refusals(&self) -> bool {
        match self {
            Self::Penalty(_) | Self::Utilization(_) | Self::Suppression(_) => true,
            Self::SlidingLog(log) => matches!(log.denied(), log::Denied::Counted),
            _ => false,
        }
    }

    /// What it is about.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::TokenBucket(_)
            | Self::FixedWindow(_)
            | Self::SlidingWindow(_)
            | Self::SlidingLog(_) => Kind::Rate,
            Self::Concurrency(_) | Self::Connections(_) | Self::Fleet(_) => Kind::Lease,
            Self::Budget(_) => Kind::Budget,
            Self::Utilization(_) | Self::Suppression(_) | Self::Penalty(_) => Kind::Shed,
        }
    }

    /// Whether it would hold a lease for this request.
    #[must_use]
    pub const fn needs_lease(&self, request: &Request) -> bool {
        match self {
            Self::Concurrency(_) | Self::Connections(_) => request.cost > 0,
            // high priority is not counted
            Self::Fleet(_) => request.cost > 0 && request.class.0 != Class::CRITICAL.0,
            _ => false,
        }
    }

    /// Renews, counts or releases a lease; `None` if it is a limiter without leases, or another
    /// operation.
    pub fn hold(&self, words: &mut [u64], now: Timestamp, operation: &Operation) -> Option<Held> {
        ask!(self, |limiter| Limiter::hold(limiter, words, now, operation))
    }

    /// Grants a holder units out of the `available` ones; `None` if it is no budget.
    pub fn grant(
        &self,
        words: &mut [u64],
        now: Timestamp,
        (holder, wants): (Id, u64),
        available: u64,
    ) -> Option<Allowance> {
        let Self::Budget(config) = self else { return None };
        Some(config.grant(&mut config.state(words).ok()?, now, holder, wants, available))
    }

    /// What comes back of a holder's units; `None` if it is no budget, or if nothing does.
    pub fn give_back(
        &self,
        words: &mut [u64],
        now: Timestamp,
        holder: Id,
        unspent: Unspent,
    ) -> Option<Refundable> {
        let Self::Budget(config) = self else { return None };
        let Unspent { granted_at, left } = unspent;
        let expires_at = granted_at.saturating_add(config.period());
        let allowance = Allowance { left, granted_at, expires_at };
        config.give_back(&mut config.state(words).ok()?, now, holder, allowance)
    }

    /// Takes over what another limiter of the same algorithm holds, or remembers by its time: so many
    /// units for so many. `false` if it is another algorithm or has no such things.
    pub(crate) fn adopts(
        &self,
        own: &mut [u64],
        old: &Self,
        words: &[u64],
        ratio: (u64, u64),
    ) -> bool {
        match (self, old) {
            (Self::Concurrency(new), Self::Concurrency(old)) => {
                adopted(new.state(own), old.state(words), |own, held| new.adopt(own, old, held))
            }
            (Self::Connections(new), Self::Connections(old)) => {
                adopted(new.state(own), old.state(words), |own, held| new.adopt(own, old, held))
            }
            (Self::Fleet(new), Self::Fleet(old)) => {
                adopted(new.state(own), old.state(words), |own, held| new.adopt(own, old, held))
            }
            (Self::SlidingLog(new), Self::SlidingLog(old)) => {
                let (Ok(mut own), Ok(held)) = (new.state(own), old.state(words)) else {
                    return false;
                };
                new.adopt(&mut own, &held, ratio);
                true
            }
            _ => false,
        }
    }

    /// The fraction of the load that reporters are to refuse; `None` if there are none.
    #[must_use]
    pub fn factor(&self, words: &[u64], now: Timestamp) -> Option<Probability> {
        let Self::Suppression(config) = self else { return None };
        let state = suppression::State::from_words(*words.as_array()?);
        Some(config.factor(&state, now))
    }

    /// Counts what a reporter has seen.
    pub fn report(&self, words: &mut [u64], now: Timestamp, report: Report) {
        if let (Self::Suppression(config), Some(words)) = (self, words.as_mut_array()) {
            let mut state = suppression::State::from_words(*words);
            config.report(&mut state, now, report);
            *words = state.to_words();
        }
    }

    /// The units that count as used at the newest time, also beyond the capacity; `None` for a limiter
    /// that counts no units.
    pub(crate) fn used(&self, words: &[u64]) -> Option<u64> {
        ask!(self, |limiter| Limiter::used(limiter, words))
    }

    /// Takes what was spent already, whether it is there or not.
    pub fn charge(&self, words: &mut [u64], now: Timestamp, cost: u64) {
        let _ = ask!(self, |limiter| Limiter::charge(limiter, words, now, cost));
    }

    /// Gives back what was granted and not used: never so much that more would be granted than if
    /// it had not been.
    pub fn refund(&self, words: &mut [u64], now: Timestamp, unused: &Refundable) {
        let _ = ask!(self, |limiter| Limiter::refund(limiter, words, now, unused));
    }

    /// The newest time seen, and the span from then on after which the state equals a fresh one.
    #[must_use]
    pub fn newest_and_reset(&self, words: &[u64]) -> (Timestamp, Micros) {
        ask!(self, |limiter| Limiter::newest_and_reset(limiter, words)).unwrap_or_default()
    }

    /// # Errors
    /// [`InvalidState`] if no decision of this limiter can have left these words behind.
    pub fn accepts(&self, words: &[u64]) -> Result<(), InvalidState> {
        ask!(self, |limiter| Limiter::accepts(limiter, words)).unwrap_or(Err(InvalidState))
    }
}

fn adopted<W, V>(
    own: Result<lease::State<W>, InvalidState>,
    held: Result<lease::State<V>, InvalidState>,
    adopt: impl FnOnce(&mut lease::State<W>, &lease::State<V>),
) -> bool {
    match (own, held) {
        (Ok(mut own), Ok(held)) => {
            adopt(&mut own, &held);
            true
        }
        _ => false,
    }
}
