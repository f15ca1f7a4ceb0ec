//! Two calls beside operations: one sets the units that a key has used, the other lists the limited keys.

use alloc::string::String;
use alloc::vec::Vec;

use tidegate_core::shed::Draw;
use tidegate_core::{Micros, Timestamp};

use super::entry::Entry;
use super::{Retain, Table, TableError};
use crate::decide::Verdict;
use crate::limit::{Operation, OperationError, Request};
use crate::policy::{Policy, Rule};

/// A key, or a part of a key, on which a request of one unit is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limited {
    /// The key, or the part of it that the limit counts by.
    pub key: String,
    /// The name of the limit that refuses longest; `None` if the key is blocked.
    pub limit: Option<String>,
    /// The span until a request of one unit passes.
    pub retry_after: Micros,
}

/// The most places of a table that one call of [`Table::limited`] looks at.
const MOST_PLACES: usize = 16_384;

impl Table {
    /// Makes `used` units count as used on a key, as if a request had taken them now. A limit counts at most twice its
    /// capacity. Limits that count no units stay as they are.
    ///
    /// # Errors
    /// Fails with [`TableError`], for instance under limits of which some pay; nothing has changed.
    #[inline(never)]
    pub fn set_used(
        &mut self,
        policy: &Policy,
        key: &str,
        now: Timestamp,
        used: u64,
    ) -> Result<Verdict, TableError> {
        let (limits, key) = match policy.rule(key) {
            Rule::Listed(decision) => return Ok(Verdict::listed(now, decision)),
            Rule::Limited(limits, key) => (limits, key),
        };
        if limits.have_payers() {
            return Err(OperationError::UnknownPayer.into());
        }
        self.with_key_state(policy, limits, (&key, Retain::Everything), now, |state| {
            limits.set_used(&mut state.words, now, used);
            state.operate(limits, now, &Operation::from(0))
        })
    }

    /// Forgets all keys.
    #[inline(never)]
    pub fn clear(&mut self) {
        *self = self.emptied(self.max_bytes);
    }

    /// An empty table with the hasher of this one.
    #[must_use]
    #[inline(never)]
    pub fn emptied(&self, max_bytes: usize) -> Self {
        Self::new(max_bytes, self.hasher.clone())
    }

    /// The keys on which a request of one unit is refused at `now`, out of some places of the table from
    /// `place` on. Limits that pay are among them if all of them count by the same part of the key. Also returns the place to go on from; `None` at the end. Keys that come, go or move between two
    /// calls may be missed or found twice.
    #[must_use]
    #[inline(never)]
    pub fn limited(
        &self,
        policy: &Policy,
        now: Timestamp,
        place: usize,
    ) -> (Vec<Limited>, Option<usize>) {
        let end = place.saturating_add(MOST_PLACES);
        let places = place..end.min(self.entries.places());
        let found = places.filter_map(|place| self.entries.at(place));
        let in_force =
            found.filter(|entry| entry.record.counts_apart() || policy.has(&entry.record));
        let edit = (policy.on_change(), now);
        let found = in_force.filter_map(|entry| match policy.record(entry.record.identity()) {
            Some(own) if !own.counts_apart() && !entry.record.has_words_of(own) => {
                let (words, record) = (entry.under(own, edit).0.into_vec(), own.clone());
                Entry { key: entry.key.clone(), record, words: words.into() }.limited(now)
            }
            _ => entry.limited(now),
        });
        (found.collect(), (end < self.entries.places()).then_some(end))
    }
}

impl Entry {
    fn limited(&self, now: Timestamp) -> Option<Limited> {
        let (words, block) = self.record.unblocked(&self.words);
        let key = || String::from(self.key.as_str());
        let periods = self.record.limits().iter().map(|named| named.limit.period());
        let period = periods.max().unwrap_or_default();
        let taken = now.taken_after(self.record.newest(words), period);
        if let Some(retry_after) = block.and_then(|block| block.retry_after(taken, period)) {
            return Some(Limited { key: key(), limit: None, retry_after });
        }
        // a draw that only certain refusal sheds
        let request = Request { draw: Draw(u32::MAX), ..Request::of(1) };
        let each = self.record.limits().iter().zip(self.record.split(words));
        let each = each.filter(|(named, _)| !named.shadow);
        let waits = each.filter_map(|(named, (limit, words))| {
            let said = limit.peek(words, now, &request).ok()?;
            Some((said.retry_after(), named))
        });
        let (payers, others): (Vec<_>, Vec<_>) =
            waits.partition(|(_, named)| named.payer.is_some());
        let payer = payers.into_iter().min_by_key(|(retry_after, _)| *retry_after);
        let payer = payer.filter(|_| self.record.has_all_payers());
        let refused = others.into_iter().chain(payer).filter(|(wait, _)| *wait > Micros::ZERO);
        let (retry_after, named) = refused.max_by_key(|(retry_after, _)| *retry_after)?;
        Some(Limited { key: key(), limit: Some(named.name.clone()), retry_after })
    }
}
