//! The command `tidegate`.

mod commands;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use commands::config::Given;
use mimalloc::MiMalloc;

/// A server allocates for each request, mostly in one thread and for a short time.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Exact rate limiting: serve decisions, check a request, replay a trace, compare all backends.
#[derive(Parser)]
#[command(
    version,
    max_term_width = 100,
    after_help = "\
Exit codes:
  0  success; with `check --key`, the request is allowed
  1  the request is refused, or the backends differ
  2  an error

Examples:
  tidegate check                                   validate policies.toml and describe it
  tidegate check --policy login --key user:42      decide on one request in a fresh store
  tidegate serve --redis redis://127.0.0.1:6379    serve the decision API with states in Redis
  tidegate config --config tidegate.toml           show which options of the server hold
  tidegate replay access.log.gz --policy api       show how a policy would have treated a log
  tidegate parity access.log.gz --policy api       compare four backends line by line

`replay` and `parity` are in a build with the feature `replay`."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(Box<commands::serve::Arguments>),
    Config(Box<commands::config::Arguments>),
    Check(commands::check::Arguments),
    #[cfg(feature = "replay")]
    Replay(commands::replay::Arguments),
    #[cfg(feature = "replay")]
    Parity(commands::parity::Arguments),
    #[cfg(not(feature = "replay"))]
    Replay(commands::without_replays::Arguments),
    #[cfg(not(feature = "replay"))]
    Parity(commands::without_replays::Arguments),
}

#[tokio::main]
async fn main() -> ExitCode {
    let command = command();
    let given = Given::new(&command, std::env::args_os().collect());
    let format = given.log_format();
    let result = run(&command, given).await;
    result.unwrap_or_else(|error| {
        if error.is::<commands::OutputClosed>() {
            return ExitCode::from(141); // the code that a shell reports for a process that SIGPIPE ended
        }
        commands::log::fatal(format, &error);
        #[cfg(feature = "replay")]
        if let Some(interrupted) = error.downcast_ref::<commands::traces::Interrupted>() {
            return ExitCode::from(interrupted.code);
        }
        ExitCode::from(2)
    })
}

async fn run(command: &clap::Command, given: Given) -> anyhow::Result<ExitCode> {
    let read = commands::config::read(command.clone(), given)?;
    match Arguments::from_arg_matches(&read.matches)?.command {
        Command::Serve(arguments) => {
            let warnings = commands::config::unknown_variables(command);
            commands::serve::run(*arguments, &warnings).await
        }
        Command::Config(arguments) => commands::config::run(&arguments, &read, command).await,
        Command::Check(arguments) => commands::check::run(arguments).await,
        #[cfg(feature = "replay")]
        Command::Replay(arguments) => commands::replay::run(arguments).await,
        #[cfg(feature = "replay")]
        Command::Parity(arguments) => commands::parity::run(arguments).await,
        #[cfg(not(feature = "replay"))]
        Command::Replay(_) => commands::without_replays::run("replay"),
        #[cfg(not(feature = "replay"))]
        Command::Parity(_) => commands::without_replays::run("parity"),
    }
}

fn command() -> clap::Command {
    commands::config::with_environment(Arguments::command())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        super::command().debug_assert();
    }
}
