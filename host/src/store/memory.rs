//! States in this process. They are spread over many tables, each behind a lock, so that threads
//! rarely wait for each other.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_gate::{
    Decision, KeyHasher, Operation, Policy, Request, Resolved, Rule, Table, TableError, Timestamp,
    Verdict, check_key, free_bits,
};

/// Enough tables that the threads of two processors rarely wait for each other.
const SHARDS: usize = 64;

/// Each of several shards has at least this many times [`Table::least_bytes`], which has room for four of the
/// largest states. With room for 64 of them, one shard is seldom full while others have room.
const ROOMY: usize = 16;

/// A store in this process for the keys of one policy. All threads share it.
///
/// The states stay within a bound of bytes, and no limit loosens because of the bound: see [`Table`].
///
/// ```
/// use tidegate::{Memory, Policy, Timestamp};
///
/// let limits = "limits = [{ algorithm = 'fixed_window', limit = 1, period = '1h' }]";
/// let login = Memory::new(Policy::parse("login", limits)?, 64 << 10)?;
/// assert!(login.decide("user:42", Timestamp(0), 1)?.is_allowed());
/// assert!(!login.decide("user:42", Timestamp(1), 1)?.is_allowed());
/// let full = (100..).find(|n| login.decide(&format!("user:{n}"), Timestamp(2), 1).is_err());
/// assert!(full.is_some());
/// // a full store learns no new keys and still decides on the keys that it knows
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

/// The error of a store that has too little memory for a policy.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("policy {policy:?}: expected at least {least} bytes of memory, found {found}")]
pub struct TooLittleMemory {
    /// The policy's name.
    pub policy: String,
    /// The number of bytes that the largest states need.
    pub least: usize,
    /// The number of bytes that this policy has.
    pub found: usize,
}

/// Aligned so that no two shards share a cache line, which would slow both down.
#[derive(Debug)]
#[repr(align(128))]
struct Shard(Mutex<Table>);

impl Shard {
    /// A thread that finds it taken sleeps soon: a spin lock had it burn the time of the processor that the holder needs.
    #[inline]
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    /// An empty store of at most `max_bytes`. It divides the bytes into equal shards, which keys choose by
    /// their hash: up to 64 shards, fewer if states are large, and one if the policy has a limit with a
    /// `depth`.
    ///
    /// # Errors
    /// Returns [`TooLittleMemory`] if some state of this policy would never find room.
    pub fn new(policy: impl Into<Arc<Policy>>, max_bytes: usize) -> Result<Self, TooLittleMemory> {
        let policy = policy.into();
        let least = Table::least_bytes(&policy);
        if max_bytes < least {
            let policy = policy.name().to_owned();
            return Err(TooLittleMemory { policy, least, found: max_bytes });
        }
        // random keys of the standard library
        let hasher = KeyHasher::new(RandomState::new().hash_one(SHARDS));
        let is_roomy = |shards: &usize| max_bytes / shards / ROOMY >= least;
        // a decision needs the shared records and the key's own record under one lock
        let shards = match policy.shares_states() {
            true => 1,
            false => [SHARDS, 32, 16, 8, 4, 2].into_iter().find(is_roomy).unwrap_or(1),
        };
        let table = || Shard(Mutex::new(Table::new(max_bytes / shards, hasher.clone())));
        let tables = Box::new(std::array::from_fn(|_| table()));
        Ok(Self { policy, shards: tables, hasher, mask: shards - 1 })
    }

    /// The policy of this store.
    #[must_use]
    pub const fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// The number of bytes that the states take at most: see [`Table::bytes`].
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().bytes()).sum()
    }

    /// The number of keys in use.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Whether no key is in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Decides on a request. A key on the list `deny` is refused for ever, which [`Decision::is_listed`] tells apart.
    ///
    /// ```
    /// use tidegate::{Memory, Policy, Timestamp};
    ///
    /// let login = "limits = [{ algorithm = 'fixed_window', limit = 5, period = '1h' }]
    ///              deny = ['ip:192.0.2.0/24']";
    /// let login = Memory::new(Policy::parse("login", login)?, 1 << 20)?;
    /// assert!(login.decide("ip:198.51.100.7", Timestamp(0), 1)?.is_allowed());
    /// assert!(login.decide("ip:192.0.2.7", Timestamp(0), 1)?.is_listed());
    /// assert!(login.decide("ip:localhost", Timestamp(0), 1).is_err()); // the list would not have matched it
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns a [`TableError`] if [`check_key`] refuses the key or the store cannot decide; it has changed nothing.
    #[inline]
    pub fn decide(
        &self,
        key: &str,
        now: Timestamp,
        request: impl Into<Request>,
    ) -> Result<Decision, TableError> {
        check_key(key)?;
        let request = request.into();
        match self.policy.rule(key) {
            Rule::Listed(decision) => Ok(decision),
            Rule::Limited(limits, key) => {
                let (hash, shard) = self.hash_and_shard(&key);
                shard.lock().decide_by(&self.policy, limits, (hash, &key), now, &request)
            }
        }
    }

    /// Does one operation and returns its verdict. The key must be resolved by this store's policy.
    ///
    /// # Errors
    /// Returns a [`TableError`] if the store cannot do the operation; it has changed nothing.
    pub fn operate(
        &self,
        resolved: &Resolved,
        now: Timestamp,
        operation: impl Into<Operation>,
    ) -> Result<Verdict, TableError> {
        let (_, shard) = self.hash_and_shard(resolved.key());
        shard.lock().ask_once(resolved, now, &operation.into())
    }

    /// Changes the bound of this store. One that is larger learns no new keys until enough states have expired.
    pub fn set_max_bytes(&self, max_bytes: usize) {
        for shard in self.shards.iter() {
            shard.lock().set_max_bytes(max_bytes / self.mask.saturating_add(1));
        }
    }

    /// Takes over at `now` the states of an earlier revision of the policy, which from then on grants nothing: its table learns
    /// no key any more.
    pub fn take_over(&self, earlier: &Self, now: Timestamp) {
        for shard in earlier.shards.iter() {
            let taken = shard.lock().close();
            for state in taken.into_carried(&earlier.policy, &self.policy, now) {
                let (_, shard) = self.hash_and_shard(state.key());
                shard.lock().adopt(state); // without room in the allocator the process is about to end anyway
            }
        }
    }

    /// The state words of a key, for reports; `None` if the key is not in use or is on a list.
    #[must_use]
    pub fn words(&self, key: &str) -> Option<Vec<u64>> {
        let Rule::Limited(limits, key) = self.policy.rule(key) else { return None };
        let (_, shard) = self.hash_and_shard(&key);
        shard.lock().words(limits, &key)
    }

    /// Forgets the keys whose state equals a fresh one at `now`, one shard after another.
    pub fn sweep(&self, now: Timestamp) {
        for shard in self.shards.iter() {
            shard.lock().sweep(now);
        }
    }

    #[inline]
    #[expect(clippy::indexing_slicing, reason = "masked to the number of shards")]
    fn hash_and_shard(&self, key: &str) -> (u64, &Shard) {
        let hash = self.hasher.hash(key);
        (hash, &self.shards[self.shard_of(hash)])
    }

    #[inline]
    fn shard_of(&self, hash: u64) -> usize {
        free_bits(hash) & self.mask & (SHARDS - 1)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_gate::{InvalidKey, Micros};

    use super::*;

    fn login(more: &str) -> Memory {
        let limits = "limits = [{ algorithm = 'fixed_window', limit = 1, period = '1h' }]\n";
        Memory::new(Policy::parse("login", &format!("{limits}{more}")).unwrap(), 1 << 20).unwrap()
    }

    #[test]
    fn decide_refuses_the_keys_that_a_resolved_request_cannot_have() {
        let long = "k".repeat(513);
        for lists in ["", "allow = ['a*']", "deny = ['ip:192.0.2.0/24']"] {
            let login = login(lists);
            for key in ["", &long, "ip:", "ip:garbage", "ip:192.0.2.0/24", "ip:192.0.2.7 "] {
                let error = Resolved::new(login.policy(), key).unwrap_err();
                assert_eq!(login.decide(key, Timestamp(0), 1), Err(error.into()), "{key:?}");
            }
            assert!(login.is_empty());
            for key in ["k", &long[1..], "ip:198.51.100.7", "ip:2001:db8::7", "IP:x", "ipx"] {
                assert!(login.decide(key, Timestamp(0), 1).unwrap().is_allowed(), "{key:?}");
            }
        }
    }

    #[test]
    fn a_shard_splits_the_keys_that_chose_it() {
        let login = Memory::new(login("").policy, 256 << 20).unwrap();
        let of_one = |key: &String| login.shard_of(login.hasher.hash(key)) == 0;
        // more than one part of a table holds
        for key in (0..).map(|n: u32| format!("user:{n}")).filter(of_one).take(20_000) {
            let resolved = Resolved::new(login.policy(), &key).unwrap();
            assert!(login.operate(&resolved, Timestamp(0), 1).unwrap().decision.is_allowed());
            assert!(!login.decide(&key, Timestamp(0), 1).unwrap().is_allowed(), "{key}");
        }
        assert!(login.bytes() < 4 << 20, "two parts, and a third one while a part is split");
    }

    #[test]
    fn a_request_that_an_edit_overtakes_hears_of_the_edit() {
        let (earlier, later) = (login(""), login(""));
        later.take_over(&earlier, Timestamp(0));
        let error = earlier.decide("k", Timestamp(0), 1).unwrap_err();
        let said = crate::StoreError::of_table(error).summary();
        assert_eq!(said, "the policies are being changed");
    }

    #[test]
    fn an_invalid_key_has_the_words_of_the_http_api_without_the_key() {
        let login = login("");
        let said = |key: &str| login.decide(key, Timestamp(0), 1).unwrap_err().to_string();
        assert_eq!(said(""), InvalidKey::Length(0).to_string());
        let full = InvalidKey::NoAddress("ip:garbage".into()).to_string();
        assert!(full.starts_with(&said("ip:garbage")), "{full}");
    }

    #[test]
    fn only_a_key_on_the_list_deny_is_denied() {
        let login = login("deny = ['user:7']\nallow = ['user:8']");
        let decide = |key, cost| login.decide(key, Timestamp(0), cost).unwrap();
        assert!(decide("user:7", 0).is_listed());
        assert!(decide("user:7", 1).is_listed());
        assert!(!decide("user:8", 1).is_listed());
        assert!(!decide("user:9", 1).is_listed());
        let refused = decide("user:9", 1);
        assert!(!refused.is_allowed() && !refused.is_listed());
        assert_eq!(refused.retry_after(), Micros(3_600_000_000));
    }
}
