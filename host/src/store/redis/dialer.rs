//! Connects to a Redis, over TLS or without it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo,
    RedisError, RedisResult,
};
use tokio::task::JoinSet;

use super::named::with_address;
use super::options::RedisTls;
#[cfg(feature = "tls")]
use super::tls::Tls;
use crate::store::error::StoreError;

/// How the store connects to each of its servers.
#[derive(Clone)]
pub(super) struct Dialer {
    tcp: TcpSettings,
    pub(super) deadline: Duration,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
}

/// An open connection.
#[derive(Clone)]
pub(super) struct Open {
    pub(super) connection: MultiplexedConnection,
    /// The task that reads and writes, unless the connection has it. It ends when this is dropped.
    pub(super) _driver: Option<Arc<JoinSet<()>>>,
}

impl Dialer {
    /// Reads the files for TLS.
    pub(super) fn new(
        is_tls: bool,
        files: &RedisTls,
        (deadline, most_missed): (Duration, u32),
    ) -> Result<Self, StoreError> {
        if !is_tls && *files != RedisTls::default() {
            return Err(StoreError::Address(
                "expected `rediss://HOST:PORT`, because files for TLS are named, found an address without TLS"
                    .to_owned(),
            ));
        }
        Ok(Self {
            tcp: tcp_settings(deadline * most_missed),
            deadline,
            #[cfg(feature = "tls")]
            tls: if is_tls { Some(Tls::new(files)?) } else { None },
        })
    }

    /// Says in `in_handshake` whether the server was reached and TLS is being agreed upon. Errors name the server.
    pub(super) async fn connect(
        &self,
        server: &ConnectionAddr,
        login: &RedisConnectionInfo,
        in_handshake: &AtomicBool,
    ) -> RedisResult<Open> {
        let opened = self.open(server, login, in_handshake).await;
        opened.map_err(|error| with_address(error, server))
    }

    async fn open(
        &self,
        server: &ConnectionAddr,
        login: &RedisConnectionInfo,
        in_handshake: &AtomicBool,
    ) -> RedisResult<Open> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.deadline))
            .set_response_timeout(None); // each question has a deadline of its own
        let info = server.clone().into_connection_info()?;
        let info = info.set_redis_settings(login.clone()).set_tcp_settings(self.tcp.clone());
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return tls.connect(&info, self.deadline, config, in_handshake).await;
        }
        let _ = in_handshake;
        let client = Client::open(info)?;
        let opened = client.get_multiplexed_async_connection_with_config(&config).await;
        let connection = opened.map_err(|error| match error.is_timeout() {
            true => late(format!("no connection within {:?}", self.deadline)),
            false => error,
        })?;
        Ok(Open { connection, _driver: None })
    }
}

/// With these settings the kernel ends a connection whose peer is gone, even while the connection is idle.
fn tcp_settings(patience: Duration) -> TcpSettings {
    let probes = TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(5));
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(probes);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(patience.max(Duration::from_secs(1)));
    #[cfg(not(target_os = "linux"))]
    let _ = patience;
    settings
}

/// A Redis that does not speak TLS waits for the rest of a command, and says nothing.
pub(super) fn no_handshake(deadline: Duration) -> RedisError {
    late(format!(
        "TLS: no answer to the handshake within {deadline:?}: the server may not speak TLS at this port"
    ))
}

fn late(told: String) -> RedisError {
    io::Error::new(io::ErrorKind::TimedOut, told).into()
}
