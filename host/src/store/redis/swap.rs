//! One call of the script that compares and swaps the states of some partitions.

use std::sync::LazyLock;

use redis::aio::MultiplexedConnection;
use redis::{Arg, Cmd, ErrorKind, RedisError, Script, ServerErrorKind, Value};
use tidegate_tier::Authority;
use tidegate_tier::authority::{Swap, SwapOutcome};

use super::driver::Token;
use super::options::RedisOptions;
use super::shared::Shared;
use crate::store::error::StoreError;

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(SOURCE));

const SOURCE: &str = include_str!("swap.lua");

/// The arguments before the names: the command, the script and the number of names.
const BEFORE_NAMES: usize = 3;

/// The values for each name.
const VALUES: usize = 3;

/// One call. `swap.lua` says what its arguments mean.
pub(super) struct Call {
    command: Cmd,
    names: usize,
    /// The number of records of each partition.
    partitions: Vec<usize>,
}

impl Call {
    pub(super) fn new(
        options: &RedisOptions,
        authority: &mut Authority<Token, StoreError>,
        swap: &Swap,
    ) -> Self {
        let partitions: Vec<usize> =
            (0..swap.len()).map(|partition| authority.records(swap, partition).count()).collect();
        let names = partitions.iter().sum();
        let mut command = begin("EVALSHA", SCRIPT.get_hash(), names);
        for partition in 0..swap.len() {
            for record in authority.records(swap, partition) {
                match options.prefix.as_str() {
                    "" => command.arg(record.name),
                    prefix => command.arg(prefix.to_owned() + record.name),
                };
            }
        }
        for partition in 0..swap.len() {
            for record in authority.records(swap, partition) {
                command.arg(record.found.unwrap_or_default());
                command.arg(record.becomes.unwrap_or_default());
                match record.ttl {
                    Some(ttl) => command.arg(ttl.as_millis_ceil()),
                    None => command.arg(""),
                };
            }
        }
        if partitions.iter().any(|records| *records != 1) {
            partitions.iter().for_each(|records| _ = command.arg(records));
        }
        Self { command, names, partitions }
    }

    /// Calls the script, and returns the outcome of each partition.
    pub(super) async fn make(
        self,
        shared: &Shared,
    ) -> Result<Vec<SwapOutcome<StoreError>>, StoreError> {
        shared.connection.wake().await?;
        let told = match send(shared, &self.command).await {
            Ok(Value::ServerError(error)) if error.kind() == Some(ServerErrorKind::NoScript) => {
                let mut whole = begin("EVAL", SOURCE, self.names);
                self.arguments().skip(BEFORE_NAMES).for_each(|argument| _ = whole.arg(argument));
                send(shared, &whole).await
            }
            told => told,
        };
        match told {
            Ok(told) => self.outcomes(shared, told),
            Err(StoreError::Redis(error)) if error.is_connection_dropped() => {
                self.read(shared, error).await
            }
            Err(error) => Err(error),
        }
    }

    fn arguments(&self) -> impl Iterator<Item = &[u8]> {
        self.command.args_iter().map(|argument| match argument {
            Arg::Simple(bytes) => bytes,
            _ => &[], // never: a cursor is not an argument of a script
        })
    }

    /// Reads what is stored, after a connection broke. A partition whose records are all as expected is not written,
    /// so its operations can be done again. Otherwise nobody knows who wrote.
    async fn read(
        &self,
        shared: &Shared,
        error: RedisError,
    ) -> Result<Vec<SwapOutcome<StoreError>>, StoreError> {
        let names: Vec<&[u8]> = self.arguments().skip(BEFORE_NAMES).take(self.names).collect();
        let found = shared.get(&names).await?;
        let expected = self.arguments().skip(BEFORE_NAMES + self.names).step_by(VALUES);
        let mut found = found.into_iter().zip(expected);
        let outcome = |records: &usize| {
            let own: Vec<_> = found.by_ref().take(*records).collect();
            let is_expected = |(found, expected): &(Option<Vec<u8>>, &[u8])| {
                found.as_deref().unwrap_or_default() == *expected
            };
            let is_unwritten = own.iter().all(is_expected);
            let found = own.into_iter().map(|(found, _)| found).collect();
            match is_unwritten {
                true => SwapOutcome::Found(found),
                false => SwapOutcome::Refused(found, error.clone().into()),
            }
        };
        Ok(self.partitions.iter().map(outcome).collect())
    }

    fn outcomes(
        &self,
        shared: &Shared,
        told: Value,
    ) -> Result<Vec<SwapOutcome<StoreError>>, StoreError> {
        match told {
            Value::Int(0) => Ok(self.partitions.iter().map(|_| SwapOutcome::Swapped).collect()),
            Value::Array(told) if told.len() == self.partitions.len() => {
                let mut names = self.arguments().skip(BEFORE_NAMES).take(self.names);
                let each = told.into_iter().zip(&self.partitions).map(|(told, records)| {
                    let own: Vec<&[u8]> = names.by_ref().take(*records).collect();
                    outcome(shared, told, &own)
                });
                Ok(each.collect())
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

fn begin(command: &str, script: &str, names: usize) -> Cmd {
    let mut command = redis::cmd(command);
    command.arg(script).arg(names);
    command
}

async fn send(shared: &Shared, command: &Cmd) -> Result<Value, StoreError> {
    let ask = |mut to: MultiplexedConnection| async move { to.send_packed_command(command).await };
    shared.connection.ask(ask).await
}

fn outcome(shared: &Shared, told: Value, names: &[&[u8]]) -> SwapOutcome<StoreError> {
    let records = names.len();
    let told = match told {
        Value::Int(0) => return SwapOutcome::Swapped,
        Value::Array(told) => told,
        _ => return SwapOutcome::Failed(unexpected().into()),
    };
    let (mut error, mut found) = (None, Vec::with_capacity(records));
    for value in told {
        match value {
            Value::Nil => found.push(None),
            Value::BulkString(bytes) => found.push(Some(bytes)),
            Value::ServerError(server) if error.is_none() => error = Some(RedisError::from(server)),
            _ => return SwapOutcome::Failed(unexpected().into()),
        }
    }
    if let Some(error) = &error {
        shared.connection.doubt(error);
    }
    match error {
        None if found.len() == records => SwapOutcome::Found(found),
        Some(error) if found.len() == records => SwapOutcome::Refused(found, error.into()),
        Some(error) => {
            let names = names.iter().map(|name| String::from_utf8_lossy(name).into_owned());
            SwapOutcome::Failed(StoreError::Unreadable { names: names.collect(), error })
        }
        None => SwapOutcome::Failed(unexpected().into()),
    }
}

fn unexpected() -> RedisError {
    RedisError::from((ErrorKind::UnexpectedReturnType, "the script returned something else"))
}
