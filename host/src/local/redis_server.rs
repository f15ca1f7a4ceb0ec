//! A Redis of one's own.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

/// A Redis of one's own: in memory, on a socket in a temporary folder.
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
    /// If it is not installed, or does not come up.
    pub fn start() -> Result<Self> {
        Self::start_with([])
    }

    /// The same with more options of the command, such as `--cluster-enabled yes`.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with<const N: usize>(options: [&str; N]) -> Result<Self> {
        let options = options.map(String::from).to_vec();
        let folder = tempfile::Builder::new().prefix("tidegate-redis-").tempdir()?;
        let url = format!("redis+unix://{}", socket(&folder).display());
        Ok(Self { server: spawn(&folder, &options)?, url, folder, options })
    }

    /// Where it listens.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Ends it and starts it anew at the same address, empty.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn restart(&mut self) -> Result<()> {
        self.stop();
        self.server = spawn(&self.folder, &self.options)?;
        Ok(())
    }

    /// Ends it; it can be started anew.
    pub fn stop(&mut self) {
        let _ = self.server.kill(); // it may have ended by itself
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
            "redis-server is not installed: `apt-get install redis-server`, \
             or name one with --redis URL"
        ),
        started => started.context("redis-server")?,
    };
    wait_for(&socket(folder), &mut server)?;
    Ok(server)
}

/// Redis makes its socket when it is ready to be asked.
fn wait_for(socket: &Path, server: &mut Child) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(10);
    while UnixStream::connect(socket).is_err() {
        if let Some(status) = server.try_wait()? {
            bail!("redis-server ended at once: {status}");
        }
        if Instant::now() > deadline {
            bail!("redis-server did not come up within 10 s");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
