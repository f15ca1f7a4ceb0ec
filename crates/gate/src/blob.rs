//! What a store keeps of a key: a versioned format, little endian.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | version, now 1 |
//! | 8 | fingerprint of the policy's limits |
//! | 8 each | the words of each limit, in the policy's order |
//!
//! States of more than 16 words are mostly zeros as long as few leases are held and few requests
//! remembered. Their words are stored in runs: how many runs (2 bytes), and for each the number of zeros
//! (2 bytes), the number of words that follow (2 bytes) and those words; up to the last word that is
//! not zero.
//!
//! Under a policy that keeps states through an edit of its limits the version is 2, and behind the
//! fingerprint follow the limits themselves: how many words (2 bytes) and each limit as a number of
//! words and its `Limit::parameters`, 8 bytes each. Such a state is carried over to other limits by
//! the policy's rule when it is next read.
//!
//! Otherwise the fingerprint stands in the [`name`] too: a policy whose limits were edited finds no state
//! and starts afresh, while nodes that still run the old one go on with theirs. A blob that does
//! not fit its name is an error, never a guess.

#[cfg(test)]
mod tests;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::carry::carry;
use crate::key::Depth;
use crate::limits::Part;
use crate::policy::{OnChange, Policy};

/// A state that belongs to its limits.
const VERSION: u8 = 1;
/// A state that brings its limits along.
const SELF_DESCRIBING: u8 = 2;
/// Version and fingerprint.
const HEADER_BYTES: usize = 9;
/// The number of runs.
const RUNS_BYTES: usize = 2;
/// A state of more words is stored in runs.
const MOST_PLAIN_WORDS: usize = 16;

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
        /// What a state of this policy begins with.
        expected: u8,
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
            Self::Version { found, expected } => {
                write!(f, "stored state: found version {found}, this policy's is {expected}")
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
    let (name, own) = (policy.name(), part.depth().of(key));
    match (policy.on_change(), part.depth()) {
        (OnChange::Reset, _) => alloc::format!("tidegate:{name}:{:016x}:{own}", part.fingerprint()),
        (_, Depth::Whole) => alloc::format!("tidegate:{name}:any:{own}"),
        (_, Depth::Parts(parts)) => alloc::format!("tidegate:{name}:any-{parts}:{own}"),
    }
}

/// The bytes of a state.
#[must_use]
pub fn encode(policy: &Policy, part: &Part, words: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(words.len().saturating_mul(8).saturating_add(HEADER_BYTES));
    bytes.push(version(policy));
    bytes.extend_from_slice(&part.fingerprint().to_le_bytes());
    if version(policy) == SELF_DESCRIBING {
        let parameters = part.parameters();
        bytes.extend(u16::try_from(parameters.len()).unwrap_or(u16::MAX).to_le_bytes());
        bytes.extend(parameters.into_iter().flat_map(u64::to_le_bytes));
    }
    if part.words() > MOST_PLAIN_WORDS {
        write_runs(words, &mut bytes);
    } else {
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }
    bytes
}

const fn version(policy: &Policy) -> u8 {
    match policy.on_change() {
        OnChange::Reset => VERSION,
        OnChange::Keep | OnChange::Proportional => SELF_DESCRIBING,
    }
}

fn write_runs(mut words: &[u64], bytes: &mut Vec<u8>) {
    let start = bytes.len();
    bytes.extend([0; RUNS_BYTES]);
    let mut runs = 0_u16;
    while let Some(zeros) = words.iter().position(|word| *word != 0) {
        let zeros = zeros.min(u16::MAX.into());
        let rest = words.get(zeros..).unwrap_or_default();
        let run = rest.iter().position(|word| *word == 0).unwrap_or(rest.len());
        let (run, rest) = rest.split_at_checked(run.min(u16::MAX.into())).unwrap_or((rest, &[]));
        for length in [zeros, run.len()] {
            bytes.extend(u16::try_from(length).unwrap_or(u16::MAX).to_le_bytes());
        }
        bytes.extend(run.iter().flat_map(|word| word.to_le_bytes()));
        words = rest;
        runs = runs.saturating_add(1); // there are at most as many as words
    }
    for (slot, byte) in bytes.iter_mut().skip(start).zip(runs.to_le_bytes()) {
        *slot = byte;
    }
}

/// `None` if it is not what [`write_runs`] writes of so many words.
fn read_runs(bytes: &[u8], count: usize) -> Option<Vec<u64>> {
    let mut words = Vec::with_capacity(count);
    let (runs, mut rest) = bytes.split_first_chunk::<RUNS_BYTES>()?;
    for _ in 0..u16::from_le_bytes(*runs) {
        let (&[z0, z1, l0, l1], after) = rest.split_first_chunk()?;
        let zeros = usize::from(u16::from_le_bytes([z0, z1]));
        let length = usize::from(u16::from_le_bytes([l0, l1]));
        let end = words.len().checked_add(zeros)?.checked_add(length)?;
        let (run, after) = after.split_at_checked(length.checked_mul(8)?)?;
        if end > count {
            return None;
        }
        words.resize(words.len().checked_add(zeros)?, 0);
        words.extend(run.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)));
        rest = after;
    }
    words.resize(count, 0);
    let mut canonical = Vec::with_capacity(bytes.len());
    write_runs(&words, &mut canonical);
    (canonical == bytes).then_some(words)
}

/// The words of a state.
///
/// # Errors
/// [`BlobError`]: the bytes are not what these limits, or limits that this policy had before, in this
/// version, can have written.
pub fn decode(policy: &Policy, part: &Part, bytes: &[u8]) -> Result<Vec<u64>, BlobError> {
    let expected = part.words().saturating_mul(8).saturating_add(HEADER_BYTES);
    let length = BlobError::Length { found: bytes.len(), expected };
    let (&found, rest) = bytes.split_first().ok_or(length)?;
    if found != version(policy) {
        return Err(BlobError::Version { found, expected: version(policy) });
    }
    let (fingerprint, rest) = rest.split_first_chunk().ok_or(length)?;
    let found = u64::from_le_bytes(*fingerprint);
    if version(policy) == VERSION {
        if found != part.fingerprint() {
            return Err(BlobError::Fingerprint { found, expected: part.fingerprint() });
        }
        return words(part, rest, length);
    }
    let (count, rest) = rest.split_first_chunk().ok_or(length)?;
    let parameters = usize::from(u16::from_le_bytes(*count)).saturating_mul(8);
    let (parameters, rest) = rest.split_at_checked(parameters).ok_or(length)?;
    let parameters = parameters.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
    let old = Part::of_parameters(part.depth(), &parameters.collect::<Vec<_>>())
        .map_err(|_| BlobError::Invalid)?;
    if old.fingerprint() != found {
        return Err(BlobError::Invalid);
    }
    let words = words(&old, rest, length)?;
    if found == part.fingerprint() {
        return Ok(words);
    }
    Ok(carry(part, &old, &words, policy.on_change()))
}

fn words(part: &Part, bytes: &[u8], length: BlobError) -> Result<Vec<u64>, BlobError> {
    let words = if part.words() > MOST_PLAIN_WORDS {
        read_runs(bytes, part.words()).ok_or(BlobError::Invalid)?
    } else {
        let (words, tail) = bytes.as_chunks();
        if words.len() != part.words() || !tail.is_empty() {
            return Err(length);
        }
        words.iter().map(|word| u64::from_le_bytes(*word)).collect()
    };
    part.accepts(&words).map_err(|_| BlobError::Invalid)?;
    Ok(words)
}
