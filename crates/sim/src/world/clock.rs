//! Clocks that run at a speed of their own and are set.

use tidegate_gate::Timestamp;

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

fn signed(span: u64) -> i64 {
    i64::try_from(span).unwrap_or(i64::MAX)
}
