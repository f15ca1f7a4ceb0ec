//! `cargo run -p tidegate-sim`: writes the golden tables and the pictures drawn from them.

mod picture;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Parser;
use tidegate_sim::table;

/// Runs the simulations and writes their tables and pictures
#[derive(Parser)]
struct Arguments {
    /// The folder for the tables
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/golden"))]
    tables: PathBuf,
    /// The folder for the pictures
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs"))]
    pictures: PathBuf,
}

fn main() -> Result<()> {
    let Arguments { tables, pictures } = Arguments::parse();
    let step = table::step()?;
    write(&tables, "suppression.csv", &step.csv())?;
    write(&tables, "local_cap.csv", &table::local_cap()?.csv())?;
    write(&tables, "utilization.csv", &table::utilization_csv()?)?;
    write(&pictures, "suppression.svg", &picture::suppression(&step)?)?;
    write(&pictures, "utilization.svg", &picture::utilization()?)
}

fn write(folder: &Path, name: &str, content: &str) -> Result<()> {
    let path = folder.join(name);
    fs::write(&path, content).with_context(|| path.display().to_string())?;
    println!("{}", path.display());
    Ok(())
}
