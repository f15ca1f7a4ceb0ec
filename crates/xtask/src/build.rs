//! Builds the wasm artifacts: the Worker, the guest and the npm package.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use flate2::Compression;
use flate2::write::GzEncoder;

use self::worker_files::worker_files;
use crate::install;
use crate::run::{cargo, cargo_home, command, root, step, target};

mod names;
mod npm;
mod order;
// the host starts the same files, but `xtask` does not build the host
#[path = "../../../host/src/local/worker_files.rs"]
mod worker_files;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The artifacts to build
    what: Vec<Artifact>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Artifact {
    Worker,
    Guest,
    Npm,
}

/// The largest sizes in bytes: of the compressed files that an isolate loads at its start, and of
/// the module that a host embeds. Some 60 KB of the Worker are the crate `worker` and futures: they replace JavaScript
/// that nobody but people checked. Reservations are 18 KB of the Worker and 43 KB of the guest. Overrides of one key are 9 KB of the
/// Worker, limits in shadow and limits that warn 2 KB, costs that are read from an answer 9 KB, shares in an outage 8 KB, the words of
/// explanations 3.4 KB, those of descriptions 7 KB, lists of all isolates 4 KB.
const WORKER_LIMIT: usize = 401 * 1_024;
const GUEST_LIMIT: usize = 196 * 1_024;

/// How modules for every runtime are optimized: to few bytes, and with the wasm features that rustc uses and every runtime has. With more
/// features the optimizer writes modules that Node 20 cannot read.
const PORTABLE: [&str; 9] = [
    "-Oz",
    "--converge",
    "--enable-bulk-memory",
    "--enable-bulk-memory-opt",
    "--enable-multivalue",
    "--enable-mutable-globals",
    "--enable-nontrapping-float-to-int",
    "--enable-reference-types",
    "--enable-sign-ext",
];

const ESBUILD: &str = "node_modules/.bin/esbuild";

/// The crate of each module of the npm package, and its features.
pub(crate) fn npm_modules() -> impl Iterator<Item = (&'static str, &'static str)> {
    npm::VARIANTS.iter().map(|variant| (variant.package, variant.features))
}

/// Everything, because the npm package contains the Worker.
pub(crate) const ALL: [Artifact; 2] = [Artifact::Guest, Artifact::Npm];

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let what = if arguments.what.is_empty() { &ALL[..] } else { &arguments.what };
    what.iter().try_for_each(|artifact| build(*artifact))
}

pub(crate) fn build(artifact: Artifact) -> Result<()> {
    install::wasm_target()?;
    install::node_packages()?;
    match artifact {
        Artifact::Worker => worker(),
        Artifact::Guest => guest(),
        Artifact::Npm => worker().and_then(|()| npm::build()),
    }
}

fn worker() -> Result<()> {
    let root = root();
    let build = root.join("worker/build");
    bound("tidegate-worker", "api", &build)?;
    // the npm package reads its fields by the same file
    fs::copy(root.join("crates/wasm/npm/fields.js"), build.join("fields.js"))?;
    let compressed = worker_files(&root)?.iter().try_fold(0, |sum, file| {
        Ok::<_, anyhow::Error>(sum + gzipped(&root.join("worker").join(file))?)
    })?;
    within("worker bundle, gzip", compressed, WORKER_LIMIT)
}

/// The Worker in Rust that does nothing, a baseline of the benchmarks.
pub(crate) fn empty_worker() -> Result<()> {
    bound("tidegate-bench-empty", "", &root().join("tests/bench/empty/build"))
}

/// Builds a Worker in Rust, with what binds it to JavaScript.
fn bound(package: &str, features: &str, build: &Path) -> Result<()> {
    let module = wasm(package, "worker", features)?;
    let done = build.join(".done");
    if is_newer(&done, &[module.clone(), std::env::current_exe()?]) {
        return Ok(()); // wrangler builds again for each edit of the policy file
    }
    let mut bindgen = command(&install::wasm_bindgen()?.to_string_lossy(), &[]);
    bindgen
        .arg(&module)
        .args(["--target", "web", "--out-name", "index", "--out-dir"])
        .arg(build)
        // the Worker begins anew after a panic
        .args(["--experimental-reset-state-function", "--force-enable-abort-handler"]);
    step("bind the Worker", &mut bindgen)?;
    let (glue, module) = (build.join("index.js"), build.join("index_bg.wasm"));
    bundle(&glue)?;
    names::shorten(&glue, &module)?;
    // workerd has all features and catches exceptions, but only its newest versions read compact imports; a module by "-Os" is longer
    // than one by "-Oz", and compresses better
    optimize(&module, &module, &["-Os", "--all-features", "--disable-compact-imports"])?;
    fs::write(&done, "").with_context(|| done.display().to_string())
}

/// Whether a file was written after all of these.
fn is_newer(file: &Path, than: &[PathBuf]) -> bool {
    let written = |file: &Path| fs::metadata(file).and_then(|data| data.modified()).ok();
    let Some(own) = written(file) else { return false };
    than.iter().all(|other| written(other).is_some_and(|other| other < own))
}

fn guest() -> Result<()> {
    let module = wasm("tidegate-guest", "wasm", "")?;
    let folder = target()?.join("guest");
    fs::create_dir_all(&folder)?;
    let optimized = folder.join("tidegate_guest.wasm");
    if !is_newer(&optimized, &[module.clone(), std::env::current_exe()?]) {
        optimize(&module, &optimized, &PORTABLE)?;
    }
    within("guest module", usize::try_from(fs::metadata(optimized)?.len())?, GUEST_LIMIT)
}

/// Packs the npm package into `npm` in the target directory as it would be published. Returns the tarball.
pub(crate) fn pack() -> Result<PathBuf> {
    build(Artifact::Npm)?;
    let folder = target()?.join("npm");
    fs::create_dir_all(&folder)?;
    let mut pack = command("npm", &["pack", "--pack-destination"]);
    pack.arg(&folder).current_dir(root().join("crates/wasm/npm"));
    step("pack the npm package", &mut pack)?;
    Ok(folder.join(format!("tidegate-{}.tgz", env!("CARGO_PKG_VERSION"))))
}

fn wasm(package: &str, profile: &str, features: &str) -> Result<PathBuf> {
    wasm_by(package, profile, features, &[])
}

/// Builds with these options of cargo.
fn wasm_by(package: &str, profile: &str, features: &str, options: &[&str]) -> Result<PathBuf> {
    let triple = "wasm32-unknown-unknown";
    // a manifest with a second type would keep rustc from optimizing across crates, and `tidegate-wasm` is also a library of the Worker
    let mut build = cargo(&["rustc", "--lib", "--crate-type", "cdylib", "--profile", profile]);
    build.args(["--target", triple, "--package", package]);
    build.args(["--no-default-features", "--features", features]).args(options);
    // a panic in a published module names the file of a crate, not the home of who has built it
    let remap = format!("--remap-path-prefix={}=cargo", cargo_home()?.display());
    let mut flags = vec![remap];
    if profile == "worker" {
        // LLVM copies functions into their callers up to a size of 50 by "s", and of 325 by `#[inline]`, which the standard library has
        // often. With 25 and 50 a request takes as much processor time, and the bundle is 8 KB and 22 KB smaller. By the second the npm
        // package would be 0.7 KB smaller, because most of it is built with "z"
        flags.push("-Cllvm-args=-inline-threshold=25".to_owned());
        flags.push("-Cllvm-args=-inlinehint-threshold=50".to_owned());
    }
    build.arg("--config").arg(format!("target.{triple}.rustflags={flags:?}"));
    step(&format!("build {package} for wasm"), &mut build)?;
    let file = format!("{}.wasm", package.replace('-', "_"));
    Ok(target()?.join(triple).join(profile).join(file))
}

/// The classes of the crate `worker` that no script of ours names.
const UNUSED: [&str; 3] = ["ContainerStartupOptions", "MinifyConfig", "R2Range"];

/// Puts the script that binds the Worker into one file, with the scripts out of crates. It imports the Worker's own.
fn bundle(glue: &Path) -> Result<()> {
    let text = fs::read_to_string(glue).with_context(|| glue.display().to_string())?;
    let text = UNUSED.iter().fold(text, |text, class| {
        text.replace(&format!("export class {class} "), &format!("class {class} "))
    });
    // only `initSync` is called
    fs::write(
        glue,
        text.replace("export { initSync, __wbg_init as default };", "export { initSync };"),
    )?;
    let mut bundle =
        command(ESBUILD, &["--bundle", "--minify", "--format=esm", "--allow-overwrite"]);
    bundle.args(["--external:../log.js", "--external:../recovery.js", "--log-level=warning"]);
    bundle.arg("--define:Symbol.dispose=undefined"); // otherwise it keeps classes that nobody names
    bundle.arg("--log-override:duplicate-object-key=silent"); // a module is imported once for each function
    bundle.arg(glue).arg(format!("--outfile={}", glue.display()));
    step("bundle what binds the wasm", &mut bundle)?;
    let parts = glue.with_file_name("snippets");
    if parts.exists() {
        fs::remove_dir_all(parts)?;
    }
    Ok(())
}

/// Minifies the script that binds a module, in its place.
fn minify(glue: &Path) -> Result<()> {
    let mut minify = command(ESBUILD, &["--minify", "--allow-overwrite", "--log-level=warning"]);
    minify.arg(glue).arg(format!("--outfile={}", glue.display()));
    step("minify what binds the wasm", &mut minify)
}

/// Makes a module smaller by these options and removes the names that only a debugger reads.
fn optimize(from: &Path, to: &Path, options: &[&str]) -> Result<()> {
    wasm_opt(from, to, &[&["--strip-debug", "--strip-producers"], options].concat())
}

fn wasm_opt(from: &Path, to: &Path, options: &[&str]) -> Result<()> {
    let small = [
        // a large function compresses worse inside of its only caller
        "--one-caller-inline-max-function-size=20",
        // the stack ends at address 0, so that only one that overflows comes below 1,024 by an offset that wraps
        "--low-memory-unused",
    ];
    let mut optimize = command("node_modules/.bin/wasm-opt", &[&small, options].concat());
    step("optimize the wasm", optimize.arg(from).arg("-o").arg(to))?;
    fs::write(to, order::by_likeness(&fs::read(to)?)?).with_context(|| to.display().to_string())
}

/// The module of the npm package in this folder of `dist`, with the names of its functions. Build the package before.
pub(crate) fn named_npm_module(variant: &str) -> Result<Vec<u8>> {
    let folder = target()?.join("npm-build").join(variant);
    let named = folder.join("named.wasm");
    let options = [&["--debuginfo", "--strip-producers"], &PORTABLE[..]].concat();
    wasm_opt(&folder.join("tidegate_bg.wasm"), &named, &options)?;
    fs::read(&named).with_context(|| named.display().to_string())
}

/// The length of a file after compression by gzip.
pub(crate) fn gzipped(file: &Path) -> Result<usize> {
    let bytes = fs::read(file).with_context(|| file.display().to_string())?;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&bytes)?;
    Ok(encoder.finish()?.len())
}

fn within(what: &str, bytes: usize, limit: usize) -> Result<()> {
    println!("{what}: {bytes} bytes (at most {limit})");
    if bytes > limit {
        bail!("{what}: expected at most {limit} bytes, found {bytes}");
    }
    Ok(())
}
