//! What a connection leads to.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use redis::{ConnectionAddr, RedisConnectionInfo, RedisError, RedisResult};

use super::dialer::{Dialer, Open};
use super::sentinel::Sentinels;

/// What a connection leads to, and who asks it.
pub(super) struct Destination {
    pub(super) dialer: Dialer,
    pub(super) login: RedisConnectionInfo,
    pub(super) to: To,
}

pub(super) enum To {
    Server(ConnectionAddr),
    /// Whatever server is the master when the connection opens.
    Master(Sentinels),
}

impl Destination {
    pub(super) async fn connect(&self, in_handshake: &AtomicBool) -> RedisResult<Open> {
        let Self { dialer, login, to } = self;
        match to {
            To::Server(server) => {
                let opened = dialer.connect(server, login, in_handshake).await;
                opened.map_err(|error| with_address(error, server))
            }
            To::Master(sentinels) => sentinels.connect(dialer, login, in_handshake).await,
        }
    }
}

/// The error of the operating system with the address, because a Cluster has several. Other errors say what is wrong themselves.
fn with_address(error: RedisError, server: &ConnectionAddr) -> RedisError {
    let own =
        error.source().and_then(|source| source.downcast_ref::<Arc<dyn Error + Send + Sync>>());
    match own.and_then(|own| own.downcast_ref::<io::Error>()) {
        Some(own) if own.raw_os_error().is_some() => {
            io::Error::new(own.kind(), format!("{own} ({server})")).into()
        }
        _ => error,
    }
}
