//! Faults of hosts and of their clients.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use h2::SendStream;
use h2::client::{ResponseFuture, SendRequest};
use http::Request;
use tidegate::local::RedisServer;
use tidegate_tests::{Api, World};

use super::{LIMIT, POLICIES, Row, patient, world};

fn one_is_killed(fault: &'static str, hosts: usize) {
    let server = RedisServer::start().unwrap();
    let world = world(hosts, &["--redis", server.url()]);
    let recovered = world.run(|world| {
        world.kill(0);
        world.until_all_decide();
        world.start(0);
        world.until_all_decide()
    });
    Row { fault, bound: LIMIT, recovered }.check(&world);
}

#[test]
fn one_of_two_hosts_is_killed() {
    one_is_killed("`kill -9` of one of two hosts", 2);
}

#[test]
fn one_of_eight_hosts_is_killed() {
    one_is_killed("`kill -9` of one of eight hosts", 8);
}

#[test]
fn hosts_end_under_load() {
    let server = RedisServer::start().unwrap();
    let world = world(2, &["--redis", server.url()]);
    let recovered = world.run(|world| {
        let lost = || world.heard().iter().map(|heard| heard.lost).sum::<u64>();
        let before = lost();
        world.terminate(0);
        world.until_all_decide();
        // each caller may have sent one request that the host did not read any more
        let lost = lost() - before;
        assert!(lost <= 4, "{lost} requests were lost");
        world.start(0);
        world.until_all_decide()
    });
    let row = Row { fault: "SIGTERM of a host under load", bound: LIMIT, recovered };
    row.check(&world);
}

/// Connections that send this and nothing more.
fn connections(world: &World, count: usize, bytes: &[u8]) -> Vec<TcpStream> {
    let address = world.url(0).replace("http://", "");
    let open = |_| {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    };
    (0..count).map(open).collect()
}

#[test]
fn a_host_has_no_file_descriptors_left() {
    let server = RedisServer::start().unwrap();
    let world = world(1, &["--redis", server.url()]);
    world.bound(0, "--nofile=64");
    let recovered = world.run(|world| {
        let open = connections(world, 100, b""); // the host closes those that stay silent
        world.until_all_decide();
        // at most one line a second tells errors, so another error may have taken its place
        world.until("the log says so", |_| world.log(0).contains("Too many open files"));
        drop(open);
        world.until_all_decide()
    });
    let fault = "a host has no file descriptors left";
    Row { fault, bound: LIMIT, recovered }.check(&world);
}

/// A file may not grow, as on a disk that is full.
#[test]
fn the_disk_is_full_when_the_policies_are_changed() {
    let server = RedisServer::start().unwrap();
    let world = patient(1, &["--redis", server.url(), "--token", "t", "--admin-token", "a"]);
    let api = Api::new(&world.url(0), Some("a"));
    let larger = format!("{POLICIES}# {}\n", "x".repeat(100_000));
    let version = || api.get("/v1/policies", &[]).get("version").as_u64();
    let recovered = world.run(|world| {
        world.bound(0, "--fsize=50000:");
        let refused = api.put_policies(&larger);
        assert_eq!(refused.status, 500, "{}", refused.text);
        let detail = refused.get("detail").as_str().unwrap().to_owned();
        assert!(detail.contains("could not be stored, so the earlier ones stay in force"));
        assert_eq!(version(), Some(1));
        world.until_all_decide();
        world.bound(0, "--fsize=unlimited:");
        assert_eq!(api.put_policies(&larger).status, 200);
        assert_eq!(version(), Some(2));
        world.until_all_decide()
    });
    let fault = "no room on the disk for a `PUT` of the policies";
    Row { fault, bound: LIMIT, recovered }.check_unnoticed(&world);
    let log = world.log(0);
    assert!(log.contains("the policies cannot be stored: File too large"), "{log}");
    let left: Vec<_> =
        fs::read_dir(world.folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with(".tmp")), "{left:?}");
}

/// As a proxy does, many clients share a connection. One of them does not send the rest of its body.
#[test]
fn one_of_many_clients_on_a_connection_is_slow() {
    const OTHERS: usize = 49;
    let server = RedisServer::start().unwrap();
    let world = patient(1, &["--redis", server.url()]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let recovered = world.run(|world| {
        runtime.block_on(async {
            let (own, slow) = Clients::connect(&world.url(0)).await;
            for _ in 0..4 {
                let looks = join_all((0..OTHERS).map(async |_| own.look().await)).await;
                assert_eq!(looks, [200; OTHERS]);
            }
            drop(slow);
        });
        world.until_all_decide()
    });
    let fault = "one of 50 clients on a connection of HTTP/2 does not send the rest of its body";
    Row { fault, bound: LIMIT, recovered }.check_unnoticed(&world);
}

/// Clients that share a connection of HTTP/2.
struct Clients {
    requests: SendRequest<Bytes>,
    url: String,
}

impl Clients {
    /// The clients, and a body that has only begun.
    async fn connect(url: &str) -> (Self, (ResponseFuture, SendStream<Bytes>)) {
        let stream = tokio::net::TcpStream::connect(url.replace("http://", "")).await.unwrap();
        let (requests, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let head = Request::post(format!("{url}/v1/check")).header("content-length", "100");
        let mut begun = requests.clone().ready().await.unwrap();
        let (answer, mut body) = begun.send_request(head.body(()).unwrap(), false).unwrap();
        body.send_data("{".into(), false).unwrap();
        (Self { requests, url: url.to_owned() }, (answer, body))
    }

    /// The status of a look at a key.
    async fn look(&self) -> u16 {
        let look = Request::get(format!("{}/v1/keys/closed/k", self.url)).body(()).unwrap();
        let mut ready = self.requests.clone().ready().await.unwrap();
        let (answer, _) = ready.send_request(look, true).unwrap();
        answer.await.unwrap().status().as_u16()
    }
}

#[test]
fn many_clients_are_slow() {
    let server = RedisServer::start().unwrap();
    let world = world(1, &["--redis", server.url()]);
    let recovered = world.run(|world| {
        let head = b"POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{";
        let slow = connections(world, 500, head);
        world.wait(Duration::from_secs(1));
        let took = world.until_all_decide();
        drop(slow);
        took
    });
    let fault = "500 clients that do not send the rest of their bodies";
    Row { fault, bound: LIMIT, recovered }.check(&world);
}

#[test]
fn the_policy_file_becomes_garbage() {
    let server = RedisServer::start().unwrap();
    let world = patient(2, &["--redis", server.url()]);
    let file = world.folder.path().join("policies.toml");
    let recovered = world.run(|world| {
        fs::write(&file, "\u{0}{ [[ garbage").unwrap();
        world.until("both hosts refuse the file", |_| {
            (0..2).all(|number| world.log(number).contains("policies.toml"))
        });
        world.until_all_decide();
        fs::write(&file, POLICIES).unwrap();
        world.until_all_decide()
    });
    let fault = "the policy file was replaced by garbage";
    Row { fault, bound: LIMIT, recovered }.check_unnoticed(&world);
}
