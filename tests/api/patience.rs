//! How long the host waits for clients, and how many it serves at a time. The runtime of a Worker has its own
//! limits.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use tidegate::serve::Bounds;
use tidegate_tests::{Served, TOKEN, bounded_memory};

use crate::POLICIES;
use crate::heads::LATER;

fn impatient() -> Served {
    let read_timeout = Duration::from_secs(1);
    bounded_memory(POLICIES, Bounds { read_timeout, ..Bounds::default() })
}

/// All bytes of the answer, up to the end of the connection.
pub(crate) fn answer(served: &Served, sent: impl AsRef<[u8]>) -> String {
    let mut stream = connect(served);
    stream.write_all(sent.as_ref()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the host closes the connection");
    answer
}

fn connect(served: &Served) -> TcpStream {
    let stream = TcpStream::connect(served.url.strip_prefix("http://").unwrap()).unwrap();
    // longer than any test runs
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

#[test]
fn a_connection_without_a_whole_head_is_closed_in_time() {
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
fn connections_that_stay_silent_give_up_their_places_early() {
    let first_head_timeout = Duration::from_secs(1);
    let bounds = Bounds { first_head_timeout, max_connections: 10, ..Bounds::default() };
    let served = bounded_memory(POLICIES, bounds);
    let silent: Vec<TcpStream> = (0..10).map(|_| connect(&served)).collect();
    assert!(answer(&served, LATER).starts_with("HTTP/1.1 200 OK"), "a place is free");
    for mut stream in silent {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "");
    }
    // a connection that has sent a request stays open for longer
    let mut idle = connect(&served);
    idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    assert_eq!(answer(&served, ""), "", "a silent one is closed meanwhile");
    idle.write_all(LATER.as_bytes()).unwrap();
    let mut answers = String::new();
    idle.read_to_string(&mut answers).unwrap();
    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 2, "{answers}");
}

#[test]
fn strangers_that_ask_all_the_time_give_up_their_places() {
    for path in ["/healthz", "/v1/keys/open/k"] {
        let served = bounded_memory(POLICIES, Bounds { max_connections: 1, ..Bounds::default() });
        let mut stream = connect(&served);
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
        let mut ask = move || {
            stream.write_all(request.as_bytes())?;
            stream.read(&mut [0; 4_096])
        };
        assert!(ask().unwrap() > 0, "{path}");
        let stranger = thread::spawn(move || while ask().is_ok_and(|bytes| bytes > 0) {});
        assert!(answer(&served, LATER).starts_with("HTTP/1.1 200 OK"), "{path}");
        stranger.join().unwrap();
    }
}

/// The place of the first connection is wanted while its body is awaited.
#[test]
fn a_request_that_has_begun_is_answered_before_its_place_goes_to_another() {
    let (read_timeout, first_head_timeout) = (Duration::from_secs(6), Duration::from_secs(2));
    let bounds =
        Bounds { read_timeout, first_head_timeout, max_connections: 1, ..Bounds::default() };
    let served = bounded_memory(POLICIES, bounds);
    let mut begun = connect(&served);
    let head = format!(
        "POST /v1/check HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\ncontent-length: 100\r\n\r\n"
    );
    begun.write_all(head.as_bytes()).unwrap();
    assert!(answer(&served, LATER).starts_with("HTTP/1.1 200 OK"), "the place is free");
    let mut answer = String::new();
    begun.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 Request Timeout"), "{answer:?}");
}

/// The body of the first request never comes, so the answer tells that its connection was there for longer than a head may take.
#[test]
fn a_connection_with_half_a_head_keeps_its_place() {
    let read_timeout = Duration::from_secs(6);
    let first_head_timeout = Duration::from_secs(5);
    let bounds =
        Bounds { read_timeout, first_head_timeout, max_connections: 2, ..Bounds::default() };
    let served = bounded_memory(POLICIES, bounds);
    let (mut begun, mut silent) = (connect(&served), connect(&served));
    begun.write_all(b"POST /v1/check HTTP/1.1\r\nhost: x\r\n").unwrap();
    assert!(answer(&served, LATER).starts_with("HTTP/1.1 200 OK"), "a place is free");
    let mut answer = String::new();
    silent.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "", "the silent one has left");
    let rest = format!("authorization: Bearer {TOKEN}\r\ncontent-length: 100\r\n\r\n");
    begun.write_all(rest.as_bytes()).unwrap();
    begun.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 Request Timeout"), "{answer:?}");
}

#[test]
fn a_body_that_comes_too_late_is_a_problem() {
    let served = impatient();
    let head = format!(
        "POST /v1/check HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n\
         content-length: 100\r\n\r\n"
    );
    for sent in [head.clone(), head + "{\"policy\":\"open\",\"key\":"] {
        let answer = answer(&served, &sent);
        assert!(answer.starts_with("HTTP/1.1 408 Request Timeout"), "{answer}");
        assert!(answer.contains("urn:tidegate:body-too-late"), "{answer}");
        assert!(answer.contains("expected the whole body within 1s after the head"), "{answer}");
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
    // one answer has a body, the other has none
    for asked in [batch, head("GET /v1/gate?policy=open&key=k&cost=0") + "\r\n"] {
        let asked = asked.repeat(100_000_usize.div_ceil(asked.len()));
        let mut stream = connect(&served);
        // more than the buffers of the operating system hold for both sides
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
    let peek = format!(
        "GET /v1/gate?policy=open&key=k&cost=0 HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n\r\n"
    );
    let mut first = connect(&served);
    first.write_all(peek.as_bytes()).unwrap();
    let mut answered = [0];
    first.read_exact(&mut answered).unwrap();
    let mut second = connect(&served);
    second.write_all(check("close").as_bytes()).unwrap();
    // the host serves the first connection alone: its request is decided before those sent earlier
    first.write_all((peek.repeat(1_000) + &check("close")).as_bytes()).unwrap();
    let mut answers = String::new();
    first.read_to_string(&mut answers).unwrap();
    assert!(answers.contains("\"allowed\":true"), "{:?}", answers.lines().last());
    let mut answer = String::new();
    second.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("\"allowed\":false"), "{answer}");
}
