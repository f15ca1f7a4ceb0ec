//! What a request brings for its limits to decide on.

/// What a request brings for its limits to decide on. Each limit reads what it needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The units it takes; 0 only looks.
    pub cost: u64,
}

impl Request {
    /// One that costs so much, and brings nothing else.
    #[must_use]
    #[inline]
    pub const fn of(cost: u64) -> Self {
        Self { cost }
    }

    /// The same, only to look.
    #[must_use]
    pub(crate) const fn peek(self) -> Self {
        Self { cost: 0, ..self }
    }
}

impl From<u64> for Request {
    fn from(cost: u64) -> Self {
        Self::of(cost)
    }
}
