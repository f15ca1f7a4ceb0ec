//! The contract of every limiter, and the common shape of their states.

#[cfg(test)]
mod tests;

use core::marker::PhantomData;

use crate::decision::{Answer, InvalidState};
use crate::never::never;
use crate::time::{Micros, Timestamp};
use crate::window::Refund;

/// The operations that every limiter has on its state.
///
/// The trait is sealed: only the limiters of this crate implement it.
pub trait Limiter: Clone + sealed::Sealed {
    /// The number of words in a state.
    fn words(&self) -> usize;

    /// The span in which all that was granted comes back. A clock that was ahead by more than this
    /// span and came back is believed again: see [`Timestamp::taken_after`].
    fn period(&self) -> Micros;

    /// Moves the state to `now` and consumes nothing. Every decision begins with this.
    fn advance(&self, state: &mut State<Self, impl WordsMut>, now: Timestamp);

    /// The span from the newest time seen to [`expires_at`](Self::expires_at).
    #[must_use]
    fn reset_after(&self, state: &State<Self, impl Words>) -> Micros;

    /// Checks the contents of a state that comes from a store.
    ///
    /// # Errors
    /// Returns [`InvalidState`] if no operations under this configuration can produce the state.
    fn accepts(&self, state: &State<Self, impl Words>) -> Result<(), InvalidState>;

    /// Makes a state of these words. All words are zero for a key never seen. This checks only the
    /// number of words; [`accepts`](Self::accepts) checks their contents.
    ///
    /// # Errors
    /// Returns [`InvalidState`] if the number of words is not [`words`](Self::words).
    #[inline]
    fn state<W: AsRef<[u64]>>(&self, words: W) -> Result<State<Self, W>, InvalidState> {
        if words.as_ref().len() == self.words() {
            Ok(State::over(words))
        } else {
            Err(InvalidState)
        }
    }

    /// The most units that may be granted out of a state: `most`, or none if it has not the limiter's number of words,
    /// because it is the state of another limiter. What such a state says of units is not known, so it does not count as
    /// that of a key never seen.
    #[must_use]
    #[inline]
    fn most_of(&self, state: &State<Self, impl Words>, most: u64) -> u64 {
        if state.words().len() == self.words() { most } else { 0 }
    }

    /// The time from which the state equals a fresh one. A store may forget the state then.
    #[must_use]
    #[inline]
    fn expires_at(&self, state: &State<Self, impl Words>) -> Timestamp {
        state.newest().saturating_add(self.reset_after(state))
    }
}

/// A limiter that counts units over time.
///
/// A request of cost 0 is allowed even if everything else is refused, and its answer says what
/// remains. If [`decide`](Self::decide) grants a request, [`peek`](Self::peek) gives the same answer
/// before, and at a cost of 0 also after.
pub trait RateLimiter: Limiter {
    /// The most units that can be granted at once.
    fn capacity(&self) -> u64;

    /// Decides on a request of `cost` units at `now`. A cost of 0 is a peek.
    ///
    /// # Errors
    /// Returns [`CostExceedsCapacity`](crate::CostExceedsCapacity) if `cost` is above
    /// [`capacity`](Self::capacity). The state does not change then.
    fn decide(&self, state: &mut State<Self, impl WordsMut>, now: Timestamp, cost: u64) -> Answer;

    /// The answer that [`decide`](Self::decide) would give. The state does not change.
    ///
    /// # Errors
    /// Returns the error that [`decide`](Self::decide) would return.
    fn peek(&self, state: &State<Self, impl Words>, now: Timestamp, cost: u64) -> Answer;

    /// Counts `cost` units that were already spent, even if the limiter has no room for them. This
    /// is for the true cost of a request, which may be above what was granted. Each limiter bounds
    /// the debt.
    fn charge(&self, state: &mut State<Self, impl WordsMut>, now: Timestamp, cost: u64);

    /// Charges up to `units` that are not granted yet, at most as many as can be granted until the end.
    /// So a store can hold the state before they are granted. Grants of these units, decided from the
    /// newest time on and before the [end](Ahead::until), then lead to no state that is stricter than
    /// this one, at any time from now on. If a process that held the newer state dies, the stored one
    /// grants nothing twice.
    ///
    /// A bucket also charges what flows in until the end, at most in `span`: otherwise the units that are
    /// charged would come back before they are granted. A window needs no `span`, because nothing comes back
    /// before its segment ends. `None` if no state of this limiter can be stricter in advance, or if the key
    /// was never seen; nothing has changed then.
    fn charge_ahead(
        &self,
        _state: &mut State<Self, impl WordsMut>,
        _units: u64,
        _span: Micros,
    ) -> Option<Ahead> {
        None
    }

    /// The units that count as used at the newest time. They exceed the
    /// [`capacity`](Self::capacity) while the key is in debt.
    fn used(&self, state: &State<Self, impl Words>) -> u64;

    /// Returns units that were granted and not used.
    fn refund(&self, state: &mut State<Self, impl WordsMut>, refund: Refund);
}

/// Units that were [charged](RateLimiter::charge_ahead) before they are granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// The units, 0 if the limiter has no room for any.
    pub units: u64,
    /// They cover no grant that is decided at this time or later.
    pub until: Timestamp,
}

/// Readable words: an array, a vector or a slice.
pub trait Words: AsRef<[u64]> {}

impl<W: AsRef<[u64]>> Words for W {}

/// [`Words`] that can also be changed.
pub trait WordsMut: Words + AsMut<[u64]> {}

impl<W: Words + AsMut<[u64]>> WordsMut for W {}

/// The state of a limiter `L` for one key, in words that the caller holds.
///
/// All words are zero for a key never seen. [`Limiter::state`] makes a state of any kind of
/// [`Words`]. `State::from` an array and `State::default()` make the states of limiters whose
/// number of words is fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State<L, W> {
    words: W,
    limiter: PhantomData<L>,
}

impl<L, W> State<L, W> {
    /// Makes a state without a check. The caller guarantees the number of words.
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
        Timestamp(self.words().get(L::NEWEST).copied().unwrap_or_else(|| never(u64::MAX)))
    }

    /// The words, for a store.
    #[must_use]
    #[inline]
    pub fn words(&self) -> &[u64] {
        self.words.as_ref()
    }

    /// The first `N` words. The limiter must have at least `N`.
    #[inline]
    pub(crate) fn read<const N: usize>(&self) -> [u64; N] {
        self.words().first_chunk().copied().unwrap_or_else(|| never([u64::MAX; N]))
    }
}

impl<L, W: AsRef<[u64]>> State<L, W> {
    /// The same state, borrowed.
    #[must_use]
    #[inline]
    pub fn borrowed(&self) -> State<L, &[u64]> {
        self.under()
    }

    /// The same words as a state of `M`, for a limiter that is built on `M`.
    #[inline]
    pub(crate) fn under<M>(&self) -> State<M, &[u64]> {
        State::over(self.words.as_ref())
    }
}

impl<L, W: AsMut<[u64]>> State<L, W> {
    /// The mutable form of [`under`](Self::under).
    #[inline]
    pub(crate) fn under_mut<M>(&mut self) -> State<M, &mut [u64]> {
        State::over(self.words.as_mut())
    }

    #[inline]
    pub(crate) fn words_mut(&mut self) -> &mut [u64] {
        self.words.as_mut()
    }

    /// Replaces the first `N` words. The limiter must have at least `N`.
    #[inline]
    pub(crate) fn write<const N: usize>(&mut self, words: [u64; N]) {
        if let Some(first) = self.words_mut().first_chunk_mut() {
            *first = words;
        }
    }
}

/// Seals a limiter whose state has `$words` words, and converts arrays of them to states.
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
    /// Only the limiters of this crate implement this trait.
    pub trait Sealed {
        /// The index of the word that holds the newest time.
        const NEWEST: usize = 0;
    }
}
