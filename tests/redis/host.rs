//! A process of `tidegate serve` on a Redis, with its log.

use std::fs;
use std::path::Path;

use tempfile::TempDir;
use tidegate_tests::{HostProcess, Reply, command_in, until};

const POLICIES: &str = "
[policies.closed]
limits = [{ algorithm = 'fixed_window', limit = 1000000, period = '365d' }]
[policies.open]
limits = [{ algorithm = 'fixed_window', limit = 1000000, period = '365d' }]
on_error = 'open'
";

pub struct Host {
    process: HostProcess,
    _folder: TempDir,
}

impl Host {
    pub fn start(arguments: &[&str]) -> Self {
        let folder = folder();
        Self { process: HostProcess::start(folder.path(), arguments), _folder: folder }
    }

    pub fn log(&self) -> String {
        self.process.log()
    }

    /// The answers of the policies `closed` and `open`.
    fn check(&self) -> [Reply; 2] {
        ["closed", "open"].map(|policy| self.process.api.check(policy, "k", 1, None))
    }

    pub fn decides(&self) -> bool {
        self.check().iter().all(|reply| reply.json().get("degraded").is_none())
    }

    /// Asks until Redis decides.
    pub fn decides_soon(&self) {
        until("Redis decides", || self.decides());
    }

    #[track_caller]
    pub fn on_error_decides(&self) {
        let [closed, open] = self.check();
        for (reply, allowed) in [(&closed, false), (&open, true)] {
            assert_eq!(reply.get("allowed"), allowed, "{reply:?}");
            assert_eq!(reply.get("degraded"), "the store is unavailable", "{reply:?}");
        }
    }
}

/// Runs a command, and returns its exit code and what it wrote.
pub fn run(arguments: &[&str], environment: &[(&str, &Path)]) -> (i32, String) {
    let folder = folder();
    let output = command_in(folder.path())
        .args(arguments)
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    let written = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8_lossy(&written).into_owned())
}

fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("policies.toml"), POLICIES).unwrap();
    folder
}
