//! One call of the script that compares and swaps the states of some homes.

use std::sync::LazyLock;

use redis::{Cmd, ErrorKind, RedisError, Script, ServerErrorKind, Value};
use tidegate_gate::{Micros, Used};
use tidegate_tier::authority::Outcome;

use super::{RedisOptions, Shared};
use crate::store::StoreError;

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(SOURCE));

const SOURCE: &str = include_str!("swap.lua");

/// The arguments of one call. `swap.lua` says what they mean.
#[derive(Default)]
pub(super) struct Call {
    names: Vec<String>,
    expected: Vec<Vec<u8>>,
    becomes: Vec<Vec<u8>>,
    keep_ms: Vec<u64>,
    /// The number of slices of each home.
    homes: Vec<usize>,
}

impl Call {
    /// Adds a home with its slices.
    pub(super) fn add<'s>(
        &mut self,
        options: &RedisOptions,
        slices: impl Iterator<Item = Used<'s>>,
    ) {
        let before = self.names.len();
        for slice in slices {
            self.names.push(options.prefix.clone() + slice.name);
            self.expected.push(slice.found.unwrap_or_default().into());
            self.becomes.push(slice.write.map(|write| write.bytes.into()).unwrap_or_default());
            let needed = slice.write.map_or(0, |write| write.time_to_live.0);
            let keep = Micros(needed.saturating_add(options.keep_longer.0).max(1));
            self.keep_ms.push(keep.as_millis_ceil());
        }
        self.homes.push(self.names.len() - before);
    }

    /// Calls the script, and returns the outcome of each home.
    pub(super) async fn make(
        self,
        shared: &Shared,
    ) -> Result<Vec<Outcome<StoreError>>, StoreError> {
        let told = match self.send(shared, "EVALSHA", SCRIPT.get_hash()).await {
            Ok(Value::ServerError(error)) if error.kind() == Some(ServerErrorKind::NoScript) => {
                self.send(shared, "EVAL", SOURCE).await
            }
            told => told,
        };
        match told {
            Ok(told) => self.outcomes(shared, told),
            // Redis closes connections that are idle for long, and the store learns of it only by asking
            Err(StoreError::Redis(error)) if error.is_connection_dropped() => {
                self.read(shared, error).await
            }
            Err(error) => Err(error),
        }
    }

    async fn send(
        &self,
        shared: &Shared,
        command: &str,
        script: &str,
    ) -> Result<Value, StoreError> {
        let mut cmd = redis::cmd(command);
        cmd.arg(script).arg(self.names.len()).arg(&self.names);
        self.expected.iter().chain(&self.becomes).for_each(|bytes| _ = cmd.arg(bytes.as_slice()));
        self.keep_ms.iter().for_each(|keep| _ = cmd.arg(keep));
        if self.homes.iter().any(|slices| *slices != 1) {
            self.homes.iter().for_each(|slices| _ = cmd.arg(slices));
        }
        let cmd: &Cmd = &cmd;
        shared
            .connection
            .ask(|mut connection| async move { connection.send_packed_command(cmd).await })
            .await
    }

    /// Reads what is stored, after a connection broke. A home whose slices are all as expected is not written,
    /// so its operations can be done again. Otherwise nobody knows who wrote.
    async fn read(
        &self,
        shared: &Shared,
        error: RedisError,
    ) -> Result<Vec<Outcome<StoreError>>, StoreError> {
        let found = shared.get(&self.names).await?;
        let mut found = found.into_iter().zip(&self.expected);
        let outcome = |slices: &usize| {
            let own: Vec<_> = found.by_ref().take(*slices).collect();
            let is_expected = |(found, expected): &(Option<Vec<u8>>, &Vec<u8>)| {
                found.as_deref().unwrap_or_default() == expected.as_slice()
            };
            let is_unwritten = own.iter().all(is_expected);
            let found = own.into_iter().map(|(found, _)| found).collect();
            match is_unwritten {
                true => Outcome::Found(found),
                false => Outcome::Refused(found, error.clone().into()),
            }
        };
        Ok(self.homes.iter().map(outcome).collect())
    }

    fn outcomes(
        &self,
        shared: &Shared,
        told: Value,
    ) -> Result<Vec<Outcome<StoreError>>, StoreError> {
        match told {
            Value::Int(0) => Ok(self.homes.iter().map(|_| Outcome::Swapped).collect()),
            Value::Array(told) if told.len() == self.homes.len() => {
                let each = told.into_iter().zip(&self.homes);
                Ok(each.map(|(told, slices)| outcome(shared, told, *slices)).collect())
            }
            Value::ServerError(error) => {
                let error = RedisError::from(error);
                shared.connection.doubt(&error);
                Err(error.into())
            }
            _ => Err(unexpected().into()),
        }
    }
}

fn outcome(shared: &Shared, told: Value, slices: usize) -> Outcome<StoreError> {
    let told = match told {
        Value::Int(0) => return Outcome::Swapped,
        Value::Array(told) => told,
        _ => return Outcome::Failed(unexpected().into()),
    };
    let (mut error, mut found) = (None, Vec::with_capacity(slices));
    for value in told {
        match value {
            Value::BulkString(bytes) => found.push((!bytes.is_empty()).then_some(bytes)),
            Value::ServerError(server) if error.is_none() => error = Some(RedisError::from(server)),
            _ => return Outcome::Failed(unexpected().into()),
        }
    }
    if let Some(error) = &error {
        shared.connection.doubt(error);
    }
    match error {
        None if found.len() == slices => Outcome::Found(found),
        Some(error) if found.len() == slices => Outcome::Refused(found, error.into()),
        Some(error) => Outcome::Failed(error.into()),
        None => Outcome::Failed(unexpected().into()),
    }
}

fn unexpected() -> RedisError {
    RedisError::from((ErrorKind::UnexpectedReturnType, "the script returned something else"))
}
