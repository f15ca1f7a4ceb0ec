//! What the driver does in and after an outage: it asks whether Redis is back, and tells it what this host granted meanwhile.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tidegate_gate::Verdict;
use tidegate_tier::authority::{Failure, SwapOutcome};
use tidegate_tier::cache::Transmit;
use tidegate_tier::outage::Told;
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::shared::{Shared, VerdictOrFailure};
use crate::store::error::StoreError;

/// The pause between two questions whether Redis is back.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// How many operations Redis is told at once, so that callers do not wait for many of them.
const MOST_TOLD: usize = 64;

/// The pause after Redis has not done what it was told.
const TELL_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What the driver waits for in an outage and after it.
#[derive(Default)]
pub(super) struct Recovery {
    events: FuturesUnordered<BoxFuture<'static, Recovered>>,
    is_away: bool,
    is_paused: bool,
    /// How many operations Redis is being told.
    told: usize,
}

/// What has come.
pub(super) enum Recovered {
    /// Redis answers again.
    Back,
    /// Redis may be told something again.
    Resumed,
    /// Redis was told this.
    Told(Transmit, Told),
}

impl Recovery {
    /// Asks from now on whether Redis is back.
    pub(super) fn await_back(&mut self, shared: &Arc<Shared>, cause: &StoreError) {
        if !self.is_away {
            self.is_away = true;
            shared.away.set(cause.clone());
            let shared = Arc::clone(shared);
            self.events.push(Box::pin(async move {
                back(&shared).await;
                Recovered::Back
            }));
        }
    }

    /// Whether Redis may be told something more.
    pub(super) const fn may_tell(&self) -> bool {
        !self.is_away && !self.is_paused && self.told < MOST_TOLD
    }

    /// Takes an operation that was asked for, and where its answer comes.
    pub(super) fn tell(&mut self, owed: Transmit, answer: oneshot::Receiver<VerdictOrFailure>) {
        self.told += 1;
        self.events.push(Box::pin(async move {
            let told = told(answer.await.ok());
            Recovered::Told(owed, told)
        }));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Waits for the next event; `None` if there is none to come.
    pub(super) async fn next(&mut self) -> Option<Recovered> {
        let event = self.events.next().await?;
        match &event {
            Recovered::Back => self.is_away = false,
            Recovered::Resumed => self.is_paused = false,
            Recovered::Told(_, told) => {
                self.told -= 1;
                if *told != Told::Done && !self.is_paused {
                    self.is_paused = true;
                    self.events.push(Box::pin(async {
                        sleep(TELL_AGAIN_AFTER).await;
                        Recovered::Resumed
                    }));
                }
            }
        }
        Some(event)
    }
}

fn told(answer: Option<Result<Verdict, Failure<StoreError>>>) -> Told {
    match answer {
        Some(
            Ok(_) | Err(Failure::Transaction(_) | Failure::Store(StoreError::Unreadable { .. })),
        ) => Told::Done, // or it never can be
        Some(Err(Failure::Store(StoreError::Redis(error)))) if !error.is_io_error() => {
            Told::NotDone // Redis has refused
        }
        Some(Err(Failure::Store(_))) | None => Told::Unknown,
        Some(Err(_)) => Told::NotDone,
    }
}

/// Waits until Redis answers: of a Cluster all masters.
async fn back(shared: &Shared) {
    while let Err(error) = shared.servers.ping().await {
        shared.away.set(error);
        sleep(ASK_AGAIN_AFTER).await;
    }
}

/// Why Redis last did not decide, and whether the store is gone.
#[derive(Default)]
pub(super) struct Away {
    cause: Mutex<Option<StoreError>>,
    /// Nobody asks the store any more.
    pub(super) is_over: AtomicBool,
}

impl Away {
    /// Takes note why Redis does not decide.
    pub(super) fn set(&self, cause: StoreError) {
        *self.cause.lock().unwrap_or_else(PoisonError::into_inner) = Some(cause);
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
        self.cause.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use redis::{ErrorKind, RedisError};

    use super::super::swap::A_STATE;
    use super::*;

    #[test]
    fn what_redis_never_can_do_it_is_told_once() {
        let error = || RedisError::from((ErrorKind::UnexpectedReturnType, "of this type"));
        let told = |error| told(Some(Err(Failure::Store(error))));
        let unreadable =
            StoreError::Unreadable { names: Vec::new(), expected: A_STATE, error: error() };
        assert_eq!(told(unreadable), Told::Done);
        assert_eq!(told(StoreError::Redis(error())), Told::NotDone);
        let within = Duration::from_secs(1);
        assert_eq!(told(StoreError::Deadline { within, server: None }), Told::Unknown);
    }
}
