//! States in a real Redis.

use std::time::Duration;

use tidegate::gate::{Limits, Micros, Rule};
use tidegate::local::RedisServer;
use tidegate::store::{self, RedisOptions, StoreError};
use tidegate_tests::vectors::{Backend, Step, Vectors, fresh, hex};
use tokio::runtime::Runtime;

/// Steps are hours apart for their keys and microseconds for Redis.
const KEEP_LONGER: Micros = Micros(3_600_000_000);

pub struct Redis {
    runtime: Runtime,
    store: store::Redis,
    _server: RedisServer,
}

impl Redis {
    pub fn start() -> Self {
        let server = RedisServer::start().unwrap();
        let options = RedisOptions {
            deadline: Duration::from_secs(10),
            keep_longer: KEEP_LONGER,
            ..RedisOptions::default()
        };
        let store = store::Redis::new(server.url(), options).unwrap();
        Self { runtime: Runtime::new().unwrap(), store, _server: server }
    }
}

impl Backend for Redis {
    fn answer(&mut self, vectors: &Vectors, step: &Step) -> String {
        let Self { runtime, store, .. } = self;
        step.answer_by(&vectors.policy, |operation| {
            let decided = store.operate(&vectors.policy, &step.key, step.at(), operation);
            match runtime.block_on(decided) {
                Ok(verdict) => Some(verdict),
                Err(StoreError::Operation(_)) => None,
                Err(error) => panic!("{}: {error}", vectors.name),
            }
        })
    }

    fn states(&mut self, vectors: &Vectors, key: &str) -> Option<Vec<String>> {
        let stored = self.runtime.block_on(self.store.blobs(&vectors.policy, key)).unwrap();
        let limits = match vectors.policy.rule(key) {
            Rule::Limited(limits, _) => Some(limits),
            Rule::Listed(_) => None,
        };
        let parts = limits.into_iter().flat_map(Limits::parts);
        let states = parts.zip(stored);
        Some(
            states
                .map(|(part, bytes)| hex(&bytes.unwrap_or_else(|| fresh(&vectors.policy, part))))
                .collect(),
        )
    }
}
