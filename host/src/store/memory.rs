//! States in this process: tables behind spin locks, many of them, so that threads rarely meet.

use std::hash::{BuildHasher, RandomState};

use spin::Mutex;
use tidegate_gate::{
    Decided, Decision, KeyHasher, Limits, Operation, Policy, Request, Rule, Table, TableError,
    Timestamp, Verdict,
};

/// Enough for threads on two sockets to meet rarely.
const SHARDS: usize = 64;

/// The states of many keys under one policy, for all threads of a process.
///
/// Never more than so many keys, and no limit loosens for it: see [`Table`].
#[derive(Debug)]
pub struct Memory {
    policy: Policy,
    shards: Box<[Shard; SHARDS]>,
    hasher: KeyHasher,
    /// All states are in one shard: a decision needs those that keys share and those that they do
    /// not, and all of them together are to be no more than so many.
    one_for_all: bool,
}

/// On a cache line of its own: neighbours would slow each other down.
#[derive(Debug)]
#[repr(align(128))]
struct Shard(Mutex<Table>);

impl Memory {
    /// An empty store for at most `max_keys` keys, in equal parts by a hash of the key.
    #[must_use]
    pub fn new(policy: Policy, max_keys: usize) -> Self {
        // the standard library's source of chance
        let hasher = KeyHasher::new(RandomState::new().hash_one(SHARDS));
        let one_for_all = policy.shares_states();
        let each = if one_for_all { max_keys } else { max_keys.div_ceil(SHARDS) };
        let table = || Shard(Mutex::new(Table::new(each, hasher.clone())));
        Self { policy, shards: Box::new(std::array::from_fn(|_| table())), hasher, one_for_all }
    }

    /// The policy that it decides by.
    #[must_use]
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// How many keys are in use.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.0.lock().len()).sum()
    }

    /// Whether no key is in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Decides on a request.
    ///
    /// # Errors
    /// [`TableError`]; nothing has changed.
    #[inline]
    pub fn decide(
        &self,
        key: &str,
        now: Timestamp,
        request: impl Into<Request>,
    ) -> Result<Decision, TableError> {
        let request = request.into();
        match self.policy.rule(key) {
            Rule::Listed(decision) => Ok(decision),
            Rule::Limited(limits, key) => {
                self.with_state(limits, &key, now, |words| Ok(limits.decide(words, now, &request)?))
            }
        }
    }

    /// Does what is asked, with what each limit says.
    ///
    /// # Errors
    /// [`TableError`]; nothing has changed.
    pub fn operate(
        &self,
        key: &str,
        now: Timestamp,
        operation: impl Into<Operation>,
    ) -> Result<Verdict, TableError> {
        let operation = operation.into();
        match self.policy.rule(key) {
            Rule::Listed(decision) => Ok(Verdict::listed(now, decision)),
            Rule::Limited(limits, key) => self
                .with_state(limits, &key, now, |words| Ok(limits.operate(words, now, &operation)?)),
        }
    }

    /// The words of a key in use, for reports.
    #[must_use]
    pub fn words(&self, key: &str) -> Option<Vec<u64>> {
        let Rule::Limited(limits, key) = self.policy.rule(key) else { return None };
        let (_, shard) = self.hash_and_shard(&key);
        Some(shard.lock().words(limits, &key)?.into_vec())
    }

    /// Forgets the keys whose state equals a fresh one at `now`, one shard after another.
    pub fn sweep(&self, now: Timestamp) {
        for shard in self.shards.iter() {
            shard.0.lock().sweep(&self.policy, now);
        }
    }

    #[inline]
    fn with_state<T: Decided>(
        &self,
        limits: &Limits,
        key: &str,
        now: Timestamp,
        decide: impl FnOnce(&mut [u64]) -> Result<T, TableError>,
    ) -> Result<T, TableError> {
        let (hash, shard) = self.hash_and_shard(key);
        shard.lock().with_state(&self.policy, limits, (hash, key), now, decide)
    }

    /// The shard is found by bits from the middle of the hash: the table itself uses those at both
    /// ends.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "masked to the number of shards")]
    fn hash_and_shard(&self, key: &str) -> (u64, &Mutex<Table>) {
        let hash = self.hasher.hash(key);
        let bits = if self.one_for_all { 0 } else { usize::try_from(hash >> 32).unwrap_or(0) };
        (hash, &self.shards[bits & (SHARDS - 1)].0)
    }
}
