//! Rates and the bounds of what can be configured.

use core::fmt;

use crate::time::Micros;

/// The largest public quantity, 2^53 − 1: the last integer that JavaScript's number keeps apart
/// from its neighbours.
pub const MAX_QUANTITY: u64 = (1 << 53) - 1;

/// An exact rate: `units` per `period_us`, reduced. 3 per second is 3/1,000,000 µs, not
/// 1/333,333 µs. A zero rate cannot be written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    units: u64,
    period_us: u64,
}

impl Rate {
    /// `units` per `period`.
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`] if either is 0 or above [`MAX_QUANTITY`].
    ///
    /// ```
    /// use tidegate_core::{Micros, Rate};
    /// let rate = Rate::new(60, Micros(60_000_000)).unwrap();
    /// assert_eq!((rate.units(), rate.period()), (1, Micros(1_000_000)));
    /// assert!(Rate::new(0, Micros(1)).is_err());
    /// ```
    pub const fn new(units: u64, period: Micros) -> Result<Self, ConfigError> {
        if let Err(error) = in_range("rate", units) {
            return Err(error);
        }
        if let Err(error) = in_range("period", period.0) {
            return Err(error);
        }
        let divisor = gcd(units, period.0);
        match (units.checked_div(divisor), period.0.checked_div(divisor)) {
            (Some(units), Some(period_us)) => Ok(Self { units, period_us }),
            _ => Err(ConfigError::OutOfRange {
                field: "rate",
                found: 0,
                least: 1,
                most: MAX_QUANTITY,
            }),
        }
    }

    /// The numerator of the reduced fraction.
    #[must_use]
    pub const fn units(self) -> u64 {
        self.units
    }

    /// The denominator of the reduced fraction.
    #[must_use]
    pub const fn period(self) -> Micros {
        Micros(self.period_us)
    }
}

/// Why a configuration cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// A quantity is too small or too large.
    OutOfRange {
        /// Which one.
        field: &'static str,
        /// What was given.
        found: u64,
        /// The least that is allowed.
        least: u64,
        /// The most that is allowed.
        most: u64,
    },
    /// Exact arithmetic at this scale does not fit 64 bits, or a span would exceed 285 years.
    ScaleTooFine {
        /// The field that would have to be smaller.
        field: &'static str,
        /// What was given.
        found: u64,
        /// The largest that fits, everything else unchanged.
        nearest: u64,
    },
    /// The period is no whole number of microseconds per segment.
    UnevenSegments {
        /// The period given.
        period: Micros,
        /// The number of segments given.
        segments: u64,
        /// The nearest period below or above that divides evenly.
        nearest: Micros,
    },
    /// Thresholds of a shedder that are not in order.
    UnorderedThresholds {
        /// The good one given, in parts per million.
        good_ppm: u32,
        /// The bad one given, in parts per million.
        bad_ppm: u32,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange { field, found, least, most } => {
                write!(f, "`{field}`: found {found}, allowed are {least} to {most}")
            }
            Self::ScaleTooFine { field, found, nearest } => write!(
                f,
                "`{field}`: found {found}, which exact 64-bit arithmetic cannot hold beside the \
                 other values; the largest that fits is {nearest}"
            ),
            Self::UnevenSegments { period, segments, nearest } => write!(
                f,
                "`segments`: {segments} do not divide a period of {} µs into whole microseconds; \
                 the nearest period that they do divide is {} µs",
                period.0, nearest.0
            ),
            Self::UnorderedThresholds { good_ppm, bad_ppm } => write!(
                f,
                "`good`: found {good_ppm} beside `bad` {bad_ppm} parts per million, must be \
                 0 < good ≤ bad < 1000000"
            ),
        }
    }
}

impl core::error::Error for ConfigError {}

/// From 1 to [`MAX_QUANTITY`].
pub(crate) const fn in_range(field: &'static str, found: u64) -> Result<(), ConfigError> {
    in_bounds(field, found, 1, MAX_QUANTITY)
}

pub(crate) const fn in_bounds(
    field: &'static str,
    found: u64,
    least: u64,
    most: u64,
) -> Result<(), ConfigError> {
    if found < least || found > most {
        Err(ConfigError::OutOfRange { field, found, least, most })
    } else {
        Ok(())
    }
}

pub(crate) const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while let Some(rest) = a.checked_rem(b) {
        a = b;
        b = rest;
    }
    a
}
