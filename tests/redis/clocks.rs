//! The clocks of the hosts and of Redis differ.

use tidegate::gate::{Micros, Timestamp, blob};
use tidegate::local::RedisServer;

use super::{ask, on, policy, slice, store};

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
    let name = blob::name(&policy, slice(&policy), "k");
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
