//! Errors that name the server which they are about.

use std::error::Error;
use std::sync::Arc;
use std::{fmt, io};

use redis::{RedisError, Value};

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
