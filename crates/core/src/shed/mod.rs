//! Shedding: refusing a part of the load so that the rest is served.

mod share;
pub mod utilization;

pub use share::{Draw, Probability, Share};
