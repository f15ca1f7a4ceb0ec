//! Two processes of `tidegate serve` lend units of one hot key while something fails: what they grant in all, beside
//! the bound that docs/modes.md states.

use std::fs;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use tidegate::local::RedisServer;
use tidegate_tests::HostProcess;
use ureq::Agent;

use crate::{process_id, signal};

const CAPACITY: u64 = 200;
/// So few that callers on a slow machine exhaust the key, too.
const PER_SECOND: u64 = 20;
/// How long a host may spend the units that it took.
const TIME: Duration = Duration::from_millis(500);
const POLICIES: &str = "
[policies.hot]
limits = [{ algorithm = 'token_bucket', capacity = 200, rate = '20/s' }]
local = { most = 50, time = '500ms' }
";

const CALLERS_OF_EACH_HOST: usize = 4;
/// How many more answers of each host show that it works.
const ANSWERS: u64 = 200;
/// A test that does not get on fails after this long.
const GIVE_UP_AFTER: Duration = Duration::from_secs(600);

/// What the callers of a host heard.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    granted: u64,
    refused: u64,
    /// Answers by `on_error`.
    degraded: u64,
    /// Requests without an answer, because the host died.
    lost: u64,
}

impl Heard {
    /// The number of answers that came from a decision.
    fn decided(&self) -> u64 {
        self.granted + self.refused
    }
}

/// A host, its address, and what its callers heard.
#[derive(Default)]
struct Host {
    process: Option<HostProcess>,
    heard: Heard,
}

/// Two hosts on one Redis, and their callers.
struct World {
    redis: RedisServer,
    folder: TempDir,
    hosts: Mutex<[Host; 2]>,
    /// The callers got an answer, or a host has another address.
    changed: Condvar,
    is_over: AtomicBool,
    began: Instant,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("policies.toml"), POLICIES).unwrap();
        let world = Self {
            redis: RedisServer::start().unwrap(),
            folder,
            hosts: Mutex::default(),
            changed: Condvar::new(),
            is_over: AtomicBool::new(false),
            began: Instant::now(),
        };
        (0..2).for_each(|number| world.start(number));
        world
    }

    fn hosts(&self) -> MutexGuard<'_, [Host; 2]> {
        self.hosts.lock().unwrap()
    }

    /// Starts a host.
    fn start(&self, number: usize) {
        let arguments = ["--redis", self.redis.url()];
        let process = HostProcess::start(self.folder.path(), &arguments, Stdio::null());
        self.hosts()[number].process = Some(process.unwrap());
        self.changed.notify_all();
    }

    /// Kills a host, so that nothing in it can say goodbye.
    fn kill(&self, number: usize) {
        self.hosts()[number].process = None;
    }

    /// The process id of a host.
    fn id(&self, number: usize) -> String {
        self.hosts()[number].process.as_ref().unwrap().id()
    }

    /// Waits until this holds for what the callers have heard.
    fn until(&self, holds: impl Fn(&[Heard; 2]) -> bool) {
        let mut hosts = self.hosts();
        while !holds(&hosts.each_ref().map(|host| host.heard)) {
            let since = self.began.elapsed();
            assert!(since < GIVE_UP_AFTER, "{:?}", hosts.each_ref().map(|host| host.heard));
            hosts = self.changed.wait_timeout(hosts, GIVE_UP_AFTER).unwrap().0;
        }
    }

    /// Waits until these hosts have decided on more requests.
    fn until_they_decide(&self, numbers: &[usize]) {
        let before = self.hosts().each_ref().map(|host| host.heard.decided());
        self.until(|heard| {
            numbers.iter().all(|number| heard[*number].decided() >= before[*number] + ANSWERS)
        });
    }

    /// Asks a host until the test is over.
    fn call(&self, number: usize) {
        let agent: Agent =
            Agent::config_builder().timeout_global(Some(GIVE_UP_AFTER)).build().into();
        while !self.is_over.load(Relaxed) {
            let mut hosts = self.hosts();
            let Some(url) = hosts[number].process.as_ref().map(|host| host.url().to_owned()) else {
                drop(self.changed.wait_timeout(hosts, TIME).unwrap());
                continue;
            };
            drop(hosts);
            let asked = agent.post(format!("{url}/v1/check")).send(r#"{"policy":"hot","key":"k"}"#);
            let answer = asked.and_then(|mut answer| answer.body_mut().read_to_string());
            let answer: Value =
                serde_json::from_str(&answer.unwrap_or_default()).unwrap_or_default();
            hosts = self.hosts();
            let heard = &mut hosts[number].heard;
            *match (answer["allowed"].as_bool(), answer["degraded"].is_string()) {
                (Some(true), false) => &mut heard.granted,
                (Some(false), false) => &mut heard.refused,
                (Some(_), true) => &mut heard.degraded,
                (None, _) => &mut heard.lost,
            } += 1;
            self.changed.notify_all();
        }
    }
}

/// Runs the callers while `disturb` does something. Says what all hosts granted beside the bound, to which
/// `once_more` adds.
fn count(fault: &str, once_more: u64, disturb: impl FnOnce(&World) + Send) -> [Heard; 2] {
    let world = World::new();
    thread::scope(|scope| {
        for caller in 0..2 * CALLERS_OF_EACH_HOST {
            let world = &world;
            scope.spawn(move || world.call(caller % 2));
        }
        let world = &world;
        let disturbed = scope.spawn(move || {
            world.until_they_decide(&[0, 1]);
            disturb(world);
            world.until_they_decide(&[0, 1]);
        });
        let disturbed = disturbed.join();
        world.is_over.store(true, Relaxed);
        disturbed.unwrap();
    });
    // the callers have all answers, so all grants lie in this span
    let span = world.began.elapsed() + TIME;
    let heard = world.hosts().each_ref().map(|host| host.heard);
    let granted = heard[0].granted + heard[1].granted;
    let refilled = span.as_micros() * u128::from(PER_SECOND) / 1_000_000;
    let bound = CAPACITY + once_more + u64::try_from(refilled).unwrap();
    println!("{fault}: granted {granted}, bound {bound} in {span:.1?}; {heard:?}");
    assert!(granted <= bound, "{fault}: granted {granted}, bound {bound}; {heard:?}");
    assert!(heard[0].refused + heard[1].refused > 0, "the key was never exhausted: {heard:?}");
    heard
}

#[test]
fn a_host_that_is_killed_and_started_again_loses_units_and_grants_none_twice() {
    count("kill -9 of a host", 0, |world| {
        for _ in 0..3 {
            world.kill(0);
            world.until_they_decide(&[1]);
            world.start(0);
            world.until_they_decide(&[0]);
        }
    });
}

#[test]
fn a_host_that_stood_still_does_not_spend_units_that_have_expired() {
    count("SIGSTOP of a host", 0, |world| {
        for _ in 0..2 {
            let id = world.id(0);
            signal(&id, "-STOP");
            let stopped = Instant::now();
            world.until(|_| stopped.elapsed() > 2 * TIME);
            signal(&id, "-CONT");
            world.until_they_decide(&[0, 1]);
        }
    });
}

#[test]
fn hosts_spend_what_they_hold_while_redis_stands_still_and_no_more() {
    let heard = count("SIGSTOP of Redis", 0, |world| {
        let id = process_id(&world.redis);
        for turn in 1..3 {
            signal(&id, "-STOP");
            let stopped = Instant::now();
            world.until(|heard| {
                let is_known = heard.iter().all(|heard| heard.degraded >= 20 * turn);
                is_known && stopped.elapsed() > 2 * TIME
            });
            signal(&id, "-CONT");
            world.until_they_decide(&[0, 1]);
        }
    });
    assert!(heard.iter().all(|heard| heard.degraded >= 40), "{heard:?}");
}

#[test]
fn a_redis_that_loses_everything_grants_the_capacity_once_more() {
    count("FLUSHALL", CAPACITY, |world| {
        let client = redis::Client::open(world.redis.url()).unwrap();
        let () = redis::cmd("FLUSHALL").query(&mut client.get_connection().unwrap()).unwrap();
    });
}
