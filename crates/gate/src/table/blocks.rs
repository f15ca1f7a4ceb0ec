//! Blocks in a table: two words after the words of the limits.

use tidegate_core::Timestamp;
use tidegate_core::shed::block::Block;

use super::{Entry, Table};
use crate::limits::{Limits, Slice};
use crate::policy::Policy;

/// The number of words of a block.
const BLOCK_WORDS: usize = 2;

impl Table {
    /// Reserves room for the block of a key, if necessary after a sweep; `None` if there is still no room.
    pub(super) fn reserve_block(
        &mut self,
        policy: &Policy,
        limits: &Limits,
        key: &str,
        now: Timestamp,
    ) -> Option<()> {
        let slice = blocked_part(limits)?;
        if self.reserve_block_of(slice, key).is_none() && self.may_sweep(now) {
            self.sweep(policy, now);
        }
        self.reserve_block_of(slice, key)
    }

    fn reserve_block_of(&mut self, slice: &Slice, key: &str) -> Option<()> {
        let heap = Entry::heap_of(key.len(), slice.words().saturating_add(BLOCK_WORDS));
        match self.entry(slice, key).map(Entry::heap) {
            None => self.reserve(1, heap, self.max_bytes),
            Some(before) => {
                let grown = heap.saturating_sub(before);
                (self.bytes().saturating_add(grown) <= self.max_bytes).then_some(())
            }
        }
    }

    /// Sets or clears the block of a key. A block needs [`reserve_block`](Self::reserve_block) before.
    pub(super) fn set_block(&mut self, limits: &Limits, key: &str, block: Option<Block>) {
        let Some(slice) = blocked_part(limits) else { return };
        let Self { entries, hasher, heap, .. } = self;
        let hash = hasher.hash(key);
        if let Some(entry) = entries.find_mut(hash, |entry| entry.is(slice, key)) {
            *heap = heap.saturating_sub(entry.heap());
            entry.words.truncate(slice.words());
            entry.words.extend(block.into_iter().flat_map(Block::to_words));
            entry.words.shrink_to_fit();
            *heap = heap.saturating_add(entry.heap());
        } else if block.is_some() {
            let words = slice.blocked(&alloc::vec![0; slice.words()], block);
            if let Some(entry) = Entry::new(slice, key, &words) {
                self.insert(entry);
            }
        }
    }
}

fn blocked_part(limits: &Limits) -> Option<&Slice> {
    limits.slices().iter().find(|slice| slice.can_be_blocked())
}
