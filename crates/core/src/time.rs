//! Points in time and spans, in whole microseconds.

use crate::quantity::MAX_QUANTITY;

/// A span of time in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub u64);

impl Micros {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// One second.
    pub const SECOND: Self = Self(1_000_000);
    /// The longest span that is ever reported: 2^53 − 1 µs, some 285 years.
    pub const MAX: Self = Self(MAX_QUANTITY);

    /// Whole seconds, rounded up: a client that waits so long never comes too early.
    #[must_use]
    pub const fn as_secs_ceil(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }

    /// Whole milliseconds, rounded up: a store that keeps a state so long never drops it early.
    #[must_use]
    pub const fn as_millis_ceil(self) -> u64 {
        self.0.div_ceil(1_000)
    }
}

/// A point in time: microseconds since the Unix epoch.
///
/// Microseconds, because 2^53 µs are 285 years and 2^53 ns are 104 days: a timestamp crosses
/// JavaScript as a plain number without loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The Unix epoch, also the `newest` of a key that was never seen.
    pub const EPOCH: Self = Self(0);

    /// The time so much later, or the last one that can be written down.
    #[must_use]
    pub const fn saturating_add(self, span: Micros) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// The span since `earlier`; zero where that lies in the future.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Micros {
        Micros(self.0.saturating_sub(earlier.0))
    }

    /// The time at which a decision at `self` is taken, where `newest` is the newest time seen
    /// for the key and `period` that of its limiter.
    ///
    /// - `self ≥ newest`: `self`.
    /// - up to one period before it: `newest`. Time stands still, nothing refills.
    /// - earlier than that: `self`. The newest one came from a clock that had jumped ahead; the
    ///   key would otherwise stay locked until the jump is caught up with.
    ///
    /// ```
    /// use tidegate_core::{Micros, Timestamp};
    /// let newest = Timestamp(1_000);
    /// let period = Micros(100);
    /// assert_eq!(Timestamp(1_001).taken_after(newest, period), Timestamp(1_001));
    /// assert_eq!(Timestamp(900).taken_after(newest, period), newest);
    /// assert_eq!(Timestamp(899).taken_after(newest, period), Timestamp(899));
    /// ```
    #[must_use]
    #[inline]
    pub const fn taken_after(self, newest: Self, period: Micros) -> Self {
        if self.0 >= newest.0 { self } else { self.taken_before(newest, period) }
    }

    #[cold]
    const fn taken_before(self, newest: Self, period: Micros) -> Self {
        if newest.saturating_since(self).0 > period.0 { self } else { newest }
    }
}
