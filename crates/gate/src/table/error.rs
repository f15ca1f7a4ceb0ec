//! Why a table did not decide.

use core::fmt;

use crate::key::InvalidKey;
use crate::limit::OperationError;

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
    /// The key is longer than [`MAX_KEY_BYTES`](crate::MAX_KEY_BYTES). The bound of the memory and a dump hold no such key.
    KeyLength {
        /// The length of the key.
        bytes: usize,
    },
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operation(error) => error.fmt(f),
            Self::KeyLength { bytes } => InvalidKey::Length(*bytes).fmt(f),
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
