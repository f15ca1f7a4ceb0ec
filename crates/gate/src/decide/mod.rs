//! Several limits on one key, decided all or nothing.

mod limits;
mod operate;
mod stored;
#[cfg(test)]
mod tests;
mod together;
mod verdict;

pub(crate) use limits::{Each, MAX_LIMITS, SliceWords};
pub use limits::{Limits, Slice};
pub use stored::{OnChange, PersistAhead};
pub use verdict::{Effect, Verdict};
