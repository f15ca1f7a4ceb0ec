//! To which part of the source each function of a module belongs, by the names that a compiler leaves for debuggers.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use anyhow::Result;
use wasmparser::{ExternalKind, KnownCustom, Name, Parser, Payload, TypeRef};

/// What a module of WebAssembly is made of.
#[derive(Default)]
pub(super) struct Module {
    /// The length of the module without its names.
    pub(super) bytes: usize,
    /// The length of its data section.
    pub(super) data: usize,
    /// The lengths of its functions, without those that it imports.
    functions: Vec<usize>,
    imported: u32,
    exported: BTreeSet<u32>,
    names: BTreeMap<u32, String>,
}

impl Module {
    pub(super) fn read(bytes: &[u8]) -> Result<Self> {
        let mut module = Self { bytes: bytes.len(), ..Self::default() };
        for payload in Parser::new(0).parse_all(bytes) {
            match payload? {
                Payload::ImportSection(imports) => {
                    for import in imports.into_imports() {
                        module.imported += u32::from(matches!(import?.ty, TypeRef::Func(_)));
                    }
                }
                Payload::ExportSection(exports) => {
                    for export in exports {
                        let export = export?;
                        if export.kind == ExternalKind::Func {
                            module.exported.insert(export.index);
                        }
                    }
                }
                Payload::CodeSectionEntry(body) => module.functions.push(length(&body.range())?),
                Payload::DataSection(data) => module.data = length(&data.range())?,
                Payload::CustomSection(section) => {
                    if let KnownCustom::Name(names) = section.as_known() {
                        for name in names {
                            if let Name::Function(functions) = name? {
                                for function in functions {
                                    let function = function?;
                                    module.names.insert(function.index, function.name.to_owned());
                                }
                            }
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(module)
    }

    /// The bytes of code.
    pub(super) fn code(&self) -> usize {
        self.functions.iter().sum()
    }

    /// The bytes of code of each part.
    pub(super) fn parts(&self) -> BTreeMap<String, usize> {
        let mut parts = BTreeMap::new();
        for (index, bytes) in (self.imported..).zip(&self.functions) {
            let name = self.names.get(&index).map_or("", String::as_str);
            *parts.entry(part(name, self.exported.contains(&index))).or_default() += bytes;
        }
        parts
    }
}

/// The crate of a function, and its module if the crate is of this workspace or of Rust's standard library.
fn part(name: &str, is_exported: bool) -> String {
    if !name.contains("::") && is_exported && !name.starts_with("__") {
        return "tidegate-wasm".to_owned(); // what JavaScript calls has a name of its own
    }
    let path = path(name);
    let mut segments = path.split("::");
    let first = segments.next().unwrap_or_default();
    match first {
        "compiler_builtins" | "__rustc" => "std".to_owned(),
        "dlmalloc" => "allocator (dlmalloc)".to_owned(),
        "serde" | "serde_core" | "serde_json" => "serde".to_owned(),
        _ if segments.clone().next().is_none() => "std".to_owned(), // a type or function without a crate, such as `u64`
        "tidegate_wasm" | "tidegate_wasm_toml" => first.replace('_', "-"),
        "alloc" | "core" | "std" => with_module("std", segments.next()),
        _ if first.starts_with("tidegate_") => {
            with_module(&first.replace('_', "-"), segments.next())
        }
        _ => first.to_owned(),
    }
}

fn with_module(name: &str, next: Option<&str>) -> String {
    match next.filter(|module| module.starts_with(char::is_lowercase)) {
        Some(module) => format!("{name}::{module}"),
        None => name.to_owned(),
    }
}

/// The path of a function, or that of the type in `<TYPE as TRAIT>::function`; that of the trait if any type has the function.
fn path(name: &str) -> String {
    let name = name.trim_start_matches(['<', '&', '*', '[', '(']);
    let name = ["mut ", "const ", "dyn ", "impl "]
        .iter()
        .fold(name, |name, word| name.trim_start_matches(word));
    // the compiler adds `[1a2b3c…]` to the names of crates
    let mut path = String::new();
    let mut is_hash = false;
    for character in name.chars() {
        match character {
            '[' => is_hash = true,
            ']' if is_hash => is_hash = false,
            _ if is_hash => {}
            ':' | '_' | 'a'..='z' | 'A'..='Z' | '0'..='9' => path.push(character),
            _ => break,
        }
    }
    match name.split_once(" as ") {
        Some((ty, of)) if !ty.contains("::") && ty.starts_with(char::is_uppercase) => {
            self::path(of)
        }
        _ => path,
    }
}

fn length(range: &Range<u64>) -> Result<usize> {
    Ok(usize::try_from(range.end.saturating_sub(range.start))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_belongs_to_the_part_of_its_source() {
        for (name, expected) in [
            (
                "tidegate_gate::policy::limit::LimitEntry::new::h24b0dce23dd4092f",
                "tidegate-gate::policy",
            ),
            (
                "tidegate_gate::limits::<impl tidegate_gate::Limits>::operate",
                "tidegate-gate::limits",
            ),
            (
                "<tidegate_core::bucket::Config as core::fmt::Debug>::fmt::h1",
                "tidegate-core::bucket",
            ),
            ("tidegate_gate::Answer::new::h1", "tidegate-gate"),
            ("tidegate_wasm::limiter::parsed::h1", "tidegate-wasm"),
            ("nativelimiter_check", "tidegate-wasm"),
            (
                "<dlmalloc[e24a27700634d609]::dlmalloc::Dlmalloc<dlmalloc[e24a]::sys::System>>::malloc",
                "allocator (dlmalloc)",
            ),
            (
                "<core[c5930c85a12de822]::net::ip_addr::Ipv6Addr as core[c59]::fmt::Display>::fmt",
                "std::net",
            ),
            ("__rustc[b7974e8690430dd9]::__rust_realloc", "std"),
            (
                "<&mut serde_core::de::value::MapDeserializer<I,E> as serde_core::de::Deserializer>::x",
                "serde",
            ),
            ("<D as digest::digest::Digest>::finalize::hedb7504a4ab7ac9b", "digest"),
            ("<u64>::from_ascii_radix", "std"),
            ("<str as core[c5930c85a12de822]::fmt::Debug>::fmt", "std"),
            ("memcpy", "std"),
            ("__wbindgen_malloc", "std"),
            ("toml_parser::parser::document::on_scalar::h1", "toml_parser"),
            ("", "std"),
        ] {
            assert_eq!(part(name, name == "nativelimiter_check"), expected, "{name}");
        }
    }
}
