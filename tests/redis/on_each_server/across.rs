//! One call of the script for several slots of a master, and the calls by slot that repeat what it cannot do.

use std::sync::Arc;

use futures_util::future::join_all;
use tidegate::gate::Policy;
use tidegate::local::RedisCluster;
use tidegate::store::{Redis, StoreError};

use crate::cluster::{commands, masters, slot, store};
use crate::everything::resharding::Move;
use crate::load::{Load, holds, limits};
use crate::{NOW, ask, on, raw};

/// Asks for `cost` units of each key at once, and returns the units that each key has left.
async fn ask_all(
    store: &Redis,
    (policy, keys): (&Arc<Policy>, std::ops::Range<usize>),
    cost: u64,
) -> Vec<Result<u64, StoreError>> {
    let asked = keys.map(async |key| {
        let verdict = store.operate(&on(policy, &format!("user:{key}")), NOW, cost).await?;
        assert!(verdict.decision.is_allowed());
        Ok(verdict.decision.remaining())
    });
    join_all(asked).await
}

/// How often each command was executed by all masters, since the last reset.
async fn counted(cluster: &RedisCluster, name: &str) -> u64 {
    let mut all = 0;
    for node in cluster.nodes() {
        all += commands(node).await.get(name).copied().unwrap_or_default();
    }
    all
}

async fn count_anew(cluster: &RedisCluster) {
    for node in cluster.nodes() {
        let _: () = ask(node, &[b"CONFIG", b"RESETSTAT"]).await;
    }
}

/// Whether the servers know the flags of scripts: not Redis 6.2.
async fn know_flags(cluster: &RedisCluster) -> bool {
    let script = "#!lua flags=allow-cross-slot-keys\nreturn 1";
    let told: Result<u64, _> = redis::cmd("EVAL")
        .arg(script)
        .arg(0)
        .query_async(&mut raw(&cluster.nodes()[0]).await)
        .await;
    told.is_ok()
}

#[tokio::test]
async fn one_call_is_for_all_slots_of_a_master() {
    const KEYS: usize = 1_500;
    let cluster = masters();
    let (policy, store, flags) = (limits(), store(&cluster), know_flags(&cluster).await);
    store.ping().await.unwrap();
    let keys = (&policy, 0..KEYS);
    ask_all(&store, keys.clone(), 1).await; // the masters learn the scripts
    count_anew(&cluster).await;
    let left = ask_all(&store, keys.clone(), 1).await;
    assert!(left.into_iter().all(|left| left.unwrap() == 999_998));
    let (calls, sets) = (counted(&cluster, "evalsha").await, counted(&cluster, "set").await);
    assert_eq!(sets, u64::try_from(KEYS).unwrap(), "each state is written once");
    match flags {
        true => assert!(calls <= 60, "{calls} calls for three masters"),
        false => assert!(calls > 1_300, "{calls} calls by slot"),
    }
    assert_eq!(counted(&cluster, "eval").await, 0, "a script that is refused is not tried again");

    // each name is where everybody looks for it
    for key in [0, 1, 2, KEYS - 1] {
        let key = on(&policy, &format!("user:{key}"));
        assert!(store.blobs(&key).await.unwrap().iter().all(Option::is_some));
    }
    for node in cluster.nodes() {
        let keys: usize = ask(node, &[b"DBSIZE"]).await;
        assert!(keys > KEYS / 4, "{keys} keys on one of three masters");
    }
}

/// One slot is on its way to another master, so its partition is done by itself, and those beside it are done once.
#[tokio::test]
async fn a_slot_on_its_way_is_done_by_itself_and_the_others_once() {
    const KEYS: usize = 300;
    let cluster = masters();
    let (policy, store) = (limits(), store(&cluster));
    let keys = (&policy, 0..KEYS);
    ask_all(&store, keys.clone(), 1).await;
    let key = on(&policy, "user:7");
    let (slot, from) = slot(&cluster, &key).await;
    let moved = Move::begin(&cluster, slot, from).await;
    assert!(moved.step().await, "the state is on the other master now");
    count_anew(&cluster).await;
    for left in ask_all(&store, keys.clone(), 1).await {
        assert_eq!(left.unwrap(), 999_998);
    }
    let asked = counted(&cluster, "asking").await;
    assert!((1..=2).contains(&asked), "{asked} times: the other master may not know the script");
    let sets = counted(&cluster, "set").await;
    // Redis counts a command that it refuses because of its slot as none
    assert_eq!(sets, u64::try_from(KEYS).unwrap());
    while moved.step().await {}
    moved.end().await;
    for left in ask_all(&store, keys, 1).await {
        assert_eq!(left.unwrap(), 999_997);
    }
}

/// A server without memory refuses a script over several slots as a whole, so operations that write nothing are repeated by slot.
#[tokio::test]
async fn without_memory_what_writes_nothing_is_answered() {
    let cluster = masters();
    let (policy, store) = (limits(), store(&cluster));
    let keys = (&policy, 0..60);
    ask_all(&store, keys.clone(), 1).await;
    for node in cluster.nodes() {
        let _: () = ask(node, &[b"CONFIG", b"SET", b"maxmemory", b"1"]).await;
    }
    let fresh = crate::cluster::store(&cluster);
    fresh.ping().await.unwrap(); // it knows the masters, so its first call is one over slots
    for left in ask_all(&fresh, keys.clone(), 0).await {
        assert_eq!(left.unwrap(), 999_999);
    }
    for answer in ask_all(&fresh, keys.clone(), 1).await {
        let StoreError::Redis(error) = answer.unwrap_err() else { panic!("another error") };
        assert_eq!(error.code(), Some("OOM"));
    }
    for node in cluster.nodes() {
        let _: () = ask(node, &[b"CONFIG", b"SET", b"maxmemory", b"0"]).await;
    }
    for left in ask_all(&fresh, keys, 1).await {
        assert_eq!(left.unwrap(), 999_998);
    }
}

/// Valkey 9 sends the states of slots to another master while they change, and gives the slots over at once.
#[tokio::test]
async fn slots_that_a_server_gives_over_under_load_cost_nothing() {
    let cluster = masters();
    let nodes = cluster.nodes();
    let known: Vec<String> = ask(&nodes[0], &[b"CLUSTER", b"HELP"]).await;
    if !known.iter().any(|line| line.starts_with("MIGRATESLOTS")) {
        return;
    }
    let load = Load::new(vec![store(&cluster), store(&cluster)], 60);
    let account = load
        .while_running(async {
            load.recovers().await;
            let to: String = ask(&nodes[1], &[b"CLUSTER", b"MYID"]).await;
            let range = [&b"SLOTSRANGE"[..], b"0", b"5000", b"NODE", to.as_bytes()];
            let command = [&[&b"CLUSTER"[..], b"MIGRATESLOTS"][..], &range].concat();
            let _: String = ask(&nodes[0], &command).await;
            holds(async || {
                let told: redis::Value = ask(&nodes[0], &[b"CLUSTER", b"GETSLOTMIGRATIONS"]).await;
                let told = format!("{told:?}");
                assert!(!told.contains("failed") && !told.contains("cancelled"), "{told}");
                told.contains("success")
            })
            .await;
            load.recovers().await;
        })
        .await;
    println!("5,001 slots given over: {account:?}");
    assert_eq!((account.failed, account.beyond, account.lost), (0, 0, 0), "{account:?}");
}
