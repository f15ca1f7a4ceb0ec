//! What the stores of a process know in an outage: their shares, and why Redis last did not decide.

use std::sync::{Mutex, PoisonError};

use tidegate_tier::Outage;
use tidegate_tier::authority::SwapOutcome;

use crate::store::error::StoreError;

/// The shares of this process, which is one node however many stores it has.
static SHARES: Mutex<Outage> = Mutex::new(Outage::new(Outage::MOST_BYTES));

/// Lends the shares of this process.
pub(super) fn shares(to: &mut dyn FnMut(&mut Outage)) {
    to(&mut SHARES.lock().unwrap_or_else(PoisonError::into_inner));
}

/// Why Redis last did not decide.
#[derive(Default)]
pub(super) struct Away(Mutex<Option<StoreError>>);

impl Away {
    /// Takes note why Redis does not decide.
    pub(super) fn set(&self, cause: StoreError) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(cause);
    }

    /// Takes note if Redis has answered that it does not do one of these, for example because it has no memory left.
    pub(super) fn note(&self, outcomes: &[SwapOutcome<StoreError>]) {
        let refused = outcomes.iter().find_map(|outcome| match outcome {
            SwapOutcome::Refused(_, error) | SwapOutcome::Failed(error) => Some(error),
            _ => None,
        });
        refused.into_iter().for_each(|error| self.set(error.clone()));
    }

    /// Why Redis last did not decide.
    pub(super) fn cause(&self) -> Option<StoreError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
