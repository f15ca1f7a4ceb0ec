//! Shared by the tests of what runs on every backend.

mod api;
mod trace;
pub mod vectors;

pub use api::{Api, Reply};
pub use trace::generate;

use std::path::{Path, PathBuf};

/// The policies that the parity tests decide by.
pub const POLICIES: &str = include_str!("../parity/policies.toml");

/// A file of this crate.
pub fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The built command: cargo puts it beside the folder of the tests.
pub fn command() -> PathBuf {
    let test = std::env::current_exe().expect("a test is a program");
    let folder = test.ancestors().nth(2).expect("it lies in target/PROFILE/deps");
    folder.join("tidegate")
}

/// The cells of the table after a mark in a document, without its head and without the marks of code.
pub fn rows(document: &str, mark: &str) -> Vec<Vec<String>> {
    let (_, table) = document.split_once(mark).expect("a document with that mark");
    let lines = table.trim_start().lines().skip(2).take_while(|line| line.starts_with('|'));
    lines
        .map(|line| {
            let cells = line.trim_matches('|').split(" | ");
            cells.map(|cell| cell.trim().trim_matches('`').trim().to_owned()).collect()
        })
        .collect()
}
