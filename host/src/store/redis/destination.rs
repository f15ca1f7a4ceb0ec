//! What a connection leads to.

use std::fmt;
use std::sync::atomic::AtomicBool;

use redis::{ConnectionAddr, RedisConnectionInfo, RedisResult};

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
            To::Server(server) => dialer.connect(server, login, in_handshake).await,
            To::Master(sentinels) => sentinels.connect(dialer, login, in_handshake).await,
        }
    }
}

impl fmt::Display for To {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(server) => server.fmt(f),
            Self::Master(sentinels) => write!(f, "the master {:?}", sentinels.master),
        }
    }
}
