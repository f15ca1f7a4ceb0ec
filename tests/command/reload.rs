//! The policy file beside a `PUT`, and files that are read again while the server runs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tidegate_tests::{Api, HostProcess, until};

use crate::Folder;

fn file(limit: u64) -> String {
    format!(
        "[policies.api]\nlimits = [{{ algorithm = 'fixed_window', limit = {limit}, period = '365d' }}]\n"
    )
}

fn start(folder: &Folder) -> (HostProcess, Api) {
    let server = folder.serve(&["--admin-token", "t", "--token", "t"]);
    let api = server.api.with(Some("t"));
    (server, api)
}

fn limit(api: &Api) -> u64 {
    // a request that began before an edit may get no decision
    api.check("api", "k", 0, None).get("limit").as_u64().unwrap_or(0)
}

#[test]
fn whoever_changed_the_policies_last_wins_a_caller_or_the_file() {
    let folder = Folder::new();
    folder.write("policies.toml", file(9));
    let (server, api) = start(&folder);
    let origin = |api: &Api| {
        let shown = api.get("/v1/policies", &[]);
        (shown.get("version"), shown.get("source"), shown.get("by"))
    };
    assert_eq!((limit(&api), origin(&api)), (9, (1.into(), "file".into(), "deployment".into())));
    assert_eq!(api.put_policies(&file(20)).status, 200);
    assert_eq!((limit(&api), origin(&api).1), (20, "put".into()));
    for (version, edited) in [(3, 11), (4, 9)] {
        folder.write("policies.toml", file(edited));
        until("the edit is in force", || limit(&api) == edited);
        assert_eq!(origin(&api), (version.into(), "file".into(), "deployment".into()));
    }
    server.terminate();

    let (server, api) = start(&folder);
    assert_eq!((limit(&api), origin(&api).0), (9, 4.into()), "a restart changes nothing");
    assert_eq!(api.put_policies(&file(20)).status, 200);
    server.terminate();
    let (server, api) = start(&folder);
    assert_eq!((limit(&api), origin(&api).1), (20, "put".into()), "the file was not edited");
    server.terminate();
    for edited in [11, 9] {
        folder.write("policies.toml", file(edited)); // while no server runs
        let (server, api) = start(&folder);
        assert_eq!((limit(&api), origin(&api).1), (edited, "file".into()));
        server.terminate();
    }
    let (server, api) = start(&folder);
    let restored = api.post_with("/v1/policies/restore", &[("if-match", "*")], "");
    assert_eq!((restored.status, limit(&api)), (200, 11), "the file before");
    assert_eq!(origin(&api).1, "restored");
    server.terminate();
}

#[test]
fn a_file_that_is_refused_changes_nothing_under_load() {
    let folder = Folder::new();
    folder.write("policies.toml", file(9));
    let server = folder.serve(&[]);
    let api = &server.api;
    let (is_over, answers) = (AtomicBool::new(false), AtomicU64::new(0));
    let refused = || {
        let metrics = api.get("/metrics", &[]).text;
        let line = metrics.lines().find_map(|line| {
            line.strip_prefix("tidegate_policies_ignored_total ")?.parse::<u64>().ok()
        });
        line.unwrap()
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let api = api.with(None);
            while !is_over.load(Ordering::Relaxed) {
                let reply = api.check("api", "k", 1, None);
                assert_eq!((reply.status, reply.get("limit")), (200, 9.into()), "{reply:?}");
                answers.fetch_add(1, Ordering::Relaxed);
            }
        });
        let edits = scope.spawn(|| {
            let garbage: [&[u8]; 5] = [
                b"garbage",
                b"",
                b"\xff\xfe\x00",
                b"[policies.api]\nlimits = [{ algorithm = 'fixed_wind",
                b"[policies.api]\nkey = 'jwt:sub'\nlimits = [{ algorithm = 'fixed_window', limit = 3, period = '1s' }]",
            ];
            for (before, bytes) in (0..).zip(garbage) {
                // a look between the truncation and the bytes would find an empty file
                folder.write("written.toml", bytes);
                let [written, read] =
                    ["written.toml", "policies.toml"].map(|name| folder.path().join(name));
                std::fs::rename(written, read).unwrap();
                until("the file is refused", || refused() > before);
            }
            std::fs::remove_file(folder.path().join("policies.toml")).unwrap();
            until("a missing file changes nothing", || refused() > 5);
            let before = answers.load(Ordering::Relaxed);
            until("requests go on", || answers.load(Ordering::Relaxed) > before + 10);
        });
        let edits = edits.join();
        is_over.store(true, Ordering::Relaxed);
        edits.unwrap();
    });
    folder.write("policies.toml", file(12));
    until("a good file is taken", || limit(api) == 12);
    let log = server.terminate();
    let told = log.lines().filter(|line| line.contains("the policy file is refused")).count();
    assert_eq!(told, 6, "each fault once: {log}");
    assert!(log.contains("reason=\"line 1, column 8: "), "{log}");
}

#[test]
fn a_hangup_reads_the_file_again_at_once() {
    let folder = Folder::new();
    let server = folder.serve(&[]);
    let api = &server.api;
    assert_eq!(api.check("api", "k", 1, None).get("remaining"), 1);
    server.signal("HUP");
    server.until_logged("INFO SIGHUP: the server reads its files again");
    server.until_logged("INFO SIGHUP: the policy file is as it was");
    folder.write("policies.toml", crate::POLICIES.replace("capacity = 2", "capacity = 7"));
    server.signal("HUP");
    server.until_logged("INFO the policy file was read again version=2");
    assert_eq!(api.check("api", "k", 0, None).get("limit"), 7);
    let log = server.terminate();
    assert!(log.contains("source=\"file\" by=\"deployment\""), "{log}");
    assert!(log.contains("INFO SIGTERM: the server stops"), "{log}");
}
