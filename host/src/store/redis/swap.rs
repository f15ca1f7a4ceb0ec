//! One call of the script that compares and swaps the states of some partitions.

use std::sync::LazyLock;
use std::sync::atomic::Ordering;

use futures_util::future::join_all;
use redis::{Arg, Cmd, ErrorKind, RedisError, Script, ServerErrorKind, Value};
use tidegate_tier::Authority;
use tidegate_tier::authority::{Swap, SwapOutcome};

use super::options::RedisOptions;
use super::shared::{Shared, Token, is_of_another_type};
use crate::store::error::StoreError;

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(SOURCE));

static ACROSS: LazyLock<Script> = LazyLock::new(|| Script::new(ACROSS_SOURCE));

const SOURCE: &str = include_str!("swap.lua");

/// The same for names of several slots.
const ACROSS_SOURCE: &str = concat!(include_str!("across.lua"), include_str!("swap.lua"));

/// The type of Redis that states have.
pub(super) const A_STATE: &str = "a string";

/// The arguments before the names: the command, the script and the number of names.
const BEFORE_NAMES: usize = 3;

/// The values for each name.
const VALUES: usize = 3;

/// One swap. It is one call of the script; in a Cluster it is one for each master, or for each slot where a master does not run
/// scripts over several slots.
pub(super) struct Call {
    parts: Vec<Part>,
    /// The outcome of each partition of the swap, as far as it is known.
    outcomes: Vec<SwapOutcome<StoreError>>,
}

/// What became of a call.
pub(super) struct Made {
    /// The outcome of each partition.
    pub(super) outcomes: Vec<SwapOutcome<StoreError>>,
    /// The partitions that a call over several slots could not do, and did not write.
    pub(super) again: Vec<usize>,
}

/// Partitions of one slot, or of several slots of one master.
struct Group {
    slot: u16,
    /// The number of the master; 0 if it is unknown, or if each slot has a call of its own.
    master: u64,
    is_across: bool,
    indices: Vec<usize>,
}

/// One call of the script. `swap.lua` says what its arguments mean.
struct Part {
    /// The slot of its first partition, which leads to the master.
    slot: u16,
    /// Whether it has names of several slots, as `across.lua` says.
    is_across: bool,
    command: Cmd,
    names: usize,
    /// The number of records of each partition.
    partitions: Vec<usize>,
    /// Which partitions of the swap they are.
    indices: Vec<usize>,
}

impl Call {
    pub(super) fn new(
        shared: &Shared,
        authority: &mut Authority<Token, StoreError>,
        swap: &Swap,
    ) -> Self {
        let runs_across = shared.runs_across.load(Ordering::Relaxed);
        let outcomes = vec![SwapOutcome::Failed(StoreError::Abandoned); swap.len()];
        Self::of(shared, (authority, swap), (0..swap.len(), runs_across), outcomes)
    }

    /// The calls by slot that repeat what calls over several slots could not do. A partition that is done again was not written,
    /// and the new call compares its records anew, so nothing is granted twice.
    pub(super) fn again(
        shared: &Shared,
        authority: &mut Authority<Token, StoreError>,
        (swap, made): (&Swap, Made),
    ) -> Self {
        Self::of(shared, (authority, swap), (made.again, false), made.outcomes)
    }

    fn of(
        shared: &Shared,
        (authority, swap): (&mut Authority<Token, StoreError>, &Swap),
        (partitions, runs_across): (impl IntoIterator<Item = usize>, bool),
        outcomes: Vec<SwapOutcome<StoreError>>,
    ) -> Self {
        let mut groups: Vec<Group> = Vec::new();
        for partition in partitions {
            let first = authority.records(swap, partition).next();
            let slot = first.map_or(0, |record| shared.slot(record.name));
            let master = if runs_across { shared.servers.number(slot) } else { 0 };
            let fits =
                |group: &&mut Group| group.slot == slot || (master != 0 && group.master == master);
            match groups.iter_mut().find(fits) {
                Some(group) => {
                    group.is_across |= group.slot != slot;
                    group.indices.push(partition);
                }
                None => {
                    let indices = vec![partition];
                    groups.push(Group { slot, master, is_across: false, indices });
                }
            }
        }
        let part = |group| Part::new(&shared.options, authority, swap, group);
        Self { parts: groups.into_iter().map(part).collect(), outcomes }
    }

    /// Calls the script, and returns the outcome of each partition, or an error if the server does not answer.
    pub(super) async fn make(mut self, shared: &Shared) -> Result<Made, StoreError> {
        let told = self.send(shared).await;
        let ended = self.parts.iter().zip(told).map(|(part, told)| part.end(shared, told));
        let ended = join_all(ended).await;
        if let Some(Err(error)) = ended.first()
            && ended.iter().all(Result::is_err)
            && (!shared.servers.are_cluster() || is_silence(error))
        {
            return Err(error.clone());
        }
        let mut again = Vec::new();
        for (part, ended) in self.parts.iter().zip(ended) {
            let all = match ended {
                Ok(all) => all,
                Err(error) => vec![SwapOutcome::Failed(error); part.indices.len()],
            };
            for (index, outcome) in part.indices.iter().zip(all) {
                if part.is_across && is_refused(&outcome) {
                    again.push(*index);
                }
                if let Some(place) = self.outcomes.get_mut(*index) {
                    *place = outcome;
                }
            }
        }
        Ok(Made { outcomes: self.outcomes, again })
    }

    /// Sends all parts. What met a server that does not know the script is sent again, with the script.
    async fn send(&self, shared: &Shared) -> Vec<Result<Value, StoreError>> {
        let commands: Vec<_> = self.parts.iter().map(|part| (part.slot, &part.command)).collect();
        let mut told = shared.servers.send(&commands).await;
        let is_unknown = |told: &Result<Value, StoreError>| matches!(told, Ok(Value::ServerError(error)) if error.kind() == Some(ServerErrorKind::NoScript));
        let unknown: Vec<usize> =
            (0..told.len()).filter(|n| told.get(*n).is_some_and(is_unknown)).collect();
        if unknown.is_empty() {
            return told;
        }
        let parts = unknown.iter().filter_map(|n| self.parts.get(*n));
        let whole: Vec<_> = parts.map(|part| (part.slot, part.with_script())).collect();
        let commands: Vec<_> = whole.iter().map(|(slot, command)| (*slot, command)).collect();
        for (n, again) in unknown.into_iter().zip(shared.servers.send(&commands).await) {
            if let Some(told) = told.get_mut(n) {
                *told = again;
            }
        }
        told
    }
}

impl Part {
    fn new(
        options: &RedisOptions,
        authority: &mut Authority<Token, StoreError>,
        swap: &Swap,
        Group { slot, is_across, indices, .. }: Group,
    ) -> Self {
        let partitions: Vec<usize> =
            indices.iter().map(|index| authority.records(swap, *index).count()).collect();
        let names = partitions.iter().sum();
        let script = if is_across { &ACROSS } else { &SCRIPT };
        let mut command = begin("EVALSHA", script.get_hash(), names, is_across);
        for index in &indices {
            for record in authority.records(swap, *index) {
                match options.prefix.as_str() {
                    "" => command.arg(record.name),
                    prefix => command.arg(prefix.to_owned() + record.name),
                };
            }
        }
        for index in &indices {
            for record in authority.records(swap, *index) {
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
        Self { slot, is_across, command, names, partitions, indices }
    }

    /// The same call with the script itself.
    fn with_script(&self) -> Cmd {
        let source = if self.is_across { ACROSS_SOURCE } else { SOURCE };
        let mut whole = begin("EVAL", source, self.names, self.is_across);
        self.names_and_rest().for_each(|argument| _ = whole.arg(argument));
        whole
    }

    /// The outcome of each partition, or why there is none.
    async fn end(
        &self,
        shared: &Shared,
        told: Result<Value, StoreError>,
    ) -> Result<Vec<SwapOutcome<StoreError>>, StoreError> {
        match told {
            Ok(told) => self.outcomes(shared, told),
            Err(StoreError::Redis(error)) if error.is_connection_dropped() => {
                self.read(shared, error).await
            }
            Err(error) => Err(error),
        }
    }

    /// The names, and what follows them.
    fn names_and_rest(&self) -> impl Iterator<Item = &[u8]> {
        let before = BEFORE_NAMES + usize::from(self.is_across);
        self.command.args_iter().skip(before).map(|argument| match argument {
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
        let names: Vec<&[u8]> = self.names_and_rest().take(self.names).collect();
        let found = shared.get(&names).await?;
        let expected = self.names_and_rest().skip(self.names).step_by(VALUES);
        let mut found = found.into_iter().zip(expected);
        let mut names = names.iter().copied();
        let outcome = |records: &usize| {
            let own: Vec<&[u8]> = names.by_ref().take(*records).collect();
            let (mut bytes, mut is_unwritten) = (Vec::with_capacity(*records), true);
            let mut other_type = None;
            for (found, expected) in found.by_ref().take(*records) {
                match found {
                    Ok(found) => {
                        is_unwritten &= found.as_deref().unwrap_or_default() == expected;
                        bytes.push(found);
                    }
                    Err(error) => other_type = Some(error),
                }
            }
            match other_type {
                Some(error) => SwapOutcome::Unreadable(unreadable(&own, A_STATE, error)),
                None if is_unwritten => SwapOutcome::Found(bytes),
                None => SwapOutcome::Refused(bytes, error.clone().into()),
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
                let mut names = self.names_and_rest().take(self.names);
                let each = told.into_iter().zip(&self.partitions).map(|(told, records)| {
                    let own: Vec<&[u8]> = names.by_ref().take(*records).collect();
                    self.outcome(shared, told, &own)
                });
                Ok(each.collect())
            }
            Value::ServerError(error) => {
                let error = RedisError::from(error);
                self.doubt(shared, &error);
                // the bare code `ERR` means that the server refuses the script: Redis 6.2 knows no flags
                if self.is_across && error.code() == Some("ERR") {
                    shared.runs_across.store(false, Ordering::Relaxed);
                }
                Err(error.into())
            }
            _ => Err(unexpected().into()),
        }
    }

    /// Goes by this error of the master, unless the same is asked again by slot.
    fn doubt(&self, shared: &Shared, error: &RedisError) {
        if !self.is_across {
            shared.servers.doubt(self.slot, error);
        }
    }

    fn outcome(&self, shared: &Shared, told: Value, names: &[&[u8]]) -> SwapOutcome<StoreError> {
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
                Value::ServerError(server) if error.is_none() => {
                    error = Some(RedisError::from(server))
                }
                _ => return SwapOutcome::Failed(unexpected().into()),
            }
        }
        if let Some(error) = &error {
            self.doubt(shared, error);
        }
        match error {
            None if found.len() == records => SwapOutcome::Found(found),
            Some(error) if found.len() == records => SwapOutcome::Refused(found, error.into()),
            Some(error) if is_of_another_type(&error) => {
                SwapOutcome::Unreadable(unreadable(names, A_STATE, error))
            }
            Some(error) => SwapOutcome::Failed(error.into()),
            None => SwapOutcome::Failed(unexpected().into()),
        }
    }
}

/// The error that one of these names holds another type.
pub(super) fn unreadable(names: &[&[u8]], expected: &'static str, error: RedisError) -> StoreError {
    let names = names.iter().map(|name| String::from_utf8_lossy(name).into_owned());
    StoreError::Unreadable { names: names.collect(), expected, error }
}

/// Whether a server has said that it did not do this.
fn is_refused(outcome: &SwapOutcome<StoreError>) -> bool {
    match outcome {
        SwapOutcome::Failed(StoreError::Redis(error))
        | SwapOutcome::Refused(_, StoreError::Redis(error)) => error.code().is_some(),
        SwapOutcome::Unreadable(_) => true,
        _ => false,
    }
}

/// Whether a server has said nothing, so that it will say nothing to others either.
fn is_silence(error: &StoreError) -> bool {
    match error {
        StoreError::Deadline { .. } => true,
        StoreError::Redis(error) => error.is_io_error() || error.is_unrecoverable_error(),
        _ => false,
    }
}

fn begin(command: &str, script: &str, names: usize, is_across: bool) -> Cmd {
    let mut command = redis::cmd(command);
    command.arg(script);
    if is_across {
        command.arg(0); // the names are values
    }
    command.arg(names);
    command
}

fn unexpected() -> RedisError {
    RedisError::from((ErrorKind::UnexpectedReturnType, "the script returned something else"))
}
