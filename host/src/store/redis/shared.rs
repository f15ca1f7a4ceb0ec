//! What the driver shares with the callers.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use redis::ToSingleRedisArg;
use tidegate_gate::{Micros, Timestamp};

use super::connection::Connection;
use crate::store::error::StoreError;

/// An operation that has waited for this many deadlines is not begun any more.
pub(super) const MOST_DEADLINES: u32 = 16;

/// How a [`Redis`](super::Redis) store uses its server.
#[derive(Clone, Debug)]
pub struct RedisOptions {
    /// How long Redis may be silent after a question, connecting included. Time in the store's own queue
    /// does not count, nor does time in which Redis answers earlier questions. An operation that has waited
    /// in the queue for 16 deadlines is not begun. A deadline of more than an hour counts as an hour.
    pub deadline: Duration,
    /// The prefix of every name that the store uses.
    pub prefix: String,
    /// The largest difference between any two clocks of the hosts and of Redis. States are kept this much
    /// longer, because they expire by the clock of Redis while hosts decide by their own clocks.
    pub ttl_margin: Micros,
    /// The clock of this host. An operation is decided at the time that its caller gives. An
    /// operation that has waited for more than half the period of its limits is decided at the time of
    /// this clock, because an older time can turn a key's clock back. Without a clock the caller's time
    /// always counts, and every operation asks Redis, whatever the policy lets nodes answer: replays need both.
    pub clock: Option<fn() -> Timestamp>,
}

impl Default for RedisOptions {
    fn default() -> Self {
        let (prefix, ttl_margin) = (String::new(), Micros(10_000_000));
        Self { deadline: Duration::from_millis(250), prefix, ttl_margin, clock: None }
    }
}

/// What the driver shares with the callers.
pub(super) struct Shared {
    pub(super) connection: Connection,
    pub(super) options: RedisOptions,
    /// The seed of the driver's hash table.
    pub(super) seed: u64,
    /// The number of operations that were not begun, by the count of the authorities.
    pub(super) overloaded: AtomicU64,
}

impl Shared {
    /// Reads what is stored under these names. It does not use `MGET`: that reads a value that is not a
    /// string as missing, and the store would overwrite it.
    pub(super) async fn get(
        &self,
        names: &[impl ToSingleRedisArg],
    ) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
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
