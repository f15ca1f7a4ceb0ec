//! `tidegate replay`.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use tidegate::local::{RedisServer, Workerd, WorkerdOptions};
use tidegate_tests::{command, file, until};

use crate::leftovers::signal;
use crate::{Folder, POLICIES};

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
    until("the first lines are in Redis", || {
        assert_eq!(replay.try_wait().unwrap(), None);
        keys() > 0
    });
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
