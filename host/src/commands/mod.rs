//! One module for each command.

pub(crate) mod check;
mod describe;
pub(crate) mod parity;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod serve;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use tidegate::gate::Policies;
use tidegate::replay::Backend;
use tidegate::serve::warn;
use tidegate::store::{Redis, RedisOptions, Store};

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
        let file = self.policies.display();
        let text = fs::read_to_string(&self.policies).with_context(|| {
            format!("{file}: the policy file cannot be read (--policies FILE names another one)")
        })?;
        let policies = Policies::parse(&text).with_context(|| file.to_string())?;
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
    let redis = Redis::new(url, options).with_context(|| {
        let url = without_password(url);
        format!("--redis: expected an address such as redis://127.0.0.1:6379, found {url}")
    })?;
    Ok(Store::Redis(Box::new(redis)))
}

/// Deletes what a replay has stored, even if the replay failed. If both fail, the replay's error is returned
/// and the other one is a warning.
pub(crate) async fn clean_up<T>(backend: Backend, replayed: Result<T>) -> Result<T> {
    let cleaned = backend.clean_up().await.context("the states of the replay cannot be deleted");
    match (replayed, cleaned) {
        (Err(error), Err(also)) => {
            warn(format!("{also:#}"));
            Err(error)
        }
        (replayed, cleaned) => {
            let replayed = replayed?;
            cleaned.map(|()| replayed)
        }
    }
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

/// A URL to show to people: `…` replaces the user and the password before the `@`.
pub(crate) fn without_password(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://…@{host}"),
        _ => url.to_owned(),
    }
}

/// A progress bar on standard error. It is not drawn if standard error is not a terminal.
pub(crate) fn progress(what: &Path, template: &str) -> Result<ProgressBar> {
    let bar = ProgressBar::new(0).with_style(ProgressStyle::with_template(template)?);
    bar.set_message(what.file_name().unwrap_or_default().to_string_lossy().into_owned());
    Ok(bar)
}
