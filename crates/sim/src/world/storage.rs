//! The storage: it compares and swaps the slices of a home, and forgets expired slices.

use tidegate_gate::Micros;

use super::clock::Clock;

/// The bytes of each slice.
#[derive(Debug)]
pub(super) struct Storage {
    slices: Vec<Option<Stored>>,
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
    pub(super) fn new(slices: usize, clock: Clock) -> Self {
        Self { slices: vec![None; slices], clock, refuses: false }
    }

    /// The bytes of a slice at a time of the storage's clock.
    pub(super) fn get(&self, slice: usize, now: u64) -> Option<&[u8]> {
        let stored = self.slices.get(slice)?.as_ref()?;
        let lives = stored.expires_at.is_none_or(|expires_at| now < expires_at);
        lives.then_some(stored.bytes.as_slice())
    }

    /// Whether the storage has forgotten one of these slices because it expired.
    pub(super) fn has_expired(&self, slices: &[usize], now: u64) -> bool {
        slices.iter().any(|slice| {
            let stored = self.slices.get(*slice).is_some_and(Option::is_some);
            stored && self.get(*slice, now).is_none()
        })
    }

    /// Stores bytes for at least this time. The time for which a slice is kept is never shortened.
    pub(super) fn put(&mut self, slice: usize, bytes: &[u8], now: u64, keep: Option<Micros>) {
        // Redis counts in milliseconds
        let keep = keep.map(|keep| keep.as_millis_ceil().max(1).saturating_mul(1_000));
        let kept_until =
            if self.get(slice, now).is_some() { self.expiry(slice) } else { Some(now) };
        let expires_at =
            kept_until.map(|kept| keep.map_or(kept, |keep| kept.max(now.saturating_add(keep))));
        self.set(slice, bytes, expires_at);
    }

    /// Stores bytes for ever.
    pub(super) fn put_for_ever(&mut self, slice: usize, bytes: &[u8]) {
        self.set(slice, bytes, None);
    }

    fn set(&mut self, slice: usize, bytes: &[u8], expires_at: Option<u64>) {
        if let Some(place) = self.slices.get_mut(slice) {
            *place = Some(Stored { bytes: bytes.to_vec(), expires_at });
        }
    }

    /// When a slice expires by the storage's clock; `None` for never.
    pub(super) fn expiry(&self, slice: usize) -> Option<u64> {
        self.slices.get(slice)?.as_ref()?.expires_at
    }

    pub(super) fn remove(&mut self, slice: usize) {
        if let Some(place) = self.slices.get_mut(slice) {
            *place = None;
        }
    }

    pub(super) fn flush(&mut self) {
        self.slices.fill(None);
    }
}
