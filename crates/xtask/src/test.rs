//! `cargo xtask test`: runs the test suites.

mod circles;
mod suites;
mod trees;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use crate::install;
use crate::run::{command, output};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The suites to run, in this order
    suites: Vec<Suite>,
}

/// The suites, with fast ones first.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Suite {
    /// Formatting and lints
    Lint,
    /// What is published, with the oldest compilers that it promises
    Msrv,
    /// All tests that need only Rust
    Rust,
    /// The core without an operating system, and the sizes of Worker and guest
    Wasm,
    /// The npm package from its packed tarball, in Node and in every other loader, its size, and its API pages
    Npm,
    /// Random operations, stored bytes and policy files, by libFuzzer for a minute
    Fuzz,
    /// Redis, the built Worker in workerd and behind a browser, the commands, and parity of all backends
    System,
}

/// The counts and the closing lines of all runners.
#[derive(Default)]
struct Tally {
    passed: u64,
    failed: u64,
    skipped: u64,
    closing_lines: Vec<String>,
    failures: Vec<String>,
    /// What runners told of failed tests.
    told: Vec<String>,
    /// Whether the runner tells of failed tests now.
    is_telling: bool,
    is_in_backtrace: bool,
}

/// More lines of what runners told of failed tests are not printed again.
const MOST_TOLD: usize = 400;

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let all = Suite::value_variants();
    let suites = if arguments.suites.is_empty() { all } else { &arguments.suites };
    let mut tally = Tally::default();
    let started = Instant::now();
    for (place, suite) in (1..).zip(suites) {
        let name = suite.to_possible_value().map(|value| value.get_name().to_owned());
        let name = name.unwrap_or_default();
        eprintln!("\x1b[1m==> suite {name} ({place} of {})\x1b[0m", suites.len());
        let since = Instant::now();
        // the other suites run even if this one fails
        if let Err(error) = suites::run(*suite, &mut tally) {
            tally.failures.push(format!("{name}: {error:#}"));
        }
        eprintln!("\x1b[1m    suite {name}: {:.1?}\x1b[0m", since.elapsed());
    }
    println!("\nThe closing lines of each runner:");
    for line in &tally.closing_lines {
        println!("  {line}");
    }
    for line in &tally.told {
        println!("{line}"); // again, where it is found
    }
    for failure in &tally.failures {
        println!("FAILED {failure}");
    }
    println!("all suites: {:.0?}", started.elapsed());
    let failed = tally.failed.max(u64::try_from(tally.failures.len())?);
    println!("{} passed, {failed} failed, {} skipped", tally.passed, tally.skipped);
    if failed > 0 {
        bail!("{failed} failed");
    }
    Ok(())
}

impl Tally {
    /// Checks packages with a version of Rust, unless the other suites use that version anyway.
    fn check_with(&mut self, rust: &str, packages: &[&str]) -> Result<()> {
        let in_use = output("rustc", &["--version"]).unwrap_or_default();
        if in_use.starts_with(&format!("rustc {rust}.")) {
            return Ok(());
        }
        install::toolchain(rust)?;
        let mut check = command("rustup", &["run", rust, "cargo", "check", "--quiet", "--locked"]);
        check.args(packages).env("RUSTFLAGS", "--cap-lints=allow"); // an older compiler warns otherwise
        check.env_remove("CARGO").env_remove("RUSTC"); // those of this program are of another toolchain
        self.watch(&format!("cargo check, Rust {rust}"), check)
    }

    /// Runs a runner, prints its output and keeps its closing lines.
    fn watch(&mut self, what: &str, mut runner: Command) -> Result<()> {
        eprintln!("\x1b[1m==> {what}\x1b[0m");
        (self.is_telling, self.is_in_backtrace) = (false, false);
        let mut child = runner.stdout(Stdio::piped()).spawn().with_context(|| what.to_owned())?;
        let output = child.stdout.take().context("no standard output")?;
        for line in BufReader::new(output).lines() {
            let line = line?;
            println!("{line}");
            self.read(what, &line);
        }
        let status = child.wait()?;
        if !status.success() {
            bail!("{what} ended with {status}");
        }
        Ok(())
    }

    fn read(&mut self, what: &str, line: &str) {
        match line {
            "failures:" | "✖ failing tests:" => self.is_telling = true, // cargo test, node --test
            "stack backtrace:" => self.is_in_backtrace = true,
            _ if line.starts_with("note: ") => self.is_in_backtrace = false,
            _ if line.starts_with("test result: ") => self.is_telling = false,
            _ => {}
        }
        // of a backtrace, where this project's own code was
        let is_told = !self.is_in_backtrace || line.trim_start().starts_with("at ./");
        if self.is_telling && is_told && self.told.len() < MOST_TOLD {
            self.told.push(line.to_owned());
        }
        if let Some(counts) = line.strip_prefix("test result: ") {
            // cargo test: "ok. 30 passed; 0 failed; 0 ignored; …"
            let counts = counts.split_once(". ").map_or(counts, |(_, counts)| counts);
            for part in counts.split("; ") {
                match part.split_once(' ') {
                    Some((n, "passed")) => self.passed += n.parse().unwrap_or(0),
                    Some((n, "failed")) => self.failed += n.parse().unwrap_or(0),
                    Some((n, "ignored")) => self.skipped += n.parse().unwrap_or(0),
                    _ => {}
                }
            }
            self.closing_lines.push(format!("{what}: {line}"));
        } else if let Some(count) = line.strip_prefix("# ").or(line.strip_prefix("ℹ ")) {
            // node --test: "# pass 12", or with "ℹ" on a terminal
            let Some((name, n)) = count.split_once(' ') else { return };
            let n = n.parse().unwrap_or(0);
            match name {
                "pass" => self.passed += n,
                "fail" => self.failed += n,
                "skipped" | "todo" | "cancelled" => self.skipped += n,
                _ => return,
            }
            self.closing_lines.push(format!("{what}: {name} {n}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::run::root;

    #[test]
    fn what_runners_tell_of_failed_tests_is_kept() {
        let cargo = [
            "test a ... FAILED",
            "failures:",
            "---- a stdout ----",
            "why",
            "stack backtrace:",
            "   0: panic_fmt",
            "             at /rustc/core/src/panicking.rs:80:14",
            "   1: ask",
            "             at ./redis/main.rs:75:51",
            "note: Some details are omitted",
            "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out",
            "test b ... ok",
        ];
        let node =
            ["✖ c (3 ms)", "ℹ pass 4", "ℹ fail 1", "✖ failing tests:", "✖ c (3 ms)", "because"];
        let mut tally = Tally::default();
        cargo.iter().chain(&node).for_each(|line| tally.read("runner", line));
        let of_cargo = [
            "failures:",
            "---- a stdout ----",
            "why",
            "             at ./redis/main.rs:75:51",
            "note: Some details are omitted",
        ];
        let of_node = ["✖ failing tests:", "✖ c (3 ms)", "because"];
        assert_eq!(tally.told, [&of_cargo[..], &of_node].concat());
        assert_eq!([tally.passed, tally.failed], [6, 2]);
    }

    #[test]
    fn the_workflow_runs_every_suite() {
        let file = root().join(".github/workflows/test.yml");
        let suites = Suite::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        let suites: Vec<String> = suites.map(|suite| suite.get_name().to_owned()).collect();
        let expected = format!("suite: [{}]", suites.join(", "));
        let text = fs::read_to_string(file).unwrap();
        assert!(text.contains(&expected), "expected {expected}");
    }
}
