//! One operation after another, on plain words: what the answers are compared with.

use std::collections::BTreeMap;

use tidegate_gate::blob::{self, BlobError};
use tidegate_gate::{Limits, Micros, Operation, OperationError, Timestamp, Verdict};

use super::places::Key;

/// The stored bytes of some slices. A slice that is missing was never written.
#[derive(Clone, Debug, Default)]
pub(super) struct States {
    bytes: BTreeMap<usize, Vec<u8>>,
    /// How long each slice that was written must be kept.
    time_to_live: BTreeMap<usize, Micros>,
}

/// Why an operation was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Undone {
    Operation(OperationError),
    /// The bytes of this slice are not a state.
    Blob(usize, BlobError),
}

impl States {
    /// The states in these bytes.
    pub(super) fn read<'a>(found: impl Iterator<Item = (usize, Option<&'a [u8]>)>) -> Self {
        let bytes = found.filter_map(|(slice, bytes)| Some((slice, bytes?.to_vec())));
        Self { bytes: bytes.collect(), time_to_live: BTreeMap::new() }
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
        let policy = key.resolved.policy();
        let mut words = Vec::new();
        for (slice, place) in limits.slices().iter().zip(&key.slices) {
            match self.bytes.get(place).map(|bytes| blob::decode(policy, slice, bytes)) {
                None => words.resize(words.len() + slice.words(), 0),
                Some(Ok(own)) => words.extend(own),
                Some(Err(error)) => return Err(Undone::Blob(*place, error)),
            }
        }
        let verdict = limits.operate(&mut words, now, operation).map_err(Undone::Operation)?;
        if !operation.is_peek() {
            for ((slice, own), place) in limits.split(&words).zip(&key.slices) {
                self.bytes.insert(*place, blob::encode(policy, slice, own));
                self.time_to_live.insert(*place, slice.time_to_live(own, now));
            }
        }
        Ok(verdict)
    }

    /// Whether a refusal has changed more of the states of a key than their newest time: a limit counts it, it
    /// is the first of a bucket that fills from then on, or the states were carried over from other limits.
    pub(super) fn remembers(&self, after: &Self, key: &Key) -> bool {
        let slices = key.resolved.limits().into_iter().flat_map(Limits::slices);
        let is_new_or_counts = slices.zip(&key.slices).any(|(slice, place)| {
            let lasts = after.time_to_live.get(place).is_some_and(|time| *time > Micros::ZERO);
            slice.remembers_refusals() || !self.bytes.contains_key(place) && lasts
        });
        is_new_or_counts || self.is_carried(key)
    }

    /// Whether other limits than those of the key wrote its states.
    pub(super) fn is_carried(&self, key: &Key) -> bool {
        let policy = key.resolved.policy();
        let slices = key.resolved.limits().into_iter().flat_map(Limits::slices);
        slices.zip(&key.slices).any(|(slice, place)| {
            let Some(bytes) = self.bytes.get(place).filter(|_| !key.is_unedited) else {
                return false;
            };
            let words = blob::decode(policy, slice, bytes);
            words.is_ok_and(|words| blob::encode(policy, slice, &words) != *bytes)
        })
    }

    /// The bytes of a slice that was written, and how long they must be kept.
    pub(super) fn written(&self, slice: usize) -> Option<(&[u8], Micros)> {
        Some((self.bytes.get(&slice)?, *self.time_to_live.get(&slice)?))
    }

    pub(super) fn forget(&mut self, slice: usize) {
        self.bytes.remove(&slice);
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
