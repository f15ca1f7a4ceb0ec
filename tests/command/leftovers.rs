//! What a replay leaves behind when it ends with an error: nothing.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use redis::Connection;
use tidegate::local::RedisServer;
use tidegate_tests::{file, until};

use super::Folder;

/// A folder with a trace that breaks off after so many bytes.
fn with_broken_trace(bytes: usize) -> Folder {
    let folder = Folder::new();
    let log = fs::read(file("data/access-2015.log.gz")).unwrap();
    folder.write("half.gz", &log[..bytes]);
    folder
}

fn connect(server: &RedisServer) -> Connection {
    redis::Client::open(server.url()).unwrap().get_connection().unwrap()
}

fn keys(connection: &mut Connection) -> u64 {
    redis::cmd("DBSIZE").query(connection).unwrap()
}

#[test]
fn a_replay_that_fails_leaves_nothing_in_a_redis_that_it_did_not_start() {
    let folder = with_broken_trace(50_000); // some chunks of lines are decided before it breaks off
    folder.write("t.jsonl", "{\"t_us\":1,\"policy\":\"api\",\"key\":\"k\"}\n");
    let server = RedisServer::start().unwrap();
    let replay = |arguments: &[&str], out: Stdio| {
        let mut replay = folder.command(&["replay", "--backend", "redis", "--redis", server.url()]);
        replay.args(arguments).stdout(out).output().unwrap()
    };
    let (_, closed) = io::pipe().unwrap();
    for (arguments, out, code, message) in [
        (&["half.gz", "--policy", "api"][..], Stdio::piped(), 2, "half.gz"),
        (&["t.jsonl", "--decisions", "/dev/full"], Stdio::piped(), 2, "No space left"),
        (&["t.jsonl"], closed.into(), 141, ""),
    ] {
        let output = replay(arguments, out);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(message), "{arguments:?}: {error}");
        assert_eq!(keys(&mut connect(&server)), 0, "{arguments:?}");
    }
}

#[test]
fn a_parity_that_fails_leaves_nothing_in_a_redis_that_it_did_not_start() {
    let folder = Folder::new();
    let server = RedisServer::start().unwrap();
    let mut connection = connect(&server);
    // the first lines, on one key, fit into Redis; 20,000 keys do not
    let line = |key: u32| format!("{{\"t_us\":1,\"policy\":\"api\",\"key\":\"{key}\"}}\n");
    let lines = (0..2_000).map(|_| 0).chain(0..20_000).map(line);
    folder.write("t.jsonl", lines.collect::<String>());
    let memory: String = redis::cmd("INFO").arg("memory").query(&mut connection).unwrap();
    let used = memory.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
    let most = used.parse::<u64>().unwrap() + (1 << 20);
    let () =
        redis::cmd("CONFIG").arg(&["SET", "maxmemory"]).arg(most).query(&mut connection).unwrap();
    folder.fails(&["parity", "t.jsonl", "--redis", server.url()], "'maxmemory'");
    assert_eq!(keys(&mut connection), 0);
}

/// Whether a process has this path on its command line.
fn is_used(path: &Path) -> bool {
    let names_it = |process: fs::DirEntry| {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default(); // it may have ended
        String::from_utf8_lossy(&line).contains(path.to_str().unwrap())
    };
    fs::read_dir("/proc").unwrap().flatten().any(names_it)
}

#[test]
fn a_replay_that_fails_ends_the_server_that_it_started_and_deletes_its_files() {
    for backend in ["redis", "worker"] {
        let folder = with_broken_trace(1_000);
        let temporary = folder.path().join("temporary");
        fs::create_dir(&temporary).unwrap();
        let mut replay = folder.command(&["replay", "half.gz", "--policy", "api"]);
        replay.args(["--backend", backend]).env("TMPDIR", &temporary);
        // a pipe would stay open in a server that goes on
        let errors = File::create(folder.path().join("errors")).unwrap();
        let ended = replay.stdout(Stdio::null()).stderr(errors).status().unwrap();
        let error = fs::read_to_string(folder.path().join("errors")).unwrap();
        assert!(ended.code() == Some(2) && error.contains("half.gz"), "{error}");
        assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0, "{backend}");
        assert!(!is_used(&temporary), "{backend}: the server still runs");
    }
}

/// A replay that takes far longer than it takes to end it.
fn long_replay(folder: &Folder, arguments: &[&str]) -> Command {
    let line = |key: u32| format!("{{\"t_us\":1,\"policy\":\"api\",\"key\":\"{key}\"}}\n");
    folder.write("t.jsonl", (0..300_000).map(line).collect::<String>());
    let mut replay = folder.command(&["replay", "t.jsonl"]);
    replay.args(arguments).stdout(Stdio::null());
    replay
}

pub fn signal(replay: &Child, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &replay.id().to_string()]).status();
    assert!(sent.unwrap().success());
}

/// Ends the replay by a signal once this holds.
#[track_caller]
fn end(mut replay: Child, name: &str, code: i32, mut once: impl FnMut() -> bool) {
    until("the replay has begun", || {
        assert_eq!(replay.try_wait().unwrap(), None, "the replay goes on");
        once()
    });
    signal(&replay, name);
    assert_eq!(replay.wait().unwrap().code(), Some(code));
}

#[test]
fn a_replay_that_is_told_to_end_ends_its_server_and_deletes_its_files() {
    for (name, code) in [("TERM", 143), ("INT", 130)] {
        for backend in ["redis", "worker"] {
            let folder = Folder::new();
            let temporary = folder.path().join("temporary");
            fs::create_dir(&temporary).unwrap();
            let mut replay = long_replay(&folder, &["--backend", backend]);
            let replay = replay.env("TMPDIR", &temporary).spawn().unwrap();
            end(replay, name, code, || is_used(&temporary));
            assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0, "{backend}");
            assert!(!is_used(&temporary), "{backend}: the server still runs");
        }
    }
}

#[test]
fn a_replay_that_is_told_to_end_leaves_nothing_in_a_redis_that_it_did_not_start() {
    let (folder, server) = (Folder::new(), RedisServer::start().unwrap());
    let mut connection = connect(&server);
    let mut replay = long_replay(&folder, &["--backend", "redis", "--redis", server.url()]);
    end(replay.spawn().unwrap(), "TERM", 143, || keys(&mut connection) > 0);
    assert_eq!(keys(&mut connection), 0);
}

#[test]
fn a_replay_in_memory_ends_when_it_is_told_to() {
    let folder = Folder::new();
    let mut replay = long_replay(&folder, &["--decisions", "out"]);
    let out = folder.path().join("out");
    end(replay.spawn().unwrap(), "TERM", 143, || out.metadata().is_ok_and(|out| out.len() > 0));
}
