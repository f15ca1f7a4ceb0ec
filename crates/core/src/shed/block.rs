//! Block: refuses all requests of a key for a time, whatever its limits decide.
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | F | time at which the block began | µs since the epoch |
//! | S | span of the block | µs |
//!
//! | P | period of the key's limits, or S if that is longer | µs |
//!
//! A request at `now` is refused iff F − P ≤ `now` < F + S. If `now` is further before F, the clock was
//! wrong when the block began, and the block is over: see [`Timestamp::taken_after`].
//!
//! **Guarantee:** a key is blocked for S by a clock that runs, and for at most P + S by a clock that
//! steps.
//!
//! State: 2 words, F and S. A key without a block has no words.
//!
//! ```
//! use tidegate_core::{Micros, Timestamp, shed::block::Block};
//!
//! let (block, period) = (Block::new(Timestamp(1_000), Micros(60)), Micros(100));
//! assert_eq!(block.retry_after(Timestamp(900), period), Some(Micros(160)));
//! assert_eq!(block.retry_after(Timestamp(1_059), period), Some(Micros(1)));
//! assert_eq!(block.retry_after(Timestamp(1_060), period), None);
//! ```

#[cfg(test)]
mod tests;

use crate::decision::InvalidState;
use crate::time::{Micros, Timestamp};

/// A time for which a key is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    from: Timestamp,
    span: Micros,
}

impl Block {
    /// Makes a block that begins at `from` and lasts `span`, but at most [`Micros::MAX`].
    #[must_use]
    pub const fn new(from: Timestamp, span: Micros) -> Self {
        let span = if span.0 > Micros::MAX.0 { Micros::MAX } else { span };
        Self { from, span }
    }

    /// The span from `now` until the block ends, on a key whose limits have this period. `None` if it is over.
    #[must_use]
    pub const fn retry_after(&self, now: Timestamp, period: Micros) -> Option<Micros> {
        let period = if period.0 > self.span.0 { period } else { self.span };
        match self.left(now) {
            Micros(0) => None,
            _ if now.taken_after(self.from, period).0 < self.from.0 => None, // the clock has stepped back
            Micros(left) if left > Micros::MAX.0 => Some(Micros::MAX),
            left => Some(left),
        }
    }

    /// The span from `now` until the block has ended for good, also if the clock stands too far before it to be refused.
    #[must_use]
    pub const fn left(&self, now: Timestamp) -> Micros {
        self.from.saturating_add(self.span).saturating_since(now)
    }

    /// The block as the words of its state.
    #[must_use]
    pub const fn to_words(self) -> [u64; 2] {
        [self.from.0, self.span.0]
    }

    /// The block of these words of a state.
    ///
    /// # Errors
    /// Returns [`InvalidState`] if the span is 0 or above [`Micros::MAX`].
    pub const fn from_words([from, span]: [u64; 2]) -> Result<Self, InvalidState> {
        if span == 0 || span > Micros::MAX.0 {
            return Err(InvalidState);
        }
        Ok(Self { from: Timestamp(from), span: Micros(span) })
    }
}
