//! `tidegate replay` and `tidegate parity` in a build without them.

use std::process::ExitCode;

use anyhow::{Result, bail};

/// Not in this build: it was made without the feature `replay`
#[derive(clap::Args)]
#[command(after_help = "Example: cargo install tidegate --features replay")]
pub(crate) struct Arguments {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    _all: Vec<String>,
}

pub(crate) fn run(command: &str) -> Result<ExitCode> {
    bail!(
        "`tidegate {command}`: expected a build with the feature `replay`, found one without it; \
         `cargo install tidegate --features replay` makes one"
    )
}
