//! `cargo xtask release --dry-run`: tries everything that a release needs and publishes nothing. RELEASING.md says what
//! only the owner can do, and this command ends with it.

mod ready;

use std::env;
use std::fs;

use anyhow::{Context, Result, bail, ensure};

use self::ready::VERSION;
pub(crate) use self::ready::{PUBLISHED, oldest_rust};
use crate::run::{cargo, command, output, root, step, target};
use crate::{build, install, notices};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Try everything and publish nothing. Without it the command only says what the owner has to do
    #[arg(long)]
    dry_run: bool,
    /// Do not check advisories, where their database cannot be fetched
    #[arg(long)]
    offline: bool,
}

/// Does what it can and returns what it has found.
type Step = fn(&Arguments) -> Result<String>;

const STEPS: [(&str, Step); 8] = [
    ("metadata and versions", ready),
    ("licences and sources", licences),
    ("notices", notices),
    ("advisories", advisories),
    ("crates", crates),
    ("API pages", pages),
    ("semver", semver),
    ("npm", npm),
];

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let owner = owners_part()?;
    if !arguments.dry_run {
        bail!("only the owner publishes; `cargo xtask release --dry-run` tries it\n\n{owner}");
    }
    let changed = output("git", &["status", "--porcelain"]).context("git status failed")?;
    ensure!(
        changed.is_empty(),
        "expected a clean checkout, found changes; commit them:\n{changed}"
    );
    let outcomes = STEPS.map(|(what, step)| (what, step(arguments)));
    println!("\n{owner}\nRelease {VERSION}, tried without publishing:");
    let mut failed = 0;
    for (what, outcome) in &outcomes {
        match outcome {
            Ok(found) => println!("  {what}: {found}"),
            Err(error) => {
                failed += 1;
                println!("  {what}: FAILED: {error:#}");
            }
        }
    }
    ensure!(failed == 0, "{failed} of {} steps failed", outcomes.len());
    Ok(())
}

/// The section of RELEASING.md for the owner.
fn owners_part() -> Result<String> {
    let page = fs::read_to_string(root().join("RELEASING.md")).context("RELEASING.md")?;
    let (_, section) = page
        .split_once("## What only the owner can do\n")
        .context("RELEASING.md: expected a section \"What only the owner can do\"")?;
    let section = section.split("\n## ").next().unwrap_or_default();
    Ok(format!("What only the owner can do (RELEASING.md):\n{section}"))
}

fn ready(_: &Arguments) -> Result<String> {
    let faults = ready::faults()?;
    ensure!(faults.is_empty(), "{}", faults.join("; "));
    Ok(format!("{VERSION} in the crates, the npm package and the changelog"))
}

/// Packs the crates, and builds each from its package, with the packages of the others in place of crates.io.
fn crates(_: &Arguments) -> Result<String> {
    let mut package = cargo(&["package", "--locked"]);
    package.args(PUBLISHED.iter().flat_map(|name| ["--package", name]));
    step("pack the crates and build each from its package", &mut package)?;
    let folder = target()?.join("package");
    Ok(format!("{} built from their packages in {}", PUBLISHED.join(", "), folder.display()))
}

/// Makes the pages that docs.rs will make, without a broken link.
fn pages(_: &Arguments) -> Result<String> {
    let mut doc = cargo(&["doc", "--locked", "--no-deps", "--all-features"]);
    doc.args(PUBLISHED.iter().flat_map(|name| ["--package", name]));
    step("make the API pages of the crates", doc.env("RUSTDOCFLAGS", "-D warnings"))?;
    Ok(format!("in {}", target()?.join("doc").display()))
}

/// Installs the tarball in an empty project, and asks it for a grant and a refusal.
fn npm(_: &Arguments) -> Result<String> {
    let tarball = build::pack()?;
    // outside of the workspace, whose node_modules would hide a package that is missing
    let project = env::temp_dir().join(format!("tidegate-release-{}", std::process::id()));
    fs::create_dir_all(&project)?;
    fs::write(project.join("package.json"), r#"{ "private": true }"#)?;
    let mut install = command("npm", &["install", "--no-audit", "--no-fund"]);
    let installed = step(
        "install the tarball in an empty project",
        install.arg(&tarball).current_dir(&project),
    );
    let tried = installed.and_then(|()| {
        let import = format!(r#"import {{ Limiter }} from "tidegate"; {TRY}"#);
        let require = format!(r#"const {{ Limiter }} = require("tidegate"); {TRY}"#);
        for (kind, script) in [("module", import), ("commonjs", require)] {
            let mut node =
                command("node", &[&format!("--input-type={kind}"), "--eval", script.as_str()]);
            step(&format!("import it in a {kind}"), node.current_dir(&project))?;
        }
        Ok(())
    });
    fs::remove_dir_all(&project)?;
    tried?;
    Ok(format!("{} installed in an empty project, and imported", tarball.display()))
}

const TRY: &str = r#"
const limiter = new Limiter({ limits: [{ algorithm: "fixed_window", limit: 1, period: "1h" }] });
const answers = [1, 2].map(() => limiter.check("user:42").allowed).join();
if (answers !== "true,false") throw new Error(`expected a grant and a refusal, found ${answers}`);
"#;

/// Compares the public names of the crates with those of the newest release.
fn semver(_: &Arguments) -> Result<String> {
    let is_shallow = output("git", &["rev-parse", "--is-shallow-repository"]);
    ensure!(
        is_shallow.as_deref() == Some("false"),
        "expected the whole history, found a part: git fetch --unshallow --tags"
    );
    let Some(tag) = output("git", &["describe", "--tags", "--abbrev=0", "--match", "v*"]) else {
        return Ok("NOT CHECKED: no tag v*, so there is no release to compare with".to_owned());
    };
    let mut check = command(&install::cargo_semver_checks()?.to_string_lossy(), &[]);
    check.args(["semver-checks", "--baseline-rev", &tag]);
    check.args(PUBLISHED.iter().flat_map(|name| ["--package", name]));
    step(&format!("compare the public names with {tag}"), &mut check)?;
    Ok(format!("compatible with {tag}"))
}

fn licences(_: &Arguments) -> Result<String> {
    deny(&["bans", "licenses", "sources"])?;
    Ok("as deny.toml allows".to_owned())
}

fn notices(_: &Arguments) -> Result<String> {
    notices::check()?;
    Ok("THIRD-PARTY.txt has the licences of all code that is compiled in".to_owned())
}

fn advisories(arguments: &Arguments) -> Result<String> {
    if arguments.offline {
        return Ok("NOT CHECKED, because of --offline: check them before you publish".to_owned());
    }
    deny(&["advisories"]).context(
        "if the database cannot be fetched here, use --offline, and check advisories elsewhere",
    )?;
    Ok("none, by the database of today".to_owned())
}

fn deny(checks: &[&str]) -> Result<()> {
    let mut deny = command(&install::cargo_deny()?.to_string_lossy(), &["--locked", "check"]);
    step(&format!("check {}", checks.join(", ")), deny.args(checks))
}
