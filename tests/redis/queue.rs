//! Many operations on one partition at once: time in the store's own queue is not an outage.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use tidegate::gate::{Depth, Id, Operation, Policy, Request, Resolved, Timestamp};
use tidegate::local::RedisServer;
use tidegate::store::{Redis, StoreError};

use super::proxy::Proxy;
use super::{NOW, bucket, futures, on, policy, store, within};

const TWO_MS: Duration = Duration::from_millis(2);

/// The number of grants, and the number of requests that were not decided.
fn count(decided: &[Result<bool, StoreError>]) -> (usize, usize) {
    let granted = decided.iter().filter(|decided| matches!(decided, Ok(true))).count();
    (granted, decided.iter().filter(|decided| decided.is_err()).count())
}

#[tokio::test]
async fn a_thousand_checks_of_one_key_over_a_slow_network_grant_the_limit_and_degrade_none() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(&server, TWO_MS);
    let store = Redis::new(&proxy.url, within(Duration::from_secs(10))).unwrap();
    let policy = policy("{ algorithm = 'fixed_window', limit = 5, period = '1m' }");
    let decided = join_all((0..1_000).map(async |_| {
        let verdict = store.operate(&on(&policy, "hot"), NOW, 1).await?;
        Ok(verdict.decision.is_allowed())
    }));
    assert_eq!(count(&decided.await), (5, 0));
}

#[tokio::test]
async fn a_flood_by_one_user_degrades_no_other_of_the_same_partition() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(&server, TWO_MS);
    let store = Redis::new(&proxy.url, within(Duration::from_secs(10))).unwrap();
    let policy = policy(
        "{ algorithm = 'fixed_window', limit = 1_000_000, period = '1m', depth = 0 },
         { algorithm = 'fixed_window', limit = 5, period = '1m' }",
    );
    let ask = async |key: String| {
        let verdict = store.operate(&on(&policy, &key), NOW, 1).await?;
        Ok(verdict.decision.is_allowed())
    };
    let flood = join_all((0..20_000).map(|_| ask("mallory".to_owned())));
    let others = join_all((0..100).map(|user| ask(format!("user:{user}"))));
    let (flood, others) = futures_util::future::join(flood, others).await;
    assert_eq!(count(&others), (100, 0));
    let (granted, degraded) = count(&flood);
    assert_eq!(granted, 5);
    assert_eq!(degraded, 20_000 - 8_192, "one key has a bounded number of places");
    assert_eq!(store.overloaded(), 20_000 - 8_192);
    let too_many = flood.into_iter().find_map(Result::err);
    assert!(matches!(too_many, Some(StoreError::Overloaded { .. })), "{too_many:?}");
}

#[tokio::test]
async fn a_redis_that_answers_one_question_at_a_time_is_not_away() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(&server, Duration::ZERO);
    let (policy, deadline) = (bucket(), Duration::from_secs(5)); // so long that a slow machine gets an answer in it
    let store = Redis::new(&proxy.url, within(deadline)).unwrap();
    assert!(store.operate(&on(&policy, "k"), NOW, 1).await.is_ok()); // Redis knows the script
    proxy.thin(Duration::from_millis(500));
    // four calls of 64 keys are under way, and each answer has 4 bytes: the last comes after 8 s
    let decided = join_all((0..4 * 64).map(async |key| {
        let verdict = store.operate(&on(&policy, &format!("user:{key}")), NOW, 1).await?;
        Ok(verdict.decision.is_allowed())
    }));
    assert_eq!(count(&decided.await), (4 * 64, 0));
}

#[tokio::test]
async fn operations_under_way_together_are_decided_in_their_order() {
    let server = RedisServer::start().unwrap();
    let (store, policy) = (store(&server), bucket());
    let costs = [4, 3, 0, 1, 1, 0]; // 3 is refused and takes nothing
    let k = on(&policy, "k");
    let decided = join_all(costs.map(|cost| store.operate(&k, NOW, cost))).await;
    let decided: Vec<(bool, u64)> = decided
        .into_iter()
        .map(|decided| decided.unwrap().decision)
        .map(|decision| (decision.is_allowed(), decision.remaining()))
        .collect();
    let expected = [(true, 1), (false, 1), (true, 1), (true, 0), (false, 0), (true, 0)];
    assert_eq!(decided, expected);
}

/// Policies with shared records, remembered refusals, kept states or leases.
const KINDS: [&str; 4] = [
    "limits = [{ algorithm = 'token_bucket', capacity = 9, rate = '1/s' },
               { algorithm = 'fixed_window', limit = 20, period = '1m', depth = 1 }]",
    "limits = [{ algorithm = 'sliding_log', rates = ['9/m'], count_denied = true },
               { algorithm = 'penalty', refusals = 3, within = '1m', duration = '10s', depth = 0 }]",
    "limits = [{ algorithm = 'sliding_window', limit = 9, period = '1m', segments = 4, depth = 1 }]
     on_change = 'keep'
     overrides = { 'acme/1' = { limit = 20 } }",
    "limits = [{ algorithm = 'concurrency', capacity = 4, time_to_live = '2s' }]",
];

#[tokio::test]
async fn operations_done_together_answer_and_store_the_same_as_one_by_one() {
    for text in KINDS {
        let policy = Arc::new(Policy::parse("p", text).unwrap());
        let mut random = fastrand::Rng::with_seed(7);
        let mut now = NOW;
        let asked: Vec<(Resolved, Timestamp, Operation)> = (0..200)
            .map(|_| {
                now = Timestamp(now.0 + random.u64(0..400_000));
                let at = Timestamp(now.0 - random.u64(0..2) * random.u64(0..1_000_000));
                let id = Id([0, random.u64(1..6)]);
                let request = Request { lease: Some(id), ..Request::of(random.u64(0..4)) };
                let operation = match random.u8(0..8) {
                    0 => Operation::Release(id),
                    1 | 2 => Operation::Refund(random.u64(1..5)),
                    3 => Operation::Reset(Depth::Whole),
                    _ => request.into(),
                };
                (on(&policy, &format!("acme/{}", random.u8(0..3))), at, operation)
            })
            .collect();
        let servers = [RedisServer::start().unwrap(), RedisServer::start().unwrap()];
        let [one_by_one, together] = servers.each_ref().map(store);
        let mut expected = Vec::new();
        for (key, at, operation) in &asked {
            expected.push(one_by_one.operate(key, *at, *operation).await.unwrap());
        }
        let mut found = Vec::new();
        for chunk in asked.chunks(40) {
            let decided =
                chunk.iter().map(|(key, at, operation)| together.operate(key, *at, *operation));
            found.extend(futures(decided).await);
        }
        assert_eq!(found, expected, "{text}");
        for key in ["acme/0", "acme/1", "acme/2"] {
            let [one_by_one, together] = [
                one_by_one.blobs(&on(&policy, key)).await.unwrap(),
                together.blobs(&on(&policy, key)).await.unwrap(),
            ];
            assert_eq!(together, one_by_one, "{key} of {text}");
        }
    }
}

#[tokio::test]
async fn when_one_caller_goes_away_the_others_get_their_answers() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(&server, TWO_MS);
    let options = within(Duration::from_secs(10));
    let (store, policy) = (Redis::new(&proxy.url, options).unwrap(), bucket());
    let k = on(&policy, "k");
    let ask = || Box::pin(store.operate(&k, NOW, 1));

    let (mut leaves_early, mut stays) = (ask(), ask());
    assert!((&mut leaves_early).now_or_never().is_none());
    assert!((&mut stays).now_or_never().is_none());
    drop(leaves_early); // before Redis was asked, so nothing is charged
    assert_eq!(stays.await.unwrap().decision.remaining(), 4);

    let (mut leaves_late, mut stays) = (ask(), ask());
    assert!((&mut leaves_late).now_or_never().is_none());
    tokio::task::yield_now().await; // Redis has been asked
    assert!((&mut stays).now_or_never().is_none());
    drop(leaves_late);
    assert_eq!(
        stays.await.unwrap().decision.remaining(),
        2,
        "the cost of the caller that left late was charged"
    );
}

#[tokio::test]
async fn a_read_after_a_refusal_sees_what_the_refusal_wrote() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(&server, TWO_MS);
    let options = within(Duration::from_secs(10));
    let store = Redis::new(&proxy.url, options).unwrap();
    let policy = bucket();
    assert!(store.operate(&on(&policy, "k"), NOW, 5).await.unwrap().decision.is_allowed());
    let before = store.blobs(&on(&policy, "k")).await.unwrap();
    let later = NOW.saturating_add(tidegate::gate::Micros(1_000_000));
    assert!(!store.operate(&on(&policy, "k"), later, 5).await.unwrap().decision.is_allowed());
    assert_ne!(
        store.blobs(&on(&policy, "k")).await.unwrap(),
        before,
        "the refusal writes the newest time"
    );
}
