//! What the driver shares with the callers.

use std::sync::atomic::AtomicU64;

use redis::ToSingleRedisArg;

use super::connection::Connection;
use super::options::RedisOptions;
use super::presence::Presence;
use crate::store::error::StoreError;

/// An operation that has waited for this many deadlines is not begun any more.
pub(super) const MOST_DEADLINES: u32 = 16;

/// What the driver shares with the callers.
pub(super) struct Shared {
    pub(super) connection: Connection,
    pub(super) options: RedisOptions,
    /// The seed of the driver's hash table.
    pub(super) seed: u64,
    /// The number of operations that were not begun, by the count of the authorities.
    pub(super) overloaded: AtomicU64,
    pub(super) presence: Presence,
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
