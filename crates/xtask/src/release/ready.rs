//! What must agree before a release: the metadata of what is published, the versions, and the files beside them.

use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::run::{cargo, root};

/// The crates that are published, each after those that it needs.
pub(crate) const PUBLISHED: [&str; 6] = [
    "tidegate-form",
    "tidegate-core",
    "tidegate-gate",
    "tidegate-http",
    "tidegate-tier",
    "tidegate",
];

/// The version of all crates and of the npm package.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

const NPM: &str = "crates/wasm/npm";

/// The crates of the workspace, as `cargo metadata` describes them.
pub(crate) fn crates() -> Result<Vec<Value>> {
    let mut metadata = cargo(&["metadata", "--no-deps", "--offline", "--format-version", "1"]);
    let metadata: Value = serde_json::from_slice(&metadata.output()?.stdout)?;
    Ok(metadata["packages"].as_array().context("cargo metadata lists no packages")?.clone())
}

/// The oldest Rust that must build a crate.
pub(crate) fn oldest_rust(name: &str) -> Result<String> {
    Ok(text(&crates()?, name, "rust_version").to_owned())
}

/// What stands in the way of a release.
pub(crate) fn faults() -> Result<Vec<String>> {
    let read = |file: &str| fs::read_to_string(root().join(file)).context(file.to_owned());
    let crates = crates()?;
    let oldest = text(&crates, PUBLISHED[0], "rust_version");
    let mut faults: Vec<String> = crates.iter().flat_map(faults_of_crate).collect();
    for name in PUBLISHED {
        let found = text(&crates, name, "rust_version");
        if found != oldest {
            faults.push(format!("{name}: expected rust-version {oldest}, found {found}"));
        }
    }
    let manifest: Value = serde_json::from_str(&read(&format!("{NPM}/package.json"))?)?;
    faults.extend(faults_of_npm(&manifest, text(&crates, "tidegate", "repository")));
    if !read("CHANGELOG.md")?.lines().any(is_entry) {
        faults.push(format!("CHANGELOG.md: expected an entry of {VERSION}"));
    }
    let worker = "wrangler.toml";
    let date = |file: &str| {
        let text = read(file)?;
        let line = text.lines().find(|line| line.starts_with("compatibility_date"));
        anyhow::Ok(line.unwrap_or_default().to_owned())
    };
    for copy in ["template", "caller"].map(|folder| format!("{NPM}/{folder}/{worker}")) {
        let (expected, found) = (date(worker)?, date(&copy)?);
        if expected != found {
            faults.push(format!("{copy}: expected {expected}, as in {worker}; found {found:?}"));
        }
    }
    let tools: Value = serde_json::from_str(&read("package.json")?)?;
    let template: Value = serde_json::from_str(&read(&format!("{NPM}/template/package.json"))?)?;
    faults.extend(faults_of_template(&template, &tools));
    for page in ["README.md", "RELEASING.md", &format!("{NPM}/README.md")] {
        for rest in read(page)?.split("tidegate-").skip(1) {
            if let Some((version, _)) = rest.lines().next().and_then(|line| line.split_once(".tgz"))
                && version != VERSION
            {
                faults.push(format!("{page}: expected tidegate-{VERSION}.tgz, found {version}"));
            }
        }
    }
    Ok(faults)
}

/// Whether a line of the changelog is the heading of this version.
fn is_entry(line: &str) -> bool {
    let words = line.strip_prefix("## ").unwrap_or_default().split(['[', ']', ' ']);
    words.into_iter().any(|word| word == VERSION)
}

fn text<'v>(crates: &'v [Value], name: &str, field: &str) -> &'v str {
    let package = crates.iter().find(|package| package["name"] == name);
    package.and_then(|package| package[field].as_str()).unwrap_or_default()
}

fn faults_of_crate(package: &Value) -> Vec<String> {
    let name = package["name"].as_str().unwrap_or_default();
    let mut faults = Vec::new();
    let mut expect = |is_so: bool, what: &str| {
        if !is_so {
            faults.push(format!("{name}: expected {what}"));
        }
    };
    expect(package["version"] == VERSION, &format!("version {VERSION}"));
    if !PUBLISHED.contains(&name) {
        expect(package["publish"] == Value::Array(Vec::new()), "`publish = false`");
        return faults;
    }
    expect(package["publish"].is_null(), "no `publish`, because it is published");
    for field in ["description", "license", "repository", "readme", "rust_version"] {
        expect(package[field].as_str().is_some_and(|text| !text.is_empty()), field);
    }
    for (field, most) in [("keywords", 5), ("categories", 5)] {
        let words = package[field].as_array().map_or(0, Vec::len);
        expect((1..=most).contains(&words), &format!("1 to {most} {field}"));
    }
    expect(package["metadata"]["docs"]["rs"].is_object(), "[package.metadata.docs.rs]");
    let manifest = std::path::Path::new(package["manifest_path"].as_str().unwrap_or_default());
    for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
        expect(manifest.with_file_name(file).is_file(), file);
    }
    for needed in package["dependencies"].as_array().into_iter().flatten() {
        if needed["path"].is_string() && needed["kind"].is_null() {
            let other = needed["name"].as_str().unwrap_or_default();
            expect(PUBLISHED.contains(&other), &format!("no dependency on {other}, which is not"));
            let version = format!("^{VERSION}");
            expect(needed["req"] == version, &format!("version {VERSION} of {other}"));
        }
    }
    faults
}

/// The faults of the npm package. npm refuses trusted publishing if the URL is not the repository's, letter for letter.
fn faults_of_npm(manifest: &Value, repository: &str) -> Vec<String> {
    let expected = [
        ("/version", VERSION.to_owned()),
        ("/license", "MIT OR Apache-2.0".to_owned()),
        ("/repository/url", format!("git+{repository}.git")),
        ("/repository/directory", NPM.to_owned()),
        ("/bugs/url", format!("{repository}/issues")),
        ("/homepage", format!("{repository}#readme")),
    ];
    let differs = |(place, text): &(&str, String)| {
        let found = manifest.pointer(place).unwrap_or(&Value::Null);
        (found != text.as_str())
            .then(|| format!("package.json: {place}: expected {text:?}, found {found}"))
    };
    let mut faults: Vec<String> = expected.iter().filter_map(differs).collect();
    for field in ["description", "keywords"] {
        if manifest[field].is_null() {
            faults.push(format!("package.json: expected {field}"));
        }
    }
    faults
}

/// What is wrong with the template: its users should get what was tested, which is this version and the wrangler of the workspace.
fn faults_of_template(template: &Value, tools: &Value) -> Vec<String> {
    let expected = [
        ("/dependencies/tidegate", VERSION),
        (
            "/devDependencies/wrangler",
            tools["devDependencies"]["wrangler"].as_str().unwrap_or_default(),
        ),
    ];
    let differs = |(place, expected): (&str, &str)| {
        let found = template.pointer(place).unwrap_or(&Value::Null);
        (found != expected).then(|| {
            format!("template/package.json: {place}: expected {expected:?}, found {found}")
        })
    };
    expected.into_iter().filter_map(differs).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_stands_in_the_way_of_a_release() {
        assert_eq!(faults().unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_fault_of_a_crate_is_named() {
        let crates = crates().unwrap();
        let gate = crates.iter().find(|package| package["name"] == "tidegate-gate").unwrap();
        for (field, value, expected) in [
            ("publish", json!([]), "no `publish`, because it is published"),
            ("description", Value::Null, "description"),
            ("readme", json!(""), "readme"),
            ("keywords", json!(["a", "b", "c", "d", "e", "f"]), "1 to 5 keywords"),
            ("metadata", Value::Null, "[package.metadata.docs.rs]"),
            ("version", json!("0.0.9"), "version 0.1.0"),
            (
                "dependencies",
                json!([{ "name": "tidegate-core", "path": "…", "kind": null, "req": "*" }]),
                "version 0.1.0 of tidegate-core",
            ),
        ] {
            let mut package = gate.clone();
            package[field] = value;
            assert_eq!(faults_of_crate(&package), [format!("tidegate-gate: expected {expected}")]);
        }
    }

    #[test]
    fn a_crate_that_is_not_named_here_is_not_published() {
        let package = json!({ "name": "tidegate-sim", "version": VERSION, "publish": null });
        assert_eq!(faults_of_crate(&package), ["tidegate-sim: expected `publish = false`"]);
    }

    #[test]
    fn the_repository_of_the_npm_package_is_that_of_the_crates() {
        let file = fs::read_to_string(root().join(NPM).join("package.json")).unwrap();
        let manifest = serde_json::from_str(&file).unwrap();
        let faults = faults_of_npm(&manifest, "https://github.com/other/tidegate");
        assert_eq!(faults.len(), 3, "{faults:?}");
    }

    #[test]
    fn the_template_pins_what_was_tested() {
        let tools = json!({ "devDependencies": { "wrangler": "4.1.0" } });
        let pins = |wrangler| json!({ "dependencies": { "tidegate": VERSION }, "devDependencies": { "wrangler": wrangler } });
        assert_eq!(faults_of_template(&pins("4.1.0"), &tools), Vec::<String>::new());
        assert_eq!(
            faults_of_template(&pins("^4.1.0"), &tools),
            [
                r#"template/package.json: /devDependencies/wrangler: expected "4.1.0", found "^4.1.0""#
            ]
        );
    }

    #[test]
    fn a_changelog_entry_is_a_heading_with_the_version() {
        assert!(is_entry(&format!("## [{VERSION}] - 2026-12-01")));
        assert!(is_entry(&format!("## [Unreleased] {VERSION}")));
        assert!(!is_entry("## [Unreleased]"));
        assert!(!is_entry(&format!("- since {VERSION}")));
    }
}
