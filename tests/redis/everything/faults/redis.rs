//! Faults of Redis and of the network to it.

use std::fs;
use std::time::Duration;

use redis::{Connection, FromRedisValue};
use tidegate::local::{RedisServer, at_a_port};
use tidegate_tests::until;

use super::{LIMIT, Row, patient, under_both, world};
use crate::certificates::{Authority, Demand, EXPIRED, VALID};
use crate::proxy::Proxy;

fn connect(url: &str) -> Connection {
    redis::Client::open(url).unwrap().get_connection().unwrap()
}

fn ask<T: FromRedisValue>(url: &str, words: &str) -> T {
    let mut words = words.split(' ');
    let mut command = redis::cmd(words.next().unwrap());
    words.for_each(|word| _ = command.arg(word));
    command.query(&mut connect(url)).unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

fn set(url: &str, name: &str, value: &str) {
    let () = ask(url, &format!("CONFIG SET {name} {value}"));
}

/// Two hosts on this Redis while `on_error` decides, and afterwards. The hosts grant the limit, and `once_more`.
fn outage(
    fault: &'static str,
    once_more: u64,
    (url, arguments): (&str, &[&str]),
    begin: impl FnOnce() + Send,
    end: impl FnOnce() + Send,
) {
    let world = world(2, &[&["--redis", url], arguments].concat());
    let recovered = world.run(|world| {
        begin();
        world.until_all_notice();
        end();
        world.until_all_decide()
    });
    Row { fault, bound: LIMIT + once_more, recovered }.check(&world);
}

/// A Redis that is killed while hosts ask it, and started again.
fn killed(fault: &'static str, once_more: u64, server: RedisServer) {
    let (url, server) = (server.url().to_owned(), std::sync::Mutex::new(server));
    outage(
        fault,
        once_more,
        (&url, &[]),
        || server.lock().unwrap().stop(),
        || server.lock().unwrap().restart().unwrap(),
    );
}

#[test]
fn redis_is_killed_and_has_its_data_when_it_is_back() {
    let kept = ["--appendonly", "yes", "--appendfsync", "always"];
    killed("Redis killed, with its data", 0, RedisServer::start_with(kept).unwrap());
}

#[test]
fn redis_is_killed_and_has_lost_its_data_when_it_is_back() {
    killed("Redis killed, without its data", LIMIT, RedisServer::start().unwrap());
}

#[test]
fn redis_stands_still_for_five_seconds() {
    let server = RedisServer::start().unwrap();
    let world = world(2, &["--redis", server.url()]);
    let recovered = world.run(|world| {
        server.signal("STOP").unwrap();
        world.wait(Duration::from_secs(5));
        world.until_all_notice();
        server.signal("CONT").unwrap();
        world.until_all_decide()
    });
    let row = Row { fault: "Redis stopped for 5 s", bound: LIMIT, recovered };
    row.check(&world);
}

#[test]
fn redis_forgets_everything() {
    let server = RedisServer::start().unwrap();
    let world = world(2, &["--redis", server.url()]);
    let recovered = world.run(|world| {
        // not until all is granted: a grant whose answer came too late was heard by nobody
        world.until("a key is exhausted", |heard| heard.iter().all(|heard| heard.refused > 0));
        let () = ask(server.url(), "FLUSHALL");
        world.until_all_decide()
    });
    let [closed, _] = Row { fault: "`FLUSHALL`", bound: 2 * LIMIT, recovered }.check(&world);
    assert!(closed.granted > LIMIT, "{closed:?}");
}

#[test]
fn redis_takes_no_writes_because_it_is_a_replica() {
    let server = RedisServer::start().unwrap();
    let url = server.url();
    outage(
        "Redis became a replica (`READONLY`)",
        0,
        (url, &[]),
        || ask(url, "REPLICAOF 127.0.0.1 1"),
        || ask(url, "REPLICAOF NO ONE"),
    );
}

#[test]
fn redis_has_no_memory_left() {
    let server = RedisServer::start().unwrap();
    let url = server.url();
    outage(
        "out of memory (`OOM`)",
        0,
        (url, &[]),
        || {
            set(url, "maxmemory", "1");
            let () = ask(url, "CONFIG SET maxmemory-policy noeviction");
        },
        || set(url, "maxmemory", "0"),
    );
}

#[test]
fn redis_takes_no_writes_because_it_could_not_save() {
    let folder = tempfile::tempdir().unwrap();
    let server = RedisServer::start_with(["--dir", folder.path().to_str().unwrap()]).unwrap();
    let url = server.url();
    set(url, "stop-writes-on-bgsave-error", "no"); // answered once Redis has looked for a file to load
    fs::create_dir(folder.path().join("dump.rdb")).unwrap(); // so that no file can take its place
    let () =
        redis::cmd("CONFIG").arg("SET").arg("save").arg("1 1").query(&mut connect(url)).unwrap();
    let _: redis::RedisResult<String> = redis::cmd("BGSAVE").query(&mut connect(url));
    until("Redis could not save", || {
        ask::<String>(url, "INFO persistence").contains("rdb_last_bgsave_status:err")
    });
    outage(
        "Redis could not save (`MISCONF`)",
        0,
        (url, &[]),
        || set(url, "stop-writes-on-bgsave-error", "yes"),
        || {
            fs::remove_dir(folder.path().join("dump.rdb")).unwrap();
            let () = redis::cmd("CONFIG")
                .arg("SET")
                .arg("save")
                .arg("")
                .query(&mut connect(url))
                .unwrap();
            let _: redis::RedisResult<String> = redis::cmd("BGSAVE").query(&mut connect(url));
        },
    );
}

#[test]
fn the_password_changes_while_hosts_are_connected() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(&server, Duration::ZERO);
    let () = ask(server.url(), "ACL SETUSER tidegate on >right ~* +@all");
    let url = proxy.url.replace("redis://", "redis://tidegate:right@");
    let change = |rules: &str| {
        let () = ask(server.url(), &format!("ACL SETUSER tidegate {rules}"));
        let _: u64 = ask(server.url(), "CLIENT KILL USER tidegate");
    };
    outage(
        "wrong password at run time",
        0,
        (&url, &[]),
        || change("resetpass >wrong"),
        || change("resetpass >right"),
    );
}

#[test]
fn the_certificate_of_redis_expires() {
    let authority = Authority::new();
    let own = authority.sign("server", "127.0.0.1", VALID);
    let Some((server, url)) = authority.redis(&own, Demand::Nothing) else { return };
    let ca = authority.file("ca.pem");
    // Redis reads the files again when one of them is set
    let renew = |until| {
        let own = authority.sign("server", "127.0.0.1", until);
        let [certificate, key] = [own.certificate, own.key].map(|file| file.display().to_string());
        let () = ask(
            server.url(),
            &format!("CONFIG SET tls-cert-file {certificate} tls-key-file {key}"),
        );
        let _: u64 = ask(server.url(), "CLIENT KILL TYPE normal");
    };
    outage(
        "the certificate of Redis expired",
        0,
        (&url, &["--redis-ca", ca.to_str().unwrap()]),
        || renew(EXPIRED),
        || renew(VALID),
    );
}

#[test]
fn the_network_is_slow_and_resets_connections() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::resetting(&server, Duration::from_millis(100), 5, 1);
    let world = world(2, &["--redis", &proxy.url, "--redis-deadline", "1000"]);
    let recovered = world.run(|world| {
        world.until("connections are reset", |_| proxy.resets() >= 10);
        proxy.delay(Duration::ZERO);
        world.until_all_decide()
    });
    let fault = "200 ms to Redis and back, 5 % of the packets reset the connection";
    Row { fault, bound: LIMIT, recovered }.check(&world);
}

/// A replica at a port, and its master. They are the first and the second.
fn pair() -> [(RedisServer, u16); 2] {
    let start = |port: u16| {
        let own = port.to_string();
        let options = ["--bind", "127.0.0.1", "--port", &own, "--repl-diskless-sync-delay", "0"];
        RedisServer::start_with(options).map(|server| (server, port))
    };
    let started = || at_a_port(start).unwrap();
    let (master, replica) = (started(), started());
    let () = ask(replica.0.url(), &format!("REPLICAOF 127.0.0.1 {}", master.1));
    let is_up =
        || ask::<String>(replica.0.url(), "INFO replication").contains("master_link_status:up");
    until("the replica follows its master", is_up);
    [replica, master]
}

/// What is stored as used on this server, under both policies.
fn used(server: &RedisServer) -> [u64; 2] {
    let host = patient(1, &["--redis", server.url()]);
    ["closed", "open"].map(|policy| {
        let mut answer = ureq::get(format!("{}/v1/keys/{policy}/k", host.url(0))).call().unwrap();
        let text = answer.body_mut().read_to_string().unwrap();
        let answer: serde_json::Value = serde_json::from_str(&text).unwrap();
        LIMIT - answer["remaining"].as_u64().unwrap()
    })
}

#[test]
fn the_replica_is_promoted() {
    let [(replica, _), (mut master, _)] = pair();
    let proxy = Proxy::start(&master, Duration::ZERO);
    let world = world(2, &["--redis", &proxy.url]);
    let (recovered, missing) = world.run(|world| {
        master.stop();
        world.until_all_notice(); // nothing is granted any more
        let () = ask(replica.url(), "REPLICAOF NO ONE");
        let used = used(&replica);
        let granted = under_both(&world.heard()).map(|heard| heard.granted);
        let missing = granted.iter().zip(used).map(|(granted, used)| granted.saturating_sub(used));
        let missing = missing.max().unwrap();
        proxy.lead_to(&replica);
        (world.until_all_decide(), missing)
    });
    let fault = "a replica was promoted";
    Row { fault, bound: LIMIT + missing, recovered }.check(&world);
}
