//! Processes of `tidegate serve` under `on_error = "local"` while Redis is away: what they grant beside the bound that docs/modes.md
//! states, and who sees it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tidegate::clock;
use tidegate::gate::{Policy, blob};
use tidegate::local::RedisServer;
use tidegate::store::{Redis, StoreError};
use tidegate_tests::{Heard, World, until};

use super::connection::{REPLACED_AFTER, wait};
use super::load::holds;
use super::{NOW, ask, on, record, store, within};

/// What every key may take in a year, the period of the limit.
const LIMIT: u64 = 1_500;
const POLICIES: &str = "
[policies.window]
limits = [{ algorithm = 'fixed_window', limit = 1500, period = '365d' }]
on_error = 'local'
[policies.reserved]
limits = [{ algorithm = 'fixed_window', limit = 1500, period = '365d' }]
reservations = { most = 1000, remember = '1s' }
on_error = 'local'
[policies.bucket]
limits = [{ algorithm = 'token_bucket', capacity = 1500, rate = '1/d' }]
on_error = 'local'
";

/// So long that a busy machine answers many requests meanwhile.
const DEADLINE: Duration = Duration::from_secs(2);

fn hosts(
    asked: &'static [&'static str],
    hosts_and_callers: (usize, usize),
    redis: &RedisServer,
) -> World {
    let deadline = DEADLINE.as_millis().to_string();
    let arguments = ["--redis", redis.url(), "--redis-deadline", &deadline];
    World::new((POLICIES, asked), hosts_and_callers, &arguments)
}

/// What happens to Redis.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Stopped,
    Killed,
    /// It comes back empty, so that it grants its limit once more by itself.
    KilledWithoutItsData,
}

/// Hosts on one Redis that is away for a while. The first ones of them have callers.
#[derive(Clone, Copy)]
pub struct Outage {
    pub hosts: usize,
    pub with_callers: usize,
    pub fault: Fault,
    pub asked: &'static [&'static str],
    /// The first host is killed in the outage, and begins anew.
    pub restarts: bool,
}

impl Outage {
    /// Counts what is granted, and prints it as a row of a table.
    pub fn check(self) {
        let Heard { granted, passed, .. } = self.run();
        let Self { hosts, with_callers, fault, asked, restarts } = self;
        let (fault, own) = match fault {
            Fault::Stopped => ("stopped", LIMIT),
            Fault::Killed => ("killed, with its data", LIMIT),
            Fault::KilledWithoutItsData => ("killed, without its data", 2 * LIMIT),
        };
        let restarts = if restarts { ", and a host begins anew" } else { "" };
        let (all, bound) = (granted + passed, own + LIMIT);
        println!(
            "| {hosts} | {with_callers} | `{}` | {fault}{restarts} | {granted} | {passed} | {all} | {bound} |",
            asked[0]
        );
        assert!(passed <= LIMIT && all <= bound);
    }

    /// Returns what was heard of the policy.
    fn run(self) -> Heard {
        let kept = ["--appendonly", "yes", "--appendfsync", "always"];
        let redis = match self.fault {
            Fault::KilledWithoutItsData => RedisServer::start(),
            _ => RedisServer::start_with(kept),
        };
        let mut redis = redis.unwrap();
        let world = hosts(self.asked, (self.hosts, self.with_callers), &redis);
        for number in 0..self.hosts {
            until("the hosts know each other", || {
                world.metric(number, "tidegate_hosts ") == self.hosts as u64
            });
        }
        let shares_refuse = || world.until_more("the shares are used up", 1, |heard| heard.failed);
        world.run(|world| {
            match self.fault {
                Fault::Stopped => redis.signal("STOP").unwrap(),
                _ => redis.stop(),
            }
            shares_refuse();
            if self.restarts {
                world.kill(0);
                world.start(0);
                shares_refuse();
            }
            match self.fault {
                Fault::Stopped => redis.signal("CONT").unwrap(),
                _ => redis.restart().unwrap(),
            }
        });
        Heard::under(self.asked[0], &world.heard())
    }
}

/// `everything::outage` has all forms.
#[test]
fn in_any_period_an_outage_costs_at_most_one_more_limit() {
    let of = |hosts, with_callers, fault, asked, restarts| {
        Outage { hosts, with_callers, fault, asked, restarts }.check();
    };
    of(3, 1, Fault::KilledWithoutItsData, &["window"], false);
    of(3, 3, Fault::Stopped, &["window"], true);
    of(5, 5, Fault::Killed, &["reserved"], false);
}

/// Several stores of one process, and several policies, are one host with one share.
#[tokio::test]
async fn a_process_is_one_host() {
    let server = RedisServer::start().unwrap();
    let open = || Redis::new(server.url(), within(DEADLINE)).unwrap();
    let stores = [open(), open(), open()];
    let [first, second] = ["p", "q"].map(|name| {
        let text = "on_error = 'local'\nlimits = [{ algorithm = 'fixed_window', limit = 100, period = '365d' }]";
        on(&Arc::new(Policy::parse(name, text).unwrap()), "k")
    });
    for store in &stores {
        for key in [&first, &second] {
            assert!(!store.operate(key, clock::now(), 0).await.unwrap().degraded);
        }
    }
    holds(async || stores.iter().all(|store| store.hosts() == Some(1))).await;
    server.signal("STOP").unwrap();
    for key in [&first, &second] {
        let mut granted = 0;
        for _ in 0..40 {
            for store in &stores {
                let verdict = store.operate(key, clock::now(), 1).await.unwrap();
                assert!(verdict.degraded);
                granted += u32::from(verdict.decision.is_allowed());
            }
        }
        assert_eq!(granted, 100);
    }
}

/// A host that began in the outage, and the process before it may have used its share.
#[tokio::test]
async fn a_host_that_never_reached_redis_refuses() {
    let store = Redis::new("redis://127.0.0.1:1", within(DEADLINE)).unwrap();
    for nodes in ["", "nodes = 5\n"] {
        let limits = "limits = [{ algorithm = 'fixed_window', limit = 5, period = '1h' }]";
        let policy = Policy::parse("p", &format!("on_error = 'local'\n{nodes}{limits}")).unwrap();
        assert!(store.operate(&on(&Arc::new(policy), "k"), NOW, 1).await.is_err(), "{nodes}");
    }
}

/// A policy under which a fifth of 50 units is the share of a node.
fn local() -> Arc<Policy> {
    let policy = "on_error = 'local'\nnodes = 5\n\
        limits = [{ algorithm = 'fixed_window', limit = 50, period = '365d' }]";
    Arc::new(Policy::parse("p", policy).unwrap())
}

/// Redis has answered then, also if it was asked again because a connection broke.
#[tokio::test]
async fn a_key_of_another_type_is_no_outage() {
    let server = RedisServer::start().unwrap();
    let policy = local();
    let (store, name) = (store(&server), blob::name(&policy, record(&policy), "k"));
    let check = async |key: &str| store.operate(&on(&policy, key), NOW, 1).await;
    assert!(!check("k").await.unwrap().degraded);
    let () = ask(&server, &[b"DEL", name.as_bytes()]).await;
    let _: u64 = ask(&server, &[b"LPUSH", name.as_bytes(), b"x"]).await;
    for breaks in [false, true] {
        if breaks {
            let closed: u64 = ask(&server, &[b"CLIENT", b"KILL", b"TYPE", b"normal"]).await;
            assert!(closed >= 1);
            wait(REPLACED_AFTER).await;
        }
        let answers = join_all(["k", "other"].map(check)).await;
        let [Err(StoreError::Unreadable { names, error, .. }), Ok(other)] = &answers[..] else {
            panic!("breaks: {breaks}, {answers:?}")
        };
        assert_eq!(names, std::slice::from_ref(&name));
        let said = error.to_string();
        assert!(said.contains("wrong kind of value") && said.contains(".sock)"), "{said}");
        assert!(other.decision.is_allowed() && !other.degraded, "{other:?}");
    }
    assert_eq!(ask::<String>(&server, &[b"TYPE", name.as_bytes()]).await, "list");
}

#[tokio::test]
async fn hosts_of_another_type_are_told_once_and_counted() {
    let server = RedisServer::start().unwrap();
    let _: u64 = ask(&server, &[b"LPUSH", b"tidegate:hosts", b"x"]).await;
    let host = hosts(&["window"], (1, 0), &server);
    let errors = || host.metric(0, "tidegate_store_errors_total{kind=\"unreadable\"}");
    holds(async || errors() == 1).await;
    let told = || {
        let log = host.log(0);
        let lines = log.lines().filter(|line| line.contains("does not count this host"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let [line] = &told()[..] else { panic!("{:?}", told()) };
    for part in [
        "kind=\"unreadable\"",
        "\"tidegate:hosts\"",
        "expected a sorted set, found another type",
        "WRONGTYPE",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert_eq!(host.metric(0, "tidegate_hosts "), 0);
    let _: u64 = ask(&server, &[b"DEL", b"tidegate:hosts"]).await;
    holds(async || host.metric(0, "tidegate_hosts ") == 1).await; // each look is one more chance to tell it again
    assert_eq!((errors(), told().len()), (1, 1));
}
