//! What a person or CI does with this workspace, by one command each.

mod bench;
mod build;
mod fuzz;
mod install;
mod run;
mod start;
mod test;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Build, run and test Tidegate; what is missing on the machine is installed
#[derive(Parser)]
#[command(
    bin_name = "cargo xtask",
    max_term_width = 100,
    after_help = "\
Examples:
  cargo xtask start              the Worker on this machine, with a curl line to try
  cargo xtask test               every test: Rust, wasm, Redis, npm, the built Worker in workerd
  cargo xtask test rust npm      two of its suites
  cargo xtask bench decide       benchmarks beside their baselines"
)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Start the Worker on this machine with the policies of policies.toml
    Start(start::Arguments),
    /// Run the tests; without a suite all of them
    Test(test::Arguments),
    /// Build the Worker, the guest or the npm package; without a name all of them
    Build(build::Arguments),
    /// Build and pack the npm package
    Npm,
    /// Run the benchmarks; without a name all of them
    Bench(bench::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().task {
        Task::Start(arguments) => start::run(&arguments),
        Task::Test(arguments) => test::run(&arguments),
        Task::Build(arguments) => build::run(&arguments),
        Task::Npm => build::pack(),
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

/// The workspace's folder.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap_or_default()
}
