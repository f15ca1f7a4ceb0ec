//! Processes of `tidegate serve` under `on_error = "local"` while Redis is away: what they grant beside the bound that docs/modes.md
//! states, and who sees it.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};
use tidegate::clock;
use tidegate::gate::{Policy, blob};
use tidegate::local::RedisServer;
use tidegate::store::{Redis, StoreError};
use tidegate_tests::{Api, HostProcess};

use super::connection::{REPLACED_AFTER, wait};
use super::load::holds;
use super::{NOW, ask, on, process_id, record, signal, store, within};

/// What every key may take in a year, the period of the limit.
const LIMIT: u64 = 600;
const POLICIES: &str = "
[policies.window]
limits = [{ algorithm = 'fixed_window', limit = 600, period = '365d' }]
on_error = 'local'
[policies.reserved]
limits = [{ algorithm = 'fixed_window', limit = 600, period = '365d' }]
reservations = {}
on_error = 'local'
";

/// So long that a busy machine answers many requests meanwhile.
const DEADLINE: Duration = Duration::from_secs(2);

/// A test that does not get on fails after this long.
const GIVE_UP_AFTER: Duration = Duration::from_secs(120);

struct Host {
    process: HostProcess,
    api: Api,
}

impl Host {
    fn start(redis: &RedisServer, folder: &Path) -> Self {
        let deadline = DEADLINE.as_millis().to_string();
        let arguments = ["--redis", redis.url(), "--redis-deadline", &deadline];
        let process = HostProcess::start(folder, &arguments);
        let api = Api::new(process.url(), None);
        Self { process, api }
    }

    fn check(&self, policy: &str, cost: u64) -> Value {
        self.api.check(policy, "k", cost, None).json()
    }

    /// A value of `/metrics`; 0 if there is none.
    fn metric(&self, name: &str) -> u64 {
        let text = self.api.get("/metrics", &[]).text;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.map_or(0, |value| value.parse().unwrap())
    }

    /// Reserves 4 units and commits 3. Returns the answer to the reservation, and the units that it has cost: the estimate if its
    /// commit failed.
    fn reserve(&self) -> (Value, u64) {
        let body = json!({ "policy": "reserved", "key": "k", "cost": 4 });
        let reserved = self.api.post("/v1/reservations", body.to_string()).json();
        let Some(id) = reserved["id"].as_str().filter(|_| passes(&reserved)) else {
            return (reserved, 0);
        };
        let body = json!({ "policy": "reserved", "key": "k", "actual": 3 });
        let target = format!("/v1/reservations/{id}/commit");
        let committed = self.api.post(&target, body.to_string()).json();
        let units = committed["charged"].as_u64().unwrap_or(4);
        (reserved, units)
    }
}

fn passes(answer: &Value) -> bool {
    answer["allowed"] == true
}

fn is_degraded(answer: &Value) -> bool {
    answer["degraded"].is_string()
}

/// Waits until this holds.
fn until(holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < GIVE_UP_AFTER);
        thread::yield_now();
    }
}

/// What happens to Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Stopped,
    Killed,
    /// It comes back empty, so that it grants its limit once more by itself.
    KilledWithoutItsData,
}

/// Hosts on one Redis that is away for a while. The first ones of them have callers.
#[derive(Clone, Copy, Debug)]
struct Outage {
    hosts: usize,
    with_callers: usize,
    fault: Fault,
    policy: &'static str,
    /// The first host is killed in the outage, and begins anew.
    restarts: bool,
}

impl Outage {
    /// Returns what was granted by Redis and by shares.
    fn run(self) -> [u64; 2] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("policies.toml"), POLICIES).unwrap();
        let kept = ["--appendonly", "yes", "--appendfsync", "always"];
        let redis = match self.fault {
            Fault::KilledWithoutItsData => RedisServer::start(),
            _ => RedisServer::start_with(kept),
        };
        let redis = Mutex::new(redis.unwrap());
        let start = || Mutex::new(Arc::new(Host::start(&redis.lock().unwrap(), folder.path())));
        let hosts: Vec<_> = (0..self.hosts).map(|_| start()).collect();
        let host = |number: usize| Arc::clone(&hosts[number].lock().unwrap());
        for number in 0..self.hosts {
            until(|| host(number).metric("tidegate_hosts") == self.hosts as u64);
        }

        let (is_over, granted) = (AtomicBool::new(false), [AtomicU64::new(0), AtomicU64::new(0)]);
        let refused =
            [(); 2].map(|()| (0..self.hosts).map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
        let call = |number: usize| {
            while !is_over.load(Relaxed) {
                let (answer, units) = match self.policy {
                    "reserved" => host(number).reserve(),
                    _ => (host(number).check(self.policy, 1), 1),
                };
                let by_share = usize::from(is_degraded(&answer));
                match passes(&answer) {
                    true => granted[by_share].fetch_add(units, Relaxed),
                    false => refused[by_share][number].fetch_add(1, Relaxed),
                };
            }
        };
        // each host with callers has refused once more
        let refuse = |by_share: usize| {
            for count in &refused[by_share][..self.with_callers] {
                let before = count.load(Relaxed);
                until(|| count.load(Relaxed) > before);
            }
        };
        thread::scope(|scope| {
            let disturbed = scope.spawn(|| {
                until(|| granted[0].load(Relaxed) >= LIMIT / 3);
                let id = process_id(&redis.lock().unwrap());
                match self.fault {
                    Fault::Stopped => signal(&id, "-STOP"),
                    _ => redis.lock().unwrap().stop(),
                }
                refuse(1);
                if self.restarts {
                    *hosts[0].lock().unwrap() =
                        Arc::new(Host::start(&redis.lock().unwrap(), folder.path()));
                    refuse(1);
                }
                match self.fault {
                    Fault::Stopped => signal(&id, "-CONT"),
                    _ => redis.lock().unwrap().restart().unwrap(),
                }
                refuse(0);
            });
            let callers: Vec<_> =
                (0..self.with_callers).map(|number| scope.spawn(move || call(number))).collect();
            let disturbed = disturbed.join();
            is_over.store(true, Relaxed);
            callers.into_iter().for_each(|caller| caller.join().unwrap());
            disturbed.unwrap();
        });
        granted.map(AtomicU64::into_inner)
    }
}

#[test]
fn in_any_period_an_outage_costs_at_most_one_more_limit() {
    let of = |(hosts, with_callers), fault, policy, restarts| Outage {
        hosts,
        with_callers,
        fault,
        policy,
        restarts,
    };
    for outage in [
        of((1, 1), Fault::Stopped, "window", false),
        of((3, 1), Fault::Killed, "window", false),
        of((3, 3), Fault::KilledWithoutItsData, "window", false),
        of((3, 3), Fault::Stopped, "window", true),
        of((5, 5), Fault::Stopped, "window", false),
        of((5, 5), Fault::Killed, "reserved", false),
    ] {
        let [by_redis, by_shares] = outage.run();
        let own = match outage.fault {
            Fault::KilledWithoutItsData => 2 * LIMIT,
            _ => LIMIT,
        };
        let bound = own + LIMIT;
        println!(
            "{outage:?}: granted {} of {bound}: {by_redis} by Redis, {by_shares} by shares",
            by_redis + by_shares
        );
        assert!(by_shares <= LIMIT && by_redis + by_shares <= bound, "{by_redis} {by_shares}");
    }
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
    signal(&process_id(&server), "-STOP");
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
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("policies.toml"), POLICIES).unwrap();
    let host = Host::start(&server, folder.path());
    let errors = || host.metric("tidegate_store_errors_total{kind=\"unreadable\"}");
    holds(async || errors() == 1).await;
    let told = || {
        let log = host.process.log();
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
    assert_eq!(host.metric("tidegate_hosts"), 0);
    let _: u64 = ask(&server, &[b"DEL", b"tidegate:hosts"]).await;
    holds(async || host.metric("tidegate_hosts") == 1).await; // each look is one more chance to tell it again
    assert_eq!((errors(), told().len()), (1, 1));
}

#[tokio::test]
async fn what_redis_says_is_why_a_share_decides() {
    let server = RedisServer::start().unwrap();
    let policy = local();
    let store = store(&server);
    assert!(!store.operate(&on(&policy, "k"), NOW, 1).await.unwrap().degraded);
    let () = ask(&server, &[b"CONFIG", b"SET", b"maxmemory", b"1"]).await;
    assert!(store.operate(&on(&policy, "k"), NOW, 1).await.unwrap().degraded);
    let said = store.outage().unwrap().to_string();
    assert!(said.contains("OOM"), "{said}");
}
