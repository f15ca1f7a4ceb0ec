//! The command: its output, its exit codes, its errors.

mod config;
mod leftovers;
mod listen;
mod operated;
mod redis_server;
mod reload;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use tidegate::local::{RedisServer, Workerd, WorkerdOptions};
use tidegate_tests::{Api, command, file, rows};

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
        let mut command = Command::new(command());
        command
            .args(arguments)
            .current_dir(self.path())
            .env_remove("TIDEGATE_TOKEN")
            .env_remove("TIDEGATE_ADMIN_TOKEN");
        command
    }

    /// Runs a command, and returns its exit code, standard output and standard error.
    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        let output = self.command(arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
    }

    /// Starts a server on a free port, without a token.
    fn serve(&self, arguments: &[&str]) -> (Child, Api) {
        self.serve_and_log(arguments, Stdio::piped())
    }

    fn serve_and_log(&self, arguments: &[&str], log: Stdio) -> (Child, Api) {
        let mut serve = self.command(&["serve", "--listen", "127.0.0.1:0"]);
        serve.args(arguments).stderr(log);
        Self::begin(&mut serve)
    }

    fn begin(serve: &mut Command) -> (Child, Api) {
        let mut server = serve.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.split([' ', ',']).find(|word| word.starts_with("http")).unwrap();
        (server, Api::new(url, None))
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
fn serve_helps_with_all_its_calls() {
    let (_, help, _) = Folder::new().run(&["serve", "--help"]);
    let document = fs::read_to_string(file("../docs/http.md")).unwrap();
    let calls = rows(&document, "<!-- calls -->");
    assert_eq!(calls.len(), 29);
    for call in calls {
        let (method, path) = call[0].split_once(' ').unwrap();
        let path = path.split(['?', '[']).next().unwrap();
        let has = |line: &str| {
            let mut words = line.split_whitespace();
            words.next() == Some(method)
                && words.next().and_then(|path| path.split('?').next()) == Some(path)
        };
        assert!(help.lines().any(has), "{method} {path}: {help}");
    }
}

#[test]
fn a_page_of_a_browser_blocks_no_key_of_a_server_on_loopback() {
    let (mut server, api) = Folder::new().serve(&[]);
    let block = |headers: &[(&str, &str)]| {
        let path = "/v1/keys/api/user:42/block";
        api.post_with(path, headers, r#"{"for":60000000}"#).status
    };
    // what a form or a fetch of any page can send without asking
    let simple = ("content-type", "text/plain");
    assert_eq!(block(&[simple, ("origin", "https://evil.example")]), 401);
    assert_eq!(block(&[simple, ("origin", "null")]), 401);
    assert_eq!(block(&[simple, ("sec-fetch-site", "cross-site")]), 401);
    assert_eq!(block(&[]), 200, "a program of this machine may");
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
fn a_server_that_cannot_verify_tokens_says_so_before_it_serves() {
    let folder = Folder::new();
    folder.write(
        "tokens.toml",
        "jwt = { algorithms = ['HS256'], keys = 'KEYS' }
[policies.users]
key = ['jwt:sub', 'ip']
limits = [{ algorithm = 'fixed_window', limit = 5, period = '1m' }]",
    );
    let message = "error: tokens.toml: policies.users.key: expected sources that this server can read, found a source `jwt:`";
    folder.fails(&["serve", "--listen", "127.0.0.1:0", "--policies", "tokens.toml"], message);
    assert_eq!(folder.run(&["check", "--policies", "tokens.toml"]).0, 0);
}

#[test]
fn check_says_how_many_leases_a_state_has_room_for() {
    let folder = Folder::new();
    folder.write(
        "tight.toml",
        "
[policies.p]
limits = [
  { algorithm = 'concurrency', capacity = 10, time_to_live = '1m', max_leases = 3 },
  { algorithm = 'concurrency', capacity = 5000, time_to_live = '1m' },
  { algorithm = 'concurrency', capacity = 10, time_to_live = '1m' },
  { algorithm = 'fleet_usage', capacity = 10, reserve = '20%', time_to_live = '1m', max_leases = 7 },
]",
    );
    let (code, text, _) = folder.run(&["check", "--policies", "tight.toml"]);
    assert_eq!(code, 0);
    for (limit, room) in [("limit-1", 3), ("limit-2", 4096), ("limit-4", 7)] {
        let line = text.lines().find(|line| line.contains(limit)).unwrap();
        assert!(line.contains(&format!("has room for {room} leases")), "{line}");
    }
    let line = text.lines().find(|line| line.contains("limit-3")).unwrap();
    assert!(!line.contains("room"), "{line}");
}

#[test]
fn check_warns_of_what_nodes_may_do_to_little_use() {
    let folder = Folder::new();
    folder.write(
        "nodes.toml",
        "
[policies.p]
limits = [{ algorithm = 'fixed_window', limit = 5, period = '1m' }]
local = { most = 9, time = '1s' }",
    );
    let (code, text, warnings) = folder.run(&["check", "--policies", "nodes.toml"]);
    assert_eq!(code, 0);
    assert!(text.starts_with("p: "), "{text}");
    let expected = "warning: policies.p: `local.most`: expected at most 5, which";
    assert!(warnings.starts_with(expected) && warnings.lines().count() == 1, "{warnings}");
}

#[test]
fn a_key_that_a_client_can_invent_is_warned_about() {
    let folder = Folder::new();
    folder.write(
        "keys.toml",
        "
[policies.p]
key = ['header:x-api-key', 'ip']
limits = [{ algorithm = 'fixed_window', limit = 5, period = '1m' }]",
    );
    let (code, text, warnings) = folder.run(&["check", "--policies", "keys.toml"]);
    assert_eq!(code, 0);
    assert!(text.contains("by header x-api-key, else client address"), "{text}");
    let expected =
        "warning: policies.p: `key`: expected a limit that counts by what no client can invent";
    assert!(warnings.starts_with(expected) && warnings.lines().count() == 1, "{warnings}");
    assert!(warnings.contains("found only limits by \"header:x-api-key\""), "{warnings}");
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
fn a_policy_file_may_begin_with_a_byte_order_mark() {
    let folder = Folder::new();
    let json = "{\"policies\":{\"p\":{\"limits\":\
                [{\"algorithm\":\"fixed_window\",\"limit\":1,\"period\":\"1s\"}]}}}";
    for text in [POLICIES, json] {
        folder.write("marked", format!("\u{feff}{text}"));
        let (code, _, error) = folder.run(&["check", "--policies", "marked"]);
        assert_eq!((code, error.as_str()), (0, ""));
    }
}

#[test]
fn check_validates_shows_and_decides() {
    let folder = Folder::new();
    let (code, text, _) = folder.run(&["check"]);
    assert_eq!(code, 0);
    assert!(text.contains("bursts of 2, then every 1 d; full after 2 d"), "{text}");
    let (code, text, _) = folder.run(&["check", "--policy", "api", "--key", "k", "--cost", "2"]);
    assert_eq!(code, 0);
    assert!(text.starts_with("{\"allowed\":true,\"limit\":2,\"remaining\":0,"), "{text}");
    let server = RedisServer::start().unwrap();
    let check = ["check", "--policy", "api", "--key", "k", "--cost", "2", "--redis", server.url()];
    assert_eq!(folder.run(&check).0, 0);
    let (code, text, _) = folder.run(&check);
    assert_eq!(code, 1, "the state is in Redis");
    assert!(text.starts_with("{\"allowed\":false,"), "{text}");
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
        "--redis nonsense: expected `redis://HOST:PORT`",
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
    folder
        .fails(&["serve", "--redis", "nonsense"], "--redis nonsense: expected `redis://HOST:PORT`");
}

#[test]
fn a_replay_reports_and_writes_a_decision_for_each_line() {
    let folder = Folder::new();
    let line = |t: u64, cost: u64| {
        format!("{{\"t_us\":{t},\"policy\":\"api\",\"key\":\"k\",\"cost\":{cost}}}\n")
    };
    let text = [line(7, 1), "nonsense\n".into(), line(8, 2), line(3, 1), line(9, 3)].concat();
    folder.write("t.jsonl", text);
    for backend in ["memory", "redis", "wasmtime", "worker"] {
        let (code, report, error) =
            folder.run(&["replay", "t.jsonl", "--backend", backend, "--decisions", "out.jsonl"]);
        assert_eq!(code, 0, "{backend}: {error}");
        assert!(
            report.contains(
                "5 lines, 1 keys: 2 allowed, 1 refused, 1 too costly, 1 unreadable; 1 went back in time"
            ),
            "{report}"
        );
        assert!(report.contains("         1         2  api              k\n"), "{report}");
        for line in [
            "line 2: expected a line of an access log or a JSON object",
            "line 5: the limits of \"api\" can never grant the cost, so no wait helps",
        ] {
            assert!(report.contains(line), "{report}");
        }
        let out = fs::read_to_string(folder.path().join("out.jsonl")).unwrap();
        assert_eq!(
            out,
            "{\"allowed\":true,\"remaining\":1,\"retry_after_us\":0,\"reset_after_us\":86400000000}\n\
             {\"error\":\"expected a line of an access log or a JSON object\"}\n\
             {\"allowed\":false,\"remaining\":1,\"retry_after_us\":86399999999,\"reset_after_us\":86399999999}\n\
             {\"allowed\":true,\"remaining\":0,\"retry_after_us\":0,\"reset_after_us\":172799999999}\n\
             {\"allowed\":false,\"remaining\":0,\"retry_after_us\":9007199254740991,\"reset_after_us\":172799999998}\n",
            "{backend}"
        );
    }
}

#[test]
fn a_trace_without_lines_is_an_error() {
    let folder = Folder::new();
    folder.write("empty.jsonl", "");
    for command in ["replay", "parity"] {
        let message = "expected at least one line, found an empty trace";
        folder.fails(&[command, "empty.jsonl", "--policy", "api"], message);
    }
    let mut replay = folder.command(&["replay", "-"]);
    let output = replay.stdin(Stdio::null()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && error.contains("found an empty trace"), "{error}");
}

#[test]
fn a_denied_key_is_told_apart_from_a_refusal() {
    let folder = Folder::new();
    folder.write(
        "policies.toml",
        "[policies.p]
deny = ['ip:192.0.2.0/24']
limits = [{ algorithm = 'fixed_window', limit = 1, period = '1h' }]",
    );
    let (code, text, _) = folder.run(&["check", "--key", "ip:192.0.2.1"]);
    assert!(code == 1 && text.trim_end().ends_with(",\"denied\":true}"), "{text}");
    let line =
        |client| format!("{client} - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 1\n");
    folder.write("access.log", ["192.0.2.1", "192.0.3.1", "192.0.3.1"].map(line).concat());
    assert_eq!(folder.run(&["replay", "access.log", "--decisions", "out.jsonl"]).0, 0);
    let out = fs::read_to_string(folder.path().join("out.jsonl")).unwrap();
    let denied: Vec<_> = out.lines().map(|line| line.contains("\"denied\":true")).collect();
    assert_eq!(denied, [true, false, false], "{out}");
}

#[test]
fn a_replay_reads_standard_input_and_pipes() {
    let folder = Folder::new();
    let log = file("data/access-2015.log.gz");
    let log = log.to_str().unwrap();
    let replayed = |script: &str| {
        let mut shell = Command::new("bash");
        let shell = shell.args(["-c", script]).current_dir(folder.path());
        let output = shell.env("TIDEGATE", command()).env("LOG", log).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        text.lines().next().unwrap().to_owned()
    };
    let expected = replayed("$TIDEGATE replay $LOG --policy api");
    assert!(expected.starts_with("10000 lines, 1753 keys: "), "{expected}");
    for script in [
        "$TIDEGATE replay - --policy api < $LOG",
        "cat $LOG | $TIDEGATE replay - --policy api",
        "zcat $LOG | $TIDEGATE replay - --policy api",
        "zcat $LOG | $TIDEGATE replay /dev/stdin --policy api",
        "$TIDEGATE replay <(zcat $LOG) --policy api",
        "$TIDEGATE replay <(cat $LOG) --policy api",
        "mkfifo pipe && (zcat $LOG > pipe &) && $TIDEGATE replay pipe --policy api",
        "cat $LOG > ./- && $TIDEGATE replay ./- --policy api < /dev/null",
    ] {
        assert_eq!(replayed(script), expected, "{script}");
    }
    let mut parity = folder.command(&["parity", "-"]);
    parity.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut parity = parity.spawn().unwrap();
    let line = b"{\"now_us\":7,\"policy\":\"api\",\"key\":\"k\"}";
    parity.stdin.take().unwrap().write_all(line).unwrap();
    let output = parity.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("mismatches 0 of 1 across"), "{text}");
}

#[test]
fn a_signal_ends_a_replay_that_waits_for_its_input() {
    let folder = Folder::new();
    let server = RedisServer::start().unwrap();
    let mut replay =
        folder.command(&["replay", "-", "--backend", "redis", "--redis", server.url()]);
    let mut replay = replay.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = replay.stdin.take().unwrap();
    // once the first thousand lines are in Redis, the replay waits for more
    let line = b"{\"now_us\":7,\"policy\":\"api\",\"key\":\"k\"}\n";
    input.write_all(&line.repeat(1_000)).unwrap();
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let mut keys = || redis::cmd("DBSIZE").query::<u64>(&mut connection).unwrap();
    while keys() == 0 {
        assert_eq!(replay.try_wait().unwrap(), None);
        std::thread::yield_now();
    }
    signal(&replay, "INT");
    assert_eq!(replay.wait().unwrap().code(), Some(130));
    drop(input);
    assert_eq!(keys(), 0);
}

#[test]
fn a_replay_says_what_a_policy_in_shadow_would_do_on_every_backend() {
    let folder = Folder::new();
    folder.write(
        "policies.toml",
        POLICIES.replace("[policies.api]", "[policies.api]\nshadow = true"),
    );
    let line = "{\"t_us\":7,\"policy\":\"api\",\"key\":\"k\",\"cost\":2}\n";
    folder.write("t.jsonl", line.repeat(2));
    let (code, report, error) = folder.run(&["parity", "t.jsonl"]);
    assert_eq!(code, 0, "{report}{error}");
    assert!(report.contains("1 allowed, 1 refused"), "{report}");
}

/// In a Worker that it did not start, a replay gives each key a prefix: an address is no address any more.
#[test]
fn lists_and_networks_hold_in_a_replay_on_a_worker_that_runs() {
    let folder = Folder::new();
    let policies = "auth = 'none'
[policies.p]
limits = [{ algorithm = 'fixed_window', limit = 1, period = '1h' }]
deny = ['ip:192.0.2.0/24']
allow = ['ip:198.51.100.0/24']
overrides = { 'ip:203.0.113.0/24' = { limit = 2 } }";
    folder.write("policies.toml", policies);
    let worker = Workerd::start(&WorkerdOptions {
        policies: policies.to_owned(),
        trust_caller_time: true,
        ..WorkerdOptions::default()
    });
    let worker = worker.unwrap();
    let line =
        |client| format!("{client} - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 1\n");
    let clients = ["192.0.2.1", "198.51.100.1", "198.51.100.1", "2001:db8::1", "2001:db8::2"];
    folder.write("access.log", clients.map(line).concat());
    let (code, report, error) = folder.run(&["parity", "access.log", "--worker", worker.url()]);
    assert_eq!(code, 0, "{report}{error}");
    assert!(report.contains("5 lines, 3 keys: 3 allowed, 2 refused, 0 unreadable"), "{report}");
    folder.write("override.log", line("203.0.113.1"));
    let replay = ["replay", "override.log", "--backend", "worker", "--worker", worker.url()];
    folder.fails(&replay, "--worker: expected keys without an override, found \"ip:203.0.113.1\"");
}

#[test]
fn a_replay_leaves_nothing_in_a_redis_that_it_did_not_start() {
    let folder = Folder::new();
    let server = RedisServer::start().unwrap();
    let log = file("data/access-2015.log.gz");
    let log = log.to_str().unwrap();
    let arguments =
        ["replay", log, "--policy", "api", "--backend", "redis", "--redis", server.url()];
    let (code, first, error) = folder.run(&arguments);
    assert_eq!(code, 0, "{error}");
    assert!(first.starts_with("10000 lines, 1753 keys:"), "{first}");
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    assert_eq!(redis::cmd("DBSIZE").query::<u64>(&mut connection).unwrap(), 0);
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
        let mut serve = folder.command(&["serve", "--listen", "127.0.0.1:0", "--redis", url]);
        let mut server = serve.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let _ = server.kill();
        let _ = server.wait();
        assert!(line.contains(shown), "{line}");
    }
}

#[test]
fn a_trace_without_a_readable_line_is_an_error() {
    let folder = Folder::new();
    let log = file("data/access-2015.log.gz");
    folder.fails(
        &["replay", log.to_str().unwrap()],
        "expected at least one line that can be read, found none in 10000 lines",
    );
}

#[test]
fn an_output_that_is_also_an_input_or_is_full_is_an_error() {
    let folder = Folder::new();
    folder.write("t.jsonl", "{\"t_us\":1,\"policy\":\"api\",\"key\":\"k\"}\n");
    for output in ["t.jsonl", "policies.toml"] {
        folder.fails(
            &["replay", "t.jsonl", "--decisions", output],
            "--decisions: expected a file that the replay does not read",
        );
    }
    let mut redirected = folder.command(&["replay", "-", "--decisions", "t.jsonl"]);
    let input = fs::File::open(folder.path().join("t.jsonl")).unwrap();
    let output = redirected.stdin(input).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("that the replay does not read"));
    assert_eq!(folder.run(&["replay", "t.jsonl"]).0, 0, "nothing was lost");
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    for arguments in [&["check"][..], &["replay", "t.jsonl"]] {
        let output = folder.command(arguments).stdout(full.try_clone().unwrap()).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains("standard output"), "{error}");
    }
}

#[test]
fn a_broken_gzip_is_an_error() {
    let folder = Folder::new();
    let log = fs::read(file("data/access-2015.log.gz")).unwrap();
    folder.write("half.gz", &log[..log.len() / 2]);
    folder.fails(&["replay", "half.gz", "--policy", "api"], "half.gz");
    folder.fails(&["parity", "half.gz", "--policy", "api"], "half.gz");
}

#[test]
fn a_server_whose_redis_is_down_starts_and_does_what_on_error_says() {
    let folder = Folder::new();
    let (mut server, api) = folder.serve(&["--redis", "redis://127.0.0.1:1"]);
    let (closed, open) = (api.check("api", "k", 1, None), api.check("open", "k", 1, None));
    let gates = ["api", "open"]
        .map(|policy| api.get(&format!("/v1/gate?policy={policy}&key=k"), &[]).status);
    let _ = server.kill();
    let _ = server.wait();
    assert_eq!((closed.status, closed.get("allowed")), (200, false.into()), "{closed:?}");
    assert_eq!((open.status, open.get("allowed")), (200, true.into()), "{open:?}");
    assert_eq!(closed.get("degraded"), "the store is unavailable");
    assert_eq!(gates, [503, 204]);
    let mut log = String::new();
    server.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    assert!(log.lines().count() > 1 && log.contains(" WARN redis: "), "{log}");
}

#[test]
fn only_a_caller_for_administration_is_told_which_redis_is_down() {
    let folder = Folder::new();
    let mut serve = folder.command(&["serve", "--listen", "127.0.0.1:0"]);
    serve.args(["--redis", "redis://127.0.0.1:1"]).env("TIDEGATE_ADMIN_TOKEN", "admin");
    let (mut server, api) = Folder::begin(serve.stderr(Stdio::null()));
    let admin = api.with(Some("admin"));
    let checked = admin.check("api", "k", 1, None);
    let [status, whole] = ["/v1/status", "/v1/status?keys=clear"].map(|call| admin.get(call, &[]));
    let _ = server.kill();
    let _ = server.wait();
    assert_eq!(checked.get("degraded"), "the store is unavailable", "{checked:?}");
    assert_eq!(status.get("store")["last_error"], "the store is unavailable", "{status:?}");
    let whole = whole.get("store")["last_error"].as_str().unwrap().to_owned();
    assert!(whole.starts_with("redis: ") && whole.ends_with("(127.0.0.1:1)"), "{whole}");
}

#[test]
fn only_a_caller_for_administration_is_told_which_keys_have_rules_of_their_own() {
    let folder = Folder::new();
    let limits = "limits = [{ algorithm = 'fixed_window', limit = 3, period = '1h' }]";
    let keys = "deny = ['bot-*']\nallow = ['monitor']\noverrides = { 'vip' = { limit = 9 } }";
    folder.write("policies.toml", format!("[policies.api]\n{limits}\n{keys}\n"));
    let mut serve = folder.command(&["serve", "--listen", "127.0.0.1:0"]);
    serve.env("TIDEGATE_TOKEN", "decide").env("TIDEGATE_ADMIN_TOKEN", "admin");
    let (mut server, api) = Folder::begin(serve.stderr(Stdio::null()));
    let (decide, admin) = (api.with(Some("decide")), api.with(Some("admin")));
    let put = admin.put("/v1/overrides/api/alice", r#"{"limit":7,"until_us":9000000000000000}"#);
    let calls = ["/v1/status", "/v1/policies", "/metrics", "/readyz"];
    let told = calls.map(|call| decide.get(call, &[]).text);
    let whole = admin.get("/v1/status?keys=clear", &[]).text;
    let _ = server.kill();
    let _ = server.wait();
    assert_eq!(put.status, 200, "{put:?}");
    for key in ["bot-", "monitor", "vip", "alice"] {
        assert!(whole.contains(key), "{key}: {whole}");
        assert!(told.iter().all(|told| !told.contains(key)), "{key}: {told:?}");
    }
    assert!(told[0].contains("\"keys or patterns with their own limits: 2\""), "{}", told[0]);
}

#[test]
fn redis_keeps_a_state_longer_by_the_largest_difference_of_clocks() {
    let folder = Folder::new();
    let redis = RedisServer::start().unwrap();
    let (mut server, api) = folder.serve(&["--redis", redis.url(), "--redis-max-skew", "86400000"]);
    let checked = api.check("api", "k", 1, None);
    let _ = server.kill();
    let _ = server.wait();
    assert_eq!(checked.get("allowed"), true, "{checked:?}");
    let mut connection = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    let name: String = redis::cmd("RANDOMKEY").query(&mut connection).unwrap();
    let left: u64 = redis::cmd("PTTL").arg(name).query(&mut connection).unwrap();
    assert!(left > 86_000_000, "{left} ms");
    folder.fails(
        &["serve", "--redis-max-skew", "86400001"],
        "expected a whole number from 0 to 86400000",
    );
}

#[test]
fn callers_do_not_learn_the_names_of_states_in_redis() {
    let folder = Folder::new();
    let redis = RedisServer::start().unwrap();
    let mut connection = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    let (mut server, api) = folder.serve(&["--redis", redis.url()]);
    let key = "secret\nerror: \u{1b}[31m"; // must not begin a line of the log, nor colour it
    assert_eq!(api.check("api", key, 1, None).get("allowed"), true);
    let names: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
    let [name] = names.as_slice() else { panic!("{names:?}") };
    let () = redis::cmd("SET").arg(name).arg("foreign").query(&mut connection).unwrap();
    let reply = api.check("api", key, 1, None);
    let gate = api.get("/v1/gate?policy=api&key=secret%0Aerror:%20%1B[31m", &[]);
    let reset = api.delete("/v1/keys/api/secret%0Aerror:%20%1B%5B31m");
    let status = api.get("/v1/status", &[]);
    let () = redis::cmd("DEL").arg(name).query(&mut connection).unwrap();
    let () = redis::cmd("RPUSH").arg(name).arg("foreign").query(&mut connection).unwrap();
    let of_another_type = api.check("api", key, 1, None);
    let of_another_type_reset = api.delete("/v1/keys/api/secret%0Aerror:%20%1B%5B31m");
    let after = api.get("/v1/status", &[]);
    let () = redis::cmd("DEL").arg(name).query(&mut connection).unwrap();
    let afresh = api.check("api", key, 0, None);
    let _ = server.kill();
    let _ = server.wait();
    assert_eq!(reply.get("degraded"), "the stored bytes are not a state of this policy");
    assert_eq!((gate.status, gate.get("detail")), (503, reply.get("degraded")));
    assert_eq!((reset.status, reset.get("detail")), (503, reply.get("degraded")));
    assert_eq!(of_another_type.get("degraded"), reply.get("degraded"));
    let reset = of_another_type_reset;
    assert_eq!((reset.status, reset.get("detail")), (503, reply.get("degraded")));
    for status in [status, after] {
        assert_eq!(status.get("store")["answers"], true, "{status:?}");
        assert!(status.get("store")["last_error"].is_null(), "{status:?}");
    }
    assert_eq!(afresh.get("remaining"), 2);
    let mut log = String::new();
    server.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    let wrong: Vec<_> = log.lines().filter(|line| line.contains(" WARN ")).collect();
    let named = |line: &&str| line.contains("the store did not decide policy=\"api\" key=");
    assert!(!wrong.is_empty() && wrong.iter().all(named), "{log}");
    assert!(!log.contains("secret") && !log.contains('\u{1b}'), "{log}");
}

#[test]
fn a_full_store_says_so_and_still_decides_on_known_keys() {
    let folder = Folder::new();
    let (mut server, api) = folder.serve(&["--max-memory", "64KiB"]);
    let check = |key: u32| api.check("api", &key.to_string(), 1, None);
    let full =
        (0..1_000).map(|key| (key, check(key))).find(|(_, it)| !it.get("degraded").is_null());
    let known = check(0);
    let _ = server.kill();
    let _ = server.wait();
    let (keys, reply) = full.unwrap();
    assert!(keys > 50, "{keys} keys");
    assert_eq!(reply.get("degraded"), "the store is full");
    assert!(known.get("degraded").is_null(), "{known:?}");
    let mut log = String::new();
    server.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    assert!(log.contains("no room for a new key: the keys in use fill their part"), "{log}");
}

fn signal(server: &Child, name: &str) {
    let kill = format!("kill -s {name} {}", server.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
}

#[test]
fn only_the_token_for_administration_resets_and_blocks() {
    let folder = Folder::new();
    let (mut one, only) = folder.serve(&["--token", "a"]);
    let (mut both, all) = folder.serve(&["--token", "a", "--admin-token", "b"]);
    let statuses = |api: &Api, token: Option<&str>| {
        let api = api.with(token);
        let check = api.check("api", "k", 1, None).status;
        let block = api.post("/v1/keys/api/k/block", "{\"for\":0}").status;
        [check, block, api.delete("/v1/keys/api/k").status]
    };
    let found = [
        statuses(&only, Some("a")),
        statuses(&all, Some("a")),
        statuses(&all, Some("b")),
        statuses(&all, None),
    ];
    for server in [&mut one, &mut both] {
        let _ = server.kill();
        let _ = server.wait();
    }
    assert_eq!(found, [[200, 401, 401], [200, 401, 401], [200, 200, 200], [401, 401, 401]]);
}

#[test]
fn a_signal_that_comes_before_the_server_listens_is_obeyed() {
    for name in ["TERM", "INT"] {
        let folder = Folder::new();
        // a Redis that accepts and never answers: the server asks it before it listens
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}", silent.local_addr().unwrap());
        let mut serve = folder.command(&["serve", "--listen", "127.0.0.1:0", "--redis", &url]);
        serve.args(["--redis-deadline", "60000"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut server = serve.spawn().unwrap();
        let _asked = silent.accept().unwrap();
        signal(&server, "HUP");
        let mut line = String::new();
        BufReader::new(server.stderr.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains(" INFO SIGHUP: "), "{line:?}");
        signal(&server, name);
        let output = server.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b""[..]), "{name}");
    }
}

#[test]
fn a_signal_that_comes_before_the_policy_file_is_read_is_obeyed() {
    let folder = Folder::new();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let server = folder.command(&["serve", "--listen", "127.0.0.1:0", "--policies", "pipe"]);
    let server = { server }.stdout(Stdio::piped()).spawn().unwrap();
    let mut file = fs::File::options().write(true).open(&pipe).unwrap(); // once the server opens it
    signal(&server, "TERM");
    file.write_all(POLICIES.as_bytes()).unwrap();
    drop(file);
    assert_eq!(server.wait_with_output().unwrap().status.code(), Some(0));
}

#[test]
fn the_server_goes_on_when_its_log_cannot_be_written() {
    let folder = Folder::new();
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let (mut server, api) = folder.serve_and_log(&["--redis", "redis://127.0.0.1:1"], full.into());
    let reply = api.check("api", "k", 1, None);
    signal(&server, "TERM");
    assert_eq!(server.wait().unwrap().code(), Some(0));
    assert_eq!(reply.get("degraded"), "the store is unavailable", "{reply:?}");
}

/// 20,000 keys of 185 KB each would take 3.5 GB.
#[test]
fn a_flood_of_large_states_stays_within_the_memory() {
    let folder = Folder::new();
    let limit = "{ algorithm = 'concurrency', capacity = 4096, time_to_live = '1h' }";
    folder.write("policies.toml", format!("[policies.jobs]\nlimits = [{limit}]"));
    let (mut server, api) = folder.serve(&["--max-memory", "64MiB"]);
    let mut learned = 0;
    for request in 0..20 {
        let check = |key| format!("{{\"policy\":\"jobs\",\"key\":\"{request}-{key}\"}}");
        let checks: Vec<_> = (0..1_000).map(check).collect();
        let reply = api.post("/v1/check", format!("{{\"checks\":[{}]}}", checks.join(",")));
        let answers = reply.json();
        let answers = answers["decisions"].as_array().unwrap();
        learned += answers.iter().filter(|answer| answer["degraded"].is_null()).count();
    }
    let status = fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let _ = server.kill();
    let _ = server.wait();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: usize = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!((250..=360).contains(&learned), "{learned} keys of 185 KB in 64 MiB");
    assert!(peak < 160 * 1_024, "{peak} KiB");
}
