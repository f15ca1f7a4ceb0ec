//! One operation after another, on plain words: what the answers are compared with.

use std::collections::BTreeMap;

use tidegate_gate::blob::{self, BlobError};
use tidegate_gate::{Limits, Micros, Operation, OperationError, Record, Timestamp, Verdict};

use super::block::{self, Block, keeps_block};
use super::places::Key;

/// The stored bytes of some records. A record that is missing was never written.
#[derive(Clone, Debug, Default)]
pub(super) struct States {
    bytes: BTreeMap<usize, Vec<u8>>,
    /// How long each record that was written must be kept.
    time_to_live: BTreeMap<usize, Micros>,
    /// Whether the limits of each record that was written differ from fresh ones.
    lasts: BTreeMap<usize, bool>,
}

/// Why an operation was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Undone {
    Operation(OperationError),
    /// The bytes of this record are not a state.
    Blob(usize, BlobError),
}

impl States {
    /// The states in these bytes.
    pub(super) fn read<'a>(found: impl Iterator<Item = (usize, Option<&'a [u8]>)>) -> Self {
        let bytes = found.filter_map(|(record, bytes)| Some((record, bytes?.to_vec())));
        Self { bytes: bytes.collect(), ..Self::default() }
    }

    /// Does an operation.
    pub(super) fn operate(
        &mut self,
        key: &Key,
        now: Timestamp,
        operation: &Operation,
    ) -> Result<Verdict, Undone> {
        let limits =
            key.resolved.limits().ok_or(Undone::Operation(OperationError::InvalidState))?;
        let (mut words, mut block) = (Vec::new(), None);
        for (record, place) in limits.records().iter().zip(&key.records) {
            let (own, blocked) = self.words(key, record, *place, now)?;
            words.extend(own);
            block = block.or(blocked);
        }
        let verdict = block::operate(limits, &mut words, &mut block, now, operation)
            .map_err(Undone::Operation)?;
        if !operation.is_peek() {
            let policy = key.resolved.policy();
            for ((record, own), place) in limits.split(&words).zip(&key.records) {
                let mut all = own.to_vec();
                let block = block.filter(|_| keeps_block(record));
                all.extend(block.into_iter().flat_map(Block::words));
                let asks = matches!(operation, Operation::Decide(_));
                if !asks && !self.bytes.contains_key(place) && all.iter().all(|word| *word == 0) {
                    continue; // nothing is stored of a key that is fresh
                }
                self.bytes.insert(*place, blob::encode(policy, record, &all));
                self.time_to_live.insert(*place, record.time_to_live(&all, now));
                let lasts = record.time_to_live(own, now) > Micros::ZERO;
                self.lasts.insert(*place, lasts);
            }
        }
        Ok(verdict)
    }

    /// The words of a record, and the block that follows them.
    pub(super) fn words(
        &self,
        key: &Key,
        record: &Record,
        place: usize,
        now: Timestamp,
    ) -> Result<(Vec<u64>, Option<Block>), Undone> {
        let Some(bytes) = self.bytes.get(&place) else {
            return Ok((vec![0; record.words()], None));
        };
        let words = blob::decode(key.resolved.policy(), record, bytes, now);
        let mut words = words.map_err(|error| Undone::Blob(place, error))?;
        let block = words.split_off(record.words());
        Ok((words, Block::of_words(&block)))
    }

    /// Whether a refusal has changed more of the states of a key than their newest time: a limit counts it, it
    /// is the first of a bucket that fills from then on, a block is over, or the states were carried over from
    /// other limits.
    pub(super) fn remembers(&self, after: &Self, key: &Key) -> bool {
        let records = key.resolved.limits().into_iter().flat_map(Limits::records);
        let is_more = records.zip(&key.records).any(|(record, place)| {
            let words = |states: &Self| states.words(key, record, *place, Timestamp::EPOCH);
            let before = words(self).unwrap_or_default();
            let begins = before.0.iter().all(|word| *word == 0)
                && after.lasts.get(place).is_some_and(|lasts| *lasts);
            let ends = words(after).is_ok_and(|after| after.1 != before.1);
            record.remembers_refusals() || begins || ends
        });
        is_more || self.is_carried(key)
    }

    /// Whether other limits than those of the key wrote its states.
    pub(super) fn is_carried(&self, key: &Key) -> bool {
        let policy = key.resolved.policy();
        let records = key.resolved.limits().into_iter().flat_map(Limits::records);
        records.zip(&key.records).any(|(record, place)| {
            let Some(bytes) = self.bytes.get(place).filter(|_| !key.is_unedited) else {
                return false;
            };
            let words = blob::decode(policy, record, bytes, Timestamp::EPOCH);
            words.is_ok_and(|words| blob::encode(policy, record, &words) != *bytes)
        })
    }

    /// Whether nothing is stored of a key.
    pub(super) fn have_nothing(&self, key: &Key) -> bool {
        key.records.iter().all(|record| !self.bytes.contains_key(record))
    }

    /// The bytes of a record that was written, and how long they must be kept.
    pub(super) fn written(&self, record: usize) -> Option<(&[u8], Micros)> {
        Some((self.bytes.get(&record)?, *self.time_to_live.get(&record)?))
    }

    /// The bytes of a record.
    pub(super) fn get(&self, record: usize) -> Option<&[u8]> {
        self.bytes.get(&record).map(Vec::as_slice)
    }

    /// The states of these records alone.
    pub(super) fn part(&self, records: &[usize]) -> Self {
        Self::read(records.iter().map(|record| (*record, self.get(*record))))
    }

    /// Replaces the bytes of a record.
    pub(super) fn put(&mut self, record: usize, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => drop(self.bytes.insert(record, bytes.to_vec())),
            None => drop(self.bytes.remove(&record)),
        }
    }

    pub(super) fn forget(&mut self, record: usize) {
        self.bytes.remove(&record);
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }
}

/// Whether an operation has taken and returned nothing, so that its answer needs no write.
pub(super) fn takes_nothing(operation: &Operation, verdict: &Verdict) -> bool {
    let is_refused = matches!(operation, Operation::Decide(_)) && !verdict.decision.is_allowed();
    is_refused || operation.is_peek()
}
