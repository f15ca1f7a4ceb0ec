//! Breaks `core`, `gate` and `tier` in one place after another, and says whether the world notices:
//!
//! ```sh
//! cargo run -p tidegate-sim --example mutations            # all, about an hour
//! cargo run -p tidegate-sim --example mutations -- found   # those with this word, or one of several, in their name or file
//! ```
//!
//! Each mutation is written into the source, `cargo test -p tidegate-sim --test world` runs, and the source is
//! restored, also after an error, but not if the command is killed: see `git diff`. The text of a mutation must be
//! in its file exactly once: edit the list with the code. The command needs `timeout` of GNU coreutils.

#![expect(clippy::print_stdout, reason = "it is a command")]

mod ahead;
mod authority;
mod nodes;
mod outage;
mod reservations;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::{env, fs};

use anyhow::{Context, Result, ensure};

/// A name, a file, a text in it, and what to write instead.
type Mutation = (&'static str, &'static str, &'static str, &'static str);

/// How long the tests may take. A mutation that makes them hang is noticed too.
const DEADLINE_SECONDS: &str = "240";

/// The exit code of `timeout`.
const TIMED_OUT: i32 = 124;

fn main() -> Result<ExitCode> {
    let words: Vec<String> = env::args().skip(1).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut missed = 0;
    ensure!(noticed(&root)?.is_none(), "the tests fail without a mutation");
    let has = |text: &str| words.iter().any(|word| text.contains(word));
    let is_meant = |(name, file, ..): &&Mutation| words.is_empty() || has(name) || has(file);
    for (name, file, from, to) in mutations().filter(is_meant) {
        let path = root.join(file);
        let text = text_with(&path, from).context(*name)?;
        let source = Source { path, text };
        fs::write(&source.path, source.text.replace(from, to))?;
        let noticed = noticed(&root)?;
        missed += u32::from(noticed.is_none());
        println!("{name}: {}", noticed.as_deref().unwrap_or("MISSED"));
    }
    Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn mutations() -> impl Iterator<Item = &'static Mutation> {
    let plain = nodes::MUTATIONS.iter().chain(&authority::MUTATIONS).chain(&ahead::MUTATIONS);
    plain.chain(&reservations::MUTATIONS).chain(&outage::MUTATIONS)
}

#[test]
fn the_text_of_each_mutation_is_in_its_file_once() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let check = |(name, file, from, _): &Mutation| {
        text_with(&root.join(file), from).err().map(|error| format!("{name}: {error:#}"))
    };
    let wrong: Vec<_> = mutations().filter_map(check).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The text of a file that must have `from` once. What is missing, or there twice, would break something else than the
/// mutation's name says.
fn text_with(path: &Path, from: &str) -> Result<String> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let found = text.matches(from).count();
    ensure!(found == 1, "{}: expected once, found {found} times: {from}", path.display());
    Ok(text)
}

/// By what the tests fail; `None` if they pass. It is an error if the mutation does not compile.
fn noticed(root: &Path) -> Result<Option<String>> {
    let tests = |arguments: &[&str], output: Stdio| {
        let cargo = ["cargo", "test", "-q", "-p", "tidegate-sim", "--test", "world"];
        let mut command = Command::new("timeout");
        command.arg(DEADLINE_SECONDS).args(cargo).args(arguments).current_dir(root);
        command.stdout(output).stderr(Stdio::null()).status()
    };
    ensure!(tests(&["--no-run"], Stdio::null())?.success(), "the mutation does not compile");
    let log = root.join("target/mutations.log");
    let status = tests(&["every_invariant"], fs::File::create(&log)?.into())?;
    Ok(match status.code() {
        Some(0) => None,
        Some(TIMED_OUT) => Some("the tests hang".into()),
        _ => Some(first_seen(&log)),
    })
}

/// The first violation in the output of the tests, shortened.
fn first_seen(log: &Path) -> String {
    let output = fs::read_to_string(log).unwrap_or_default();
    let violation = output.lines().find(|line| line.starts_with("seed ") || line.contains(".txt"));
    violation.unwrap_or("the tests fail").chars().take(100).collect()
}

/// A source file, which is restored in the end.
struct Source {
    path: PathBuf,
    text: String,
}

impl Drop for Source {
    fn drop(&mut self) {
        if let Err(error) = fs::write(&self.path, &self.text) {
            println!("{}: not restored: {error}", self.path.display());
        }
    }
}
