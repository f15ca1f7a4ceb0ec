//! States that are stored before the grants that they count.

#[cfg(test)]
mod tests;

use crate::decide::{PersistAhead, Record, RecordWords};
use tidegate_core::{Ahead, Timestamp};

/// How far the stored state of a record is ahead of its words.
#[derive(Debug)]
pub(super) struct Prepaid {
    config: PersistAhead,
    /// What is charged in the stored bytes and not granted yet.
    stored: Option<Charged>,
    /// What is charged in the bytes that are to be stored.
    next: Option<Charged>,
}

/// Units that cover grants decided from a time on.
#[derive(Clone, Copy, Debug)]
struct Charged {
    from: Timestamp,
    ahead: Ahead,
}

impl Prepaid {
    pub(super) const fn new(config: PersistAhead) -> Self {
        Self { config, stored: None, next: None }
    }

    /// The words with a charge for grants to come; `None` if none can be charged.
    pub(super) fn charge(&mut self, record: &Record, words: &RecordWords) -> Option<RecordWords> {
        let (from, mut words) = (record.newest(words), words.clone());
        let ahead = record.charge_ahead(&mut words, self.config).filter(|ahead| ahead.units > 0);
        self.next = ahead.map(|ahead| Charged { from, ahead });
        ahead.map(|_| words)
    }

    /// The charged words are stored.
    pub(super) const fn begin(&mut self) {
        self.stored = self.next.take();
    }

    /// Other bytes are stored.
    pub(super) const fn end(&mut self) {
        (self.stored, self.next) = (None, None);
    }

    /// Grants `units` at this time out of the charged units. `false` if these do not cover them.
    pub(super) fn take(&mut self, at: Timestamp, units: u64) -> bool {
        let Some(Charged { from, ahead }) = &mut self.stored else { return false };
        let Some(left) = ahead.units.checked_sub(units) else { return false };
        let is_covered = *from <= at && at < ahead.until;
        if is_covered {
            ahead.units = left;
        }
        is_covered
    }
}
