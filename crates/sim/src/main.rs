//! `cargo run -p tidegate-sim`: writes the golden tables and the pictures drawn from them, or runs the world
//! in which everything fails.

mod command;
mod picture;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use tidegate_sim::table;

/// Runs the simulations and writes their tables and pictures
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// The folder for the tables
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/golden"))]
    tables: PathBuf,
    /// The folder for the pictures
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs"))]
    pictures: PathBuf,
}

#[derive(Subcommand)]
enum Command {
    World(command::Arguments),
}

fn main() -> Result<ExitCode> {
    let Arguments { command, tables, pictures } = Arguments::parse();
    if let Some(Command::World(arguments)) = command {
        return command::run(&arguments);
    }
    let step = table::step()?;
    write(&tables, "suppression.csv", &step.csv())?;
    write(&tables, "local_cap.csv", &table::local_cap()?.csv())?;
    write(&tables, "utilization.csv", &table::utilization_csv()?)?;
    write(&pictures, "suppression.svg", &picture::suppression(&step)?)?;
    write(&pictures, "utilization.svg", &picture::utilization()?)?;
    Ok(ExitCode::SUCCESS)
}

fn write(folder: &Path, name: &str, content: &str) -> Result<()> {
    let path = folder.join(name);
    fs::write(&path, content).with_context(|| path.display().to_string())?;
    println!("{}", path.display());
    Ok(())
}
