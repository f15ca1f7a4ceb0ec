//! A master of a Cluster is lost under `on_error = "local"`.

use std::sync::Arc;
use std::time::Duration;

use tidegate::clock;
use tidegate::gate::Policy;
use tidegate::local::RedisCluster;
use tidegate::store::{Redis, RedisOptions};

use super::super::load::holds;
use super::super::{ask, on, within};
use super::{NODE_TIMEOUT, slot};

#[tokio::test]
async fn a_host_goes_on_while_a_master_is_lost_and_tells_its_replica_nothing() {
    let cluster = RedisCluster::start(3, true).unwrap();
    let options = RedisOptions { clock: Some(clock::now), ..within(Duration::from_secs(2)) };
    let store = Redis::new(&cluster.url(), options).unwrap();
    let policy = "on_error = 'local'\nlimits = [{ algorithm = 'fixed_window', limit = 1000000, period = '365d' }]";
    let key = on(&Arc::new(Policy::parse("p", policy).unwrap()), "k");
    let check = async |cost: u64| store.operate(&key, clock::now(), cost).await;
    holds(async || check(0).await.is_ok_and(|verdict| !verdict.degraded)).await;
    holds(async || store.hosts() == Some(1)).await;
    let (mut granted, mut local) = (0, 0);
    for _ in 0..10 {
        granted += u64::from(check(1).await.unwrap().decision.is_allowed());
    }
    let (_, owner) = slot(&cluster, &key).await;
    let node = &cluster.nodes()[owner];
    let replicas: u64 = ask(node, &[b"WAIT", b"1", b"10000"]).await;
    assert_eq!((granted, replicas), (10, 1), "the replica knows of all that was granted");

    cluster.set_node_timeout(NODE_TIMEOUT).unwrap();
    node.signal("KILL").unwrap();
    while local < 20 {
        let verdict = check(1).await.unwrap();
        assert!(verdict.decision.is_allowed());
        match verdict.degraded {
            true => local += 1,
            false => granted += 1,
        }
    }
    // a question that was under way when the master died may have been charged, or its charge lost
    let left = async || {
        let verdict = check(0).await.unwrap();
        Some(verdict.decision.remaining()).filter(|_| !verdict.degraded)
    };
    holds(async || left().await.is_some_and(|left| left.abs_diff(1_000_000 - granted) <= 1)).await;
}
