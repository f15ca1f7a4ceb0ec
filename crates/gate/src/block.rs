//! A key that is blocked for a time. The block is part of the slice that counts by the whole key: while
//! there is one, its two words follow the words of the limits.

use smallvec::SmallVec;
use tidegate_core::shed::block::Block;
use tidegate_core::{Decision, Micros, Timestamp};

use crate::decide::Verdict;
use crate::key::Depth;
use crate::limits::{Limits, Part};
use crate::request::{Operation, OperationError};

/// The words of a slice: those of its limits, and the block's while there is one.
pub(crate) type SliceWords = SmallVec<[u64; 4]>;

impl Part {
    /// The words of the limits, and the block behind them.
    pub(crate) fn unblocked<'a>(&self, words: &'a [u64]) -> (&'a [u64], Option<Block>) {
        let (words, block) = words.split_at_checked(self.words()).unwrap_or((words, &[]));
        (words, block.as_array().and_then(|block| Block::from_words(*block).ok()))
    }

    /// The words of the limits with the block behind them.
    pub(crate) fn blocked(&self, words: &[u64], block: Option<Block>) -> SliceWords {
        let block = block.filter(|_| self.can_be_blocked()).map(Block::to_words);
        words.iter().copied().chain(block.into_iter().flatten()).collect()
    }

    /// Whether a block of a key is kept here: keys that share a slice are blocked one by one.
    pub(crate) fn can_be_blocked(&self) -> bool {
        self.depth() == Depth::Whole
    }
}

impl Limits {
    /// Does an operation on a key that may be blocked. `decide` does it on one that is not.
    pub(crate) fn operate_unless_blocked(
        &self,
        words: &mut [u64],
        block: &mut Option<Block>,
        now: Timestamp,
        operation: &Operation,
        decide: impl FnOnce(&Self, &mut [u64]) -> Result<Verdict, OperationError>,
    ) -> Result<Verdict, OperationError> {
        let taken = self.taken_at(words, now);
        match operation {
            Operation::Block(span) => {
                if !self.parts().iter().any(Part::can_be_blocked) {
                    return Err(OperationError::NoWholeKey);
                }
                *block = (*span > Micros::ZERO).then(|| Block::new(taken, *span));
            }
            Operation::Reset(_) => *block = None,
            _ => {}
        }
        let Some(left) = block.and_then(|block| block.retry_after(taken)) else {
            if !operation.is_peek() {
                *block = None; // it is over
            }
            return match operation {
                Operation::Block(_) => self.operate(words, now, &Operation::from(0)),
                _ => decide(self, words),
            };
        };
        let verdict = match operation {
            Operation::Decide(request) if request.cost > 0 => self.refuse(words, now, request)?,
            Operation::Block(_) => self.operate(words, now, &Operation::from(0))?,
            other => self.operate(words, now, other)?,
        };
        let asks = matches!(operation, Operation::Peek(request) if request.cost > 0);
        let decision = match verdict.decision {
            Decision::Allow { limit, reset_after, .. } if !asks => {
                Decision::Allow { limit, remaining: 0, reset_after: reset_after.max(left) }
            }
            decision => Decision::Deny {
                limit: decision.limit(),
                remaining: 0,
                retry_after: decision.retry_after().max(left),
                reset_after: decision.reset_after().max(left),
            },
        };
        Ok(Verdict { decision, ..verdict })
    }
}
