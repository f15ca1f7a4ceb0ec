//! A server on a Redis that holds foreign values, or whose address is not one of a Redis.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use tidegate::local::RedisServer;

use super::Folder;

#[test]
fn on_error_decides_on_a_key_whose_value_in_redis_is_foreign() {
    let folder = Folder::new();
    let redis = RedisServer::start().unwrap();
    let mut connection = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    let server = folder.serve(&["--redis", redis.url(), "--redis-deadline", "10000"]);
    let api = &server.api;
    for key in ["cold", "warm"] {
        for policy in ["api", "open"] {
            assert_eq!(api.check(policy, key, 1, None).get("allowed"), true);
        }
    }
    let names: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
    assert_eq!(names.len(), 4);
    // another host, which has seen one of the keys
    let server = folder.serve(&["--redis", redis.url(), "--redis-deadline", "10000"]);
    let api = &server.api;
    for policy in ["api", "open"] {
        assert_eq!(api.check(policy, "warm", 0, None).get("remaining"), 1);
    }
    let mut answers = Vec::new();
    for foreign in ["", "\u{3}", "foreign"] {
        for name in &names {
            let () = redis::cmd("SET").arg(name).arg(foreign).query(&mut connection).unwrap();
        }
        for key in ["cold", "warm", "warm"] {
            let [closed, open] = ["api", "open"].map(|policy| api.check(policy, key, 1, None));
            let gates = ["api", "open"]
                .map(|policy| api.get(&format!("/v1/gate?policy={policy}&key={key}"), &[]).status);
            answers.push((foreign, key, closed, open, gates));
        }
        for name in &names {
            let after: String = redis::cmd("GET").arg(name).query(&mut connection).unwrap();
            assert_eq!(after, foreign);
        }
    }
    for (foreign, key, closed, open, gates) in answers {
        let asked = format!("{foreign:?}, {key}: {closed:?} {open:?}");
        assert_eq!(closed.get("allowed"), false, "{asked}");
        assert_eq!(open.get("allowed"), true, "{asked}");
        for reply in [&closed, &open] {
            assert_eq!(
                reply.get("degraded"),
                "the stored bytes are not a state of this policy",
                "{asked}"
            );
        }
        assert_eq!(gates, [503, 204], "{asked}");
    }
}

#[test]
fn an_address_that_is_not_one_of_a_redis_says_what_to_write() {
    let folder = Folder::new();
    folder.write("t.jsonl", "{\"t_us\":1,\"policy\":\"api\",\"key\":\"k\"}\n");
    for (address, message) in [
        (
            "rediss://user:hunter2@h:6379#insecure",
            "expected no `#insecure`: the certificate of a Redis is always verified",
        ),
        (
            "localhost:6379",
            "expected a scheme and `://`, as in `redis://HOST:PORT`, `rediss://HOST:PORT` for TLS, `redis+unix:///PATH`, ",
        ),
        ("redis://hunter2:127.0.0.1:17010", "expected `redis://USER:PASSWORD@HOST:PORT/DATABASE`"),
        ("redis://127.0.0.1?db=2", "expected only `protocol=2` or `3` after `?`, and no `#`"),
    ] {
        let shown = format!("error: --redis …: {message}");
        for (command, message) in [
            (&["check", "--policy", "api", "--key", "k"][..], &*shown),
            (&["serve", "--listen", "127.0.0.1:0"], &shown),
            (&["replay", "t.jsonl", "--backend", "redis"], message),
            (&["parity", "t.jsonl"], message),
        ] {
            folder.fails(&[command, &["--redis", address]].concat(), message);
        }
    }
}

#[test]
fn an_error_of_redis_at_the_start_forges_no_line_of_the_log() {
    let folder = Folder::new();
    let [fake, taken] = [(), ()].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let url = format!("redis://{}/?protocol=3", fake.local_addr().unwrap());
    thread::spawn(move || {
        for mut stream in fake.incoming().flatten() {
            while stream.read(&mut [0; 4_096]).is_ok_and(|bytes| bytes > 0) {
                let _ = stream.write_all(&b"!16\r\nERR wrong\nforged\r\n".repeat(8));
            }
        }
    });
    // it ends because the address is taken
    let listen = taken.local_addr().unwrap().to_string();
    let output = folder
        .command(&["serve", "--redis", &url, "--redis-deadline", "10000", "--listen", &listen])
        .output()
        .unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(log.contains("forged") && log.lines().all(|line| !line.starts_with("forged")), "{log}");
}
