//! The limiters that can hold.

use super::list::Holds;
use super::reservable::Reservable;
use crate::bucket;
use crate::decision::{Answer, InvalidState};
use crate::limiter::State;
use crate::time::{Micros, Timestamp};
use crate::window::calendar::{self, Boundaries, Instants};
use crate::window::{Refund, fixed, log, sliding};

/// The boundaries of a limiter that counts by no [`Calendar`](calendar::Calendar).
pub type Listed = Instants<&'static [Timestamp]>;

/// A limiter on units over time, which counts the units of a key with holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Counter<B = Listed> {
    /// [`bucket`]
    TokenBucket(bucket::Config),
    /// [`window::fixed`](fixed)
    FixedWindow(fixed::Config),
    /// [`window::calendar`](calendar)
    Calendar(calendar::Config<B>),
    /// [`window::sliding`](sliding)
    SlidingWindow(sliding::Config),
    /// [`window::log`](log)
    SlidingLog(log::Config),
}

macro_rules! counters {
    ($($name:ident($config:ty),)*) => {
        impl<B: Boundaries> Counter<B> {
            /// The limiter without its type, so that the code of holds exists once.
            #[inline]
            pub(super) fn counting(&self) -> &dyn Counting {
                match self {
                    $(Self::$name(limiter) => limiter,)*
                }
            }

            pub(super) fn beside_holds(self) -> Self {
                match self {
                    $(Self::$name(limiter) => Self::$name(limiter.beside_holds()),)*
                }
            }
        }

        $(impl<B: Boundaries> From<$config> for Counter<B> {
            fn from(limiter: $config) -> Self {
                Self::$name(limiter)
            }
        })*
    };
}

counters! {
    TokenBucket(bucket::Config),
    FixedWindow(fixed::Config),
    Calendar(calendar::Config<B>),
    SlidingWindow(sliding::Config),
    SlidingLog(log::Config),
}

/// The operations of a [`Counter`] on its words.
pub(super) trait Counting {
    fn words(&self) -> usize;
    fn capacity(&self) -> u64;
    fn period(&self) -> Micros;
    fn newest(&self, words: &[u64]) -> Timestamp;
    fn reset_after(&self, words: &[u64]) -> Micros;
    fn accepts(&self, words: &[u64]) -> Result<(), InvalidState>;
    fn peek(&self, words: &[u64], now: Timestamp, cost: u64) -> Answer;
    fn wait(&self, words: &[u64], now: Timestamp, cost: u64) -> Micros;
    fn note_refusal(&self, words: &mut [u64], now: Timestamp, cost: u64);
    fn decide(&self, words: &mut [u64], now: Timestamp, cost: u64) -> Answer;
    fn charge(&self, words: &mut [u64], now: Timestamp, cost: u64);
    fn used(&self, words: &[u64]) -> u64;
    fn counts(&self, words: &[u64], granted_at: Timestamp, units: u64) -> bool;
    fn advance(&self, words: &mut [u64], now: Timestamp);
    /// The number of words with which a hold remembers what came after its grant.
    fn since(&self) -> usize;
    fn pass(&self, words: &mut [u64], since: &mut [u64], now: Timestamp);
    fn took(&self, since: &mut [u64], units: u64);
    fn give_back(&self, words: &mut [u64], holds: &mut Holds<&mut [u64]>, refund: Refund);
    fn before(&self, words: &[u64]) -> u64;
    fn settle(&self, words: &mut [u64], holds: &mut Holds<&mut [u64]>, place: usize, actual: u64);
}

impl<L: Reservable> Counting for L {
    fn words(&self) -> usize {
        L::words(self)
    }

    fn capacity(&self) -> u64 {
        L::capacity(self)
    }

    fn period(&self) -> Micros {
        L::period(self)
    }

    fn newest(&self, words: &[u64]) -> Timestamp {
        State::<L, _>::over(words).newest()
    }

    fn reset_after(&self, words: &[u64]) -> Micros {
        L::reset_after(self, &State::over(words))
    }

    fn accepts(&self, words: &[u64]) -> Result<(), InvalidState> {
        L::accepts(self, &State::over(words))
    }

    fn peek(&self, words: &[u64], now: Timestamp, cost: u64) -> Answer {
        L::peek(self, &State::over(words), now, cost)
    }

    fn wait(&self, words: &[u64], now: Timestamp, cost: u64) -> Micros {
        L::wait(self, &State::over(words), now, cost)
    }

    fn note_refusal(&self, words: &mut [u64], now: Timestamp, cost: u64) {
        L::note_refusal(self, &mut State::over(words), now, cost);
    }

    fn decide(&self, words: &mut [u64], now: Timestamp, cost: u64) -> Answer {
        L::decide(self, &mut State::over(words), now, cost)
    }

    fn charge(&self, words: &mut [u64], now: Timestamp, cost: u64) {
        L::charge(self, &mut State::over(words), now, cost);
    }

    fn used(&self, words: &[u64]) -> u64 {
        L::used(self, &State::over(words))
    }

    fn counts(&self, words: &[u64], granted_at: Timestamp, units: u64) -> bool {
        L::counts(self, &State::over(words), granted_at, units)
    }

    fn advance(&self, words: &mut [u64], now: Timestamp) {
        L::advance(self, &mut State::over(words), now);
    }

    fn since(&self) -> usize {
        L::SINCE
    }

    fn pass(&self, words: &mut [u64], since: &mut [u64], now: Timestamp) {
        L::pass(self, &mut State::over(words), since, now);
    }

    fn took(&self, since: &mut [u64], units: u64) {
        L::took(self, since, units);
    }

    fn give_back(&self, words: &mut [u64], holds: &mut Holds<&mut [u64]>, refund: Refund) {
        L::give_back(self, &mut State::over(words), holds, refund);
    }

    fn before(&self, words: &[u64]) -> u64 {
        L::before(self, &State::over(words))
    }

    fn settle(&self, words: &mut [u64], holds: &mut Holds<&mut [u64]>, place: usize, actual: u64) {
        L::settle(self, &mut State::over(words), holds, place, actual);
    }
}
