//! Whether the server can decide now.

use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use crate::store::{Store, StoreError};

/// How long an answer of the store counts. Callers without a token may ask, so they must not become load of the store.
const COUNTS_FOR: Duration = Duration::from_millis(500);

/// The last answer of the store, and when it came.
#[derive(Debug, Default)]
pub(super) struct Readiness(Mutex<Option<(Instant, Result<(), String>)>>);

impl Readiness {
    /// Asks the store, unless it has just been asked. Callers that come meanwhile wait for the same answer.
    pub(super) async fn ask(&self, store: &Store) -> Result<(), String> {
        let Store::Redis(redis) = store else { return Ok(()) };
        let mut last = self.0.lock().await;
        if let Some((at, answer)) = &*last
            && at.elapsed() < COUNTS_FOR
        {
            return answer.clone();
        }
        let answer = redis.ping().await.map_err(|error| StoreError::summary(&error).to_owned());
        *last = Some((Instant::now(), answer.clone()));
        answer
    }
}
