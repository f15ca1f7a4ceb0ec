//! The state of one key: key_state from its records for an operation, and taken apart again for a store.

use crate::decide::{Limits, Record, RecordWords};
use smallvec::SmallVec;
use tidegate_core::shed::block::Block;

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
