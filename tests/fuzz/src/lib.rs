//! Code that the targets share: any policy of up to three limits, operations on one of its keys, and the
//! properties that must hold.

mod key;
mod leases;
mod parameters;
mod step;

pub use key::Key;
pub use parameters::{Parameters, RULES, limits};
pub use step::{Ask, Step};

use arbitrary::Arbitrary;

/// A number that is often small: the interesting configurations and times lie close together.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Amount {
    Tiny(u8),
    Small(u16),
    Seconds(u16),
    Any(u64),
    /// A number this much below the largest one.
    FromTheEnd(u8),
}

impl Amount {
    pub fn value(self) -> u64 {
        match self {
            Self::Tiny(value) => value.into(),
            Self::Small(value) => value.into(),
            Self::Seconds(value) => u64::from(value) * 1_000_000,
            Self::Any(value) => value,
            Self::FromTheEnd(below) => u64::MAX - u64::from(below),
        }
    }
}
