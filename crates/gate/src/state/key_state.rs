//! The state of one key: put together from its records for an operation, and taken apart again for a store.
//!
//! A block refuses every request of a key for a time. It belongs to the record that counts by the whole key: while the key is
//! blocked, the two words of the block follow the words of the limits.

#[cfg(test)]
mod tests;

use smallvec::SmallVec;
use tidegate_core::shed::Probability;
use tidegate_core::shed::block::Block;
use tidegate_core::{Decision, Micros, Timestamp};

use crate::decide::{Effect, Limits, Record, RecordWords, Verdict};
use crate::limit::{Budget, Operation, OperationError};

/// The state of one key under its limits.
#[derive(Debug, Default)]
pub(crate) struct KeyState {
    /// The words of all limits, in the order of [`Limits::iter`].
    pub(crate) words: SmallVec<[u64; 8]>,
    /// The block of the key.
    pub(crate) block: Option<Block>,
}

impl KeyState {
    /// An empty state with room for these limits; `None` if the allocator has no room.
    pub(crate) fn with_room_for(limits: &Limits) -> Option<Self> {
        let mut state = Self::default();
        state.words.try_reserve_exact(limits.words()).ok()?;
        Some(state)
    }

    /// Adds the stored words of the next record; `None` for a record that is not stored.
    pub(crate) fn add(&mut self, record: &Record, stored: Option<&[u64]>) {
        let Some(stored) = stored else {
            self.words.resize(self.words.len().saturating_add(record.words()), 0);
            return;
        };
        let (words, block) = record.unblocked(stored);
        self.words.extend_from_slice(words);
        self.block = self.block.or(block);
    }

    /// What each record has to store: the words of its limits, and the block that follows them.
    pub(crate) fn apart<'a>(
        &'a self,
        limits: &'a Limits,
    ) -> impl Iterator<Item = (&'a Record, Stored<'a>)> {
        limits.split(&self.words).map(|(record, words)| {
            let block = self.block.filter(|_| record.keeps_block());
            (record, Stored { words, block })
        })
    }

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
        let taken = limits.taken_at(words, now);
        match operation {
            Operation::Block(span) => {
                if !limits.records().iter().any(Record::keeps_block) {
                    return Err(OperationError::NoWholeKey);
                }
                *block = Some(Block::new(taken, *span)); // of no span: it is over below
            }
            Operation::Reset(_) => *block = None,
            _ => {}
        }
        let Some(left) = block.and_then(|block| block.retry_after(taken, limits.period())) else {
            if !operation.is_peek() {
                *block = block.filter(|block| block.left(taken) > Micros::ZERO);
            }
            return decide(limits, words);
        };
        // the block refuses a check or a peek, also at cost 0; the other operations report what has happened
        let asks = matches!(
            operation,
            Operation::Decide(_) | Operation::Peek(_) | Operation::Explain(_) | Operation::Block(_)
        );
        let mut verdict = match operation {
            Operation::Decide(request) if request.cost > 0 => limits.refuse(words, now, request)?,
            // nothing would be taken, but a cost that can never be granted is an error as ever
            Operation::Peek(request) | Operation::Explain(request) => {
                limits.operate(words, now, operation)?;
                limits.operate(words, now, &Operation::Peek(request.peek()))?
            }
            // a holder may give units back, and gets no others
            Operation::Budget(budget) => {
                limits.operate(words, now, &Operation::Budget(Budget { wants: 0, ..*budget }))?
            }
            other => limits.operate(words, now, other)?,
        };
        if let Operation::Explain(_) = operation {
            verdict.effect = Effect::Blocked { left };
        }
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

/// What a record stores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored<'a> {
    /// The words of the limits.
    pub(crate) words: &'a [u64],
    /// The block of the key, if this record keeps it.
    pub(crate) block: Option<Block>,
}

impl Stored<'_> {
    /// The number of words.
    pub(crate) fn len(&self) -> usize {
        self.words.len().saturating_add(self.block_words().count())
    }

    /// The words of the limits and of the block.
    pub(crate) fn all(&self) -> RecordWords {
        let mut all = RecordWords::from_slice(self.words);
        all.extend(self.block_words());
        all
    }

    /// The words of the block: two, or none if the key is not blocked.
    pub(crate) fn block_words(&self) -> impl Iterator<Item = u64> + use<> {
        self.block.map(Block::to_words).into_iter().flatten()
    }
}

impl Record {
    /// Splits the words of a record into the words of the limits and the block.
    pub(crate) fn unblocked<'a>(&self, words: &'a [u64]) -> (&'a [u64], Option<Block>) {
        let (words, block) = words.split_at_checked(self.words()).unwrap_or((words, &[]));
        (words, block.try_into().ok().and_then(|block| Block::from_words(block).ok()))
    }
}
