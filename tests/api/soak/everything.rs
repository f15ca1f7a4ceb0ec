//! The Worker under load in all its modes, whose memory must not grow. The test takes seconds; before a release let it run
//! for ten minutes, as CONTRIBUTING.md says.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tidegate::local::WorkerdOptions;
use tidegate_tests::{Served, worker};
use tungstenite::Message;

use crate::held::{echoes, open_at};
use crate::upstream::{Upstream, connect};

const POLICIES: &str = r#"
auth = "none"
api_path = "/_tidegate"
routes = [
  { match = "/site/*", policy = "site", upstream = "http://UPSTREAM" },
  { match = "/sockets/*", policy = "sockets", upstream = "http://UPSTREAM" },
]

[policies.strict]
placement = "shard:16"
limits = [{ algorithm = "token_bucket", capacity = 5, rate = "1/10s" }]

[policies.shared]
placement = "shard:4"
limits = [{ algorithm = "token_bucket", capacity = 5, rate = "1/10s" }]

[policies.own]
limits = [{ algorithm = "token_bucket", capacity = 5, rate = "1/10s" }]

[policies.ahead]
placement = "shard:16"
persist_ahead = { most = 100, time = "1s" }
limits = [{ algorithm = "token_bucket", capacity = 1000, rate = "100/s" }]

[policies.remembered]
placement = "shard:16"
remember = "10s"
limits = [{ algorithm = "sliding_window", limit = 2, period = "20s", segments = 10 }]

[policies.lent]
local = { most = 100, time = "1s" }
limits = [{ algorithm = "token_bucket", capacity = 1000, rate = "100/s" }]

[policies.site]
placement = "shard:16"
key = ["header:x-api-key"]
limits = [{ algorithm = "concurrency", capacity = 4, time_to_live = "1m" }]

[policies.sockets]
key = ["header:x-api-key"]
limits = [{ algorithm = "connections", limit = 8, expiry = "1m" }]
"#;

/// Each policy, and the number of its keys.
const CHECKED: [(&str, u64); 6] = [
    ("strict", 50_000),
    ("shared", 50_000),
    ("own", 2_000),
    ("ahead", 50_000),
    ("remembered", 50_000),
    ("lent", 200),
];

/// The variable that says for how many seconds the Worker is under load.
const WISH: &str = "TIDEGATE_SOAK_SECONDS";

/// How many answers and WebSockets are enough without a wish.
const ENOUGH: (u64, u64) = (500, 3);

/// Asks for random keys until it is told to stop.
fn ask(served: &Served, seed: u64, stop: &AtomicBool, answers: &AtomicU64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut stream = BufReader::new(connect(served));
    while !stop.load(Ordering::Relaxed) {
        let (policy, keys) = CHECKED[random.usize(..CHECKED.len())];
        let key = random.u64(..keys);
        let head = match random.u8(..8) {
            0 => format!("/site/echo HTTP/1.1\r\nx-api-key: {key}"),
            _ => format!("/_tidegate/v1/gate?policy={policy}&key=k{key} HTTP/1.1"),
        };
        write!(stream.get_mut(), "GET {head}\r\nhost: x\r\n\r\n").unwrap();
        read(&mut stream);
        answers.fetch_add(1, Ordering::Relaxed);
    }
}

/// Reads an answer that is no failure.
fn read(stream: &mut BufReader<TcpStream>) {
    let (mut line, mut length, mut status) = (String::new(), 0, None);
    while line != "\r\n" {
        line.clear();
        assert!(stream.read_line(&mut line).unwrap() > 0, "the Worker closed the connection");
        status.get_or_insert_with(|| line.clone());
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
            length = value.trim_end().parse().unwrap();
        }
    }
    assert!(!status.clone().unwrap().starts_with("HTTP/1.1 5"), "{status:?}");
    stream.read_exact(&mut vec![0; length]).unwrap();
}

/// Opens one WebSocket after another.
fn talk(served: &Served, stop: &AtomicBool, sockets: &AtomicU64) {
    while !stop.load(Ordering::Relaxed) {
        let mut socket = open_at(served, "sockets", "alice").unwrap();
        for _ in 0..10 {
            echoes(&mut socket, Message::text("x".repeat(1_000)));
        }
        socket.close(None).unwrap();
        while socket.read().is_ok() {}
        sockets.fetch_add(1, Ordering::Relaxed);
    }
}

/// The memory of a process, in kilobytes.
fn memory(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn memory_does_not_grow_under_load() {
    let upstream = Upstream::start();
    let policies = POLICIES.replace("UPSTREAM", &upstream.address);
    let (reaches_private, alarm_after_ms) = (true, Some(60_000));
    let options =
        WorkerdOptions { policies, reaches_private, alarm_after_ms, ..WorkerdOptions::default() };
    let served = worker(options);
    let (stop, answers, sockets) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let counted = || (answers.load(Ordering::Relaxed), sockets.load(Ordering::Relaxed));
    let mut samples = Vec::new();
    thread::scope(|scope| {
        let mut callers: Vec<_> = (0..16)
            .map(|seed| {
                let (served, stop, answers) = (&served, &stop, &answers);
                scope.spawn(move || ask(served, seed, stop, answers))
            })
            .collect();
        callers.push(scope.spawn(|| talk(&served, &stop, &sockets)));
        if let Ok(seconds) = std::env::var(WISH) {
            let span = Duration::from_secs(seconds.parse().unwrap());
            for sample in 1..=60 {
                thread::sleep(span / 60);
                let (elapsed, memory, counts) =
                    (span / 60 * sample, memory(served.process()), counted());
                println!("{elapsed:.0?}: {memory} kB, answers and WebSockets: {counts:?}");
                samples.push(memory);
            }
        }
        let failed = || callers.iter().any(|caller| caller.is_finished());
        while (counted().0 < ENOUGH.0 || counted().1 < ENOUGH.1) && !failed() {
            thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
    });
    let most = |samples: &[u64]| samples.iter().max().copied().unwrap_or(0);
    let (early, last) = samples.split_at(samples.len() * 2 / 3);
    let (before, last) = (most(early), most(last));
    assert!(last <= before + before / 10, "{before} kB, and {last} kB in the last third");
}
