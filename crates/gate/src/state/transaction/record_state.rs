//! A record of a transaction, or a kept answer: its stored bytes, its words after the operations, and the bytes to store.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;

use smallvec::SmallVec;
use tidegate_core::{Micros, Timestamp, never};

use super::ahead::Prepaid;
use super::{Due, Used, Write};
use crate::decide::{Record, RecordWords};
use crate::policy::{Policy, RuleId};
use crate::state::blob::{self, BlobError};
use crate::state::kept;

/// What the words of a slot are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Holds {
    /// The state of the limits of a rule that count by one part of the key: the rule of the policy, and the place of the record
    /// in it.
    Record(RuleId, usize),
    /// The answer to a request whose repeats are known; no words if there is none.
    Answer,
}

/// A slot of the transaction.
#[derive(Debug)]
pub(super) struct RecordState {
    pub(super) name: Box<str>,
    policy: Arc<Policy>,
    holds: Holds,
    /// The bytes that the store holds, as far as the transaction knows.
    found: Option<Vec<u8>>,
    expires_at: Micros,
    /// The transaction knows the bytes in the store: it has read them or written them.
    pub(super) is_known: bool,
    words: Result<RecordWords, BlobError>,
    /// The words as bytes, once they are asked for.
    becomes: Vec<u8>,
    is_encoded: bool,
    /// The words were carried over from other limits, under which the stored bytes expire earlier.
    pub(super) is_carried: bool,
    /// They count less than the stored bytes do, because the limits cannot hold all that was used.
    pub(super) forgets: bool,
    /// An operation has read the words.
    pub(super) is_used: bool,
    pub(super) due: Option<Due>,
    /// The time of the last operation that changed the words.
    now: Timestamp,
    time_to_live: Micros,
    /// How far the stored state is ahead of the words, if it may be.
    prepaid: Option<Box<Prepaid>>,
}

impl RecordState {
    pub(super) fn new(
        name: String,
        policy: &Arc<Policy>,
        holds: Holds,
        prepaid: Option<Prepaid>,
    ) -> Self {
        let words = record(policy, holds).map_or(0, Record::words);
        Self {
            name: name.into(),
            policy: Arc::clone(policy),
            holds,
            found: None,
            expires_at: Micros::ZERO,
            is_known: false,
            words: Ok(SmallVec::from_elem(0, words)),
            becomes: Vec::new(),
            is_encoded: false,
            is_carried: false,
            forgets: false,
            is_used: false,
            due: None,
            now: Timestamp::EPOCH,
            time_to_live: Micros::ZERO,
            prepaid: prepaid.map(Box::new),
        }
    }

    /// Takes what the store holds.
    pub(super) fn load(&mut self, found: Option<Vec<u8>>) {
        (self.is_used, self.is_carried, self.due, self.is_known) = (false, false, None, true);
        self.forgets = false;
        self.expires_at = Micros::ZERO;
        self.prepaid.iter_mut().for_each(|prepaid| prepaid.end());
        self.found = found;
        self.read(Timestamp::EPOCH);
    }

    /// Reads the words from the bytes. If other limits wrote them, they are carried over as by an edit at `now`.
    fn read(&mut self, now: Timestamp) {
        let record = record(&self.policy, self.holds);
        self.words = match (&self.found, record) {
            (None, record) => Ok(SmallVec::from_elem(0, record.map_or(0, Record::words))),
            (Some(found), Some(record)) => {
                blob::read(&self.policy, record, found, now).map(|decoded| {
                    (self.is_carried, self.forgets) = (decoded.is_carried, decoded.forgets);
                    SmallVec::from_vec(decoded.words)
                })
            }
            (Some(found), None) => kept::decode(found).map(SmallVec::from_vec),
        };
    }

    /// Takes back what operations did that is not stored.
    pub(super) fn revert(&mut self) {
        let (found, is_known) = (self.found.take(), self.is_known);
        self.load(found);
        self.is_known = is_known;
    }

    /// Whether nothing is known of the record, and no operation has changed it.
    pub(super) const fn is_new(&self) -> bool {
        !self.is_known && self.due.is_none()
    }

    /// What the store holds, as far as the transaction knows.
    pub(super) fn found(&self) -> Option<&[u8]> {
        self.found.as_deref()
    }

    /// The span after `now` in which the words still differ from fresh ones; `None` if they are no state of a record.
    pub(super) fn time_to_live_at(&self, now: Timestamp) -> Option<Micros> {
        let record = record(&self.policy, self.holds)?;
        self.words.as_ref().ok().map(|words| record.time_to_live(words, now))
    }

    /// Carries the words over anew as by an edit at `now`, unless an operation has changed them since.
    pub(super) fn carry_over(&mut self, now: Timestamp) {
        if self.is_carried && self.due.is_none() {
            self.read(now);
        }
    }

    /// Forgets bytes that are not a state, so that the store is asked for them again.
    pub(super) fn forget_unreadable(&mut self) {
        if self.words.is_err() {
            self.load(None);
            self.is_known = false;
        }
    }

    /// Whether the store has no bytes, as far as the transaction knows, and gets none.
    pub(super) const fn has_nothing(&self) -> bool {
        self.found.is_none() && self.due.is_none()
    }

    /// The words, or why the stored bytes have none.
    pub(super) const fn words(&self) -> Result<&RecordWords, BlobError> {
        match &self.words {
            Ok(words) => Ok(words),
            Err(error) => Err(*error),
        }
    }

    /// Whether the stored bytes are at least as strict as a state after a request that took `taken` units, or
    /// took nothing because it was refused.
    pub(super) fn covers(&mut self, record: &Record, words: &[u64], taken: u64) -> bool {
        let prepaid = self.prepaid.as_mut();
        prepaid.is_some_and(|prepaid| taken == 0 || prepaid.take(record.newest(words), taken))
    }

    /// Takes the words after an operation, and when they are to be written; `None` if the stored bytes cover
    /// them.
    pub(super) fn become_words(&mut self, words: RecordWords, now: Timestamp, due: Option<Due>) {
        self.words = Ok(words);
        self.now = now;
        self.due = self.due.max(due);
        self.is_encoded = false;
    }

    pub(super) fn used(&mut self) -> Used<'_> {
        if self.due.is_some() && !self.is_encoded {
            self.encode();
        }
        let (name, found) = (&*self.name, self.found.as_deref());
        let (bytes, time_to_live) = (self.becomes.as_slice(), self.time_to_live);
        let due = self.due.filter(|_| found != Some(bytes));
        let write = due.map(|due| Write { name, bytes, time_to_live, due });
        Used { name, found, is_known: self.is_known, expires_at: self.expires_at, write }
    }

    fn encode(&mut self) {
        let Ok(words) = &self.words else { return never(()) };
        self.is_encoded = true;
        let Some(record) = record(&self.policy, self.holds) else {
            kept::encode_into(&mut self.becomes, words);
            self.time_to_live = self.policy.idempotency().unwrap_or_else(|| never(Micros::ZERO));
            return;
        };
        let charged = self.prepaid.as_mut().and_then(|prepaid| prepaid.charge(record, words));
        let words = charged.as_ref().unwrap_or(words);
        blob::encode_into(&mut self.becomes, &self.policy, record, words);
        self.time_to_live = record.time_to_live(words, self.now);
    }

    /// Takes note that the bytes are stored.
    pub(super) fn stored(&mut self, expires_at: Micros) {
        if self.due.take().is_some() {
            // the bytes found before are of no more use, but their allocation is
            let before = self.found.replace(mem::take(&mut self.becomes));
            self.becomes = before.unwrap_or_default();
            (self.is_carried, self.forgets, self.is_encoded) = (false, false, false);
            self.expires_at = expires_at;
            self.prepaid.iter_mut().for_each(|prepaid| prepaid.begin());
        }
        (self.is_used, self.is_known) = (false, true);
    }

    pub(super) fn bytes(&self) -> usize {
        let words = self
            .words
            .as_ref()
            .map_or(0, |words| if words.spilled() { words.capacity() } else { 0 });
        let found = self.found.as_ref().map_or(0, Vec::capacity);
        let prepaid = self.prepaid.as_ref().map_or(0, |_| size_of::<Prepaid>());
        [self.name.len(), found, self.becomes.capacity(), words.saturating_mul(8), prepaid]
            .into_iter()
            .fold(size_of::<Self>(), usize::saturating_add)
    }
}

/// The record of a slot; `None` if it holds an answer.
fn record(policy: &Policy, holds: Holds) -> Option<&Record> {
    match holds {
        Holds::Record(rule, place) => policy.limits_found(rule)?.records().get(place),
        Holds::Answer => None,
    }
}
