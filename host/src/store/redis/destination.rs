//! What a connection leads to.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use redis::{ConnectionAddr, RedisConnectionInfo, RedisError, RedisResult, Value};

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

/// The answer of a server, in which each error has the address of the server. Errors of a script are in its answer.
pub(super) fn said_by(server: &str, answer: Value) -> Value {
    match answer {
        Value::ServerError(error) => {
            let (code, details) = (error.code(), error.details().unwrap_or_default());
            let said = format!("-{code} {details} ({server})\r\n");
            // an error of this type can only be made by reading it
            redis::parse_redis_value(said.as_bytes()).unwrap_or(Value::ServerError(error))
        }
        Value::Array(all) => {
            Value::Array(all.into_iter().map(|one| said_by(server, one)).collect())
        }
        other => other,
    }
}

/// The error with the address of the server, and of the same kind.
pub(super) fn with_address(error: RedisError, server: &dyn fmt::Display) -> RedisError {
    let own =
        error.source().and_then(|source| source.downcast_ref::<Arc<dyn Error + Send + Sync>>());
    if let Some(own) = own.and_then(|own| own.downcast_ref::<io::Error>()) {
        return io::Error::new(own.kind(), format!("{own} ({server})")).into();
    }
    let said = error.clone().into_server_errors();
    if let Some((_, said)) = said.as_deref().and_then(<[_]>::first) {
        let said = said_by(&server.to_string(), Value::ServerError(said.clone()));
        return said.extract_error().err().unwrap_or(error);
    }
    let kind = error.kind();
    let told = error.to_string().replacen(&format!(" - {kind:?}"), "", 1);
    (kind, "the server cannot be used", format!("{told} ({server})")).into()
}
