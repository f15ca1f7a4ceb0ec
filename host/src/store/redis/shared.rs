//! What the driver shares with the callers.

use std::sync::atomic::{AtomicBool, AtomicU64};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, Value, from_redis_value};
use tidegate_gate::{Resolved, Verdict, blob};
use tidegate_tier::authority::Failure;
use tokio::sync::oneshot;

use super::cluster::slot_of;
use super::named::with_address;
use super::options::RedisOptions;
use super::presence::Presence;
use super::servers::Servers;
use crate::store::error::StoreError;

/// An operation that has waited for this many deadlines is not begun any more.
pub(super) const MOST_DEADLINES: u32 = 16;

/// Where an answer goes.
pub(super) type Token = oneshot::Sender<Answer>;

/// A verdict or why there is none, and why Redis did not decide if this host has decided by its share.
pub(super) type Answer = (Result<Verdict, Failure<StoreError>>, Option<Failure<StoreError>>);

/// What the driver shares with the callers.
pub(super) struct Shared {
    pub(super) servers: Servers,
    pub(super) options: RedisOptions,
    /// The seed of the driver's hash table.
    pub(super) seed: u64,
    /// The number of the store among those of the process: the same for each that has this address and prefix.
    pub(super) number: u64,
    /// The number of operations that were not begun, by the count of the authorities.
    pub(super) overloaded: AtomicU64,
    /// Whether the masters of a Cluster run scripts over several slots, as far as is known.
    pub(super) runs_across: AtomicBool,
    pub(super) presence: Presence,
}

impl Shared {
    /// The slot of a record's name.
    pub(super) fn slot(&self, name: &str) -> u16 {
        match (self.servers.are_cluster(), self.options.prefix.as_str()) {
            (false, _) => 0,
            (true, "") => self.servers.slot(name),
            (true, prefix) => self.servers.slot(&(prefix.to_owned() + name)),
        }
    }

    /// The slot of these names of one partition, with their prefix.
    pub(super) fn slot_of_all(&self, names: &[String]) -> u16 {
        names.first().map_or(0, |name| self.servers.slot(name))
    }

    /// The number of the server that has the records of this key.
    pub(super) fn server(&self, resolved: &Resolved) -> u64 {
        match self.servers.are_cluster() {
            true => self
                .servers
                .number(self.slot(&blob::partition_name(resolved.policy(), resolved.key()))),
            false => 0,
        }
    }

    /// Reads what is stored under these names. It does not use `MGET`: that reads a value that is not a
    /// string as missing, and the store would overwrite it.
    pub(super) async fn get(&self, names: &[&[u8]]) -> Result<Vec<Stored>, StoreError> {
        match &self.servers {
            Servers::One(connection) => {
                let mut pipeline = Pipeline::new();
                names.iter().for_each(|name| _ = pipeline.get(name));
                let pipeline = &*pipeline.ignore_errors();
                let read = |mut to: MultiplexedConnection| async move {
                    let all: Vec<Value> = pipeline.query_async(&mut to).await?;
                    all.into_iter().map(stored).collect()
                };
                let found: Vec<Stored> = connection.read(read).await?;
                let named = |error| with_address(error, &connection.server);
                Ok(found.into_iter().map(|stored| stored.map_err(named)).collect())
            }
            Servers::Cluster(_) => {
                let get = |name: &&[u8]| (slot_of(name), Cmd::get(*name));
                let commands: Vec<(u16, Cmd)> = names.iter().map(get).collect();
                match self.read(&commands).await {
                    // a node that lost its connection is asked again, or the one that has the slot now
                    Err(StoreError::Redis(error)) if error.is_connection_dropped() => {
                        self.read(&commands).await
                    }
                    answer => answer,
                }
            }
        }
    }

    async fn read(&self, commands: &[(u16, Cmd)]) -> Result<Vec<Stored>, StoreError> {
        let commands: Vec<_> = commands.iter().map(|(slot, command)| (*slot, command)).collect();
        let answers = self.servers.send(&commands).await;
        answers.into_iter().map(|answer| Ok(stored(answer?)?)).collect()
    }
}

/// What is stored under a name, or what Redis says if that is of another type than states have.
pub(super) type Stored = Result<Option<Vec<u8>>, RedisError>;

fn stored(answer: Value) -> Result<Stored, RedisError> {
    match answer.extract_error() {
        Ok(value) => Ok(Ok(from_redis_value(value)?)),
        Err(error) if is_of_another_type(&error) => Ok(Err(error)),
        Err(error) => Err(error),
    }
}

pub(super) fn is_of_another_type(error: &RedisError) -> bool {
    error.code() == Some("WRONGTYPE")
}
