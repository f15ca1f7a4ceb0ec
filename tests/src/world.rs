//! Processes of `tidegate serve` on one Redis, callers that never stop asking, and what they hear.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use ureq::Agent;

use crate::HostProcess;
use crate::until::Wait;

/// What callers send, for hosts that have a token.
const TOKEN: &str = "Bearer t";

const CALLERS_OF_EACH_HOST: usize = 4;
/// How many more decisions of each host show that it decides.
const DECISIONS: u64 = 100;
/// How many answers by `on_error` show that a host noticed a fault.
const NOTICED: u64 = 20;
/// Between two looks at what no caller hears.
const PAUSE: Duration = Duration::from_millis(250);

/// What the callers of a host heard.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heard {
    /// What Redis granted.
    pub granted: u64,
    /// What it granted under the policy `open`.
    pub granted_open: u64,
    /// What it refused, and what under `open`.
    pub refused: u64,
    pub refused_open: u64,
    /// Answers by `on_error = "closed"`, and those by `"open"`.
    pub failed_closed: u64,
    pub passed_open: u64,
    /// Requests without an answer, because the host was not there.
    pub lost: u64,
    /// The longest time of an answer.
    pub longest: Duration,
}

impl Heard {
    /// The number of answers that came from a decision.
    pub fn decided(&self) -> u64 {
        self.granted + self.granted_open + self.refused + self.refused_open
    }

    fn and(self, other: &Self) -> Self {
        Self {
            granted: self.granted + other.granted,
            granted_open: self.granted_open + other.granted_open,
            refused: self.refused + other.refused,
            refused_open: self.refused_open + other.refused_open,
            failed_closed: self.failed_closed + other.failed_closed,
            passed_open: self.passed_open + other.passed_open,
            lost: self.lost + other.lost,
            longest: self.longest.max(other.longest),
        }
    }

    pub fn all(each: &[Self]) -> Self {
        each.iter().fold(Self::default(), Self::and)
    }
}

#[derive(Default)]
struct Host {
    process: Option<HostProcess>,
    heard: Heard,
}

/// Some hosts on one Redis, and their callers.
pub struct World {
    /// The policies that the callers of each host ask, in turn.
    asked: &'static [&'static str],
    arguments: Vec<String>,
    pub folder: TempDir,
    hosts: Mutex<Vec<Host>>,
    /// The callers got an answer, or a host has another address.
    changed: Condvar,
    is_over: AtomicBool,
}

impl World {
    /// Hosts with these policies. Their callers ask those that are named. `on_error` of a policy with the name `open` is `"open"`, and
    /// that of any other one is `"closed"`.
    pub fn new(
        (policies, asked): (&str, &'static [&'static str]),
        hosts: usize,
        arguments: &[&str],
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("policies.toml"), policies).unwrap();
        let world = Self {
            asked,
            arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
            folder,
            hosts: Mutex::new((0..hosts).map(|_| Host::default()).collect()),
            changed: Condvar::new(),
            is_over: AtomicBool::new(false),
        };
        (0..hosts).for_each(|number| world.start(number));
        world
    }

    fn hosts(&self) -> MutexGuard<'_, Vec<Host>> {
        self.hosts.lock().unwrap()
    }

    /// Starts a host.
    pub fn start(&self, number: usize) {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let process = HostProcess::start(self.folder.path(), &arguments);
        self.hosts()[number].process = Some(process);
        self.changed.notify_all();
    }

    pub fn log(&self, number: usize) -> String {
        self.hosts()[number].process.as_ref().unwrap().log()
    }

    /// Kills a host, so that nothing in it can say goodbye.
    pub fn kill(&self, number: usize) {
        drop(self.taken(number));
    }

    /// Ends a host as a service manager does, and says whether it ended well.
    pub fn terminate(&self, number: usize) -> bool {
        self.taken(number).terminate().success()
    }

    fn taken(&self, number: usize) -> HostProcess {
        self.hosts()[number].process.take().unwrap()
    }

    pub fn runs(&self, number: usize) -> bool {
        self.hosts()[number].process.is_some()
    }

    pub fn url(&self, number: usize) -> String {
        self.hosts()[number].process.as_ref().unwrap().url().to_owned()
    }

    /// The number of the process of a host.
    pub fn id(&self, number: usize) -> String {
        self.hosts()[number].process.as_ref().unwrap().id()
    }

    /// Bounds a resource of a host from now on, by an option of `prlimit`.
    pub fn bound(&self, number: usize, bound: &str) {
        let mut prlimit = Command::new("prlimit"); // of util-linux
        assert!(prlimit.args(["--pid", &self.id(number), bound]).status().unwrap().success());
    }

    /// What the metrics of a host say under names that begin with this, added up.
    pub fn metric(&self, number: usize, name: &str) -> u64 {
        let metrics = ureq::get(format!("{}/metrics", self.url(number)));
        let text = metrics.header("authorization", TOKEN).call().unwrap();
        let text = text.into_body().read_to_string().unwrap();
        let own = text.lines().filter(|line| line.starts_with(name));
        own.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }

    pub fn heard(&self) -> Vec<Heard> {
        self.hosts().iter().map(|host| host.heard).collect()
    }

    /// Waits until this holds for what the callers of each host have heard.
    pub fn until(&self, what: &str, holds: impl Fn(&[Heard]) -> bool) {
        let mut wait = Wait::begin();
        loop {
            let heard = self.heard();
            if holds(&heard) {
                return;
            }
            wait.go_on(format_args!("{what}: {heard:?}"));
            drop(self.changed.wait_timeout(self.hosts(), PAUSE).unwrap());
        }
    }

    /// Waits until all hosts that run have decided on more requests. Returns how long that took.
    pub fn until_all_decide(&self) -> Duration {
        let began = Instant::now();
        let before: Vec<_> = self
            .hosts()
            .iter()
            .map(|host| (host.process.is_some(), host.heard.decided()))
            .collect();
        self.until("all hosts decide", |heard| {
            heard
                .iter()
                .zip(&before)
                .all(|(heard, (runs, before))| !runs || heard.decided() >= before + DECISIONS)
        });
        began.elapsed()
    }

    /// Waits until the callers of each host have got some more answers by `on_error`, of both kinds.
    pub fn until_all_notice(&self) {
        let before = self.heard();
        self.until("`on_error` decides", |heard| {
            heard.iter().zip(&before).all(|(heard, before)| {
                heard.failed_closed >= before.failed_closed + NOTICED
                    && heard.passed_open >= before.passed_open + NOTICED
            })
        });
    }

    /// Waits until a time has passed.
    pub fn wait(&self, time: Duration) {
        let began = Instant::now();
        self.until("the time passes", |_| began.elapsed() >= time);
    }

    /// Asks a host until the test is over.
    fn call(&self, number: usize, policy: &str) {
        let agent = Agent::new_with_defaults();
        let body = format!(r#"{{"policy":"{policy}","key":"k"}}"#);
        while !self.is_over.load(Relaxed) {
            let hosts = self.hosts();
            let Some(url) = hosts[number].process.as_ref().map(|host| host.url().to_owned()) else {
                drop(self.changed.wait_timeout(hosts, PAUSE).unwrap());
                continue;
            };
            drop(hosts);
            let began = Instant::now();
            let asked = agent.post(format!("{url}/v1/check"));
            let asked = asked.header("authorization", TOKEN).send(&body);
            let answer = asked.and_then(|mut answer| answer.body_mut().read_to_string());
            let took = began.elapsed();
            let answer: Value =
                serde_json::from_str(&answer.unwrap_or_default()).unwrap_or_default();
            let heard = &mut self.hosts()[number].heard;
            let is_open = policy == "open";
            *match (answer["allowed"].as_bool(), answer["degraded"].is_string()) {
                (Some(true), false) if is_open => &mut heard.granted_open,
                (Some(true), false) => &mut heard.granted,
                (Some(false), false) if is_open => &mut heard.refused_open,
                (Some(false), false) => &mut heard.refused,
                (Some(true), true) if is_open => &mut heard.passed_open,
                (Some(false), true) if !is_open => &mut heard.failed_closed,
                (None, _) => &mut heard.lost,
                (Some(allowed), _) => panic!("{policy}: allowed {allowed} by `on_error`"),
            } += 1;
            if answer["allowed"].is_boolean() {
                heard.longest = heard.longest.max(took);
            }
            self.changed.notify_all();
        }
    }

    /// Runs the callers while `disturb` does something, once all hosts decide, and until the keys are exhausted for all of them.
    ///
    /// # Panics
    /// Panics as `disturb` does.
    pub fn run<T: Send>(&self, disturb: impl FnOnce(&Self) -> T + Send) -> T {
        thread::scope(|scope| {
            for number in 0..self.heard().len() {
                for caller in 0..CALLERS_OF_EACH_HOST {
                    scope.spawn(move || self.call(number, self.asked[caller % self.asked.len()]));
                }
            }
            let disturbed = scope.spawn(|| {
                self.until_all_decide();
                let disturbed = disturb(self);
                let before = self.heard();
                let asks_open = self.asked.contains(&"open");
                self.until("the keys are exhausted", |heard| {
                    heard.iter().zip(&before).all(|(heard, before)| {
                        heard.refused > before.refused
                            && (heard.refused_open > before.refused_open || !asks_open)
                    })
                });
                disturbed
            });
            let disturbed = disturbed.join();
            self.is_over.store(true, Relaxed);
            disturbed.unwrap()
        })
    }
}
