//! How the limiters that turn away answer.

use tidegate_core::shed::suppression::{PART, Report};
use tidegate_core::shed::{penalty, suppression, utilization};
use tidegate_core::{Decision, InvalidState, Micros, Timestamp};

use super::limiter::{Answer, Limiter};
use crate::request::Request;

/// Whatever a request costs, it is of one class and is shed or not: 1 of 1. `retry_after` is a hint.
impl Limiter for utilization::Config {
    fn words(&self) -> usize {
        3
    }
    fn capacity(&self) -> u64 {
        u64::MAX
    }
    fn period(&self) -> Micros {
        self.period()
    }
    fn decide(&self, words: &mut [u64], now: Timestamp, request: &Request) -> Option<Answer> {
        if request.cost == 0 {
            return Limiter::peek(self, words, now, request);
        }
        let words = words.as_mut_array()?;
        let mut state = utilization::State::from_words(*words);
        let verdict = self.decide(&mut state, now, request.signal, request.class, request.draw);
        *words = state.to_words();
        Some(Ok(told(self, &state, verdict)))
    }
    fn peek(&self, words: &[u64], now: Timestamp, request: &Request) -> Option<Answer> {
        let mut state = utilization::State::from_words(*words.as_array()?);
        let verdict = self.decide(&mut state, now, request.signal, request.class, request.draw);
        Some(Ok(match told(self, &state, verdict) {
            decision if request.cost == 0 => looked(decision),
            decision => decision,
        }))
    }
    fn advance(&self, words: &mut [u64], now: Timestamp) -> Option<()> {
        let words = words.as_mut_array()?;
        let mut state = utilization::State::from_words(*words);
        self.advance(&mut state, now);
        *words = state.to_words();
        Some(())
    }
    /// The signal counts, whoever refused.
    fn refused(&self, words: &mut [u64], now: Timestamp, request: &Request) -> Option<()> {
        Limiter::decide(self, words, now, request).map(drop)
    }
    fn newest_and_reset(&self, words: &[u64]) -> Option<(Timestamp, Micros)> {
        let state = utilization::State::from_words(*words.as_array()?);
        Some((state.newest(), self.reset_after(&state)))
    }
    fn accepts(&self, words: &[u64]) -> Option<Result<(), InvalidState>> {
        Some(self.accepts(&utilization::State::from_words(*words.as_array()?)))
    }
}

fn told(
    config: &utilization::Config,
    state: &utilization::State,
    verdict: utilization::Verdict,
) -> Decision {
    let (limit, reset_after) = (1, config.reset_after(state));
    match verdict {
        utilization::Verdict::Admitted { .. } => {
            Decision::Allow { limit, remaining: 1, reset_after }
        }
        utilization::Verdict::Shed { retry_after, .. } => {
            Decision::Deny { limit, remaining: 0, retry_after, reset_after }
        }
    }
}

/// One reporter and the master in one: what is decided here is counted here. `limit` is that of a
/// part of 6 s, `remaining` what the one in progress has left of it, and `retry_after`, a hint,
/// its end.
impl Limiter for suppression::Config {
    fn words(&self) -> usize {
        9
    }
    fn capacity(&self) -> u64 {
        u64::MAX
    }
    fn period(&self) -> Micros {
        self.period()
    }
    fn decide(&self, words: &mut [u64], now: Timestamp, request: &Request) -> Option<Answer> {
        if request.cost == 0 {
            return Limiter::peek(self, words, now, request);
        }
        let words = words.as_mut_array()?;
        let mut state = suppression::State::from_words(*words);
        let decision = suppress(self, &mut state, now, request);
        *words = state.to_words();
        Some(Ok(decision))
    }
    fn peek(&self, words: &[u64], now: Timestamp, request: &Request) -> Option<Answer> {
        let mut state = suppression::State::from_words(*words.as_array()?);
        Some(Ok(suppress(self, &mut state, now, request)))
    }
    fn advance(&self, words: &mut [u64], now: Timestamp) -> Option<()> {
        let words = words.as_mut_array()?;
        let mut state = suppression::State::from_words(*words);
        self.advance(&mut state, now);
        *words = state.to_words();
        Some(())
    }
    /// It was offered, whoever refused.
    fn refused(&self, words: &mut [u64], now: Timestamp, request: &Request) -> Option<()> {
        let words = words.as_mut_array()?;
        let mut state = suppression::State::from_words(*words);
        self.advance(&mut state, now);
        count(self, &mut state, (0, request.cost));
        *words = state.to_words();
        Some(())
    }
    fn charge(&self, words: &mut [u64], now: Timestamp, cost: u64) -> Option<()> {
        let words = words.as_mut_array()?;
        let mut state = suppression::State::from_words(*words);
        self.advance(&mut state, now);
        count(self, &mut state, (cost, 0));
        *words = state.to_words();
        Some(())
    }
    fn newest_and_reset(&self, words: &[u64]) -> Option<(Timestamp, Micros)> {
        let state = suppression::State::from_words(*words.as_array()?);
        Some((state.newest(), self.reset_after(&state)))
    }
    fn accepts(&self, words: &[u64]) -> Option<Result<(), InvalidState>> {
        Some(self.accepts(&suppression::State::from_words(*words.as_array()?)))
    }
}

fn suppress(
    config: &suppression::Config,
    state: &mut suppression::State,
    now: Timestamp,
    request: &Request,
) -> Decision {
    let passes = config.decide(state, now, request.cost, request.draw) || request.cost == 0;
    let [_, passed, refused, ..] = state.to_words(); // of the part in progress
    let limit = config.units_per_part();
    let remaining = limit.saturating_sub(passed.saturating_add(refused));
    let reset_after = config.reset_after(state);
    if passes {
        return Decision::Allow { limit, remaining, reset_after };
    }
    let into = state.newest().0.checked_rem(PART.0).unwrap_or(0);
    let retry_after = Micros(PART.0.saturating_sub(into));
    Decision::Deny { limit, remaining, retry_after, reset_after }
}

/// Units that pass and units that do not, at the newest time.
fn count(
    config: &suppression::Config,
    state: &mut suppression::State,
    (admitted, suppressed): (u64, u64),
) {
    if admitted > 0 || suppressed > 0 {
        let offered_at = state.newest();
        config.report(state, offered_at, Report { offered_at, admitted, suppressed });
    }
}

/// Whatever a request costs, a penalty lets it through or not.
impl Limiter for penalty::Config {
    fn words(&self) -> usize {
        self.words()
    }
    fn capacity(&self) -> u64 {
        u64::MAX
    }
    fn period(&self) -> Micros {
        self.period()
    }
    fn decide(&self, words: &mut [u64], now: Timestamp, request: &Request) -> Option<Answer> {
        if request.cost == 0 {
            return Limiter::peek(self, words, now, request);
        }
        Some(Ok(self.decide(&mut self.state(words).ok()?, now)))
    }
    fn peek(&self, words: &[u64], now: Timestamp, request: &Request) -> Option<Answer> {
        Some(Ok(match self.peek(&self.state(words).ok()?, now) {
            decision if request.cost == 0 => looked(decision),
            decision => decision,
        }))
    }
    fn advance(&self, words: &mut [u64], now: Timestamp) -> Option<()> {
        self.advance(&mut self.state(words).ok()?, now);
        Some(())
    }
    fn refused(&self, words: &mut [u64], now: Timestamp, _: &Request) -> Option<()> {
        self.refused(&mut self.state(words).ok()?, now);
        Some(())
    }
    fn newest_and_reset(&self, words: &[u64]) -> Option<(Timestamp, Micros)> {
        let state = self.state(words).ok()?;
        Some((state.newest(), self.reset_after(&state)))
    }
    fn accepts(&self, words: &[u64]) -> Option<Result<(), InvalidState>> {
        Some(self.accepts(&self.state(words).ok()?))
    }
}

/// To look is free.
const fn looked(decision: Decision) -> Decision {
    Decision::Allow {
        limit: decision.limit(),
        remaining: decision.remaining(),
        reset_after: decision.reset_after(),
    }
}
