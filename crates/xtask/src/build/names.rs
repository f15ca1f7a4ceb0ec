//! Gives a module and the script that binds it short names for each other.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use wasm_encoder::reencode::{Error, Reencode};
use wasm_encoder::{ExportSection, ImportSection, Module};
use wasmparser::{Export, ImportSectionReader, Parser};

/// Gives short names to what wasm-bindgen named, and no longer exports what the script does not name.
pub(super) fn shorten(script: &Path, module: &Path) -> Result<()> {
    let text = fs::read_to_string(script).with_context(|| script.display().to_string())?;
    let bytes = fs::read(module).with_context(|| module.display().to_string())?;
    let named: BTreeSet<&str> = text.split(|character| !is_of_name(character)).collect();
    let mut shorter = Shorter { named, names: BTreeMap::new() };
    let mut shortened = Module::new();
    shorter.parse_core_module(&mut shortened, Parser::new(0), &bytes)?;
    fs::write(script, renamed(&text, &shorter.names))?;
    fs::write(module, shortened.finish())?;
    Ok(())
}

struct Shorter<'a> {
    /// The names in the script.
    named: BTreeSet<&'a str>,
    /// The short names, by the long ones.
    names: BTreeMap<String, String>,
}

impl Shorter<'_> {
    fn short(&mut self, name: &str) -> String {
        if !["__wb", "wasm_bindgen__"].iter().any(|of_bindgen| name.starts_with(of_bindgen)) {
            return name.to_owned(); // scripts of our own may call it
        }
        let number = self.names.len();
        self.names.entry(name.to_owned()).or_insert_with(|| format!("_{number:x}")).clone()
    }
}

impl Reencode for Shorter<'_> {
    type Error = Infallible;

    fn parse_import_section(
        &mut self,
        imports: &mut ImportSection,
        section: ImportSectionReader<'_>,
    ) -> Result<(), Error> {
        for import in section.into_imports() {
            let import = import?;
            let name = self.short(import.name);
            imports.import(import.module, &name, self.entity_type(import.ty)?);
        }
        Ok(())
    }

    fn parse_export(
        &mut self,
        exports: &mut ExportSection,
        export: Export<'_>,
    ) -> Result<(), Error> {
        if self.named.contains(export.name) {
            let name = self.short(export.name);
            exports.export(
                &name,
                self.export_kind(export.kind)?,
                self.external_index(export.kind, export.index)?,
            );
        }
        Ok(())
    }
}

/// The text with these names in place of others.
fn renamed(text: &str, names: &BTreeMap<String, String>) -> String {
    let mut renamed = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(is_of_name) {
        let (before, from) = rest.split_at(start);
        let end = from.find(|character| !is_of_name(character)).unwrap_or(from.len());
        let (name, after) = from.split_at(end);
        renamed.push_str(before);
        renamed.push_str(names.get(name).map_or(name, String::as_str));
        rest = after;
    }
    renamed + rest
}

fn is_of_name(character: char) -> bool {
    character.is_alphanumeric() || "_$".contains(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_names_are_replaced() {
        let names = BTreeMap::from([("__wbg_now_1a".to_owned(), "_0".to_owned())]);
        assert_eq!(
            renamed("({__wbg_now_1a:f,__wbg_now_1ab:g});h.__wbg_now_1a", &names),
            "({_0:f,__wbg_now_1ab:g});h._0"
        );
    }
}
