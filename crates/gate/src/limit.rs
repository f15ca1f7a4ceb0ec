//! One limiter of a policy, whichever it is, over state kept as plain words.

use tidegate_core::window::{fixed, sliding};
use tidegate_core::{
    ConfigError, CostExceedsCapacity, Decision, InvalidState, Micros, Rate, Timestamp, bucket,
};

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
}

/// Runs `$body` with the limiter and its state, and writes the state back if it may have changed.
macro_rules! with_state {
    (mut $words:expr, $limit:expr, |$config:ident, $state:ident| $body:expr) => {
        match $limit {
            Limit::TokenBucket($config) => $words.as_mut_array().map(|words| {
                let $state = &mut bucket::State::from_words(*words);
                let result = $body;
                *words = $state.to_words();
                result
            }),
            Limit::FixedWindow($config) => $words.as_mut_array().map(|words| {
                let $state = &mut fixed::State::from_words(*words);
                let result = $body;
                *words = $state.to_words();
                result
            }),
            Limit::SlidingWindow($config) => {
                $words.split_first_chunk_mut().and_then(|(head, counts)| {
                    let $state = &mut $config.state_from(*head, counts).ok()?;
                    let result = $body;
                    *head = $state.head();
                    Some(result)
                })
            }
        }
    };
    ($words:expr, $limit:expr, |$config:ident, $state:ident| $body:expr) => {
        match $limit {
            Limit::TokenBucket($config) => $words.as_array().map(|words| {
                let $state = &bucket::State::from_words(*words);
                $body
            }),
            Limit::FixedWindow($config) => $words.as_array().map(|words| {
                let $state = &fixed::State::from_words(*words);
                $body
            }),
            Limit::SlidingWindow($config) => {
                $words.split_first_chunk().and_then(|(head, counts)| {
                    let $state = &$config.state_from(*head, counts).ok()?;
                    Some($body)
                })
            }
        }
    };
}

impl Limit {
    /// How many words a state has.
    #[must_use]
    #[inline]
    pub const fn words(&self) -> usize {
        match self {
            Self::TokenBucket(_) | Self::FixedWindow(_) => 2,
            Self::SlidingWindow(config) => config.segments().saturating_add(4),
        }
    }

    /// The most that can be granted at once.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        match self {
            Self::TokenBucket(config) => config.capacity(),
            Self::FixedWindow(config) => config.limit(),
            Self::SlidingWindow(config) => config.limit(),
        }
    }

    /// The span in which the capacity comes back.
    #[must_use]
    pub const fn period(&self) -> Micros {
        match self {
            Self::TokenBucket(config) => config.period(),
            Self::FixedWindow(config) => config.period(),
            Self::SlidingWindow(config) => config.period(),
        }
    }

    /// The configuration in numbers, to tell it from any other.
    #[must_use]
    pub fn parameters(&self) -> [u64; 4] {
        match self {
            Self::TokenBucket(config) => {
                let (units, period) = config.rate();
                [1, config.capacity(), units, period.0]
            }
            Self::FixedWindow(config) => [2, config.limit(), config.period().0, 0],
            Self::SlidingWindow(config) => {
                let segments = u64::try_from(config.segments()).unwrap_or(u64::MAX);
                [3, config.limit(), config.period().0, segments]
            }
        }
    }

    /// The limiter with these [`parameters`](Self::parameters).
    ///
    /// # Errors
    /// [`ConfigError`], also for an algorithm that does not exist.
    pub fn from_parameters(parameters: [u64; 4]) -> Result<Self, ConfigError> {
        match parameters {
            [1, capacity, units, period] => {
                let rate = Rate::new(units, Micros(period))?;
                bucket::Config::new(capacity, rate).map(Self::TokenBucket)
            }
            [2, limit, period, _] => {
                fixed::Config::new(limit, Micros(period)).map(Self::FixedWindow)
            }
            [3, limit, period, segments] => {
                sliding::Config::new(limit, Micros(period), segments).map(Self::SlidingWindow)
            }
            [found, ..] => Err(ConfigError::OutOfRange { field: "algorithm", found }),
        }
    }

    /// Decides; 0 is a peek.
    ///
    /// # Errors
    /// [`CostExceedsCapacity`]
    #[inline]
    pub fn decide(
        &self,
        words: &mut [u64],
        now: Timestamp,
        cost: u64,
    ) -> Result<Decision, CostExceedsCapacity> {
        with_state!(mut words, self, |config, state| config.decide(state, now, cost))
            .unwrap_or(Err(CostExceedsCapacity { cost, capacity: 0 }))
    }

    /// What [`decide`](Self::decide) would answer; changes nothing.
    ///
    /// # Errors
    /// As [`decide`](Self::decide).
    pub fn peek(
        &self,
        words: &[u64],
        now: Timestamp,
        cost: u64,
    ) -> Result<Decision, CostExceedsCapacity> {
        with_state!(words, self, |config, state| config.peek(state, now, cost))
            .unwrap_or(Err(CostExceedsCapacity { cost, capacity: 0 }))
    }

    /// Moves the state to `now`, as a refusal does; consumes nothing.
    pub fn advance(&self, words: &mut [u64], now: Timestamp) {
        let _ = with_state!(mut words, self, |config, state| config.advance(state, now));
    }

    /// The newest time seen, and the span from then on after which the state equals a fresh one.
    #[must_use]
    pub fn newest_and_reset(&self, words: &[u64]) -> (Timestamp, Micros) {
        with_state!(words, self, |config, state| (state.newest(), config.reset_after(state)))
            .unwrap_or_default()
    }

    /// # Errors
    /// [`InvalidState`] if no decision of this limiter can have left these words behind.
    pub fn accepts(&self, words: &[u64]) -> Result<(), InvalidState> {
        with_state!(words, self, |config, state| config.accepts(state)).unwrap_or(Err(InvalidState))
    }
}
