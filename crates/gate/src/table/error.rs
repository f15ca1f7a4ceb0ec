//! Why a table did not decide.

use core::fmt;

use crate::key::{EXPECTED_ADDRESS, InvalidKey};
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
    /// The key is empty or longer than [`MAX_KEY_BYTES`](crate::MAX_KEY_BYTES). The bound of the memory and a dump hold no longer key.
    KeyLength {
        /// The length of the key.
        bytes: usize,
    },
    /// The key begins with `ip:`, but does not continue with an address: see [`check_key`](crate::check_key).
    NoAddress,
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operation(error) => error.fmt(f),
            Self::KeyLength { bytes } => InvalidKey::Length(*bytes).fmt(f),
            Self::NoAddress => f.write_str(EXPECTED_ADDRESS),
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

impl From<InvalidKey> for TableError {
    fn from(error: InvalidKey) -> Self {
        match error {
            InvalidKey::Length(bytes) => Self::KeyLength { bytes },
            InvalidKey::NoAddress(_) => Self::NoAddress,
        }
    }
}
