//! The built Worker in a private workerd. It runs without wrangler's proxy, so at its real speed.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use tempfile::TempDir;

use super::worker_files::worker_files;
use super::{Process, workspace};

/// The classes of the objects, as the Worker exports them: the binding and the class.
const OBJECTS: [(&str, &str); 2] = [("KEYS", "Keys"), ("POLICIES", "Policies")];

/// How to run the Worker.
#[derive(Clone, Debug, Default)]
pub struct WorkerdOptions {
    /// The text of the policy file.
    pub policies: String,
    /// The bearer token that callers must send, for decisions and for administration.
    pub token: Option<String>,
    /// Whether the Worker decides at the times that callers give instead of at its own time.
    pub trust_caller_time: bool,
    /// Whether answers say in `Server-Timing` how long an object took.
    pub server_timing: bool,
    /// How many milliseconds after a write an object deletes states that have expired; `None` for minutes.
    pub alarm_after_ms: Option<u64>,
    /// The folder in which the objects keep their states; `None` for a temporary folder.
    pub storage: Option<PathBuf>,
    /// Further variables of the Worker, by their names.
    pub variables: Vec<(String, String)>,
    /// Whether requests of the Worker reach private addresses, such as those of this machine.
    pub reaches_private: bool,
    /// The name of a header whose JSON is the `cf` object of the request; `None` for requests without such an object.
    pub cf_header: Option<String>,
    /// The text of a module that takes the place of the Worker's, which it may import as `./worker/index.js`. A test
    /// makes faults with it.
    pub entry: Option<String>,
    /// Whether another isolate of the Worker runs beside this one, on the same objects. The binding `SECOND` leads to it.
    pub second: bool,
}

/// A running workerd.
#[derive(Debug)]
pub struct Workerd {
    server: Process,
    url: String,
    _folder: TempDir,
}

impl Workerd {
    /// Starts workerd on a free port with the Worker that `cargo xtask build` made.
    ///
    /// # Errors
    /// Returns an error if workerd or the built Worker is missing, or if workerd does not start.
    pub fn start(options: &WorkerdOptions) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("tidegate-workerd-").tempdir()?;
        let storage = options.storage.clone().unwrap_or_else(|| folder.path().join("storage"));
        fs::create_dir_all(&storage)?;
        fs::write(folder.path().join("policies.toml"), &options.policies)?;
        let files = worker_files(&workspace())?;
        copy_worker(&files, folder.path())?;
        if let Some(entry) = &options.entry {
            fs::write(folder.path().join("entry.js"), entry)?;
        }
        let configuration = configuration(options, &files, &storage);
        Self::serve(folder, &configuration)
    }

    /// Starts workerd in a folder with this configuration, which announces its port.
    ///
    /// # Errors
    /// Returns an error if workerd is missing or does not start.
    pub fn serve(folder: TempDir, configuration: &str) -> Result<Self> {
        let config = folder.path().join("config.capnp");
        fs::write(&config, configuration)?;
        let mut command = Command::new(binary()?);
        command.arg("serve").arg(&config).arg("--control-fd=1");
        let mut server = Process::start("workerd", &mut command).context("workerd")?;
        let port = server.announced(listening_port)?;
        Ok(Self { server, url: format!("http://127.0.0.1:{port}"), _folder: folder })
    }

    /// The URL of the Worker.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The number of the process.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.server.id()
    }
}

/// The program itself and not its npm wrapper: ending the wrapper would leave the program running.
fn binary() -> Result<PathBuf> {
    let packages = workspace().join("node_modules/@cloudflare");
    let folders = fs::read_dir(&packages).into_iter().flatten().flatten();
    let mut binaries = folders
        .filter(|folder| folder.file_name().to_string_lossy().starts_with("workerd-"))
        .map(|folder| folder.path().join("bin/workerd"));
    binaries.find(|binary| binary.is_file()).with_context(|| {
        format!("workerd is not installed in {}: run `npm ci`", packages.display())
    })
}

fn copy_worker(files: &[String], folder: &Path) -> Result<()> {
    let worker = workspace().join("worker");
    fs::create_dir_all(folder.join("worker/build"))?;
    for file in files {
        let from = worker.join(file);
        fs::copy(&from, folder.join("worker").join(file)).with_context(|| {
            format!(
                "the Worker is not built, {} is missing: run `cargo xtask build worker`",
                from.display()
            )
        })?;
    }
    Ok(())
}

fn configuration(options: &WorkerdOptions, files: &[String], storage: &Path) -> String {
    let bindings = OBJECTS.map(|(name, class)| {
        format!(
            "(name = {name:?}, durableObjectNamespace = (className = {class:?}, serviceName = \"main\"))"
        )
    });
    let mut bindings = bindings.join(", ");
    let namespaces = OBJECTS.map(|(_, class)| {
        // with eviction, what a slow caller counts would depend on its pace
        format!(
            "(className = {class:?}, uniqueKey = \"tidegate-{}\", enableSql = true, preventEviction = true)",
            class.to_lowercase()
        )
    });
    let namespaces = namespaces.join(", ");
    let token = |name| options.token.as_ref().map(|token| (name, token.as_str()));
    let tokens = ["TIDEGATE_TOKEN", "TIDEGATE_ADMIN_TOKEN"].into_iter().filter_map(token);
    let trust = options.trust_caller_time.then_some(("TIDEGATE_TRUST_CALLER_TIME", "true"));
    let timing = options.server_timing.then_some(("TIDEGATE_SERVER_TIMING", "true"));
    let alarm = options.alarm_after_ms.map(|span| span.to_string());
    let alarm = alarm.as_deref().map(|span| ("TIDEGATE_ALARM_AFTER_MS", span));
    let variables = options.variables.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    for (name, value) in tokens.chain(trust).chain(timing).chain(alarm).chain(variables) {
        let _ = write!(bindings, ", (name = {name:?}, text = {value:?})");
    }
    let entry = match options.entry {
        Some(_) => "\n    (name = \"entry.js\", esModule = embed \"entry.js\"),",
        None => "",
    };
    let network = match options.reaches_private {
        true => r#""public", "private""#,
        false => r#""public""#,
    };
    let http = options.cf_header.as_ref().map(|name| format!("cfBlobHeader = {name:?}"));
    let http = http.unwrap_or_default();
    let modules = files.iter().fold(String::new(), |mut modules, file| {
        let kind = if file.ends_with(".wasm") { "wasm" } else { "esModule" };
        let _ =
            writeln!(modules, "    (name = \"worker/{file}\", {kind} = embed \"worker/{file}\"),");
        modules
    });
    let (service, to_second) = match options.second {
        true => (
            "\n    (name = \"second\", worker = .second),",
            ", (name = \"SECOND\", service = \"second\")",
        ),
        false => ("", ""),
    };
    format!(
        r#"using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "main", worker = .worker),{service}
    (name = "internet", network = (allow = [{network}], tlsOptions = (trustBrowserCas = true))),
    (name = "disk", disk = (path = {storage:?}, writable = true)) ],
  sockets = [(name = "http", address = "127.0.0.1:0", http = ({http}), service = "main")] );
const modules :List(Workerd.Worker.Module) = [{entry}
{modules}    (name = "policies.toml", text = embed "policies.toml") ];
const date :Text = "2026-11-01";
const flags :List(Text) = ["enable_request_signal"];
const worker :Workerd.Worker = (
  modules = .modules,
  compatibilityDate = .date,
  compatibilityFlags = .flags,
  bindings = [{bindings}{to_second}],
  durableObjectNamespaces = [{namespaces}],
  durableObjectStorage = (localDisk = "disk") );
const second :Workerd.Worker = (
  modules = .modules,
  compatibilityDate = .date,
  compatibilityFlags = .flags,
  bindings = [{bindings}] );
"#
    )
}

/// The port of a line in which workerd announces a socket that listens.
fn listening_port(line: &str) -> Option<u16> {
    let event: serde_json::Value = serde_json::from_str(line).ok()?;
    u16::try_from(event["port"].as_u64()?).ok()
}
