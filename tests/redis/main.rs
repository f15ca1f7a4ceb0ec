//! The Redis store on a real Redis: races, outages, foreign bytes, expiry.
//!
//! `on_each_server` runs on every version of Redis and Valkey; `everything` takes long.

mod certificates;
mod clocks;
mod cluster;
mod connection;
mod everything;
mod host;
mod layer;
mod linear;
mod load;
mod nodes;
mod on_each_server;
mod outage;
mod proxy;
mod queue;
mod sentinel;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use tidegate::gate::{Policy, Record, Resolved, Timestamp};
use tidegate::local::RedisServer;
use tidegate::store::{Redis, RedisOptions, StoreError};

const NOW: Timestamp = Timestamp(1_700_000_000_000_000);

fn policy(limits: &str) -> Arc<Policy> {
    Arc::new(Policy::parse("p", &format!("limits = [{limits}]")).unwrap())
}

fn on(policy: &Arc<Policy>, key: &str) -> Resolved {
    Resolved::new(policy, key).unwrap()
}

fn bucket() -> Arc<Policy> {
    policy("{ algorithm = 'token_bucket', capacity = 5, rate = '5/h' }")
}

fn store(server: &RedisServer) -> Redis {
    Redis::new(server.url(), within(Duration::from_secs(10))).unwrap()
}

/// For operations at given times.
fn within(deadline: Duration) -> RedisOptions {
    RedisOptions { deadline, clock: None, ..RedisOptions::default() }
}

/// A plain connection, for commands that the store does not send. It waits as long as a busy machine needs.
async fn raw(server: &RedisServer) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(server.url()).unwrap();
    let patient =
        redis::AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    client.get_multiplexed_async_connection_with_config(&patient).await.unwrap()
}

fn record(policy: &Policy) -> &Record {
    &policy.limits().records()[0]
}

async fn ask<T: redis::FromRedisValue>(server: &RedisServer, command: &[&[u8]]) -> T {
    let mut cmd = redis::Cmd::new();
    for record in command {
        cmd.arg(*record);
    }
    cmd.query_async(&mut raw(server).await).await.unwrap()
}

/// The units that four stores grant of 40, when each asks for 50. Each store is a host of its own, so its queue does not
/// hold up the others.
async fn grants_in_a_race(stores: [Redis; 4]) -> u32 {
    let policy = policy("{ algorithm = 'fixed_window', limit = 40, period = '365d' }");
    let mut tasks = Vec::new();
    for store in stores {
        let policy = policy.clone();
        tasks.push(tokio::spawn(async move {
            let mut granted = 0;
            for _ in 0..50 {
                let verdict = store.operate(&on(&policy, "hot"), NOW, 1).await.unwrap();
                granted += u32::from(verdict.decision.is_allowed());
            }
            granted
        }));
    }
    let mut granted = 0;
    for task in tasks {
        granted += task.await.unwrap();
    }
    granted
}

async fn futures<T>(
    asked: impl Iterator<Item = impl Future<Output = Result<T, StoreError>>>,
) -> Vec<T> {
    futures_util::future::try_join_all(asked).await.unwrap()
}
