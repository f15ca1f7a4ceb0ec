//! Rates, the bounds of quantities, and the errors of configurations.

use core::fmt;

use crate::time::Micros;

/// The largest public quantity, 2^53 − 1. It is the largest integer that a JavaScript number
/// distinguishes from its neighbours.
pub const MAX_QUANTITY: u64 = (1 << 53) - 1;

/// An exact rate: a reduced fraction of units per µs. 3 per second is 3/1,000,000 µs, not
/// 1/333,333 µs. A rate is never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    units: u64,
    period_us: u64,
}

impl Rate {
    /// Makes a rate of `units` per `period`.
    ///
    /// # Errors
    /// Returns [`ConfigError::OutOfRange`] if `units` or `period` is 0 or above [`MAX_QUANTITY`].
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
    /// A value is too small or too large.
    OutOfRange {
        /// The field of that value.
        field: &'static str,
        /// The value that was given.
        found: u64,
        /// The least allowed value.
        least: u64,
        /// The greatest allowed value.
        most: u64,
    },
    /// Exact arithmetic with these values does not fit 64 bits, or a span would exceed 285 years.
    ScaleTooFine {
        /// The field that must be smaller.
        field: &'static str,
        /// The value that was given.
        found: u64,
        /// The largest value that fits if all other fields stay the same.
        nearest: u64,
    },
    /// A segment of the period would not be a whole number of microseconds long.
    UnevenSegments {
        /// The period that was given.
        period: Micros,
        /// The number of segments that was given.
        segments: u64,
        /// The nearest period, shorter or longer, that these segments divide evenly.
        nearest: Micros,
    },
    /// The thresholds of a shedder are not in order.
    UnorderedThresholds {
        /// The good threshold that was given, in parts per million.
        good_ppm: u32,
        /// The bad threshold that was given, in parts per million.
        bad_ppm: u32,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange { field, found, least, most } => {
                write!(f, "`{field}`: expected {least} to {most}, found {found}")
            }
            Self::ScaleTooFine { field, found, nearest } => write!(
                f,
                "`{field}`: expected at most {nearest}, because exact 64-bit arithmetic cannot hold more \
                 beside the other values; found {found}"
            ),
            Self::UnevenSegments { period, segments, nearest } => write!(
                f,
                "`segments`: expected a number that divides the period {} µs into whole \
                 microseconds, found {segments}; the nearest period that {segments} divides is {} µs",
                period.0, nearest.0
            ),
            Self::UnorderedThresholds { good_ppm, bad_ppm } => write!(
                f,
                "`good`: expected 0 < good ≤ bad < 1000000 parts per million, found good \
                 = {good_ppm} and bad = {bad_ppm}"
            ),
        }
    }
}

impl core::error::Error for ConfigError {}

/// Checks that `found` is from 1 to [`MAX_QUANTITY`].
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

/// The product, or the largest number. Two factors of 32 bits are the usual case. They need no product of 128 bits, for which
/// WebAssembly calls a function.
#[inline]
pub(crate) const fn saturating_product(one: u64, other: u64) -> u64 {
    if (one | other) >> 32 == 0 { one.wrapping_mul(other) } else { wide_product(one, other) }
}

#[cold]
#[inline(never)] // inlined, it would be computed for small factors too
const fn wide_product(one: u64, other: u64) -> u64 {
    one.saturating_mul(other)
}

#[cfg(test)]
mod tests;
