//! States in Redis or Valkey, by compare and swap.
//!
//! The states of a home are read, the core decides on them here, and one short script replaces them
//! if nobody else has. A host that loses the race decides again on what the winner left, so nothing
//! is ever granted out of the same state twice. Operations on one home that are under way together
//! are decided together ([`flight`]), so a hot key costs two round trips, however many callers wait
//! for it.
//!
//! A connection that is lost while a grant is being written leaves open whether it was: the request
//! gets what `on_error` says, and its cost may be gone. It is never granted twice by this store.

mod connection;
mod flight;
mod queue;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{AsyncCommands, Script};
use tidegate_gate::{Micros, Operation, Resolved, Rule, Session, Timestamp, Verdict};
use tokio::sync::oneshot;
use tokio::time::timeout;

use self::connection::Connection;
use self::queue::{HomeId, Question, Queues, Waiting};
use super::StoreError;

/// KEYS: names; ARGV: for each what it must still be (empty: nothing), then for each what it becomes
/// (empty: it stays), then for each for how many ms. Returns nil if all were, else what is there
/// instead.
const COMPARE_AND_SWAP: &str = "
local found, swap, n = {}, true, #KEYS
for i = 1, n do
  found[i] = redis.call('GET', KEYS[i]) or ''
  if found[i] ~= ARGV[i] then swap = false end
end
if not swap then return found end
for i = 1, n do
  if ARGV[n + i] ~= '' then redis.call('SET', KEYS[i], ARGV[n + i], 'PX', ARGV[2 * n + i]) end
end
return false";

/// A longer deadline counts as this one.
const LONGEST_DEADLINE: Duration = Duration::from_secs(3_600);

/// A caller waits for at most this many deadlines, whatever it waits for.
const MOST_DEADLINES: u32 = 16;

/// How to use a Redis.
#[derive(Clone, Debug)]
pub struct RedisOptions {
    /// How long Redis may be silent after it was asked, connecting included. Time in the store's own queue
    /// does not count, and neither does time in which Redis answers earlier questions. No caller waits
    /// longer than 16 deadlines. More than an hour counts as an hour.
    pub deadline: Duration,
    /// Stands before every name.
    pub prefix: String,
    /// The largest difference between any two clocks of the hosts and of Redis. States are kept this much
    /// longer, because they expire by the clock of Redis and hosts decide by their own.
    pub keep_longer: Micros,
}

impl Default for RedisOptions {
    fn default() -> Self {
        let (prefix, keep_longer) = (String::new(), Micros(10_000_000));
        Self { deadline: Duration::from_millis(250), prefix, keep_longer }
    }
}

/// States in Redis or Valkey.
///
/// A caller waits for the flight in the air and for its own: in practice two to four round trips. Of one
/// home at most 16,384 operations wait, and 8,192 of one key; another one gets
/// [`StoreError::Overloaded`] at once. In an outage a caller gets an error after one deadline for each
/// flight: two of them, but up to nine if operations on more than 2,048 keys wait for one home.
pub struct Redis {
    shared: Arc<Shared>,
}

/// What callers and flights share.
struct Shared {
    connection: Connection,
    compare_and_swap: Script,
    queues: Queues,
    options: RedisOptions,
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("options", &self.shared.options).finish_non_exhaustive()
    }
}

impl Redis {
    /// A store in the Redis at `url`, such as `redis://127.0.0.1:6379`. Connects at the first
    /// decision, and again whenever the connection is lost, swallows two questions in a row, or leads
    /// to a server that takes no writes.
    ///
    /// # Errors
    /// [`StoreError::Redis`] if the URL is none.
    pub fn new(url: &str, mut options: RedisOptions) -> Result<Self, StoreError> {
        options.deadline = options.deadline.min(LONGEST_DEADLINE);
        let connection = Connection::new(url, options.deadline)?;
        let (compare_and_swap, queues) = (Script::new(COMPARE_AND_SWAP), Queues::default());
        let shared = Arc::new(Shared { connection, compare_and_swap, queues, options });
        Ok(Self { shared })
    }

    /// Whether it answers.
    ///
    /// # Errors
    /// [`StoreError::Redis`] or [`StoreError::Deadline`] if it does not.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.shared.connection.ask(|mut connection| async move { connection.ping().await }).await
    }

    /// Does what is asked, with what each limit says. Operations on one key are done in the order in
    /// which their futures were first polled.
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
        if let Rule::Listed(decision) = resolved.rule() {
            return Ok(Verdict::listed(now, decision));
        }
        let id = HomeId::of(resolved);
        let (reply, answer) = oneshot::channel();
        let question = Question { now, operation, reply };
        if self.shared.queues.join(&id, Waiting { resolved: resolved.clone(), question })? {
            tokio::spawn(flight::serve(Arc::clone(&self.shared), id));
        }
        let most = self.shared.options.deadline * MOST_DEADLINES;
        match timeout(most, answer).await {
            Ok(answer) => answer.unwrap_or(Err(StoreError::Abandoned)),
            Err(_) => Err(StoreError::Deadline(most)),
        }
    }

    /// What is stored of a key: for each slice of its limits the bytes, if there are any.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn blobs(&self, resolved: &Resolved) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let names = self.names_when_landed(resolved).await;
        if names.is_empty() {
            return Ok(Vec::new());
        }
        self.shared.get(&names).await
    }

    /// Forgets all that is stored of a key, also what other keys share with it.
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn forget(&self, resolved: &Resolved) -> Result<(), StoreError> {
        let names = self.names_when_landed(resolved).await;
        if names.is_empty() {
            return Ok(());
        }
        let names = &names;
        self.shared
            .connection
            .ask(|mut connection| async move { connection.unlink(names).await })
            .await
    }

    /// How many operations got [`StoreError::Overloaded`].
    #[must_use]
    pub fn overloaded(&self) -> u64 {
        self.shared.queues.overloaded()
    }

    /// The names of a key's slices, when all operations on its home that were asked for before are
    /// written.
    async fn names_when_landed(&self, resolved: &Resolved) -> Vec<String> {
        if let Some(landing) = self.shared.queues.landing(&HomeId::of(resolved)) {
            let _ = landing.await; // it is dropped when they are
        }
        let mut session = Session::default();
        session.join(resolved);
        self.shared.names(&session)
    }
}

impl Shared {
    fn names(&self, session: &Session<'_>) -> Vec<String> {
        session.names().map(|name| self.options.prefix.clone() + name).collect()
    }

    /// What is stored under these names. Not by `MGET`: to it what is no string does not exist, and
    /// would be overwritten.
    async fn get(&self, names: &[String]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let mut pipeline = redis::pipe();
        for name in names {
            pipeline.get(name);
        }
        let pipeline = &pipeline;
        self.connection
            .ask(|mut connection| async move { pipeline.query_async(&mut connection).await })
            .await
    }
}
