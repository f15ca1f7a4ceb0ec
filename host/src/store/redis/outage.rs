//! What the stores of a process know in an outage: their shares.

use std::sync::{Mutex, PoisonError};

use tidegate_tier::Outage;

/// The shares of this process, which is one node however many stores it has.
static SHARES: Mutex<Outage> = Mutex::new(Outage::new(Outage::MOST_BYTES));

/// Lends the shares of this process.
pub(super) fn shares(to: &mut dyn FnMut(&mut Outage)) {
    to(&mut SHARES.lock().unwrap_or_else(PoisonError::into_inner));
}
