//! The command `tidegate`.

mod commands;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Exact rate limiting: serve decisions, take one, replay a trace, prove that all backends agree.
#[derive(Parser)]
#[command(
    version,
    max_term_width = 100,
    after_help = "\
Exit codes: 0 done (or: the request may pass); 1 refused, or backends differ; 2 an error.

Examples:
  tidegate check                                   validate policies.toml and show it
  tidegate check --policy login --key user:42      take one decision in a fresh store
  tidegate serve --redis redis://127.0.0.1:6379    the decision API, states in Redis
  tidegate replay access.log.gz --policy api       what a policy would have done to a log
  tidegate parity access.log.gz --policy api       the same on four backends, line by line"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(commands::serve::Arguments),
    Check(commands::check::Arguments),
    Replay(commands::replay::Arguments),
    Parity(commands::parity::Arguments),
}

#[tokio::main]
async fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Serve(arguments) => commands::serve::run(arguments).await,
        Command::Check(arguments) => commands::check::run(arguments).await,
        Command::Replay(arguments) => commands::replay::run(arguments).await,
        Command::Parity(arguments) => commands::parity::run(arguments).await,
    };
    result.unwrap_or_else(|error| {
        if error.is::<commands::OutputClosed>() {
            return ExitCode::from(141); // as a shell says of who ends by SIGPIPE
        }
        eprintln!("error: {error:#}");
        ExitCode::from(2)
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        <super::Arguments as clap::CommandFactory>::command().debug_assert();
    }
}
