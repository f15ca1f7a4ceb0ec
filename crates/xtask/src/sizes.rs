//! `cargo xtask sizes`: writes where the bytes of the npm package are into docs/sizes.md.

mod parts;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use self::parts::Module;
use crate::build;
use crate::run::{output, root};

/// What a user loads: the name of the entry, where it is loaded, and its files in `dist`.
const LOADED: [(&str, &str, &[&str]); 9] = [
    ("tidegate", "browsers", &["browser.js"]),
    ("tidegate", "Workers", &["workerd.js", "tidegate.wasm"]),
    ("tidegate/slim", "everywhere", &["slim.js", "tidegate.wasm"]),
    ("tidegate/toml", "browsers", &["toml/browser.js"]),
    ("tidegate/toml", "Workers", &["toml/workerd.js", "toml/tidegate.wasm"]),
    ("tidegate, …/redis, …/toml", "Node, Deno, Bun", &["node/all.js"]),
    (
        "tidegate/durable-objects",
        "Workers",
        &["durable-objects/index.js", "durable-objects/tidegate.wasm"],
    ),
    ("tidegate/remote", "everywhere", &["remote.js"]),
    ("JavaScript alone", "", &["slim.js"]),
];

/// The modules: how the page calls them, and their folders in `dist`.
const MODULES: [(&str, &str); 2] = [("tidegate", ""), ("tidegate/toml", "toml")];

const HEAD: &str = "\
# Sizes of the npm package

`cargo xtask sizes` writes this page: it builds the package and measures what it built.

## Files

The bytes of what a user loads. Some entries are two files, whose sizes are added. Each file is compressed by gzip at level 9, and
by Brotli at level 11.
";

const ABOUT_PARTS: &str = "
## WebAssembly

The bytes of code after all optimization, by crate, and by module for the crates of this workspace and for the standard library.
A function belongs to the crate and module where its source is, or to those of the type whose trait it implements. If the optimizer
copies one function into another, its bytes belong to the other. Generic code of a library that works on types of Tidegate belongs
to the library.
";

pub(crate) fn run() -> Result<()> {
    build::build(build::Artifact::Npm)?;
    let page = format!("{HEAD}\n{}{ABOUT_PARTS}\n{}", files()?, code()?);
    let file = root().join("docs/sizes.md");
    fs::write(&file, &page).with_context(|| file.display().to_string())?;
    println!("{page}\nwritten to {}", file.display());
    Ok(())
}

fn files() -> Result<String> {
    let dist = root().join("crates/wasm/npm/dist");
    let mut table =
        "| entry | loaded in | bytes | gzip | Brotli |\n|---|---|---|---|---|\n".to_owned();
    for (entry, place, files) in LOADED {
        let mut sum = [0; 3];
        for file in files {
            let file = dist.join(file);
            let sizes = [
                fs::metadata(&file)?.len(),
                u64::try_from(build::gzipped(&file)?)?,
                brotli(&file)?,
            ];
            sum = [sum[0] + sizes[0], sum[1] + sizes[1], sum[2] + sizes[2]];
        }
        let [raw, gzip, brotli] = sum.map(grouped);
        writeln!(table, "| `{entry}` | {place} | {raw} | {gzip} | {brotli} |")?;
    }
    Ok(table.replace("`JavaScript alone`", "JavaScript alone"))
}

fn code() -> Result<String> {
    let dist = root().join("crates/wasm/npm/dist");
    let mut rows: BTreeMap<String, [usize; MODULES.len()]> = BTreeMap::new();
    let mut whole = [[0; MODULES.len()]; 3];
    for (column, (_, folder)) in MODULES.iter().enumerate() {
        let named = Module::read(&build::named_npm_module(folder)?)?;
        let shipped = Module::read(&fs::read(dist.join(folder).join("tidegate.wasm"))?)?;
        let (counted, found) = (named.code(), shipped.code());
        ensure!(
            counted == found,
            "expected {found} bytes of code as in the package, found {counted}"
        );
        for (part, bytes) in named.parts() {
            rows.entry(part).or_default()[column] = bytes;
        }
        whole[0][column] = shipped.data;
        whole[1][column] = shipped.bytes - shipped.code() - shipped.data;
        whole[2][column] = shipped.bytes;
    }
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort_by_key(|(part, bytes)| (!part.starts_with("tidegate"), std::cmp::Reverse(*bytes)));
    let names = ["data", "types, tables, imports and exports", "**the whole module**"];
    rows.extend(names.map(str::to_owned).into_iter().zip(whole));
    let mut table = format!("| part | {} | {} |\n|---|---|---|\n", MODULES[0].0, MODULES[1].0);
    for (part, bytes) in rows {
        let [default, toml] = bytes.map(|bytes| grouped(u64::try_from(bytes).unwrap_or(u64::MAX)));
        writeln!(table, "| {part} | {default} | {toml} |")?;
    }
    Ok(table)
}

/// The size after compression by Node, which has Brotli.
fn brotli(file: &Path) -> Result<u64> {
    let script = "zlib.brotliCompressSync(fs.readFileSync(process.argv[1])).length";
    let length = output("node", &["-p", script, &file.to_string_lossy()]);
    length.and_then(|length| length.parse().ok()).context("Node cannot compress by Brotli")
}

/// A number with a comma before each group of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_groups_of_three_digits() {
        let written = [0, 999, 1_000, 12_345, 1_234_567].map(grouped);
        assert_eq!(written, ["0", "999", "1,000", "12,345", "1,234,567"]);
    }
}
