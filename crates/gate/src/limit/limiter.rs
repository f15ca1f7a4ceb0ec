//! What a policy asks of a limiter.

use tidegate_core::lease::Held;
use tidegate_core::lease::budget::Refundable;
use tidegate_core::{Decision, InvalidState, Micros, Timestamp};

use crate::request::{Operation, OperationError, Request};

pub(super) type Answer = Result<Decision, OperationError>;

/// What a policy asks of a limiter. Nothing is answered about words of another length.
pub(super) trait Limiter {
    fn words(&self) -> usize;
    fn period(&self) -> Micros;
    fn decide(&self, words: &mut [u64], now: Timestamp, request: &Request) -> Option<Answer>;
    fn peek(&self, words: &[u64], now: Timestamp, request: &Request) -> Option<Answer>;
    fn advance(&self, words: &mut [u64], now: Timestamp) -> Option<()>;
    fn newest_and_reset(&self, words: &[u64]) -> Option<(Timestamp, Micros)>;
    fn accepts(&self, words: &[u64]) -> Option<Result<(), InvalidState>>;

    /// Any cost is granted at once, for a limiter that counts no units.
    fn capacity(&self) -> u64 {
        u64::MAX
    }

    /// Takes notice of a request that was refused, whoever refused it, and says how long the
    /// same request now has to wait for this limiter. A limiter that remembers no refusals takes
    /// notice of the time, and says nothing new.
    fn refused(&self, words: &mut [u64], now: Timestamp, _request: &Request) -> Option<Micros> {
        self.advance(words, now).map(|()| Micros::ZERO)
    }

    /// Nothing, for a limiter that counts no units.
    fn charge(&self, _words: &mut [u64], _now: Timestamp, _cost: u64) -> Option<()> {
        None
    }

    /// `None`, for a limiter that counts no units.
    fn used(&self, _words: &[u64]) -> Option<u64> {
        None
    }

    /// Nothing, for a limiter without leases.
    fn hold(&self, _words: &mut [u64], _now: Timestamp, _: &Operation) -> Option<Held> {
        None
    }

    /// Nothing, for a limiter that counts no units.
    fn refund(&self, _words: &mut [u64], _now: Timestamp, _unused: &Refundable) -> Option<()> {
        None
    }
}

/// What all limiters answer alike whose `state` borrows its words.
macro_rules! with_borrowed_words {
    () => {
        fn words(&self) -> usize {
            self.words()
        }
        fn period(&self) -> Micros {
            self.period()
        }
        fn advance(&self, words: &mut [u64], now: Timestamp) -> Option<()> {
            self.advance(&mut self.state(words).ok()?, now);
            Some(())
        }
        fn newest_and_reset(&self, words: &[u64]) -> Option<(Timestamp, Micros)> {
            let state = self.state(words).ok()?;
            Some((state.newest(), self.reset_after(&state)))
        }
        fn accepts(&self, words: &[u64]) -> Option<Result<(), InvalidState>> {
            Some(self.accepts(&self.state(words).ok()?))
        }
    };
}

/// The same, for those whose state is made of so many words.
macro_rules! with_words {
    ($count:literal, $state:ty) => {
        fn words(&self) -> usize {
            $count
        }
        fn period(&self) -> Micros {
            self.period()
        }
        fn advance(&self, words: &mut [u64], now: Timestamp) -> Option<()> {
            on_words!(state = $state, words, self.advance(state, now))
        }
        fn newest_and_reset(&self, words: &[u64]) -> Option<(Timestamp, Micros)> {
            let state = <$state>::from_words(*words.as_array()?);
            Some((state.newest(), self.reset_after(&state)))
        }
        fn accepts(&self, words: &[u64]) -> Option<Result<(), InvalidState>> {
            Some(self.accepts(&<$state>::from_words(*words.as_array()?)))
        }
    };
}

/// Runs `$body` on a state made of words, and writes it back.
macro_rules! on_words {
    ($state:ident = $type:ty, $words:expr, $body:expr) => {{
        let words = $words.as_mut_array()?;
        let $state = &mut <$type>::from_words(*words);
        let result = $body;
        *words = $state.to_words();
        Some(result)
    }};
}

pub(super) use {on_words, with_borrowed_words, with_words};
