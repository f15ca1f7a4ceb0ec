//! The built Worker beside a peer in JavaScript, each in a workerd of its own, storage in memory.
//!
//! Worker and peer are measured in turns, twice. The better figure of two counts, because the machine may be shared.

#[path = "../common/arguments.rs"]
mod arguments;
#[path = "../common/load.rs"]
#[expect(dead_code, reason = "the server is also asked at a rate")]
mod load;
mod reserve;
mod servers;
#[path = "../common/table.rs"]
#[expect(dead_code, reason = "the table of the Redis store has figures of more kinds")]
mod table;

use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::runtime::Builder;

use crate::arguments::arguments;
use crate::load::Load;
use crate::table::{Figure, Goal, Row, Table};

fn main() -> Result<()> {
    let (section, json) = arguments(std::env::args().skip(1))?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let table = runtime.block_on(measure(section))?;
    print!("{table}");
    json.map_or(Ok(()), |file| table.write_json(&file))
}

/// A row: what the Worker is asked, and what the peer.
struct Comparison {
    work: &'static str,
    worker: Load,
    baseline: &'static str,
    peer: Load,
    goal: Goal,
}

const fn check(policy: &'static str, keys: u64) -> Load {
    Load { path: "/v1/check", policy, keys, expected: "\"allowed\":true", has_cf: false }
}

const fn peer(path: &'static str, keys: u64) -> Load {
    Load { path, policy: "strict", keys, expected: "\"allowed\":true", has_cf: false }
}

const REFUSED: Load = Load { expected: "\"allowed\":false", ..check("full", 1) };
const HEALTH: Load = Load { path: "/healthz", policy: "", keys: 1, expected: "ok", has_cf: false };
const NOTHING: Load = Load { path: "/nothing", ..HEALTH };
const PUT: &str = "the peer with a put a grant";
const EMPTY: &str = "a peer that asks no object";

fn comparisons() -> Vec<Comparison> {
    let row = |work, worker, baseline, peer, goal| Comparison {
        work,
        worker,
        baseline,
        peer,
        goal: Goal::AtLeast(goal),
    };
    vec![
        row("strict, 1 key", check("strict", 1), PUT, peer("/put", 1), 1.0),
        row("strict, 100 keys", check("strict", 100), PUT, peer("/put", 100), 1.0),
        row("strict, 5,000 keys", check("strict", 5_000), PUT, peer("/put", 5_000), 2.0),
        row("strict, no shared calls, 1 key", check("alone", 1), PUT, peer("/put", 1), 1.0),
        row(
            "strict, 5,000 keys, 16 shards",
            check("sharded", 5_000),
            PUT,
            peer("/put", 5_000),
            2.0,
        ),
        row("strict, 100 keys, one shard", check("one_shard", 100), PUT, peer("/put", 100), 1.0),
        row(
            "strict, 5,000 keys, one shard",
            check("one_shard", 5_000),
            PUT,
            peer("/put", 5_000),
            2.0,
        ),
        row("persisted ahead, 1 key", check("ahead", 1), PUT, peer("/put", 1), 1.2),
        row("persisted ahead, 100 keys", check("ahead", 100), PUT, peer("/put", 100), 1.2),
        row(
            "ahead, 100 keys, one shard",
            check("one_shard_ahead", 100),
            PUT,
            peer("/put", 100),
            1.2,
        ),
        row(
            "persisted ahead, 1 key",
            check("ahead", 1),
            "the peer in memory",
            peer("/memory", 1),
            1.0,
        ),
        row("a refusal that the isolate knows", REFUSED, EMPTY, peer("/empty", 1), 0.85),
        row("units that the isolate holds", check("lent", 1), EMPTY, peer("/empty", 1), 0.85),
        row("/healthz", HEALTH, "the peer", HEALTH, 0.9),
        row(
            "strict, 1 key, with a cf object",
            Load { has_cf: true, ..check("strict", 1) },
            PUT,
            Load { has_cf: true, ..peer("/put", 1) },
            1.0,
        ),
        row(
            "/healthz, with a cf object",
            Load { has_cf: true, ..HEALTH },
            "the peer",
            Load { has_cf: true, ..HEALTH },
            0.9,
        ),
    ]
}

async fn measure(section: Duration) -> Result<Table> {
    let mut table = Table::of("worker");
    for Comparison { work, worker, baseline, peer, goal } in comparisons() {
        // each row has new servers, so no row measures the objects of another one
        let (tidegate, _storage) = servers::worker()?;
        let other = servers::peer()?;
        if std::ptr::eq(worker.expected, REFUSED.expected) {
            Load { expected: "allowed", ..worker }.measure(tidegate.url(), section / 20).await?;
        }
        let (mut ours, mut theirs) = (0.0_f64, 0.0_f64);
        for _ in 0..2 {
            ours = ours.max(worker.measure(tidegate.url(), section).await?);
            theirs = theirs.max(peer.measure(other.url(), section).await?);
        }
        let row = Row::new("answers", Figure::PerSecond(ours));
        table.group(work, vec![row.beside(baseline, Figure::PerSecond(theirs), goal)]);
    }
    table.group("durable object, 100 keys", vec![own_objects(section).await?]);
    table.group("reserve and commit, 100 keys", vec![reservations(section).await?]);
    table.group("time of an answer, by layer", layers(section).await?);
    table.group("from the start of workerd, median", starts().await?);
    Ok(table)
}

/// A limiter in a Worker of one's own beside the Worker, which also reads and words the HTTP API.
async fn own_objects(section: Duration) -> Result<Row> {
    let (tidegate, _storage) = servers::worker()?;
    let own = servers::limiter()?;
    let (mut ours, mut theirs) = (0.0_f64, 0.0_f64);
    for _ in 0..2 {
        ours = ours.max(check("strict", 100).measure(own.url(), section).await?);
        theirs = theirs.max(check("strict", 100).measure(tidegate.url(), section).await?);
    }
    let row = Row::new("answers", Figure::PerSecond(ours));
    Ok(row.beside("the Worker's own", Figure::PerSecond(theirs), Goal::AtLeast(1.0)))
}

/// Two calls instead of one: a reservation and its commit beside a check of the same policy.
async fn reservations(section: Duration) -> Result<Row> {
    let (tidegate, _storage) = servers::worker()?;
    let (mut checks, mut pairs) = (0.0_f64, 0.0_f64);
    for _ in 0..2 {
        checks = checks.max(check("reserving", 100).measure(tidegate.url(), section).await?);
        pairs = pairs.max(reserve::pairs(tidegate.url(), 100, section).await?);
    }
    let row = Row::new("pairs", Figure::PerSecond(pairs));
    Ok(row.beside("checks", Figure::PerSecond(checks), Goal::AtLeast(0.45)))
}

/// What each layer adds to an answer. Each row stands beside the one with a layer less. One thread serves all
/// requests, so the time of an answer is the inverse of the rate.
async fn layers(section: Duration) -> Result<Vec<Row>> {
    let (tidegate, _storage) = servers::worker()?;
    let other = servers::peer()?;
    let (ours, theirs) = (tidegate.url(), other.url());
    let layers: [(&'static str, &str, Load, Option<usize>); 8] = [
        ("an empty Worker", theirs, NOTHING, None),
        ("+ headers", theirs, HEALTH, Some(0)),
        ("+ body and answer", theirs, peer("/empty", 1), Some(1)),
        ("+ RPC to the object", theirs, peer("/memory", 1), Some(2)),
        ("+ a row written", theirs, peer("/put", 1), Some(3)),
        ("wasm, headers", ours, HEALTH, Some(1)),
        ("wasm, decided here", ours, check("lent", 1), Some(2)),
        ("wasm, strict", ours, check("strict", 1), Some(4)),
    ];
    let mut best = [0.0_f64; 8];
    for _ in 0..2 {
        for ((_, url, load, _), best) in layers.iter().zip(&mut best) {
            *best = best.max(load.measure(url, section).await?);
        }
    }
    let times = best.map(|rate| Figure::Time(Duration::from_secs_f64(1.0 / rate)));
    let row = |((what, _, _, beside), time): (&(&'static str, _, _, Option<usize>), Figure)| {
        let row = Row::new(what, time);
        match *beside {
            Some(place) => row.beside(layers[place].0, times[place], Goal::Unset),
            None => row,
        }
    };
    Ok(layers.iter().zip(times).map(row).collect())
}

/// How often each Worker is started.
const STARTS: usize = 9;

async fn starts() -> Result<Vec<Row>> {
    let (mut ours, mut health, mut rust, mut script) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..STARTS {
        let began = Instant::now();
        let (tidegate, _storage) = servers::worker()?;
        check("strict", 1).first(tidegate.url()).await?;
        ours.push(began.elapsed());
        drop(tidegate);
        let began = Instant::now();
        let (tidegate, _storage) = servers::worker()?;
        HEALTH.first(tidegate.url()).await?;
        health.push(began.elapsed());
        drop(tidegate);
        let began = Instant::now();
        Load { expected: "200 OK", ..NOTHING }.first(servers::empty()?.url()).await?;
        rust.push(began.elapsed());
        let began = Instant::now();
        NOTHING.first(servers::peer()?.url()).await?;
        script.push(began.elapsed());
    }
    let [ours, health, rust, script] = [ours, health, rust, script].map(|mut times| {
        times.sort();
        Figure::Time(times[STARTS / 2])
    });
    let empty = "an empty Worker in Rust";
    Ok(vec![
        Row::new("to the first decision", ours).beside(empty, rust, Goal::AtMost(1.3)),
        Row::new("to the first /healthz", health).beside(empty, rust, Goal::Unset),
        Row::new("an empty Worker in JavaScript", script).beside(empty, rust, Goal::Unset),
    ])
}
