//! How the limiters that turn away answer.

use tidegate_core::lease::budget::Refundable;
use tidegate_core::shed::suppression::{PART, Report};
use tidegate_core::shed::{penalty, suppression, utilization};
use tidegate_core::{Decision, InvalidState, Micros, Timestamp};

use super::limiter::{Answer, Limiter, on_words, with_borrowed_words, with_words};
use crate::request::Request;

/// Whatever a request costs, it is of one class and is shed or not: 1 of 1. `retry_after` is a hint.
impl Limiter for utilization::Config {
    with_words!(3, utilization::State);

    fn decide(&self, words: &mut [u64], now: Timestamp, request: &Request) -> Option<Answer> {
        if request.cost == 0 {
            return Limiter::peek(self, words, now, request);
        }
        on_words!(state = utilization::State, words, {
            let verdict = self.decide(state, now, request.signal, request.class, request.draw);
            Ok(told(self, state, verdict))
        })
    }
    fn peek(&self, words: &[u64], now: Timestamp, request: &Request) -> Option<Answer> {
        let mut state = utilization::State::from_words(*words.as_array()?);
        let verdict = self.decide(&mut state, now, request.signal, request.class, request.draw);
        Some(Ok(match told(self, &state, verdict) {
            decision if request.cost == 0 => looked(decision),
            decision => decision,
        }))
    }
    /// The signal counts, whoever refused.
    fn refused(&self, words: &mut [u64], now: Timestamp, request: &Request) -> Option<Micros> {
        Limiter::decide(self, words, now, request).map(|_| Micros::ZERO)
    }
}

fn told(
    config: &utilization::Config,
    state: &utilization::State,
    verdict: utilization::Verdict,
) -> Decision {
    let (limit, reset_after) = (1, config.reset_after(state));
    match verdict {
        utilization::Verdict::Admitted => Decision::Allow { limit, remaining: 1, reset_after },
        utilization::Verdict::Shed { retry_after } => {
            Decision::Deny { limit, remaining: 0, retry_after, reset_after }
        }
    }
}

/// One reporter and the master in one: what is decided here is counted here. `limit` is that of a
/// part of 6 s, `remaining` what the one in progress has left of it, and `retry_after`, a hint,
/// its end.
impl Limiter for suppression::Config {
    with_words!(9, suppression::State);

    fn decide(&self, words: &mut [u64], now: Timestamp, request: &Request) -> Option<Answer> {
        if request.cost == 0 {
            return Limiter::peek(self, words, now, request);
        }
        on_words!(state = suppression::State, words, Ok(suppress(self, state, now, request)))
    }
    fn peek(&self, words: &[u64], now: Timestamp, request: &Request) -> Option<Answer> {
        let mut state = suppression::State::from_words(*words.as_array()?);
        Some(Ok(suppress(self, &mut state, now, request)))
    }
    /// It was offered, whoever refused.
    fn refused(&self, words: &mut [u64], now: Timestamp, request: &Request) -> Option<Micros> {
        on_words!(state = suppression::State, words, {
            count(self, state, now, (0, request.cost));
            Micros::ZERO
        })
    }
    fn charge(&self, words: &mut [u64], now: Timestamp, cost: u64) -> Option<()> {
        on_words!(state = suppression::State, words, count(self, state, now, (cost, 0)))
    }
    fn refund(&self, words: &mut [u64], now: Timestamp, unused: &Refundable) -> Option<()> {
        on_words!(state = suppression::State, words, {
            self.advance(state, now);
            self.refund(state, unused.to_window());
        })
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
    now: Timestamp,
    (admitted, suppressed): (u64, u64),
) {
    config.advance(state, now);
    let offered_at = state.newest();
    config.report(state, offered_at, Report { offered_at, admitted, suppressed });
}

/// Whatever a request costs, a penalty lets it through or not.
impl Limiter for penalty::Config {
    with_borrowed_words!();

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
    fn refused(&self, words: &mut [u64], now: Timestamp, _: &Request) -> Option<Micros> {
        let mut state = self.state(words).ok()?;
        self.refused(&mut state, now);
        Some(self.peek(&state, now).retry_after())
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
