//! `cargo xtask docs`: makes the API pages of the npm package.

use anyhow::Result;

use crate::install;
use crate::run::{command, step, target};

/// Fails if a public name has no doc comment, or if a link leads nowhere: `crates/wasm/npm/typedoc.json`.
pub(crate) fn run() -> Result<()> {
    install::node_packages()?;
    install::loader_packages()?;
    let typedoc = "tests/npm/loaders/node_modules/typedoc/bin/typedoc";
    let options = [typedoc, "--options", "crates/wasm/npm/typedoc.json", "--out"];
    let mut pages = command("node_modules/.bin/node", &options);
    step("make the API pages", pages.arg(target()?.join("docs/npm")))
}
