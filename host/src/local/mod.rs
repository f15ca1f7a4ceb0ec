//! A private Redis and a private workerd, for replays and tests. Each starts on a free address, shares
//! nothing with other processes, and ends when it is dropped.

mod process;
#[cfg(feature = "redis")]
mod redis_cluster;
mod redis_server;
mod worker_files;
mod workerd;

use std::env;
use std::path::{Path, PathBuf};

pub use process::Process;
#[cfg(feature = "redis")]
pub use redis_cluster::RedisCluster;
pub use redis_server::{RedisServer, at_a_port};
pub use workerd::{Workerd, WorkerdOptions};

/// The folder of the workspace: the nearest folder at or above the current one that has `wrangler.toml`
/// and `worker/`, or else the folder in which this program was built.
#[must_use]
pub fn workspace() -> PathBuf {
    let is_workspace =
        |folder: &&Path| folder.join("wrangler.toml").is_file() && folder.join("worker").is_dir();
    let here = env::current_dir().unwrap_or_default();
    let built_in = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    here.ancestors().find(is_workspace).unwrap_or(built_in).to_path_buf()
}

/// The file in which `cargo xtask build` puts the guest: in the target directory in which cargo built this program, or else in
/// that of the workspace.
#[must_use]
pub fn guest_module() -> PathBuf {
    let guest = Path::new("guest/tidegate_guest.wasm");
    // the program lies in TARGET/PROFILE, and a test in TARGET/PROFILE/deps
    let program = env::current_exe().unwrap_or_default();
    let built = program.ancestors().skip(2).take(2).map(|folder| folder.join(guest));
    let here = || workspace().join("target").join(guest);
    built.into_iter().find(|file| file.is_file()).unwrap_or_else(here)
}
