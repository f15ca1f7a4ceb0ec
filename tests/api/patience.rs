//! Of the host alone: how long it waits for clients, and for how many. A Worker's runtime has limits
//! of its own.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tidegate::serve::Bounds;
use tidegate_tests::{Served, TOKEN, bounded_memory};

use crate::POLICIES;
use crate::heads::LATER;

fn impatient() -> Served {
    let read_timeout = Duration::from_millis(100);
    bounded_memory(POLICIES, Bounds { read_timeout, ..Bounds::default() })
}

/// All that comes back until the host closes the connection.
pub(crate) fn answer(served: &Served, sent: impl AsRef<[u8]>) -> String {
    let mut stream = connect(served);
    stream.write_all(sent.as_ref()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it is closed");
    answer
}

fn connect(served: &Served) -> TcpStream {
    let stream = TcpStream::connect(served.url.strip_prefix("http://").unwrap()).unwrap();
    // longer than any test takes
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

#[test]
fn a_connection_on_which_no_whole_head_comes_is_closed() {
    let served = impatient();
    for sent in ["", "GET", "GET /healthz HTTP/1.1\r\nhost: x\r\nx-slow: "] {
        assert_eq!(answer(&served, sent), "", "{sent:?}");
    }
    let idle = answer(&served, "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n");
    assert!(idle.starts_with("HTTP/1.1 200 OK"), "{idle}");
    let twice = "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\nGET /hea";
    assert_eq!(answer(&served, twice).matches("HTTP/1.1 200 OK").count(), 1);
}

#[test]
fn a_body_that_does_not_come_is_a_problem() {
    let served = impatient();
    let head = format!(
        "POST /v1/check HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n\
         content-length: 100\r\n\r\n"
    );
    for sent in [head.clone(), head + "{\"policy\":\"open\",\"key\":"] {
        let answer = answer(&served, &sent);
        assert!(answer.starts_with("HTTP/1.1 408 Request Timeout"), "{answer}");
        assert!(answer.contains("urn:tidegate:body-too-late"), "{answer}");
        assert!(answer.contains("expected the whole body within 100ms after the head"), "{answer}");
    }
}

#[test]
fn a_client_that_never_reads_is_closed_and_frees_its_place() {
    let write_timeout = Duration::from_millis(100);
    let bounds = Bounds { write_timeout, max_connections: 1, ..Bounds::default() };
    let served = bounded_memory(POLICIES, bounds);
    let head =
        |line: &str| format!("{line} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n");
    let checks = vec!["{\"policy\":\"open\",\"key\":\"k\"}"; 1_000].join(",");
    let batch = format!("{{\"checks\":[{checks}]}}");
    let batch = format!("{}content-length: {}\r\n\r\n{batch}", head("POST /v1/check"), batch.len());
    // answers with a body, and without one
    for asked in [batch, head("GET /v1/gate?policy=open&key=k&cost=0") + "\r\n"] {
        let asked = asked.repeat(100_000_usize.div_ceil(asked.len()));
        let mut stream = connect(&served);
        // more than the operating system keeps for both sides
        let error = (0..640).find_map(|_| stream.write_all(asked.as_bytes()).err());
        let error = error.expect("the host takes requests without end");
        let closed = matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
        assert!(closed, "the host keeps the connection: {error}");
        assert!(answer(&served, LATER).starts_with("HTTP/1.1 200 OK"), "its place is free");
    }
}

#[test]
fn connections_wait_for_a_place() {
    let served = bounded_memory(POLICIES, Bounds { max_connections: 1, ..Bounds::default() });
    let check = |connection: &str| {
        let body = "{\"policy\":\"open\",\"key\":\"k\",\"cost\":5}";
        format!(
            "POST /v1/check HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n\
             connection: {connection}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let health = "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n";
    let mut first = connect(&served);
    first.write_all(health.as_bytes()).unwrap();
    let mut answered = [0];
    first.read_exact(&mut answered).unwrap();
    let mut second = connect(&served);
    second.write_all(check("close").as_bytes()).unwrap();
    // the first is served alone: what it asks for is decided before what was sent earlier
    first.write_all((health.repeat(1_000) + &check("close")).as_bytes()).unwrap();
    let mut answers = String::new();
    first.read_to_string(&mut answers).unwrap();
    assert!(answers.contains("\"allowed\":true"), "{:?}", answers.lines().last());
    let mut answer = String::new();
    second.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("\"allowed\":false"), "{answer}");
}
