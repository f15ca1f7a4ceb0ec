//! The store replaces a connection that is dead or leads to the wrong server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate::gate::Policy;
use tidegate::local::RedisServer;
use tidegate::store::{Redis, RedisOptions, StoreError};

use super::proxy::Proxy;
use super::{NOW, ask, bucket, on, store, within};

/// Asks until there is an answer, and returns the errors before it.
async fn errors_until_it_decides(store: &Redis, policy: &Arc<Policy>) -> Vec<StoreError> {
    let (began, mut errors) = (Instant::now(), Vec::new());
    loop {
        match store.operate(&on(policy, "k"), NOW, 1).await {
            Ok(_) => return errors,
            Err(error) if began.elapsed() < Duration::from_secs(10) => errors.push(error),
            Err(error) => panic!("after 10 s and {} errors: {error}", errors.len()),
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_connection_that_swallows_questions_is_replaced_after_two_missed_deadlines() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(&server, Duration::ZERO);
    let options = within(Duration::from_secs(1));
    let (store, policy) = (Redis::new(&proxy.url, options).unwrap(), bucket());
    assert!(store.operate(&on(&policy, "k"), NOW, 1).await.is_ok());
    proxy.swallow_on_open_connections();
    let errors = errors_until_it_decides(&store, &policy).await;
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(errors.iter().all(|error| matches!(error, StoreError::Deadline(_))), "{errors:?}");
    assert_eq!(proxy.connections(), 2);
}

#[tokio::test]
async fn a_server_that_became_a_replica_is_left_for_the_new_one_at_its_address() {
    for (serves_reads, expected) in [("yes", "read only replica"), ("no", "MASTER is down")] {
        let (old, new) = (RedisServer::start().unwrap(), RedisServer::start().unwrap());
        let proxy = Proxy::start(&old, Duration::ZERO);
        let options = within(Duration::from_secs(10));
        let (store, policy) = (Redis::new(&proxy.url, options).unwrap(), bucket());
        assert!(store.operate(&on(&policy, "k"), NOW, 1).await.is_ok());
        let serves_reads = serves_reads.as_bytes();
        let _: () =
            ask(&old, &[b"CONFIG", b"SET", b"replica-serve-stale-data", serves_reads]).await;
        let _: () = ask(&old, &[b"REPLICAOF", b"127.0.0.1", b"1"]).await;
        proxy.lead_to(&new);
        let errors = errors_until_it_decides(&store, &policy).await;
        assert!(!errors.is_empty());
        for error in errors {
            assert!(error.to_string().contains(expected), "{error}");
        }
        assert_eq!(proxy.connections(), 2);
    }
}

#[tokio::test]
async fn connections_to_a_server_that_stays_a_replica_are_rare() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(&server, Duration::ZERO);
    let (store, policy) = (Redis::new(&proxy.url, RedisOptions::default()).unwrap(), bucket());
    let _: () = ask(&server, &[b"REPLICAOF", b"127.0.0.1", b"1"]).await;
    let began = Instant::now();
    for _ in 0..100 {
        assert!(store.operate(&on(&policy, "k"), NOW, 1).await.is_err());
    }
    let most = began.elapsed().as_millis() / 100 + 1;
    assert!(u128::try_from(proxy.connections()).unwrap() <= most, "{}", proxy.connections());
}

#[tokio::test]
async fn a_write_whose_answer_is_lost_is_not_repeated() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(&server, Duration::ZERO);
    let options = within(Duration::from_secs(1));
    let (store, policy) = (Redis::new(&proxy.url, options).unwrap(), bucket());
    assert!(store.operate(&on(&policy, "k"), NOW, 1).await.is_ok());
    proxy.lose_answers_to(b"EVALSHA");
    let error = store.operate(&on(&policy, "k"), NOW, 1).await.unwrap_err();
    assert!(matches!(error, StoreError::Deadline(_)), "{error}");
    proxy.lose_nothing();
    for _ in 0..2 {
        let _ = store.ping().await; // the second missed deadline ends the connection
    }
    let decision = store.operate(&on(&policy, "k"), NOW, 0).await.unwrap().decision;
    assert_eq!(decision.remaining(), 3, "the grant whose answer was lost was written once");
}

/// Closes all connections of a store, as Redis closes idle ones after its `timeout`.
async fn close_connections(server: &RedisServer) {
    let closed: u64 = ask(server, &[b"CLIENT", b"KILL", b"TYPE", b"normal"]).await;
    assert!(closed >= 1);
    // a dead connection is replaced once it is at least this old
    tokio::time::pause();
    tokio::time::advance(Duration::from_millis(100)).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_connection_that_redis_closed_while_it_was_idle_fails_no_decision() {
    let server = RedisServer::start().unwrap();
    let (store, policy) = (store(&server), bucket());
    for remaining in (0..5).rev() {
        let decision = store.operate(&on(&policy, "k"), NOW, 1).await.unwrap().decision;
        assert_eq!((decision.is_allowed(), decision.remaining()), (true, remaining));
        close_connections(&server).await;
        assert!(store.blobs(&on(&policy, "k")).await.unwrap()[0].is_some());
        close_connections(&server).await;
    }
}
