//! The answers to the calls about the server itself.

use std::sync::{MutexGuard, PoisonError};

use tidegate_http::{KeysAs, Limited, Status, Watched};

use super::files::InForce;
use super::server::Server;
use crate::clock;

impl Server {
    pub(super) fn watched(&self, in_force: &InForce, what: Watched, clear: bool) -> String {
        let keys = if clear { KeysAs::Clear } else { KeysAs::Hashes(&self.log.secret) };
        let InForce { policies, metrics, store, tag, .. } = in_force;
        let status = Status {
            policies,
            revision: tag,
            metrics,
            store: store.name(),
            local: &store.local_answers(),
        };
        match what {
            Watched::Top => self.limited().top(clock::now(), keys),
            Watched::Status => self.limited().status(clock::now(), &status, Some(keys)),
        }
    }

    /// Only checks that did not just pass are counted, so few requests need the lock.
    pub(super) fn limited(&self) -> MutexGuard<'_, Limited> {
        self.limited.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
