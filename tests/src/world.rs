//! Processes of `tidegate serve` on one store, callers that never stop asking, and what they hear.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;

use crate::until::Wait;
use crate::{Api, HostProcess};

/// What callers send, for hosts that have a token.
const TOKEN: &str = "t";

const CALLERS_OF_EACH_HOST: usize = 4;
/// How many more decisions of a host under each policy show that it decides.
const DECISIONS: u64 = 50;
/// How many answers by `on_error` show that a host noticed a fault.
const NOTICED: u64 = 20;
/// Between two looks at what no caller hears.
const PAUSE: Duration = Duration::from_millis(250);

/// What the callers of a host heard under a policy.
#[derive(Clone, Copy, Debug)]
pub struct Heard {
    pub host: usize,
    pub policy: &'static str,
    /// The units that the store granted.
    pub granted: u64,
    /// The requests that it refused.
    pub refused: u64,
    /// The units that `on_error` granted, and the requests that it refused.
    pub passed: u64,
    pub failed: u64,
    /// Requests without an answer, because the host was not there.
    pub lost: u64,
    /// The longest time of an answer.
    pub longest: Duration,
}

impl Heard {
    fn of(host: usize, policy: &'static str) -> Self {
        Self {
            host,
            policy,
            granted: 0,
            refused: 0,
            passed: 0,
            failed: 0,
            lost: 0,
            longest: Duration::ZERO,
        }
    }

    /// What the store decided.
    fn decided(&self) -> u64 {
        self.granted + self.refused
    }

    /// What the callers of all hosts heard under a policy.
    pub fn under(policy: &'static str, each: &[Self]) -> Self {
        let own = each.iter().filter(|heard| heard.policy == policy);
        own.fold(Self::of(0, policy), |all, other| Self {
            granted: all.granted + other.granted,
            refused: all.refused + other.refused,
            passed: all.passed + other.passed,
            failed: all.failed + other.failed,
            lost: all.lost + other.lost,
            longest: all.longest.max(other.longest),
            ..all
        })
    }
}

/// Some hosts on one store, and their callers.
pub struct World {
    /// The policies that the callers of each host ask, in turn.
    asked: &'static [&'static str],
    arguments: Vec<String>,
    pub folder: TempDir,
    hosts: Mutex<Vec<Option<HostProcess>>>,
    heard: Mutex<Vec<Heard>>,
    /// The callers got an answer, or a host has another address.
    changed: Condvar,
    is_over: AtomicBool,
}

impl World {
    /// Hosts with these policies. The callers of the first hosts, `with_callers` of them, ask the policies that are named.
    pub fn new(
        (policies, asked): (&str, &'static [&'static str]),
        (hosts, with_callers): (usize, usize),
        arguments: &[&str],
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("policies.toml"), policies).unwrap();
        let heard = |host| asked.iter().map(move |policy| Heard::of(host, policy));
        let world = Self {
            asked,
            arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
            folder,
            hosts: Mutex::new((0..hosts).map(|_| None).collect()),
            heard: Mutex::new((0..with_callers).flat_map(heard).collect()),
            changed: Condvar::new(),
            is_over: AtomicBool::new(false),
        };
        (0..hosts).for_each(|number| world.start(number));
        world
    }

    fn host<T>(&self, number: usize, of: impl FnOnce(&HostProcess) -> T) -> T {
        of(self.hosts.lock().unwrap()[number].as_ref().expect("a host that runs"))
    }

    /// Starts a host.
    pub fn start(&self, number: usize) {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let process = HostProcess::start(self.folder.path(), &arguments);
        self.hosts.lock().unwrap()[number] = Some(process);
        self.changed.notify_all();
    }

    pub fn log(&self, number: usize) -> String {
        self.host(number, HostProcess::log)
    }

    /// Kills a host, so that nothing in it can say goodbye.
    pub fn kill(&self, number: usize) {
        drop(self.taken(number));
    }

    /// Ends a host as a service manager does.
    pub fn terminate(&self, number: usize) {
        self.taken(number).terminate();
    }

    fn taken(&self, number: usize) -> HostProcess {
        self.hosts.lock().unwrap()[number].take().unwrap()
    }

    pub fn runs(&self, number: usize) -> bool {
        self.hosts.lock().unwrap()[number].is_some()
    }

    pub fn url(&self, number: usize) -> String {
        self.host(number, |host| host.url().to_owned())
    }

    /// Sends a signal to a host, such as `STOP`.
    pub fn signal(&self, number: usize, name: &str) {
        self.host(number, |host| host.signal(name));
    }

    /// Bounds a resource of a host from now on, by an option of `prlimit`.
    pub fn bound(&self, number: usize, bound: &str) {
        let id = self.host(number, HostProcess::id).to_string();
        let mut prlimit = Command::new("prlimit"); // of util-linux
        assert!(prlimit.args(["--pid", &id, bound]).status().unwrap().success());
    }

    /// What the metrics of a host say under names that begin with this, added up.
    pub fn metric(&self, number: usize, name: &str) -> u64 {
        let text = self.api(number).get("/metrics", &[]).text;
        let own = text.lines().filter(|line| line.starts_with(name));
        own.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }

    /// A client of a host, with a token.
    pub fn api(&self, number: usize) -> Api {
        Api::new(&self.url(number), Some(TOKEN))
    }

    /// What each caller heard, by host and policy.
    pub fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }

    /// Waits until this holds for what the callers have heard.
    pub fn until(&self, what: &str, holds: impl Fn(&[Heard]) -> bool) {
        let mut wait = Wait::begin();
        loop {
            let heard = self.heard();
            if holds(&heard) {
                return;
            }
            wait.go_on(format_args!("{what}: {heard:?}"));
            drop(self.changed.wait_timeout(self.heard.lock().unwrap(), PAUSE).unwrap());
        }
    }

    /// Waits until the callers of each host that runs have heard so much more of this under each policy.
    pub fn until_more(&self, what: &str, more: u64, of: impl Fn(&Heard) -> u64) {
        let runs: Vec<bool> = self.hosts.lock().unwrap().iter().map(Option::is_some).collect();
        let before = self.heard();
        self.until(what, |heard| {
            let mut each = heard.iter().zip(&before);
            each.all(|(heard, before)| !runs[heard.host] || of(heard) >= of(before) + more)
        });
    }

    /// Waits until the store has decided on more requests at all hosts that run. Returns how long that took.
    pub fn until_all_decide(&self) -> Duration {
        let began = Instant::now();
        self.until_more("all hosts decide", DECISIONS, Heard::decided);
        began.elapsed()
    }

    /// Waits until `on_error` has decided on more requests at all hosts.
    pub fn until_all_notice(&self) {
        self.until_more("`on_error` decides", NOTICED, |heard| heard.passed + heard.failed);
    }

    /// Waits until a time has passed.
    pub fn wait(&self, time: Duration) {
        let began = Instant::now();
        self.until("the time passes", |_| began.elapsed() >= time);
    }

    /// Asks a host until the test is over. What it hears belongs to the place of this number.
    fn call(&self, place: usize) {
        let Heard { host, policy, .. } = self.heard()[place];
        let mut api = Api::new("", None);
        while !self.is_over.load(Relaxed) {
            let hosts = self.hosts.lock().unwrap();
            let Some(url) = hosts[host].as_ref().map(|host| host.url().to_owned()) else {
                drop(self.changed.wait_timeout(hosts, PAUSE).unwrap());
                continue;
            };
            drop(hosts);
            if api.url() != url {
                api = Api::new(&url, Some(TOKEN));
            }
            let began = Instant::now();
            let answer = ask(&api, policy);
            let took = began.elapsed();
            let heard = &mut self.heard.lock().unwrap()[place];
            match answer {
                Some(answer) => {
                    heard.longest = heard.longest.max(took);
                    *match (answer.units > 0, answer.by_on_error) {
                        (true, false) => &mut heard.granted,
                        (false, false) => &mut heard.refused,
                        (true, true) => &mut heard.passed,
                        (false, true) => &mut heard.failed,
                    } += answer.units.max(1);
                }
                None => heard.lost += 1,
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
            for place in 0..self.heard().len() {
                for _ in 0..CALLERS_OF_EACH_HOST / self.asked.len() {
                    scope.spawn(move || self.call(place));
                }
            }
            let disturbed = scope.spawn(|| {
                self.until_all_decide();
                let disturbed = disturb(self);
                self.until_more("the keys are exhausted", 1, |heard| heard.refused);
                disturbed
            });
            let disturbed = disturbed.join();
            self.is_over.store(true, Relaxed);
            disturbed.unwrap()
        })
    }
}

struct Answer {
    /// The units that are granted; 0 for a refusal.
    units: u64,
    by_on_error: bool,
}

/// Asks for a unit. Under the policy `reserved` reserves 4 units and commits 3, and the estimate counts if the commit fails.
/// `None` if nobody answers.
fn ask(api: &Api, policy: &str) -> Option<Answer> {
    let reserves = policy == "reserved";
    let target = if reserves { "/v1/reservations" } else { "/v1/check" };
    let cost = if reserves { 4 } else { 1 };
    let body = json!({ "policy": policy, "key": "k", "cost": cost });
    let told = api.try_post(target, body.to_string())?.json();
    let by_on_error = told["degraded"].is_string();
    if !told["allowed"].as_bool()? {
        return Some(Answer { units: 0, by_on_error });
    }
    let Some(id) = told["id"].as_str().filter(|_| reserves) else {
        return Some(Answer { units: cost, by_on_error });
    };
    let body = json!({ "policy": policy, "key": "k", "actual": 3 });
    let committed = api.try_post(&format!("/v1/reservations/{id}/commit"), body.to_string());
    let charged = committed.and_then(|committed| committed.get("charged").as_u64());
    Some(Answer { units: charged.unwrap_or(cost), by_on_error })
}
