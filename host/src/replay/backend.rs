//! The four places where the same core decides.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures_util::future::try_join_all;
use tidegate_gate::http::DecisionForm;
use tidegate_gate::{Micros, Policies, blob};

use super::trace::Event;
use super::wasmtime::Guest;
use super::worker::Worker;
use crate::local::{RedisServer, Workerd, WorkerdOptions};
use crate::store::{Memory, Redis, RedisOptions};

/// More keys than any trace that is replayed here.
const MAX_KEYS: usize = 100_000_000;
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
    Memory(Vec<Memory>),
    Redis(Box<RedisReplay>),
    Wasmtime(Box<Guest>),
    Worker(Worker),
}

/// A Redis store under a prefix of its own, and what was written there.
#[derive(Debug)]
pub struct RedisReplay {
    store: Redis,
    written: HashSet<(usize, String)>,
    _server: Option<RedisServer>,
}

impl Backend {
    /// Starts a backend.
    ///
    /// # Errors
    /// If a server cannot be started or reached.
    pub async fn start(kind: BackendKind, policies: &Policies, target: &Target) -> Result<Self> {
        Ok(match kind {
            BackendKind::Memory => Self::Memory(
                policies.all().iter().map(|policy| Memory::new(policy.clone(), MAX_KEYS)).collect(),
            ),
            BackendKind::Redis => {
                Self::Redis(Box::new(RedisReplay::start(target.redis.as_deref()).await?))
            }
            BackendKind::Wasmtime => Self::Wasmtime(Box::new(Guest::start(policies)?)),
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

    /// Decides on events, in their order for each key.
    ///
    /// # Errors
    /// If the backend fails: a replay with holes would be worth nothing.
    pub async fn decide(
        &mut self,
        policies: &Policies,
        events: &[Event],
    ) -> Result<Vec<DecisionForm>> {
        match self {
            Self::Memory(tables) => events
                .iter()
                .map(|event| {
                    let table = tables.get(event.policy).context("no such policy")?;
                    Ok(table.decide(&event.key, event.at, event.cost)?.into())
                })
                .collect(),
            Self::Redis(redis) => redis.decide(policies, events).await,
            Self::Wasmtime(guest) => events.iter().map(|event| guest.decide(event)).collect(),
            Self::Worker(worker) => worker.decide(policies, events),
        }
    }

    /// The state of an event's key, for a person to read.
    ///
    /// # Errors
    /// If the backend cannot say.
    pub async fn state(&mut self, policies: &Policies, event: &Event) -> Result<String> {
        let policy = policies.all().get(event.policy).context("no such policy")?;
        let fresh = || "none".to_owned();
        Ok(match self {
            Self::Memory(tables) => tables
                .get(event.policy)
                .and_then(|table| table.words(&event.key))
                .map_or_else(fresh, |words| format!("words {words:?}")),
            Self::Wasmtime(guest) => {
                guest.words(event).map_or_else(fresh, |words| format!("words {words:?}"))
            }
            Self::Redis(redis) => {
                let blobs = redis.store.blobs(policy, &event.key).await?;
                let mut words = Vec::new();
                for (part, bytes) in policy.limits_for(&event.key).parts().iter().zip(blobs) {
                    match bytes {
                        None => words.resize(words.len() + part.words(), 0),
                        Some(bytes) => words.extend(blob::decode(policy, part, &bytes)?),
                    }
                }
                format!("words {words:?}")
            }
            Self::Worker(worker) => {
                let peek = Event { cost: 0, ..event.clone() };
                format!("at the event {:?}", worker.decide(policies, &[peek])?)
            }
        })
    }

    /// Takes away what the replay left in a server that is not its own.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn clean_up(self, policies: &Policies) -> Result<()> {
        if let Self::Redis(redis) = self {
            for (policy, key) in &redis.written {
                let policy = policies.all().get(*policy).context("no such policy")?;
                redis.store.forget(policy, key).await?;
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
        Ok(Self { store, written: HashSet::new(), _server: server })
    }

    async fn decide(&mut self, policies: &Policies, events: &[Event]) -> Result<Vec<DecisionForm>> {
        for event in events {
            if !self.written.contains(&(event.policy, event.key.clone())) {
                self.written.insert((event.policy, event.key.clone()));
            }
        }
        // all at once; the store keeps the order of those on one key
        try_join_all(events.iter().map(async |event| {
            let Some(policy) = policies.all().get(event.policy) else { bail!("no such policy") };
            let verdict = self.store.operate(policy, &event.key, event.at, event.cost).await?;
            Ok(verdict.decision.into())
        }))
        .await
    }
}
