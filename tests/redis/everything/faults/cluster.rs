//! Faults of a Redis Cluster.

use std::time::{Duration, Instant};

use tidegate::local::RedisCluster;
use tidegate_tests::{Heard, until};

use super::redis::ask;
use super::{LIMIT, Row, patient, world};

/// The masters, each of which has an equal part of the slots.
const MASTERS: u16 = 3;
const SLOTS: u16 = 16_384;

/// How long a master may be silent until its replica takes over.
const NODE_TIMEOUT: Duration = Duration::from_secs(1);

/// What a replica may not have received: two hosts have four calls under way, each of up to 64 records.
const UNDER_WAY: u64 = 2 * 4 * 64;

/// The slot of the key under a policy, and the number of the master that has it at first.
fn slot(cluster: &RedisCluster, policy: &str) -> (u16, usize) {
    let slot: u16 = ask(cluster.nodes()[0].url(), &format!("CLUSTER KEYSLOT {{{policy}:k}}"));
    (slot, usize::from(slot / SLOTS.div_ceil(MASTERS)))
}

#[test]
fn a_master_is_lost() {
    let cluster = RedisCluster::start(MASTERS, true).unwrap();
    let world = world(2, &["--redis", &cluster.url()]);
    let (_, master) = slot(&cluster, "closed");
    let recovered = world.run(|world| {
        cluster.set_node_timeout(NODE_TIMEOUT).unwrap();
        cluster.nodes()[master].signal("KILL").unwrap();
        let closed = |heard: &&Heard| heard.policy == "closed";
        world.until("`on_error` decides", |heard| {
            heard.iter().filter(closed).all(|heard| heard.failed >= 20)
        });
        let began = Instant::now();
        let decided = |heard: &[Heard]| -> Vec<u64> {
            heard.iter().filter(closed).map(|heard| heard.granted + heard.refused).collect()
        };
        let before = decided(&world.heard());
        world.until("the key is decided on again", |heard| {
            decided(heard).iter().zip(&before).all(|(now, before)| now > before)
        });
        began.elapsed()
    });
    let fault = "a master of a Cluster was lost";
    Row { fault, bound: LIMIT + UNDER_WAY, recovered }.check(&world);
}

#[test]
fn slots_move() {
    let cluster = RedisCluster::start(MASTERS, false).unwrap();
    let world = patient(2, &["--redis", &cluster.url()]);
    let slots = ["closed", "open"].map(|policy| slot(&cluster, policy));
    let recovered = world.run(|world| {
        for turn in 0..6 {
            for (slot, first) in slots {
                carry(&cluster, slot, (first + turn) % 3);
            }
        }
        world.until_all_decide()
    });
    let fault = "slots of a Cluster moved twelve times";
    Row { fault, bound: LIMIT, recovered }.check_unnoticed(&world);
}

/// Carries a slot from one master to the next one.
fn carry(cluster: &RedisCluster, slot: u16, from: usize) {
    let to = (from + 1) % 3;
    let url = |node: usize| cluster.nodes()[node].url();
    let id = |node: usize| -> String { ask(url(node), "CLUSTER MYID") };
    let set = |node: usize, state: &str, other: usize| -> () {
        ask(url(node), &format!("CLUSTER SETSLOT {slot} {state} {}", id(other)))
    };
    set(to, "IMPORTING", from);
    set(from, "MIGRATING", to);
    loop {
        let names: Vec<String> = ask(url(from), &format!("CLUSTER GETKEYSINSLOT {slot} 10"));
        if names.is_empty() {
            break;
        }
        for name in names {
            let port = cluster.ports()[to];
            let _: String = ask(url(from), &format!("MIGRATE 127.0.0.1 {port} {name} 0 5000"));
        }
    }
    [to, from, 3 - from - to].into_iter().for_each(|node| set(node, "NODE", to));
    // two moves of one epoch leave masters that each call the other one the owner, so the next move waits until all know this one's
    let epoch = |node: usize| -> String {
        let told: String = ask(url(node), "CLUSTER INFO");
        let line = told.lines().find(|line| line.starts_with("cluster_current_epoch:"));
        line.unwrap().to_owned()
    };
    until("all know the move", || (1..3).all(|node| epoch(node) == epoch(0)));
}
