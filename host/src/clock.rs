//! The clock of the host: read once per event, and here alone.

use std::time::{SystemTime, UNIX_EPOCH};

use tidegate_gate::Timestamp;

/// The time now, by the system's wall clock. A clock before 1970 reads as 1970.
#[must_use]
pub fn now() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX))
}
