//! Runs the runners of the suites, and keeps what they count and what they tell of failed tests.

use std::io::{self, BufRead, BufReader};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::install;
use crate::run::{command, output};

/// The counts and the closing lines of all runners.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) skipped: u64,
    /// Tests that passed in a later try.
    flaky: u64,
    pub(super) closing_lines: Vec<String>,
    pub(super) failures: Vec<String>,
    /// What runners told of failed tests.
    told: Vec<String>,
    /// Whether the runner tells of failed tests now.
    is_telling: bool,
    is_in_backtrace: bool,
}

/// More lines of what runners told of failed tests are not printed again.
const MOST_TOLD: usize = 400;

impl Tally {
    /// Checks packages with a version of Rust, unless the other suites use that version anyway.
    pub(super) fn check_with(&mut self, rust: &str, packages: &[&str]) -> Result<()> {
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
    pub(super) fn watch(&mut self, what: &str, mut runner: Command) -> Result<()> {
        eprintln!("\x1b[1m==> {what}\x1b[0m");
        (self.is_telling, self.is_in_backtrace) = (false, false);
        let (output, input) = io::pipe()?; // nextest counts on standard error, the other runners on standard output
        let mut child = runner
            .stdout(input.try_clone()?)
            .stderr(input)
            .spawn()
            .with_context(|| what.to_owned())?;
        drop(runner); // it holds the input of the pipe, which must end with the child
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

    /// Prints what has been kept, and returns the number of failures.
    pub(super) fn print(&self) -> Result<u64> {
        println!("\nThe closing lines of each runner:");
        for line in &self.closing_lines {
            println!("  {line}");
        }
        for line in &self.told {
            println!("{line}"); // again, where it is found
        }
        for failure in &self.failures {
            println!("FAILED {failure}");
        }
        if self.flaky > 0 {
            println!("{} flaky: they failed, and passed when they were tried again", self.flaky);
        }
        Ok(self.failed.max(u64::try_from(self.failures.len())?))
    }

    fn read(&mut self, what: &str, line: &str) {
        match line {
            "failures:" | "✖ failing tests:" => self.is_telling = true, // cargo test, node --test
            _ if line.starts_with("test result: ") || line.starts_with("────") => {
                self.is_telling = false;
            }
            _ if line.starts_with("FLAKY ") => self.is_telling = true, // tests/npm/run.mjs
            _ => {}
        }
        match line.trim() {
            "stack backtrace:" => self.is_in_backtrace = true,
            text if text.starts_with("note: ") => self.is_in_backtrace = false,
            _ => {}
        }
        if let Some(status) = status_of_nextest(line) {
            self.is_telling = !["PASS", "SLOW", "SETUP"].iter().any(|calm| status.ends_with(calm));
            self.is_in_backtrace = false;
        }
        // of a backtrace, where this project's own code was
        let is_told = !self.is_in_backtrace || line.trim_start().starts_with("at ./");
        if self.is_telling && is_told && self.told.len() < MOST_TOLD {
            self.told.push(line.to_owned());
        }
        self.count(what, line);
    }

    /// Adds the counts of a closing line.
    fn count(&mut self, what: &str, line: &str) {
        if let Some((_, counts)) =
            line.split_once(" tests run: ").or(line.split_once(" test run: "))
        {
            // nextest: "     Summary [   4.5s] 30 tests run: 28 passed (1 slow, 1 flaky), 1 failed, 1 timed out, 2 skipped".
            // The last are those that another layer or suite runs
            for part in counts.split([',', '(', ')']) {
                match part.trim().split_once(' ') {
                    Some((n, "passed")) => self.passed += n.parse().unwrap_or(0),
                    Some((n, "flaky")) => self.flaky += n.parse().unwrap_or(0),
                    Some((n, "failed" | "timed out" | "exec failed")) => {
                        self.failed += n.parse().unwrap_or(0);
                    }
                    _ => {}
                }
            }
        } else if let Some(counts) = line.strip_prefix("test result: ") {
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
        } else if let Some(count) = line.strip_prefix("# ").or(line.strip_prefix("ℹ ")) {
            // node --test: "# pass 12", or with "ℹ" on a terminal
            let Some((name, n)) = count.split_once(' ') else { return };
            let n = n.parse().unwrap_or(0);
            match name {
                "pass" => self.passed += n,
                "fail" => self.failed += n,
                "flaky" => self.flaky += n,
                "skipped" | "todo" | "cancelled" => self.skipped += n,
                _ => return,
            }
        } else {
            return;
        }
        self.closing_lines.push(format!("{what}: {}", line.trim()));
    }
}

/// What nextest says of a test, such as `FAIL` or `TRY 1 TIMEOUT`; `None` if the line is no status.
fn status_of_nextest(line: &str) -> Option<&str> {
    let (status, _) = line.split_once(" [")?;
    let status = status.trim_start();
    let is_status = |char: char| matches!(char, 'A'..='Z' | '0'..='9' | ' ' | '/' | '-');
    let is_indented = line.starts_with("  ") && !line.starts_with("             ");
    (is_indented && !status.is_empty() && status.chars().all(is_status)).then_some(status)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn what_nextest_tells_of_a_failed_try_is_kept_and_a_flaky_test_is_counted() {
        let lines = [
            "        SLOW [> 60.000s] (───) tests a",
            "  TRY 1 FAIL [   0.611s] (───) tests b",
            "  stderr ───",
            "",
            "    thread 'b' panicked",
            "    stack backtrace:",
            "       0: begin_unwind",
            "                 at /rustc/panicking.rs:689:5",
            "                 at ./src/lib.rs:11:43",
            "    note: Some details are omitted",
            "  TRY 2 PASS [   0.027s] (2/3) tests b",
            "the next test",
            "────────────",
            "     Summary [   4.586s] 4 tests run: 3 passed (1 slow, 1 flaky), 1 timed out, 2 skipped",
            "   FLAKY 2/3 [   0.027s] (2/3) tests b",
        ];
        let mut tally = Tally::default();
        lines.iter().for_each(|line| tally.read("runner", line));
        let of_try = [&lines[1..5], &lines[8..10], &lines[14..]].concat();
        assert_eq!(tally.told, of_try);
        assert_eq!([tally.passed, tally.failed, tally.flaky, tally.skipped], [3, 1, 1, 0]);
    }
}
