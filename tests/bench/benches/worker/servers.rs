//! The built Worker and its peer, each in a workerd of its own.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use tempfile::TempDir;
use tidegate::local::{Workerd, WorkerdOptions, workspace};

use crate::load::CF_HEADER;

const PEER: &str = include_str!("peer.js");
const LIMITER: &str = include_str!("limiter.js");

/// Without a limit that is ever reached, so that every request is granted, but for `full`.
const POLICIES: &str = r#"auth = "none"
[policies.strict]
limits = [{ algorithm = "token_bucket", capacity = 1_000_000, rate = "10/s" }]

[policies.alone]
share_calls = false
limits = [{ algorithm = "token_bucket", capacity = 1_000_000, rate = "10/s" }]

[policies.sharded]
placement = "shard:16"
limits = [{ algorithm = "token_bucket", capacity = 1_000_000, rate = "10/s" }]

[policies.ahead]
persist_ahead = { most = 100, time = "1s" }
limits = [{ algorithm = "token_bucket", capacity = 1_000_000, rate = "10/s" }]

[policies.one_shard]
placement = "shard:1"
limits = [{ algorithm = "token_bucket", capacity = 1_000_000, rate = "10/s" }]

[policies.one_shard_ahead]
placement = "shard:1"
persist_ahead = { most = 100, time = "1s" }
limits = [{ algorithm = "token_bucket", capacity = 1_000_000, rate = "10/s" }]

[policies.reserving]
reservations = { most = 100, remember = "1s" }
limits = [{ algorithm = "token_bucket", capacity = 1_000_000, rate = "10/s" }]

[policies.full]
remember = "1h"
limits = [{ algorithm = "fixed_window", limit = 1, period = "30d" }]

[policies.lent]
local = { most = 1_000, time = "1s" }
limits = [{ algorithm = "token_bucket", capacity = 1_000_000, rate = "1000000/s" }]
"#;

/// A folder in memory if the machine has one: the disk is not what is measured.
fn folder() -> Result<TempDir> {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    Ok(tempfile::Builder::new().prefix("tidegate-bench-").tempdir_in(parent)?)
}

/// The Worker, and the folder of its storage.
pub(crate) fn worker() -> Result<(Workerd, TempDir)> {
    let storage = folder()?;
    let options = WorkerdOptions {
        policies: POLICIES.to_owned(),
        storage: Some(storage.path().to_owned()),
        cf_header: Some(CF_HEADER.to_owned()),
        ..WorkerdOptions::default()
    };
    Ok((Workerd::start(&options)?, storage))
}

pub(crate) fn peer() -> Result<Workerd> {
    let folder = folder()?;
    let storage = folder.path().join("storage");
    fs::create_dir_all(&storage)?;
    fs::write(folder.path().join("peer.js"), PEER).context("peer.js")?;
    let configuration = format!(
        r#"using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "main", worker = .peer),
    (name = "disk", disk = (path = {storage:?}, writable = true)) ],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (cfBlobHeader = "{CF_HEADER}"), service = "main")] );
const peer :Workerd.Worker = (
  modules = [(name = "peer.js", esModule = embed "peer.js")],
  compatibilityDate = "2026-11-01",
  bindings = [(name = "BUCKETS", durableObjectNamespace = "Bucket")],
  durableObjectNamespaces =
    [(className = "Bucket", uniqueKey = "tidegate-peer", enableSql = true)],
  durableObjectStorage = (localDisk = "disk") );
"#
    );
    Workerd::serve(folder, &configuration)
}

/// A Worker of one's own with a limiter of `tidegate/durable-objects`.
pub(crate) fn limiter() -> Result<Workerd> {
    let folder = folder()?;
    let storage = folder.path().join("storage");
    fs::create_dir_all(&storage)?;
    fs::write(folder.path().join("limiter.js"), LIMITER).context("limiter.js")?;
    for file in ["index.js", "tidegate.wasm"] {
        let from = workspace().join("crates/wasm/npm/dist/durable-objects").join(file);
        fs::copy(&from, folder.path().join(file)).with_context(|| from.display().to_string())?;
    }
    let configuration = format!(
        r#"using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "main", worker = .limiter),
    (name = "disk", disk = (path = {storage:?}, writable = true)) ],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")] );
const limiter :Workerd.Worker = (
  modules = [
    (name = "limiter.js", esModule = embed "limiter.js"),
    (name = "index.js", esModule = embed "index.js"),
    (name = "tidegate.wasm", wasm = embed "tidegate.wasm")],
  compatibilityDate = "2026-11-01",
  bindings = [(name = "KEYS", durableObjectNamespace = "Keys")],
  durableObjectNamespaces = [(className = "Keys", uniqueKey = "keys", enableSql = true)],
  durableObjectStorage = (localDisk = "disk") );
"#
    );
    Workerd::serve(folder, &configuration)
}

/// A Worker in Rust that does nothing.
pub(crate) fn empty() -> Result<Workerd> {
    let (folder, from) = (folder()?, workspace().join("tests/bench/empty"));
    fs::create_dir(folder.path().join("build"))?;
    for file in ["index.js", "build/index.js", "build/index_bg.wasm"] {
        let from = from.join(file);
        fs::copy(&from, folder.path().join(file)).with_context(|| from.display().to_string())?;
    }
    let configuration = r#"using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "main", worker = .empty)],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")] );
const empty :Workerd.Worker = (
  modules = [
    (name = "index.js", esModule = embed "index.js"),
    (name = "build/index.js", esModule = embed "build/index.js"),
    (name = "build/index_bg.wasm", wasm = embed "build/index_bg.wasm")],
  compatibilityDate = "2026-11-01" );
"#;
    Workerd::serve(folder, configuration)
}
