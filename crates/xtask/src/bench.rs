//! `cargo xtask bench`: runs the benchmarks and compares them with their baselines. The benchmark of the
//! Redis store and that of the Worker print tables of their own; criterion measures the others.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::run::{cargo, command, step, target};
use crate::{build, install};

/// The benchmark of a group that is compared with the others.
const OURS: &str = "tidegate";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Run only the benchmark of this name (decide, shed, lease, memory, redis, serve, worker, npm or npm-redis), or only rows whose
    /// names contain this text
    name: Option<String>,
    /// Measure each section of redis, serve and worker for this long
    #[arg(long, value_name = "SECONDS", default_value = "2")]
    seconds: String,
    /// Also measure redis with so many keys, for instance 10000000
    #[arg(long, value_name = "KEYS")]
    keys: Option<usize>,
    /// Also write the figures to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    match arguments.name.as_deref() {
        Some("npm") => return npm("tests/npm/bench.mjs"),
        Some("npm-redis") => {
            step("build the host", &mut cargo(&["build", "--release", "--package", "tidegate"]))?;
            return npm("tests/npm/bench-redis.mjs");
        }
        _ => {}
    }
    let folder = target()?.join("criterion");
    let _ = fs::remove_dir_all(&folder); // no figures of an earlier run
    fs::create_dir_all(&folder)?;
    let own_table = |target: &str| folder.join(format!("{target}.json"));
    for target in targets(arguments.name.as_deref()) {
        let mut bench = cargo(&["bench", "--package", "tidegate-bench", "--bench", target]);
        bench.arg("--no-default-features"); // only two benchmarks need the host
        if target == WORKER {
            build::build(build::Artifact::Npm)?; // it has the Worker, and the limiter on Durable Objects
            build::empty_worker()?;
        }
        if [MEMORY, REDIS, SERVE, WORKER].contains(&target) {
            bench.args(["--features", target]);
        }
        bench.arg("--");
        if [REDIS, SERVE, WORKER].contains(&target) {
            bench.args(["--seconds", &arguments.seconds, "--json"]).arg(own_table(target));
            let keys = arguments.keys.filter(|_| target == REDIS);
            bench.args(keys.into_iter().flat_map(|keys| ["--keys".to_owned(), keys.to_string()]));
        } else {
            bench.args(arguments.name.iter().filter(|name| name.as_str() != target));
        }
        step(&format!("benchmarks, {target}"), &mut bench)?;
    }
    let mut rows = Vec::new();
    for (name, row) in figures(&folder)? {
        println!("{}", line(&name, &row));
        rows.push(row);
    }
    for target in [REDIS, SERVE, WORKER] {
        if let Ok(text) = fs::read_to_string(own_table(target)) {
            rows.extend(serde_json::from_str::<Vec<Value>>(&text)?); // the benchmark has printed them
        }
    }
    if rows.is_empty() {
        bail!("no benchmark is named {:?}", arguments.name.as_deref().unwrap_or(""));
    }
    if let Some(file) = &arguments.json {
        fs::write(file, serde_json::to_string_pretty(&rows)?)
            .with_context(|| file.display().to_string())?;
    }
    Ok(())
}

/// Measures the npm package beside other limiters in the workspace's Node.
fn npm(script: &str) -> Result<()> {
    build::build(build::Artifact::Npm)?;
    install::redis()?;
    install::loaders()?;
    let mut bench = command("node_modules/.bin/node", &[script]);
    bench.env("TIDEGATE_HOST", target()?.join("release/tidegate"));
    step(&format!("benchmarks, {script}"), &mut bench)
}

/// The benchmarks of `tests/bench/benches`, and the starts of the names of their rows.
const BENCHES: [(&str, &[&str]); 7] = [
    ("decide", &["token_bucket", "fixed_window", "sliding_window"]),
    ("shed", &["sliding_log", "utilization", "suppression", "reporter", "penalty"]),
    ("lease", &["concurrency", "connections", "fleet", "budget"]),
    (MEMORY, &["memory"]),
    (REDIS, &[]), // its sections need each other, so it runs as a whole
    (SERVE, &[]),
    (WORKER, &[]),
];
const MEMORY: &str = "memory";
const REDIS: &str = "redis";
const SERVE: &str = "serve";
const WORKER: &str = "worker";

/// The benchmarks that have rows of this name. Only these are built.
fn targets(name: Option<&str>) -> Vec<&'static str> {
    let has = |target: &str, rows: &[&str]| {
        let Some(name) = name else { return true };
        target == name || rows.iter().any(|row| row.contains(name) || name.starts_with(row))
    };
    let named = BENCHES.iter().filter(|(target, rows)| has(target, rows));
    let named: Vec<_> = named.map(|(target, _)| *target).collect();
    if !named.is_empty() {
        return named;
    }
    let with_rows = BENCHES.iter().filter(|(_, rows)| !rows.is_empty()); // for names such as `granted`
    with_rows.map(|(target, _)| *target).collect()
}

/// Criterion's median of each benchmark, named GROUP/WHO. In each group, Tidegate is compared with
/// all others, its baselines.
fn figures(folder: &std::path::Path) -> Result<BTreeMap<String, Value>> {
    let mut medians: BTreeMap<(String, String), u64> = BTreeMap::new();
    for group in fs::read_dir(folder)?.flatten() {
        for bench in fs::read_dir(group.path()).into_iter().flatten().flatten() {
            let Ok(text) = fs::read_to_string(bench.path().join("new/estimates.json")) else {
                continue;
            };
            let identity: Value = serde_json::from_str(&fs::read_to_string(
                bench.path().join("new/benchmark.json"),
            )?)?;
            let estimates: Value = serde_json::from_str(&text)?;
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let name = (text(&identity["group_id"]), text(&identity["function_id"]));
            medians.insert(name, picoseconds(&estimates["median"]["point_estimate"]));
        }
    }
    let mut rows = BTreeMap::new();
    for ((group, who), &median) in &medians {
        let name = format!("{group}/{who}");
        let mut ratios = Vec::new();
        for ((_, baseline), &of) in
            medians.iter().filter(|((other, baseline), _)| other == group && baseline != OURS)
        {
            let thousandths = median.saturating_mul(1_000).checked_div(of).unwrap_or(0);
            if who == OURS {
                ratios.push(json!({ "baseline": baseline, "thousandths": thousandths }));
            }
        }
        rows.insert(name.clone(), json!({ "name": name, "picoseconds": median, "ratios": ratios }));
    }
    Ok(rows)
}

/// `name: value unit (ratio r to BASELINE, …)`
fn line(name: &str, row: &Value) -> String {
    let number = |value: &Value| thousandths(value.as_u64().unwrap_or(0));
    let ratios: Vec<String> = row["ratios"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|ratio| {
            let baseline = ratio["baseline"].as_str().unwrap_or_default();
            format!("ratio {} to {baseline}", number(&ratio["thousandths"]))
        })
        .collect();
    let ratios =
        if ratios.is_empty() { String::new() } else { format!(" ({})", ratios.join(", ")) };
    format!("{name}: {} ns{ratios}", number(&row["picoseconds"]))
}

/// Converts nanoseconds with a fraction, as Criterion writes them, to whole picoseconds.
fn picoseconds(nanoseconds: &Value) -> u64 {
    let text = nanoseconds.to_string();
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, "0"));
    let fraction: String = fraction.chars().chain("000".chars()).take(3).collect();
    whole.parse::<u64>().unwrap_or(0) * 1_000 + fraction.parse::<u64>().unwrap_or(0)
}

fn thousandths(n: u64) -> String {
    format!("{}.{:03}", n / 1_000, n % 1_000)
}
