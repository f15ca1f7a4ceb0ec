//! The servers of a store: one Redis, or the masters of a Cluster.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, Cmd, RedisError, ServerErrorKind, Value};

use super::address::{Address, Topology, address};
use super::cluster::{Cluster, slot_of};
use super::connection::{Connection, Destination, MOST_MISSED, To};
use super::dialer::Dialer;
use super::named::said_by;
use super::options::RedisOptions;
use super::sentinel::Sentinels;
use crate::store::error::StoreError;

/// The servers of a store.
pub(super) enum Servers {
    /// One server: that of the URL, or the master that sentinels name.
    One(Connection),
    Cluster(Arc<Cluster>),
}

impl Servers {
    /// The servers at `url`. They are asked at the first question.
    pub(super) fn new(url: &str, options: &RedisOptions) -> Result<Self, StoreError> {
        let Address { topology, servers, login, is_tls } = address(url)?;
        let dialer = Dialer::new(is_tls, &options.tls, (options.deadline, MOST_MISSED))?;
        let to = match topology {
            Topology::Cluster => {
                return Ok(Self::Cluster(Arc::new(Cluster::new(dialer, login, servers))));
            }
            Topology::Sentinel { master, login } => {
                To::Master(Sentinels { servers, login: *login, master })
            }
            Topology::Single => match servers.into_iter().next() {
                Some(server) => To::Server(server),
                None => return Err(StoreError::Address("expected a server".to_owned())), // never
            },
        };
        Ok(Self::One(Connection::new(Destination { dialer, login, to })))
    }

    /// Asks the server of this number whether it answers, or all of them if it is 0.
    pub(super) async fn ping(&self, number: u64) -> Result<(), StoreError> {
        match self {
            Self::One(connection) => {
                connection.ask(|mut connection| async move { connection.ping().await }).await
            }
            Self::Cluster(cluster) => cluster.ping(number).await,
        }
    }

    /// Whether names have slots, and the commands for a slot must be sent to its master.
    pub(super) const fn are_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// The slot of a name; 0 for each name if there is one server.
    pub(super) fn slot(&self, name: &str) -> u16 {
        match self {
            Self::One(_) => 0,
            Self::Cluster(_) => slot_of(name.as_bytes()),
        }
    }

    /// The number of the server that has this slot. It has another number once the slot has moved.
    pub(super) fn number(&self, slot: u16) -> u64 {
        match self {
            Self::One(_) => 0,
            Self::Cluster(cluster) => cluster.number(slot),
        }
    }

    /// Whether there is a server of this number, or may be.
    pub(super) fn has(&self, number: u64) -> bool {
        match self {
            Self::One(_) => true,
            Self::Cluster(cluster) => number == 0 || cluster.has(number),
        }
    }

    /// Sends commands, each with its slot, and returns their answers.
    pub(super) async fn send(&self, commands: &[(u16, &Cmd)]) -> Vec<Result<Value, StoreError>> {
        match self {
            Self::One(connection) => {
                let mut answers = Vec::with_capacity(commands.len());
                for (_, command) in commands {
                    answers.push(send_to(connection, command).await);
                }
                answers
            }
            Self::Cluster(cluster) => cluster.send(commands).await,
        }
    }

    /// Goes by this error of the server that has the slot.
    pub(super) fn doubt(&self, slot: u16, error: &RedisError) {
        match self {
            Self::One(connection) => connection.doubt(error),
            Self::Cluster(cluster) => cluster.doubt(slot, error),
        }
    }
}

async fn send_to(connection: &Connection, command: &Cmd) -> Result<Value, StoreError> {
    connection.wake().await?;
    let ask = |mut to: MultiplexedConnection| async move { to.send_packed_command(command).await };
    let answer = connection.ask(ask).await?;
    match &answer {
        Value::ServerError(error) if error.kind().is_some_and(is_of_cluster) => {
            Err(StoreError::Address(
                "redis: expected one server, found a node of a Cluster: write `redis+cluster://HOST:PORT` instead of \
                 `redis://HOST:PORT`"
                    .to_owned(),
            ))
        }
        _ => Ok(said_by(&connection.server, answer)),
    }
}

/// Whether only a node of a Cluster has this error.
fn is_of_cluster(kind: ServerErrorKind) -> bool {
    use ServerErrorKind::{Ask, ClusterDown, CrossSlot, Moved};
    matches!(kind, Ask | ClusterDown | CrossSlot | Moved)
}
