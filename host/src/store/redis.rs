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
use tidegate_gate::{Micros, Operation, Resolved, Session, Timestamp, Verdict};
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
        resolved: &Resolved,
        now: Timestamp,
        operation: impl Into<Operation>,
    ) -> Result<Verdict, StoreError> {
        let operation = operation.into();
        self.in_time(async {
            let _turn = self.lock(resolved).lock().await;
            self.swap_until_ours(resolved, now, &operation).await
        })
        .await
    }

    /// What is stored of a key: for each slice of its limits the bytes, if there are any.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn blobs(&self, resolved: &Resolved) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let names = self.names(resolved);
        self.in_time(async { Ok(get(&names).query_async(&mut self.connection().await?).await?) })
            .await
    }

    /// Forgets all that is stored of a key, also what other keys share with it.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn forget(&self, resolved: &Resolved) -> Result<(), StoreError> {
        let names = self.names(resolved);
        if names.is_empty() {
            return Ok(());
        }
        self.in_time(async { Ok(self.connection().await?.unlink::<_, ()>(names).await?) }).await
    }

    async fn swap_until_ours(
        &self,
        resolved: &Resolved,
        now: Timestamp,
        operation: &Operation,
    ) -> Result<Verdict, StoreError> {
        if resolved.limits().is_none() {
            let mut session = Session::default();
            let seat = session.join(resolved);
            return Ok(session.operate(&seat, now, operation)?.verdict); // nothing is stored of it
        }
        let mut connection = self.connection().await?;
        loop {
            let mut session = Session::default();
            let seat = session.join(resolved);
            let names: Vec<String> = session.names().map(|name| self.name(name)).collect();
            session.load(get(&names).query_async::<Vec<_>>(&mut connection).await?);
            let answered = session.operate(&seat, now, operation)?;
            let writes: Vec<_> = session.writes().collect();
            if writes.is_empty() {
                return Ok(answered.verdict);
            }
            let mut script = self.script.prepare_invoke();
            for write in &writes {
                script.key(self.name(write.name));
            }
            for write in &writes {
                script.arg(write.found.unwrap_or_default());
            }
            for write in &writes {
                script.arg(write.bytes.as_slice());
            }
            for write in &writes {
                let keep = write.time_to_live.0.saturating_add(self.options.keep_longer.0).max(1);
                script.arg(Micros(keep).as_millis_ceil());
            }
            let lost_to: Option<Vec<Vec<u8>>> = script.invoke_async(&mut connection).await?;
            if lost_to.is_none() {
                return Ok(answered.verdict);
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

    fn names(&self, resolved: &Resolved) -> Vec<String> {
        let mut session = Session::default();
        session.join(resolved);
        session.names().map(|name| self.name(name)).collect()
    }

    fn name(&self, name: &str) -> String {
        self.options.prefix.clone() + name
    }

    /// One for all keys of a home.
    #[expect(clippy::indexing_slicing, reason = "masked to the number of locks")]
    fn lock(&self, resolved: &Resolved) -> &Mutex<()> {
        let hash = self.hasher.hash_one((resolved.policy().name(), resolved.home()));
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
