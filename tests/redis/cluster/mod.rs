//! A Redis Cluster of real nodes: many keys, slots that move, masters that are lost.

pub mod logins;
mod outage;

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::join_all;
use tidegate::gate::{Resolved, blob};
use tidegate::local::{RedisCluster, RedisServer};
use tidegate::store::{Redis, RedisOptions, StoreError};

use super::load::{Load, holds};
use super::{NOW, ask, on, policy, within};

/// How long a master may be silent until its replica takes over, from when a test is about that. Before, a busy machine would
/// lose one.
pub const NODE_TIMEOUT: Duration = Duration::from_secs(1);

pub fn masters() -> RedisCluster {
    RedisCluster::start(3, false).unwrap()
}

pub fn store(cluster: &RedisCluster) -> Redis {
    Redis::new(&cluster.url(), within(Duration::from_secs(10))).unwrap()
}

/// The slot of a key's records, and the index of the master that a new Cluster of three gives it to.
pub async fn slot(cluster: &RedisCluster, key: &Resolved) -> (u16, usize) {
    let name = blob::partition_name(key.policy(), key.key());
    let slot: u16 = ask(&cluster.nodes()[0], &[b"CLUSTER", b"KEYSLOT", name.as_bytes()]).await;
    (slot, usize::from(slot / 16_384_u16.div_ceil(3)))
}

/// How often each command was executed since the start, the commands of scripts included.
pub async fn commands(server: &RedisServer) -> HashMap<String, u64> {
    let told: String = ask(server, &[b"INFO", b"commandstats"]).await;
    let lines =
        told.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(":calls="));
    lines
        .map(|(name, rest)| (name.to_owned(), rest.split(',').next().unwrap().parse().unwrap()))
        .collect()
}

#[tokio::test]
async fn many_keys_are_decided_right_and_each_master_has_its_part() {
    const KEYS: usize = 300;
    let cluster = masters();
    let stores = [store(&cluster), store(&cluster)];
    stores[0].ping().await.unwrap();
    let policy = policy(
        "{ algorithm = 'fixed_window', limit = 3, period = '365d' },
         { algorithm = 'fixed_window', limit = 1000, period = '365d', depth = 1 }",
    );
    let key = |key: usize| on(&policy, &format!("org:{key}/user"));
    let asked = (0..8 * KEYS).map(async |n| {
        let verdict = stores[n % 2].operate(&key(n / 8), NOW, 1).await.unwrap();
        (n / 8, verdict.decision.is_allowed())
    });
    let mut granted = vec![0; KEYS];
    for (key, is_allowed) in join_all(asked).await {
        granted[key] += u32::from(is_allowed);
    }
    assert_eq!(granted, [3; KEYS]);

    let mut calls = 0;
    for node in cluster.nodes() {
        let keys: usize = ask(node, &[b"DBSIZE"]).await;
        assert!((KEYS / 3..=KEYS).contains(&keys), "{keys} of {} names", 2 * KEYS);
        let commands = commands(node).await;
        calls += commands["evalsha"];
        assert!(!commands.contains_key("asking"));
    }
    // each store asks once for what it does not know, and at most once more for each change by the other one
    assert!(calls <= 8 * KEYS as u64, "{calls} calls for {} requests", 8 * KEYS);

    let some = key(7);
    assert!(stores[1].blobs(&some).await.unwrap().iter().all(Option::is_some));
    stores[1].forget(&some).await.unwrap();
    assert!(stores[0].blobs(&some).await.unwrap().iter().all(Option::is_none));
    assert!(stores[0].operate(&some, NOW, 3).await.unwrap().decision.is_allowed());
}

#[tokio::test]
async fn a_slot_that_nobody_has_is_an_error_at_once_and_recovers_by_itself() {
    let cluster = masters();
    let load = Load::new(vec![store(&cluster)], 60);
    let key = on(&load.policy, &load.keys[0]);
    load.recovers().await;
    let (slot, master) = slot(&cluster, &key).await;
    let slot = slot.to_string();
    for node in cluster.nodes() {
        let _: () = ask(node, &[b"CLUSTER", b"DELSLOTS", slot.as_bytes()]).await;
    }
    let account = load
        .while_running(async {
            for _ in 0..20 {
                let error = load.stores[0].operate(&key, NOW, 1).await.unwrap_err();
                let StoreError::Redis(error) = error else { panic!("{error}") };
                assert_eq!(error.code(), Some("CLUSTERDOWN"));
                let text = error.to_string();
                let names = |port: &u16| text.ends_with(&format!("(127.0.0.1:{port})"));
                assert!(cluster.ports().iter().any(names), "{text}");
            }
            let node = &cluster.nodes()[master];
            let _: () = ask(node, &[b"CLUSTER", b"ADDSLOTS", slot.as_bytes()]).await;
            load.recovers().await;
        })
        .await;
    assert!(account.failed >= 20, "{account:?}");
    assert_eq!((account.beyond, account.lost), (0, 0), "{account:?}");
}

#[tokio::test]
async fn an_error_names_the_master_that_does_not_answer_and_another_one_that_is_back_decides() {
    let cluster = masters();
    let store = Redis::new(&cluster.url(), within(Duration::from_millis(250))).unwrap();
    let policy = policy("{ algorithm = 'fixed_window', limit = 3, period = '365d' }");
    let key = on(&policy, "k");
    holds(async || store.operate(&key, NOW, 0).await.is_ok()).await;
    let (_, master) = slot(&cluster, &key).await;
    cluster.nodes()[master].signal("STOP").unwrap();
    let error = store.operate(&key, NOW, 1).await.unwrap_err();
    let expected = format!("redis: no answer within 250ms (127.0.0.1:{})", cluster.ports()[master]);
    assert!(matches!(error, StoreError::Deadline { .. }), "{error}");
    assert_eq!((error.to_string(), error.without_key()), (expected.clone(), expected));
    assert_eq!(error.summary(), "the store did not answer in time", "clients learn no address");
    for number in 0.. {
        let key = on(&policy, &format!("other {number}"));
        let (_, other) = slot(&cluster, &key).await;
        if other != master {
            cluster.nodes()[other].signal("STOP").unwrap();
            assert!(store.operate(&key, NOW, 1).await.is_err());
            cluster.nodes()[other].signal("CONT").unwrap();
            return holds(async || store.operate(&key, NOW, 0).await.is_ok()).await;
        }
    }
}

#[tokio::test]
async fn an_error_names_the_master_that_has_another_password() {
    let cluster = masters();
    let key = on(&policy("{ algorithm = 'fixed_window', limit = 3, period = '365d' }"), "k");
    let (_, master) = slot(&cluster, &key).await;
    for (index, node) in cluster.nodes().iter().enumerate() {
        let password = if index == master { "changed" } else { "5ECRET" };
        let _: () = ask(node, &[b"CONFIG", b"SET", b"requirepass", password.as_bytes()]).await;
    }
    let url = cluster.url().replace("://", "://:5ECRET@");
    let store = Redis::new(&url, within(Duration::from_secs(10))).unwrap();
    let error = store.operate(&key, NOW, 1).await.unwrap_err();
    let place = format!("Password authentication failed (127.0.0.1:{})", cluster.ports()[master]);
    assert!(error.without_key().ends_with(&place), "{error}");
    assert!(!error.to_string().contains("5ECRET"), "{error}");
    assert_eq!(error.summary(), "the store is unavailable", "clients learn no address");
}

#[tokio::test]
async fn a_server_of_another_kind_says_what_to_write() {
    let (alone, cluster) = (RedisServer::start_with(["--port", "0"]).unwrap(), masters());
    let policy = policy("{ algorithm = 'fixed_window', limit = 3, period = '365d' }");
    let options = || within(Duration::from_secs(10));
    let as_one = cluster.url().replace("+cluster", "");
    let store = Redis::new(&as_one, RedisOptions { ..options() }).unwrap();
    let answers = join_all(
        (0..20).map(async |key| store.operate(&on(&policy, &format!("k:{key}")), NOW, 1).await),
    )
    .await;
    let error = answers.into_iter().find_map(Result::err).unwrap().to_string();
    assert!(error.contains("write `redis+cluster://HOST:PORT` instead"), "{error}");

    let proxy = super::proxy::Proxy::start(&alone, Duration::ZERO);
    let as_cluster = proxy.url.replace("redis://", "redis+cluster://");
    let store = Redis::new(&as_cluster, options()).unwrap();
    let error = store.operate(&on(&policy, "k"), NOW, 1).await.unwrap_err().to_string();
    assert!(error.contains("write `redis://HOST:PORT` instead"), "{error}");
}
