//! Points in time and spans, in whole microseconds.

#[cfg(test)]
mod tests;

use crate::quantity::MAX_QUANTITY;

/// A span of time in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub u64);

impl Micros {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// One second.
    pub const SECOND: Self = Self(1_000_000);
    /// The longest span that is ever reported: 2^53 − 1 µs, about 285 years.
    pub const MAX: Self = Self(MAX_QUANTITY);

    /// The span in whole seconds, rounded up so that a client that waits them is never too early.
    #[must_use]
    pub const fn as_secs_ceil(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }

    /// The span in whole milliseconds, rounded up so that a store never drops a state too early.
    #[must_use]
    pub const fn as_millis_ceil(self) -> u64 {
        self.0.div_ceil(1_000)
    }
}

/// A point in time, in microseconds since the Unix epoch.
///
/// The unit is the microsecond because JavaScript numbers are exact up to 2^53, and 2^53 µs are
/// 285 years, but 2^53 ns are 104 days.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The Unix epoch. It is also the newest time of a key never seen.
    pub const EPOCH: Self = Self(0);

    /// The time `span` later, or the last representable time if that is earlier.
    #[must_use]
    pub const fn saturating_add(self, span: Micros) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// The span since `earlier`. Zero if `earlier` lies after this time.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Micros {
        Micros(self.0.saturating_sub(earlier.0))
    }

    /// The time at which a decision at `self` is taken. `newest` is the newest time seen for the
    /// key, and `period` is the period of its limiter.
    ///
    /// - `self ≥ newest`: the decision is taken at `self`.
    /// - `self` is up to one period before `newest`: the decision is taken at `newest`. Time stands
    ///   still, and nothing refills.
    /// - `self` is earlier than that: the decision is taken at `self`. The newest time came from a
    ///   clock that had jumped ahead. The key would otherwise stay locked until time has caught up
    ///   with the jump.
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
