//! Runs programs, and prints each step and its duration.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// The root folder of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap_or_default()
}

/// A command that runs in the root folder of the workspace.
pub(crate) fn command(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root());
    command
}

/// A command of the cargo that started this program.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    command(&cargo, arguments)
}

/// Runs a command, with its output on the terminal.
pub(crate) fn step(what: &str, command: &mut Command) -> Result<()> {
    eprintln!("\x1b[1m==> {what}\x1b[0m");
    let started = Instant::now();
    let program = command.get_program().to_string_lossy().into_owned();
    let status = match command.status() {
        Err(error) if error.kind() == ErrorKind::NotFound => bail!("{program} is not installed"),
        status => status.with_context(|| program.clone())?,
    };
    if !status.success() {
        bail!("{what}: {program} ended with {status}");
    }
    eprintln!("\x1b[1m    {what}: done in {:.1?}\x1b[0m", started.elapsed());
    Ok(())
}

/// The trimmed output of a command. `None` if the command cannot be run or fails.
pub(crate) fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = command(program, arguments).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
