//! Processes of `tidegate serve` under `on_error = "local"` while Redis is away: what they grant in all, beside the bound that
//! docs/modes.md states, and what Redis knows of it afterwards.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::Value;
use tempfile::TempDir;
use tidegate::clock;
use tidegate::gate::{Policy, blob};
use tidegate::local::RedisServer;
use tidegate::store::{Redis, RedisOptions, StoreError};
use tidegate_tests::{Api, HostProcess};

use super::connection::{REPLACED_AFTER, wait};
use super::load::holds;
use super::nodes::calls;
use super::{MARGIN, NOW, ask, on, process_id, record, signal, store, within};

const HOSTS: usize = 8;
const CAPACITY: u64 = 200;
const PER_SECOND: u64 = 40;
const POLICIES: &str = "
[policies.bucket]
limits = [{ algorithm = 'token_bucket', capacity = 200, rate = '40/s' }]
on_error = 'local'
[policies.window]
limits = [{ algorithm = 'fixed_window', limit = 800, period = '365d' }]
on_error = 'local'
[policies.closed]
limits = [{ algorithm = 'fixed_window', limit = 800, period = '365d' }]
";

/// So long that a busy machine answers many requests meanwhile.
const DEADLINE: Duration = Duration::from_secs(2);

/// A test that does not get on fails after this long.
const GIVE_UP_AFTER: Duration = Duration::from_secs(60);

struct Host {
    process: HostProcess,
    api: Api,
}

impl Host {
    fn start(redis: &RedisServer, folder: &TempDir) -> Self {
        let deadline = DEADLINE.as_millis().to_string();
        let arguments = ["--redis", redis.url(), "--redis-deadline", &deadline];
        let process = HostProcess::start(folder.path(), &arguments);
        let api = Api::new(process.url(), None);
        Self { process, api }
    }

    fn check(&self, policy: &str, cost: u64) -> Value {
        self.api.check(policy, "k", cost, None).json()
    }

    /// How often `on_error` has answered so.
    fn on_error(&self, policy: &str, answer: &str) -> u64 {
        self.metric(&format!("tidegate_on_error_total{{policy=\"{policy}\",answer=\"{answer}\"}}"))
    }

    /// A value of `/metrics`; 0 if there is none.
    fn metric(&self, name: &str) -> u64 {
        let text = self.api.get("/metrics", &[]).text;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.map_or(0, |value| value.parse().unwrap())
    }
}

fn passes(answer: &Value) -> bool {
    answer["allowed"].as_bool().unwrap()
}

fn is_degraded(answer: &Value) -> bool {
    answer["degraded"].is_string()
}

/// Hosts on one Redis, each of which knows how many they are.
struct World {
    redis: RedisServer,
    hosts: Vec<Host>,
    _folder: TempDir,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("policies.toml"), POLICIES).unwrap();
        let redis = RedisServer::start().unwrap();
        let hosts: Vec<_> = (0..HOSTS).map(|_| Host::start(&redis, &folder)).collect();
        let world = Self { redis, hosts, _folder: folder };
        until(&world.hosts, |host| host.metric("tidegate_hosts") == HOSTS as u64);
        world
    }

    /// All hosts do this at once.
    fn each<T: Send>(&self, act: impl Fn(&Host) -> T + Sync) -> Vec<T> {
        thread::scope(|scope| {
            let acts: Vec<_> = self.hosts.iter().map(|host| scope.spawn(|| act(host))).collect();
            acts.into_iter().map(|act| act.join().unwrap()).collect()
        })
    }
}

/// Waits until this holds for each host.
fn until(hosts: &[Host], holds: impl Fn(&Host) -> bool) {
    let began = Instant::now();
    for host in hosts {
        while !holds(host) {
            assert!(began.elapsed() < GIVE_UP_AFTER);
            thread::yield_now();
        }
    }
}

#[test]
fn hosts_share_what_was_left_and_redis_learns_what_they_granted() {
    let world = World::new();
    let redis = process_id(&world.redis);
    assert!(passes(&world.hosts[0].check("window", 100)));
    // what Redis has left; `None` while the host does not ask it
    let known = |host: &Host| {
        let answer = host.check("window", 0);
        answer["remaining"].as_u64().filter(|_| !is_degraded(&answer))
    };
    assert!(world.each(known).iter().all(|remaining| *remaining == Some(700)));

    signal(&redis, "-STOP");
    let first = world.each(|host| {
        let asked = Instant::now();
        let answer = host.check("window", 1);
        assert!(passes(&answer) && is_degraded(&answer), "{answer}");
        asked.elapsed()
    });
    assert!(first.iter().all(|took| *took < 2 * DEADLINE + MARGIN), "{first:?}");
    let next = world.each(|host| {
        let asked = Instant::now();
        assert!((0..9).all(|_| passes(&host.check("window", 1))));
        asked.elapsed()
    });
    println!("the first answers took {first:?}, the nine after them {next:?}");
    assert!(next.iter().all(|took| *took < 4 * DEADLINE), "they waited for Redis: {next:?}");
    let closed = world.hosts[0].check("closed", 1);
    assert!(!passes(&closed) && is_degraded(&closed), "{closed}");
    signal(&redis, "-CONT");

    // the first question of one host may have waited in the socket, and was answered by a share meanwhile
    let granted = 10 * HOSTS as u64;
    let left = [700 - granted, 700 - granted - 1];
    until(&world.hosts, |host| known(host).is_some_and(|remaining| left.contains(&remaining)));
    let left = known(&world.hosts[0]).unwrap();
    assert!(world.each(known).iter().all(|remaining| *remaining == Some(left)));

    signal(&redis, "-STOP");
    let granted = world.each(|host| {
        let answers: Vec<Value> = (0..200).map(|_| host.check("window", 1)).collect();
        assert!(answers.iter().all(is_degraded));
        answers.iter().filter(|answer| passes(answer)).count() as u64
    });
    let all: u64 = granted.iter().sum();
    println!("of {left} that were left, eight hosts granted {all}: {granted:?}");
    assert!(all < left + HOSTS as u64, "{all}");
    assert!(granted.iter().all(|own| *own == left.div_ceil(HOSTS as u64)), "{granted:?}");
    for host in &world.hosts {
        let own = left.div_ceil(HOSTS as u64) + 10;
        assert_eq!(host.on_error("window", "local_allowed"), own);
        assert_eq!(host.on_error("window", "local_refused"), 210 - own);
        let kind = |kind| host.metric(&format!("tidegate_store_errors_total{{kind=\"{kind}\"}}"));
        assert!(kind("deadline") + kind("unavailable") >= 210, "each is an error of the store");
    }
    assert_eq!(world.hosts[0].on_error("closed", "closed"), 1);
    signal(&redis, "-CONT");
    until(&world.hosts, |host| known(host) == Some(0));
}

/// Eight hosts grant out of a bucket while Redis is away for this long: it stands still, and is killed with its data at the end.
fn load(away: Duration) {
    let World { mut redis, hosts, _folder } = World::new();
    let (began, is_over, id) = (Instant::now(), AtomicBool::new(false), process_id(&redis));
    let calls = |host: &Host| {
        let (mut granted, mut local, mut longest) = (0, 0, Duration::ZERO);
        while !is_over.load(Relaxed) {
            let asked = Instant::now();
            let answer = host.check("bucket", 1);
            longest = longest.max(asked.elapsed());
            granted += u64::from(passes(&answer));
            local += u64::from(passes(&answer) && is_degraded(&answer));
        }
        (granted, local, longest)
    };
    let counted = thread::scope(|scope| {
        let callers: Vec<_> = hosts.iter().map(|host| scope.spawn(|| calls(host))).collect();
        let disturbed = scope.spawn(|| {
            let exhausted = |host: &Host| host.check("bucket", 1)["allowed"] == false;
            until(&hosts, exhausted);
            signal(&id, "-STOP");
            thread::park_timeout(away);
            redis.restart().unwrap(); // kills it, and begins an empty one
            until(&hosts, |host| !is_degraded(&host.check("bucket", 0)));
            until(&hosts, exhausted);
        });
        let disturbed = disturbed.join();
        is_over.store(true, Relaxed);
        disturbed.unwrap();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect::<Vec<_>>()
    });
    let span = began.elapsed();
    let granted: u64 = counted.iter().map(|(granted, _, _)| granted).sum();
    let local: u64 = counted.iter().map(|(_, local, _)| local).sum();
    let longest = counted.iter().map(|(_, _, longest)| *longest).max().unwrap();
    let flowed = u64::try_from(span.as_millis()).unwrap() * PER_SECOND / 1_000 + 1;
    // the capacity once more for the Redis that lost its data, and what a host had not seen: it looked at the key less than a
    // second before
    let bound = 2 * CAPACITY + flowed + HOSTS as u64 - 1 + PER_SECOND;
    println!(
        "Redis away for {away:?} of {span:.1?}: granted {granted}, bound {bound}, by shares {local}, longest answer {longest:.1?}"
    );
    assert!(granted <= bound, "granted {granted}, bound {bound}");
    assert!(local > 0, "no host granted by itself");
    assert!(longest < 2 * DEADLINE + MARGIN, "{longest:?}");
}

#[test]
fn eight_hosts_under_load_stay_within_the_bound_while_redis_is_away() {
    load(Duration::from_secs(3));
}

#[test]
#[ignore = "takes more than a minute"]
fn eight_hosts_under_load_stay_within_the_bound_in_an_outage_of_a_minute() {
    load(Duration::from_secs(60));
}

#[tokio::test]
async fn a_host_that_never_reached_redis_refuses() {
    let store = Redis::new("redis://127.0.0.1:1", within(DEADLINE)).unwrap();
    let limits = "limits = [{ algorithm = 'fixed_window', limit = 5, period = '1h' }]";
    let local = Policy::parse("p", &format!("on_error = 'local'\n{limits}")).unwrap();
    assert!(store.operate(&on(&Arc::new(local), "k"), NOW, 1).await.is_err());
    let known = Policy::parse("p", &format!("on_error = 'local'\nnodes = 5\n{limits}")).unwrap();
    let known = on(&Arc::new(known), "k");
    let verdict = store.operate(&known, NOW, 1).await.unwrap();
    assert!(verdict.degraded && verdict.decision.is_allowed());
    assert!(!store.operate(&known, NOW, 1).await.unwrap().decision.is_allowed());
}

/// Redis goes on with a call that it had got before it stood still, after the host has decided by its share what was in it.
#[tokio::test]
async fn what_was_under_way_when_redis_stood_still_is_charged_twice_and_nothing_else_is() {
    const LIMIT: u64 = 1_000;
    const UNDER_WAY: u64 = 20;
    let server = RedisServer::start().unwrap();
    let options = RedisOptions { clock: Some(clock::now), ..within(DEADLINE) };
    let store = Redis::new(server.url(), options).unwrap();
    let limits = format!("[{{ algorithm = 'fixed_window', limit = {LIMIT}, period = '365d' }}]");
    let policy = format!("on_error = 'local'\nlimits = {limits}");
    let key = on(&Arc::new(Policy::parse("p", &policy).unwrap()), "k");
    let check = async |cost: u64| store.operate(&key, clock::now(), cost).await.unwrap();
    assert!(check(1).await.decision.is_allowed());
    holds(async || store.hosts() == Some(1)).await;

    let redis = process_id(&server);
    signal(&redis, "-STOP");
    let under_way = join_all((0..UNDER_WAY).map(|_| check(1))).await;
    assert!(under_way.iter().all(|said| said.degraded && said.decision.is_allowed()));
    for _ in 0..UNDER_WAY {
        assert!(check(1).await.degraded, "this one is in no call");
    }
    signal(&redis, "-CONT");
    let left = LIMIT - 1 - 3 * UNDER_WAY; // those under way are charged by Redis, and all by what the host tells it
    holds(async || {
        let said = check(0).await;
        assert!(said.degraded || said.decision.remaining() >= left, "{said:?}");
        !said.degraded && said.decision.remaining() == left
    })
    .await;
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
    let host = Host::start(&server, &folder);
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

/// A list stands in place of the state. The host takes the first answer for the last.
#[tokio::test]
async fn what_redis_never_can_do_is_told_once() {
    let server = RedisServer::start().unwrap();
    let options = RedisOptions { clock: Some(clock::now), ..within(DEADLINE) };
    let (store, policy) = (Redis::new(server.url(), options).unwrap(), local());
    let check = async |key: &str| store.operate(&on(&policy, key), clock::now(), 1).await;
    assert!(!check("k").await.unwrap().degraded);
    let path = server.url().strip_prefix("redis+unix://").unwrap();
    let mut other = UnixStream::connect(path).unwrap();
    other.write_all(b"PING\r\n").unwrap();
    other.read_exact(&mut [0; 7]).unwrap();
    let redis = process_id(&server);
    signal(&redis, "-STOP");
    for _ in 0..2 {
        assert!(check("k").await.unwrap().degraded);
    }
    // these come before what the host tells Redis, because it asks first whether Redis is back
    let name = blob::name(&policy, record(&policy), "k");
    write!(other, "DEL {name}\r\nLPUSH {name} x\r\n").unwrap();
    signal(&redis, "-CONT");
    holds(async || matches!(check("k").await, Err(StoreError::Unreadable { .. }))).await;
    let () = ask(&server, &[b"CONFIG", b"RESETSTAT"]).await;
    for _ in 0..3 {
        wait(Duration::from_secs(2)).await; // longer than the pause after what Redis has not done
        for _ in 0..3 {
            store.ping().await.unwrap();
        }
    }
    assert_eq!(calls(&server).await, 0);
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
