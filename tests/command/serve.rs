//! Tests of what `tidegate serve` tells and allows its callers, and of its signals. Its other tests are in `listen.rs`, `operated.rs` and `reload.rs`.

use std::fs;
use std::net::TcpListener;
use std::process::Command;

use tidegate::local::{Process, RedisServer};
use tidegate_tests::{Api, HostProcess, command, file, rows};

use crate::Folder;

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
    let server = Folder::new().serve(&[]);
    let block = |headers: &[(&str, &str)]| {
        let path = "/v1/keys/api/user:42/block";
        server.api.post_with(path, headers, r#"{"for":60000000}"#).status
    };
    // what a form or a fetch of any page can send without asking
    let simple = ("content-type", "text/plain");
    assert_eq!(block(&[simple, ("origin", "https://evil.example")]), 401);
    assert_eq!(block(&[simple, ("origin", "null")]), 401);
    assert_eq!(block(&[simple, ("sec-fetch-site", "cross-site")]), 401);
    assert_eq!(block(&[]), 200, "a program of this machine may");
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
fn a_server_whose_redis_is_down_starts_and_does_what_on_error_says() {
    let folder = Folder::new();
    let server = folder.serve(&["--redis", "redis://127.0.0.1:1", "--redis-deadline", "10000"]);
    let api = &server.api;
    let (closed, open) = (api.check("api", "k", 1, None), api.check("open", "k", 1, None));
    let gates = ["api", "open"]
        .map(|policy| api.get(&format!("/v1/gate?policy={policy}&key=k"), &[]).status);
    assert_eq!((closed.status, closed.get("allowed")), (200, false.into()), "{closed:?}");
    assert_eq!((open.status, open.get("allowed")), (200, true.into()), "{open:?}");
    assert_eq!(closed.get("degraded"), "the store is unavailable");
    assert_eq!(gates, [503, 204]);
    let log = server.terminate();
    assert!(
        log.lines().count() > 1
            && log.contains(" WARN Redis does not answer kind=\"unavailable\" error=\"redis: "),
        "{log}"
    );
}

#[test]
fn only_a_caller_for_administration_is_told_which_redis_is_down() {
    let folder = Folder::new();
    let mut serve = folder.command(&["serve", "--listen", "127.0.0.1:0"]);
    serve
        .args(["--redis", "redis://127.0.0.1:1", "--redis-deadline", "10000"])
        .env("TIDEGATE_ADMIN_TOKEN", "admin");
    let server = HostProcess::of(&mut serve);
    let admin = server.api.with(Some("admin"));
    let checked = admin.check("api", "k", 1, None);
    let [status, whole] = ["/v1/status", "/v1/status?keys=clear"].map(|call| admin.get(call, &[]));
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
    let server = HostProcess::of(&mut serve);
    let [decide, admin] = ["decide", "admin"].map(|token| server.api.with(Some(token)));
    let put = admin.put("/v1/overrides/api/alice", r#"{"limit":7,"until_us":9000000000000000}"#);
    let calls = ["/v1/status", "/v1/policies", "/metrics", "/readyz"];
    let told = calls.map(|call| decide.get(call, &[]).text);
    let whole = admin.get("/v1/status?keys=clear", &[]).text;
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
    let skew = ["--redis-max-skew", "86400000", "--redis-deadline", "10000"];
    let server = folder.serve(&[&["--redis", redis.url()], &skew[..]].concat());
    let api = &server.api;
    let checked = api.check("api", "k", 1, None);
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
    let server = folder.serve(&["--redis", redis.url(), "--redis-deadline", "10000"]);
    let api = &server.api;
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
    server.until_logged("the store did not decide");
    let log = server.log();
    let wrong: Vec<_> = log.lines().filter(|line| line.contains(" WARN ")).collect();
    let named = |line: &&str| line.contains("the store did not decide policy=\"api\" key=");
    assert!(!wrong.is_empty() && wrong.iter().all(named), "{log}");
    assert!(!log.contains("secret") && !log.contains('\u{1b}'), "{log}");
}

#[test]
fn a_full_store_says_so_and_still_decides_on_known_keys() {
    let folder = Folder::new();
    let server = folder.serve(&["--max-memory", "64KiB"]);
    let api = &server.api;
    let check = |key: u32| api.check("api", &key.to_string(), 1, None);
    let full =
        (0..1_000).map(|key| (key, check(key))).find(|(_, it)| !it.get("degraded").is_null());
    let known = check(0);
    let (keys, reply) = full.unwrap();
    assert!(keys > 50, "{keys} keys");
    assert_eq!(reply.get("degraded"), "the store is full");
    assert!(known.get("degraded").is_null(), "{known:?}");
    let log = server.terminate();
    assert!(log.contains("no room for a new key: the keys in use fill their part"), "{log}");
}

#[test]
fn only_the_token_for_administration_resets_and_blocks() {
    let folder = Folder::new();
    let one = folder.serve(&["--token", "a"]);
    let both = folder.serve(&["--token", "a", "--admin-token", "b"]);
    let (only, all) = (&one.api, &both.api);
    let statuses = |api: &Api, token: Option<&str>| {
        let api = api.with(token);
        let check = api.check("api", "k", 1, None).status;
        let block = api.post("/v1/keys/api/k/block", "{\"for\":0}").status;
        [check, block, api.delete("/v1/keys/api/k").status]
    };
    let found = [
        statuses(only, Some("a")),
        statuses(all, Some("a")),
        statuses(all, Some("b")),
        statuses(all, None),
    ];
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
        serve.args(["--redis-deadline", "60000"]);
        let mut server = Process::start("tidegate serve", &mut serve).unwrap();
        let _asked = silent.accept().unwrap();
        server.signal("HUP").unwrap();
        let obeyed = server.announced(|line| line.contains(" INFO SIGHUP: ").then_some(()));
        obeyed.unwrap();
        server.signal(name).unwrap();
        assert_eq!(server.wait().unwrap().code(), Some(0));
        assert!(!server.output().contains("listening on"), "{name}");
    }
}

#[test]
fn a_server_that_waits_for_a_pipe_ends_at_a_signal() {
    let folder = Folder::new();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for signal in ["TERM", "INT"] {
        let mut serve = folder.command(&["serve", "--listen", "127.0.0.1:0", "--policies", "pipe"]);
        let mut server = Process::start("tidegate serve", &mut serve).unwrap();
        let file = fs::File::options().write(true).open(&pipe).unwrap(); // once the server opens it
        server.signal(signal).unwrap();
        assert!(!server.wait().unwrap().success());
        drop(file);
    }
}

#[test]
fn the_server_goes_on_when_its_log_cannot_be_written() {
    let folder = Folder::new();
    let mut serve = Command::new("sh");
    serve.args([
        "-c",
        "exec \"$0\" serve --listen 127.0.0.1:0 --redis redis://127.0.0.1:1 2>/dev/full",
    ]);
    let server = HostProcess::of(serve.arg(command()).current_dir(folder.path()));
    let reply = server.api.check("api", "k", 1, None);
    assert_eq!(reply.get("degraded"), "the store is unavailable", "{reply:?}");
    server.terminate();
}

/// 20,000 keys of 185 KB each would take 3.5 GB.
#[test]
fn a_flood_of_large_states_stays_within_the_memory() {
    let folder = Folder::new();
    let limit = "{ algorithm = 'concurrency', capacity = 4096, time_to_live = '1h' }";
    folder.write("policies.toml", format!("[policies.jobs]\nlimits = [{limit}]"));
    let server = folder.serve(&["--max-memory", "64MiB"]);
    let api = &server.api;
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
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: usize = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!((250..=360).contains(&learned), "{learned} keys of 185 KB in 64 MiB");
    assert!(peak < 160 * 1_024, "{peak} KiB");
}
