//! What the driver shares with the callers.

use std::path::PathBuf;
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
    /// The files of a Redis over TLS, whose URL begins with `rediss://`.
    pub tls: RedisTls,
}

/// The files of a Redis over TLS, in PEM. They are read when the store is made.
///
/// The certificate of the server is always verified, and so is its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedisTls {
    /// The certificates of the CAs that the store trusts. `None` for those of the system.
    pub ca: Option<PathBuf>,
    /// What the store shows to a server that demands a certificate.
    pub client: Option<RedisClientFiles>,
}

/// The certificate of a client, and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisClientFiles {
    /// The certificate, followed by those between it and the CA, if there are any.
    pub certificate: PathBuf,
    /// The private key of the certificate, without a password.
    pub key: PathBuf,
}

impl Default for RedisOptions {
    fn default() -> Self {
        let (prefix, ttl_margin) = (String::new(), Micros(10_000_000));
        let (deadline, tls) = (Duration::from_millis(250), RedisTls::default());
        Self { deadline, prefix, ttl_margin, clock: None, tls }
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
