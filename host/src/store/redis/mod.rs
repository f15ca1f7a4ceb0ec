//! States in Redis or Valkey, replaced by compare and swap.
//!
//! The gate decides in this process on the states last seen, and one short script replaces them if Redis still
//! holds them. A host that finds the states of another host decides again on them, so no state ever grants
//! twice. What waits together is decided together ([`tidegate_tier::authority`]): a hot key costs one round trip
//! for all its callers, and one call of the script swaps the states of many keys.
//!
//! If the connection is lost while a grant is being written, the store cannot know whether Redis has
//! stored it. The request then gets the policy's `on_error`, and its cost may be gone. This store never
//! writes a grant a second time. In a Cluster it sends a call again only if a node said that it has not executed it, and then
//! compares anew.

mod address;
mod announce;
mod cluster;
mod connection;
mod dialer;
mod driver;
mod named;
mod node;
mod options;
mod outage;
mod presence;
mod sentinel;
mod servers;
mod shared;
mod swap;
#[cfg(feature = "tls")]
mod tls;

use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use redis::Cmd;
use tidegate_gate::{OnError, Operation, Resolved, Rule, Timestamp, Transaction, Verdict};
use tidegate_tier::authority::Failure;
use tidegate_tier::cache::Counts;
use tokio::sync::oneshot;

use self::address::without_password;
use self::announce::announce;
use self::driver::Queue;
use self::node::{Node, Step};
pub use self::options::{RedisClientFiles, RedisOptions, RedisTls};
use self::presence::Presence;
use self::servers::Servers;
use self::shared::{Answer, MOST_DEADLINES, Shared};
use self::swap::{A_STATE, unreadable};
use super::Told;
use super::error::StoreError;

/// The longest deadline; a longer one is cut to it.
const LONGEST_DEADLINE: Duration = Duration::from_secs(3_600);

/// A store in Redis or Valkey.
///
/// The operations on one partition that wait together are decided together. A decision takes one round trip if this
/// store has seen the key's states and no other host has changed them since, and one more otherwise. A caller
/// waits for the round trip under way on its key and then for its own. At most 131,072 operations wait (in a Cluster for
/// each master), at most 16,384 for one partition, and at most 8,192 on one key; a further operation gets
/// [`StoreError::Overloaded`] at once. In an outage a call waits for at most one deadline, and
/// all calls after it get their error at once until Redis answers again.
///
/// ```no_run
/// use std::sync::Arc;
/// use tidegate::{Policy, Redis, RedisOptions, Resolved};
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
    queue: Arc<Queue>,
    /// `None` for a store without a clock, which asks Redis for each operation.
    node: Option<Arc<Node>>,
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("options", &self.shared.options).finish_non_exhaustive()
    }
}

impl Redis {
    /// A store in the Redis at `url`: one server (`redis://HOST:PORT`), a Cluster by some of its nodes
    /// (`redis+cluster://HOST:PORT,HOST:PORT`), or the master that sentinels name
    /// (`redis+sentinel://HOST:PORT,HOST:PORT/MASTER`); with `rediss` in place of `redis` over TLS, by the feature `tls`.
    ///
    /// The store reads the files for TLS now, and connects at the first operation. It connects again when a connection
    /// is lost, when two questions in a row get no answer, or when the server takes no writes.
    ///
    /// # Errors
    /// Returns [`StoreError::Address`] if the URL is not one of a Redis, and [`StoreError::Tls`] if a file for TLS
    /// cannot be used.
    pub fn new(url: &str, mut options: RedisOptions) -> Result<Self, StoreError> {
        options.deadline = options.deadline.min(LONGEST_DEADLINE);
        let servers = Servers::new(url, &options)?;
        let seed = RandomState::new().hash_one(url); // random keys of the standard library
        let node = options.clock.map(|_| Arc::new(Node::new()));
        let overloaded = AtomicU64::new(0);
        let number =
            BuildHasherDefault::<DefaultHasher>::default().hash_one((url, &options.prefix));
        let presence = Presence::default();
        let shared = Arc::new(Shared {
            servers,
            options,
            seed,
            number,
            overloaded,
            runs_across: AtomicBool::new(true),
            presence,
        });
        let queue = Arc::new(Queue::new(Arc::clone(&shared)));
        Ok(Self { shared, queue, node })
    }

    /// The address to show to people: `…` stands in place of the user, the password and the query. `…` is all of it if
    /// [`new`](Self::new) refuses the address, because a password may then be anywhere in it.
    ///
    /// ```
    /// use tidegate::Redis;
    ///
    /// assert_eq!(Redis::without_password("redis://user:secret@h:6379/2"), "redis://…@h:6379/2");
    /// assert_eq!(Redis::without_password("redis://h/secret"), "…");
    /// ```
    #[must_use]
    pub fn without_password(url: &str) -> String {
        without_password(url)
    }

    /// Asks Redis whether it answers.
    ///
    /// # Errors
    /// Returns [`StoreError::Redis`] or [`StoreError::Deadline`] if Redis does not answer.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.shared.servers.ping(0).await
    }

    /// Announces this host to the others: see [`Store::announce`](crate::Store::announce).
    pub fn announce(&self) {
        announce(&self.shared);
    }

    /// The number of hosts that were last seen on this Redis, this one included; `None` before this host has
    /// [announced](Self::announce) itself.
    #[must_use]
    pub fn hosts(&self) -> Option<u64> {
        self.shared.presence.nodes()
    }

    /// Why Redis does not count this host; `None` if it does, and in an outage, because the last count holds until its end.
    #[must_use]
    pub fn uncounted(&self) -> Option<StoreError> {
        self.shared.presence.uncounted()
    }

    /// What this host has answered without asking Redis; `None` if it may not.
    #[must_use]
    pub fn local_answers(&self) -> Option<Counts> {
        self.node.as_ref().map(|node| node.answers())
    }

    /// Gives back the units that this host took in advance, once it has no more requests. Returns how many units went back; those
    /// whose fate is unknown do not count.
    pub async fn give_back(&self) -> u64 {
        match (&self.node, self.shared.options.clock) {
            (Some(node), Some(clock)) => node.give_back(&self.queue, clock).await,
            _ => 0,
        }
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
        self.ask(resolved, now, operation.into()).await.verdict
    }

    /// Does the same, and says why Redis did not decide if this host has decided by its share.
    pub(crate) async fn ask(
        &self,
        resolved: &Resolved,
        now: Timestamp,
        operation: Operation,
    ) -> Told {
        if resolved.policy().on_error() == OnError::Local {
            self.announce();
        }
        if let Rule::Listed(decision) = resolved.rule() {
            return Ok(Verdict::listed(now, decision)).into();
        }
        match &self.node {
            Some(node) if resolved.policy().lets_nodes_answer() => {
                self.ask_as_node(node, resolved, now, operation).await
            }
            _ => self.answer(self.queue.begin(resolved, now, operation), resolved).await,
        }
    }

    /// Answers by itself what the policy allows a node to answer, and asks Redis otherwise.
    async fn ask_as_node(
        &self,
        node: &Arc<Node>,
        resolved: &Resolved,
        now: Timestamp,
        operation: Operation,
    ) -> Told {
        let Step { answer, own, sent, starts_reporter } = node.ask(resolved, now, &operation);
        let asked = match answer {
            Some(answer) => Err(answer),
            None => Ok(self.queue.begin(resolved, now, operation)),
        };
        node.transmit(&self.queue, own, now, sent);
        if starts_reporter && let Some(clock) = self.shared.options.clock {
            node.report_later(&self.queue, clock);
        }
        let told = match asked {
            Ok(asked) => self.answer(asked, resolved).await,
            Err(answer) => return Ok(answer.verdict()).into(),
        };
        if let Ok(verdict) = &told.verdict
            && !verdict.degraded
        {
            node.handle_verdict(resolved, &operation, verdict, sent);
        }
        told
    }

    async fn answer(&self, answer: oneshot::Receiver<Answer>, resolved: &Resolved) -> Told {
        // the driver answers every question in time; it goes away only with its runtime
        let Ok((answer, cause)) = answer.await else { return Err(StoreError::Abandoned).into() };
        let error = |failure| self.error(failure, resolved);
        Told { verdict: answer.map_err(error), cause: cause.map(error) }
    }

    fn error(&self, failure: Failure<StoreError>, resolved: &Resolved) -> StoreError {
        match failure {
            Failure::Transaction(error) => error.into(),
            Failure::TooLate => StoreError::Deadline {
                within: self.shared.options.deadline * MOST_DEADLINES,
                server: None,
            },
            Failure::Contended => StoreError::Contended(self.shared.options.deadline),
            Failure::Overloaded { most } => {
                StoreError::Overloaded { key: resolved.key().to_owned(), most }
            }
            Failure::Store(error) => error,
        }
    }

    /// Returns the stored bytes of each record of a key, or `None` for a record that is not stored.
    ///
    /// # Errors
    /// Returns a [`StoreError`] if Redis cannot be asked.
    pub async fn blobs(&self, resolved: &Resolved) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let names = self.names_when_written(resolved).await;
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let names: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
        let found = self.shared.get(&names).await?;
        let found: Result<_, _> = found.into_iter().collect();
        found.map_err(|error| unreadable(&names, A_STATE, error))
    }

    /// Deletes all stored records of a key, including those that it shares with other keys.
    ///
    /// # Errors
    /// Returns a [`StoreError`] if Redis cannot be asked.
    pub async fn forget(&self, resolved: &Resolved) -> Result<(), StoreError> {
        let names = self.names_when_written(resolved).await;
        if names.is_empty() {
            return Ok(());
        }
        let unlink = Cmd::unlink(&names);
        let sent = self.shared.servers.send(&[(self.shared.slot_of_all(&names), &unlink)]).await;
        for answer in sent {
            answer?.extract_error()?;
        }
        Ok(())
    }

    /// The number of operations that got [`StoreError::Overloaded`].
    #[must_use]
    pub fn overloaded(&self) -> u64 {
        self.shared.overloaded.load(Ordering::Relaxed)
    }

    /// Waits until all earlier operations on the key's partition are written, then returns the names of the
    /// key's records.
    async fn names_when_written(&self, resolved: &Resolved) -> Vec<String> {
        let mut transaction = Transaction::default();
        transaction.join(resolved);
        let names: Vec<_> =
            transaction.names().map(|name| self.shared.options.prefix.clone() + name).collect();
        if !names.is_empty() {
            // a look waits for the writes before it; its time would mislead the node
            let looked = self.queue.begin(resolved, Timestamp::EPOCH, Operation::from(0));
            let _ = self.answer(looked, resolved).await;
        }
        names
    }
}
