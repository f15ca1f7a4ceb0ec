//! The part of a key that a limit counts by.

use tidegate_core::never;
use tidegate_form::{Error, Form, Node};

/// How much of a key a limit counts by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// The first parts of the key, this many, separated by `/`. A key with fewer parts is counted whole. A
    /// limit with 0 parts counts all keys of the policy together.
    Parts(u8),
    /// The whole key.
    Whole,
}

impl Depth {
    /// The part of a key at this depth.
    ///
    /// ```
    /// use tidegate_gate::Depth;
    /// assert_eq!(Depth::Parts(1).of("acme/alice/laptop"), "acme");
    /// assert_eq!(Depth::Parts(2).of("acme/alice/laptop"), "acme/alice");
    /// assert_eq!(Depth::Parts(0).of("acme/alice"), "");
    /// assert_eq!(Depth::Parts(2).of("acme"), "acme");
    /// ```
    #[must_use]
    #[inline(always)] // most limits count by whole keys
    pub fn of(self, key: &str) -> &str {
        match self {
            Self::Parts(parts) => Self::first(parts, key),
            Self::Whole => key,
        }
    }

    #[inline(never)] // once, because searching takes long code
    fn first(parts: u8, key: &str) -> &str {
        let Some(slash) = usize::from(parts).checked_sub(1) else { return "" };
        let end = key.match_indices('/').nth(slash).map_or(key.len(), |(at, _)| at);
        key.get(..end).unwrap_or_else(|| never(""))
    }

    /// The smallest depth at which the part of a key is the whole key.
    pub(crate) fn of_own(key: &str) -> Self {
        if key.starts_with("ip:") {
            return Self::Parts(1); // the slash of a network separates no parts
        }
        let parts = key.matches('/').count().saturating_add(1);
        u8::try_from(parts).map_or(Self::Whole, Self::Parts)
    }

    /// The depth in a fingerprint; `None` for the whole key.
    pub(crate) fn parameter(self) -> Option<u64> {
        match self {
            Self::Parts(parts) => Some(parts.into()),
            Self::Whole => None,
        }
    }
}

impl Form for Depth {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        let parts = node.whole(0, 255)?;
        Ok(Self::Parts(u8::try_from(parts).unwrap_or_else(|_| never(0)))) // at most 255
    }
}
