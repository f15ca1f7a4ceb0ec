//! Tests that the documents are true: their commands print the output that they show, their links have a
//! target, and the commands and options that they name exist.
//!
//! An HTML comment above a block, which readers do not see, says what the block is.
//!
//! - `<!-- run -->`: shell commands that must succeed. They run in a folder with copies of the files they
//!   need, with the built programs for `cargo run`, and with a private server for 127.0.0.1:8080.
//! - `<!-- accepted -->`, `<!-- refused -->`: a policy file that must be valid, or must be invalid.
//! - `<!-- output -->`: the output of the block before. `…` stands for any text within a line, and alone on
//!   a line for any lines.

mod keys;
mod sliding;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::panic::{catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::UNIX_EPOCH;

use tempfile::TempDir;
use tidegate_tests::{blocks, command, file, rows};

const DOCUMENTS: [&str; 22] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "KNOWN-LIMITATIONS.md",
    "RELEASING.md",
    "SECURITY.md",
    "crates/core/README.md",
    "crates/gate/README.md",
    "crates/tier/README.md",
    "host/README.md",
    "docs/algorithms.md",
    "docs/benchmarks.md",
    "docs/compare.md",
    "docs/costs.md",
    "docs/gateway.md",
    "docs/http.md",
    "docs/llm.md",
    "docs/modes.md",
    "docs/operations.md",
    "docs/policies.md",
    "docs/services.md",
];

#[test]
fn the_commands_of_the_readme_print_what_it_says() {
    assert_eq!(run_blocks("README.md"), 1);
}

#[test]
fn the_commands_of_contributing_print_what_it_says() {
    assert_eq!(run_blocks("CONTRIBUTING.md"), 3);
}

#[test]
fn the_commands_of_docs_http_print_what_it_says() {
    assert_eq!(run_blocks("docs/http.md"), 9);
}

#[test]
fn the_commands_of_docs_services_print_what_it_says() {
    assert_eq!(run_blocks("docs/services.md"), 3);
}

#[test]
fn the_file_of_docs_gateway_is_described_as_it_says() {
    assert_eq!(run_blocks("docs/gateway.md"), 5);
}

#[test]
fn the_files_of_docs_llm_are_valid() {
    assert_eq!(run_blocks("docs/llm.md"), 2);
}

#[test]
fn the_commands_and_errors_of_docs_policies_are_those_of_the_program() {
    assert_eq!(run_blocks("docs/policies.md"), 13);
    let text = read("docs/policies.md");
    let rows = rows(&text, "<!-- each row is refused -->");
    assert_eq!(rows.len(), 33);
    for [fragment, message] in rows.iter().filter_map(|row| row.first_chunk()) {
        let (limits, rest) = match fragment {
            limit if limit.starts_with('{') => (limit.as_str(), ""),
            field => {
                ("{ algorithm = \"fixed_window\", limit = 5, period = \"1s\" }", field.as_str())
            }
        };
        let limits = if rest.starts_with("limits") { "" } else { &format!("limits = [{limits}]") };
        let found = refusal(&format!("[policies.a]\n{limits}\n{rest}\n"));
        assert!(found.starts_with("error: policies.toml: line "), "{fragment}\n{found}");
        assert!(found.contains(message.as_str()), "{fragment}\n{found}\n{message}");
    }
}

#[test]
fn the_picture_and_the_pages_show_the_same_benchmarks() {
    let picture = read("docs/benchmarks.svg");
    let rows_of_readme = rows(&read("README.md"), "<!-- as in the picture -->");
    assert!(rows_of_readme.len() > 3);
    for row in rows_of_readme {
        let [name, ratios @ ..] = &*row else { unreachable!() };
        let label = format!(">{name}</text>");
        let (_, shown) = picture.split_once(&label).unwrap_or_else(|| panic!("no row {name}"));
        let shown = shown.split("text x=\"230\"").next().unwrap();
        for ratio in ratios {
            assert!(shown.contains(&format!(">{ratio}</text>")), "{name}: {ratio}");
        }
    }
    let page = read("docs/benchmarks.md");
    let shown = picture.split("text-anchor=\"start\">").filter_map(|rest| rest.split('<').next());
    let ratios: Vec<_> = shown.filter(|text| text.parse::<f64>().is_ok()).collect();
    assert!(ratios.len() > 20);
    for ratio in ratios {
        assert!(page.contains(&format!("| {ratio} |")), "the picture shows {ratio}");
    }
}

#[test]
fn the_sliding_window_is_off_as_docs_algorithms_says() {
    let text = read("docs/algorithms.md");
    let shown = rows(&text, "<!-- sliding window, measured -->");
    let measured: Vec<_> = sliding::loads().iter().flat_map(sliding::Load::rows).collect();
    let table: String = measured
        .iter()
        .fold(String::new(), |table, row| table + &format!("| {} |\n", row.join(" | ")));
    assert_eq!(shown, measured, "the table should be\n{table}");
}

#[test]
fn every_link_has_a_target() {
    let mut links = 0;
    for document in DOCUMENTS.iter().chain(&[
        "crates/wasm/npm/README.md",
        "tests/data/README.md",
        "tests/vectors/README.md",
    ]) {
        for target in read(document).split("](").skip(1) {
            let target = target.split(')').next().unwrap();
            if target.starts_with("http") {
                continue;
            }
            links += 1;
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let folder = workspace().join(document).parent().unwrap().to_owned();
            let path = if path.is_empty() { workspace().join(document) } else { folder.join(path) };
            assert!(path.exists(), "{document}: {target}");
            if !anchor.is_empty() {
                let text = fs::read_to_string(&path).unwrap();
                assert!(text.lines().any(|line| slug(line) == anchor), "{document}: {target}");
            }
        }
    }
    assert!(links > 20, "{links}");
}

#[test]
fn every_command_and_option_exists() {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let xtask = |arguments: &[&str]| {
        let mut run = Command::new(&cargo);
        run.args(["run", "--quiet", "--package", "tidegate-xtask", "--"]).args(arguments);
        help(run.arg("--help").current_dir(workspace()))
    };
    let tidegate = |arguments: &[&str]| help(Command::new(command()).args(arguments).arg("--help"));
    let mut used = 0;
    for document in DOCUMENTS {
        let text = read(document);
        used += commands_exist(document, &text, &["cargo xtask "], &xtask);
        let prefixes = ["-p tidegate -- ", "-p tidegate --features replay -- ", "`tidegate "];
        used += commands_exist(document, &text, &prefixes, &tidegate);
    }
    assert!(used > 20, "{used}");
}

/// Runs the marked blocks of a document in their order, and returns how many there are. Blocks that fail are run once more if a window
/// of the documents' policies ended meanwhile.
fn run_blocks(document: &str) -> usize {
    let windows = || UNIX_EPOCH.elapsed().unwrap().as_secs() / (5 * 60); // the shortest segment
    let began = windows();
    catch_unwind(|| run_each_block(document)).unwrap_or_else(|failed| match windows() == began {
        true => resume_unwind(failed),
        false => run_each_block(document),
    })
}

fn run_each_block(document: &str) -> usize {
    let text = read(document);
    let folder = Folder::new();
    let server = Server::start(&folder);
    let mut printed: Option<String> = None;
    let mut ran = 0;
    for block in blocks(&text) {
        let at = format!("{document}:{}", block.line);
        match block.mark.as_str() {
            "run" => {
                ran += 1;
                let output = folder.shell(&block.text, &server);
                let text = String::from_utf8(output.stdout).unwrap();
                let error = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{at}: {}\n{text}{error}", output.status);
                printed = Some(text);
            }
            "accepted" => {
                ran += 1;
                let output = check(&block.text);
                let error = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{at}: {error}");
                printed = Some(String::from_utf8_lossy(&output.stdout).into_owned());
            }
            "refused" => {
                ran += 1;
                printed = Some(refusal(&block.text));
            }
            "output" => {
                let printed = printed.take().unwrap_or_else(|| {
                    panic!("{at}: expected a block that prints before `output`")
                });
                let (expected, found): (Vec<_>, Vec<_>) =
                    (block.text.lines().collect(), printed.trim_end().lines().collect());
                assert!(lines_match(&expected, &found), "{at}: the block prints\n{printed}");
            }
            _ => printed = None,
        }
    }
    ran
}

/// Runs `tidegate check` on a policy file.
fn check(policies: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("policies.toml"), policies).unwrap();
    Command::new(command()).arg("check").current_dir(&folder).output().unwrap()
}

/// The error of the command for a policy file that it must refuse.
fn refusal(policies: &str) -> String {
    let output = check(policies);
    assert_eq!(output.status.code(), Some(2), "{policies}");
    String::from_utf8(output.stderr).unwrap()
}

/// A folder with the files that the commands name. The commands may write files into it.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["policies.toml", "tests"] {
            symlink(workspace().join(name), folder.path().join(name)).unwrap();
        }
        Self(folder)
    }

    fn shell(&self, script: &str, server: &Server) -> Output {
        let tidegate = command().display().to_string();
        let script = script
            .replace("cargo run -p tidegate-tests --bin trace", env!("CARGO_BIN_EXE_trace"))
            .replace("cargo run -q -p tidegate --features replay --", &tidegate)
            .replace("cargo run -p tidegate --features replay --", &tidegate)
            .replace("cargo run -q -p tidegate --", &tidegate)
            .replace("cargo run -p tidegate --", &tidegate)
            .replace("http://127.0.0.1:8080", &server.url);
        assert!(!script.contains("cargo"), "a test must not run cargo: {script}");
        let mut shell = Command::new("sh");
        shell
            .args(["-e", "-c", &script])
            .current_dir(&self.0)
            .env_remove("TIDEGATE_TOKEN")
            .env_remove("TIDEGATE_ADMIN_TOKEN");
        shell.output().unwrap()
    }
}

/// `tidegate serve` as the documents start it, but on a free port.
struct Server {
    process: Child,
    url: String,
}

impl Server {
    fn start(folder: &Folder) -> Self {
        let mut process = Command::new(command())
            .args(["serve", "--listen", "127.0.0.1:0"])
            .current_dir(&folder.0)
            .env_remove("TIDEGATE_TOKEN")
            .env_remove("TIDEGATE_ADMIN_TOKEN")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.strip_prefix("listening on ").and_then(|rest| rest.split(',').next());
        let url = url.unwrap_or_else(|| panic!("it says {line:?}")).to_owned();
        Self { process, url }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill(); // the server may have ended by itself
        let _ = self.process.wait();
    }
}

fn lines_match(expected: &[&str], found: &[&str]) -> bool {
    match expected {
        [] => found.is_empty(),
        ["…", rest @ ..] => (0..=found.len()).any(|skip| lines_match(rest, &found[skip..])),
        [line, rest @ ..] => found
            .split_first()
            .is_some_and(|(first, others)| line_matches(line, first) && lines_match(rest, others)),
    }
}

fn line_matches(expected: &str, found: &str) -> bool {
    let Some((start, rest)) = expected.split_once('…') else { return expected == found };
    let Some(mut found) = found.strip_prefix(start) else { return false };
    let mut parts: Vec<&str> = rest.split('…').collect();
    let end = parts.pop().unwrap();
    for part in parts {
        let Some((_, after)) = found.split_once(part) else { return false };
        found = after;
    }
    found.ends_with(end)
}

/// The help of a program, which lists its subcommands under `Commands:`.
fn help(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Checks that each command after one of the prefixes, and each option after the command up to the end of the
/// code or the line, is in the program's help. Returns the number of commands.
fn commands_exist(
    document: &str,
    text: &str,
    prefixes: &[&str],
    help: &dyn Fn(&[&str]) -> String,
) -> usize {
    let all = help(&[]);
    let mut helps: BTreeMap<String, String> = BTreeMap::new();
    let mut used = 0;
    for rest in prefixes.iter().flat_map(|prefix| text.split(prefix).skip(1)) {
        let line = rest.lines().next().unwrap_or_default();
        let code = line.split(['`', '#', '|']).next().unwrap_or_default();
        let mut words = code.split_whitespace();
        let Some(name) = words.next().filter(|name| name.bytes().all(|b| b.is_ascii_lowercase()))
        else {
            continue;
        };
        used += 1;
        assert!(
            all.lines().any(|line| line.trim_start().starts_with(&format!("{name} "))),
            "{document}: unknown command {name}"
        );
        let own = helps.entry(name.to_owned()).or_insert_with(|| help(&[name]));
        for option in words.map(|word| word.trim_matches(['[', ']'])) {
            assert!(
                !option.starts_with("--") || own.contains(option),
                "{document}: {name} has no {option}"
            );
        }
    }
    used
}

/// The anchor of a heading, as GitHub makes it.
fn slug(line: &str) -> String {
    let heading = line.strip_prefix('#').map_or("", |heading| heading.trim_start_matches('#'));
    let kept = heading.trim().to_lowercase();
    kept.chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

fn read(document: &str) -> String {
    fs::read_to_string(workspace().join(document))
        .unwrap_or_else(|error| panic!("{document}: {error}"))
}

fn workspace() -> PathBuf {
    file("..").canonicalize().unwrap_or_else(|_| Path::new("..").to_owned())
}
