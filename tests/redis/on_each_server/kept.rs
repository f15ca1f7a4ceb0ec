//! For how long Redis keeps what the store writes, and that a partition is written as a whole or not at all.

use tidegate::gate::{Resolved, Timestamp, Transaction};
use tidegate::local::RedisServer;

use crate::{NOW, ask, bucket, on, policy, store};

fn names(resolved: &Resolved) -> Vec<String> {
    let mut transaction = Transaction::default();
    transaction.join(resolved);
    transaction.names().map(str::to_owned).collect()
}

async fn ttl(server: &RedisServer, name: &str) -> i64 {
    ask(server, &[b"PTTL", name.as_bytes()]).await
}

#[tokio::test]
async fn no_write_shortens_the_time_that_redis_keeps_a_state() {
    let server = RedisServer::start().unwrap();
    let (store, policy) = (store(&server), bucket());
    let k = on(&policy, "k");
    let name = &names(&k)[0];
    assert!(store.operate(&k, NOW, 1).await.unwrap().decision.is_allowed());
    let one = ttl(&server, name).await;
    assert!(store.operate(&k, NOW, 3).await.unwrap().decision.is_allowed());
    let four = ttl(&server, name).await;
    assert!(four > 2 * one, "{four} ms after {one} ms: more units take longer to come back");
    // much later, almost all units are back
    let later = Timestamp(NOW.0 + 3_000_000_000 * 4 / 5);
    for other in [&store, &crate::store(&server)] {
        assert!(other.operate(&k, later, 1).await.unwrap().decision.is_allowed());
        let kept = ttl(&server, name).await;
        assert!((four - 60_000..=four).contains(&kept), "{kept} ms, {four} ms before");
    }
    // a state that somebody made permanent expires again
    let _: () = ask(&server, &[b"PERSIST", name.as_bytes()]).await;
    let other = crate::store(&server);
    assert!(other.operate(&k, later, 1).await.unwrap().decision.is_allowed());
    assert!(ttl(&server, name).await > 0);
}

#[tokio::test]
async fn a_write_that_needs_no_longer_time_is_one_command() {
    let server = RedisServer::start().unwrap();
    let (store, policy) =
        (store(&server), policy("{ algorithm = 'fixed_window', limit = 99, period = '1d' }"));
    let k = on(&policy, "k");
    assert!(store.operate(&k, NOW, 1).await.unwrap().decision.is_allowed());
    let _: () = ask(&server, &[b"CONFIG", b"RESETSTAT"]).await;
    for _ in 0..10 {
        assert!(store.operate(&k, NOW, 1).await.unwrap().decision.is_allowed());
    }
    let told: String = ask(&server, &[b"INFO", b"commandstats"]).await;
    let calls = |command: &str| {
        let line = format!("cmdstat_{command}:calls=");
        let calls = told.lines().find_map(|told| told.strip_prefix(line.as_str()));
        calls.map_or(0, |calls| calls.split(',').next().unwrap().parse::<u32>().unwrap())
    };
    let each = ["evalsha", "set", "get", "pttl"].map(calls);
    assert_eq!(each, [10, 10, 0, 0], "{told}");
}

#[tokio::test]
async fn a_partition_of_several_records_is_written_as_a_whole_or_not_at_all() {
    let server = RedisServer::start().unwrap();
    let policy = policy(
        "{ algorithm = 'fixed_window', limit = 10, period = '365d', depth = 1 },
         { algorithm = 'fixed_window', limit = 5, period = '365d' }",
    );
    let (one, other) = (store(&server), store(&server));
    let k = on(&policy, "acme/k");
    let [shared, own] = &names(&k)[..] else { panic!("two records") };
    for _ in 0..2 {
        assert!(one.operate(&k, NOW, 1).await.unwrap().decision.is_allowed());
    }
    // `one` expects both records as it left them, and the second is gone
    let _: () = ask(&server, &[b"DEL", own.as_bytes()]).await;
    for store in [&one, &other] {
        assert!(store.operate(&k, NOW, 1).await.unwrap().decision.is_allowed());
    }
    let verdict = one.operate(&k, NOW, 0).await.unwrap();
    let remaining: Vec<u64> = verdict.limits.iter().map(|said| said.remaining()).collect();
    assert_eq!(remaining, [6, 3], "each unit was taken once from each record");
    let written: Vec<u8> = ask(&server, &[b"GET", shared.as_bytes()]).await;
    let _: () = ask(&server, &[b"DEL", own.as_bytes()]).await;
    let _: () = ask(&server, &[b"LPUSH", own.as_bytes(), b"foreign"]).await;
    assert!(one.operate(&k, NOW, 1).await.is_err());
    let after: Vec<u8> = ask(&server, &[b"GET", shared.as_bytes()]).await;
    assert_eq!(written, after, "the first record was taken back");
}
