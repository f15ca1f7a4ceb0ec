//! Windows: limiters that bound how much is granted within a period.

pub mod calendar;
pub mod fixed;
pub mod log;
pub mod sliding;

use crate::time::Timestamp;

/// A grant, or some units of a grant, that was not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refund {
    /// The time of the grant: the state's `newest` right after that decision. Windows need this
    /// time to take the units out of the segment in which the units were counted.
    pub granted_at: Timestamp,
    /// The units that come back.
    pub cost: u64,
}
