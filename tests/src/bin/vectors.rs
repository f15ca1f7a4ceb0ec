//! Writes the answers and states of all vectors anew, from their policies and steps.

use std::fs;

use tidegate_tests::vectors::Vectors;

fn main() -> anyhow::Result<()> {
    for vectors in Vectors::all() {
        let text = vectors.generated();
        if fs::read_to_string(&vectors.path)? != text {
            fs::write(&vectors.path, text)?;
            println!("{}: {} steps, rewritten", vectors.name, vectors.steps.len());
        }
    }
    Ok(())
}
