//! One module for each command.

mod calendars;
pub(crate) mod check;
pub(crate) mod config;
pub(crate) mod log;
#[cfg(feature = "otel")]
mod otel;
#[cfg(feature = "replay")]
pub(crate) mod parity;
mod redis_files;
#[cfg(feature = "replay")]
pub(crate) mod replay;
#[cfg(feature = "replay")]
mod report;
pub(crate) mod serve;
#[cfg(feature = "replay")]
pub(crate) mod traces;
mod values;
#[cfg(not(feature = "replay"))]
pub(crate) mod without_replays;

use std::fmt::Display;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use tidegate::file;
use tidegate::gate::Policies;
use tidegate::store::{Redis, RedisOptions, Store};

pub(crate) use self::redis_files::RedisFiles;

/// The option that names the policy file, the same for every command.
#[derive(clap::Args)]
pub(crate) struct PolicyFile {
    /// The policy file, in TOML or JSON
    #[arg(long, value_name = "FILE", default_value = "policies.toml")]
    policies: PathBuf,
}

impl PolicyFile {
    pub(crate) const fn path(&self) -> &PathBuf {
        &self.policies
    }

    /// Reads the policies, and returns the text of the file too, because a Worker needs it.
    pub(crate) fn read(&self) -> Result<(Policies, String)> {
        let shown = self.policies.display();
        let text = file::read(&self.policies).and_then(file::text).with_context(|| {
            format!("{shown}: the policy file cannot be read (--policies FILE names another one)")
        })?;
        let policies = Policies::parse(&text).with_context(|| shown.to_string())?;
        Ok((policies, text))
    }
}

/// A store in memory, or in the Redis at `url`.
pub(crate) fn store(
    policies: &Policies,
    redis: Option<&str>,
    options: RedisOptions,
    max_memory: usize,
) -> Result<Store> {
    let Some(url) = redis else {
        return Store::memory(policies, max_memory).with_context(|| {
            let count = policies.all().len();
            format!("--max-memory {max_memory}, in equal parts for the {count} policies")
        });
    };
    let redis = Redis::new(url, options)
        .with_context(|| format!("--redis {}", Redis::without_password(url)))?;
    Ok(Store::Redis(Arc::new(redis)))
}

/// Writes a warning to standard error. If that fails, the warning is lost and the command goes on.
pub(crate) fn warn(what: impl Display) {
    let _ = writeln!(io::stderr().lock(), "warning: {what}");
}

/// Writes a line to standard output.
///
/// # Errors
/// Returns [`OutputClosed`] if standard output is closed, and another error if the write fails, for example
/// because the disk is full.
pub(crate) fn say(line: &str) -> Result<()> {
    match writeln!(io::stdout().lock(), "{line}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(OutputClosed.into()),
        written => written.context("standard output"),
    }
}

/// Standard output is closed, so nobody reads what the command prints.
#[derive(Debug, thiserror::Error)]
#[error("standard output is closed")]
pub(crate) struct OutputClosed;
