//! The arguments of a benchmark that prints a table.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// How long each section is measured, and the file for the figures.
pub(crate) fn arguments(
    mut words: impl Iterator<Item = String>,
) -> Result<(Duration, Option<PathBuf>)> {
    let (mut section, mut json) = (Duration::from_secs(2), None);
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("`{word}`: expected a value"));
        match word.as_str() {
            "--bench" => {} // cargo adds it
            "--seconds" => section = Duration::try_from_secs_f64(value()?.parse()?)?,
            "--json" => json = Some(value()?.into()),
            _ => bail!("expected --seconds or --json, found {word:?}"),
        }
    }
    Ok((section, json))
}
