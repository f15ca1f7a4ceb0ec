//! Writes the table of faults in docs/operations.md from the last run of `cargo test -p tidegate-tests --test redis everything::faults`.

use std::fs;

use anyhow::{Context, Result};
use tidegate::local::workspace;

const BEGIN: &str = "<!-- faults: written by `cargo run -p tidegate-tests --bin faults` -->\n";
const END: &str = "<!-- end of faults -->";

fn main() -> Result<()> {
    let program = std::env::current_exe()?;
    let folder = program.parent().context("a program lies in a folder")?.join("fault-rows");
    let mut rows = Vec::new();
    for file in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        rows.push(fs::read_to_string(file?.path())?);
    }
    rows.sort();
    let page = workspace().join("docs/operations.md");
    let text = fs::read_to_string(&page)?;
    let (before, rest) =
        text.split_once(BEGIN).context("docs/operations.md: expected the table of faults")?;
    let (_, after) = rest
        .split_once(END)
        .context("docs/operations.md: expected the end of the table of faults")?;
    let head = "| fault | granted by `closed` and `open`, of the bound | by `on_error` | slowest answer | decides again after | counted as `error` |\n|---|---|---|---|---|---|\n";
    let table = format!("{before}{BEGIN}{head}{}\n{END}{after}", rows.join("\n"));
    fs::write(&page, table)?;
    println!("{}: {} rows", page.display(), rows.len());
    Ok(())
}
