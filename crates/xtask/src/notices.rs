//! `cargo xtask notices`: writes the licences of all code that is compiled into what is released, by cargo-about.

use std::fs;
use std::path::PathBuf;

use anyhow::{Result, ensure};

use crate::install;
use crate::run::{command, root, step, target};

const FILE: &str = "THIRD-PARTY.txt";

pub(crate) fn run() -> Result<()> {
    fs::copy(generated()?, root().join(FILE))?;
    Ok(())
}

/// Fails if the file is not what the command would write.
pub(crate) fn check() -> Result<()> {
    let (expected, found) = (fs::read(generated()?)?, fs::read(root().join(FILE))?);
    ensure!(
        expected == found,
        "{FILE}: expected the licences of Cargo.lock; run `cargo xtask notices`"
    );
    Ok(())
}

fn generated() -> Result<PathBuf> {
    let file = target()?.join(FILE);
    let program = install::cargo_about()?;
    let options = [
        "generate",
        "--workspace",
        "--all-features",
        "--offline",
        "--locked",
        "--fail",
        "about.hbs",
        "-o",
    ];
    let mut about = command(&program.to_string_lossy(), &options);
    step("collect the licences", about.arg(&file))?;
    Ok(file)
}
