//! The bytes of a stored record: a versioned format, little endian.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | version, 3 or 4 |
//! | 8 | fingerprint: a hash of the rule, the depth and the limits |
//! | 8, 8 | only while the key is blocked (0x80 is added to the version): the start and the span of the block |
//! | 8 each | the words of each limit, in the policy's order |
//!
//! A state of more than 16 words is mostly zeros while it holds few leases and remembers few requests, so
//! its words are stored in runs: the number of runs (2 bytes), and for each run the number of zeros
//! (2 bytes), the number of words that follow (2 bytes) and these words. The runs end with the last word
//! that is not zero.
//!
//! Version 3 belongs to a policy whose states start afresh when its limits are edited. The [`name`] contains
//! the fingerprint too, so an edited policy finds no state, while nodes with the old policy still find
//! theirs.
//!
//! Version 4 belongs to a policy that keeps its states. The limits follow after the fingerprint: the number
//! of words (2 bytes), and for each limit the count of its numbers, its `Limit::parameters` and a hash of
//! its name (0 if the file gives no name), 8 bytes each. The name of the blob does not change with an edit.
//! A state that was written under other limits is carried over when it is next read.
//!
//! The rule is an override, named by its pattern, or the policy's own limits. A state is read only under the
//! rule that wrote it. A blob that does not fit its name is an error. Versions 1 and 2 did not distinguish
//! rules; they were never released.

#[cfg(test)]
mod tests;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::decide::Record;
use crate::policy::Policy;
use crate::state::{Stored, carry};
use tidegate_core::Timestamp;
use tidegate_core::never;
use tidegate_core::shed::block::Block;

/// The version of a state without its limits.
const VERSION: u8 = 3;
/// The version of a state with its limits.
const SELF_DESCRIBING: u8 = 4;
/// The bit in the version of a record whose key is blocked.
const BLOCKED: u8 = 0x80;
/// The bytes of version and fingerprint.
const HEADER_BYTES: usize = 9;
/// The bytes of the number of runs.
const RUNS_BYTES: usize = 2;
/// The most words of a state that is stored without runs.
const MOST_PLAIN_WORDS: usize = 16;

/// The bytes of a block.
const BLOCK_BYTES: usize = 16;

/// Why bytes are not a stored state of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlobError {
    /// The number of bytes differs from that of a state of this policy.
    Length {
        /// The number of bytes found.
        found: usize,
        /// The number of bytes of a state of this policy.
        expected: usize,
    },
    /// Another version or another program wrote the bytes.
    Version {
        /// The first byte.
        found: u8,
        /// The first byte of a state of this policy.
        expected: u8,
    },
    /// Other limits or another rule wrote the bytes.
    Fingerprint {
        /// The fingerprint found.
        found: u64,
        /// The fingerprint of the limits on the key, or of the limits in the bytes.
        expected: u64,
    },
    /// The words hold more than these limits can grant.
    Invalid,
}

impl fmt::Display for BlobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { found, expected } => {
                write!(f, "stored state: expected {expected} bytes, found {found}")
            }
            Self::Version { found, expected } => {
                write!(f, "stored state: expected version {expected}, found {found}")
            }
            Self::Fingerprint { found, expected } => write!(
                f,
                "stored state: expected the fingerprint {expected:016x}, found {found:016x} of other limits \
                 or another rule"
            ),
            Self::Invalid => f.write_str(
                "stored state: expected no more than these limits can grant, found more",
            ),
        }
    }
}

impl core::error::Error for BlobError {}

/// The name under which a store keeps a state: `tidegate:{POLICY:PARTITION}REST:IDENTITY`.
///
/// `PARTITION` and `REST` together are the part of the canonical key that the record counts by. `PARTITION` is the
/// [partition](Policy::partition) of the key; a Redis Cluster puts names with the same text in braces into one slot. In
/// `PARTITION`, a `}` is written `%7D` and a `%` is written `%25`, so that no key ends the braces early. `IDENTITY`
/// identifies the rule and the depth, and also the limits if an edit starts states afresh.
#[must_use]
pub fn name(policy: &Policy, record: &Record, key: &str) -> String {
    let own = record.depth().of(key);
    let rest = own.strip_prefix(policy.partition(key)).unwrap_or_else(|| never(own)); // every part begins with the partition
    alloc::format!("{}{rest}:{:016x}", partition_name(policy, key), record.identity())
}

/// How the names of all records of a key begin: `tidegate:{POLICY:PARTITION}`. It has the slot of a Redis Cluster that they
/// have.
#[must_use]
pub fn partition_name(policy: &Policy, key: &str) -> String {
    alloc::format!("tidegate:{{{}:{}}}", policy.name(), partition(policy, key))
}

/// The partition of a canonical key as it is written in a name.
pub(crate) fn partition(policy: &Policy, key: &str) -> String {
    policy.partition(key).replace('%', "%25").replace('}', "%7D")
}

/// Writes the words of a record as bytes.
#[must_use]
pub fn encode(policy: &Policy, record: &Record, words: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(words.len().saturating_mul(8).saturating_add(HEADER_BYTES));
    encode_into(&mut bytes, policy, record, words);
    bytes
}

/// Does the same as [`encode`] in place of what `bytes` held.
pub(crate) fn encode_into(bytes: &mut Vec<u8>, policy: &Policy, record: &Record, words: &[u64]) {
    bytes.clear();
    let (words, block) = record.unblocked(words);
    bytes.push(version(policy) | if block.is_some() { BLOCKED } else { 0 });
    if version(policy) == SELF_DESCRIBING {
        let limits = record.described();
        bytes.extend(record.checksum(&limits).to_le_bytes());
        bytes.extend(u16::try_from(limits.len()).unwrap_or_else(|_| never(u16::MAX)).to_le_bytes());
        bytes.extend(limits.into_iter().flat_map(u64::to_le_bytes));
    } else {
        bytes.extend(record.fingerprint().to_le_bytes());
    }
    bytes.extend(block.into_iter().flat_map(Block::to_words).flat_map(u64::to_le_bytes));
    if record.words() > MOST_PLAIN_WORDS {
        write_runs(words, bytes);
    } else {
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }
}

const fn version(policy: &Policy) -> u8 {
    if policy.on_change().keeps_states() { SELF_DESCRIBING } else { VERSION }
}

fn write_runs(mut words: &[u64], bytes: &mut Vec<u8>) {
    let start = bytes.len();
    bytes.extend([0; RUNS_BYTES]);
    let mut runs = 0_u16;
    while let Some(zeros) = words.iter().position(|word| *word != 0) {
        let zeros = zeros.min(u16::MAX.into());
        let rest = words.get(zeros..).unwrap_or_else(|| never(&[]));
        let run = rest.iter().position(|word| *word == 0).unwrap_or(rest.len());
        let split = rest.split_at_checked(run.min(u16::MAX.into()));
        let (run, rest) = split.unwrap_or_else(|| never((rest, &[])));
        for length in [zeros, run.len()] {
            bytes.extend(u16::try_from(length).unwrap_or_else(|_| never(u16::MAX)).to_le_bytes());
        }
        bytes.extend(run.iter().flat_map(|word| word.to_le_bytes()));
        words = rest;
        runs = runs.saturating_add(1); // at most one for each word
    }
    for (slot, byte) in bytes.iter_mut().skip(start).zip(runs.to_le_bytes()) {
        *slot = byte;
    }
}

/// Reads `count` words; `None` if [`write_runs`] never writes these bytes.
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

/// Words that were read from bytes.
pub(crate) struct Decoded {
    pub(crate) words: Vec<u64>,
    /// Whether other limits wrote the bytes, so that the words were carried over.
    pub(crate) is_carried: bool,
    /// Whether the words count less than the bytes do, because the limits cannot hold all that was used.
    pub(crate) forgets: bool,
}

/// Reads the words of a record from bytes. If earlier limits of the rule wrote them, the words are carried over as by an edit at
/// `now`.
///
/// # Errors
/// Fails with [`BlobError`] if neither these limits nor earlier limits of this rule can have written the
/// bytes.
pub fn decode(
    policy: &Policy,
    record: &Record,
    bytes: &[u8],
    now: Timestamp,
) -> Result<Vec<u64>, BlobError> {
    read(policy, record, bytes, now).map(|decoded| decoded.words)
}

/// Does the same as [`decode`], and says whether the words were carried over.
pub(crate) fn read(
    policy: &Policy,
    record: &Record,
    bytes: &[u8],
    now: Timestamp,
) -> Result<Decoded, BlobError> {
    let as_written = |words| Decoded { words, is_carried: false, forgets: false };
    let expected = record.words().saturating_mul(8).saturating_add(HEADER_BYTES);
    let block =
        if bytes.first().is_some_and(|first| first & BLOCKED != 0) { BLOCK_BYTES } else { 0 };
    let expected = expected.saturating_add(block);
    let length = BlobError::Length { found: bytes.len(), expected };
    let (&found, rest) = bytes.split_first().ok_or(length)?;
    if found & !BLOCKED != version(policy) {
        return Err(BlobError::Version { found, expected: version(policy) });
    }
    let is_blocked = found & BLOCKED != 0;
    let (fingerprint, rest) = rest.split_first_chunk().ok_or(length)?;
    let found = u64::from_le_bytes(*fingerprint);
    if version(policy) == VERSION {
        if found != record.fingerprint() {
            return Err(BlobError::Fingerprint { found, expected: record.fingerprint() });
        }
        return words(record, is_blocked, rest, length).map(as_written);
    }
    let (count, rest) = rest.split_first_chunk().ok_or(length)?;
    let described = usize::from(u16::from_le_bytes(*count)).saturating_mul(8);
    let (described, rest) = rest.split_at_checked(described).ok_or(length)?;
    let described: Vec<u64> =
        described.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let expected = record.checksum(&described);
    if found != expected {
        return Err(BlobError::Fingerprint { found, expected });
    }
    if described == record.described() {
        return words(record, is_blocked, rest, length).map(as_written);
    }
    let old = record.before(&described).ok_or(BlobError::Invalid)?;
    let found = words(&old, is_blocked, rest, length)?;
    let (words, block) = old.unblocked(&found);
    let (words, forgets) = carry(record, &old, words, (policy.on_change(), now));
    let words = Stored { words: &words, block }.all().into_vec();
    Ok(Decoded { words, is_carried: true, forgets })
}

fn words(
    record: &Record,
    is_blocked: bool,
    bytes: &[u8],
    length: BlobError,
) -> Result<Vec<u64>, BlobError> {
    let (block, bytes) =
        bytes.split_at_checked(if is_blocked { BLOCK_BYTES } else { 0 }).ok_or(length)?;
    let mut words = if record.words() > MOST_PLAIN_WORDS {
        read_runs(bytes, record.words()).ok_or(BlobError::Invalid)?
    } else {
        let (words, tail) = bytes.as_chunks();
        if words.len() != record.words() || !tail.is_empty() {
            return Err(length);
        }
        words.iter().map(|word| u64::from_le_bytes(*word)).collect()
    };
    words.extend(block.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)));
    record.accepts(&words).map_err(|_| BlobError::Invalid)?;
    Ok(words)
}
