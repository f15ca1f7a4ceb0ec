//! The command: its output, its exit codes, its errors.

mod check;
mod config;
mod leftovers;
mod listen;
mod operated;
mod redis_server;
mod reload;
mod replay;
mod serve;

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use tidegate_tests::{HostProcess, command_in};

const POLICIES: &str = "
[policies.api]
limits = [{ algorithm = 'token_bucket', capacity = 2, rate = '1/d' }]
[policies.open]
limits = [{ algorithm = 'token_bucket', capacity = 2, rate = '1/d' }]
on_error = 'open'
";

/// A folder with a policy file, in which commands run.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("policies.toml"), POLICIES).unwrap();
        Self(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.path().join(name), text).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command_in(self.path());
        command.args(arguments);
        command
    }

    /// Runs a command, and returns its exit code, standard output and standard error.
    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        let output = self.command(arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
    }

    /// Starts a server on a free port.
    fn serve(&self, arguments: &[&str]) -> HostProcess {
        HostProcess::start(self.path(), arguments)
    }

    #[track_caller]
    fn fails(&self, arguments: &[&str], message: &str) {
        let (code, _, error) = self.run(arguments);
        assert_eq!(code, 2, "{error}");
        assert!(error.contains(message), "{arguments:?}: {error}");
    }
}

#[test]
fn every_command_helps_with_examples() {
    let folder = Folder::new();
    for command in [
        &["--help"][..],
        &["serve", "--help"],
        &["config", "--help"],
        &["check", "--help"],
        &["replay", "--help"],
        &["parity", "--help"],
    ] {
        let (code, help, _) = folder.run(command);
        assert!(code == 0 && help.contains("Example"), "{command:?}");
    }
}

#[test]
fn a_command_ends_quietly_when_its_output_is_closed() {
    let folder = Folder::new();
    folder.write("t.jsonl", "{\"t_us\":1,\"policy\":\"api\",\"key\":\"k\"}\n");
    for arguments in [&["check"][..], &["replay", "t.jsonl"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = folder.command(arguments).stdout(writer).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments:?}");
        assert_eq!(output.status.code(), Some(141), "the code that a shell reports for SIGPIPE");
    }
}

#[test]
fn errors_name_the_place_of_the_fault() {
    let folder = Folder::new();
    folder
        .fails(&["check", "--policies", "none.toml"], "none.toml: the policy file cannot be read");
    folder.write(
        "bad.toml",
        POLICIES.replace("capacity = 2, rate = '1/d'", "capacity = 0, rate = '1/d'"),
    );
    folder.fails(
        &["check", "--policies", "bad.toml"],
        "bad.toml: line 3, column 52: policies.api.limits[0].capacity: expected a whole number from 1 to \
         9007199254740991, found the integer `0`",
    );
    folder.fails(&["serve", "--policies", "bad.toml"], "bad.toml: line 3");
    let endless = "expected at most 16 MiB, found more";
    for option in ["--policies", "--config", "--revisions"] {
        folder.fails(&["serve", option, "/dev/zero"], endless);
    }
    folder.fails(&["check", "--policies", "/dev/zero"], endless);
    folder.fails(&["check", "--policies", "/dev/zero", "--compile"], endless);
    let check = |rest: &[&'static str]| [&["check", "--policy", "api"], rest].concat();
    folder.fails(&["check", "--key", "k"], "--policy: expected one of api, open; found none");
    folder
        .fails(&["check", "--policy", "x", "--key", "k"], "expected one of api, open; found \"x\"");
    folder.fails(&check(&["--key", ""]), "expected 1 to 512 bytes, found 0");
    folder.fails(
        &check(&["--key", "ip:banana"]),
        "expected an address such as 192.0.2.7 or 2001:db8::7 after `ip:`",
    );
    folder.fails(&check(&["--key", "k", "--cost", "3"]), "a cost of 3 can never be granted");
    for cost in ["-1", "1.5", "NaN", "18446744073709551616"] {
        folder.fails(&["check", "--policy", "api", "--key", "k", "--cost", cost], "--cost");
    }
    let down = "redis://127.0.0.1:1";
    folder.fails(&check(&["--key", "k", "--redis", down]), "redis");
    folder.fails(
        &check(&["--key", "k", "--redis", "nonsense"]),
        "--redis …: expected a scheme and `://`, as in `redis://HOST:PORT`",
    );
    folder.write("t.jsonl", "");
    folder.fails(&["replay", "t.jsonl", "--backend", "redis", "--redis", down], "--redis: redis: ");
    folder.fails(&["parity", "t.jsonl", "--redis", down], "redis: --redis: redis: ");
    folder.fails(
        &["replay", "t.jsonl", "--backend", "worker", "--worker", "http://127.0.0.1:1"],
        "http://127.0.0.1:1",
    );
    folder.fails(
        &["replay", "t.jsonl", "--backend", "disk"],
        "possible values: memory, redis, wasmtime, worker",
    );
    folder.fails(&["replay", "none.gz"], "none.gz");
    folder.fails(&["replay", "t.jsonl", "--policy", "x"], "expected one of api, open; found \"x\"");
    folder.fails(&["replay", "t.jsonl", "--decisions", "no/where"], "--decisions no/where");
    folder.fails(&["serve", "--listen", "0.0.0.0:0"], "no token is configured");
    folder
        .fails(&["serve", "--max-memory", "1MB"], "expected a size such as 256MiB, found \"1MB\"");
    folder.fails(
        &["serve", "--max-memory", "10KiB"],
        "--max-memory 10240, in equal parts for the 2 policies: policy \"api\": expected at least ",
    );
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    // a server that accepts its options ends because the address is taken
    let serve = |option, value| ["serve", "--listen", &taken, option, value];
    for token in ["", " a", "a ", "a\n", "a\tb", "ä"] {
        let mut serve = folder.command(&["serve", "--listen", &taken]);
        let output = serve.env("TIDEGATE_TOKEN", token).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains("TIDEGATE_TOKEN"), "{error}");
        assert!(error.contains("expected printable ASCII without spaces around it"), "{error}");
    }
    folder.fails(&serve("--token", ""), "found an empty text");
    folder.fails(&serve("--log-secret", ""), "a value is required for '--log-secret <SECRET>'");
    for option in ["--redis-deadline", "--redis-max-skew"] {
        folder.fails(&serve(option, "100"), "--redis <URL>");
    }
    folder.fails(
        &["serve", "--redis", down, "--max-memory", "1GiB"],
        "'--redis <URL>' cannot be used with '--max-memory <SIZE>'",
    );
    folder.fails(
        &["replay", "t.jsonl", "--redis", down],
        "--redis: expected --backend redis, found --backend memory",
    );
    folder.fails(
        &["replay", "t.jsonl", "--backend", "redis", "--worker", "http://127.0.0.1:1"],
        "--worker: expected --backend worker, found --backend redis",
    );
    folder.fails(&["serve", "--listen", "nowhere"], "--listen");
    folder.fails(
        &["serve", "--redis", "nonsense"],
        "--redis …: expected a scheme and `://`, as in `redis://HOST:PORT`",
    );
}

#[test]
fn a_password_is_not_shown() {
    let folder = Folder::new();
    let url = "redis://user:hunter2@127.0.0.1:1";
    for arguments in [
        &["check", "--policy", "api", "--key", "k", "--redis", url][..],
        &["replay", "policies.toml", "--policy", "api", "--backend", "redis", "--redis", url],
        &["check", "--policy", "api", "--key", "k", "--redis", "nonsense://user:hunter2@x"],
        &["check", "--policy", "api", "--key", "k", "--redis", "redis:hunter2@x:6379"],
        &["serve", "--redis", "hunter2@x:6379"],
        &["serve", "--redis", "nonsense://x?pass=hunter2"],
    ] {
        let (code, out, error) = folder.run(arguments);
        assert!(code == 2 && !(out + &error).contains("hunter2"), "{error}");
    }
    for (url, shown) in [
        (url, "states in redis://…@127.0.0.1:1,"),
        ("redis+unix:///no/where?pass=hunter2", "states in redis+unix:///no/where?…,"),
    ] {
        let line = folder.serve(&["--redis", url]).line;
        assert!(line.contains(shown), "{line}");
    }
}
