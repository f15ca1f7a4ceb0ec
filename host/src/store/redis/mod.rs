//! States in Redis or Valkey, replaced by compare and swap.
//!
//! The store reads the states of a home, the gate decides on them in this process, and one short script
//! replaces them unless another host has changed them. A host that loses the race decides again on the
//! states of the winner, so no state ever grants twice. Operations on one home that are under way
//! together form a flight and are decided together ([`flight`]), so a hot key costs two round trips,
//! however many callers wait for it.
//!
//! If the connection is lost while a grant is being written, the store cannot know whether Redis has
//! stored it. The request then gets the policy's `on_error`, and its cost may be gone. This store never
//! writes a grant a second time.

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
use self::flight::Home;
use self::queue::{HomeId, Question, Queues, Waiting};
use super::StoreError;

/// KEYS are the names. ARGV has three values for each name: first all expected bytes (empty: nothing is
/// stored), then all new bytes (empty: no change), then all times to live in ms. Returns nil if every
/// name had the expected bytes, and otherwise the bytes found under every name.
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

/// The longest deadline; a longer one is cut to it.
const LONGEST_DEADLINE: Duration = Duration::from_secs(3_600);

/// No caller waits longer than this many deadlines.
const MOST_DEADLINES: u32 = 16;

/// How a [`Redis`] store uses its server.
#[derive(Clone, Debug)]
pub struct RedisOptions {
    /// How long Redis may be silent after a question, connecting included. Time in the store's own queue
    /// does not count, nor does time in which Redis answers earlier questions. No caller waits longer
    /// than 16 deadlines. A deadline of more than an hour counts as an hour.
    pub deadline: Duration,
    /// The prefix of every name that the store uses.
    pub prefix: String,
    /// The largest difference between any two clocks of the hosts and of Redis. States are kept this much
    /// longer, because they expire by the clock of Redis while hosts decide by their own clocks.
    pub keep_longer: Micros,
    /// The clock of this host. An operation is decided at the time that its caller gives. An
    /// operation that has waited for more than half the period of its limits is decided at the time of
    /// this clock, because an older time can turn a key's clock back. Without a clock the caller's time always counts, as replays
    /// need it.
    pub clock: Option<fn() -> Timestamp>,
}

impl Default for RedisOptions {
    fn default() -> Self {
        let (prefix, keep_longer) = (String::new(), Micros(10_000_000));
        Self { deadline: Duration::from_millis(250), prefix, keep_longer, clock: None }
    }
}

/// A store in Redis or Valkey.
///
/// The operations on one home that are under way together are a flight: the store reads their states
/// once and writes them once. A caller waits for the flight under way and then for its own: in practice
/// two to four round trips. At most 16,384 operations wait for one home, and at most 8,192 of them on one
/// key; a further operation gets [`StoreError::Overloaded`] at once. In an outage a caller gets an error
/// after one deadline for each flight, or two if the connection breaks during the flight: usually two
/// flights, but up to nine if operations on more than 2,048 keys wait for one home.
///
/// ```no_run
/// use std::sync::Arc;
/// use tidegate::gate::{Policy, Resolved, Timestamp};
/// use tidegate::store::{Redis, RedisOptions};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let limits = "limits = [{ algorithm = 'fixed_window', limit = 1, period = '1h' }]";
/// let login = Arc::new(Policy::parse("login", limits)?);
/// let key = Resolved::new(&login, "user:42")?;
/// let store = Redis::new("redis://127.0.0.1:6379", RedisOptions::default())?;
/// let now = tidegate::clock::now();
/// assert!(store.operate(&key, now, 1).await?.decision.is_allowed());
/// assert!(!store.operate(&key, now, 1).await?.decision.is_allowed());
/// # Ok(())
/// # }
/// ```
pub struct Redis {
    shared: Arc<Shared>,
}

/// The state that callers and flights share.
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
    /// A store in the Redis at `url`, such as `redis://127.0.0.1:6379`. The store connects at the first
    /// operation. It connects again when the connection is lost, when two questions in a row get no
    /// answer, or when the server takes no writes.
    ///
    /// # Errors
    /// Returns [`StoreError::Redis`] if the URL is not one of a Redis.
    pub fn new(url: &str, mut options: RedisOptions) -> Result<Self, StoreError> {
        options.deadline = options.deadline.min(LONGEST_DEADLINE);
        let connection = Connection::new(url, options.deadline)?;
        let (compare_and_swap, queues) = (Script::new(COMPARE_AND_SWAP), Queues::default());
        let shared = Arc::new(Shared { connection, compare_and_swap, queues, options });
        Ok(Self { shared })
    }

    /// Asks Redis whether it answers.
    ///
    /// # Errors
    /// Returns [`StoreError::Redis`] or [`StoreError::Deadline`] if Redis does not answer.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.shared.connection.ask(|mut connection| async move { connection.ping().await }).await
    }

    /// Does one operation and returns its verdict. Operations on one key are done in the order in which
    /// their futures were first polled.
    ///
    /// # Errors
    /// Returns a [`StoreError`] if the store did not do the operation, or cannot know whether it did.
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
            tokio::spawn(flight::serve(Home::new(Arc::clone(&self.shared), id)));
        }
        let most = self.shared.options.deadline * MOST_DEADLINES;
        match timeout(most, answer).await {
            Ok(answer) => answer.unwrap_or(Err(StoreError::Abandoned)),
            Err(_) => Err(StoreError::Deadline(most)),
        }
    }

    /// Returns the stored bytes of each slice of a key, or `None` for a slice that is not stored.
    ///
    /// # Errors
    /// Returns a [`StoreError`] if Redis cannot be asked.
    pub async fn blobs(&self, resolved: &Resolved) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let names = self.names_when_written(resolved).await;
        if names.is_empty() {
            return Ok(Vec::new());
        }
        self.shared.get(&names).await
    }

    /// Deletes all stored slices of a key, including those that it shares with other keys.
    ///
    /// # Errors
    /// Returns a [`StoreError`] if Redis cannot be asked.
    pub async fn forget(&self, resolved: &Resolved) -> Result<(), StoreError> {
        let names = self.names_when_written(resolved).await;
        if names.is_empty() {
            return Ok(());
        }
        let names = &names;
        self.shared
            .connection
            .ask(|mut connection| async move { connection.unlink(names).await })
            .await
    }

    /// The number of operations that got [`StoreError::Overloaded`].
    #[must_use]
    pub fn overloaded(&self) -> u64 {
        self.shared.queues.overloaded()
    }

    /// Waits until all earlier operations on the key's home are written, then returns the names of the
    /// key's slices.
    async fn names_when_written(&self, resolved: &Resolved) -> Vec<String> {
        if let Some(written) = self.shared.queues.when_written(&HomeId::of(resolved)) {
            let _ = written.await; // the flight drops the sender
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

    /// Reads what is stored under these names. It does not use `MGET`: that reads a value that is not a
    /// string as missing, and the store would overwrite it.
    async fn get(&self, names: &[String]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let mut pipeline = redis::pipe();
        for name in names {
            pipeline.get(name);
        }
        let pipeline = &pipeline;
        self.connection
            .read(|mut connection| async move { pipeline.query_async(&mut connection).await })
            .await
    }
}
