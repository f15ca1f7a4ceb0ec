//! Builds the npm package: a module of WebAssembly for each kind of runtime, and a script for each way to load it.

use std::cmp::Reverse;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{ESBUILD, PORTABLE, bound, gzipped, minify, optimize, wasm_by, within, worker_files};
use crate::install;
use crate::run::{command, root, step, target};

/// The most bytes that a browser loads, compressed. It has all that middleware asks, because middleware takes every `Limiter`; costs that
/// are read from a response are 4 KB of it.
const LIMIT: usize = 246 * 1_024;
/// The most bytes of TOML for a browser, compressed. The parser has its own allocator and its own copy of the standard library.
const TOML_LIMIT: usize = 45 * 1_024;
/// The most bytes of the limiter on Durable Objects and their class, compressed.
const OBJECTS_LIMIT: usize = 312 * 1_024;
/// The most bytes of the limiter that asks a server, compressed. It has no WebAssembly. The queue of `waitFor` is 2 KB of it.
const REMOTE_LIMIT: usize = 16_500;

pub(super) fn build() -> Result<()> {
    let package = root().join("crates/wasm/npm");
    let dist = package.join("dist");
    if dist.exists() {
        fs::remove_dir_all(&dist)?; // a file that is no longer built must not be packed
    }
    fs::create_dir_all(&dist)?;
    for variant in VARIANTS {
        let Variant { folder, scripts, .. } = variant;
        let bound = bind(&variant)?;
        let module = bound.join("tidegate.wasm");
        let stamp = stamp(&module)?;
        write_text(&module, &stamp, &bound)?;
        let dist = dist.join(folder);
        fs::create_dir_all(&dist)?;
        if scripts.iter().any(|script| script.options == WEB) {
            fs::copy(&module, dist.join("tidegate.wasm"))?; // the script for Node contains it
        }
        for script in scripts {
            bundle(&package, &bound, script, &dist.join(script.file))?;
        }
    }
    node_entries(&package.join("node"), &dist.join("node"))?;
    // `require` needs types of its own, which say the same
    for types in ["durable-objects", "index", "policy", "redis", "remote", "slim", "toml"] {
        let text = fs::read_to_string(package.join(format!("{types}.d.ts")))?;
        fs::write(
            dist.join(format!("{types}.d.cts")),
            text.replace("\"./policy.js\"", "\"./policy.cjs\""),
        )?;
    }
    for folder in ["dropin", "middleware"] {
        require_files(&package.join(folder), &dist.join(folder))?;
    }
    within("npm package in a browser, gzip", gzipped(&dist.join("browser.js"))?, LIMIT)?;
    within(
        "tidegate/toml in a browser, gzip",
        gzipped(&dist.join("toml/browser.js"))?,
        TOML_LIMIT,
    )?;
    within("tidegate/remote, gzip", gzipped(&dist.join("remote.js"))?, REMOTE_LIMIT)?;
    fs::copy(root().join("THIRD-PARTY.txt"), package.join("THIRD-PARTY.txt"))?;
    copy_worker(&dist.join("worker"))?;
    durable_objects(&package, &dist.join("durable-objects"))
}

/// Builds the module and the script that binds it. Returns their folder.
fn bind(variant: &Variant) -> Result<PathBuf> {
    let module = wasm_by(variant.package, "wasm", variant.features, variant.options)?;
    let folder = target()?.join("npm-build").join(variant.folder);
    let mut bindgen = command(&install::wasm_bindgen()?.to_string_lossy(), &[]);
    bindgen
        .arg(&module)
        .args(["--target", "web", "--out-name", "tidegate", "--out-dir"])
        .arg(&folder);
    step("bind the npm package", &mut bindgen)?;
    minify(&folder.join("tidegate.js"))?; // also lets its names out of the way of the package's
    optimize(&folder.join("tidegate_bg.wasm"), &folder.join("tidegate.wasm"), &PORTABLE)?;
    Ok(folder)
}

/// A module of the package, and the scripts that contain or import it.
pub(super) struct Variant {
    /// The folder in `dist`.
    folder: &'static str,
    pub(super) package: &'static str,
    pub(super) features: &'static str,
    /// Further options of cargo.
    options: &'static [&'static str],
    scripts: &'static [Script],
}

/// Node loads its module from a disk, so its decisions are built for speed. Code built by "z" moves each answer by a call out of
/// WebAssembly: with the gate by "s" `decide` needs an eighth fewer instructions, and the module is 7 % larger.
const FAST: &[&str] = &[
    "--config",
    "profile.wasm.package.tidegate-wasm.opt-level=3",
    "--config",
    "profile.wasm.package.tidegate-core.opt-level=3",
    "--config",
    "profile.wasm.package.tidegate-gate.opt-level=\"s\"",
];

/// A script of the package: the file in its folder, its entry, and what esbuild must know.
struct Script {
    file: &'static str,
    entry: &'static str,
    options: &'static [&'static str],
}

const NODE: &[&str] = &["--platform=node", "--target=node20"];
const ANY: &[&str] = &["--platform=neutral", "--target=es2022"];
/// Where Node is not: only Node prints the line of an error, so all can be one line, and variables have short names.
const WEB: &[&str] = &[
    "--platform=neutral",
    "--target=es2022",
    "--minify-whitespace",
    "--minify-identifiers",
    "--keep-names",
];

/// The module of browsers, Workers and the edge runtime; the one of Node, Deno and Bun, which all of their entries share; and TOML
/// for the former.
pub(super) const VARIANTS: [Variant; 3] = [
    Variant { folder: "", package: "tidegate-wasm", features: "", options: &[], scripts: &SCRIPTS },
    Variant {
        folder: "node",
        package: "tidegate-wasm",
        features: "node",
        options: FAST,
        scripts: &FOR_NODE,
    },
    Variant {
        folder: "toml",
        package: "tidegate-wasm-toml",
        features: "",
        options: &[],
        scripts: &TOML,
    },
];

const SCRIPTS: [Script; 8] = [
    Script { file: "remote.js", entry: "entries/remote.js", options: ANY },
    Script { file: "remote.cjs", entry: "entries/remote.js", options: ANY },
    Script { file: "slim.js", entry: "entries/slim.js", options: ANY },
    Script { file: "slim.cjs", entry: "entries/slim.js", options: ANY },
    Script { file: "browser.js", entry: "entries/browser.js", options: WEB },
    Script { file: "browser.cjs", entry: "entries/browser.js", options: WEB },
    Script { file: "workerd.js", entry: "entries/workerd.js", options: WEB },
    Script { file: "edge.js", entry: "entries/edge.js", options: WEB },
];

const FOR_NODE: [Script; 2] = [
    Script { file: "all.js", entry: "node/all.js", options: NODE },
    Script { file: "all.cjs", entry: "node/all.js", options: NODE },
];

const TOML: [Script; 4] = [
    Script { file: "browser.js", entry: "entries/toml/browser.js", options: WEB },
    Script { file: "browser.cjs", entry: "entries/toml/browser.js", options: WEB },
    Script { file: "workerd.js", entry: "entries/toml/workerd.js", options: WEB },
    Script { file: "edge.js", entry: "entries/toml/edge.js", options: WEB },
];

/// Puts a script together. The names of its classes and functions stay, because errors and debuggers show them.
fn bundle(package: &Path, bound: &Path, script: &Script, to: &Path) -> Result<()> {
    let format = if script.file.ends_with(".cjs") { "--format=cjs" } else { "--format=esm" };
    let made = [("native", "js"), ("module", "wasm"), ("text", "txt"), ("order", "json")];
    let mut esbuild = command(ESBUILD, &["--bundle", "--sourcemap", "--log-level=warning"]);
    esbuild
        .args(["--minify-syntax", format])
        .args(script.options)
        .args(["--loader:.wasm=binary", "--external:./tidegate.wasm*"])
        .arg("--log-override:empty-import-meta=silent") // only in a function that nobody calls
        .args(made.map(|(name, ending)| alias(name, &bound.join(format!("tidegate.{ending}")))))
        .arg(package.join(script.entry))
        .arg(format!("--outfile={}", to.display()));
    step(&format!("bundle {}", script.file), &mut esbuild)?;
    forget_comments(to)?;
    forget_text(&to.with_file_name(format!("{}.map", script.file)))
}

/// The entries of Node, Deno and Bun, all of which import the script that has the module.
const NODE_ENTRIES: [&str; 3] = ["index", "redis", "toml"];

/// Copies these entries and the command, and writes the entries as CommonJS.
fn node_entries(from: &Path, to: &Path) -> Result<()> {
    for name in NODE_ENTRIES.into_iter().chain(["command"]) {
        let script = format!("{name}.js");
        fs::copy(from.join(&script), to.join(&script)).with_context(|| script.clone())?;
    }
    let mut esbuild = command(ESBUILD, &["--format=cjs", "--log-level=warning"]);
    esbuild.args(NODE).args(NODE_ENTRIES.map(|name| from.join(format!("{name}.js"))));
    esbuild.arg(format!("--outdir={}", to.display())).arg("--out-extension:.js=.cjs");
    step("write the entries of Node as CommonJS", &mut esbuild)?;
    for name in NODE_ENTRIES {
        let script = to.join(format!("{name}.cjs"));
        fs::write(&script, fs::read_to_string(&script)?.replace("./all.js", "./all.cjs"))?;
    }
    Ok(())
}

/// Writes each file of a folder as CommonJS, so that its entries share the same files as the ES modules do. The folder has a
/// `package.json` of its own, which says that its scripts and types are CommonJS.
fn require_files(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    fs::write(to.join("package.json"), json!({ "type": "commonjs" }).to_string())?;
    let mut esbuild = command(ESBUILD, &["--format=cjs", "--sourcemap", "--log-level=warning"]);
    esbuild.args(NODE).arg(format!("--outdir={}", to.display()));
    for file in fs::read_dir(from)? {
        let file = file?.path();
        let Some(name) = file.file_name() else { continue };
        if file.is_dir() {
            require_files(&file, &to.join(name))?;
        } else if file.extension().is_some_and(|extension| extension == "js") {
            esbuild.arg(file);
        } else {
            fs::copy(&file, to.join(name))?;
        }
    }
    step(&format!("write {} as CommonJS", from.display()), &mut esbuild)
}

/// Empties the lines of a script that are only comments, which esbuild keeps inside of classes and functions. The source map still
/// fits, because each line keeps its number.
fn forget_comments(script: &Path) -> Result<()> {
    let text = fs::read_to_string(script)?;
    let mut is_comment = false;
    let mut kept = String::with_capacity(text.len());
    for line in text.lines() {
        let trimmed = line.trim();
        let ends = trimmed.ends_with("*/");
        is_comment |= trimmed.starts_with("/**") && (ends || !trimmed.contains("*/"));
        let is_remark = trimmed.starts_with("//") && !trimmed.starts_with("//# ");
        if !is_comment && !is_remark {
            kept.push_str(line);
        }
        kept.push('\n');
        is_comment &= !ends;
    }
    fs::write(script, kept).with_context(|| script.display().to_string())
}

/// Removes the module from a source map, which needs only the sources that a person wrote.
fn forget_text(map: &Path) -> Result<()> {
    let mut json: Value = serde_json::from_str(&fs::read_to_string(map)?)?;
    let is_text = |source: &Value| source.as_str().is_some_and(|name| name.ends_with(".txt"));
    if let Some(place) = json["sources"].as_array().and_then(|all| all.iter().position(is_text)) {
        json["sourcesContent"][place] = Value::Null;
        fs::write(map, json.to_string())?;
    }
    Ok(())
}

/// Adds a section with a text that no other module has, and returns the text. By it `tidegate/slim` knows its own module.
fn stamp(module: &Path) -> Result<String> {
    let mut bytes = fs::read(module)?;
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    let stamp = format!("{:016x}", hasher.finish());
    // a custom section: its number, its length, the length of its name, its name, its contents
    bytes.extend([0, 25, 8]);
    bytes.extend(b"tidegate");
    bytes.extend(stamp.as_bytes());
    fs::write(module, bytes)?;
    Ok(stamp)
}

/// Writes the module as `crates/wasm/npm/decode.js` reads it: all bytes in the order of their frequency, and a text with
/// a character for each frequent byte and two for any other.
fn write_text(module: &Path, stamp: &str, folder: &Path) -> Result<()> {
    let module = fs::read(module)?;
    let alphabet: Vec<char> =
        (' '..='~').filter(|character| !"\"<\\".contains(*character)).collect();
    let (singles, sets) = alphabet.split_at(alphabet.len() - 2);
    let mut count = [0_u32; 256];
    for byte in &module {
        count[usize::from(*byte)] += 1;
    }
    let mut order: Vec<u8> = (0..=u8::MAX).collect();
    order.sort_by_key(|byte| Reverse(count[usize::from(*byte)]));
    let mut places = [0; 256];
    for (place, byte) in order.iter().enumerate() {
        places[usize::from(*byte)] = place;
    }
    let mut text = String::new();
    for byte in &module {
        let place = places[usize::from(*byte)];
        if let Some(set) = (place / singles.len()).checked_sub(1) {
            text.push(*sets.get(set).context("expected at most three sets of bytes")?);
        }
        text.push(singles[place % singles.len()]);
    }
    fs::write(folder.join("tidegate.txt"), text)?;
    let order = json!({ "length": module.len(), "order": order, "stamp": stamp });
    fs::write(folder.join("tidegate.json"), order.to_string())?;
    Ok(())
}

/// Builds the limiter on Durable Objects out of the Worker's crate: one module has the limiter and the objects.
fn durable_objects(package: &Path, to: &Path) -> Result<()> {
    let worker = target()?.join("npm-build/durable-objects");
    fs::create_dir_all(&worker)?;
    bound("tidegate-worker", "limiter", &worker.join("build"))?;
    let shared = ["keys", "log", "recovery"];
    for file in shared {
        let name = format!("{file}.js"); // each imports what binds the module by its place
        fs::copy(root().join("worker").join(&name), worker.join(&name))?;
    }
    let glue = worker.join("build/index.js");
    let mut esbuild = command(ESBUILD, &["--bundle", "--sourcemap", "--log-level=warning"]);
    esbuild
        .args(["--minify-syntax", "--format=esm", "--external:cloudflare:workers"])
        .args(ANY)
        .args(["--external:./tidegate.wasm", "--log-override:empty-import-meta=silent"])
        .args(["native", "objects"].map(|own| alias(own, &glue)))
        .args(shared.map(|file| alias(&format!("worker/{file}"), &worker.join(file))))
        .arg(package.join("entries/durable-objects.js"))
        .arg(format!("--outfile={}", to.join("index.js").display()));
    step("bundle the limiter on Durable Objects", &mut esbuild)?;
    forget_comments(&to.join("index.js"))?;
    fs::copy(worker.join("build/index_bg.wasm"), to.join("tidegate.wasm"))?;
    let files = ["index.js", "tidegate.wasm"].map(|file| gzipped(&to.join(file)));
    let bytes = files.into_iter().sum::<Result<usize>>()?;
    within("tidegate/durable-objects, gzip", bytes, OBJECTS_LIMIT)
}

/// What esbuild takes for a name that begins with `#`.
fn alias(name: &str, file: &Path) -> String {
    format!("--alias:#{name}={}", file.display())
}

/// Copies the Worker without its entry, which a user of the package writes.
fn copy_worker(to: &Path) -> Result<()> {
    fs::create_dir_all(to.join("build"))?;
    for file in worker_files(&root())?.iter().filter(|file| *file != "index.js") {
        let from = root().join("worker").join(file);
        fs::copy(&from, to.join(file)).with_context(|| from.display().to_string())?;
    }
    Ok(())
}
