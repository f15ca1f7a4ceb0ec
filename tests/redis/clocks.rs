//! The clocks of the hosts and of Redis differ, and requests wait.

use std::time::Duration;

use tidegate::gate::{Micros, Timestamp, blob};
use tidegate::local::RedisServer;
use tidegate::store::{Redis, RedisOptions};

use super::{ask, on, policy, record, store, within};

const WINDOW: u64 = 10_000_000;

#[tokio::test]
async fn hosts_whose_clocks_differ_by_5_s_grant_the_limit_of_a_window_of_10_s_once() {
    let server = RedisServer::start().unwrap();
    let policy = policy("{ algorithm = 'fixed_window', limit = 10, period = '10s' }");
    let (ahead, behind) = (store(&server), store(&server));
    // by the clock of the host that is ahead, the window ends in a millisecond
    let at_its_end = Timestamp(170_000_000 * WINDOW + WINDOW - 1_000);
    let granted = ahead.operate(&on(&policy, "k"), at_its_end, 10).await.unwrap();
    assert!(granted.decision.is_allowed());
    let name = blob::name(&policy, record(&policy), "k");
    loop {
        let left: i64 = ask(&server, &[b"PTTL", name.as_bytes()]).await;
        if !(0..=5_000).contains(&left) {
            break; // the state has expired, or lives until the window ends for the host behind
        }
    }
    let in_its_midst = Timestamp(at_its_end.0 - Micros(5_000_000).0);
    let other = behind.operate(&on(&policy, "k"), in_its_midst, 1).await.unwrap();
    assert!(!other.decision.is_allowed(), "this window has already granted 10");
}

#[tokio::test]
async fn a_request_that_waited_longer_than_the_period_does_not_turn_the_clock_back() {
    const NOW: Timestamp = Timestamp(17_000 * WINDOW);
    let server = RedisServer::start().unwrap();
    let policy = policy("{ algorithm = 'token_bucket', capacity = 5, rate = '5/s' }");
    assert!(store(&server).operate(&on(&policy, "k"), NOW, 5).await.unwrap().decision.is_allowed());
    // another host was stopped for 3 s with a request in its queue
    let options = RedisOptions { clock: Some(|| NOW), ..within(Duration::from_secs(10)) };
    let stopped = Redis::new(server.url(), options).unwrap();
    let asked_at = Timestamp(NOW.0 - 3_000_000);
    let late = stopped.operate(&on(&policy, "k"), asked_at, 1).await.unwrap();
    assert!(!late.decision.is_allowed(), "{late:?}");
    assert_eq!(late.at, NOW);
    let next = store(&server).operate(&on(&policy, "k"), Timestamp(NOW.0 + 1), 1).await.unwrap();
    assert!(!next.decision.is_allowed(), "the bucket is still empty");
    // a batch has one time, so a short wait does not change it
    let just_now = Timestamp(NOW.0 - 500_000);
    let soon = stopped.operate(&on(&policy, "another"), just_now, 1).await.unwrap();
    assert_eq!(soon.at, just_now);
}
