//! The store in memory: the states of many keys under one policy.

#[cfg(test)]
mod tests;

use core::fmt;
use core::hash::BuildHasher;

use compact_str::CompactString;
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use smallvec::SmallVec;
use tidegate_core::{Decision, Micros, Timestamp};

use crate::decide::Verdict;
use crate::limits::{Limits, Part};
use crate::policy::{Policy, Rule};
use crate::request::{Operation, OperationError, Request};
use crate::resolved::Resolved;

/// A full table looks for expired states at most this often, so that a flood of new keys cannot
/// make every request pay for a search.
const SWEEP_EVERY: Micros = Micros::SECOND;

/// The states of many keys under one policy, never more than so many.
///
/// A key is forgotten only when its state equals a fresh one, so bounding the memory loosens no
/// limit: a full table refuses to learn new keys, and says so.
#[derive(Clone, Debug)]
pub struct Table {
    entries: HashTable<Entry>,
    max_keys: usize,
    hasher: KeyHasher,
    swept: Timestamp,
}

/// A cache line: a look at a key then misses one, and no more while key and words are inline.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Entry {
    /// The part of the key that these words are counted by. Inline up to 24 bytes.
    key: CompactString,
    /// [`Part::identity`]
    identity: u64,
    /// Inline for the limiters whose state is up to three words.
    words: SmallVec<[u64; 3]>,
}

const _: () = assert!(size_of::<Entry>() == 64);

/// How a table hashes keys.
#[derive(Clone, Debug)]
pub struct KeyHasher(FixedState);

impl KeyHasher {
    /// `seed` should differ from process to process: it keeps callers from choosing keys that
    /// collide.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(FixedState::with_seed(seed))
    }

    /// The hash of a key.
    #[must_use]
    #[inline]
    pub fn hash(&self, key: &str) -> u64 {
        self.0.hash_one(key.as_bytes())
    }
}

/// Why a table did not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableError {
    /// The limits cannot do what is asked.
    Operation(OperationError),
    /// There are as many keys as allowed, and none has expired.
    Full {
        /// How many that is.
        max_keys: usize,
    },
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operation(error) => error.fmt(f),
            Self::Full { max_keys } => {
                write!(f, "the memory store is full: {max_keys} keys are in use, the most allowed")
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

/// What a table answers.
pub trait Decided {
    /// Whether the request may pass.
    fn decision(&self) -> &Decision;
}

impl Decided for Decision {
    fn decision(&self) -> &Decision {
        self
    }
}

impl Decided for Verdict {
    fn decision(&self) -> &Decision {
        &self.decision
    }
}

impl Table {
    /// An empty table for at most `max_keys` keys.
    #[must_use]
    pub fn new(max_keys: usize, hasher: KeyHasher) -> Self {
        Self { entries: HashTable::new(), max_keys, hasher, swept: Timestamp::EPOCH }
    }

    /// How many keys are in use.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no key is in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// [`Limits::decide`] on the key's state, by what holds for the key.
    ///
    /// # Errors
    /// [`TableError`]; nothing has changed.
    pub fn decide(
        &mut self,
        policy: &Policy,
        key: &str,
        now: Timestamp,
        request: impl Into<Request>,
    ) -> Result<Decision, TableError> {
        let request = request.into();
        match policy.rule(key) {
            Rule::Listed(decision) => Ok(decision),
            Rule::Limited(limits, key) => {
                let hash = self.hasher.hash(&key);
                let decide = |words: &mut [u64]| Ok(limits.decide(words, now, &request)?);
                self.with_state(policy, limits, (hash, &key), now, decide)
            }
        }
    }

    /// [`Limits::operate`] on the key's state.
    ///
    /// # Errors
    /// [`TableError`]; nothing has changed.
    pub fn ask(
        &mut self,
        resolved: &Resolved,
        now: Timestamp,
        operation: &Operation,
    ) -> Result<Verdict, TableError> {
        match resolved.rule() {
            Rule::Listed(decision) => Ok(Verdict::listed(now, decision)),
            Rule::Limited(limits, key) => {
                let hash = self.hasher.hash(&key);
                let decide = |words: &mut [u64]| Ok(limits.operate(words, now, operation)?);
                self.with_state(resolved.policy(), limits, (hash, &key), now, decide)
            }
        }
    }

    /// [`Limits::operate`] on the key's state, by what holds for the key.
    ///
    /// # Errors
    /// [`TableError`]; nothing has changed.
    pub fn operate(
        &mut self,
        policy: &Policy,
        key: &str,
        now: Timestamp,
        operation: impl Into<Operation>,
    ) -> Result<Verdict, TableError> {
        let operation = operation.into();
        match policy.rule(key) {
            Rule::Listed(decision) => Ok(Verdict::listed(now, decision)),
            Rule::Limited(limits, key) => {
                let hash = self.hasher.hash(&key);
                let decide = |words: &mut [u64]| Ok(limits.operate(words, now, &operation)?);
                self.with_state(policy, limits, (hash, &key), now, decide)
            }
        }
    }

    /// Lets `decide` change the words of a canonical key, which comes with its hash by the table's
    /// hasher. They are remembered unless they equal a fresh state's. A refusal needs no room: where
    /// there is none it stands, and what is new of it is not remembered.
    ///
    /// # Errors
    /// [`TableError`]; nothing has changed.
    #[inline]
    pub fn with_state<T: Decided>(
        &mut self,
        policy: &Policy,
        limits: &Limits,
        (hash, key): (u64, &str),
        now: Timestamp,
        decide: impl FnOnce(&mut [u64]) -> Result<T, TableError>,
    ) -> Result<T, TableError> {
        if let [part] = limits.parts()
            && let Some(words) = self.find(part, hash, part.depth().of(key))
        {
            return decide(words);
        }
        self.with_scattered_state(policy, limits, key, now, decide)
    }

    /// The words of a canonical key, if it is in use.
    #[must_use]
    pub fn words(&self, limits: &Limits, key: &str) -> Option<SmallVec<[u64; 3]>> {
        Some(self.gather(limits, key)).filter(|words| words.iter().any(|word| *word != 0))
    }

    /// The words of all parts of a canonical key: of those that are not in use, zeros.
    fn gather(&self, limits: &Limits, key: &str) -> SmallVec<[u64; 3]> {
        let mut words = SmallVec::with_capacity(limits.words());
        for part in limits.parts() {
            let key = part.depth().of(key);
            let found = self.entries.find(self.hasher.hash(key), |entry| entry.is(part, key));
            match found {
                Some(entry) => words.extend_from_slice(&entry.words),
                None => words.resize(words.len().saturating_add(part.words()), 0),
            }
        }
        words
    }

    /// Forgets the states that equal a fresh one at `now`, and those of limits that the policy
    /// does not have.
    pub fn sweep(&mut self, policy: &Policy, now: Timestamp) {
        self.swept = now;
        self.entries.retain(|entry| {
            policy
                .part(entry.identity)
                .is_some_and(|part| part.time_to_live(&entry.words, now) > Micros::ZERO)
        });
    }

    #[inline]
    fn find(&mut self, part: &Part, hash: u64, key: &str) -> Option<&mut [u64]> {
        self.entries
            .find_mut(hash, |entry| entry.is(part, key))
            .map(|entry| entry.words.as_mut_slice())
    }

    /// The same for a key that is not in use, or whose limits count by several parts of it.
    #[cold]
    fn with_scattered_state<T: Decided>(
        &mut self,
        policy: &Policy,
        limits: &Limits,
        key: &str,
        now: Timestamp,
        decide: impl FnOnce(&mut [u64]) -> Result<T, TableError>,
    ) -> Result<T, TableError> {
        let mut words = self.gather(limits, key);
        let decided = decide(&mut words)?;
        let missing = |table: &Self, part: &Part| {
            let key = part.depth().of(key);
            table.entries.find(table.hasher.hash(key), |entry| entry.is(part, key)).is_none()
        };
        let lasts = |part: &Part, words: &[u64]| part.time_to_live(words, now) > Micros::ZERO;
        let needed = limits.split(&words).filter(|(part, words)| lasts(part, words));
        let needed = needed.filter(|(part, _)| missing(self, part)).count();
        let room = self.make_room(policy, needed, now);
        if let (Err(full), true) = (room, decided.decision().is_allowed()) {
            return Err(full);
        }
        for (part, words) in limits.split(&words) {
            let key = part.depth().of(key);
            let hash = self.hasher.hash(key);
            // of a state that equals a fresh one but for its clock the others keep half the room
            let spare = self.entries.len().saturating_mul(2) < self.max_keys;
            if let Some(own) = self.find(part, hash, key) {
                own.copy_from_slice(words);
            } else if words.iter().any(|word| *word != 0)
                && if lasts(part, words) { room.is_ok() } else { spare }
            {
                let Self { entries, hasher, .. } = self;
                let identity = part.identity();
                let entry = Entry { key: key.into(), identity, words: words.into() };
                entries.insert_unique(hash, entry, |entry| hasher.hash(&entry.key));
            }
        }
        Ok(decided)
    }

    fn make_room(&mut self, policy: &Policy, new: usize, now: Timestamp) -> Result<(), TableError> {
        let full = |table: &Self| table.entries.len().saturating_add(new) > table.max_keys;
        if new == 0 || !full(self) {
            return Ok(());
        }
        if now.saturating_since(self.swept).max(self.swept.saturating_since(now)) >= SWEEP_EVERY {
            self.sweep(policy, now);
        }
        if full(self) { Err(TableError::Full { max_keys: self.max_keys }) } else { Ok(()) }
    }
}

impl Entry {
    #[inline]
    fn is(&self, part: &Part, key: &str) -> bool {
        self.key.as_bytes() == key.as_bytes() && self.identity == part.identity()
    }
}
