//! Shedding: limiters that refuse some of the load so that the rest is served.

pub mod block;
pub mod fleet;
pub mod penalty;
pub mod reporter;
mod share;
pub mod suppression;
pub mod utilization;

pub use share::{Draw, Probability, Share};
