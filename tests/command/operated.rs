//! What an operator sees of a server: probes, log, configuration, start and stop.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use serde_json::Value;
use tidegate::local::RedisServer;
use tidegate_tests::{Api, HostProcess, until};

use crate::Folder;

#[test]
fn a_server_is_alive_while_its_redis_is_away_and_ready_when_it_is_back() {
    let folder = Folder::new();
    let mut redis = RedisServer::start().unwrap();
    let arguments = ["--redis", redis.url(), "--redis-deadline", "10000"];
    let server = folder.serve(&arguments);
    let api = &server.api;
    let ready = || api.get("/readyz", &[]);
    let first = ready();
    assert_eq!((first.status, first.get("status")), (200, "ok".into()));
    assert_eq!(first.get("policies_version"), 1);
    redis.stop();
    until("the server knows", || ready().status != 200);
    let away = ready();
    assert_eq!((away.status, away.get("type")), (503, "urn:tidegate:not-ready".into()));
    assert_eq!(away.get("detail"), "the store is unavailable");
    assert_eq!(api.get("/healthz", &[]).status, 200);
    assert_eq!(api.post("/readyz", "").status, 405);
}

#[test]
fn an_idle_connection_gives_its_place_to_a_new_one_and_the_log_says_that_all_are_taken() {
    let folder = Folder::new();
    let server = folder.serve(&["--max-connections", "2"]);
    let api = &server.api;
    let address = api.url().trim_start_matches("http://");
    let check = "POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-length: 29\r\nexpect: 100-continue\r\nconnection: close\r\n\r\n";
    let open = |head: &str, answered: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        let mut text = vec![0; answered.len()];
        stream.read_exact(&mut text).unwrap();
        assert_eq!(text, answered.as_bytes());
        stream
    };
    let mut busy = open(check, "HTTP/1.1 100 Continue\r\n\r\n");
    let idle = open("GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n", "HTTP/1.1 200 OK\r\n");
    let metrics = open(
        "GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        "HTTP/1.1 200 OK\r\n",
    );
    let text = |mut stream: &TcpStream| {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let metrics = text(&metrics);
    for line in ["tidegate_connections 2", "tidegate_connections_max 2"] {
        assert!(metrics.lines().any(|own| own == line), "{line}: {metrics}");
    }
    assert!(text(&idle).ends_with("{\"status\":\"ok\"}"), "it is closed");
    busy.write_all(b"{\"policy\":\"api\",\"key\":\"keys\"}").unwrap();
    assert!(text(&busy).contains("\"allowed\":true"), "a request under way keeps its place");
    let log = server.terminate();
    assert!(
        log.contains("WARN") && log.contains("all 2 connections of --max-connections"),
        "{log}"
    );
}

#[test]
fn a_name_is_listened_on_and_the_first_line_names_the_revision() {
    let folder = Folder::new();
    let line = HostProcess::of(&mut folder.command(&["serve", "--listen", "localhost:0"])).line;
    assert!(line.starts_with("listening on http://127.0.0.1:") || line.contains("[::1]"), "{line}");
    assert!(line.ends_with("policies api, open, revision 1 (file)"), "{line}");
    folder.fails(&["serve", "--listen", "8080"], "expected an address or a name, and a port");
    folder.fails(&["serve", "--listen", "0.0.0.0:0"], "no token is configured");
}

#[test]
fn a_log_in_json_samples_refusals_and_names_no_key() {
    let folder = Folder::new();
    let server = folder.serve(&["--log-format", "json", "--log-secret", "s"]);
    let (api, began) = (&server.api, Instant::now());
    let refusals = 300;
    for _ in 0..refusals + 2 {
        api.check("api", "a secret key", 1, None);
    }
    let log = server.terminate();
    assert!(!log.contains("secret key"), "{log}");
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |message: &str| -> Vec<&Value> {
        lines.iter().filter(|line| line["message"] == message).collect()
    };
    let (samples, rest) = (of("refused"), of("more refusals"));
    let most = began.elapsed().as_secs() + 1;
    assert!((1..=most).contains(&(samples.len() as u64)), "at most one a second: {log}");
    assert_eq!(samples[0]["policy"], "api");
    assert_eq!(samples[0]["key"].as_str().unwrap().len(), 16, "a hash");
    let more: u64 = samples.iter().chain(&rest).map(|line| line["more"].as_u64().unwrap()).sum();
    assert_eq!(more + samples.len() as u64, refusals, "none is forgotten: {log}");
    assert_eq!(of("the server has started")[0]["version"], 1);
    assert_eq!(of("the server has stopped")[0]["is_drained"], true);
}

#[test]
fn another_request_with_a_known_idempotency_key_is_no_refusal_in_the_log() {
    let folder = Folder::new();
    let policies = "[policies.api]\nidempotency = '1h'\nlimits = [{ algorithm = 'fixed_window', limit = 9, period = '1h' }]\n";
    folder.write("policies.toml", policies);
    let server = folder.serve(&[]);
    let api = &server.api;
    let check = |key: &str| {
        let headers = [("idempotency-key", "k"), ("content-type", "application/json")];
        let body = format!("{{\"policy\":\"api\",\"key\":\"{key}\"}}");
        api.request("POST", "/v1/check", &headers, &body).status
    };
    assert_eq!([check("a"), check("a")], [200; 2]);
    let other = "{\"policy\":\"api\",\"key\":\"a\",\"cost\":2}";
    let headers = [("idempotency-key", "k"), ("content-type", "application/json")];
    assert_eq!(api.request("POST", "/v1/check", &headers, other).status, 422);
    let log = server.terminate();
    assert!(log.contains("the server has stopped") && !log.contains("refused"), "{log}");
}

#[test]
fn the_level_of_the_log_leaves_out_refusals_and_never_a_change_by_a_caller() {
    let folder = Folder::new();
    let server = folder.serve(&["--log-level", "error", "--token", "t", "--admin-token", "t"]);
    let api = server.api.with(Some("t"));
    for _ in 0..3 {
        api.check("api", "k", 1, None);
    }
    assert_eq!(api.put_policies(crate::POLICIES.replace("2", "3").as_str()).status, 200);
    let log = server.terminate();
    assert_eq!(log.lines().count(), 1, "{log}");
    assert!(log.contains("audit: policies: another file was put in force by="), "{log}");
}

#[test]
fn each_block_reset_and_override_by_a_caller_is_in_the_log_with_a_hash_of_the_key() {
    let folder = Folder::new();
    let tokens = ["--token", "t", "--admin-token", "a", "--log-format", "json", "--log-level"];
    let server = folder.serve(&[&tokens[..], &["error", "--log-secret", "s"]].concat());
    let api = &server.api;
    let admin = api.with(Some("a"));
    let block = |api: &Api, for_us: u64| {
        api.post("/v1/keys/api/user:42/block", format!("{{\"for\":{for_us}}}")).status
    };
    assert_eq!(block(&api.with(Some("t")), 7), 401, "no change, so no line");
    let long = "a".repeat(129);
    let long = [("content-type", "application/json"), ("x-tidegate-actor", &*long)];
    for (method, path) in
        [("POST", "/v1/keys/api/user:42/block"), ("DELETE", "/v1/keys/api/user:42")]
    {
        let refused = admin.request(method, path, &long, "{\"for_us\":7}");
        assert_eq!(refused.status, 400);
        assert!(refused.get("detail").as_str().unwrap().contains("x-tidegate-actor"));
    }
    assert_eq!([block(&admin, 60_000_000), block(&admin, 60_000_000), block(&admin, 0)], [200; 3]);
    let bob = [("x-tidegate-actor", "bob")];
    assert_eq!(admin.request("DELETE", "/v1/keys/api/user:42", &bob, "").status, 200);
    let own = "{\"capacity\":9,\"rate\":\"1/d\",\"until_us\":9000000000000000}";
    let alice = [("content-type", "application/json"), ("x-tidegate-actor", "alice")];
    let path = "/v1/overrides/api/user:42";
    assert_eq!(admin.request("PUT", path, &alice, own).status, 200);
    assert_eq!(admin.delete(path).status, 200);
    assert_eq!(admin.check("api", "user:42", 1, None).status, 200, "no line either");
    let log = server.terminate();
    assert!(!log.contains("user:42"), "{log}");
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told = |line: &Value| line["message"].as_str().unwrap().to_owned();
    let blocked = "audit: a key was blocked";
    assert_eq!(
        lines.iter().map(told).collect::<Vec<_>>(),
        [
            blocked,
            blocked,
            "audit: a key was unblocked",
            "audit: a key was reset",
            "audit: policies: the override of a key was put",
            "audit: policies: the override of a key was deleted",
        ]
    );
    let key = &lines[0]["key"];
    assert_eq!(key.as_str().unwrap().len(), 16, "a hash");
    assert!(lines.iter().all(|line| line["policy"] == "api" && line["key"] == *key), "{log}");
    let by: Vec<&str> = lines.iter().map(|line| line["by"].as_str().unwrap()).collect();
    let scope = "administration";
    assert_eq!(by, [scope, scope, scope, "bob", "alice", scope]);
    assert!(lines.iter().all(|line| line["client"] == "127.0.0.1"), "{log}");
    assert_eq!(lines[0]["for_us"], 60_000_000);
    assert_eq!([&lines[2]["for_us"], &lines[3]["for_us"]], [&Value::Null; 2]);
    assert_eq!(
        (&lines[4]["until_us"], &lines[4]["by"]),
        (&9_000_000_000_000_000_u64.into(), &"alice".into())
    );
}

#[test]
fn a_server_that_stops_under_load_gives_back_the_units_that_it_took_in_advance() {
    const LIMIT: u64 = 1_000_000;
    let folder = Folder::new();
    folder.write(
        "policies.toml",
        format!(
            "[policies.hot]\nlocal = {{ most = 50000, time = '10m' }}\n\
             limits = [{{ algorithm = 'fixed_window', limit = {LIMIT}, period = '365d' }}]\n"
        ),
    );
    let redis = RedisServer::start().unwrap();
    let arguments = ["--redis", redis.url(), "--redis-deadline", "5000"];
    let server = folder.serve(&arguments);
    let api = &server.api;
    let (granted, lost) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let answer = api.try_post("/v1/check", r#"{"policy":"hot","key":"k"}"#);
                    let asked = answer.and_then(|answer| answer.get("allowed").as_bool());
                    match asked {
                        Some(true) => granted.fetch_add(1, Ordering::Relaxed),
                        Some(false) => panic!("refused below the limit"),
                        None => break lost.fetch_add(1, Ordering::Relaxed),
                    };
                }
            });
        }
        let is_local = || api.get("/metrics", &[]).text.contains("{kind=\"lent\"} 0\n");
        until("the server lends units", || granted.load(Ordering::Relaxed) >= 500 && !is_local());
        server.signal("TERM");
    });
    let log = server.ended();
    let (granted, lost) = (granted.into_inner(), lost.into_inner());
    let left =
        folder.serve(&arguments).api.check("hot", "k", 0, None).get("remaining").as_u64().unwrap();
    let taken = LIMIT - left;
    assert!((granted..=granted + lost).contains(&taken), "{granted} + {lost}, {taken}: {log}");
    let returned = log.split("returned_units=").nth(1).unwrap().trim().parse::<u64>().unwrap();
    assert!(returned > 0, "{log}");
}
