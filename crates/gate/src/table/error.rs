//! Why a table did not decide.

use crate::limit::OperationError;
use core::fmt;

/// Why a table did not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableError {
    /// The limits cannot do the operation.
    Operation(OperationError),
    /// A new key would exceed the bound of the memory, and no other key has expired.
    Full {
        /// The bound in bytes.
        max_bytes: usize,
    },
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operation(error) => error.fmt(f),
            Self::Full { max_bytes } => {
                write!(f, "no room for a new key: the keys in use fill all {max_bytes} bytes")
            }
        }
    }
}

impl core::error::Error for TableError {}

impl From<OperationError> for TableError {
    fn from(error: OperationError) -> Self {
        Self::Operation(error)
    }
}
