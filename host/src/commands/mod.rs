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
use tidegate::store::{Redis, RedisOptions, Store};

/// The policy file, as every command takes it.
#[derive(clap::Args)]
pub(crate) struct PolicyFile {
    /// The policy file, TOML or JSON
    #[arg(long, value_name = "FILE", default_value = "policies.toml")]
    policies: PathBuf,
}

impl PolicyFile {
    pub(crate) const fn path(&self) -> &PathBuf {
        &self.policies
    }

    /// Its text too: a Worker is given that.
    pub(crate) fn read(&self) -> Result<(Policies, String)> {
        let file = self.policies.display();
        let text = fs::read_to_string(&self.policies).with_context(|| {
            format!("{file}: the policy file cannot be read (another one: --policies FILE)")
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
        format!("--redis {url}: allowed is an address such as redis://127.0.0.1:6379")
    })?;
    Ok(Store::Redis(Box::new(redis)))
}

/// A line on standard output. Where that is full the command ends with an error, where it is closed
/// with [`OutputClosed`].
pub(crate) fn say(line: &str) -> Result<()> {
    match writeln!(io::stdout().lock(), "{line}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(OutputClosed.into()),
        written => written.context("standard output"),
    }
}

/// Nobody reads what the command would say.
#[derive(Debug, thiserror::Error)]
#[error("standard output is closed")]
pub(crate) struct OutputClosed;

/// A URL as it may be shown: without what stands before the `@`.
pub(crate) fn without_password(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://…@{host}"),
        _ => url.to_owned(),
    }
}

/// A bar on standard error; none where that is no terminal.
pub(crate) fn progress(what: &Path, template: &str) -> Result<ProgressBar> {
    let bar = ProgressBar::new(0).with_style(ProgressStyle::with_template(template)?);
    bar.set_message(what.file_name().unwrap_or_default().to_string_lossy().into_owned());
    Ok(bar)
}
