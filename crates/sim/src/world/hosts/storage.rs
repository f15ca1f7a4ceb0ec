//! The storage: it compares and swaps the records of a partition, and forgets expired records.

use tidegate_gate::Micros;

use crate::world::clock::Clock;

/// The bytes of each record.
#[derive(Debug)]
pub(super) struct Storage {
    records: Vec<Option<Stored>>,
    pub(super) clock: Clock,
    /// The storage refuses to write.
    pub(super) refuses: bool,
}

#[derive(Clone, Debug)]
struct Stored {
    bytes: Vec<u8>,
    /// The time by the storage's clock; `None` for ever.
    expires_at: Option<u64>,
}

impl Storage {
    pub(super) fn new(records: usize, clock: Clock) -> Self {
        Self { records: vec![None; records], clock, refuses: false }
    }

    /// The bytes of a record at a time of the storage's clock.
    pub(super) fn get(&self, record: usize, now: u64) -> Option<&[u8]> {
        let stored = self.records.get(record)?.as_ref()?;
        let lives = stored.expires_at.is_none_or(|expires_at| now < expires_at);
        lives.then_some(stored.bytes.as_slice())
    }

    /// Whether the storage has forgotten one of these records because it expired.
    pub(super) fn has_expired(&self, records: &[usize], now: u64) -> bool {
        records.iter().any(|record| {
            let stored = self.records.get(*record).is_some_and(Option::is_some);
            stored && self.get(*record, now).is_none()
        })
    }

    /// Stores bytes for at least this time. The time for which a record is kept is never shortened.
    pub(super) fn put(&mut self, record: usize, bytes: &[u8], now: u64, ttl: Option<Micros>) {
        // Redis counts in milliseconds
        let ttl = ttl.map(|ttl| ttl.as_millis_ceil().max(1).saturating_mul(1_000));
        let expires_at =
            if self.get(record, now).is_some() { self.expiry(record) } else { Some(now) };
        let expires_at =
            expires_at.map(|kept| ttl.map_or(kept, |ttl| kept.max(now.saturating_add(ttl))));
        self.set(record, bytes, expires_at);
    }

    /// Stores bytes for ever.
    pub(super) fn put_for_ever(&mut self, record: usize, bytes: &[u8]) {
        self.set(record, bytes, None);
    }

    fn set(&mut self, record: usize, bytes: &[u8], expires_at: Option<u64>) {
        if let Some(place) = self.records.get_mut(record) {
            *place = Some(Stored { bytes: bytes.to_vec(), expires_at });
        }
    }

    /// When a record expires by the storage's clock; `None` for never.
    pub(super) fn expiry(&self, record: usize) -> Option<u64> {
        self.records.get(record)?.as_ref()?.expires_at
    }

    pub(super) fn remove(&mut self, record: usize) {
        if let Some(place) = self.records.get_mut(record) {
            *place = None;
        }
    }

    pub(super) fn flush(&mut self) {
        self.records.fill(None);
    }
}
