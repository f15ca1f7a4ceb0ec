//! Faults of hosts and of their clients.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use tidegate::local::RedisServer;

use crate::world::{DEADLINE, Heard, LIMIT, POLICIES, Row, World};

fn one_is_killed(fault: &'static str, hosts: usize) {
    let server = RedisServer::start().unwrap();
    let world = World::new(hosts, &["--redis", server.url()]);
    let recovered = world.run(|world| {
        world.kill(0);
        world.until_all_decide();
        world.start(0);
        world.until_all_decide()
    });
    Row { fault, bound: LIMIT, recovered, deadline: DEADLINE }.check(&world);
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
    let world = World::new(2, &["--redis", server.url()]);
    let recovered = world.run(|world| {
        let before = Heard::all(&world.heard()).lost;
        assert!(world.terminate(0), "{}", world.log(0));
        world.until_all_decide();
        // each caller may have sent one request that the host did not read any more
        let lost = Heard::all(&world.heard()).lost - before;
        assert!(lost <= 4, "{lost} requests were lost");
        world.start(0);
        world.until_all_decide()
    });
    let row =
        Row { fault: "SIGTERM of a host under load", bound: LIMIT, recovered, deadline: DEADLINE };
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
    let world = World::new(1, &["--redis", server.url()]);
    world.bound_files(0, 64);
    let recovered = world.run(|world| {
        let open = connections(world, 100, b""); // the host closes those that stay silent
        world.until_all_decide();
        drop(open);
        world.until_all_decide()
    });
    let fault = "a host has no file descriptors left";
    Row { fault, bound: LIMIT, recovered, deadline: DEADLINE }.check(&world);
    assert!(world.log(0).contains("Too many open files"), "{}", world.log(0));
}

#[test]
fn many_clients_are_slow() {
    let server = RedisServer::start().unwrap();
    let world = World::new(1, &["--redis", server.url()]);
    let recovered = world.run(|world| {
        let head = b"POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{";
        let slow = connections(world, 500, head);
        world.wait(Duration::from_secs(1));
        let took = world.until_all_decide();
        drop(slow);
        took
    });
    let fault = "500 clients that do not send the rest of their bodies";
    Row { fault, bound: LIMIT, recovered, deadline: DEADLINE }.check(&world);
}

#[test]
fn the_policy_file_becomes_garbage() {
    let server = RedisServer::start().unwrap();
    let world = World::new(2, &["--redis", server.url()]);
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
    let heard = Row { fault, bound: LIMIT, recovered, deadline: DEADLINE }.check(&world);
    assert_eq!((heard.failed_closed, heard.passed_open, heard.lost), (0, 0, 0), "{heard:?}");
}
