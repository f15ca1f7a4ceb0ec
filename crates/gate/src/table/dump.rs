//! All states of a table as bytes, to be read by a table of the same policy.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | version, 2 |
//! | 8 | a hash of all bytes that follow |
//! | 1 | 1 if each limit counts apart, because callers gave limits; otherwise 0 |
//! | 4 | how many callers' limits follow |
//! | 2, n | each of these limits: the length of its text, and the text |
//! | 4 | how many states follow |
//! | 2, n, 8, 4, m | each state: the length of the key and the key, the identity of its record, the length of the [`blob`] and the blob |
//!
//! Numbers are little endian. The blob has the fingerprint of the limits.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use tidegate_core::{Timestamp, never};

use super::Table;
use super::call_limits::{CallLimits, CallLimitsError};
use super::entry::Entry;
use crate::decide::{Record, RecordWords};
use crate::key::MAX_KEY_BYTES;
use crate::policy::Policy;
use crate::state::Stored;
use crate::state::blob::{self, BlobError};

use crate::fnv::fnv1a;

const VERSION: u8 = 2;

/// Why bytes are not a dump that this table can read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DumpError {
    /// The bytes are of another version.
    Version {
        /// The first byte; `None` without bytes.
        found: Option<u8>,
    },
    /// The bytes were changed or cut.
    Damaged,
    /// A state belongs to limits that the policy does not have.
    OtherLimits {
        /// The key of the state.
        key: String,
    },
    /// A state is not one that the policy's limits write.
    State {
        /// The key of the state.
        key: String,
        /// What is wrong with it.
        error: BlobError,
    },
    /// A caller's limits cannot be read.
    Limits(CallLimitsError),
    /// The states do not fit into the table.
    Full {
        /// The bound in bytes.
        max_bytes: usize,
    },
}

impl fmt::Display for DumpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version { found: None } => f.write_str("`dump`: expected bytes, found none"),
            Self::Version { found: Some(found) } => {
                write!(f, "`dump`: expected version {VERSION}, found {found}")
            }
            Self::Damaged => {
                f.write_str("`dump`: expected the bytes of `dump`, found changed ones")
            }
            Self::OtherLimits { key } => {
                write!(f, "`dump`: expected states of these limits, found one of others on {key:?}")
            }
            Self::State { key, error } => write!(f, "`dump`: {key:?}: {error}"),
            Self::Limits(error) => write!(f, "`dump`: {error}"),
            Self::Full { max_bytes } => {
                write!(f, "`dump`: expected states that fit into {max_bytes} bytes, found more")
            }
        }
    }
}

impl core::error::Error for DumpError {}

impl Table {
    /// All states, as bytes that [`restored`](Self::restored) reads. `None` if the allocator has no room.
    #[must_use]
    #[inline(never)]
    pub fn dump(&self, policy: &Policy, call_limits: &CallLimits) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        bytes.try_reserve(64).ok()?;
        bytes.push(VERSION);
        bytes.extend([0; 8]); // the hash comes last
        bytes.push(policy.limits().count_apart().into());
        bytes.extend(length(call_limits.texts().count()));
        for text in call_limits.texts() {
            bytes.try_reserve(text.len().saturating_add(2)).ok()?;
            bytes.extend(
                u16::try_from(text.len()).unwrap_or_else(|_| never(u16::MAX)).to_le_bytes(),
            );
            bytes.extend(text.as_bytes());
        }
        let count_at = bytes.len();
        bytes.extend(length(0));
        let mut count = 0_usize;
        for entry in self.entries.iter() {
            let written = &entry.record;
            if !written.counts_apart() && !policy.has(written) {
                continue; // the limits are no longer there
            }
            // under the policy's own limits, so that a policy that keeps states finds it after an edit
            let own = policy.records().find(|own| own.counts_with(written));
            let own = own.map(|own| (own, own.going_on_from(written, &entry.words)));
            let own = own.filter(|(record, words)| record.accepts(words).is_ok());
            let as_written = || (written, RecordWords::from_slice(&entry.words));
            let (record, words) = own.unwrap_or_else(as_written);
            let most = entry.words.len().saturating_mul(10).saturating_add(8_192);
            bytes.try_reserve(most.saturating_add(entry.key.len())).ok()?;
            let blob = blob::encode(policy, record, &words);
            bytes.extend(u16::try_from(entry.key.len()).unwrap_or(u16::MAX).to_le_bytes());
            bytes.extend(entry.key.as_bytes());
            bytes.extend(record.identity().to_le_bytes());
            bytes.extend(length(blob.len()));
            bytes.extend(blob);
            count = count.saturating_add(1);
        }
        let counted = bytes.iter_mut().skip(count_at);
        counted.zip(length(count)).for_each(|(byte, written)| *byte = written);
        let hash = fnv1a(bytes.iter().skip(HEADER).copied()).to_le_bytes();
        bytes.iter_mut().skip(1).zip(hash).for_each(|(byte, written)| *byte = written);
        Some(bytes)
    }

    /// A table with the bound and the hasher of this one, and the states of a [`dump`](Self::dump). Also returns the limits that
    /// callers gave, and the policy that decides on the table: if callers gave limits, each limit of `policy` counts apart.
    ///
    /// # Errors
    /// Fails with [`DumpError`] if the bytes are no dump of a table of this policy, or of one that the policy
    /// keeps states over edits of.
    #[inline(never)]
    pub fn restored(
        &self,
        policy: &Arc<Policy>,
        bytes: &[u8],
    ) -> Result<(Self, CallLimits, Arc<Policy>), DumpError> {
        let (&version, rest) = bytes.split_first().ok_or(DumpError::Version { found: None })?;
        if version != VERSION {
            return Err(DumpError::Version { found: Some(version) });
        }
        let (hash, rest) = rest.split_first_chunk().ok_or(DumpError::Damaged)?;
        if u64::from_le_bytes(*hash) != fnv1a(rest.iter().copied()) {
            return Err(DumpError::Damaged);
        }
        let mut table = Self::new(self.max_bytes, self.hasher.clone());
        let mut reader = Reader(rest);
        let policy = match reader.chunk()? {
            [0] => Arc::clone(policy),
            [1] => Arc::new(policy.counting_apart()),
            _ => return Err(DumpError::Damaged),
        };
        let mut call_limits = CallLimits::default();
        for _ in 0..reader.length()? {
            let text = reader.text()?;
            call_limits.add(&policy, text).map_err(DumpError::Limits)?;
        }
        let mut records: Vec<&Record> = Vec::new();
        let place = |records: &[&Record], identity| {
            records.binary_search_by_key(&identity, |record| record.identity())
        };
        for record in policy.records().chain(call_limits.records()) {
            if let Err(at) = place(&records, record.identity()) {
                records.insert(at, record);
            }
        }
        for _ in 0..reader.length()? {
            let key = reader.text()?;
            let identity = u64::from_le_bytes(reader.chunk()?);
            let length = reader.length()?;
            let blob = reader.bytes(length)?;
            let other = || DumpError::OtherLimits { key: key.into() };
            let found = place(&records, identity).ok().and_then(|at| records.get(at));
            let record = found.ok_or_else(other)?;
            table.restore(&policy, record, key, blob)?;
        }
        match reader.0.is_empty() {
            true => Ok((table, call_limits, policy)),
            false => Err(DumpError::Damaged),
        }
    }

    fn restore(
        &mut self,
        policy: &Policy,
        record: &Record,
        key: &str,
        blob: &[u8],
    ) -> Result<(), DumpError> {
        let is_part = key.len() <= MAX_KEY_BYTES && record.depth().of(key) == key;
        if !is_part || self.entry(record, key).is_some() {
            return Err(DumpError::Damaged);
        }
        let words = blob::decode(policy, record, blob, Timestamp::EPOCH)
            .map_err(|error| DumpError::State { key: key.into(), error })?;
        let full = DumpError::Full { max_bytes: self.max_bytes };
        let heap = Entry::heap_of(key.len(), words.len());
        let room = self.reserve(&[self.hasher.hash(key)], heap, self.max_bytes);
        let entry = room.and_then(|()| restored(record, key, &words));
        self.insert(entry.ok_or(full)?);
        Ok(())
    }
}

fn restored(record: &Record, key: &str, words: &[u64]) -> Option<Entry> {
    let (words, block) = record.unblocked(words);
    Entry::new(record, key, Stored { words, block })
}

fn length(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes()
}

/// The bytes of version and hash.
const HEADER: usize = 9;

/// The bytes that are not read yet.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, length: usize) -> Result<&'a [u8], DumpError> {
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(DumpError::Damaged)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], DumpError> {
        let (chunk, rest) = self.0.split_first_chunk().ok_or(DumpError::Damaged)?;
        self.0 = rest;
        Ok(*chunk)
    }

    fn length(&mut self) -> Result<usize, DumpError> {
        usize::try_from(u32::from_le_bytes(self.chunk()?)).map_err(|_| DumpError::Damaged)
    }

    fn text(&mut self) -> Result<&'a str, DumpError> {
        let length = u16::from_le_bytes(self.chunk()?);
        str::from_utf8(self.bytes(length.into())?).map_err(|_| DumpError::Damaged)
    }
}
