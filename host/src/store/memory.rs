//! States in this process: tables behind spin locks, many of them, so that threads rarely meet.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use spin::Mutex;
use tidegate_gate::{
    Decision, KeyHasher, Operation, Policy, Request, Resolved, Rule, Table, TableError, Timestamp,
    Verdict,
};

/// Enough for threads on two sockets to meet rarely.
const SHARDS: usize = 64;

/// A shard has room for 64 of the largest states at least, four times this: so that one is seldom
/// full while others have room.
const ROOMY: usize = 16;

/// The states of many keys under one policy, for all threads of a process.
///
/// They stay within a bound of bytes, and no limit loosens for it: see [`Table`].
///
/// ```
/// use tidegate::gate::{Policy, Timestamp};
/// use tidegate::store::Memory;
///
/// let limits = "limits = [{ algorithm = 'fixed_window', limit = 1, period = '1h' }]";
/// let login = Memory::new(Policy::parse("login", limits)?, 64 << 10)?;
/// assert!(login.decide("user:42", Timestamp(0), 1)?.is_allowed());
/// assert!(!login.decide("user:42", Timestamp(1), 1)?.is_allowed());
/// let full = (100..).find(|n| login.decide(&format!("user:{n}"), Timestamp(2), 1).is_err());
/// assert!(full.is_some());
/// // the store is full: it learns no key, and still decides on those that it knows
/// assert!(login.decide("another", Timestamp(2), 1).is_err());
/// assert!(!login.decide("user:42", Timestamp(2), 1)?.is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Memory {
    policy: Arc<Policy>,
    shards: Box<[Shard; SHARDS]>,
    hasher: KeyHasher,
    /// One less than the number of shards in use, a power of two.
    mask: usize,
}

/// A store that has too little memory for a policy.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("policy {policy:?}: expected at least {least} bytes of memory, found {found}")]
pub struct TooLittleMemory {
    /// The policy's name.
    pub policy: String,
    /// How many bytes the largest states need.
    pub least: usize,
    /// How many bytes there are for this policy.
    pub found: usize,
}

/// On a cache line of its own: neighbours would slow each other down.
#[derive(Debug)]
#[repr(align(128))]
struct Shard(Mutex<Table>);

impl Memory {
    /// An empty store of at most `max_bytes`, in equal parts by a hash of the key: up to 64, fewer if
    /// states are large, and one if the policy has a limit by `depth`.
    ///
    /// # Errors
    /// [`TooLittleMemory`] if some state of this policy would never find room.
    pub fn new(policy: impl Into<Arc<Policy>>, max_bytes: usize) -> Result<Self, TooLittleMemory> {
        let policy = policy.into();
        let least = Table::least_bytes(&policy);
        if max_bytes < least {
            let policy = policy.name().to_owned();
            return Err(TooLittleMemory { policy, least, found: max_bytes });
        }
        // the standard library's source of chance
        let hasher = KeyHasher::new(RandomState::new().hash_one(SHARDS));
        let is_roomy = |shards: &usize| max_bytes / shards / ROOMY >= least;
        // a decision needs the states that keys share as well as those that they do not
        let shards = match policy.shares_states() {
            true => 1,
            false => [SHARDS, 32, 16, 8, 4, 2].into_iter().find(is_roomy).unwrap_or(1),
        };
        let table = || Shard(Mutex::new(Table::new(max_bytes / shards, hasher.clone())));
        let tables = Box::new(std::array::from_fn(|_| table()));
        Ok(Self { policy, shards: tables, hasher, mask: shards - 1 })
    }

    /// The policy that it decides by.
    #[must_use]
    pub const fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// What the states take at most: see [`Table::bytes`].
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.0.lock().bytes()).sum()
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
                let (hash, shard) = self.hash_and_shard(&key);
                shard.lock().decide_by(&self.policy, limits, (hash, &key), now, &request)
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
        usize::try_from(hash >> 32).unwrap_or(0) & self.mask & (SHARDS - 1)
    }
}
