//! Where the states of keys are kept.

mod memory;
mod redis;

use std::time::Duration;

use tidegate_gate::blob::BlobError;
use tidegate_gate::{Operation, OperationError, Policies, Policy, TableError, Timestamp, Verdict};

pub use memory::Memory;
pub use redis::{Redis, RedisOptions};

/// Where the states of keys are kept.
#[derive(Debug)]
#[non_exhaustive]
pub enum Store {
    /// In this process.
    Memory {
        /// One for each of the policies.
        tables: Vec<Memory>,
        /// How many keys each of them may hold.
        max_keys: usize,
    },
    /// In Redis or Valkey.
    Redis(Box<Redis>),
}

/// Why a store did not decide. Unless it says otherwise, nothing was granted or consumed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The limits cannot do what is asked.
    #[error(transparent)]
    Operation(#[from] OperationError),
    /// The part of the memory store that the key belongs to is full.
    #[error("the memory store has no room for a key: allowed is {max_keys} for each policy")]
    Full {
        /// How many keys of a policy may be in use.
        max_keys: usize,
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
    /// Redis refused, or could not be reached. A grant may have been written all the same.
    #[error("redis: {0}")]
    Redis(::redis::RedisError), // no source: its text has it
    /// Redis did not answer in time. A grant may have been written all the same.
    #[error("redis: no answer within {0:?}")]
    Deadline(Duration),
    /// There is no policy of that number.
    #[error("there is no policy number {0}")]
    NoPolicy(usize),
}

impl From<::redis::RedisError> for StoreError {
    fn from(error: ::redis::RedisError) -> Self {
        Self::Redis(error)
    }
}

impl StoreError {
    /// What callers may know of it: neither names nor addresses.
    #[must_use]
    pub const fn summary(&self) -> &'static str {
        match self {
            Self::Operation(_) => "the limits cannot do what is asked",
            Self::Full { .. } | Self::Table(_) => "the store is full",
            Self::Blob { .. } => "what is stored is no state of this policy",
            Self::Redis(_) | Self::NoPolicy(_) => "the store cannot be asked",
            Self::Deadline(_) => "the store did not answer in time",
        }
    }
}

impl Store {
    /// A store in this process, of at most `max_keys` keys for each policy.
    #[must_use]
    pub fn memory(policies: &Policies, max_keys: usize) -> Self {
        let tables = policies.all().iter().map(|policy| Memory::new(policy.clone(), max_keys));
        Self::Memory { tables: tables.collect(), max_keys }
    }

    /// Does what is asked, with what each limit says. `policy` is the policy's place in
    /// [`Policies::all`], the policies those that the store was made with.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn operate(
        &self,
        policies: &Policies,
        policy: usize,
        key: &str,
        now: Timestamp,
        operation: impl Into<Operation>,
    ) -> Result<Verdict, StoreError> {
        match self {
            Self::Memory { tables, max_keys } => {
                let table = tables.get(policy).ok_or(StoreError::NoPolicy(policy))?;
                table.operate(key, now, operation).map_err(|error| match error {
                    TableError::Operation(error) => StoreError::Operation(error),
                    // of one of its parts, which has fewer
                    TableError::Full { .. } => StoreError::Full { max_keys: *max_keys },
                    error => StoreError::Table(error),
                })
            }
            Self::Redis(redis) => {
                let policy: &Policy =
                    policies.all().get(policy).ok_or(StoreError::NoPolicy(policy))?;
                redis.operate(policy, key, now, operation).await
            }
        }
    }

    /// Forgets what has expired. Redis does so by itself.
    pub fn sweep(&self, now: Timestamp) {
        if let Self::Memory { tables, .. } = self {
            for table in tables {
                table.sweep(now);
            }
        }
    }
}
