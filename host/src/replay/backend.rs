//! The four places where the same core decides.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::future::try_join_all;
use serde_json::json;
use tidegate_gate::http::DecisionForm;
use tidegate_gate::{Limits, Micros, Policies, Policy, Resolved, blob};

use super::trace::Event;
use super::wasmtime::Guest;
use super::worker::Worker;
use crate::local::{RedisServer, Workerd, WorkerdOptions};
use crate::store::{Memory, Redis, RedisOptions};

/// What the states of a policy may take in memory: more than those of any trace that is replayed here.
const MAX_BYTES: usize = 8 << 30;
/// A replay runs at its own speed, so its time says nothing about when a state may be dropped.
const KEEP_LONGER: Micros = Micros(3_600_000_000);

/// Which backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[expect(missing_docs, reason = "the names say it")]
pub enum BackendKind {
    Memory,
    Redis,
    Wasmtime,
    Worker,
}

impl BackendKind {
    /// All of them.
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

/// Where the servers are; without them a replay starts its own.
#[derive(Clone, Debug, Default)]
pub struct Target {
    /// The text of the policy file.
    pub policies: String,
    /// A Redis.
    pub redis: Option<String>,
    /// A Worker with these policies, that honours the times given to it.
    pub worker: Option<String>,
    /// Its token.
    pub token: Option<String>,
}

/// A backend that decides on a trace, starting with no state.
#[derive(Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Backend {
    Memory(BTreeMap<String, Memory>),
    Redis(Box<RedisReplay>),
    Wasmtime(Box<Guest>),
    Worker(Worker),
}

/// A Redis store under a prefix of its own, and what was written there.
#[derive(Debug)]
pub struct RedisReplay {
    store: Redis,
    written: HashMap<(String, String), Resolved>,
    _server: Option<RedisServer>,
}

impl Backend {
    /// Starts a backend.
    ///
    /// # Errors
    /// If a server cannot be started or reached.
    pub async fn start(kind: BackendKind, policies: &Policies, target: &Target) -> Result<Self> {
        Ok(match kind {
            BackendKind::Memory => {
                let table = |policy: &Arc<Policy>| {
                    Ok((policy.name().to_owned(), Memory::new(policy.clone(), MAX_BYTES)?))
                };
                Self::Memory(policies.all().iter().map(table).collect::<Result<_>>()?)
            }
            BackendKind::Redis => {
                Self::Redis(Box::new(RedisReplay::start(target.redis.as_deref()).await?))
            }
            BackendKind::Wasmtime => Self::Wasmtime(Box::new(Guest::start()?)),
            BackendKind::Worker => Self::Worker(match &target.worker {
                Some(url) => Worker::at(policies, url.clone(), target.token.clone(), None)?,
                None => {
                    let token = target.token.clone().unwrap_or_else(|| "replay".to_owned());
                    let server = Workerd::start(&WorkerdOptions {
                        policies: target.policies.clone(),
                        token: Some(token.clone()),
                        trust_caller_time: true,
                        storage: None,
                    })?;
                    let url = server.url().to_owned();
                    Worker::at(policies, url, Some(token), Some(server))?
                }
            }),
        })
    }

    /// Does what the events ask, in their order for each key.
    ///
    /// # Errors
    /// If the backend fails: a replay with holes would be worth nothing.
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

    /// The state of an event's key, for a person to read.
    ///
    /// # Errors
    /// If the backend cannot say.
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
        let parts = resolved.limits().into_iter().flat_map(Limits::parts);
        for (part, bytes) in parts.zip(stored) {
            match bytes {
                None => words.resize(words.len() + part.words(), 0),
                Some(bytes) => words.extend(blob::decode(resolved.policy(), part, &bytes)?),
            }
        }
        Ok(format!("words {words:?}"))
    }

    /// Takes away what the replay left in a server that is not its own.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn clean_up(self) -> Result<()> {
        if let Self::Redis(redis) = self {
            for resolved in redis.written.values() {
                redis.store.forget(resolved).await?;
            }
        }
        Ok(())
    }
}

impl RedisReplay {
    async fn start(url: Option<&str>) -> Result<Self> {
        let server = if url.is_none() { Some(RedisServer::start()?) } else { None };
        let url = url.or(server.as_ref().map(RedisServer::url)).unwrap_or_default();
        let started = crate::clock::now().0;
        let options = RedisOptions {
            deadline: Duration::from_secs(10),
            prefix: format!("replay-{}-{started}:", std::process::id()),
            keep_longer: KEEP_LONGER,
        };
        let store = Redis::new(url, options).context("--redis")?;
        store.ping().await.context("--redis")?;
        Ok(Self { store, written: HashMap::new(), _server: server })
    }

    async fn decide(&mut self, events: &[Event]) -> Result<Vec<DecisionForm>> {
        for event in events {
            let resolved = event.asked.resolved();
            let name = (resolved.policy().name().to_owned(), resolved.key().to_owned());
            self.written.entry(name).or_insert_with(|| resolved.clone());
        }
        // all at once; the store keeps the order of those on one key
        try_join_all(events.iter().map(async |Event { asked, at, .. }| {
            let verdict = self.store.operate(asked.resolved(), *at, asked.operation()).await?;
            Ok(asked.said(verdict).decision.into())
        }))
        .await
    }
}
