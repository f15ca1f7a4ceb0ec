//! What callers are granted while Redis or the network fails, beside the bound that docs/operations.md states.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate::gate::Policy;
use tidegate::local::RedisServer;
use tidegate::store::{Redis, StoreError};

use super::proxy::Proxy;
use super::{NOW, ask, on, policy, process_id, signal, store, within};

const LIMIT: u64 = 500;

fn window() -> Arc<Policy> {
    policy("{ algorithm = 'fixed_window', limit = 500, period = '365d' }")
}

/// The answers of some tasks that ask in turn.
#[derive(Debug, Default)]
struct Answers {
    granted: u64,
    refused: u64,
    failed: u64,
}

impl Answers {
    fn add(&mut self, answer: Result<bool, StoreError>) {
        match answer {
            Ok(true) => self.granted += 1,
            Ok(false) => self.refused += 1,
            Err(_) => self.failed += 1,
        }
    }
}

/// Eight tasks on two stores ask until the key is exhausted for all, while `disturb` runs before every turn
/// of the first task.
async fn ask_until_refused<F: Future<Output = ()>>(
    stores: [Redis; 2],
    disturb: impl Fn(usize) -> F,
) -> Answers {
    let (stores, policy, began) = (stores.map(Arc::new), window(), Instant::now());
    let ask = async |task: usize| {
        let mut answers = Answers::default();
        for turn in 0.. {
            if task == 0 {
                disturb(turn).await;
            }
            let answer = stores[task % 2].operate(&on(&policy, "hot"), NOW, 1).await;
            answers.add(answer.map(|verdict| verdict.decision.is_allowed()));
            if answers.refused > 0 && (task > 0 || turn > 60) {
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "{answers:?}");
        }
        answers
    };
    let all = futures_util::future::join_all((0..8).map(ask)).await;
    let mut sum = Answers::default();
    for answers in all {
        sum.granted += answers.granted;
        sum.refused += answers.refused;
        sum.failed += answers.failed;
    }
    sum
}

#[tokio::test]
async fn flushed_scripts_cost_nothing() {
    let server = RedisServer::start().unwrap();
    let answers = ask_until_refused([store(&server), store(&server)], async |_| {
        let _: () = ask(&server, &[b"SCRIPT", b"FLUSH"]).await;
    })
    .await;
    assert_eq!((answers.granted, answers.failed), (LIMIT, 0), "{answers:?}");
}

#[tokio::test]
async fn a_redis_that_loses_everything_grants_the_limit_once_more() {
    let server = RedisServer::start().unwrap();
    let answers = ask_until_refused([store(&server), store(&server)], async |turn| {
        if turn == 30 {
            let _: () = ask(&server, &[b"FLUSHALL"]).await;
        }
    })
    .await;
    assert_eq!(answers.failed, 0, "{answers:?}");
    assert!((LIMIT..=2 * LIMIT).contains(&answers.granted), "{answers:?}");
    assert!(answers.granted > LIMIT, "the flush came before the end: {answers:?}");
}

#[tokio::test]
async fn connections_that_break_on_a_slow_network_lose_units_and_grant_none_twice() {
    let server = RedisServer::start().unwrap();
    let slow = || {
        let proxy = Proxy::start(&server, Duration::from_millis(1));
        Redis::new(&proxy.url, within(Duration::from_secs(5))).unwrap()
    };
    let answers = ask_until_refused([slow(), slow()], async |turn| {
        if turn % 20 == 7 {
            let _: u64 = ask(&server, &[b"CLIENT", b"KILL", b"TYPE", b"normal"]).await;
        }
    })
    .await;
    assert!(answers.granted <= LIMIT, "{answers:?}");
    assert!(
        answers.granted + answers.failed >= LIMIT,
        "no unit is lost without an error: {answers:?}"
    );
}

#[tokio::test]
async fn a_redis_that_stands_still_costs_errors_and_grants_none_twice() {
    let server = RedisServer::start().unwrap();
    let id = process_id(&server);
    let hasty = || Redis::new(server.url(), within(Duration::from_millis(100))).unwrap();
    let answers = ask_until_refused([hasty(), hasty()], async |turn| match turn {
        20 => signal(&id, "-STOP"),
        23 => signal(&id, "-CONT"), // three deadlines later
        _ => {}
    })
    .await;
    assert!(answers.failed >= 3, "{answers:?}");
    assert!(answers.granted <= LIMIT, "{answers:?}");
    assert!(answers.granted + answers.failed >= LIMIT, "{answers:?}");
}
