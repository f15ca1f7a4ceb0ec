//! States in this process: tables behind spin locks, many of them, so that threads rarely meet.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use spin::Mutex;
use tidegate_gate::{
    Decided, Decision, KeyHasher, Limits, Operation, Policy, Request, Resolved, Rule, Table,
    TableError, Timestamp, Verdict,
};

/// Enough for threads on two sockets to meet rarely.
const SHARDS: usize = 64;

/// The states of many keys under one policy, for all threads of a process.
///
/// Never more than so many keys, and no limit loosens for it: see [`Table`].
#[derive(Debug)]
pub struct Memory {
    policy: Arc<Policy>,
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
    pub fn new(policy: impl Into<Arc<Policy>>, max_keys: usize) -> Self {
        let policy = policy.into();
        // the standard library's source of chance
        let hasher = KeyHasher::new(RandomState::new().hash_one(SHARDS));
        let one_for_all = policy.shares_states();
        let each = if one_for_all { max_keys } else { max_keys.div_ceil(SHARDS) };
        let table = || Shard(Mutex::new(Table::new(each, hasher.clone())));
        Self { policy, shards: Box::new(std::array::from_fn(|_| table())), hasher, one_for_all }
    }

    /// The policy that it decides by.
    #[must_use]
    pub const fn policy(&self) -> &Arc<Policy> {
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

    /// Does what is asked, with what each limit says. The key must be resolved by this store's policy.
    ///
    /// # Errors
    /// [`TableError`]; nothing has changed.
    pub fn operate(
        &self,
        resolved: &Resolved,
        now: Timestamp,
        operation: impl Into<Operation>,
    ) -> Result<Verdict, TableError> {
        let (_, shard) = self.hash_and_shard(resolved.key());
        shard.lock().ask(resolved, now, &operation.into())
    }

    /// Does all that is asked, what concerns one home in its order and under one lock.
    pub fn operate_all<'a>(
        &self,
        now: Timestamp,
        asked: impl IntoIterator<Item = (&'a Resolved, Operation)>,
    ) -> Vec<Result<Verdict, TableError>> {
        let asked: Vec<_> = asked.into_iter().collect();
        let mut by_shard: Vec<Vec<usize>> = vec![Vec::new(); SHARDS];
        for (place, (resolved, _)) in asked.iter().enumerate() {
            let hash = self.hasher.hash(resolved.key());
            if let Some(places) = by_shard.get_mut(self.shard_of(hash)) {
                places.push(place);
            }
        }
        let mut answers: Vec<_> = asked.iter().map(|_| None).collect();
        for (shard, places) in self.shards.iter().zip(by_shard) {
            if places.is_empty() {
                continue;
            }
            let mut table = shard.0.lock();
            for place in places {
                if let (Some((resolved, operation)), Some(answer)) =
                    (asked.get(place), answers.get_mut(place))
                {
                    *answer = Some(table.ask(resolved, now, operation));
                }
            }
        }
        answers.into_iter().flatten().collect() // each has its answer
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
        (hash, &self.shards[self.shard_of(hash)].0)
    }

    #[inline]
    fn shard_of(&self, hash: u64) -> usize {
        let bits = if self.one_for_all { 0 } else { usize::try_from(hash >> 32).unwrap_or(0) };
        bits & (SHARDS - 1)
    }
}
