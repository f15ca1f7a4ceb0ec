//! Helpers that the tests of all backends share.

mod api;
mod document;
mod host;
mod served;
mod trace;
mod until;
pub mod vectors;
mod world;

pub use api::{Api, Reply};
pub use document::{Block, blocks, rows};
pub use host::{HostProcess, command_in};
pub use served::{
    Served, TOKEN, a_cluster, bounded_memory, cluster, kept_memory, memory, redis, watched_memory,
    worker, worker_options,
};
pub use trace::generate;
pub use until::{until, until_async};
pub use world::{Heard, World};

use std::path::{Path, PathBuf};

/// The policies of the parity tests.
pub const POLICIES: &str = include_str!("../parity/policies.toml");

/// A file of this crate.
pub fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The built command. Cargo puts it in the folder above that of the tests.
pub fn command() -> PathBuf {
    let test = std::env::current_exe().expect("a test is a program");
    let folder = test.ancestors().nth(2).expect("a test lies in target/PROFILE/deps");
    folder.join("tidegate")
}
