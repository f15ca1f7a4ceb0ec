//! Connects to a Redis, over TLS or without it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, RedisError, RedisResult};
use tokio::task::JoinSet;

use super::address::{Address, address};
use super::options::RedisTls;
#[cfg(feature = "tls")]
use super::tls::Tls;
use crate::store::error::StoreError;

/// How the store connects to its Redis.
pub(super) enum Dialer {
    Plain(Client),
    #[cfg(feature = "tls")]
    Tls(Box<Tls>),
}

/// An open connection.
#[derive(Clone)]
pub(super) struct Open {
    pub(super) connection: MultiplexedConnection,
    /// The task that reads and writes, unless the connection has it. It ends when this is dropped.
    pub(super) _driver: Option<Arc<JoinSet<()>>>,
}

impl Dialer {
    pub(super) fn new(url: &str, files: &RedisTls, tcp: TcpSettings) -> Result<Self, StoreError> {
        let Address { info, is_tls } = address(url)?;
        let info = info.set_tcp_settings(tcp);
        if is_tls {
            #[cfg(feature = "tls")]
            return Ok(Self::Tls(Box::new(Tls::new(&info, files)?)));
        } else if *files != RedisTls::default() {
            return Err(StoreError::Address(
                "expected `rediss://HOST:PORT`, because files for TLS are named, found an address without TLS"
                    .to_owned(),
            ));
        }
        Ok(Self::Plain(Client::open(info)?))
    }

    /// Says in `in_handshake` whether the server was reached and TLS is being agreed upon.
    pub(super) async fn connect(
        &self,
        deadline: Duration,
        in_handshake: &AtomicBool,
    ) -> RedisResult<Open> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(deadline))
            .set_response_timeout(None); // each question has a deadline of its own
        #[cfg(not(feature = "tls"))]
        let _ = in_handshake;
        match self {
            Self::Plain(client) => {
                let connection =
                    client.get_multiplexed_async_connection_with_config(&config).await?;
                Ok(Open { connection, _driver: None })
            }
            #[cfg(feature = "tls")]
            Self::Tls(tls) => tls.connect(deadline, config, in_handshake).await,
        }
    }
}

/// A Redis that does not speak TLS waits for the rest of a command, and says nothing.
pub(super) fn no_handshake(deadline: Duration) -> RedisError {
    let told = format!(
        "TLS: no answer to the handshake within {deadline:?}: the server may not speak TLS at this port"
    );
    io::Error::new(io::ErrorKind::TimedOut, told).into()
}
