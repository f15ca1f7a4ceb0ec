//! The store in a real Redis.

use std::time::Duration;

use tidegate::gate::{Micros, Resolved};
use tidegate::local::RedisServer;
use tidegate::store::{self, RedisOptions, StoreError};
use tidegate_tests::vectors::{Backend, Step, Vectors, states};
use tokio::runtime::Runtime;

/// Redis must keep states this much longer: steps are hours apart for their keys, and microseconds for Redis.
const TTL_MARGIN: Micros = Micros(3_600_000_000);

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
            ttl_margin: TTL_MARGIN,
            clock: None, // the vectors have the times
            ..RedisOptions::default()
        };
        let store = store::Redis::new(server.url(), options).unwrap();
        Self { runtime: Runtime::new().unwrap(), store, _server: server }
    }
}

impl Backend for Redis {
    fn answer(&mut self, vectors: &Vectors, step: &Step) -> String {
        let Self { runtime, store, .. } = self;
        step.answer_by(&vectors.policy, |resolved, operation| {
            match runtime.block_on(store.operate(resolved, step.at(), *operation)) {
                Ok(verdict) => Some(verdict),
                Err(StoreError::Operation(_)) => None,
                Err(error) => panic!("{}: {error}", vectors.name),
            }
        })
    }

    fn states(&mut self, vectors: &Vectors, key: &str) -> Option<Vec<String>> {
        let Ok(resolved) = Resolved::new(&vectors.policy, key) else { return Some(Vec::new()) };
        let stored = self.runtime.block_on(self.store.blobs(&resolved)).unwrap();
        Some(states(&resolved, stored))
    }
}
