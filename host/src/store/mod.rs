//! Where the states of keys are kept.

mod memory;
mod redis;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tidegate_gate::blob::BlobError;
use tidegate_gate::{
    Operation, OperationError, Policies, Policy, Resolved, SessionError, TableError, Timestamp,
    Verdict,
};

pub use memory::{Memory, TooLittleMemory};
pub use redis::{Redis, RedisOptions};

/// Where the states of keys are kept.
#[derive(Debug)]
#[non_exhaustive]
pub enum Store {
    /// In this process, one for each policy, by its name.
    Memory(BTreeMap<String, Memory>),
    /// In Redis or Valkey.
    Redis(Box<Redis>),
}

/// Why a store did not decide. Unless it says otherwise, nothing was granted or consumed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The limits cannot do what is asked.
    #[error(transparent)]
    Operation(#[from] OperationError),
    /// The part of the memory store that the key belongs to is full.
    #[error(
        "no room for a new key: the keys in use fill their part of the memory, {max_bytes} bytes"
    )]
    Full {
        /// How large the part is.
        max_bytes: usize,
    },
    /// The memory store did not decide.
    #[error(transparent)]
    Table(TableError),
    /// What is stored under the key's name is not a state of this policy.
    #[error("{name}: {error}")]
    Blob {
        /// The name in the store.
        name: String,
        /// What is wrong with it.
        error: BlobError,
    },
    /// The session did not decide.
    #[error(transparent)]
    Session(SessionError),
    /// Redis refused, or could not be reached. A grant may have been written all the same.
    #[error("redis: {0}")]
    Redis(::redis::RedisError), // no source: its text has it
    /// Redis did not answer in time. A grant may have been written all the same.
    #[error("redis: no answer within {0:?}")]
    Deadline(Duration),
    /// Other hosts changed the state each time before this one could: nothing was granted.
    #[error("redis: other hosts changed the same state again and again for {0:?}")]
    Contended(Duration),
    /// Too many operations wait for the same state: this one was not begun.
    #[error("redis: {key:?}: {most} operations wait for the same state already")]
    Overloaded {
        /// Whose operation it was.
        key: String,
        /// How many may wait.
        most: usize,
    },
    /// The runtime that was to ask Redis ended. A grant may have been written all the same.
    #[error("redis: the runtime ended before there was an answer")]
    Abandoned,
    /// The store was made without this policy.
    #[error("the store was made without the policy {0:?}")]
    NoPolicy(String),
}

impl From<SessionError> for StoreError {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::Operation(error) => Self::Operation(error),
            SessionError::Blob { name, error } => Self::Blob { name, error },
            error => Self::Session(error),
        }
    }
}

impl From<::redis::RedisError> for StoreError {
    fn from(error: ::redis::RedisError) -> Self {
        Self::Redis(error)
    }
}

impl StoreError {
    fn of_table(error: TableError) -> Self {
        match error {
            TableError::Operation(error) => Self::Operation(error),
            TableError::Full { max_bytes } => Self::Full { max_bytes },
            error => Self::Table(error),
        }
    }

    /// What callers may know of it: neither names nor addresses.
    #[must_use]
    pub const fn summary(&self) -> &'static str {
        match self {
            Self::Operation(_) => "the limits cannot do what is asked",
            Self::Full { .. } | Self::Table(_) => "the store is full",
            Self::Blob { .. } => "what is stored is no state of this policy",
            Self::Redis(_) | Self::NoPolicy(_) | Self::Session(_) | Self::Abandoned => {
                "the store cannot be asked"
            }
            Self::Deadline(_) | Self::Contended(_) => "the store did not answer in time",
            Self::Overloaded { .. } => "too many requests wait for the store",
        }
    }
}

impl Store {
    /// A store in this process, of at most `max_bytes` in equal parts for the policies.
    ///
    /// # Errors
    /// [`TooLittleMemory`] for the first policy whose states need more than its part.
    pub fn memory(policies: &Policies, max_bytes: usize) -> Result<Self, TooLittleMemory> {
        let policies = policies.all();
        let each = max_bytes / policies.len().max(1);
        let table = |policy: &Arc<Policy>| {
            Ok((policy.name().to_owned(), Memory::new(policy.clone(), each)?))
        };
        Ok(Self::Memory(policies.iter().map(table).collect::<Result<_, _>>()?))
    }

    /// Does what is asked, with what each limit says.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn operate(
        &self,
        resolved: &Resolved,
        now: Timestamp,
        operation: impl Into<Operation>,
    ) -> Result<Verdict, StoreError> {
        let mut answers = self.operate_all(now, &[(resolved, operation.into())]).await;
        answers.pop().unwrap_or_else(|| Err(StoreError::NoPolicy(resolved.policy().name().into())))
    }

    /// Does all that is asked, what concerns one home in its order. Answers in the order of `asked`.
    pub async fn operate_all(
        &self,
        now: Timestamp,
        asked: &[(&Resolved, Operation)],
    ) -> Vec<Result<Verdict, StoreError>> {
        match self {
            Self::Memory(tables) => {
                let mut by_policy: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
                for (place, (resolved, _)) in asked.iter().enumerate() {
                    by_policy.entry(resolved.policy().name()).or_default().push(place);
                }
                let mut answers: Vec<_> = asked
                    .iter()
                    .map(|(resolved, _)| Err(StoreError::NoPolicy(resolved.policy().name().into())))
                    .collect();
                for (policy, places) in by_policy {
                    let Some(table) = tables.get(policy) else { continue };
                    let own = places.iter().filter_map(|place| asked.get(*place)).copied();
                    for (place, answer) in places.iter().zip(table.operate_all(now, own)) {
                        if let Some(slot) = answers.get_mut(*place) {
                            *slot = answer.map_err(StoreError::of_table);
                        }
                    }
                }
                answers
            }
            // the store keeps the order of those on one home
            Self::Redis(redis) => {
                join_all(
                    asked
                        .iter()
                        .map(|(resolved, operation)| redis.operate(resolved, now, *operation)),
                )
                .await
            }
        }
    }

    /// Forgets what has expired. Redis does so by itself.
    pub fn sweep(&self, now: Timestamp) {
        if let Self::Memory(tables) = self {
            for table in tables.values() {
                table.sweep(now);
            }
        }
    }
}
