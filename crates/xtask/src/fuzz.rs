//! Runs the targets of `tests/fuzz` with libFuzzer.
//!
//! `fuzz/TARGET/corpus` in the target directory keeps the inputs that libFuzzer finds, for the next run. This command
//! runs a target again with an input that breaks it:
//! `cargo +nightly fuzz run --fuzz-dir tests/fuzz --target-dir target/fuzz TARGET INPUT`.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::install;
use crate::run::{command, root, step, target};

/// The targets, which together run for a minute.
pub(crate) const TARGETS: [Target; 4] = [
    Target { name: "operations", seconds: 30, seeds: &[] },
    Target { name: "blob", seconds: 10, seeds: &[] },
    Target { name: "wire", seconds: 10, seeds: &[] },
    Target {
        name: "policy",
        seconds: 10,
        seeds: &["policies.toml", "tests/parity/policies.toml", "tests/fuzz/policies.toml"],
    },
];

/// The number of processes of a target. They share the inputs that they find.
const JOBS: u32 = 2;

/// The seconds that an input may take. One that takes more has found a loop without an end.
const MOST_SECONDS: u32 = 10;

/// The folder of what the targets build and find.
fn output() -> Result<PathBuf> {
    Ok(target()?.join("fuzz"))
}

pub(crate) struct Target {
    name: &'static str,
    seconds: u32,
    /// The inputs to begin with, for a target that random inputs would explore too slowly.
    seeds: &'static [&'static str],
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fuzz {}, {} s", self.name, self.seconds)
    }
}

pub(crate) fn build() -> Result<()> {
    install::toolchain("nightly")?;
    step("build the fuzz targets", &mut cargo_fuzz("build")?)
}

impl Target {
    /// Runs the target for its time, or until an input breaks it. Returns the number of inputs.
    pub(crate) fn run(&self) -> Result<u64> {
        eprintln!("\x1b[1m==> {self}\x1b[0m");
        let folder = output()?.join(self.name);
        let (corpus, logs) = (folder.join("corpus"), folder.join("logs"));
        fs::create_dir_all(&corpus)?;
        fs::create_dir_all(&logs)?;
        for (number, seed) in self.seeds.iter().enumerate() {
            fs::copy(root().join(seed), corpus.join(format!("seed-{number}")))?;
        }
        let mut fuzzer = self.fuzzer(&corpus, &folder)?;
        // libFuzzer writes the output of each job into its current folder
        let output = fuzzer.current_dir(&logs).output().context("cargo-fuzz")?;
        let text = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            eprintln!("{text}");
            bail!("{self}: {}; the input lies in {}", output.status, folder.display());
        }
        let runs = text
            .lines()
            .filter_map(|line| line.strip_prefix("stat::number_of_executed_units:"))
            .map(|count| count.trim().parse::<u64>())
            .sum::<Result<u64, _>>()?;
        ensure!(runs > 0, "{self}: the target ran no input\n{text}");
        Ok(runs)
    }

    fn fuzzer(&self, corpus: &Path, folder: &Path) -> Result<Command> {
        let mut fuzzer = cargo_fuzz("run")?;
        fuzzer
            .arg(self.name)
            .arg(corpus)
            .arg("--")
            .args([format!("-max_total_time={}", self.seconds), format!("-jobs={JOBS}")])
            .arg(format!("-timeout={MOST_SECONDS}"))
            .args([format!("-workers={JOBS}"), "-print_final_stats=1".to_owned()])
            .arg(format!("-artifact_prefix={}/", folder.display()))
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        Ok(fuzzer)
    }
}

fn cargo_fuzz(task: &str) -> Result<Command> {
    let program = install::cargo_fuzz()?.into_os_string();
    let program = program.to_str().context("the path of cargo-fuzz is not UTF-8")?;
    let mut cargo_fuzz = command(program, &[task, "--fuzz-dir"]);
    cargo_fuzz
        .arg(root().join("tests/fuzz"))
        .arg("--target-dir")
        .arg(output()?)
        .env("RUSTUP_TOOLCHAIN", "nightly")
        .env_remove("CARGO") // the cargo of this program belongs to another toolchain
        .env_remove("RUSTC");
    Ok(cargo_fuzz)
}
