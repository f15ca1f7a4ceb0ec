//! The files of which the Worker consists.

use std::path::Path;
use std::{fs, io};

/// The files of the Worker, in its folder: its entry first, then the built files, and all scripts beside the entry.
pub(crate) fn worker_files(workspace: &Path) -> io::Result<Vec<String>> {
    let built = ["index.js", "build/index.js", "build/index_bg.wasm", "build/fields.js"];
    let mut files = built.map(str::to_owned).to_vec();
    for script in fs::read_dir(workspace.join("worker"))? {
        let name = script?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".js") && name != "index.js" {
            files.push(name);
        }
    }
    Ok(files)
}
