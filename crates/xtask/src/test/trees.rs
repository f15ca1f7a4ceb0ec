//! The sizes of the trees of dependencies that `host/README.md` tells.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, bail};

use crate::run::{output, root};

/// The comment above the table, whose rows begin with the features and end with the number of crates.
const MARK: &str = "<!-- crates in the tree -->";

/// Compares each row of the table with what `cargo tree` says on this machine.
pub(super) fn check() -> Result<()> {
    let text = fs::read_to_string(root().join("host/README.md"))?;
    let (_, table) = text.split_once(MARK).with_context(|| format!("expected {MARK}"))?;
    let rows = table.lines().skip_while(|line| !line.starts_with('|')).skip(2);
    let mut wrong = Vec::new();
    for row in rows.take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [features, .., told] = cells.as_slice() else { bail!("expected cells, found {row}") };
        let features: Vec<&str> = features.split('`').skip(1).step_by(2).collect();
        let found = crates_with(&features.join(","))?;
        if *told != found.to_string() {
            wrong.push(format!("{features:?}: expected {found}, found {told}"));
        }
    }
    if !wrong.is_empty() {
        bail!("host/README.md: crates in the tree: {}", wrong.join("; "));
    }
    Ok(())
}

/// How many crates a program has that depends on the library with these features, with the library itself.
fn crates_with(features: &str) -> Result<usize> {
    let tree = ["tree", "--package", "tidegate", "--no-default-features", "--features", features];
    let shown = ["--edges", "normal", "--prefix", "none", "--format", "{p}"];
    let tree = output("cargo", &[&tree[..], &shown].concat()).context("cargo tree failed")?;
    let name = |line: &str| line.split(" (").next().unwrap_or_default().to_owned();
    Ok(tree.lines().map(name).collect::<BTreeSet<_>>().len())
}
