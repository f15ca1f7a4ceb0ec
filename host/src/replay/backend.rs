//! The four backends, on which the same core decides.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::future::try_join_all;
use serde_json::json;
use tidegate_gate::{Limits, Micros, Policies, Policy, Resolved, Timestamp, blob};

use super::decision::DecisionForm;
use super::trace::Event;
use super::wasmtime::Guest;
use super::worker::Worker;
use crate::local::{RedisServer, Workerd, WorkerdOptions};
use crate::store::{Memory, Redis, RedisOptions, RedisTls};

/// The bound on the states of a policy in memory. It is larger than the states of any trace that is replayed
/// here.
const MAX_BYTES: usize = 8 << 30;
/// How much longer Redis keeps states. A replay runs faster or slower than its trace, so Redis cannot know
/// when a state has expired.
const TTL_MARGIN: Micros = Micros(3_600_000_000);

/// A kind of backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[expect(missing_docs, reason = "the names say it")]
pub enum BackendKind {
    Memory,
    Redis,
    Wasmtime,
    Worker,
}

impl BackendKind {
    /// All kinds of backends.
    pub const ALL: [Self; 4] = [Self::Memory, Self::Redis, Self::Wasmtime, Self::Worker];
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Memory => "memory",
            Self::Redis => "redis",
            Self::Wasmtime => "wasmtime",
            Self::Worker => "worker",
        })
    }
}

/// The policies and servers of a replay. It starts a server for each backend that it needs and that is not
/// named here.
#[derive(Clone, Debug, Default)]
pub struct Target {
    /// The text of the policy file.
    pub policies: String,
    /// The URL of a Redis.
    pub redis: Option<String>,
    /// The files of that Redis, if its URL is one of TLS.
    pub redis_tls: RedisTls,
    /// The URL of a Worker that has these policies and decides at the times given to it.
    pub worker: Option<String>,
    /// The token of that Worker.
    pub token: Option<String>,
}

/// A backend that decides on the events of a trace, beginning without states.
#[derive(Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Backend {
    Memory(BTreeMap<String, Memory>),
    Redis(Box<RedisReplay>),
    Wasmtime(Box<Guest>),
    Worker(Worker),
}

/// A Redis store under its own prefix, and the keys that it has written.
#[derive(Debug)]
pub struct RedisReplay {
    store: Redis,
    written: HashMap<(String, String), Resolved>,
    /// The Redis that the replay started.
    server: Option<RedisServer>,
}

impl Backend {
    /// Starts a backend.
    ///
    /// # Errors
    /// Returns an error if a server cannot be started or reached.
    pub async fn start(kind: BackendKind, policies: &Policies, target: &Target) -> Result<Self> {
        Ok(match kind {
            BackendKind::Memory => {
                let table = |policy: &Arc<Policy>| {
                    Ok((policy.name().to_owned(), Memory::new(policy.clone(), MAX_BYTES)?))
                };
                Self::Memory(policies.all().iter().map(table).collect::<Result<_>>()?)
            }
            BackendKind::Redis => Self::Redis(Box::new(RedisReplay::start(target).await?)),
            BackendKind::Wasmtime => Self::Wasmtime(Box::new(Guest::start()?)),
            BackendKind::Worker => Self::Worker(match &target.worker {
                Some(url) => Worker::at(policies, url.clone(), target.token.clone(), None)?,
                None => {
                    let token = target.token.clone().unwrap_or_else(|| "replay".to_owned());
                    let server = Workerd::start(&WorkerdOptions {
                        policies: target.policies.clone(),
                        token: Some(token.clone()),
                        trust_caller_time: true,
                        ..WorkerdOptions::default()
                    })?;
                    let url = server.url().to_owned();
                    Worker::at(policies, url, Some(token), Some(server))?
                }
            }),
        })
    }

    /// Does the operations of the events and returns their decisions. Operations on one key are done in
    /// their order.
    ///
    /// # Errors
    /// Returns an error if the backend does not answer one of the operations.
    pub async fn decide(&mut self, events: &[Event]) -> Result<Vec<DecisionForm>> {
        match self {
            Self::Memory(tables) => events
                .iter()
                .map(|Event { asked, at, .. }| {
                    let resolved = asked.resolved();
                    let table = tables.get(resolved.policy().name()).context("no such policy")?;
                    let verdict = table.operate(resolved, *at, asked.operation())?;
                    Ok(asked.said(verdict).decision.into())
                })
                .collect(),
            Self::Redis(redis) => redis.decide(events).await,
            Self::Wasmtime(guest) => events
                .iter()
                .map(|Event { asked, at, .. }| {
                    let verdict = guest.operate(asked.resolved(), *at, &asked.operation())?;
                    Ok(asked.said(verdict).decision.into())
                })
                .collect(),
            Self::Worker(worker) => worker.decide(events),
        }
    }

    /// Describes the state of an event's key, for people.
    ///
    /// # Errors
    /// Returns an error if the backend cannot be asked, or stores bytes that are not a state.
    pub async fn state(&mut self, event: &Event) -> Result<String> {
        let resolved = event.asked.resolved();
        let stored = match self {
            Self::Memory(tables) => {
                let table = tables.get(resolved.policy().name());
                let words = table.and_then(|table| table.words(&event.key));
                return Ok(words.map_or("none".into(), |words| format!("words {words:?}")));
            }
            Self::Wasmtime(guest) => guest.blobs(resolved),
            Self::Redis(redis) => redis.store.blobs(resolved).await?,
            Self::Worker(worker) => {
                let peek = Event { ask: json!({ "peek": { "cost": 0 } }), ..event.clone() };
                return Ok(format!("at the event {:?}", worker.decide(&[peek])?));
            }
        };
        let mut words = Vec::new();
        let records = resolved.limits().into_iter().flat_map(Limits::records);
        for (record, bytes) in records.zip(stored) {
            match bytes {
                None => words.resize(words.len() + record.words(), 0),
                Some(bytes) => {
                    words.extend(blob::decode(resolved.policy(), record, &bytes, Timestamp::EPOCH)?)
                }
            }
        }
        Ok(format!("words {words:?}"))
    }

    /// Deletes the states that the replay has stored in a Redis that it did not start.
    ///
    /// # Errors
    /// Returns an error if Redis cannot be reached.
    pub async fn clean_up(self) -> Result<()> {
        if let Self::Redis(redis) = self
            && redis.server.is_none()
        {
            for resolved in redis.written.values() {
                redis.store.forget(resolved).await?;
            }
        }
        Ok(())
    }
}

impl RedisReplay {
    async fn start(target: &Target) -> Result<Self> {
        let url = target.redis.as_deref();
        let server = if url.is_none() { Some(RedisServer::start()?) } else { None };
        let url = url.or(server.as_ref().map(RedisServer::url)).unwrap_or_default();
        let started = crate::clock::now().0;
        let options = RedisOptions {
            deadline: Duration::from_secs(10),
            prefix: format!("replay-{}-{started}:", std::process::id()),
            ttl_margin: TTL_MARGIN,
            clock: None, // the trace has the times
            tls: target.redis_tls.clone(),
        };
        let store = Redis::new(url, options).context("--redis")?;
        store.ping().await.context("--redis")?;
        Ok(Self { store, written: HashMap::new(), server })
    }

    async fn decide(&mut self, events: &[Event]) -> Result<Vec<DecisionForm>> {
        for event in events {
            let resolved = event.asked.resolved();
            let name = (resolved.policy().name().to_owned(), resolved.key().to_owned());
            self.written.entry(name).or_insert_with(|| resolved.clone());
        }
        // all at once: the store keeps the order of the operations on one key
        try_join_all(events.iter().map(async |Event { asked, at, .. }| {
            let verdict = self.store.operate(asked.resolved(), *at, asked.operation()).await?;
            Ok(asked.said(verdict).decision.into())
        }))
        .await
    }
}
