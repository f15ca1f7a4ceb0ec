//! What the objects of a Worker have stored, read from outside.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::tempdir;
use tidegate::local::workspace;

/// The number of states that all objects have stored.
pub(crate) fn count(storage: &Path) -> i64 {
    selected(storage, "SELECT COUNT(*) FROM states")
}

/// The sum of the number that a query selects from the database of each object. It reads copies, because a lock of ours
/// makes the storage of a running object fail.
pub(crate) fn selected(storage: &Path, query: &str) -> i64 {
    let copies = tempdir().unwrap();
    let databases: Vec<_> =
        databases(storage).iter().map(|database| copy(database, copies.path())).collect();
    run(&databases, query)
}

/// Runs a statement on the database of each object, which must be idle. Returns how many rows it changed.
pub(crate) fn sql(storage: &Path, statement: &str) -> i64 {
    run(&databases(storage), statement)
}

fn databases(storage: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(storage.join("tidegate-keys")).unwrap().flatten();
    let is_database = |path: &PathBuf| {
        path.extension().is_some_and(|end| end == "sqlite") && !path.ends_with("metadata.sqlite")
    };
    files.map(|file| file.path()).filter(is_database).collect()
}

/// Copies a database and its log of writes, at a moment at which neither changes.
fn copy(database: &Path, into: &Path) -> PathBuf {
    let files = [database.to_owned(), database.with_extension("sqlite-wal")];
    let seen = || {
        files.each_ref().map(|file| {
            let found = fs::metadata(file).ok()?;
            Some((found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
        })
    };
    let copies = files.each_ref().map(|file| into.join(file.file_name().unwrap()));
    loop {
        let before = seen();
        for (file, copy) in files.iter().zip(&copies) {
            if fs::copy(file, copy).is_err() {
                // the object has deleted it; SQLite makes a new one of nothing
                fs::write(copy, "").unwrap();
            }
        }
        if seen() == before {
            let [database, _] = copies;
            return database;
        }
    }
}

fn run(databases: &[PathBuf], statement: &str) -> i64 {
    let script = "
        const { DatabaseSync } = require('node:sqlite');
        let sum = 0;
        for (const file of process.argv.slice(2)) {
          const database = new DatabaseSync(file);
          const tables = database.prepare(\"SELECT 1 FROM sqlite_master WHERE name = 'states'\").all();
          if (tables.length > 0) {
            const statement = database.prepare(process.argv[1]);
            sum += statement.columns().length ? Object.values(statement.get())[0] : Number(statement.run().changes);
          }
          database.close();
        }
        console.log(sum);";
    // the Node of the workspace, because the Node of the machine may be too old to have SQLite
    let output = Command::new(workspace().join("node_modules/.bin/node"))
        .args(["--no-warnings", "-e", script, "--", statement])
        .args(databases)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    text.parse().unwrap_or_else(|_| panic!("{text} {}", String::from_utf8_lossy(&output.stderr)))
}
