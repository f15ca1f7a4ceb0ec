//! What callers are granted while Redis or the network fails, beside the bound that docs/operations.md states.

use std::sync::Arc;
use std::time::Duration;

use tidegate::gate::{Policy, Resolved};
use tidegate::local::RedisServer;
use tidegate::store::{Redis, StoreError};

use super::proxy::Proxy;
use super::{NOW, ask, on, policy, within};

const LIMIT: u64 = 500;

fn window(limit: u64) -> Arc<Policy> {
    policy(&format!("{{ algorithm = 'fixed_window', limit = {limit}, period = '365d' }}"))
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

    fn and(self, other: Self) -> Self {
        Self {
            granted: self.granted + other.granted,
            refused: self.refused + other.refused,
            failed: self.failed + other.failed,
        }
    }
}

/// Eight tasks on two stores ask until the key is exhausted for all, while `disturb` runs before every turn
/// of the first task.
async fn ask_until_refused<F: Future<Output = ()>>(
    stores: [Redis; 2],
    disturb: impl Fn(usize) -> F,
) -> Answers {
    ask_for(stores, &on(&window(LIMIT), "hot"), 60, disturb).await
}

/// The same for this key. The first task takes more than `turns` turns.
async fn ask_for<F: Future<Output = ()>>(
    stores: [Redis; 2],
    key: &Resolved,
    turns: usize,
    disturb: impl Fn(usize) -> F,
) -> Answers {
    let stores = stores.map(Arc::new);
    let ask = async |task: usize| {
        let mut answers = Answers::default();
        for turn in 0.. {
            if task == 0 {
                disturb(turn).await;
            }
            let answer = stores[task % 2].operate(key, NOW, 1).await;
            answers.add(answer.map(|verdict| verdict.decision.is_allowed()));
            if answers.refused > 0 && (task > 0 || turn > turns) {
                break;
            }
        }
        answers
    };
    let all = futures_util::future::join_all((0..8).map(ask)).await;
    all.into_iter().fold(Answers::default(), Answers::and)
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
    let hasty = || Redis::new(server.url(), within(Duration::from_millis(100))).unwrap();
    let answers = ask_until_refused([hasty(), hasty()], async |turn| match turn {
        20 => server.signal("STOP").unwrap(),
        23 => server.signal("CONT").unwrap(), // three deadlines later
        _ => {}
    })
    .await;
    assert!(answers.failed >= 3, "{answers:?}");
    assert!(answers.granted <= LIMIT, "{answers:?}");
    assert!(answers.granted + answers.failed >= LIMIT, "{answers:?}");
}

#[tokio::test]
async fn replies_that_come_after_their_deadline_grant_nothing_twice() {
    let server = RedisServer::start().unwrap();
    let deadline = Duration::from_millis(100);
    let proxies = [0, 1].map(|_| Proxy::start(&server, Duration::ZERO));
    let stores = proxies.each_ref().map(|proxy| Redis::new(&proxy.url, within(deadline)).unwrap());
    let answers = ask_until_refused(stores, async |turn| {
        let late = |delay| proxies.iter().for_each(|proxy| proxy.delay(delay));
        match turn % 20 {
            10 => late(2 * deadline), // Redis executes every call, and nobody waits for its reply
            15 => late(Duration::ZERO),
            _ => {}
        }
    })
    .await;
    println!("late replies: granted {}, bound {LIMIT}; {answers:?}", answers.granted);
    assert!(answers.granted <= LIMIT, "{answers:?}");
    assert!(answers.failed >= 5, "{answers:?}");
    assert!(answers.granted + answers.failed >= LIMIT, "{answers:?}");
}

#[tokio::test]
async fn one_reset_in_twenty_at_200_ms_grants_nothing_twice() {
    const PAIRS: u64 = 8;
    const LIMIT: u64 = 40;
    let server = RedisServer::start().unwrap();
    let (there, deadline) = (Duration::from_millis(100), Duration::from_secs(1));
    let policy = window(LIMIT);
    let proxies: Vec<Proxy> =
        (0..2 * PAIRS).map(|seed| Proxy::resetting(&server, there, 5, seed)).collect();
    let pairs = proxies.chunks(2).enumerate().map(|(pair, proxies)| {
        let store = |n: usize| Redis::new(&proxies[n].url, within(deadline)).unwrap();
        let (stores, key) = ([store(0), store(1)], on(&policy, &format!("hot:{pair}")));
        async move { ask_for(stores, &key, 0, async |_| {}).await }
    });
    let answers = futures_util::future::join_all(pairs).await;
    let resets: u64 = proxies.iter().map(Proxy::resets).sum();
    for answers in &answers {
        assert!(answers.granted <= LIMIT, "{answers:?}");
        assert!(answers.granted + answers.failed >= LIMIT, "{answers:?}");
    }
    let all = answers.into_iter().fold(Answers::default(), Answers::and);
    println!("{resets} resets: granted {}, bound {}; {all:?}", all.granted, PAIRS * LIMIT);
    assert!(resets > 0 && all.failed > 0, "{resets} resets, {all:?}");
}
