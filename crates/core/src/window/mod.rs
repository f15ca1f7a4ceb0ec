//! Windows: how much was granted within a period.

pub mod fixed;
pub mod log;
pub mod sliding;

use crate::time::Timestamp;

/// A grant, or a part of one, that was not used after all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refund {
    /// When it was granted: the state's `newest` right after that decision. Windows need it, to
    /// take the units out of the very segment that they were counted in.
    pub granted_at: Timestamp,
    /// How much of it comes back.
    pub cost: u64,
}
