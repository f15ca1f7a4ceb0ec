//! Blocks of keys. A block refuses every request of a key for a time. It belongs to the record that counts by
//! the whole key: while the key is blocked, the two words of the block follow the words of the limits.

use crate::decide::{Limits, Record, Verdict};
use crate::limit::{Budget, Operation, OperationError};
use crate::state::KeyState;
use tidegate_core::shed::Probability;
use tidegate_core::shed::block::Block;
use tidegate_core::{Decision, Micros, Timestamp};

impl Record {
    /// Splits the words of a record into the words of the limits and the block.
    pub(crate) fn unblocked<'a>(&self, words: &'a [u64]) -> (&'a [u64], Option<Block>) {
        let (words, block) = words.split_at_checked(self.words()).unwrap_or((words, &[]));
        (words, block.try_into().ok().and_then(|block| Block::from_words(block).ok()))
    }
}

impl KeyState {
    /// Does an operation on a key that may be blocked.
    pub(crate) fn operate(
        &mut self,
        limits: &Limits,
        now: Timestamp,
        operation: &Operation,
    ) -> Result<Verdict, OperationError> {
        self.operate_unless_blocked(limits, now, operation, |limits, words| {
            limits.operate(words, now, operation)
        })
    }

    /// Does an operation on a key: by `decide` if the key is not blocked.
    pub(crate) fn operate_unless_blocked(
        &mut self,
        limits: &Limits,
        now: Timestamp,
        operation: &Operation,
        decide: impl FnOnce(&Limits, &mut [u64]) -> Result<Verdict, OperationError>,
    ) -> Result<Verdict, OperationError> {
        let Self { words, block } = self;
        match operation {
            Operation::Block(span) => {
                if !limits.records().iter().any(Record::keeps_block) {
                    return Err(OperationError::NoWholeKey);
                }
                *block = (*span > Micros::ZERO).then(|| Block::new(now, *span));
            }
            Operation::Reset(_) => *block = None,
            _ => {}
        }
        // a block has a clock rule of its own, so the clock of the limits cannot make it longer
        let Some(left) = block.and_then(|block| block.retry_after(now)) else {
            if !operation.is_peek() {
                *block = block.filter(|block| !block.is_over(now));
            }
            return match operation {
                Operation::Block(_) => limits.operate(words, now, &Operation::from(0)),
                _ => decide(limits, words),
            };
        };
        // a check or a peek is refused, also at cost 0; the other operations report what has happened
        let asks =
            matches!(operation, Operation::Decide(_) | Operation::Peek(_) | Operation::Block(_));
        let mut verdict = match operation {
            Operation::Decide(request) if request.cost > 0 => limits.refuse(words, now, request)?,
            // nothing would be taken, but a cost that can never be granted is an error as ever
            Operation::Peek(request) => {
                limits.operate(words, now, operation)?;
                limits.operate(words, now, &Operation::Peek(request.peek()))?
            }
            Operation::Block(_) => limits.operate(words, now, &Operation::from(0))?,
            // a holder may give units back, and gets no others
            Operation::Budget(budget) => {
                limits.operate(words, now, &Operation::Budget(Budget { wants: 0, ..*budget }))?
            }
            other => limits.operate(words, now, other)?,
        };
        verdict.factor = verdict.factor.map(|_| Probability::CERTAIN); // reporters refuse everything
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
