//! What the server checks before it listens. `tidegate config` checks the same.

use std::fs::{File, TryLockError};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tidegate::gate::{Micros, Policies};
use tidegate::http::{Access, Tokens};
use tidegate::serve::{Files, Tls, accepts};
use tidegate::store::{RedisOptions, Store};
use tokio::net::lookup_host;
use tracing::warn;

use super::super::{PolicyFile, store};
use super::Arguments;

/// What a server needs but its connections.
pub(in super::super) struct Prepared {
    pub(super) policies: Policies,
    pub(super) files: Files,
    pub(super) tls: Option<Tls>,
    /// Each `--listen` with its addresses, of which the server takes the first one that it can have.
    pub(super) addresses: Vec<(String, Vec<SocketAddr>)>,
    pub(super) access: Access,
    pub(super) store: Store,
    #[cfg(feature = "otel")]
    pub(super) spans: Option<opentelemetry_otlp::SpanExporter>,
}

/// Reads all files and checks all options.
///
/// # Errors
/// Returns the first fault of the options, or of a file that they name.
pub(in super::super) async fn prepare(arguments: &Arguments) -> Result<Prepared> {
    let (policies, files) = files(&arguments.policies, arguments.revisions())?;
    let tls = arguments.tls_cert.clone().zip(arguments.tls_key.clone());
    let tls = tls.map(|(certificate, key)| Tls::read(certificate, key)).transpose();
    let tls = tls.context("--tls-cert, --tls-key")?;
    let mut addresses = Vec::new();
    for listen in &arguments.listen {
        addresses.push((listen.clone(), resolve(listen).await?));
    }
    let access = access(arguments, &policies, &addresses)?;
    let options = RedisOptions {
        deadline: Duration::from_millis(arguments.redis_deadline),
        ttl_margin: Micros(arguments.redis_max_skew.saturating_mul(1_000)),
        tls: arguments.redis_files.clone().tls(),
        ..RedisOptions::default()
    };
    let store = store(&policies, arguments.redis.as_deref(), options, arguments.max_memory.0)?;
    Ok(Prepared {
        policies,
        files,
        tls,
        addresses,
        access,
        store,
        #[cfg(feature = "otel")]
        spans: super::super::otel::exporter()?,
    })
}

/// Reads the policy file and the revisions of it. Returns the policies in force.
fn files(file: &PolicyFile, kept_in: PathBuf) -> Result<(Policies, Files)> {
    let (_, text) = file.read()?;
    let revisions = kept_in.display().to_string();
    let mut files = Files::new(text.clone()).kept_in(kept_in).with_context(|| revisions.clone())?;
    if file.path().is_file() {
        files = files.read_from(file.path().clone()); // a pipe cannot be read again
    }
    let is_own = files.in_force() == text;
    let shown = if is_own { file.path().display().to_string() } else { revisions };
    let policies = Policies::parse(files.in_force()).with_context(|| shown.clone())?;
    if let Err(reason) = accepts(&policies) {
        bail!("{shown}: {reason}");
    }
    Ok((policies, files))
}

async fn resolve(listen: &str) -> Result<Vec<SocketAddr>> {
    let expected = || {
        format!("--listen {listen}: expected an address or a name, and a port, as localhost:8080")
    };
    let addresses: Vec<_> = lookup_host(listen).await.with_context(expected)?.collect();
    if addresses.is_empty() {
        bail!("{}", expected());
    }
    Ok(addresses)
}

fn access(
    arguments: &Arguments,
    policies: &Policies,
    addresses: &[(String, Vec<SocketAddr>)],
) -> Result<Access> {
    let decisions = arguments.token.clone();
    let tokens = Tokens { decisions, administration: arguments.admin_token.clone() };
    let access = Access::new(policies, tokens)?;
    if !access.is_shut() {
        return Ok(access);
    }
    let is_reached =
        |(_, own): &&(String, Vec<SocketAddr>)| own.iter().any(|own| !own.ip().is_loopback());
    match addresses.iter().find(is_reached) {
        None => Ok(Access::OPEN), // only this machine can reach the addresses
        Some((listen, _)) => bail!(
            "--listen {listen}: other machines can reach this address, and no token is configured: set \
             TIDEGATE_TOKEN, or auth = \"none\" in the policy file"
        ),
    }
}

/// Keeps other servers from these revisions until the file is dropped or the process ends: of two servers, the later change would
/// overwrite the earlier one. The file of the revisions is replaced with each change, so a file beside it is locked.
pub(super) fn lock(revisions: &Path) -> Result<Option<File>> {
    let path = beside(revisions, ".lock");
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    match file.and_then(|file| match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }) {
        Ok(Some(file)) => Ok(Some(file)),
        Ok(None) => bail!(
            "{}: another server keeps its revisions in this file; stop it, or name another file with --revisions",
            revisions.display()
        ),
        Err(error) => {
            // such as in a folder that cannot be written, where no change can be stored either
            warn!("{}: no lock: {error}; start no other server on these revisions", path.display());
            Ok(None)
        }
    }
}

/// The path with an ending after its name.
pub(super) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(ending);
    path.into()
}
