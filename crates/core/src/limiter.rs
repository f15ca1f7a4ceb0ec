//! The contract that every limiter keeps, and the one shape of their states.

#[cfg(test)]
mod tests;

use core::marker::PhantomData;

use crate::decision::{Answer, InvalidState};
use crate::time::{Micros, Timestamp};
use crate::window::Refund;

/// What every limiter does with its state, whatever it decides by.
///
/// The trait is sealed: the limiters of this crate implement it, and nobody else has to.
pub trait Limiter: Copy + sealed::Sealed {
    /// The number of words in a state.
    fn words(&self) -> usize;

    /// The span in which everything that is granted comes back. A clock that was further ahead is
    /// believed again: see [`Timestamp::taken_after`].
    fn period(&self) -> Micros;

    /// Moves the state to `now`, as any decision does first; consumes nothing.
    fn advance(&self, state: &mut State<Self, impl WordsMut>, now: Timestamp);

    /// The span from the newest time seen to [`expires_at`](Self::expires_at).
    #[must_use]
    fn reset_after(&self, state: &State<Self, impl Words>) -> Micros;

    /// Checks the contents of a state that comes from a store.
    ///
    /// # Errors
    /// [`InvalidState`] if no operation of this configuration can have left the state behind.
    fn accepts(&self, state: &State<Self, impl Words>) -> Result<(), InvalidState>;

    /// The state in these words, which are all zero for a key never seen. Whether the words mean
    /// something is for [`accepts`](Self::accepts) to say.
    ///
    /// # Errors
    /// [`InvalidState`] if there are not [`words`](Self::words) of them.
    #[inline]
    fn state<W: AsRef<[u64]>>(&self, words: W) -> Result<State<Self, W>, InvalidState> {
        if words.as_ref().len() == self.words() {
            Ok(State::over(words))
        } else {
            Err(InvalidState)
        }
    }

    /// From this time on the state equals a fresh one, so that a store may forget it.
    #[must_use]
    #[inline]
    fn expires_at(&self, state: &State<Self, impl Words>) -> Timestamp {
        state.newest().saturating_add(self.reset_after(state))
    }
}

/// A limiter that counts units over time.
pub trait RateLimiter: Limiter {
    /// The most units that can pass at once.
    fn capacity(&self) -> u64;

    /// Decides on a request of `cost` units at `now`; 0 is a peek.
    ///
    /// # Errors
    /// [`CostExceedsCapacity`](crate::CostExceedsCapacity); the state is untouched.
    fn decide(&self, state: &mut State<Self, impl WordsMut>, now: Timestamp, cost: u64) -> Answer;

    /// What [`decide`](Self::decide) would answer; changes nothing.
    ///
    /// # Errors
    /// As [`decide`](Self::decide).
    fn peek(&self, state: &State<Self, impl Words>, now: Timestamp, cost: u64) -> Answer;

    /// Counts `cost` units that were spent already, whether there is room or not: the real cost of
    /// a request that was granted on an estimate. Each limiter bounds the debt.
    fn charge(&self, state: &mut State<Self, impl WordsMut>, now: Timestamp, cost: u64);

    /// The units that count as used at the newest time: more than the
    /// [`capacity`](Self::capacity) while there is a debt.
    fn used(&self, state: &State<Self, impl Words>) -> u64;

    /// Gives back units that were granted and not used.
    fn refund(&self, state: &mut State<Self, impl WordsMut>, refund: Refund);
}

/// Words that can be read: an array, a vector, or a slice of them.
pub trait Words: AsRef<[u64]> {}

impl<W: AsRef<[u64]>> Words for W {}

/// [`Words`] that can be changed too.
pub trait WordsMut: Words + AsMut<[u64]> {}

impl<W: Words + AsMut<[u64]>> WordsMut for W {}

/// What a limiter `L` remembers of a key: words in an array, or in a buffer of the caller's.
///
/// All words are zero for a key never seen. [`Limiter::state`] makes a state of any words; the
/// small ones are also made of an array, and by `State::default()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State<L, W> {
    words: W,
    limiter: PhantomData<L>,
}

impl<L, W> State<L, W> {
    /// A state whose owner has seen to the number of its words.
    #[inline]
    pub(crate) const fn over(words: W) -> Self {
        Self { words, limiter: PhantomData }
    }
}

impl<L: Limiter, W: AsRef<[u64]>> State<L, W> {
    /// The newest time seen.
    #[must_use]
    #[inline]
    pub fn newest(&self) -> Timestamp {
        Timestamp(self.words().get(L::NEWEST).copied().unwrap_or(0))
    }

    /// The words, to be stored.
    #[must_use]
    #[inline]
    pub fn words(&self) -> &[u64] {
        self.words.as_ref()
    }

    /// The first words, for a limiter that has at least so many.
    #[inline]
    pub(crate) fn read<const N: usize>(&self) -> [u64; N] {
        self.words().first_chunk().copied().unwrap_or([0; N])
    }
}

impl<L, W: AsRef<[u64]>> State<L, W> {
    /// The same words under another limiter, for one that is built of it.
    #[inline]
    pub(crate) fn under<M>(&self) -> State<M, &[u64]> {
        State::over(self.words.as_ref())
    }
}

impl<L, W: AsMut<[u64]>> State<L, W> {
    /// As [`under`](Self::under), to be changed.
    #[inline]
    pub(crate) fn under_mut<M>(&mut self) -> State<M, &mut [u64]> {
        State::over(self.words.as_mut())
    }

    #[inline]
    pub(crate) fn words_mut(&mut self) -> &mut [u64] {
        self.words.as_mut()
    }

    /// Replaces the first words, for a limiter that has at least so many.
    #[inline]
    pub(crate) fn write<const N: usize>(&mut self, words: [u64; N]) {
        if let Some(first) = self.words_mut().first_chunk_mut() {
            *first = words;
        }
    }
}

/// Seals a limiter whose state is an array of `$words` words, and makes states of arrays.
macro_rules! small_state {
    ($config:ty, $words:literal, newest: $newest:literal) => {
        impl $crate::limiter::sealed::Sealed for $config {
            const NEWEST: usize = $newest;
        }

        impl Default for $crate::limiter::State<$config, [u64; $words]> {
            fn default() -> Self {
                Self::over([0; $words])
            }
        }

        impl From<[u64; $words]> for $crate::limiter::State<$config, [u64; $words]> {
            fn from(words: [u64; $words]) -> Self {
                Self::over(words)
            }
        }
    };
}

pub(crate) use small_state;

pub(crate) mod sealed {
    /// Implemented by the limiters of this crate alone.
    pub trait Sealed {
        /// Which word of a state is the newest time.
        const NEWEST: usize = 0;
    }
}
