//! Whole numbers within bounds.

use crate::{Error, Form, Node};

/// The largest whole number that every reader of JSON holds exactly (RFC 8259 §6): 2^53 − 1.
pub const MAX_EXACT: u64 = (1 << 53) - 1;

/// A whole number from `LEAST` to `MOST`; `MOST` is 2^53 − 1 by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounded<const LEAST: u64, const MOST: u64 = MAX_EXACT>(u64);

impl<const LEAST: u64, const MOST: u64> Bounded<LEAST, MOST> {
    /// This number; `None` if it is less than `LEAST` or more than `MOST`.
    ///
    /// ```
    /// use tidegate_form::Bounded;
    /// assert_eq!(Bounded::<1, 5>::new(5).map(Bounded::get), Some(5));
    /// assert_eq!(Bounded::<1, 5>::new(6), None);
    /// ```
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        if LEAST <= number && number <= MOST { Some(Self(number)) } else { None }
    }

    /// This number, or the bound that it is beyond.
    #[must_use]
    pub fn clamped(number: u64) -> Self {
        Self(number.clamp(LEAST, MOST))
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl<const LEAST: u64> From<Bounded<LEAST, 0xFFFF_FFFF>> for u32 {
    fn from(bounded: Bounded<LEAST, 0xFFFF_FFFF>) -> Self {
        Self::try_from(bounded.0).unwrap_or(Self::MAX) // never: it has at most 32 bits
    }
}

impl<const LEAST: u64, const MOST: u64> Form for Bounded<LEAST, MOST> {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        node.whole(LEAST, MOST).map(Self)
    }
}
