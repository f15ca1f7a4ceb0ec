//! The store replaces a connection that is dead or leads to the wrong server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::join_all;
use tidegate::gate::Policy;
use tidegate::local::RedisServer;
use tidegate::store::{Redis, RedisOptions, StoreError};
use tokio::net::TcpSocket;

use super::proxy::Proxy;
use super::{NOW, ask, bucket, on, store, within};

/// Asks until there is an answer, and returns the errors before it.
pub(super) async fn errors_until_it_decides(
    store: &Redis,
    policy: &Arc<Policy>,
) -> Vec<StoreError> {
    let mut errors = Vec::new();
    while let Err(error) = store.operate(&on(policy, "k"), NOW, 1).await {
        errors.push(error);
        tokio::task::yield_now().await;
    }
    errors
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
            let (text, address) = (error.to_string(), proxy.url.strip_prefix("redis://").unwrap());
            assert!(text.contains(expected), "{text}");
            assert!(text.ends_with(&format!("({address})")), "{text}");
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
    for breaks in [false, true] {
        let server = RedisServer::start().unwrap();
        let proxy = Proxy::start(&server, Duration::ZERO);
        let options = within(Duration::from_secs(3));
        let (store, policy) = (Redis::new(&proxy.url, options).unwrap(), bucket());
        assert!(store.operate(&on(&policy, "k"), NOW, 1).await.is_ok());
        wait(REPLACED_AFTER).await; // so that a broken connection is replaced at once
        proxy.lose_answers_to(b"EVALSHA", breaks);
        let error = store.operate(&on(&policy, "k"), NOW, 1).await.unwrap_err();
        assert_ne!(matches!(error, StoreError::Deadline { .. }), breaks, "{error}");
        proxy.lose_nothing();
        errors_until_it_decides(&store, &policy).await; // the second missed deadline ends the connection
        let decision = store.operate(&on(&policy, "k"), NOW, 0).await.unwrap().decision;
        assert_eq!(decision.remaining(), 2, "the grant whose answer was lost was written once");
    }
}

/// Moves the clock by which questions and connections age.
pub(super) async fn wait(time: Duration) {
    tokio::task::yield_now().await; // operations that were just begun ask their questions
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// A dead connection is replaced once it is this old.
pub(super) const REPLACED_AFTER: Duration = Duration::from_millis(100);

#[tokio::test]
async fn a_connection_that_redis_closed_while_it_was_idle_fails_no_decision() {
    let server = RedisServer::start().unwrap();
    let (store, policy) = (store(&server), bucket());
    let close_connections = async || {
        let closed: u64 = ask(&server, &[b"CLIENT", b"KILL", b"TYPE", b"normal"]).await;
        assert!(closed >= 1);
        wait(REPLACED_AFTER).await;
    };
    for remaining in (0..5).rev() {
        let decision = store.operate(&on(&policy, "k"), NOW, 1).await.unwrap().decision;
        assert_eq!((decision.is_allowed(), decision.remaining()), (true, remaining));
        close_connections().await;
        assert!(store.blobs(&on(&policy, "k")).await.unwrap()[0].is_some());
        close_connections().await;
    }
}

/// Hosts that share a key do not know what the others wrote last.
#[tokio::test]
async fn hosts_whose_idle_connections_redis_closed_fail_no_decision() {
    let server = RedisServer::start().unwrap();
    let (one, other, policy) = (store(&server), store(&server), bucket());
    let mut remaining = 5;
    for _ in 0..2 {
        for host in [&one, &other] {
            remaining -= 1;
            let decision = host.operate(&on(&policy, "k"), NOW, 1).await.unwrap().decision;
            assert_eq!((decision.is_allowed(), decision.remaining()), (true, remaining));
        }
        let closed: u64 = ask(&server, &[b"CLIENT", b"KILL", b"TYPE", b"normal"]).await;
        assert!(closed >= 2);
        wait(Duration::from_secs(1)).await;
    }
}

/// More operations than the calls under way can carry.
#[tokio::test]
async fn an_outage_answers_all_that_waits_after_one_deadline() {
    const DEADLINE: Duration = Duration::from_secs(1_000);
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(&server, Duration::ZERO);
    let (store, policy) = (Redis::new(&proxy.url, within(DEADLINE)).unwrap(), bucket());
    assert!(store.operate(&on(&policy, "k"), NOW, 1).await.is_ok());
    proxy.swallow_on_open_connections();
    let keys: Vec<_> = (0..1_000).map(|key| on(&policy, &format!("k{key}"))).collect();
    let mut asked = Box::pin(join_all(keys.iter().map(|key| store.operate(key, NOW, 1))));
    assert!(asked.as_mut().now_or_never().is_none());
    wait(DEADLINE).await;
    assert!(asked.await.iter().all(|answer| matches!(answer, Err(StoreError::Deadline { .. }))));
}

#[tokio::test]
async fn what_happens_late_on_a_replaced_connection_does_not_end_its_successor() {
    const DEADLINE: Duration = Duration::from_secs(1_000);
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(&server, Duration::ZERO);
    let (store, policy) = (Redis::new(&proxy.url, within(DEADLINE)).unwrap(), bucket());
    let keys = ["a", "b", "c", "d", "e", "new"].map(|key| on(&policy, key));
    assert!(store.operate(&keys[0], NOW, 1).await.is_ok());
    let clients: String = ask(&server, &[b"CLIENT", b"LIST"]).await;
    let number = clients.strip_prefix("id=").unwrap().split(' ').next().unwrap(); // the oldest
    proxy.swallow_on_open_connections();
    let [a, b, c, d, e, new] = &keys;
    let begin = |key| {
        let mut asked = Box::pin(store.operate(key, NOW, 1));
        assert!(asked.as_mut().now_or_never().is_none());
        asked
    };
    let missed = begin(a);
    wait(Duration::ZERO).await;
    let also_missed = begin(b); // a question of its own
    wait(DEADLINE / 2).await;
    let later = [begin(c), begin(d)];
    wait(DEADLINE / 4).await;
    let broken = begin(e);
    wait(DEADLINE / 4).await;
    for missed in [missed.await, also_missed.await] {
        assert!(matches!(missed, Err(StoreError::Deadline { .. })), "{missed:?}");
    }
    errors_until_it_decides(&store, &policy).await; // the store asks whether Redis is back
    assert_eq!(proxy.connections(), 2, "two missed deadlines end the first connection");

    wait(DEADLINE / 2).await;
    for missed in join_all(later).await {
        assert!(matches!(missed, Err(StoreError::Deadline { .. })), "{missed:?}");
    }
    assert!(store.operate(new, NOW, 1).await.is_ok());
    assert_eq!(proxy.connections(), 2, "deadlines missed on the first connection ended the second");

    let () = ask(&server, &[b"CLIENT", b"KILL", b"ID", number.as_bytes()]).await;
    assert!(broken.await.is_ok(), "the question that broke is asked again");
    wait(REPLACED_AFTER).await;
    assert!(store.operate(new, NOW, 1).await.is_ok());
    assert_eq!(proxy.connections(), 2, "the end of the first connection ended the second");
}

/// A Cluster has several servers, and the log of its host must say which one is away.
#[tokio::test]
async fn a_server_that_cannot_be_reached_is_named_without_user_and_password() {
    let closed = TcpSocket::new_v4().unwrap(); // has a port, and does not listen
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = closed.local_addr().unwrap().to_string();
    for scheme in ["redis", "redis+cluster"] {
        for address in [&*address, "name.invalid:6379"] {
            let url = format!("{scheme}://user:5ECRET@{address}");
            let store = Redis::new(&url, within(Duration::from_secs(10))).unwrap();
            let error = store.ping().await.unwrap_err().to_string();
            assert!(error.ends_with(&format!("({address})")), "{error}");
            assert_eq!(error.matches(address).count(), 1, "{error}");
            assert!(!error.contains("5ECRET"), "{error}");
        }
    }
}
