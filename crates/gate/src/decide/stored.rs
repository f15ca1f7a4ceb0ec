//! What a policy says about the stored states of its limits.

use tidegate_core::Micros;

/// The effect of an edit of the limits on stored states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnChange {
    /// States start afresh under the new limits.
    Reset,
    /// Used units stay used.
    #[default]
    Keep,
    /// The used share of the capacity stays used.
    Proportional,
}

impl OnChange {
    /// Whether a state outlives an edit of its limits.
    #[inline]
    pub(crate) const fn keeps_states(self) -> bool {
        matches!(self, Self::Keep | Self::Proportional)
    }
}

/// The most that a stored state may count before it is granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PersistAhead {
    /// The most units that are charged before they are granted.
    pub most: u64,
    /// The most time for which a bucket is charged what flows in.
    pub time: Micros,
}
