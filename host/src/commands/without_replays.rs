//! `tidegate replay` and `tidegate parity` in a build without them.

use std::process::ExitCode;

use anyhow::{Result, bail};

/// Not in this build: it was made without the feature `replay`
#[derive(clap::Args)]
#[command(
    after_help = "Example, in a clone of the repository: cargo build -p tidegate --features replay"
)]
pub(crate) struct Arguments {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    _all: Vec<String>,
}

pub(crate) fn run(command: &str) -> Result<ExitCode> {
    bail!(
        "`tidegate {command}`: expected a build with the feature `replay`, found one without it; \
         `cargo build -p tidegate --features replay` makes one"
    )
}
