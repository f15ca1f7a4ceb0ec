//! The commands with which people and CI build, run and test this workspace.

mod bench;
mod build;
mod docs;
mod fuzz;
mod install;
mod notices;
mod release;
mod run;
mod sizes;
mod start;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Build, run and test Tidegate, and install missing tools
#[derive(Parser)]
#[command(
    bin_name = "cargo xtask",
    max_term_width = 100,
    after_help = "\
Examples:
  cargo xtask start              start the Worker on this machine and print a curl line to try
  cargo xtask test fast          formatting, lints and unit tests: what to run while you write
  cargo xtask test               what a change must pass: Rust, wasm, Redis, npm, the Worker in workerd
  cargo xtask test everything    all tests: other servers, feature sets, process faults, fuzzing
  cargo xtask test rust npm      two suites of what a change must pass
  cargo xtask bench decide       run the benchmark decide and its baselines
  cargo xtask bench redis        run the Redis store beside plain commands of Redis
  cargo xtask release --dry-run  try a release without publishing"
)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Start the Worker on this machine with the policies of policies.toml
    Start(start::Arguments),
    /// Run what a change must pass, `fast` or `everything`, or the named suites
    Test(test::Arguments),
    /// Build the named artifacts (Worker, guest, npm package), or all of them
    Build(build::Arguments),
    /// Build and pack the npm package
    Npm,
    /// Make the API pages of the npm package, in target/docs/npm
    Docs,
    /// Write where the bytes of the npm package are into docs/sizes.md
    Sizes,
    /// Write the licences of all code that is compiled in into THIRD-PARTY.txt
    Notices,
    /// Try a release: pack, build and check all that is published
    Release(release::Arguments),
    /// Run the benchmarks whose names contain a text, or all of them
    Bench(bench::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().task {
        Task::Start(arguments) => start::run(&arguments),
        Task::Test(arguments) => test::run(&arguments),
        Task::Build(arguments) => build::run(&arguments),
        Task::Npm => build::pack().map(drop),
        Task::Docs => docs::run(),
        Task::Sizes => sizes::run(),
        Task::Notices => notices::run(),
        Task::Release(arguments) => release::run(&arguments),
        Task::Bench(arguments) => bench::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nerror: {error:#}");
            ExitCode::from(2)
        }
    }
}
