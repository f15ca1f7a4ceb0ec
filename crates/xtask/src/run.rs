//! Runs programs, and prints each step and its duration.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::Value;

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

/// The folder in which cargo keeps the sources of crates.
pub(crate) fn cargo_home() -> Result<PathBuf> {
    let home = || std::env::home_dir().map(|home| home.join(".cargo"));
    std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(home).context("no home directory")
}

/// What cargo says of the workspace.
pub(crate) fn metadata() -> Result<Value> {
    metadata_of(&mut cargo(&["metadata", "--no-deps", "--format-version", "1"]))
}

fn metadata_of(cargo: &mut Command) -> Result<Value> {
    serde_json::from_slice(&cargo.output()?.stdout).context("cargo metadata")
}

/// The folder into which cargo builds: `target` in the root folder, unless `CARGO_TARGET_DIR` or the configuration of cargo
/// names another.
pub(crate) fn target() -> Result<PathBuf> {
    static TARGET: OnceLock<PathBuf> = OnceLock::new();
    if let Some(target) = TARGET.get() {
        return Ok(target.clone());
    }
    let target = target_of(&metadata()?)?;
    Ok(TARGET.get_or_init(|| target).clone())
}

fn target_of(metadata: &Value) -> Result<PathBuf> {
    let target = metadata["target_directory"].as_str();
    target.map(PathBuf::from).context("cargo metadata names no target directory")
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{cargo, metadata_of, target_of};

    #[test]
    fn the_target_directory_is_the_one_that_cargo_uses() {
        let mut asked = cargo(&["metadata", "--no-deps", "--format-version", "1"]);
        let metadata = metadata_of(asked.env("CARGO_TARGET_DIR", "/elsewhere/target")).unwrap();
        assert_eq!(target_of(&metadata).unwrap(), Path::new("/elsewhere/target"));
    }
}
