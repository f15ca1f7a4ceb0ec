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
use redis::{AsyncCommands, Client, Script};
use tidegate_gate::{Micros, Policy, Timestamp, Verdict, blob};
use tokio::sync::{Mutex, OnceCell};
use tokio::time::timeout;

use super::StoreError;

/// KEYS[1] name; ARGV: what it must still be (empty: nothing), what it becomes, for how many ms.
/// Returns nil if it was, else what is there instead.
const COMPARE_AND_SWAP: &str = "
local found = redis.call('GET', KEYS[1]) or ''
if found ~= ARGV[1] then return found end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
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

    /// Decides on a request, with what each limit says.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn decide(
        &self,
        policy: &Policy,
        key: &str,
        now: Timestamp,
        cost: u64,
    ) -> Result<Verdict, StoreError> {
        let name = self.name(policy, key);
        self.in_time(async {
            let _turn = self.lock(&name).lock().await;
            self.swap_until_ours(policy, &name, now, cost).await
        })
        .await
    }

    /// What is stored of a key.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn blob(&self, policy: &Policy, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let name = self.name(policy, key);
        self.in_time(async { Ok(self.connection().await?.get(name).await?) }).await
    }

    /// Forgets a key.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn forget(&self, policy: &Policy, key: &str) -> Result<(), StoreError> {
        let name = self.name(policy, key);
        self.in_time(async { Ok(self.connection().await?.unlink::<_, ()>(name).await?) }).await
    }

    async fn swap_until_ours(
        &self,
        policy: &Policy,
        name: &str,
        now: Timestamp,
        cost: u64,
    ) -> Result<Verdict, StoreError> {
        let mut connection = self.connection().await?;
        let mut found: Vec<u8> = connection.get::<_, Option<_>>(name).await?.unwrap_or_default();
        loop {
            let mut words = if found.is_empty() {
                vec![0; policy.words()]
            } else {
                let foreign = |error| StoreError::Blob { name: name.to_owned(), error };
                blob::decode(policy, &found).map_err(foreign)?
            };
            let verdict = policy.decide_and_explain(&mut words, now, cost)?;
            let decided = blob::encode(policy, &words);
            if cost == 0 || decided == found {
                return Ok(verdict); // nothing has changed
            }
            let keep =
                policy.time_to_live(&words, now).0.saturating_add(self.options.keep_longer.0);
            let lost_to: Option<Vec<u8>> = self
                .script
                .key(name)
                .arg(found.as_slice())
                .arg(decided.as_slice())
                .arg(Micros(keep.max(1)).as_millis_ceil())
                .invoke_async(&mut connection)
                .await?;
            match lost_to {
                None => return Ok(verdict),
                Some(other) => found = other,
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

    fn name(&self, policy: &Policy, key: &str) -> String {
        self.options.prefix.clone() + &blob::name(policy, key)
    }

    #[expect(clippy::indexing_slicing, reason = "masked to the number of locks")]
    fn lock(&self, name: &str) -> &Mutex<()> {
        let hash = usize::try_from(self.hasher.hash_one(name) >> 32).unwrap_or(0);
        &self.locks[hash & (LOCKS - 1)]
    }

    async fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let deadline = self.options.deadline;
        timeout(deadline, work).await.unwrap_or(Err(StoreError::Deadline(deadline)))
    }
}
