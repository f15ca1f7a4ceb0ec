//! Circles of imports: files of a crate that need each other, so that none can be read first.
//!
//! Each path in a file, in `use` or in code, is followed through re-exports to the file that defines its name. A pair of
//! files may need each other, such as a type and what it is made from. More than two is an error. Tests do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::slice;

use anyhow::{Context, Result, bail};
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprLit, Item, ItemUse, Lit, UseTree};

/// The most files in a circle.
const MOST: usize = 2;

/// A module: its name, from the crate's root on.
type Name = Vec<String>;

/// A module in a file of its own, and where it is, if that is written down.
type Child = (String, Option<String>);

#[derive(Default)]
struct Module {
    file: PathBuf,
    items: BTreeSet<String>,
    /// What each name that is in scope stands for, as it is written.
    imports: BTreeMap<String, Name>,
    globs: Vec<Name>,
    /// All paths, as they are written.
    paths: BTreeSet<Name>,
}

/// Checks the crates of these folders.
///
/// # Errors
/// Names each circle of more than two files.
pub(super) fn check(folders: &[PathBuf]) -> Result<()> {
    let mut circles = Vec::new();
    let roots = folders
        .iter()
        .flat_map(|folder| ["src/lib.rs", "src/main.rs"].map(|root| folder.join(root)));
    for root in roots.filter(|root| root.exists()) {
        let modules = modules(&root)?;
        let imports = imports(&modules);
        let circle = |files: &BTreeSet<&Path>| (files.len() > MOST).then(|| shown(files, &imports));
        circles.extend(groups(&imports).iter().filter_map(circle));
    }
    if circles.is_empty() {
        return Ok(());
    }
    bail!("expected circles of at most {MOST} files\n{}", circles.join("\n"))
}

fn shown(files: &BTreeSet<&Path>, imports: &BTreeMap<&Path, BTreeSet<&Path>>) -> String {
    let name = |file: &Path| file.file_stem().unwrap_or_default().display().to_string();
    let line = |file: &&Path| {
        let needed =
            imports.get(file).into_iter().flatten().filter(|needed| files.contains(*needed));
        let needed: Vec<_> = needed.map(|needed| name(needed)).collect();
        format!("\n  {} imports {}", file.display(), needed.join(", "))
    };
    let lines = files.iter().map(line).collect::<String>();
    format!("{} files import each other in a circle:{lines}", files.len())
}

/// All modules of a crate.
fn modules(root: &Path) -> Result<BTreeMap<Name, Module>> {
    let mut modules = BTreeMap::new();
    let folder = root.parent().context("a root is in a folder")?;
    let mut open = vec![(Name::new(), root.to_owned(), folder.to_owned())];
    while let Some((name, file, folder)) = open.pop() {
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let syntax = syn::parse_file(&text).with_context(|| file.display().to_string())?;
        let mut children = Vec::new();
        read(&name, &file, &syntax.items, &mut modules, &mut children);
        for (child, path) in children {
            let nested = folder.join(&child);
            let beside = file.parent().zip(path).map(|(beside, path)| beside.join(path));
            let candidates =
                [beside, Some(nested.with_extension("rs")), Some(nested.join("mod.rs"))];
            let found = candidates.into_iter().flatten().find(|file| file.exists());
            let found = found.with_context(|| format!("{}: no such module", nested.display()))?;
            open.push(([&name[..], &[child]].concat(), found, nested));
        }
    }
    Ok(modules)
}

/// Reads a module, and those that are written in the same file. `children` are the modules in files of their own.
fn read(
    name: &Name,
    file: &Path,
    items: &[Item],
    modules: &mut BTreeMap<Name, Module>,
    children: &mut Vec<Child>,
) {
    let mut module = Module { file: file.to_owned(), ..Module::default() };
    for item in items {
        match item {
            Item::Mod(inner) if is_test(&inner.attrs) => {}
            Item::Mod(inner) => {
                let child = [&name[..], &[inner.ident.to_string()]].concat();
                match &inner.content {
                    Some((_, items)) => read(&child, file, items, modules, children),
                    None => children.push((inner.ident.to_string(), path_of(&inner.attrs))),
                }
                continue;
            }
            Item::Use(import) => add(&mut module, import),
            _ => module.items.extend(defined(item)),
        }
        module.visit_item(item);
    }
    modules.insert(name.clone(), module);
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    })
}

fn path_of(attributes: &[Attribute]) -> Option<String> {
    let path = attributes.iter().find(|attribute| attribute.path().is_ident("path"))?;
    match &path.meta.require_name_value().ok()?.value {
        Expr::Lit(ExprLit { lit: Lit::Str(path), .. }) => Some(path.value()),
        _ => None,
    }
}

fn defined(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        _ => return None,
    };
    Some(ident.to_string())
}

fn add(module: &mut Module, import: &ItemUse) {
    let mut open = vec![(Name::new(), &import.tree)];
    while let Some((mut path, tree)) = open.pop() {
        match tree {
            UseTree::Path(part) => {
                path.push(part.ident.to_string());
                open.push((path, &part.tree));
            }
            UseTree::Group(group) => {
                open.extend(group.items.iter().map(|tree| (path.clone(), tree)));
            }
            UseTree::Glob(_) => module.globs.push(path),
            UseTree::Name(last) if last.ident == "self" => {
                module.imports.insert(path.last().cloned().unwrap_or_default(), path);
            }
            UseTree::Name(last) => {
                path.push(last.ident.to_string());
                module.imports.insert(last.ident.to_string(), path);
            }
            UseTree::Rename(last) => {
                path.push(last.ident.to_string());
                module.imports.insert(last.rename.to_string(), path);
            }
        }
    }
}

impl<'ast> Visit<'ast> for Module {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.paths.insert(path.segments.iter().map(|part| part.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_item_mod(&mut self, _: &'ast syn::ItemMod) {}
}

/// The files that each file needs.
fn imports(modules: &BTreeMap<Name, Module>) -> BTreeMap<&Path, BTreeSet<&Path>> {
    let mut all: BTreeMap<&Path, BTreeSet<&Path>> = BTreeMap::new();
    for (name, module) in modules {
        let needed = all.entry(&module.file).or_default();
        // a re-export alone needs nothing of what it names
        let names = module.paths.iter().filter_map(|path| file_of(modules, name, path, 0));
        needed.extend(names.filter(|file| *file != module.file));
    }
    all
}

/// The file that defines what the path means in a module; `None` if it is of another crate, or a module.
fn file_of<'m>(
    modules: &'m BTreeMap<Name, Module>,
    module: &[String],
    path: &[String],
    depth: u32,
) -> Option<&'m Path> {
    let (first, rest) = path.split_first()?;
    if depth > 16 {
        return None; // globs may name each other
    }
    let child = [module, slice::from_ref(first)].concat();
    match first.as_str() {
        "crate" => return file_of(modules, &[], rest, depth),
        "self" | "Self" => return file_of(modules, module, rest, depth),
        "super" => return file_of(modules, module.split_last()?.1, rest, depth),
        _ if modules.contains_key(&child) => return file_of(modules, &child, rest, depth),
        _ => {}
    }
    let scope = modules.get(module)?;
    if scope.items.contains(first) {
        return Some(&scope.file);
    }
    if let Some(import) = scope.imports.get(first) {
        return file_of(modules, module, &[import, rest].concat(), depth + 1);
    }
    let in_glob = |glob: &Name| file_of(modules, module, &[glob, path].concat(), depth + 1);
    scope.globs.iter().find_map(in_glob)
}

/// The files that reach each other.
fn groups<'m>(imports: &BTreeMap<&'m Path, BTreeSet<&'m Path>>) -> BTreeSet<BTreeSet<&'m Path>> {
    let reached = |from: &'m Path| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(file) = open.pop() {
            let next = imports.get(file).into_iter().flatten().copied();
            open.extend(next.filter(|file| seen.insert(*file)));
        }
        seen
    };
    let reached: BTreeMap<_, _> = imports.keys().map(|file| (*file, reached(file))).collect();
    let group = |(file, others): (&&'m Path, &BTreeSet<&'m Path>)| {
        let back = |other: &&&Path| reached.get(**other).is_some_and(|seen| seen.contains(file));
        others.iter().filter(back).copied().collect()
    };
    reached.iter().map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A crate in a folder of its own, of these modules.
    fn checked(name: &str, modules: &[(&str, &str)]) -> Result<()> {
        let folder = std::env::temp_dir().join(format!("circles-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join("src"))?;
        let root: String = modules.iter().map(|(name, _)| format!("mod {name};\n")).collect();
        fs::write(folder.join("src/lib.rs"), format!("{root}pub use c::C;\n"))?;
        for (name, text) in modules {
            fs::write(folder.join(format!("src/{name}.rs")), text)?;
        }
        let result = check(slice::from_ref(&folder));
        fs::remove_dir_all(folder)?;
        result
    }

    #[test]
    fn three_files_are_a_circle_also_through_a_re_export() {
        let circle = [
            ("a", "use crate::b::B; pub struct A(B);"),
            ("b", "pub struct B; fn of(_: crate::C) {}"),
            ("c", "use super::a; pub struct C(a::A);"),
        ];
        let error = checked("three", &circle).unwrap_err().to_string();
        assert!(error.contains("3 files import each other in a circle"), "{error}");
        let in_a_test = "pub struct B; #[cfg(test)] mod tests { fn of(_: crate::C) {} }";
        checked("test", &[circle[0], ("b", in_a_test), circle[2]]).unwrap();
    }

    #[test]
    fn two_files_may_need_each_other() {
        let pair = [
            ("a", "pub struct A(crate::c::C);"),
            ("c", "use crate::a::A; pub struct C; fn of(_: A) {}"),
        ];
        checked("two", &pair).unwrap();
    }
}
