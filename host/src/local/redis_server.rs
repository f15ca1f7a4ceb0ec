//! A private Redis.

use std::env;
use std::ffi::OsString;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::Process;

/// The environment variable that names another program than `redis-server`, such as `valkey-server`.
const PROGRAM: &str = "TIDEGATE_REDIS_SERVER";

/// A private Redis that keeps its data in memory and listens on a socket in a temporary folder. The environment
/// variable `TIDEGATE_REDIS_SERVER` names the program, for instance `valkey-server`.
#[derive(Debug)]
pub struct RedisServer {
    server: Process,
    url: String,
    folder: TempDir,
    options: Vec<String>,
}

impl RedisServer {
    /// Starts the program and waits until it answers.
    ///
    /// # Errors
    /// Returns an error if the program is not installed or does not start.
    pub fn start() -> Result<Self> {
        Self::start_with([])
    }

    /// Starts the program with more options, such as `--cluster-enabled yes`.
    ///
    /// # Errors
    /// Returns an error if the program is not installed or does not start.
    pub fn start_with<'o>(options: impl AsRef<[&'o str]>) -> Result<Self> {
        let options: Vec<_> = options.as_ref().iter().copied().map(String::from).collect();
        let folder = tempfile::Builder::new().prefix("tidegate-redis-").tempdir()?;
        let url = format!("redis+unix://{}", socket(&folder).display());
        Ok(Self { server: spawn(&folder, &options)?, url, folder, options })
    }

    /// The URL of this Redis.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Stops the server and starts an empty one at the same address.
    ///
    /// # Errors
    /// Returns an error if the program does not start.
    pub fn restart(&mut self) -> Result<()> {
        self.stop();
        self.server = spawn(&self.folder, &self.options)?;
        Ok(())
    }

    /// Sends a signal to the server, such as `STOP`.
    ///
    /// # Errors
    /// Returns an error if the server has ended.
    pub fn signal(&self, name: &str) -> Result<()> {
        self.server.signal(name)
    }

    /// Stops the server. [`restart`](Self::restart) starts it again.
    pub fn stop(&mut self) {
        self.server.kill();
    }
}

/// Starts something at a port of 11,000 to 20,999, which this process gets only once. This port, and the one 10,000 higher that a node
/// of a Cluster also needs, are below those that Linux gives to connections: none of them has the port when a server starts again.
///
/// # Errors
/// Returns the last error of `start`, which gets other ports after an error: another process may have the port.
pub fn at_a_port<T>(start: impl Fn(u16) -> Result<T>) -> Result<T> {
    static FIRST: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(()));
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let attempt = || {
        let place = FIRST.wrapping_add(COUNT.fetch_add(1, Ordering::Relaxed)) % 10_000;
        start(11_000 + u16::try_from(place)?)
    };
    (0..5).find_map(|_| attempt().ok()).map_or_else(attempt, Ok)
}

fn socket(folder: &TempDir) -> PathBuf {
    folder.path().join("redis.sock")
}

fn spawn(folder: &TempDir, options: &[String]) -> Result<Process> {
    let program = env::var_os(PROGRAM).unwrap_or_else(|| OsString::from("redis-server"));
    let shown = program.display();
    let mut command = Command::new(&program);
    command
        .args(["--port", "0", "--save", "", "--appendonly", "no", "--loglevel", "warning"])
        .arg("--unixsocket")
        .arg(socket(folder))
        .arg("--dir")
        .arg(folder.path())
        .args(options);
    let mut server = match Process::start(&shown.to_string(), &mut command) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => bail!(
            "{shown} is not installed: run `apt-get install redis-server`, name another program with {PROGRAM}, \
             or name a running Redis with --redis URL"
        ),
        started => started.with_context(|| shown.to_string())?,
    };
    // Redis opens its socket once it is ready to answer
    server.until(|_| UnixStream::connect(socket(folder)).ok())?;
    Ok(server)
}
