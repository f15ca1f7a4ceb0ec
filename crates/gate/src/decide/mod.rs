//! Several limits on one key, decided all or nothing.

mod explain;
mod grants;
mod limits;
mod operate;
mod payers;
mod paying;
mod reservations;
mod softness;
mod stored;
#[cfg(test)]
mod tests;
mod together;
mod verdict;

pub use explain::Explanation;
pub(crate) use limits::{LimitFacts, MAX_LIMITS, RecordWords};
pub use limits::{Limits, Record};
pub(crate) use payers::in_order_of;
pub use softness::Softness;
pub use stored::{OnChange, PersistAhead};
pub use verdict::{Effect, Verdict};
