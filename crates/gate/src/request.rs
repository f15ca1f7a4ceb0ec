//! What can be asked of a key.

use alloc::vec::Vec;

use tidegate_core::Timestamp;

/// What can be asked of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// May this pass?
    Decide(Request),
    /// This passed on an estimate: here is what it really cost.
    Settle(Settlement),
}

/// What a request brings for its limits to decide on. Each limit reads what it needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The units it takes; 0 only looks.
    pub cost: u64,
}

/// The real cost of a request that was granted on an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// When it was granted: [`Verdict::at`](crate::Verdict::at). What comes back of a window comes
    /// out of the segment it was counted in.
    pub granted_at: Timestamp,
    /// What was taken then.
    pub reserved: u64,
    /// What it came to. More than was reserved is taken now, whether it is there or not; what was
    /// not needed comes back.
    pub actual: u64,
}

impl Operation {
    /// In numbers, for who passes it on: first which operation it is.
    #[must_use]
    pub fn to_words(&self) -> Vec<u64> {
        match *self {
            Self::Decide(Request { cost }) => [1, cost].into(),
            Self::Settle(Settlement { granted_at, reserved, actual }) => {
                [2, granted_at.0, reserved, actual].into()
            }
        }
    }

    /// What [`to_words`](Self::to_words) wrote; `None` if it is anything else.
    #[must_use]
    pub fn from_words(words: &[u64]) -> Option<Self> {
        match *words {
            [1, cost] => Some(Self::Decide(Request { cost })),
            [2, granted_at, reserved, actual] => {
                let granted_at = Timestamp(granted_at);
                Some(Self::Settle(Settlement { granted_at, reserved, actual }))
            }
            _ => None,
        }
    }

    /// Whether it only looks.
    #[must_use]
    pub const fn is_peek(&self) -> bool {
        matches!(self, Self::Decide(Request { cost: 0, .. }))
    }
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

impl From<Request> for Operation {
    fn from(request: Request) -> Self {
        Self::Decide(request)
    }
}

impl From<u64> for Operation {
    fn from(cost: u64) -> Self {
        Self::Decide(Request::of(cost))
    }
}

impl From<Settlement> for Operation {
    fn from(settlement: Settlement) -> Self {
        Self::Settle(settlement)
    }
}
