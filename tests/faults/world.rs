//! Processes of `tidegate serve` on one Redis, callers that never stop asking, and what they hear.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use tidegate_tests::HostProcess;
use ureq::Agent;

/// What a key is granted while nothing fails. Nothing comes back.
pub const LIMIT: u64 = 500;

pub const POLICIES: &str = "
[policies.closed]
limits = [{ algorithm = 'fixed_window', limit = 500, period = '365d' }]
[policies.open]
limits = [{ algorithm = 'fixed_window', limit = 500, period = '365d' }]
on_error = 'open'
";

/// How long Redis may be silent. Every answer must come within two of it: a connection may break while an operation waits.
pub const DEADLINE: Duration = Duration::from_millis(250);

/// The same in the rows of which the test demands that `on_error` decides nothing. A busy machine keeps it.
pub const PATIENT: Duration = Duration::from_secs(10);

/// How late a busy machine may be.
pub const MARGIN: Duration = Duration::from_secs(5);

/// What callers send, for hosts that have a token.
const TOKEN: &str = "Bearer t";

const CALLERS_OF_EACH_HOST: usize = 4;
/// How many more decisions of each host show that it decides.
const DECISIONS: u64 = 100;
/// How many answers by `on_error` show that a host noticed a fault.
const NOTICED: u64 = 20;
/// A test that does not get on fails after this long.
const GIVE_UP_AFTER: Duration = Duration::from_secs(120);

/// What the callers of a host heard.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heard {
    /// What Redis granted under `closed`.
    pub granted: u64,
    /// What it granted under `open`.
    pub granted_open: u64,
    /// What it refused under `closed` and under `open`.
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
    arguments: Vec<String>,
    pub folder: TempDir,
    hosts: Mutex<Vec<Host>>,
    /// The callers got an answer, or a host has another address.
    changed: Condvar,
    is_over: AtomicBool,
    began: Instant,
}

impl World {
    pub fn new(hosts: usize, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("policies.toml"), POLICIES).unwrap();
        let world = Self {
            arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
            folder,
            hosts: Mutex::new((0..hosts).map(|_| Host::default()).collect()),
            changed: Condvar::new(),
            is_over: AtomicBool::new(false),
            began: Instant::now(),
        };
        (0..hosts).for_each(|number| world.start(number));
        world
    }

    /// The same with hosts whose deadline is `PATIENT`.
    pub fn patient(hosts: usize, arguments: &[&str]) -> Self {
        let deadline = PATIENT.as_millis().to_string();
        Self::new(hosts, &[arguments, &["--redis-deadline", &deadline]].concat())
    }

    fn hosts(&self) -> MutexGuard<'_, Vec<Host>> {
        self.hosts.lock().unwrap()
    }

    /// Starts a host.
    pub fn start(&self, number: usize) {
        let log = fs::File::create(self.log_of(number)).unwrap();
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let process = HostProcess::start(self.folder.path(), &arguments, log);
        let process = process.unwrap_or_else(|| panic!("{}", self.log(number)));
        self.hosts()[number].process = Some(process);
        self.changed.notify_all();
    }

    fn log_of(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("log{number}"))
    }

    pub fn log(&self, number: usize) -> String {
        fs::read_to_string(self.log_of(number)).unwrap_or_default()
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

    pub fn url(&self, number: usize) -> String {
        self.hosts()[number].process.as_ref().unwrap().url().to_owned()
    }

    /// Bounds a resource of a host from now on, by an option of `prlimit`.
    pub fn bound(&self, number: usize, bound: &str) {
        let id = self.hosts()[number].process.as_ref().unwrap().id();
        let mut prlimit = Command::new("prlimit"); // of util-linux
        assert!(prlimit.args(["--pid", &id, bound]).status().unwrap().success());
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
        let mut hosts = self.hosts();
        loop {
            let heard: Vec<_> = hosts.iter().map(|host| host.heard).collect();
            if holds(&heard) {
                return;
            }
            let since = self.began.elapsed();
            assert!(since < GIVE_UP_AFTER, "expected that {what}, found {heard:?}");
            hosts = self.changed.wait_timeout(hosts, DEADLINE).unwrap().0;
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
        let agent: Agent =
            Agent::config_builder().timeout_global(Some(GIVE_UP_AFTER)).build().into();
        let body = format!(r#"{{"policy":"{policy}","key":"k"}}"#);
        while !self.is_over.load(Relaxed) {
            let hosts = self.hosts();
            let Some(url) = hosts[number].process.as_ref().map(|host| host.url().to_owned()) else {
                drop(self.changed.wait_timeout(hosts, DEADLINE).unwrap());
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
    pub fn run<T: Send>(&self, disturb: impl FnOnce(&Self) -> T + Send) -> T {
        thread::scope(|scope| {
            for number in 0..self.heard().len() {
                for caller in 0..CALLERS_OF_EACH_HOST {
                    scope.spawn(move || self.call(number, ["closed", "open"][caller % 2]));
                }
            }
            let disturbed = scope.spawn(|| {
                self.until_all_decide();
                let disturbed = disturb(self);
                let before = self.heard();
                self.until("both keys are exhausted", |heard| {
                    heard.iter().zip(&before).all(|(heard, before)| {
                        heard.refused > before.refused && heard.refused_open > before.refused_open
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

/// A row of the table.
pub struct Row {
    pub fault: &'static str,
    /// What may be granted under each policy, beside what `on_error` lets pass.
    pub bound: u64,
    pub recovered: Duration,
    pub deadline: Duration,
}

impl Row {
    /// Checks what was heard, and keeps the row for the table of docs/operations.md.
    pub fn check(self, world: &World) -> Heard {
        let each = world.heard();
        let heard = Heard::all(&each);
        let Self { fault, bound, recovered, deadline } = self;
        println!("{fault}: bound {bound}, recovered in {recovered:.1?}; {each:?}");
        assert!(
            heard.granted <= bound && heard.granted_open <= bound,
            "{fault}: bound {bound}; {heard:?}"
        );
        assert!(heard.granted > 0 && heard.granted_open > 0, "{fault}: {heard:?}");
        assert!(heard.longest < 2 * deadline + MARGIN, "{fault}: {heard:?}");
        let errors: u64 = (0..each.len())
            .filter(|number| world.hosts()[*number].process.is_some())
            .map(|number| {
                world.metric(number, "tidegate_decisions_total{policy=\"closed\",outcome=\"error\"")
            })
            .sum();
        let lost = if heard.lost > 0 { format!("; {} lost", heard.lost) } else { String::new() };
        keep(
            fault,
            &format!(
                "| {fault} | {} and {} of {bound} | {} refused, {} passed{lost} | {} ms | {} ms | {errors} |",
                heard.granted,
                heard.granted_open,
                heard.failed_closed,
                heard.passed_open,
                heard.longest.as_millis(),
                recovered.as_millis(),
            ),
        );
        heard
    }
}

/// `cargo run -p tidegate-tests --bin faults` puts the rows together.
fn keep(fault: &str, row: &str) {
    let folder =
        tidegate_tests::command().parent().map(|folder| folder.join("fault-rows")).unwrap();
    fs::create_dir_all(&folder).unwrap();
    let name: String = fault
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' })
        .collect();
    fs::write(folder.join(name), row).unwrap();
    let page = fs::read_to_string(tidegate::local::workspace().join("docs/operations.md")).unwrap();
    assert!(
        page.contains(&format!("| {fault} |")),
        "docs/operations.md: expected a row of {fault}"
    );
}

pub fn signal(id: u32, name: &str) {
    assert!(Command::new("kill").args([name, &id.to_string()]).status().unwrap().success());
}
