//! What a host answers without asking Redis, where the policy allows it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate::gate::{Operation, Policy, Timestamp, blob};
use tidegate::local::RedisServer;
use tidegate::store::{Redis, RedisOptions};
use tidegate::{clock, gate::Depth};

use super::load::holds;
use super::{NOW, ask, on, record, within};

/// A store with its default clock, which may answer by itself.
fn node(server: &RedisServer) -> Redis {
    let deadline = Duration::from_secs(10);
    let options = RedisOptions { deadline, ..RedisOptions::default() };
    Redis::new(server.url(), options).unwrap()
}

fn policy(nodes: &str) -> Arc<Policy> {
    let limits = "limits = [{ algorithm = 'fixed_window', limit = 500, period = '365d' }]";
    Arc::new(Policy::parse("p", &format!("{nodes}\n{limits}")).unwrap())
}

/// The number of calls of the script since the last `CONFIG RESETSTAT`.
pub(super) async fn calls(server: &RedisServer) -> u64 {
    let told: String = ask(server, &[b"INFO", b"commandstats"]).await;
    let mut calls = told.lines().filter_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    calls.next().map_or(0, |calls| calls.split(',').next().unwrap().parse().unwrap())
}

/// Asks for single units and counts the grants.
async fn grants(store: &Redis, policy: &Arc<Policy>, times: u64) -> u64 {
    let mut granted = 0;
    for _ in 0..times {
        let verdict = store.operate(&on(policy, "hot"), clock::now(), 1).await.unwrap();
        granted += u64::from(verdict.decision.is_allowed());
    }
    granted
}

#[tokio::test]
async fn a_refusal_that_is_known_sends_no_command() {
    let server = RedisServer::start().unwrap();
    for (nodes, expected) in [("remember = '1h'", 1), ("", 100)] {
        let (store, policy) = (node(&server), policy(nodes));
        let k = on(&policy, "k");
        assert!(store.operate(&k, clock::now(), 500).await.unwrap().decision.is_allowed());
        let _: () = ask(&server, &[b"CONFIG", b"RESETSTAT"]).await;
        for _ in 0..100 {
            let refused = store.operate(&k, clock::now(), 1).await.unwrap();
            assert!(!refused.decision.is_allowed());
        }
        assert_eq!(calls(&server).await, expected, "{nodes:?}");
        // what this host does to the key ends what it knows
        let _ = store.operate(&k, clock::now(), Operation::Reset(Depth::Whole)).await.unwrap();
        assert!(store.operate(&k, clock::now(), 1).await.unwrap().decision.is_allowed());
        let _: () = ask(&server, &[b"FLUSHALL"]).await;
    }
}

#[tokio::test]
async fn a_refusal_that_is_known_stands_while_redis_is_away() {
    let mut server = RedisServer::start().unwrap();
    let (store, policy) = (node(&server), policy("remember = '1h'"));
    let k = on(&policy, "k");
    assert!(store.operate(&k, clock::now(), 500).await.unwrap().decision.is_allowed());
    assert!(!store.operate(&k, clock::now(), 1).await.unwrap().decision.is_allowed());
    server.stop();
    assert!(!store.operate(&k, clock::now(), 1).await.unwrap().decision.is_allowed());
    assert!(store.operate(&on(&policy, "other"), clock::now(), 1).await.is_err());
}

#[tokio::test]
async fn a_store_without_a_clock_asks_for_each_operation() {
    let server = RedisServer::start().unwrap();
    let (store, policy) = (super::store(&server), policy("remember = '1h'"));
    assert_eq!(grants(&store, &policy, 500).await, 500);
    let _: () = ask(&server, &[b"CONFIG", b"RESETSTAT"]).await;
    assert_eq!(grants(&store, &policy, 20).await, 0);
    assert_eq!(calls(&server).await, 20);
}

#[tokio::test]
async fn hosts_that_hold_units_grant_no_more_than_the_limit() {
    let server = RedisServer::start().unwrap();
    let policy = policy("local = { most = 50, time = '1h' }");
    let (one, other) = (node(&server), node(&server));
    let mut granted = 0;
    for _ in 0..40 {
        granted += grants(&one, &policy, 10).await + grants(&other, &policy, 10).await;
    }
    // each host may still hold units that it could not spend, because the other asked first
    assert!((400..=500).contains(&granted), "{granted}");
    let asked = calls(&server).await;
    assert!(asked < 400, "800 requests, {asked} calls");
}

#[tokio::test]
async fn the_units_of_a_host_that_dies_are_lost_and_not_granted_twice() {
    let server = RedisServer::start().unwrap();
    let policy = policy("local = { most = 50, time = '1h' }");
    let mut granted = 0;
    for _ in 0..8 {
        let dies = node(&server);
        granted += grants(&dies, &policy, 30).await;
    }
    let last = node(&server);
    granted += grants(&last, &policy, 600).await;
    assert!(granted <= 500, "{granted}");
    assert!(granted >= 500 - 9 * 50, "each host loses at most what it holds: {granted}");
}

#[tokio::test]
async fn held_units_and_a_redis_that_loses_everything_grant_the_limit_once_more() {
    let server = RedisServer::start().unwrap();
    let policy = policy("local = { most = 50, time = '1h' }");
    let (one, other) = (node(&server), node(&server));
    let mut granted = grants(&one, &policy, 200).await + grants(&other, &policy, 100).await;
    let _: () = ask(&server, &[b"FLUSHALL"]).await;
    granted += grants(&one, &policy, 600).await + grants(&other, &policy, 600).await;
    assert!((501..=1_000).contains(&granted), "{granted}");
}

fn reports(rate: &str) -> Arc<Policy> {
    let limits = format!("limits = [{{ algorithm = 'suppression', rate = '{rate}' }}]");
    Arc::new(Policy::parse("p", &format!("reports = true\n{limits}")).unwrap())
}

/// However slow this runs, each host asks once and then reports at most every 2 s, in two parts.
#[tokio::test]
async fn hosts_that_report_suppress_an_account_with_few_commands() {
    const PART: u64 = 600;
    let server = RedisServer::start().unwrap();
    let (policy, hosts) = (reports("100/s"), [node(&server), node(&server)]);
    let key = on(&policy, "hot");
    let (began, mut granted, mut early) = (Instant::now(), 0, 0);
    for request in 0..8_000_u64 {
        let host = &hosts[usize::from(request % 2 == 1)];
        let verdict = host.operate(&key, clock::now(), 1).await.unwrap();
        let decision = verdict.decision;
        assert_eq!((decision.limit(), verdict.limits), (PART, vec![decision]));
        assert!(decision.is_allowed() || (1..=6_000_000).contains(&decision.retry_after().0));
        granted += u64::from(decision.is_allowed());
        early += u64::from(request < PART && decision.is_allowed());
        tokio::task::yield_now().await; // a report is on its way
    }
    let seconds = began.elapsed().as_secs();
    assert_eq!(early, PART, "nothing is refused before the account exceeds its limit");
    let parts = seconds / 6 + 2;
    assert!(granted <= 2 * (PART + 1) * parts, "{granted} grants in {seconds} s");
    let asked = 2 * (1 + 2 * (seconds / 2 + 2));
    let calls = calls(&server).await;
    // a question of one host may make one of the other host find another state, and a new Redis has no script
    assert!(calls <= 2 * asked + 4, "{calls} calls for at most {asked} questions");
}

/// The time stands still, so the parts of 6 s in which all this happened are still counted.
#[tokio::test]
async fn what_a_host_was_offered_is_reported_after_the_last_request() {
    let server = RedisServer::start().unwrap();
    let options = RedisOptions { clock: Some(|| NOW), ..within(Duration::from_secs(10)) };
    let (policy, host) = (reports("1000/s"), Redis::new(server.url(), options).unwrap());
    let key = on(&policy, "k");
    for _ in 0..50 {
        assert!(host.operate(&key, NOW, 1).await.unwrap().decision.is_allowed());
    }
    holds(async || {
        let bytes = host.blobs(&key).await.unwrap()[0].clone().unwrap();
        let record = blob::decode(&policy, record(&policy), &bytes, Timestamp::EPOCH).unwrap();
        let [_, counts @ ..] = &*record else { panic!("{record:?}") };
        counts.iter().sum::<u64>() == 50
    })
    .await;
}

#[tokio::test]
async fn a_host_that_reports_decides_while_redis_is_away() {
    let mut server = RedisServer::start().unwrap();
    let (policy, host, began) = (reports("100/s"), node(&server), Instant::now());
    let key = on(&policy, "k");
    assert!(host.operate(&key, clock::now(), 1).await.unwrap().decision.is_allowed());
    server.stop();
    match host.operate(&key, clock::now(), 1).await {
        Ok(verdict) => assert!(verdict.decision.is_allowed()),
        Err(_) => assert!(began.elapsed() > Duration::from_secs(24), "the factor holds for 24 s"),
    }
    assert!(host.operate(&on(&policy, "other"), clock::now(), 1).await.is_err());
}
