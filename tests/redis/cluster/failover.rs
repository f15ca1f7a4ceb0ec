//! A replica takes the place of its master while callers ask.

use std::time::Duration;

use tidegate::local::{RedisCluster, RedisServer};
use tidegate::store::Redis;

use super::super::load::{Account, Load, holds};
use super::super::{NOW, ask, on, process_id, signal, within};
use super::{NODE_TIMEOUT, slot, store};

const DEADLINE: Duration = Duration::from_millis(250);

/// How late a busy machine may be.
const MARGIN: Duration = Duration::from_secs(5);

fn with_replicas() -> RedisCluster {
    RedisCluster::start(3, true, NODE_TIMEOUT).unwrap()
}

fn hasty(cluster: &RedisCluster) -> Redis {
    Redis::new(&cluster.url(), within(DEADLINE)).unwrap()
}

async fn is_master(node: &RedisServer) -> bool {
    let told: String = ask(node, &[b"INFO", b"replication"]).await;
    told.contains("role:master")
}

async fn becomes_master(node: &RedisServer) {
    holds(async || is_master(node).await).await;
}

#[tokio::test]
async fn a_master_that_is_killed_costs_errors_until_its_replica_takes_over() {
    let mut cluster = with_replicas();
    let load = Load::new(vec![hasty(&cluster), hasty(&cluster)], 60);
    load.recovers().await;
    let id = process_id(&cluster.nodes()[0]);
    let account = load
        .while_running(async {
            load.left(&load.keys[0]).await;
            signal(&id, "-KILL");
            becomes_master(&cluster.nodes()[3]).await;
            load.recovers().await;
        })
        .await;
    println!("a master killed: {account:?}");
    assert!(account.failed > 0, "{account:?}");
    assert!(account.longest < 2 * DEADLINE + MARGIN, "{account:?}");
    assert!(account.lost <= account.failed, "{account:?}");
    // a server sends its replies and what its replica gets in one pass: at most the calls under way
    assert!(account.beyond <= 2 * 4 * 64, "{account:?}");

    // the old master comes back, empty, as a replica of the new one
    cluster.nodes_mut()[0].restart().unwrap();
    let account = load.while_running(load.recovers()).await;
    assert_eq!(account.failed, 0, "{account:?}");
    assert!(account.granted > 0);
}

/// The replica has not received the last grants, so they can be had once more, and nothing else can.
#[tokio::test]
async fn what_a_replica_had_not_received_is_granted_once_more_and_no_more() {
    const UNSENT: u64 = 25;
    let cluster = with_replicas();
    let load = Load::new(vec![store(&cluster)], 30);
    let mut keys = Vec::new();
    for key in &load.keys {
        if slot(&cluster, &on(&load.policy, key)).await.1 == 0 {
            keys.push(key.clone());
        }
    }
    let load = Load::on(load.stores, keys);
    let before = load.while_running(async {}).await;
    assert_eq!((before.failed, before.beyond, before.lost), (0, 0, 0), "{before:?}");
    let left = load.left(&load.keys[0]).await;

    let [master, replica] = [0, 3].map(|node| &cluster.nodes()[node]);
    let synced: u64 = ask(master, &[b"WAIT", b"1", b"10000"]).await;
    assert_eq!(synced, 1);
    let stopped = process_id(replica);
    signal(&stopped, "-STOP");
    let closed: u64 = ask(master, &[b"CLIENT", b"KILL", b"TYPE", b"replica"]).await;
    assert_eq!(closed, 1);
    let key = on(&load.policy, &load.keys[0]);
    for _ in 0..UNSENT {
        assert!(load.stores[0].operate(&key, NOW, 1).await.unwrap().decision.is_allowed());
    }
    assert_eq!(load.left(&load.keys[0]).await, left - UNSENT);
    signal(&process_id(master), "-KILL");
    signal(&stopped, "-CONT");
    becomes_master(replica).await;
    assert_eq!(load.left(&load.keys[0]).await, left, "the unsent grants are unknown to it");
    println!("a replica that had not received {UNSENT} grants: {UNSENT} beyond the limit");
}

#[tokio::test]
async fn a_failover_by_hand_under_load_costs_nothing() {
    let cluster = with_replicas();
    let load = Load::new(vec![store(&cluster), store(&cluster)], 60);
    let account = load
        .while_running(async {
            load.recovers().await;
            for replica in 3..6 {
                let replica = &cluster.nodes()[replica];
                let _: () = ask(replica, &[b"CLUSTER", b"FAILOVER"]).await;
                becomes_master(replica).await;
                load.recovers().await;
            }
        })
        .await;
    println!("three failovers by hand: {account:?}");
    let Account { failed, beyond, lost, .. } = account;
    assert_eq!((beyond, failed, lost), (0, 0, 0), "{account:?}");
}

/// A master that stands still is a master no more; when it goes on, nobody asks it.
#[tokio::test]
async fn a_master_that_stands_still_costs_errors_in_time_and_then_nobody_asks_it() {
    let cluster = with_replicas();
    let load = Load::new(vec![hasty(&cluster)], 30);
    load.recovers().await;
    let id = process_id(&cluster.nodes()[0]);
    let account = load
        .while_running(async {
            signal(&id, "-STOP");
            becomes_master(&cluster.nodes()[3]).await;
            load.recovers().await;
            signal(&id, "-CONT");
            load.recovers().await;
        })
        .await;
    println!("a master stopped: {account:?}");
    assert!(account.failed > 0 && account.beyond <= 4 * 64, "{account:?}");
    assert!(account.longest < 2 * DEADLINE + MARGIN, "{account:?}");
}
