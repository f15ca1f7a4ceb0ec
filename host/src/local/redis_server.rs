//! A private Redis.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

/// A private Redis that keeps its data in memory and listens on a socket in a temporary folder.
#[derive(Debug)]
pub struct RedisServer {
    server: Child,
    url: String,
    folder: TempDir,
    options: Vec<String>,
}

impl RedisServer {
    /// Starts `redis-server` and waits until it answers.
    ///
    /// # Errors
    /// Returns an error if `redis-server` is not installed or does not start.
    pub fn start() -> Result<Self> {
        Self::start_with([])
    }

    /// Starts `redis-server` with more options, such as `--cluster-enabled yes`.
    ///
    /// # Errors
    /// Returns an error if `redis-server` is not installed or does not start.
    pub fn start_with<const N: usize>(options: [&str; N]) -> Result<Self> {
        let options = options.map(String::from).to_vec();
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
    /// Returns an error if `redis-server` does not start.
    pub fn restart(&mut self) -> Result<()> {
        self.stop();
        self.server = spawn(&self.folder, &self.options)?;
        Ok(())
    }

    /// Stops the server. [`restart`](Self::restart) starts it again.
    pub fn stop(&mut self) {
        let _ = self.server.kill(); // the server may have ended by itself
        let _ = self.server.wait();
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn socket(folder: &TempDir) -> PathBuf {
    folder.path().join("redis.sock")
}

fn spawn(folder: &TempDir, options: &[String]) -> Result<Child> {
    let started = Command::new("redis-server")
        .args(["--port", "0", "--save", "", "--appendonly", "no", "--loglevel", "warning"])
        .arg("--unixsocket")
        .arg(socket(folder))
        .arg("--dir")
        .arg(folder.path())
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn();
    let mut server = match started {
        Err(error) if error.kind() == io::ErrorKind::NotFound => bail!(
            "redis-server is not installed: run `apt-get install redis-server`, \
             or name a running Redis with --redis URL"
        ),
        started => started.context("redis-server")?,
    };
    if let Err(error) = wait_for(&socket(folder), &mut server) {
        let _ = server.kill(); // the error says why Redis did not start
        let _ = server.wait();
        return Err(error);
    }
    Ok(server)
}

/// Redis opens its socket once it is ready to answer.
fn wait_for(socket: &Path, server: &mut Child) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(10);
    while UnixStream::connect(socket).is_err() {
        if let Some(status) = server.try_wait()? {
            bail!("redis-server ended at once: {status}");
        }
        if Instant::now() > deadline {
            bail!("redis-server did not start within 10 s");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
