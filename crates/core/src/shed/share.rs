//! Shares that were measured, and probabilities with which to refuse.

use crate::never::never;

/// A probability in units of 2^-32, from 0 (never) to 2^32 (certain).
///
/// ```
/// use tidegate_core::shed::{Draw, Probability};
/// let half = Probability::from_units(1 << 31).unwrap();
/// assert!(half.happens(Draw(0)));
/// assert!(half.happens(Draw((1 << 31) - 1)));
/// assert!(!half.happens(Draw(1 << 31)));
/// assert!(Probability::from_units((1 << 32) + 1).is_none());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Probability(u64);

/// A random number that is uniform over all 32-bit values. The caller draws a new one for each
/// request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Draw(pub u32);

/// A measured share of a whole, in parts per million from 0 to 1,000,000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share(u32);

impl Probability {
    /// The probability 0.
    pub const NEVER: Self = Self(0);
    /// The probability 1.
    pub const CERTAIN: Self = Self(1 << 32);

    /// Makes a probability of `units` · 2^-32. `None` if `units` is above 2^32.
    #[must_use]
    pub const fn from_units(units: u64) -> Option<Self> {
        if units > Self::CERTAIN.0 { None } else { Some(Self(units)) }
    }

    /// The probability in units of 2^-32.
    #[must_use]
    pub const fn units(self) -> u64 {
        self.0
    }

    /// Whether an event of this probability happens at this draw. It happens at exactly
    /// [`units`](Self::units) of the 2^32 draws.
    #[must_use]
    #[inline]
    pub fn happens(self, draw: Draw) -> bool {
        u64::from(draw.0) < self.0
    }
}

/// The fraction min(part, whole) / whole. `whole` is above 0 and below 2^127.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fraction {
    pub(crate) part: u128,
    pub(crate) whole: u128,
}

impl Fraction {
    /// The fraction as a probability, rounded down to 2^-32.
    pub(crate) fn floor(self) -> Probability {
        let Self { part, whole } = self;
        if part >= whole {
            return Probability::CERTAIN;
        }
        if let Some(shifted) = part.checked_mul(1 << 32) {
            let units = shifted.checked_div(whole).and_then(|units| u64::try_from(units).ok());
            return units.map_or_else(|| never(Probability::CERTAIN), Probability); // below 2^32
        }
        self.floor_by_bits()
    }

    /// Whether an event of [this probability](Self::floor) happens at this draw. If both numbers
    /// fit 64 bits, this needs no division: d < ⌊2^32·part/whole⌋ iff (d + 1)·whole ≤ 2^32·part.
    #[inline]
    pub(crate) fn happens(&self, draw: Draw) -> bool {
        let (Ok(part), Ok(whole)) = (u64::try_from(self.part), u64::try_from(self.whole)) else {
            return self.floor().happens(draw);
        };
        let above = u128::from(draw.0).saturating_add(1);
        above.saturating_mul(whole.into()) <= u128::from(part) << 32
    }

    /// Long division, one bit at a time, for a part whose product with 2^32 does not fit 128 bits.
    #[cold]
    fn floor_by_bits(self) -> Probability {
        let (mut rest, mut units) = (self.part, 0_u64);
        for _ in 0..32 {
            rest = rest.saturating_mul(2); // rest < whole < 2^127
            units = units.saturating_mul(2);
            if let Some(less) = rest.checked_sub(self.whole) {
                rest = less;
                units = units.saturating_add(1);
            }
        }
        Probability(units)
    }
}

impl Share {
    /// Nothing of the whole.
    pub const NONE: Self = Self(0);
    /// All of the whole.
    pub const WHOLE: Self = Self(1_000_000);

    /// Makes a share of `ppm` parts per million. `None` if `ppm` is above 1,000,000.
    #[must_use]
    pub const fn from_ppm(ppm: u32) -> Option<Self> {
        if ppm > Self::WHOLE.0 { None } else { Some(Self(ppm)) }
    }

    /// The share part / whole, rounded to the nearest millionth. Examples are busy workers of all
    /// workers and errors of all answers. The share is the whole if `part` exceeds `whole`, and
    /// nothing if `whole` is 0.
    ///
    /// ```
    /// use tidegate_core::shed::Share;
    /// assert_eq!(Share::of(3, 4).ppm(), 750_000);
    /// assert_eq!(Share::of(2, 3).ppm(), 666_667);
    /// assert_eq!(Share::of(0, 0).ppm(), 0);
    /// ```
    #[must_use]
    pub fn of(part: u64, whole: u64) -> Self {
        let (part, whole) = (u128::from(part.min(whole)), u128::from(whole));
        // ⌊(2·10^6·part + whole) / (2·whole)⌋
        let doubled = part.saturating_mul(2_000_000).saturating_add(whole);
        let ppm = doubled.checked_div(whole.saturating_mul(2)).unwrap_or(0);
        u32::try_from(ppm).map_or_else(|_| never(Self::WHOLE), Self) // at most 10^6
    }

    /// The share in parts per million.
    #[must_use]
    pub const fn ppm(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::{Draw, Fraction, Probability, Share};
    use proptest::prelude::*;

    #[test]
    fn a_share_is_rounded_to_the_nearest_millionth() {
        for (part, whole, expected) in [
            (0, 0, 0),
            (5, 0, 0),
            (0, 7, 0),
            (7, 7, 1_000_000),
            (8, 7, 1_000_000),
            (1, 2_000_000, 1), // half a millionth is rounded up
            (1, 2_000_001, 0),
            (u64::MAX, u64::MAX, 1_000_000),
            (u64::MAX / 2, u64::MAX, 500_000),
        ] {
            assert_eq!(Share::of(part, whole).ppm(), expected, "{part} of {whole}");
        }
        assert_eq!(Share::from_ppm(1_000_000), Some(Share::WHOLE));
        assert_eq!(Share::from_ppm(1_000_001), None);
    }

    #[test]
    fn never_and_certain_hold_for_every_draw() {
        for draw in [0, 1, u32::MAX - 1, u32::MAX].map(Draw) {
            assert!(!Probability::NEVER.happens(draw));
            assert!(Probability::CERTAIN.happens(draw));
        }
    }

    proptest! {
        /// The draws below `units` and no others, which are exactly `units` of the 2^32 draws.
        #[test]
        fn an_event_happens_at_exactly_its_share_of_all_draws(units in 1..1_u64 << 32) {
            let probability = Probability::from_units(units).unwrap();
            let last = u32::try_from(units - 1).unwrap();
            prop_assert!(probability.happens(Draw(last)));
            prop_assert!(last == u32::MAX || !probability.happens(Draw(last + 1)));
        }

        #[test]
        fn a_fraction_is_rounded_down(whole in 1..1_u128 << 95, part in 0..1_u128 << 95) {
            let expected = ((part << 32) / whole).min(1 << 32);
            let fraction = Fraction { part, whole };
            prop_assert_eq!(u128::from(fraction.floor().units()), expected);
            if part < whole {
                prop_assert_eq!(u128::from(fraction.floor_by_bits().units()), expected);
            }
        }

        #[test]
        fn a_fraction_happens_as_its_probability_does(
            whole in prop_oneof![1..200_u128, 1..1_u128 << 70], per_mille in 0..1_100_u128,
            off in 0..3_u32, draw: u32,
        ) {
            let fraction = Fraction { part: whole * per_mille / 1_000, whole };
            let probability = fraction.floor();
            let near = u32::try_from(probability.units()).unwrap_or(u32::MAX);
            for draw in [draw, near.saturating_sub(off), near.saturating_add(off)].map(Draw) {
                prop_assert_eq!(fraction.happens(draw), probability.happens(draw), "{:?}", draw);
            }
        }
    }
}
