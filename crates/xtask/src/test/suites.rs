//! What each suite of `cargo xtask test` runs.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};
use serde_json::Value;

use super::{Layer, Suite, Tally, circles, trees};
use crate::build::{self, Artifact};
use crate::run::{cargo, command, metadata};
use crate::{docs, fuzz, install, release};

/// The crates that run natively. All builds select the same ones, because cargo builds a dependency again for each selection
/// in which it has other features.
const NATIVE: [&str; 11] = [
    "--workspace",
    "--exclude",
    "tidegate-wasm",
    "--exclude",
    "tidegate-wasm-toml",
    "--exclude",
    "tidegate-worker",
    "--exclude",
    "tidegate-bench-empty",
    "--exclude",
    "tidegate-bench", // only its lints are checked
];

/// The crate of the suite `system`.
const SYSTEM: &str = "tidegate-tests";

/// The features of the library, each without the others.
const HOST_FEATURES: [&str; 7] = ["", "redis", "tower", "client", "reqwest", "command", "otel"];

const WASM: [&str; 2] = ["--target", "wasm32-unknown-unknown"];
const CLIPPY: [&str; 2] = ["clippy", "--quiet"];
const NO_WARNINGS: [&str; 3] = ["--", "-D", "warnings"];

pub(super) fn run(suite: Suite, layer: Layer, tally: &mut Tally) -> Result<()> {
    match suite {
        Suite::Lint => lint(tally),
        Suite::Rust => rust(layer, tally),
        Suite::Wasm => wasm(tally),
        Suite::Npm => npm(layer, tally),
        Suite::System => system(layer, tally),
        Suite::Features => features(tally),
        Suite::Msrv => msrv(tally),
        Suite::Servers => servers(tally),
        Suite::Fuzz => fuzz(tally),
    }
}

fn lint(tally: &mut Tally) -> Result<()> {
    tally.watch("rustfmt", cargo(&["fmt", "--all", "--check"]))?;
    let fuzz = ["fmt", "--check", "--manifest-path", "tests/fuzz/Cargo.toml"];
    tally.watch("rustfmt, fuzz targets", cargo(&fuzz))?;
    circles::check(&folders()?)?;
    trees::check()?;
    let native = [&CLIPPY[..], &NATIVE[..9], &["--all-targets"], &NO_WARNINGS].concat();
    tally.watch("clippy", cargo(&native))
}

fn rust(layer: Layer, tally: &mut Tally) -> Result<()> {
    let tests = test_targets(|package| package != SYSTEM)?;
    let vectors = "vectors".to_owned(); // of the suite `system`, whose other tests need more than Rust
    let tests = tests.iter().chain([&vectors]).flat_map(|test| ["--test", test]);
    let tests: Vec<&str> = ["--lib", "--bins", "--examples"].into_iter().chain(tests).collect();
    let pure = format!("not package({SYSTEM}) or binary({vectors}) and test(=native)");
    tally.watch(
        "cargo nextest, unit tests",
        nextest(layer, &[&tests[..], &["-E", &pure]].concat())?,
    )?;
    if layer == Layer::Fast {
        return Ok(());
    }
    tally.watch("cargo test, examples in the docs", native("test", &["--no-fail-fast", "--doc"]))
}

fn wasm(tally: &mut Tally) -> Result<()> {
    install::bare_target()?;
    let crates =
        ["tidegate-core", "tidegate-form", "tidegate-gate", "tidegate-http", "tidegate-tier"];
    let crates: Vec<&str> = crates.iter().flat_map(|name| ["--package", name]).collect();
    let bare = [&["build", "--target", "x86_64-unknown-none"], &crates[..]].concat();
    tally.watch("without an operating system", cargo(&bare))?;
    build::build(Artifact::Guest)?;
    build::build(Artifact::Worker)
}

fn npm(layer: Layer, tally: &mut Tally) -> Result<()> {
    install::redis()?; // for the limiter on Redis, and for the real library of Upstash
    build::pack()?;
    // a native host shares a limit with the package; with the tests, as in the suite `system`
    tally.watch("build the command", native("build", &["--bins", "--tests"]))?;
    let types = |folder: &str| command("node_modules/.bin/tsc", &["-p", folder]);
    tally.watch("types of the Worker's JavaScript", types("worker"))?;
    tally.watch("tsc --checkJs", types("crates/wasm/npm"))?;
    tally.watch("decisions in JavaScript", command("node_modules/.bin/eslint", &["."]))?;
    let run = ["tests/npm/run.mjs", "--everything"];
    let run = if layer == Layer::Everything { &run[..] } else { &run[..1] };
    if layer == Layer::Everything {
        install::loaders()?; // loads the package as bundlers, test runners and other runtimes do
        docs::run()?;
    }
    tally.watch("node --test", command("node_modules/.bin/node", run))
}

fn system(layer: Layer, tally: &mut Tally) -> Result<()> {
    install::redis()?;
    install::browser()?;
    build::build(Artifact::Guest)?;
    build::build(Artifact::Worker)?;
    // with the tests, because a build without them has other features
    tally.watch("build the command", native("build", &["--bins", "--tests"]))?;
    let system = format!("package({SYSTEM})");
    tally.watch("cargo nextest, system", nextest(layer, &["--bins", "--tests", "-E", &system])?)
}

/// The Redis store on each server of `tests/redis/servers.txt`.
fn servers(tally: &mut Tally) -> Result<()> {
    install::redis()?;
    for (name, program) in install::other_redis_servers()? {
        let asked = format!("package({SYSTEM}) and binary(redis) and test(/^on_each_server::/)");
        let mut suite = nextest(Layer::Everything, &["--bins", "--tests", "-E", &asked])?;
        suite.env("TIDEGATE_REDIS_SERVER", program);
        tally.watch(&format!("cargo nextest, {name}"), suite)?;
    }
    Ok(())
}

fn features(tally: &mut Tally) -> Result<()> {
    // in the workspace the library has all features
    HOST_FEATURES.iter().try_for_each(|features| {
        let host = ["--package", "tidegate", "--no-default-features", "--features", features];
        let what = format!("clippy for the library, features \"{features}\"");
        tally.watch(&what, cargo(&[&CLIPPY[..], &host, &["--all-targets"], &NO_WARNINGS].concat()))
    })?;
    install::wasm_target()?;
    let worker = ["--package", "tidegate-worker", "--package", "tidegate-bench-empty"];
    let worker = [&CLIPPY[..], &WASM, &worker, &NO_WARNINGS].concat();
    tally.watch("clippy for wasm", cargo(&worker))?;
    let limiter =
        ["--package", "tidegate-worker", "--no-default-features", "--features", "limiter"];
    let limiter = [&CLIPPY[..], &WASM, &limiter, &NO_WARNINGS].concat();
    tally.watch("clippy for the limiter on Durable Objects", cargo(&limiter))?;
    // one at a time: beside the Worker, the gate has TOML in every module
    build::npm_modules().try_for_each(|(package, features)| {
        let npm = ["--package", package, "--features", features];
        let what = format!("clippy for {package}, features \"{features}\"");
        tally.watch(&what, cargo(&[&CLIPPY[..], &WASM, &npm, &NO_WARNINGS].concat()))
    })?;
    let calls = ["test", "--package", "tidegate-wasm", "--features", "redis", "--lib"];
    tally.watch("cargo test, the calls to Redis", cargo(&calls))
}

fn msrv(tally: &mut Tally) -> Result<()> {
    let libraries = release::PUBLISHED.iter().flat_map(|name| ["--package", name]);
    let features = "tidegate/client,tidegate/command,tidegate/reqwest,tidegate/tls,tidegate/tower";
    let features = ["--no-default-features", "--features", features];
    let libraries: Vec<&str> = libraries.chain(features).collect();
    tally.check_with(&release::oldest_rust("tidegate")?, &libraries)?;
    // replays need the Rust that wasmtime needs, as the rest of the workspace does
    let replay = ["--package", "tidegate", "--features", "replay"];
    tally.check_with(env!("CARGO_PKG_RUST_VERSION"), &replay)
}

fn fuzz(tally: &mut Tally) -> Result<()> {
    let locked = ["fetch", "--locked", "--manifest-path", "tests/fuzz/Cargo.toml"];
    tally.watch("cargo fetch, fuzz targets", cargo(&locked))?; // cargo-fuzz would write another lock file
    fuzz::build()?;
    fuzz::TARGETS.iter().try_for_each(|target| {
        let runs = target.run()?;
        tally.passed += 1;
        tally.closing_lines.push(format!("{target}: {runs} runs without a crash"));
        Ok(())
    })
}

/// The tests of a layer, by the profiles of `.config/nextest.toml`.
fn nextest(layer: Layer, arguments: &[&str]) -> Result<Command> {
    install::nextest()?;
    let profile = if layer == Layer::Everything { "everything" } else { "default" };
    let mut nextest = cargo(&["nextest", "run", "--profile", profile]);
    nextest.args(NATIVE).args(arguments).env("PATH", install::path()?);
    Ok(nextest)
}

fn native(task: &str, arguments: &[&str]) -> Command {
    cargo(&[&[task], &NATIVE[..], arguments].concat())
}

/// The names of the test targets in the folders `tests` of some native packages.
fn test_targets(is_in: impl Fn(&str) -> bool) -> Result<Vec<String>> {
    let packages = packages()?;
    let is_native = |name: &str| !NATIVE.contains(&name);
    let targets = packages
        .iter()
        .filter(|package| {
            package["name"].as_str().is_some_and(|name| is_native(name) && is_in(name))
        })
        .flat_map(|package| package["targets"].as_array().into_iter().flatten())
        .filter(|target| target["kind"][0] == "test")
        .filter_map(|target| target["name"].as_str().map(str::to_owned));
    let targets: Vec<String> = targets.collect();
    if targets.is_empty() {
        bail!("expected packages with tests, found none");
    }
    Ok(targets)
}

/// The folders of all crates.
fn folders() -> Result<Vec<PathBuf>> {
    let packages = packages()?;
    let manifests = packages.iter().filter_map(|package| package["manifest_path"].as_str());
    Ok(manifests.filter_map(|manifest| Some(Path::new(manifest).parent()?.to_owned())).collect())
}

fn packages() -> Result<Vec<Value>> {
    match metadata()?["packages"].take() {
        Value::Array(packages) => Ok(packages),
        _ => bail!("cargo metadata lists no packages"),
    }
}
