//! What the store asks of a server. These tests run on each server and version, all others on one.

mod across;
mod kept;
mod refusals;
mod slots;
pub mod users;

use std::sync::Arc;
use std::time::Duration;

use tidegate::gate::{Depth, Micros, Operation, Policies, Policy, blob};
use tidegate::local::RedisServer;
use tidegate::store::{Redis, RedisOptions, StoreError};

use crate::connection::errors_until_it_decides;
use crate::{NOW, ask, bucket, futures, grants_in_a_race, on, policy, record, store, within};

#[tokio::test]
async fn a_state_is_kept_until_it_equals_a_fresh_one() {
    let server = RedisServer::start().unwrap();
    let (store, policy) = (store(&server), bucket());
    let decision = store.operate(&on(&policy, "k"), NOW, 2).await.unwrap().decision;
    assert_eq!((decision.is_allowed(), decision.remaining()), (true, 3));
    let name = blob::name(&policy, record(&policy), "k");
    let ttl: i64 = ask(&server, &[b"PTTL", name.as_bytes()]).await;
    let most = 2 * 3_600_000 / 5;
    let kept = 2 * (most + 10_000); // twice, so that most writes need not set it
    assert!((most..=kept).contains(&ttl), "{ttl} ms: two tokens come back in {most} ms");
    let bytes = store.blobs(&on(&policy, "k")).await.unwrap()[0].clone().unwrap();
    let micros = i64::try_from(decision.reset_after().0).unwrap();
    assert_eq!((bytes.len(), micros), (83, most * 1_000));
}

#[tokio::test]
async fn a_peek_writes_nothing() {
    let server = RedisServer::start().unwrap();
    let (store, policy) = (store(&server), bucket());
    assert!(store.operate(&on(&policy, "k"), NOW, 0).await.unwrap().decision.is_allowed());
    let keys: u64 = ask(&server, &[b"DBSIZE"]).await;
    assert_eq!(keys, 0);
}

#[tokio::test]
async fn a_reset_of_a_key_never_seen_writes_nothing() {
    let server = RedisServer::start().unwrap();
    let (store, policy) = (store(&server), bucket());
    for operation in [Operation::Reset(Depth::Whole), Operation::Block(Micros::ZERO)] {
        assert!(store.operate(&on(&policy, "k"), NOW, operation).await.is_ok());
        let keys: u64 = ask(&server, &[b"DBSIZE"]).await;
        assert_eq!(keys, 0, "{operation:?}");
    }
    // another store has charged the key meanwhile
    let other = self::store(&server);
    assert!(other.operate(&on(&policy, "k"), NOW, 5).await.unwrap().decision.is_allowed());
    let reset = store.operate(&on(&policy, "k"), NOW, Operation::Reset(Depth::Whole)).await;
    assert_eq!(reset.unwrap().decision.remaining(), 5);
    assert!(other.operate(&on(&policy, "k"), NOW, 5).await.unwrap().decision.is_allowed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_that_race_for_one_key_grant_no_more_than_one_would() {
    let server = RedisServer::start().unwrap();
    let store = || Redis::new(server.url(), within(Duration::from_secs(30))).unwrap();
    assert_eq!(grants_in_a_race([0; 4].map(|_| store())).await, 40);
}

#[tokio::test]
async fn many_requests_for_one_key_at_once_keep_their_order() {
    let server = RedisServer::start().unwrap();
    let (store, policy) = (store(&server), bucket());
    let k = on(&policy, "k");
    let asked = (0..20).map(|_| store.operate(&k, NOW, 1));
    let decided = futures(asked).await;
    let allowed: Vec<bool> = decided.iter().map(|verdict| verdict.decision.is_allowed()).collect();
    assert_eq!(allowed, [[true; 5].as_slice(), &[false; 15]].concat());
}

#[tokio::test]
async fn foreign_and_truncated_bytes_are_an_error_and_stay_as_they_are() {
    let server = RedisServer::start().unwrap();
    let text = "on_change = 'reset'
                limits = [{ algorithm = 'token_bucket', capacity = 5, rate = '5/h' }]";
    let policy = Arc::new(Policy::parse("p", text).unwrap());
    let (cold, warm) = (store(&server), store(&server));
    let name = blob::name(&policy, record(&policy), "k");
    let good = blob::encode(&policy, record(&policy), &[1, NOW.0]);
    let too_much = blob::encode(&policy, record(&policy), &[u64::MAX, NOW.0]);
    let longer = [&good[..], b"x"].concat();
    let zeros = vec![0; good.len()];
    for (bytes, expected) in [
        (&b""[..], "expected 25 bytes, found 0"),
        (&good[..1], "expected 25 bytes, found 1"),
        (&good[..24], "expected 25 bytes, found 24"),
        (&longer, "expected 25 bytes, found 26"),
        (&zeros, "expected version 3, found 0"),
        (b"hello", "expected version 3, found 104"),
        (&too_much, "expected no more than these limits can grant, found more"),
    ] {
        let _: () = ask(&server, &[b"DEL", name.as_bytes()]).await;
        let known = warm.operate(&on(&policy, "k"), NOW, 1).await.unwrap();
        assert!(known.decision.is_allowed());
        let _: () = ask(&server, &[b"SET", name.as_bytes(), bytes, b"KEEPTTL"]).await;
        for (store, cost) in [(&cold, 0), (&cold, 1), (&warm, 0), (&warm, 1), (&warm, 1)] {
            let error = store.operate(&on(&policy, "k"), NOW, cost).await.unwrap_err();
            assert!(matches!(error, StoreError::Blob { .. }), "{bytes:?}: {error}");
            assert_eq!(error.to_string(), format!("{name:?}: stored state: {expected}"));
            assert_eq!(store.blobs(&on(&policy, "k")).await.unwrap(), [Some(bytes.to_vec())]);
        }
        let ttl: i64 = ask(&server, &[b"PTTL", name.as_bytes()]).await;
        assert!(ttl > 0, "the store took the time to live away");
        let (key, is_own) = (on(&policy, "k"), bytes.first() == good.first());
        for store in [&warm, &cold] {
            let reset = store.operate(&key, NOW, Operation::Reset(Depth::Whole)).await;
            assert_eq!(reset.is_ok(), is_own, "{bytes:?}: {reset:?}");
            assert_eq!(store.operate(&key, NOW, 3).await.is_ok(), is_own, "{bytes:?}");
        }
    }
}

#[tokio::test]
async fn an_empty_value_among_the_records_of_a_partition_charges_none_of_them() {
    let server = RedisServer::start().unwrap();
    let policy = policy(
        "{ algorithm = 'fixed_window', limit = 10, period = '365d', depth = 1 },
         { algorithm = 'fixed_window', limit = 5, period = '365d' }",
    );
    let k = on(&policy, "acme/k");
    let records = policy.limits().records();
    let [shared, own] = [0, 1].map(|record| blob::name(&policy, &records[record], "acme/k"));
    for (empty, other) in [(&shared, &own), (&own, &shared)] {
        for is_known in [false, true] {
            let _: () = ask(&server, &[b"FLUSHALL"]).await;
            let store = store(&server);
            if is_known {
                assert!(store.operate(&k, NOW, 1).await.unwrap().decision.is_allowed());
            }
            let before: Option<Vec<u8>> = ask(&server, &[b"GET", other.as_bytes()]).await;
            let _: () = ask(&server, &[b"SET", empty.as_bytes(), b""]).await;
            let error = store.operate(&k, NOW, 1).await.unwrap_err();
            assert!(matches!(error, StoreError::Blob { .. }), "{error}");
            let after: Option<Vec<u8>> = ask(&server, &[b"GET", other.as_bytes()]).await;
            assert_eq!(before, after, "{empty} is empty, so {other} is not charged");
        }
    }
}

#[tokio::test]
async fn a_value_of_another_type_is_an_error_and_stays_as_it_is() {
    let server = RedisServer::start().unwrap();
    let (cold, warm, policy) = (store(&server), store(&server), bucket());
    let name = blob::name(&policy, record(&policy), "k");
    for (write, kind) in [
        (&[&b"LPUSH"[..], name.as_bytes(), b"x"][..], "list"),
        (&[b"SADD", name.as_bytes(), b"x"], "set"),
        (&[b"HSET", name.as_bytes(), b"x", b"y"], "hash"),
        (&[b"ZADD", name.as_bytes(), b"1", b"x"], "zset"),
        (&[b"XADD", name.as_bytes(), b"*", b"x", b"y"], "stream"),
    ] {
        let _: () = ask(&server, &[b"DEL", name.as_bytes()]).await;
        assert!(warm.operate(&on(&policy, "k"), NOW, 1).await.is_ok());
        let _: () = ask(&server, &[b"DEL", name.as_bytes()]).await;
        let _: redis::Value = ask(&server, write).await;
        for store in [&cold, &warm, &warm] {
            let foreign = store.operate(&on(&policy, "k"), NOW, 1).await;
            let Err(StoreError::Unreadable { names, .. }) = &foreign else {
                panic!("{kind}: {foreign:?}")
            };
            assert_eq!(names, std::slice::from_ref(&name));
            assert!(foreign.unwrap_err().to_string().contains("WRONGTYPE"));
            let after: String = ask(&server, &[b"TYPE", name.as_bytes()]).await;
            assert_eq!(after, kind);
        }
    }
}

#[tokio::test]
async fn a_flushed_script_cache_goes_unnoticed() {
    let server = RedisServer::start().unwrap();
    let (store, policy) = (store(&server), bucket());
    for remaining in (0..5).rev() {
        let _: () = ask(&server, &[b"SCRIPT", b"FLUSH"]).await;
        let decision = store.operate(&on(&policy, "k"), NOW, 1).await.unwrap().decision;
        assert_eq!((decision.is_allowed(), decision.remaining()), (true, remaining));
    }
}

#[tokio::test]
async fn an_outage_gives_errors_and_ends_when_redis_is_back() {
    let mut server = RedisServer::start().unwrap();
    let (store, policy) = (store(&server), bucket());
    assert!(store.operate(&on(&policy, "k"), NOW, 1).await.is_ok());
    server.stop();
    for _ in 0..3 {
        let error = store.operate(&on(&policy, "k"), NOW, 1).await.unwrap_err();
        assert!(matches!(error, StoreError::Redis(_) | StoreError::Deadline { .. }), "{error}");
    }
    server.restart().unwrap();
    errors_until_it_decides(&store, &policy).await;
}

#[tokio::test]
async fn a_caller_does_not_wait_for_a_redis_that_does_not_answer() {
    let server = RedisServer::start().unwrap();
    let options = within(Duration::from_secs(1));
    let (store, policy) = (Redis::new(server.url(), options).unwrap(), bucket());
    errors_until_it_decides(&store, &policy).await; // a busy machine may connect late
    let _: () = ask(&server, &[b"CLIENT", b"PAUSE", b"60000", b"ALL"]).await;
    let error = store.operate(&on(&policy, "k"), NOW, 1).await.unwrap_err();
    assert!(matches!(error, StoreError::Redis(_) | StoreError::Deadline { .. }), "{error}");
}

#[tokio::test]
async fn an_invalid_address_or_one_without_a_server_is_an_error() {
    for url in ["", "nonsense", "http://127.0.0.1/", "redis://"] {
        let store = Redis::new(url, RedisOptions::default());
        let failed = match store {
            Err(_) => true,
            Ok(store) => store.ping().await.is_err(),
        };
        assert!(failed, "{url}");
    }
    let store = Redis::new("redis://127.0.0.1:1", RedisOptions::default()).unwrap();
    assert!(store.ping().await.is_err());
    assert!(store.operate(&on(&bucket(), "k"), NOW, 1).await.is_err());
}

#[test]
fn a_store_can_be_made_without_a_runtime() {
    assert!(Redis::new("redis://127.0.0.1:1", RedisOptions::default()).is_ok());
}

#[tokio::test]
async fn policies_and_revisions_of_a_policy_are_kept_apart() {
    let server = RedisServer::start().unwrap();
    let store = store(&server);
    let limits = |limit| {
        format!("limits = [{{ algorithm = 'fixed_window', limit = {limit}, period = '365d' }}]")
    };
    let text = format!("[policies.a]\n{}\n[policies.b]\n{}", limits(1), limits(1));
    let policies = Policies::parse(&text).unwrap();
    let edited = Arc::new(Policy::parse("a", &limits(2)).unwrap());
    for policy in policies.all().iter().chain([&edited]) {
        let first = store.operate(&on(policy, "k"), NOW, 1).await.unwrap().decision;
        assert!(first.is_allowed(), "{}", policy.name());
    }
    for policy in policies.all() {
        assert!(!store.operate(&on(policy, "k"), NOW, 1).await.unwrap().decision.is_allowed());
    }
}
