//! States in Redis or Valkey, by compare and swap.
//!
//! The state blob of a key is read, the core decides on it here, and one short script replaces it
//! if nobody else has. Who loses the race decides again on what the winner left, so that nothing is
//! ever granted out of the same state twice.
//!
//! A connection that is lost while a grant is being written leaves open whether it was: the request
//! gets what `on_error` says, and its cost may be gone. It is never granted twice by this store.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{AsyncCommands, Client, Pipeline, Script};
use tidegate_gate::{Limits, Micros, Operation, Policy, Rule, Timestamp, Verdict, blob};
use tokio::sync::{Mutex, OnceCell};
use tokio::time::timeout;

use super::StoreError;

/// KEYS: names; ARGV: for each what it must still be (empty: nothing), then for each what it becomes,
/// then for each for how many ms. Returns nil if all were, else what is there instead.
const COMPARE_AND_SWAP: &str = "
local found, swap = {}, true
for i = 1, #KEYS do
  found[i] = redis.call('GET', KEYS[i]) or ''
  if found[i] ~= ARGV[i] then swap = false end
end
if not swap then return found end
for i = 1, #KEYS do redis.call('SET', KEYS[i], ARGV[#KEYS + i], 'PX', ARGV[2 * #KEYS + i]) end
return false";

/// Requests of this process for one key wait for each other here instead of racing in Redis.
const LOCKS: usize = 1_024;

/// How to use a Redis.
#[derive(Clone, Debug)]
pub struct RedisOptions {
    /// A decision that takes longer is an error. It includes connecting.
    pub deadline: Duration,
    /// Stands before every name.
    pub prefix: String,
    /// How much longer than needed a state is kept: for a clock that is not that of Redis.
    pub keep_longer: Micros,
}

impl Default for RedisOptions {
    fn default() -> Self {
        let (prefix, keep_longer) = (String::new(), Micros::ZERO);
        Self { deadline: Duration::from_millis(250), prefix, keep_longer }
    }
}

/// States in Redis or Valkey.
pub struct Redis {
    client: Client,
    /// Made at the first use: it needs a runtime to live in.
    connection: OnceCell<ConnectionManager>,
    script: Script,
    locks: Box<[Mutex<()>]>,
    hasher: RandomState,
    options: RedisOptions,
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Redis {
    /// A store in the Redis at `url`, such as `redis://127.0.0.1:6379`. Connects at the first
    /// decision, and again whenever the connection is lost.
    ///
    /// # Errors
    /// [`StoreError::Redis`] if the URL is none.
    pub fn new(url: &str, options: RedisOptions) -> Result<Self, StoreError> {
        Ok(Self {
            client: Client::open(url)?,
            connection: OnceCell::new(),
            script: Script::new(COMPARE_AND_SWAP),
            locks: (0..LOCKS).map(|_| Mutex::new(())).collect(),
            hasher: RandomState::new(),
            options,
        })
    }

    /// Whether it answers.
    ///
    /// # Errors
    /// [`StoreError::Redis`] or [`StoreError::Deadline`] if it does not.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.in_time(async { Ok(self.connection().await?.ping::<()>().await?) }).await
    }

    /// Does what is asked, with what each limit says.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn operate(
        &self,
        policy: &Policy,
        key: &str,
        now: Timestamp,
        operation: impl Into<Operation>,
    ) -> Result<Verdict, StoreError> {
        let operation = operation.into();
        let (limits, key) = match policy.rule(key) {
            Rule::Listed(decision) => return Ok(Verdict::listed(now, decision)),
            Rule::Limited(limits, key) => (limits, key),
        };
        let states = States { policy, limits, names: self.names(policy, limits, &key) };
        self.in_time(async {
            let _turn = self.lock(policy, &key).lock().await;
            self.swap_until_ours(&states, now, &operation).await
        })
        .await
    }

    /// What is stored of a key: for each part of its limits the bytes, if there are any.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn blobs(
        &self,
        policy: &Policy,
        key: &str,
    ) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let Rule::Limited(limits, key) = policy.rule(key) else { return Ok(Vec::new()) };
        let names = self.names(policy, limits, &key);
        self.in_time(async { Ok(get(&names).query_async(&mut self.connection().await?).await?) })
            .await
    }

    /// Forgets all that is stored of a key, also what other keys share with it.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn forget(&self, policy: &Policy, key: &str) -> Result<(), StoreError> {
        let Rule::Limited(limits, key) = policy.rule(key) else { return Ok(()) };
        let names = self.names(policy, limits, &key);
        self.in_time(async { Ok(self.connection().await?.unlink::<_, ()>(names).await?) }).await
    }

    async fn swap_until_ours(
        &self,
        states: &States<'_>,
        now: Timestamp,
        operation: &Operation,
    ) -> Result<Verdict, StoreError> {
        let limits = states.limits;
        let mut connection = self.connection().await?;
        let stored: Vec<Option<Vec<u8>>> = get(&states.names).query_async(&mut connection).await?;
        let mut found: Vec<Vec<u8>> = stored.into_iter().map(Option::unwrap_or_default).collect();
        loop {
            let mut words = states.decode(&found)?;
            let verdict = limits.operate(&mut words, now, operation)?;
            let decided: Vec<Vec<u8>> = limits
                .split(&words)
                .map(|(part, words)| blob::encode(states.policy, part, words))
                .collect();
            if operation.is_peek() || decided == found {
                return Ok(verdict); // nothing has changed
            }
            let mut script = self.script.prepare_invoke();
            for name in &states.names {
                script.key(name);
            }
            for blob in found.iter().chain(&decided) {
                script.arg(blob.as_slice());
            }
            for (part, words) in limits.split(&words) {
                let needed = part.time_to_live(words, now).0;
                let keep = needed.saturating_add(self.options.keep_longer.0).max(1);
                script.arg(Micros(keep).as_millis_ceil());
            }
            let lost_to: Option<Vec<Vec<u8>>> = script.invoke_async(&mut connection).await?;
            match lost_to {
                None => return Ok(verdict),
                Some(others) => found = others,
            }
        }
    }

    async fn connection(&self) -> Result<ConnectionManager, StoreError> {
        let connect = async || {
            let config = ConnectionManagerConfig::new()
                .set_connection_timeout(Some(self.options.deadline))
                .set_response_timeout(Some(self.options.deadline))
                .set_number_of_retries(1);
            ConnectionManager::new_lazy_with_config(self.client.clone(), config)
        };
        Ok(self.connection.get_or_try_init(connect).await?.clone())
    }

    fn names(&self, policy: &Policy, limits: &Limits, key: &str) -> Vec<String> {
        let name = |part| self.options.prefix.clone() + &blob::name(policy, part, key);
        limits.parts().iter().map(name).collect()
    }

    /// One for all keys that share a state.
    #[expect(clippy::indexing_slicing, reason = "masked to the number of locks")]
    fn lock(&self, policy: &Policy, key: &str) -> &Mutex<()> {
        let hash = self.hasher.hash_one((policy.name(), policy.home(key)));
        &self.locks[usize::try_from(hash >> 32).unwrap_or(0) & (LOCKS - 1)]
    }

    async fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let deadline = self.options.deadline;
        timeout(deadline, work).await.unwrap_or(Err(StoreError::Deadline(deadline)))
    }
}

/// Not `MGET`: to it what is no string does not exist, and would be overwritten.
fn get(names: &[String]) -> Pipeline {
    let mut pipeline = redis::pipe();
    for name in names {
        pipeline.get(name);
    }
    pipeline
}

/// Where the states are that one decision needs.
struct States<'a> {
    policy: &'a Policy,
    limits: &'a Limits,
    /// One for each part.
    names: Vec<String>,
}

impl States<'_> {
    /// The words of all parts.
    fn decode(&self, found: &[Vec<u8>]) -> Result<Vec<u64>, StoreError> {
        let mut words = Vec::with_capacity(self.limits.words());
        for ((part, name), bytes) in self.limits.parts().iter().zip(&self.names).zip(found) {
            if bytes.is_empty() {
                words.resize(words.len() + part.words(), 0);
            } else {
                let foreign = |error| StoreError::Blob { name: name.clone(), error };
                words.extend(blob::decode(self.policy, part, bytes).map_err(foreign)?);
            }
        }
        Ok(words)
    }
}
