//! Block: refuses all requests of a key for a time, whatever its limits decide.
//!
//! | symbol | meaning | unit |
//! |---|---|---|
//! | F | time at which the block began | µs since the epoch |
//! | S | span of the block | µs |
//!
//! A request at `now` is refused iff F ≤ taken < F + S. `taken` is `now`, or F if `now` is at most S
//! before F. If `now` is further before F, the clock was wrong when the block began, and the block
//! is over.
//!
//! **Guarantee:** a key is blocked for S by a clock that runs, and for at most 2·S by a clock that
//! steps.
//!
//! State: 2 words, F and S. A key without a block has no words.
//!
//! ```
//! use tidegate_core::{Micros, Timestamp, shed::block::Block};
//!
//! let block = Block::new(Timestamp(1_000), Micros(60));
//! assert_eq!(block.retry_after(Timestamp(1_020)), Some(Micros(40)));
//! assert_eq!(block.retry_after(Timestamp(1_059)), Some(Micros(1)));
//! assert_eq!(block.retry_after(Timestamp(1_060)), None);
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

    /// The span for which the block still lasts at `now`. `None` if it is over.
    #[must_use]
    pub const fn retry_after(&self, now: Timestamp) -> Option<Micros> {
        let passed = match now.taken_after(self.from, self.span) {
            taken if taken.0 >= self.from.0 => taken.saturating_since(self.from),
            _ => return None, // the clock stepped back by more than the span
        };
        match self.span.0.checked_sub(passed.0) {
            None | Some(0) => None,
            Some(left) => Some(Micros(left)),
        }
    }

    /// Whether the block has ended for good, and not only for a clock that stands before it.
    #[must_use]
    pub const fn is_over(&self, now: Timestamp) -> bool {
        now.0 >= self.from.0.saturating_add(self.span.0)
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
