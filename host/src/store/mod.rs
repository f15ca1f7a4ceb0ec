//! The stores, where the states of keys are kept: [`Memory`] in this process, and [`Redis`].
//!
//! ```
//! use std::sync::Arc;
//! use tidegate::{Policies, Resolved, Store, Timestamp};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let policies = Policies::parse(
//!     "[policies.login]
//!      limits = [{ algorithm = 'fixed_window', limit = 1, period = '1h' }]",
//! )?;
//! let store = Store::memory(&policies, 64 << 20)?; // at most 64 MiB
//! let key = Resolved::new(&policies.all()[0], "user:42")?;
//! assert!(store.operate(&key, Timestamp(0), 1).await?.decision.is_allowed());
//! assert!(!store.operate(&key, Timestamp(1), 1).await?.decision.is_allowed());
//! # Ok(())
//! # }
//! ```

mod memory;
mod redis;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tidegate_gate::blob::BlobError;
use tidegate_gate::{
    Operation, OperationError, Policies, Policy, Resolved, TableError, Timestamp, TransactionError,
    Verdict,
};
use tidegate_tier::cache::Counts;

pub use memory::{Memory, TooLittleMemory};
pub use redis::{Redis, RedisOptions};

/// A place where the states of keys are kept.
#[derive(Debug)]
#[non_exhaustive]
pub enum Store {
    /// States in this process.
    Memory {
        /// One [`Memory`] for each policy, by the policy's name.
        tables: BTreeMap<String, Arc<Memory>>,
        /// The most bytes of all of them.
        max_bytes: usize,
    },
    /// States in Redis or Valkey.
    Redis(Arc<Redis>),
}

/// Why a store did not do an operation. Nothing was granted or consumed, unless the variant says
/// otherwise.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The limits cannot do this operation.
    #[error(transparent)]
    Operation(#[from] OperationError),
    /// The part of the memory store that the key belongs to is full.
    #[error(
        "no room for a new key: the keys in use fill their part of the memory, {max_bytes} bytes"
    )]
    Full {
        /// The size of that part.
        max_bytes: usize,
    },
    /// The memory store did not do the operation.
    #[error(transparent)]
    Table(TableError),
    /// The bytes stored under the key's name are not a state of this policy.
    #[error("{name:?}: {error}")]
    // escaped: the name contains the key, and the error goes to a log
    Blob {
        /// The name in the store.
        name: String,
        /// What is wrong with the bytes.
        error: BlobError,
    },
    /// The transaction did not do the operation.
    #[error(transparent)]
    Transaction(TransactionError),
    /// The URL is not one of a Redis that this store can use. The text says what to write, and does not repeat the
    /// URL, because it may contain a password.
    #[error("{0}")]
    Address(String),
    /// Redis refused, or could not be reached. A grant may have been written nevertheless.
    #[error("redis: {0}")]
    Redis(::redis::RedisError), // not a `source`: the message already contains its text
    /// Redis could not read one of these names, for example because it holds another type. Nothing was granted.
    #[error("redis: {names:?}: {error}")]
    Unreadable {
        /// The names of the key's records.
        names: Vec<String>,
        /// What Redis said.
        error: ::redis::RedisError,
    },
    /// Redis did not answer in time. A grant may have been written nevertheless.
    #[error("redis: no answer within {0:?}")]
    Deadline(Duration),
    /// Other hosts changed the state before this host could, every time. Nothing was granted.
    #[error("redis: other hosts kept changing the same state for {0:?}")]
    Contended(Duration),
    /// Too many operations wait for the same state, so this operation was not begun.
    #[error("redis: {key:?}: {most} operations are already waiting for the same state")]
    Overloaded {
        /// The key of the operation.
        key: String,
        /// The largest number of operations that may wait.
        most: usize,
    },
    /// The runtime ended before Redis answered. A grant may have been written nevertheless.
    #[error("redis: the runtime ended before Redis answered")]
    Abandoned,
    /// The store was made without this policy.
    #[error("the store was made without the policy {0:?}")]
    NoPolicy(String),
}

impl From<TransactionError> for StoreError {
    fn from(error: TransactionError) -> Self {
        match error {
            TransactionError::Operation(error) => Self::Operation(error),
            TransactionError::Blob { name, error } => Self::Blob { name, error },
            error => Self::Transaction(error),
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

    /// The error without the key of the operation, so that a server can write it to a log.
    #[must_use]
    pub fn without_key(&self) -> String {
        match self {
            Self::Blob { error, .. } => error.to_string(),
            Self::Unreadable { error, .. } => format!("redis: {error}"),
            Self::Overloaded { most, .. } => {
                format!("redis: {most} operations are already waiting for the same state")
            }
            Self::Transaction(TransactionError::Blob { error, .. }) => error.to_string(),
            other => other.to_string(),
        }
    }

    /// Describes the error without names and addresses, so that a server can send it to clients.
    #[must_use]
    pub const fn summary(&self) -> &'static str {
        match self {
            Self::Operation(_) => "the limits of the policy cannot do this operation",
            Self::Full { .. } | Self::Table(_) => "the store is full",
            Self::Blob { .. } => "the stored bytes are not a state of this policy",
            Self::Redis(_)
            | Self::Unreadable { .. }
            | Self::Address(_)
            | Self::NoPolicy(_)
            | Self::Transaction(_)
            | Self::Abandoned => "the store is unavailable",
            Self::Deadline(_) | Self::Contended(_) => "the store did not answer in time",
            Self::Overloaded { .. } => "too many requests wait for the store",
        }
    }
}

impl Store {
    /// The word for the store, such as `redis`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Memory { .. } => "memory",
            Self::Redis(_) => "redis",
        }
    }

    /// The kinds of answers that this host gave without asking the store, and their numbers.
    #[must_use]
    pub fn local_answers(&self) -> [(&'static str, u64); 3] {
        match self {
            Self::Redis(redis) => redis.local_answers().map(Counts::all),
            Self::Memory { .. } => None,
        }
        .unwrap_or_else(|| Counts::default().all())
    }

    /// A store in this process of at most `max_bytes`, which the policies share in equal parts.
    ///
    /// # Errors
    /// Returns [`TooLittleMemory`] for the first policy whose states need more than its part.
    pub fn memory(policies: &Policies, max_bytes: usize) -> Result<Self, TooLittleMemory> {
        Self::memory_with(policies, max_bytes, |_| None)
    }

    /// `known` returns the table of a policy, if there is one already.
    fn memory_with(
        policies: &Policies,
        max_bytes: usize,
        known: impl Fn(&Policy) -> Option<Arc<Memory>>,
    ) -> Result<Self, TooLittleMemory> {
        let policies = policies.all();
        let each = max_bytes / policies.len().max(1);
        let table = |policy: &Arc<Policy>| {
            // also for a known table: a policy must have room in its new part
            let new = Memory::new(policy.clone(), each)?;
            Ok((policy.name().to_owned(), known(policy).unwrap_or_else(|| Arc::new(new))))
        };
        let tables = policies.iter().map(table).collect::<Result<_, _>>()?;
        Ok(Self::Memory { tables, max_bytes })
    }

    /// The store for an edited policy file, without states of the policies that were edited:
    /// [`take_over`](Self::take_over) brings them. Policies that are equal share their states.
    ///
    /// # Errors
    /// Returns [`TooLittleMemory`] for the first policy whose states need more than its part.
    pub fn edited(&self, policies: &Policies) -> Result<Self, TooLittleMemory> {
        match self {
            Self::Memory { tables, max_bytes } => {
                Self::memory_with(policies, *max_bytes, |policy| {
                    tables.get(policy.name()).filter(|table| **table.policy() == *policy).cloned()
                })
            }
            Self::Redis(redis) => Ok(Self::Redis(Arc::clone(redis))), // its states have names of their own
        }
    }

    /// Takes over the states of the store that this one was [edited](Self::edited) from. From then on that one grants
    /// nothing by a policy that was edited.
    pub fn take_over(&self, earlier: &Self) {
        let (Self::Memory { tables, max_bytes }, Self::Memory { tables: earlier, .. }) =
            (self, earlier)
        else {
            return;
        };
        for (name, table) in tables {
            table.set_max_bytes(max_bytes / tables.len().max(1));
            if let Some(earlier) = earlier.get(name).filter(|earlier| !Arc::ptr_eq(earlier, table))
            {
                table.take_over(earlier);
            }
        }
    }

    /// Does one operation and returns its verdict.
    ///
    /// # Errors
    /// Returns a [`StoreError`] if the store did not do the operation, or cannot know whether it did.
    pub async fn operate(
        &self,
        resolved: &Resolved,
        now: Timestamp,
        operation: impl Into<Operation>,
    ) -> Result<Verdict, StoreError> {
        let mut answers = self.operate_all(now, &[(resolved, operation.into())]).await;
        answers.pop().unwrap_or_else(|| Err(StoreError::NoPolicy(resolved.policy().name().into())))
    }

    /// Does several operations and returns their verdicts in the order of `asked`. Operations on one partition
    /// are done in that order too.
    pub async fn operate_all(
        &self,
        now: Timestamp,
        asked: &[(&Resolved, Operation)],
    ) -> Vec<Result<Verdict, StoreError>> {
        match self {
            Self::Memory { tables, .. } => {
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
            // the store keeps the order of the operations on one partition
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

    /// Forgets expired states. Redis does this by itself.
    pub fn sweep(&self, now: Timestamp) {
        if let Self::Memory { tables, .. } = self {
            for table in tables.values() {
                table.sweep(now);
            }
        }
    }
}
