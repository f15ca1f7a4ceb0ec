//! What a store keeps of a key: a versioned format, little endian.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | version, now 1 |
//! | 8 | fingerprint of the policy's limits |
//! | 8 each | the words of each limit, in the policy's order |
//!
//! The fingerprint stands in the [`name`] too: a policy whose limits were edited finds no state
//! and starts afresh, while nodes that still run the old one go on with theirs. A blob that does
//! not fit its name is an error, never a guess.

#[cfg(test)]
mod tests;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::limits::Part;
use crate::policy::Policy;

/// The version that this code writes, and the only one that exists.
const VERSION: u8 = 1;
/// Version and fingerprint.
const HEADER_BYTES: usize = 9;

/// Why bytes are not a state of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlobError {
    /// Another number of bytes than a state of this policy has.
    Length {
        /// What was found.
        found: usize,
        /// What a state of this policy has.
        expected: usize,
    },
    /// Written by a version that this one cannot read, or by something else.
    Version {
        /// The first byte.
        found: u8,
    },
    /// Written under other limits.
    Fingerprint {
        /// What was found.
        found: u64,
        /// That of this policy.
        expected: u64,
    },
    /// The words hold more than these limits could have granted.
    Invalid,
}

impl fmt::Display for BlobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { found, expected } => {
                write!(
                    f,
                    "stored state: found {found} bytes, a state of this policy has {expected}"
                )
            }
            Self::Version { found } => {
                write!(f, "stored state: found version {found}, this Tidegate reads {VERSION}")
            }
            Self::Fingerprint { found, expected } => write!(
                f,
                "stored state: found limits {found:016x}, those of this policy are {expected:016x}"
            ),
            Self::Invalid => {
                f.write_str("stored state: it holds more than these limits could have granted")
            }
        }
    }
}

impl core::error::Error for BlobError {}

/// The name under which a store keeps a state: policy, fingerprint of its limits, and the part of the
/// canonical key that they are counted by.
#[must_use]
pub fn name(policy: &Policy, part: &Part, key: &str) -> String {
    let key = part.depth().of(key);
    alloc::format!("tidegate:{}:{:016x}:{key}", policy.name(), part.fingerprint())
}

/// The bytes of a state.
#[must_use]
pub fn encode(part: &Part, words: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(words.len().saturating_mul(8).saturating_add(HEADER_BYTES));
    bytes.push(VERSION);
    bytes.extend_from_slice(&part.fingerprint().to_le_bytes());
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    bytes
}

/// The words of a state.
///
/// # Errors
/// [`BlobError`]: the bytes are not what these limits, in this version, can have written.
pub fn decode(part: &Part, bytes: &[u8]) -> Result<Vec<u64>, BlobError> {
    let expected = part.words().saturating_mul(8).saturating_add(HEADER_BYTES);
    let length = BlobError::Length { found: bytes.len(), expected };
    let (&version, rest) = bytes.split_first().ok_or(length)?;
    if version != VERSION {
        return Err(BlobError::Version { found: version });
    }
    let (fingerprint, rest) = rest.split_first_chunk().ok_or(length)?;
    let found = u64::from_le_bytes(*fingerprint);
    if found != part.fingerprint() {
        return Err(BlobError::Fingerprint { found, expected: part.fingerprint() });
    }
    let (words, tail) = rest.as_chunks();
    if words.len() != part.words() || !tail.is_empty() {
        return Err(length);
    }
    let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    part.accepts(&words).map_err(|_| BlobError::Invalid)?;
    Ok(words)
}
