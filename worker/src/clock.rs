//! The clocks of an isolate and of an object.

use std::time::Duration;

use tidegate_gate::{Micros, Timestamp};

/// How long what is done after a response waits, so that the response has left.
pub(crate) const AFTER_RESPONSE: Duration = Duration::from_millis(1);

/// A clock that never goes back, out of one that may be set. It stands still while that one is behind.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    last: Timestamp,
    at: Micros,
}

impl Clock {
    pub(crate) fn at(&mut self, now: Timestamp) -> Micros {
        let passed = match self.last {
            Timestamp::EPOCH => Micros::ZERO,
            last => now.saturating_since(last),
        };
        self.last = now;
        self.at = Micros(self.at.0.saturating_add(passed.0));
        self.at
    }

    /// The last time, by both clocks.
    #[cfg(feature = "api")]
    pub(crate) const fn last(&self) -> (Timestamp, Micros) {
        (self.last, self.at)
    }
}

/// The time that `Date.now()` returned.
pub(crate) const fn timestamp(now_ms: f64) -> Timestamp {
    Timestamp(whole(now_ms).saturating_mul(1_000))
}

/// A whole number of JavaScript.
#[expect(clippy::as_conversions, reason = "no `try_from` for floats; a cast saturates")]
pub(crate) const fn whole(number: f64) -> u64 {
    number as u64
}

/// A number for JavaScript.
#[expect(clippy::as_conversions, reason = "no `from` for floats; exact up to 2^53")]
pub(crate) const fn number(whole: u64) -> f64 {
    whole as f64
}
