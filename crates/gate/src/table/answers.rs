//! The answers that a table keeps for repeats of requests. They count against the bound of the table and take at most half of it, so
//! that one caller's answers leave room for the keys of others.
//!
//! If there is no room for an answer, the policy's `on_error` says what counts: under `closed` the request fails, so that no repeat is
//! taken twice; under `open` it is decided and its answer is not kept, because a request that fails would pass uncounted.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use tidegate_core::Timestamp;

use super::entry::{allocated, without};
use super::{Table, TableError};
use crate::decide::{Limits, Verdict};
use crate::limit::Operation;
use crate::policy::{OnError, Resolved};
use crate::state::kept;

/// The bytes of an entry of the map: its id, what follows, and as much again, because a node of the map may be half empty.
const PLACE_BYTES: usize = 2 * (16 + size_of::<Answer>());

/// The answers, by their ids.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    by_id: BTreeMap<[u64; 2], Answer>,
    bytes: usize,
}

/// An answer that is kept.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) key: Box<str>,
    until: Timestamp,
    words: Box<[u64]>,
}

impl Answer {
    fn bytes(&self) -> usize {
        bytes_of(self.key.len(), self.words.len())
    }
}

impl Answers {
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn sweep(&mut self, now: Timestamp) {
        self.by_id.retain(|_, answer| answer.until > now);
        self.bytes = self.by_id.values().map(Answer::bytes).fold(0, usize::saturating_add);
    }

    pub(super) fn insert(&mut self, id: [u64; 2], answer: Answer) {
        self.bytes = self.bytes.saturating_add(answer.bytes());
        if let Some(before) = self.by_id.insert(id, answer) {
            self.bytes = without(self.bytes, before.bytes());
        }
    }

    pub(super) fn into_iter(self) -> impl Iterator<Item = ([u64; 2], Answer)> {
        self.by_id.into_iter()
    }
}

impl Table {
    /// Does the same as [`ask`](Self::ask), and keeps the answer if a repeat of the request [is known](Resolved::known_by). A
    /// repeat gets the kept answer. A table without room for the answer fails if the policy's `on_error` is `closed`, and else
    /// does not keep it.
    ///
    /// # Errors
    /// Fails with [`TableError`]; nothing has changed.
    pub fn ask_once(
        &mut self,
        resolved: &Resolved,
        now: Timestamp,
        operation: &Operation,
    ) -> Result<Verdict, TableError> {
        let Some((known, time)) = resolved.kept_for() else {
            return self.ask(resolved, now, operation);
        };
        let answer = self.answers.by_id.get(&known.id.0);
        let repeated = answer.and_then(|answer| kept::verdict(&answer.words, known, now));
        if let Some(verdict) = repeated {
            return Ok(verdict);
        }
        let limits = resolved.limits().into_iter().flat_map(Limits::iter).count();
        let bytes = bytes_of(resolved.key().len(), kept::words(limits));
        let has_room = |table: &Self| {
            let of_answers = table.answers.bytes().saturating_add(bytes);
            table.bytes().saturating_add(bytes) <= table.max_bytes
                && of_answers <= table.max_bytes.div_euclid(2)
        };
        if !has_room(self) && self.may_sweep(now) {
            self.make_room(resolved.policy(), now);
        }
        if !has_room(self) {
            return match resolved.policy().on_error() {
                OnError::Open => self.ask(resolved, now, operation),
                OnError::Closed | OnError::Local => {
                    Err(TableError::Full { max_bytes: self.max_bytes })
                }
            };
        }
        self.answers.bytes = self.answers.bytes.saturating_add(bytes); // of the answer, while there is none yet
        let verdict = self.ask(resolved, now, operation);
        self.answers.bytes = without(self.answers.bytes, bytes);
        let verdict = verdict?;
        if kept::is_kept(operation, &verdict) {
            let until = now.saturating_add(time);
            let words: Vec<u64> = kept::to_words(known.request, until, &verdict);
            let answer = Answer { key: resolved.key().into(), until, words: words.into() };
            self.answers.insert(known.id.0, answer);
        }
        Ok(verdict)
    }
}

fn bytes_of(key: usize, words: usize) -> usize {
    allocated(key).saturating_add(allocated(words.saturating_mul(8))).saturating_add(PLACE_BYTES)
}
