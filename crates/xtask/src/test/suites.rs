//! What each suite of `cargo xtask test` runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};
use serde_json::Value;

use super::{Suite, Tally, circles, trees};
use crate::build::{self, Artifact};
use crate::run::{cargo, command, metadata, root};
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
const NO_WARNINGS: [&str; 3] = ["--", "-D", "warnings"];

pub(super) fn run(suite: Suite, tally: &mut Tally) -> Result<()> {
    match suite {
        Suite::Lint => lint(tally),
        Suite::Msrv => msrv(tally),
        Suite::Rust => rust(tally),
        Suite::Wasm => wasm(tally),
        Suite::Npm => npm(tally),
        Suite::Fuzz => fuzz(tally),
        Suite::System => system(tally),
    }
}

fn lint(tally: &mut Tally) -> Result<()> {
    tally.watch("rustfmt", cargo(&["fmt", "--all", "--check"]))?;
    let fuzz = ["fmt", "--check", "--manifest-path", "tests/fuzz/Cargo.toml"];
    tally.watch("rustfmt, fuzz targets", cargo(&fuzz))?;
    circles::check(&folders()?)?;
    trees::check()?;
    install::wasm_target()?;
    let clippy = ["clippy", "--quiet"];
    let native = [&clippy[..], &NATIVE[..9], &["--all-targets"], &NO_WARNINGS].concat();
    tally.watch("clippy", cargo(&native))?;
    // in the workspace the library has all features
    HOST_FEATURES.iter().try_for_each(|features| {
        let host = ["--package", "tidegate", "--no-default-features", "--features", features];
        let what = format!("clippy for the library, features \"{features}\"");
        tally.watch(&what, cargo(&[&clippy[..], &host, &["--all-targets"], &NO_WARNINGS].concat()))
    })?;
    let worker = ["--package", "tidegate-worker", "--package", "tidegate-bench-empty"];
    let worker = [&clippy[..], &WASM, &worker, &NO_WARNINGS].concat();
    tally.watch("clippy for wasm", cargo(&worker))?;
    let limiter =
        ["--package", "tidegate-worker", "--no-default-features", "--features", "limiter"];
    let limiter = [&clippy[..], &WASM, &limiter, &NO_WARNINGS].concat();
    tally.watch("clippy for the limiter on Durable Objects", cargo(&limiter))?;
    build::build(Artifact::Worker)?; // what binds it has types
    tally.watch(
        "types of the Worker's JavaScript",
        command("node_modules/.bin/tsc", &["-p", "worker"]),
    )?;
    tally.watch("decisions in JavaScript", command("node_modules/.bin/eslint", &["."]))?;
    // one at a time: beside the Worker, the gate has TOML in every module
    build::npm_modules().try_for_each(|(package, features)| {
        let npm = ["--package", package, "--features", features];
        let what = format!("clippy for {package}, features \"{features}\"");
        tally.watch(&what, cargo(&[&clippy[..], &WASM, &npm, &NO_WARNINGS].concat()))
    })
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

fn rust(tally: &mut Tally) -> Result<()> {
    let tests = test_targets(|package| package != SYSTEM)?;
    let tests = tests.iter().flat_map(|test| ["--test", test]);
    let tests: Vec<&str> = ["--lib", "--bins", "--examples"].into_iter().chain(tests).collect();
    tally.watch("cargo test", native("test", &[&["--no-fail-fast"], &tests[..]].concat()))?;
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

fn npm(tally: &mut Tally) -> Result<()> {
    install::redis()?; // for the limiter on Redis, and for the real library of Upstash
    build::pack()?;
    // a native host shares a limit with the package; with the tests, as in the suite `system`
    tally.watch("build the command", native("build", &["--bins", "--tests"]))?;
    let calls = ["test", "--package", "tidegate-wasm", "--features", "redis", "--lib"];
    tally.watch("cargo test, the calls to Redis", cargo(&calls))?;
    tally.watch("tsc --checkJs", command("node_modules/.bin/tsc", &["-p", "crates/wasm/npm"]))?;
    // runs the tests in the workspace's Node and in the machine's Node
    tally.watch("node --test", node("node_modules/.bin/node")?)?;
    tally.watch("node --test, the machine's", node("node")?)?;
    // loads the package as bundlers, test runners and other runtimes do
    install::loaders()?;
    let loaders = ["--test", "tests/npm/loaders/loaders.test.mjs"];
    tally.watch("loaders", command("node_modules/.bin/node", &loaders))?;
    docs::run()
}

/// The command names each file because Node 20 does not expand patterns. Two files run at a time: by itself Node leaves one
/// processor alone, so on two it runs one after another, although most files wait for servers and other programs. The reporter
/// is that of newer versions: Node 20 has another one for a pipe.
fn node(node: &str) -> Result<Command> {
    let mut runner = command(node, &["--test", "--test-concurrency=2", "--test-reporter=spec"]);
    for file in fs::read_dir(root().join("tests/npm"))? {
        let path = file?.path();
        if path.to_string_lossy().ends_with(".test.mjs") {
            runner.arg(path);
        }
    }
    Ok(runner)
}

fn fuzz(tally: &mut Tally) -> Result<()> {
    fuzz::build()?;
    fuzz::TARGETS.iter().try_for_each(|target| {
        let runs = target.run()?;
        tally.passed += 1;
        tally.closing_lines.push(format!("{target}: {runs} runs without a crash"));
        Ok(())
    })
}

fn system(tally: &mut Tally) -> Result<()> {
    install::redis()?;
    install::browser()?;
    build::build(Artifact::Guest)?;
    build::build(Artifact::Worker)?;
    // with the tests, because a build without them has other features
    tally.watch("build the command", native("build", &["--bins", "--tests"]))?;
    let tests = test_targets(|package| package == SYSTEM)?;
    let tests: Vec<&str> = tests.iter().flat_map(|test| ["--test", test]).collect();
    tally
        .watch("cargo test, system", native("test", &[&["--no-fail-fast"], &tests[..]].concat()))?;
    for (name, program) in install::other_redis_servers()? {
        let mut suite = native("test", &["--no-fail-fast", "--test", "redis"]);
        suite.env("TIDEGATE_REDIS_SERVER", program);
        tally.watch(&format!("cargo test, {name}"), suite)?;
    }
    Ok(())
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
