//! What was read and refused stays refused when Redis takes no writes.

use std::sync::Arc;

use tidegate::gate::{Policy, Timestamp};
use tidegate::local::RedisServer;
use tidegate::store::{Redis, StoreError};
use tidegate_tests::until_async;

use crate::{NOW, ask, futures, on, policy, store};

const LATER: Timestamp = Timestamp(NOW.0 + 1_000_000);

type Command = &'static [&'static [u8]];

/// Commands after which a running Redis takes no writes, and commands that undo them.
const REFUSALS: [(Command, Command); 2] = [
    (&[b"CONFIG", b"SET", b"maxmemory", b"1"], &[b"CONFIG", b"SET", b"maxmemory", b"0"]),
    (&[b"REPLICAOF", b"127.0.0.1", b"1"], &[b"REPLICAOF", b"NO", b"ONE"]),
];

async fn is_allowed(
    store: &Redis,
    policy: &Arc<Policy>,
    key: &str,
    cost: u64,
) -> Result<bool, StoreError> {
    Ok(store.operate(&on(policy, key), LATER, cost).await?.decision.is_allowed())
}

async fn stays_refused(policy: &Arc<Policy>) {
    for (refuse_writes, take_writes) in REFUSALS {
        let server = RedisServer::start().unwrap();
        let store = store(&server);
        assert!(store.operate(&on(policy, "k"), NOW, 5).await.unwrap().decision.is_allowed());
        let _: () = ask(&server, refuse_writes).await;
        for _ in 0..3 {
            assert!(!is_allowed(&store, policy, "k", 5).await.unwrap(), "{refuse_writes:?}");
        }
        let error = is_allowed(&store, policy, "new", 1).await.unwrap_err();
        assert!(matches!(error, StoreError::Redis(_)), "{error}");
        let _: () = ask(&server, take_writes).await;
        assert!(!is_allowed(&store, policy, "k", 5).await.unwrap());
    }
}

#[tokio::test]
async fn an_exhausted_key_stays_refused() {
    stays_refused(&policy("{ algorithm = 'token_bucket', capacity = 5, rate = '5/d' }")).await;
}

#[tokio::test]
async fn an_exhausted_key_stays_refused_where_refusals_are_remembered() {
    stays_refused(&policy("{ algorithm = 'sliding_log', rates = ['5/d'], count_denied = true }"))
        .await;
}

/// A disk that takes no files, as a full one takes none.
#[tokio::test]
async fn a_redis_whose_disk_takes_nothing_charges_nothing_and_says_why() {
    let server = RedisServer::start_with(["--dir", "/proc"]).unwrap();
    let _: () = ask(&server, &[b"CONFIG", b"SET", b"save", b"3600 1"]).await;
    let store = store(&server);
    let policy = policy("{ algorithm = 'token_bucket', capacity = 5, rate = '5/d' }");
    assert!(is_allowed(&store, &policy, "k", 5).await.unwrap());
    let _: redis::Value = ask(&server, &[b"BGSAVE"]).await;
    until_async("Redis could not save", async || {
        let told: String = ask(&server, &[b"INFO", b"persistence"]).await;
        told.contains("rdb_last_bgsave_status:err")
    })
    .await;
    assert!(!is_allowed(&store, &policy, "k", 5).await.unwrap(), "it stays refused");
    let error = is_allowed(&store, &policy, "new", 1).await.unwrap_err();
    assert!(error.to_string().starts_with("redis: "), "{error}");
    assert!(error.to_string().contains("MISCONF"), "{error}");
    assert_eq!(error.summary(), "the store is unavailable");
    let _: () = ask(&server, &[b"CONFIG", b"SET", b"stop-writes-on-bgsave-error", b"no"]).await;
    let left = futures((0..6).map(|_| is_allowed(&store, &policy, "new", 1))).await;
    assert_eq!(left, [true, true, true, true, true, false], "nothing was charged");
}

#[tokio::test]
async fn a_refusal_caused_by_a_grant_that_was_not_written_does_not_stand() {
    let server = RedisServer::start().unwrap();
    let store = store(&server);
    let policy = policy("{ algorithm = 'fixed_window', limit = 5, period = '365d' }");
    assert!(is_allowed(&store, &policy, "k", 2).await.unwrap());
    let _: () = ask(&server, REFUSALS[0].0).await;
    // 3 are left: the second request is refused because of the first, the third because of what was read
    let costs = [3, 1, 4, 0];
    let decided =
        futures_util::future::join_all(costs.map(|cost| is_allowed(&store, &policy, "k", cost)));
    let decided: Vec<Option<bool>> = decided.await.into_iter().map(Result::ok).collect();
    assert_eq!(decided, [None, None, Some(false), Some(true)]);
    let _: () = ask(&server, REFUSALS[0].1).await;
    let left = futures((0..5).map(|_| is_allowed(&store, &policy, "k", 1))).await;
    assert_eq!(left, [true, true, true, false, false], "nothing was charged");
}

#[tokio::test]
async fn a_refusal_takes_one_round_trip() {
    let server = RedisServer::start().unwrap();
    let store = store(&server);
    let policy = policy("{ algorithm = 'token_bucket', capacity = 5, rate = '5/d' }");
    assert!(store.operate(&on(&policy, "k"), NOW, 5).await.unwrap().decision.is_allowed());
    let _: () = ask(&server, &[b"CONFIG", b"RESETSTAT"]).await;
    for _ in 0..10 {
        assert!(!is_allowed(&store, &policy, "k", 5).await.unwrap());
    }
    let told: String = ask(&server, &[b"INFO", b"commandstats"]).await;
    let calls = told.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    assert_eq!(calls.unwrap().split(',').next(), Some("10"), "{told}");
}

/// The next process must know a refusal that a limit remembers.
#[tokio::test]
async fn a_remembered_refusal_is_written_before_it_is_answered() {
    let server = RedisServer::start().unwrap();
    let policy = policy("{ algorithm = 'sliding_log', rates = ['5/d'], count_denied = true }");
    let one = store(&server);
    assert!(is_allowed(&one, &policy, "k", 3).await.unwrap());
    assert!(!is_allowed(&one, &policy, "k", 3).await.unwrap());
    let other = store(&server);
    assert!(!is_allowed(&other, &policy, "k", 2).await.unwrap(), "the log counts 5");
}
