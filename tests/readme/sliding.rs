//! Measures the error of the sliding window against a log of all grants, which is scanned for each request.

use std::collections::HashMap;
use std::path::Path;

use fastrand::Rng;
use indicatif::ProgressBar;
use tidegate::replay::Trace;
use tidegate_gate::{Policies, Policy, Timestamp};

/// The number of requests in each generated load, at 150 a minute.
const REQUESTS: u64 = 100_000;
const MINUTE: u64 = 60_000_000;
const SEGMENTS: [u64; 4] = [1, 6, 12, 60];

/// Requests in their order, with the limit that holds for each key.
pub struct Load {
    name: &'static str,
    limit: usize,
    period: u64,
    requests: Vec<Request>,
}

struct Request {
    key: usize,
    at: u64,
}

pub fn loads() -> Vec<Load> {
    let recorded = |name, period| Load { name, limit: 10, period, requests: recorded() };
    let generated = |name, times: Vec<u64>| {
        let requests = times.into_iter().map(|at| Request { key: 0, at }).collect();
        Load { name, limit: 100, period: MINUTE, requests }
    };
    vec![
        recorded("log, 10 a minute", MINUTE),
        recorded("log, 10 an hour", 60 * MINUTE),
        generated("even", even()),
        generated("Poisson", poisson()),
        generated("bursts", bursts()),
        generated("borders", borders()),
    ]
}

/// The requests of the access log; the key is the client address.
fn recorded() -> Vec<Request> {
    let policies =
        "[policies.any]\nlimits = [{ algorithm = 'fixed_window', limit = 5, period = '1m' }]";
    let policies = Policies::parse(policies).unwrap();
    let file = tidegate_tests::file("data/access-2015.log.gz");
    let mut trace = Trace::open(Path::new(&file), &policies, None, &ProgressBar::hidden()).unwrap();
    let mut keys: HashMap<String, usize> = HashMap::new();
    let mut requests = Vec::new();
    while let Some(line) = trace.next_line().unwrap() {
        let event = line.unwrap();
        let next = keys.len();
        let key = *keys.entry(event.key).or_insert(next);
        requests.push(Request { key, at: event.at.0 });
    }
    requests
}

/// One request every 400 ms.
fn even() -> Vec<u64> {
    (0..REQUESTS).map(|request| START + request * 400_000).collect()
}

/// Independent requests: each comes at a random time of the span.
fn poisson() -> Vec<u64> {
    let mut rng = Rng::with_seed(1);
    let mut times: Vec<u64> =
        (0..REQUESTS).map(|_| START + rng.u64(0..REQUESTS * 400_000)).collect();
    times.sort_unstable();
    times
}

/// 40 requests at one microsecond, then a random pause.
fn bursts() -> Vec<u64> {
    let mut rng = Rng::with_seed(1);
    let mut at = START;
    let pause = |_| {
        at += rng.u64(0..2 * 40 * 400_000);
        [at; 40]
    };
    (0..REQUESTS / 40).flat_map(pause).collect()
}

/// 150 requests a minute: half at its last microsecond, where segments end, and half at random times.
fn borders() -> Vec<u64> {
    let mut rng = Rng::with_seed(1);
    let mut times = Vec::new();
    for minute in 0..REQUESTS / 150 {
        let start = START + minute * MINUTE;
        times.extend([start + MINUTE - 1; 75]);
        times.extend((0..75).map(|_| start + rng.u64(0..MINUTE)));
    }
    times.sort_unstable();
    times
}

/// The border of a minute.
const START: u64 = 1_700_000_040_000_000;

impl Load {
    /// Measures one row of the table for each number of segments.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let mut exact = Logs::new(self);
        for request in &self.requests {
            let at = exact.taken(request);
            if exact.has_room(request.key, at) {
                exact.grant(request.key, at);
            }
        }
        SEGMENTS.map(|segments| self.row(segments, exact.granted())).into()
    }

    fn row(&self, segments: u64, exact: usize) -> Vec<String> {
        let limits = format!(
            "limits = [{{ algorithm = 'sliding_window', limit = {}, period = '{}us', segments = {segments} }}]",
            self.limit, self.period
        );
        let policy = Policy::parse("measured", &limits).unwrap();
        let mut states: HashMap<usize, Vec<u64>> = HashMap::new();
        let mut own = Logs::new(self);
        let (mut granted_without_room, mut refused_despite_room) = (0, 0);
        for request in &self.requests {
            let at = own.taken(request);
            let has_room = own.has_room(request.key, at);
            let state =
                states.entry(request.key).or_insert_with(|| vec![0; policy.limits().words()]);
            if policy
                .limits()
                .decide(state, Timestamp(request.at), &tidegate_gate::Request::of(1))
                .unwrap()
                .is_allowed()
            {
                own.grant(request.key, at);
                granted_without_room += usize::from(!has_room);
            } else {
                refused_despite_room += usize::from(has_room);
            }
        }
        let requests = self.requests.len();
        vec![
            self.name.to_owned(),
            segments.to_string(),
            percent(requests - exact, requests),
            percent(own.granted(), exact),
            percent(granted_without_room, requests),
            percent(refused_despite_room, requests),
            own.worst().to_string(),
        ]
    }
}

/// Every grant, by key.
struct Logs {
    limit: usize,
    period: u64,
    keys: HashMap<usize, Log>,
}

#[derive(Default)]
struct Log {
    newest: u64,
    grants: Vec<u64>,
}

impl Logs {
    fn new(load: &Load) -> Self {
        Self { limit: load.limit, period: load.period, keys: HashMap::new() }
    }

    /// By the clock rule, a request with an older time counts at the newest time of its key.
    fn taken(&mut self, request: &Request) -> u64 {
        let log = self.keys.entry(request.key).or_default();
        assert!(request.at + self.period >= log.newest, "no line is late by more than a period");
        log.newest = log.newest.max(request.at);
        log.newest
    }

    fn has_room(&self, key: usize, at: u64) -> bool {
        let grants = self.keys[&key].grants.iter().rev();
        grants.take_while(|&&grant| grant + self.period > at).count() < self.limit
    }

    fn grant(&mut self, key: usize, at: u64) {
        self.keys.entry(key).or_default().grants.push(at);
    }

    fn granted(&self) -> usize {
        self.keys.values().map(|log| log.grants.len()).sum()
    }

    /// The largest number of grants in any period. The fullest period ends with a grant.
    fn worst(&self) -> usize {
        let fullest = |log: &Log| {
            let mut first = 0;
            let counts = log.grants.iter().enumerate().map(|(last, at)| {
                while log.grants[first] + self.period <= *at {
                    first += 1;
                }
                last + 1 - first
            });
            counts.max()
        };
        self.keys.values().filter_map(fullest).max().unwrap_or_default()
    }
}

fn percent(part: usize, whole: usize) -> String {
    let hundredths = part * 10_000 / whole;
    format!("{}.{:02} %", hundredths / 100, hundredths % 100)
}
