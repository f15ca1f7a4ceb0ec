//! How the limiters that count units over time answer.

use tidegate_core::lease::budget::Refundable;
use tidegate_core::window::{fixed, log, sliding};
use tidegate_core::{InvalidState, Micros, Timestamp, bucket};

use super::limiter::{Answer, Limiter, on_words, with_borrowed_words, with_words};
use crate::request::Request;

impl Limiter for bucket::Config {
    with_words!(2, bucket::State);

    fn capacity(&self) -> u64 {
        self.capacity()
    }
    #[inline]
    fn decide(&self, words: &mut [u64], now: Timestamp, request: &Request) -> Option<Answer> {
        on_words!(
            state = bucket::State,
            words,
            self.decide(state, now, request.cost).map_err(Into::into)
        )
    }
    fn peek(&self, words: &[u64], now: Timestamp, request: &Request) -> Option<Answer> {
        let state = bucket::State::from_words(*words.as_array()?);
        Some(self.peek(&state, now, request.cost).map_err(Into::into))
    }
    fn used(&self, words: &[u64]) -> Option<u64> {
        Some(self.used(&bucket::State::from_words(*words.as_array()?)))
    }
    fn charge(&self, words: &mut [u64], now: Timestamp, cost: u64) -> Option<()> {
        on_words!(state = bucket::State, words, self.charge(state, now, cost))
    }
    fn refund(&self, words: &mut [u64], now: Timestamp, unused: &Refundable) -> Option<()> {
        on_words!(state = bucket::State, words, {
            self.advance(state, now);
            self.refund(state, unused.to_bucket(self));
        })
    }
}

impl Limiter for fixed::Config {
    with_words!(2, fixed::State);

    fn capacity(&self) -> u64 {
        self.limit()
    }
    #[inline]
    fn decide(&self, words: &mut [u64], now: Timestamp, request: &Request) -> Option<Answer> {
        on_words!(
            state = fixed::State,
            words,
            self.decide(state, now, request.cost).map_err(Into::into)
        )
    }
    fn peek(&self, words: &[u64], now: Timestamp, request: &Request) -> Option<Answer> {
        let state = fixed::State::from_words(*words.as_array()?);
        Some(self.peek(&state, now, request.cost).map_err(Into::into))
    }
    fn used(&self, words: &[u64]) -> Option<u64> {
        Some(self.used(&fixed::State::from_words(*words.as_array()?)))
    }
    fn charge(&self, words: &mut [u64], now: Timestamp, cost: u64) -> Option<()> {
        on_words!(state = fixed::State, words, self.charge(state, now, cost))
    }
    fn refund(&self, words: &mut [u64], now: Timestamp, unused: &Refundable) -> Option<()> {
        on_words!(state = fixed::State, words, {
            self.advance(state, now);
            self.refund(state, unused.to_window());
        })
    }
}

/// Runs `$body` on the state of a sliding window, and writes its head back.
macro_rules! with_sliding {
    ($state:ident, $config:expr, $words:expr, $body:expr) => {{
        let (head, counts) = $words.split_first_chunk_mut()?;
        let $state = &mut $config.state_from(*head, counts).ok()?;
        let result = $body;
        *head = $state.head();
        Some(result)
    }};
}

impl Limiter for sliding::Config {
    fn words(&self) -> usize {
        self.segments().saturating_add(4)
    }
    fn capacity(&self) -> u64 {
        self.limit()
    }
    fn period(&self) -> Micros {
        self.period()
    }
    #[inline]
    fn decide(&self, words: &mut [u64], now: Timestamp, request: &Request) -> Option<Answer> {
        with_sliding!(state, self, words, self.decide(state, now, request.cost).map_err(Into::into))
    }
    fn peek(&self, words: &[u64], now: Timestamp, request: &Request) -> Option<Answer> {
        let (head, counts) = words.split_first_chunk()?;
        let state = self.state_from(*head, counts).ok()?;
        Some(self.peek(&state, now, request.cost).map_err(Into::into))
    }
    fn advance(&self, words: &mut [u64], now: Timestamp) -> Option<()> {
        with_sliding!(state, self, words, self.advance(state, now))
    }
    fn used(&self, words: &[u64]) -> Option<u64> {
        let (head, counts) = words.split_first_chunk()?;
        Some(self.used(&self.state_from(*head, counts).ok()?))
    }
    fn charge(&self, words: &mut [u64], now: Timestamp, cost: u64) -> Option<()> {
        with_sliding!(state, self, words, self.charge(state, now, cost))
    }
    fn refund(&self, words: &mut [u64], now: Timestamp, unused: &Refundable) -> Option<()> {
        with_sliding!(state, self, words, {
            self.advance(state, now);
            self.refund(state, unused.to_window());
        })
    }
    fn newest_and_reset(&self, words: &[u64]) -> Option<(Timestamp, Micros)> {
        let (head, counts) = words.split_first_chunk()?;
        let state = self.state_from(*head, counts).ok()?;
        Some((state.newest(), self.reset_after(&state)))
    }
    fn accepts(&self, words: &[u64]) -> Option<Result<(), InvalidState>> {
        let (head, counts) = words.split_first_chunk()?;
        Some(self.accepts(&self.state_from(*head, counts).ok()?))
    }
}

impl Limiter for log::Config {
    with_borrowed_words!();

    fn capacity(&self) -> u64 {
        self.limit()
    }
    #[inline]
    fn decide(&self, words: &mut [u64], now: Timestamp, request: &Request) -> Option<Answer> {
        let mut state = self.state(words).ok()?;
        Some(self.decide(&mut state, now, request.cost).map_err(Into::into))
    }
    fn peek(&self, words: &[u64], now: Timestamp, request: &Request) -> Option<Answer> {
        let state = self.state(words).ok()?;
        Some(self.peek(&state, now, request.cost).map_err(Into::into))
    }
    fn refused(&self, words: &mut [u64], now: Timestamp, request: &Request) -> Option<Micros> {
        Some(self.refused(&mut self.state(words).ok()?, now, request.cost))
    }
    fn used(&self, words: &[u64]) -> Option<u64> {
        Some(self.used(&self.state(words).ok()?))
    }
    fn charge(&self, words: &mut [u64], now: Timestamp, cost: u64) -> Option<()> {
        self.charge(&mut self.state(words).ok()?, now, cost);
        Some(())
    }
    fn refund(&self, words: &mut [u64], now: Timestamp, unused: &Refundable) -> Option<()> {
        let mut state = self.state(words).ok()?;
        self.advance(&mut state, now);
        self.refund(&mut state, unused.to_window());
        Some(())
    }
}
