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
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
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
    let redis =
        Redis::new(url, options).with_context(|| format!("--redis {}", without_password(url)))?;
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

/// A URL to show to people. `…` replaces the parts that may contain a password: the part before the last `@`, the query, and
/// what is no list of hosts, because an `@` may have been forgotten.
pub(crate) fn without_password(url: &str) -> String {
    let (place, query) = url.split_at(url.find(['?', '#']).unwrap_or(url.len()));
    if query.contains('@') {
        return "…".to_owned(); // the `?` or the `@` may belong to the password
    }
    let query = query.get(..1).map_or(String::new(), |mark| format!("{mark}…"));
    let is_scheme = |text: &str| text.bytes().all(|it| it.is_ascii_alphabetic() || it == b'+');
    let (scheme, rest) = match place.split_once("://") {
        Some((scheme, rest)) if is_scheme(scheme) => (format!("{scheme}://"), rest),
        _ => (String::new(), place),
    };
    let (user, hosts) = rest.rsplit_once('@').map_or(("", rest), |(_, hosts)| ("…@", hosts));
    match hosts.split(',').all(is_host) {
        true => format!("{scheme}{user}{hosts}{query}"),
        false => format!("{scheme}…"),
    }
}

/// Whether this may be `HOST`, `HOST:PORT` or, for a socket, nothing, and a path.
fn is_host(text: &str) -> bool {
    let (server, path) = text.split_once('/').unwrap_or((text, ""));
    let (host, port) = match server.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (server, "0"),
    };
    let is_name = !host.contains(':') || host.starts_with('['); // an address of IPv6 has brackets
    is_name && port.parse::<u16>().is_ok() && !path.contains(':')
}

#[cfg(test)]
mod tests {
    use super::without_password;

    #[test]
    fn a_url_is_shown_without_its_password() {
        for (url, shown) in [
            ("redis://127.0.0.1:6379/2", "redis://127.0.0.1:6379/2"),
            ("redis+unix:///run/redis.sock", "redis+unix:///run/redis.sock"),
            ("nonsense", "nonsense"),
            ("", ""),
            ("redis://user:secret@h:6379/2", "redis://…@h:6379/2"),
            ("redis://user:sec@ret@h", "redis://…@h"),
            ("redis://user:sec/ret@h", "redis://…@h"),
            ("redis+unix:///run/redis.sock?db=2&pass=secret", "redis+unix:///run/redis.sock?…"),
            ("unix:///run/redis.sock?pass=sec@ret", "…"),
            ("redis://h?password=secret", "redis://h?…"),
            ("redis://user:secret@h?password=secret", "redis://…@h?…"),
            ("redis://h#secret", "redis://h#…"),
            ("redis://user:sec?ret@h", "…"),
            ("secret@h:6379", "…@h:6379"),
            ("redis:secret@h:6379", "…@h:6379"),
            ("secret@x://h", "…"),
            ("redis://secret:127.0.0.1:17010", "redis://…"),
            ("redis://:secret:127.0.0.1:17010/2?protocol=3", "redis://…"),
            ("redis://sec/ret:127.0.0.1:17010", "redis://…"),
            ("redis:secret:h:6379", "…"),
            ("secret:h:6379", "…"),
            ("rediss+cluster://secret:a:1,b:2", "rediss+cluster://…"),
            ("redis+cluster://user:secret@a:1,user:secret:b:2", "redis+cluster://…"),
            (
                "redis+cluster://user:secret@a:1,[::1]:2,[::2]",
                "redis+cluster://…@a:1,[::1]:2,[::2]",
            ),
            ("redis+sentinel://secret:a:1,b/mymaster/2", "redis+sentinel://…"),
            ("redis+sentinel://a:1,b/mymaster/2", "redis+sentinel://a:1,b/mymaster/2"),
            ("user:secret://x@h", "…@h"),
        ] {
            assert_eq!(without_password(url), shown, "{url}");
        }
    }
}
