//! Slots move from one master to another while callers ask.

use std::collections::HashSet;
use std::time::Duration;

use tidegate::gate::Resolved;
use tidegate::local::RedisCluster;
use tidegate::store::Redis;

use crate::cluster::logins::in_a_cluster;
use crate::cluster::{commands, masters, slot, store};
use crate::load::{Load, holds};
use crate::on_each_server::users::set_user;
use crate::{NOW, ask, on, policy, within};

/// A slot on its way from one master to another one.
pub struct Move<'c> {
    cluster: &'c RedisCluster,
    slot: String,
    from: usize,
    to: usize,
    ids: Vec<String>,
}

impl<'c> Move<'c> {
    pub async fn begin(cluster: &'c RedisCluster, slot: u16, from: usize) -> Self {
        let to = (from + 1) % 3;
        let mut ids = Vec::new();
        for node in cluster.nodes() {
            ids.push(ask(node, &[b"CLUSTER", b"MYID"]).await);
        }
        let moved = Self { cluster, slot: slot.to_string(), from, to, ids };
        moved.set(to, "IMPORTING", from).await;
        moved.set(from, "MIGRATING", to).await;
        moved
    }

    async fn set(&self, node: usize, state: &str, other: usize) {
        let (slot, other) = (self.slot.as_bytes(), self.ids[other].as_bytes());
        let command = [b"CLUSTER", &b"SETSLOT"[..], slot, state.as_bytes(), other];
        let _: () = ask(&self.cluster.nodes()[node], &command).await;
    }

    /// Moves one name. Returns whether there was one.
    pub async fn step(&self) -> bool {
        let node = &self.cluster.nodes()[self.from];
        let question = [&b"CLUSTER"[..], b"GETKEYSINSLOT", self.slot.as_bytes(), b"1"];
        let names: Vec<String> = ask(node, &question).await;
        let port = self.cluster.ports()[self.to].to_string();
        for name in &names {
            let command =
                [&b"MIGRATE"[..], b"127.0.0.1", port.as_bytes(), name.as_bytes(), b"0", b"5000"];
            let _: String = ask(node, &command).await;
        }
        !names.is_empty()
    }

    pub async fn end(&self) {
        for node in [self.to, self.from, 3 - self.from - self.to] {
            self.set(node, "NODE", self.to).await;
        }
        // two moves of one epoch leave masters that each call the other one the owner
        holds(async || {
            let mut epochs = HashSet::new();
            for node in self.cluster.nodes() {
                let told: String = ask(node, &[b"CLUSTER", b"INFO"]).await;
                let line = told.lines().find(|line| line.starts_with("cluster_current_epoch:"));
                epochs.insert(line.unwrap().to_owned());
            }
            epochs.len() == 1
        })
        .await;
    }
}

#[tokio::test]
async fn slots_that_move_under_load_cost_nothing() {
    let cluster = masters();
    let url = cluster.url().replace("://", "://tidegate:secret@");
    let (rights, asking) = (in_a_cluster(), "+asking".to_owned());
    for node in cluster.nodes() {
        set_user(node, &rights).await;
    }
    let store = || Redis::new(&url, within(Duration::from_secs(10))).unwrap();
    let load = Load::new(vec![store(), store()], 30);
    let account = load
        .while_running(async {
            for key in &load.keys[..20] {
                let (slot, from) = slot(&cluster, &on(&load.policy, key)).await;
                let moved = Move::begin(&cluster, slot, from).await;
                load.left("another key").await; // callers meet each state of the move
                while moved.step().await {
                    load.left("another key").await;
                }
                moved.end().await;
            }
        })
        .await;
    println!("20 slots moved: {account:?}");
    assert_eq!((account.failed, account.beyond, account.lost), (0, 0, 0), "{account:?}");
    let mut asked = 0;
    for node in cluster.nodes() {
        asked += commands(node).await.get("asking").copied().unwrap_or_default();
    }
    assert!(asked > 0, "no caller met a slot on its way");

    // a new key of a slot on its way needs the right to ask the other node
    let key = on(&load.policy, "new");
    let (slot, from) = slot(&cluster, &key).await;
    let moved = Move::begin(&cluster, slot, from).await;
    let others: Vec<_> = rights.into_iter().filter(|right| *right != asking).collect();
    set_user(&cluster.nodes()[moved.to], &others).await;
    let error = load.stores[0].operate(&key, NOW, 1).await.unwrap_err().to_string();
    assert!(error.contains("asking"), "{error}");
    set_user(&cluster.nodes()[moved.to], &[others, vec![asking]].concat()).await;
    assert!(load.stores[0].operate(&key, NOW, 1).await.unwrap().decision.is_allowed());
    let found: u64 = ask(&cluster.nodes()[moved.to], &[b"DBSIZE"]).await;
    assert!(found > 0);
}

/// A partition of which one record has moved and another one has not is decided once both are in one place.
#[tokio::test]
async fn a_partition_that_is_torn_for_a_moment_is_decided_when_it_is_whole() {
    let cluster = masters();
    let store = store(&cluster);
    let policy = policy(
        "{ algorithm = 'fixed_window', limit = 9, period = '365d', depth = 1 },
         { algorithm = 'fixed_window', limit = 5, period = '365d' }",
    );
    let key: Resolved = on(&policy, "acme/k");
    assert!(store.operate(&key, NOW, 2).await.unwrap().decision.is_allowed());
    let (slot, from) = slot(&cluster, &key).await;
    let moved = Move::begin(&cluster, slot, from).await;
    assert!(moved.step().await);
    let torn = store.operate(&key, NOW, 2);
    let whole = async {
        // the store has been told to try again
        holds(async || was_told_to_try_again(&cluster).await).await;
        assert!(moved.step().await);
        moved.end().await;
    };
    let (decided, ()) = futures_util::future::join(torn, whole).await;
    assert_eq!(decided.unwrap().decision.remaining(), 1);
    assert!(!store.operate(&key, NOW, 2).await.unwrap().decision.is_allowed());
}

/// Whether a node has answered `TRYAGAIN`.
async fn was_told_to_try_again(cluster: &RedisCluster) -> bool {
    for node in cluster.nodes() {
        let told: String = ask(node, &[b"INFO", b"all"]).await;
        if told.contains("errorstat_TRYAGAIN") {
            return true;
        }
    }
    false
}
