//! Clocks that run at a speed of their own and are set.

use tidegate_gate::{Micros, Timestamp};

/// A clock that shows the time of the day. It is never further off than its skew.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// By how many millionths the clock is too fast.
    drift_ppm: i64,
    /// By how much the clock was set forward.
    set: i64,
    skew: i64,
}

impl Clock {
    pub(super) fn new(drift_ppm: i64, skew: u64) -> Self {
        Self { drift_ppm, set: 0, skew: signed(skew) }
    }

    /// Sets the clock forward, or back.
    pub(super) fn set(&mut self, by: i64) {
        self.set = self.set.saturating_add(by).clamp(-self.skew, self.skew);
    }

    /// What the clock shows `elapsed` µs after the start of the world.
    pub(super) fn at(&self, start: u64, elapsed: u64) -> Timestamp {
        let drift = signed(elapsed).saturating_mul(self.drift_ppm) / 1_000_000;
        let off = drift.saturating_add(self.set).clamp(-self.skew, self.skew);
        Timestamp(start.saturating_add(elapsed).saturating_add_signed(off))
    }
}

/// The most by which a monotonic clock is too fast or too slow, in millionths.
pub(super) const MOST_TICKS_PPM: i64 = 500;

/// By how much two monotonic clocks may differ after a span.
pub(super) const fn ticks_late(span: u64) -> u64 {
    span / 1_000_000 * 2 * MOST_TICKS_PPM.unsigned_abs() + 2 * MOST_TICKS_PPM.unsigned_abs()
}

/// A clock that never goes back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticks {
    /// The time of the world at which the clock showed 0.
    pub(super) from: u64,
    /// By how many millionths the clock is too fast.
    pub(super) ppm: i64,
}

impl Ticks {
    /// What the clock shows at a time of the world.
    pub(super) fn at(&self, now: u64) -> Micros {
        let passed = i128::from(now.saturating_sub(self.from));
        let shown = passed * (1_000_000 + i128::from(self.ppm)) / 1_000_000;
        Micros(u64::try_from(shown).unwrap_or(0))
    }
}

fn signed(span: u64) -> i64 {
    i64::try_from(span).unwrap_or(i64::MAX)
}
