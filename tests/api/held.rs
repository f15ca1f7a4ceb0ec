//! What a request through the gateway holds, and until when.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use tempfile::tempdir;
use tidegate_tests::{Served, until};
use tungstenite::client::IntoClientRequest as _;
use tungstenite::stream::MaybeTlsStream;
use tungstenite::{Message, WebSocket};

use crate::gateway::{ALICE, problem, start, start_on};
use crate::upstream::{GZIP, Upstream, connect, send};

pub(crate) fn later(served: &Served, span: Duration) {
    served.api.get(&format!("/test/later?{}", span.as_millis()), &[]);
}

fn counted(served: &Served, what: &str) -> u64 {
    served.api.get("/test/count", &[]).get(what).as_u64().unwrap()
}

pub(crate) fn wait_for(served: &Served, what: &str, expected: u64) {
    until(format_args!("{what}: {expected}"), || counted(served, what) >= expected);
}

#[test]
fn an_upstream_that_is_down_is_a_problem_and_frees_what_was_held() {
    let (served, _upstream) = start();
    for round in 1..4 {
        problem(&send(&served, "GET /down/x", &[ALICE]), 502, ":upstream-failed");
        wait_for(&served, "released", round);
    }
    let page = send(&served, "GET /down/x", &[ALICE, ("accept", "text/html")]);
    assert!(page.status == 502 && page.body.contains("The site does not answer"), "{page:?}");
}

#[test]
fn a_request_holds_its_place_until_its_answer_has_ended() {
    let (served, upstream) = start();
    let begin = || {
        let mut stream = connect(&served);
        let head = "HTTP/1.1\r\nhost: h\r\nx-api-key: alice\r\nconnection: close\r\n\r\n";
        write!(stream, "GET /held/stream {head}").unwrap();
        let mut first = [0];
        stream.read_exact(&mut first).unwrap();
        stream
    };
    let mut stream = begin();
    problem(&send(&served, "GET /held/echo", &[ALICE]), 429, "#quota-exceeded");
    upstream.go.send(()).unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    wait_for(&served, "released", 1);
    for (round, path) in (2..).zip(["echo", "empty", "redirect", "echo"]) {
        assert!(send(&served, &format!("GET /held/{path}"), &[ALICE]).status < 400, "{path}");
        wait_for(&served, "released", round);
    }
    drop(begin()); // the client leaves in the middle
    upstream.go.send(()).unwrap();
    wait_for(&served, "released", 6);
    assert_eq!(send(&served, "GET /held/echo", &[ALICE]).status, 200);
}

#[test]
fn what_is_held_changes_no_answer() {
    let (served, _upstream) = start();
    for (path, released) in [("base", 0), ("held", 1)] {
        let echo = send(&served, &format!("GET /{path}/echo"), &[ALICE]);
        assert_eq!(echo.all("content-length"), [echo.body.len().to_string()], "{echo:?}");
        wait_for(&served, "released", released);
        let coded =
            send(&served, &format!("GET /{path}/gzip"), &[ALICE, ("accept-encoding", "gzip")]);
        assert_eq!(coded.all("content-encoding"), ["gzip"], "{coded:?}");
        assert!(coded.bytes.windows(3).any(|bytes| bytes == &GZIP[..3]), "{coded:?}");
        wait_for(&served, "released", 2 * released);
        let head = send(&served, &format!("HEAD /{path}/echo"), &[ALICE]);
        assert_eq!((head.status, head.body.as_str()), (200, ""));
        wait_for(&served, "released", 3 * released);
    }
}

#[test]
fn a_client_that_leaves_early_frees_its_place() {
    let (served, upstream) = start();
    let mut stream = connect(&served);
    let first = "GET /other HTTP/1.1\r\nhost: h\r\n\r\n";
    // the end of a connection with an unread answer is a reset, which the runtime sees at once
    write!(stream, "{first}GET /held/silent HTTP/1.1\r\nhost: h\r\nx-api-key: alice\r\n\r\n")
        .unwrap();
    upstream.wait_for_more_than(0);
    drop(stream);
    wait_for(&served, "released", 1);
    assert_eq!(send(&served, "GET /held/echo", &[ALICE]).status, 200);
}

/// Sends a request whose client closes its connection in an orderly way, which the runtime does not tell the Worker.
fn leave(served: &Served, upstream: &Upstream, path: &str) {
    let (mut stream, seen) = (connect(served), upstream.seen());
    write!(stream, "GET {path} HTTP/1.1\r\nhost: h\r\nx-api-key: alice\r\n\r\n").unwrap();
    upstream.wait_for_more_than(seen);
}

#[test]
fn a_client_that_leaves_before_the_answer_has_begun_frees_its_place_in_time() {
    let (served, upstream) = start();
    leave(&served, &upstream, "/slow/silent");
    for minute in 1..=20 {
        later(&served, Duration::from_secs(60));
        wait_for(&served, "fired", minute);
        if minute < 10 {
            wait_for(&served, "renewed", minute);
            problem(&send(&served, "GET /slow/echo", &[ALICE]), 429, "#quota-exceeded");
        }
    }
    assert_eq!(counted(&served, "renewed"), 9);
    assert_eq!(send(&served, "GET /slow/echo", &[ALICE]).status, 200);
}

#[test]
fn a_long_answer_is_counted_as_long_as_it_lasts() {
    let (served, upstream) = start();
    let mut stream = connect(&served);
    write!(stream, "GET /slow/stream HTTP/1.1\r\nhost: h\r\nx-api-key: alice\r\n\r\n").unwrap();
    let mut first = [0];
    stream.read_exact(&mut first).unwrap();
    for minute in 1..=20 {
        later(&served, Duration::from_secs(60));
        wait_for(&served, "renewed", minute);
    }
    problem(&send(&served, "GET /slow/echo", &[ALICE]), 429, "#quota-exceeded");
    upstream.go.send(()).unwrap();
    wait_for(&served, "released", 1);
    assert_eq!(send(&served, "GET /slow/echo", &[ALICE]).status, 200);
}

pub(crate) type Socket = WebSocket<MaybeTlsStream<TcpStream>>;

fn open(served: &Served, key: &str) -> Result<Socket, u16> {
    open_at(served, "sockets", key)
}

pub(crate) fn open_at(served: &Served, path: &str, key: &str) -> Result<Socket, u16> {
    let url = format!("{}/{path}/socket", served.url.replace("http://", "ws://"));
    let mut request = url.into_client_request().unwrap();
    request.headers_mut().insert("x-api-key", key.parse().unwrap());
    request.headers_mut().insert("sec-websocket-protocol", "one, two".parse().unwrap());
    let stream = MaybeTlsStream::Plain(connect(served));
    match tungstenite::client(request, stream) {
        Ok((socket, response)) => {
            assert_eq!(response.headers()["sec-websocket-protocol"], "one");
            let is_counted = path != "base";
            assert_eq!(response.headers().contains_key("ratelimit"), is_counted, "{response:?}");
            Ok(socket)
        }
        Err(tungstenite::HandshakeError::Failure(tungstenite::Error::Http(response))) => {
            Err(response.status().as_u16())
        }
        Err(error) => panic!("{error}"),
    }
}

#[track_caller]
pub(crate) fn echoes(socket: &mut Socket, message: Message) {
    socket.send(message.clone()).unwrap();
    assert_eq!(socket.read().unwrap(), message);
}

#[test]
fn a_websocket_is_counted_until_either_side_closes() {
    let (served, _upstream) = start();
    let mut socket = open(&served, "alice").unwrap();
    echoes(&mut socket, Message::text("héllo"));
    echoes(&mut socket, Message::binary(vec![0, 255, 7]));
    echoes(&mut socket, Message::text("x".repeat(500_000)));
    assert_eq!(open(&served, "alice").unwrap_err(), 429);
    assert!(open(&served, "bob").is_ok());
    let mut free = open_at(&served, "base", "alice").unwrap();
    echoes(&mut free, Message::text("without a limit"));
    socket.close(None).unwrap();
    while socket.read().is_ok() {}
    wait_for(&served, "released", 2); // bob's, too

    let mut socket = open(&served, "carol").unwrap();
    let released = counted(&served, "released");
    socket.send(Message::text("close")).unwrap(); // so the upstream closes
    while socket.read().is_ok() {}
    wait_for(&served, "released", released + 1);
    let mut socket = open(&served, "carol").unwrap();
    echoes(&mut socket, Message::text("again"));
    let released = counted(&served, "released");
    drop(socket); // without a word
    wait_for(&served, "released", released + 1);
    assert!(open(&served, "carol").is_ok());
}

/// WebAssembly carries the messages. A connection that nobody carries on must not look as if it were open.
#[test]
fn a_panic_closes_the_websockets_of_its_isolate() {
    let (served, _upstream) = start();
    let mut socket = open(&served, "alice").unwrap();
    let mut free = open_at(&served, "base", "alice").unwrap();
    echoes(&mut socket, Message::text("before"));
    assert_eq!(served.api.get("/test/trap", &[]).status, 500);
    let Ok(Message::Close(Some(frame))) = socket.read() else { panic!("expected a close") };
    assert_eq!(u16::from(frame.code), 1011);
    echoes(&mut free, Message::text("the runtime alone carries it"));
    let mut later = open(&served, "bob").unwrap();
    echoes(&mut later, Message::text("after"));
}

#[test]
fn a_websocket_is_kept_alive_by_heartbeats() {
    let (served, _upstream) = start();
    let mut socket = open(&served, "alice").unwrap();
    for renewed in 1..=6 {
        later(&served, Duration::from_secs(20 * 60));
        wait_for(&served, "renewed", renewed);
        echoes(&mut socket, Message::text("still here"));
    }
    assert_eq!(open(&served, "alice").unwrap_err(), 429, "two hours later it is still counted");
    socket.close(None).unwrap();
    while socket.read().is_ok() {}
    wait_for(&served, "released", 1);
    assert!(open(&served, "alice").is_ok());
}

#[test]
fn what_a_dead_isolate_held_is_free_after_its_time_to_live() {
    let storage = tempdir().unwrap();
    let (served, _upstream) = start_on(Some(storage.path()));
    let _socket = open(&served, "alice").unwrap();
    drop(served);
    let (served, _upstream) = start_on(Some(storage.path()));
    later(&served, Duration::from_secs(59 * 60));
    assert_eq!(open(&served, "alice").unwrap_err(), 429);
    later(&served, Duration::from_secs(2 * 60));
    assert!(open(&served, "alice").is_ok());
}
