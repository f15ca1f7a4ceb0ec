//! Shedding: refusing a part of the load so that the rest is served.

pub mod fleet;
pub mod penalty;
