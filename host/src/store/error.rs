//! Why a store did not do an operation.

use std::sync::Arc;
use std::time::Duration;

use tidegate_gate::blob::BlobError;
use tidegate_gate::{OperationError, TableError, TransactionError};

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
    /// An edit is taking the states over to the new policies, and this operation was under way by the earlier ones.
    #[error("the policies are being changed")]
    Edited,
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
    /// TLS with Redis cannot be set up, for example because a file holds no certificate. The text names the file.
    #[error("{0}")]
    Tls(String),
    /// Redis refused, or could not be reached. A grant may have been written nevertheless.
    #[cfg(feature = "redis")]
    #[error("redis: {0}")]
    Redis(::redis::RedisError), // not a `source`: the message already contains its text
    /// One of these names holds another type of Redis than it should. Nothing was granted.
    #[cfg(feature = "redis")]
    #[error("redis: {names:?}: expected {expected}, found another type: {error}")]
    Unreadable {
        /// The names of the key's records.
        names: Vec<String>,
        /// What they should hold.
        expected: &'static str,
        /// What Redis said.
        error: ::redis::RedisError,
    },
    /// Redis did not answer in time. A grant may have been written nevertheless.
    #[error("redis: no answer within {within:?}{}", in_brackets(server.as_deref()))]
    Deadline {
        /// The time.
        within: Duration,
        /// The server that was asked, or the nodes of a Cluster; `None` if the operation waited for others all the time.
        server: Option<Arc<str>>,
    },
    /// Other hosts changed the state before this host could, every time. Nothing was granted.
    #[error("redis: other hosts kept changing the same state for {0:?}")]
    Contended(Duration),
    /// Too many operations wait, altogether, for the partition or on the key, so this operation was not begun.
    #[error("redis: {key:?}: {most} operations are already waiting")]
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

fn in_brackets(server: Option<&str>) -> String {
    server.map(|server| format!(" ({server})")).unwrap_or_default()
}

#[cfg(feature = "redis")]
impl From<::redis::RedisError> for StoreError {
    fn from(error: ::redis::RedisError) -> Self {
        Self::Redis(error)
    }
}

impl StoreError {
    pub(super) fn of_table(error: TableError) -> Self {
        match error {
            TableError::Operation(error) => Self::Operation(error),
            TableError::Full { max_bytes: 0 } => Self::Edited, // `Memory::take_over` has closed the table
            TableError::Full { max_bytes } => Self::Full { max_bytes },
            error => Self::Table(error),
        }
    }

    /// The error without the key of the operation, so that a server can write it to a log.
    #[must_use]
    pub fn without_key(&self) -> String {
        match self {
            Self::Blob { error, .. } => error.to_string(),
            #[cfg(feature = "redis")]
            Self::Unreadable { expected, error, .. } => {
                format!("redis: expected {expected}, found another type: {error}")
            }
            Self::Overloaded { most, .. } => {
                format!("redis: {most} operations are already waiting")
            }
            Self::Transaction(TransactionError::Blob { error, .. }) => error.to_string(),
            other => other.to_string(),
        }
    }

    /// The kinds of errors, as [`kind`](Self::kind) names them.
    pub const KINDS: [&str; 7] =
        ["unavailable", "deadline", "contended", "overloaded", "full", "unreadable", "other"];

    /// The kind of the error, in a word for metrics.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            #[cfg(feature = "redis")]
            Self::Redis(_) => "unavailable",
            Self::Address(_) | Self::Tls(_) | Self::Abandoned | Self::Edited => "unavailable",
            Self::Deadline { .. } => "deadline",
            Self::Contended(_) => "contended",
            Self::Overloaded { .. } => "overloaded",
            Self::Full { .. } => "full",
            #[cfg(feature = "redis")]
            Self::Unreadable { .. } => "unreadable",
            Self::Blob { .. } => "unreadable",
            Self::Operation(_) | Self::Table(_) | Self::Transaction(_) | Self::NoPolicy(_) => {
                "other"
            }
        }
    }

    /// Whether the store answered, and holds something that is no state of the policy.
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        self.kind() == "unreadable"
    }

    /// Describes the error without names and addresses, so that a server can send it to clients.
    #[must_use]
    pub const fn summary(&self) -> &'static str {
        match self {
            Self::Operation(_) => "the limits of the policy cannot do this operation",
            Self::Full { .. } => "the store is full",
            Self::Edited => "the policies are being changed",
            Self::Blob { .. } => UNREADABLE,
            #[cfg(feature = "redis")]
            Self::Unreadable { .. } => UNREADABLE,
            #[cfg(feature = "redis")]
            Self::Redis(_) => "the store is unavailable",
            Self::Address(_)
            | Self::Tls(_)
            | Self::NoPolicy(_)
            | Self::Table(_)
            | Self::Transaction(_)
            | Self::Abandoned => "the store is unavailable",
            Self::Deadline { .. } | Self::Contended(_) => "the store did not answer in time",
            Self::Overloaded { .. } => "too many requests wait for the store",
        }
    }
}

const UNREADABLE: &str = "the stored bytes are not a state of this policy";
