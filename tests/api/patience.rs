//! Of the host alone: how long it waits for clients. A Worker's runtime has limits of its own.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tidegate_tests::{Served, TOKEN, patient_memory};

use crate::POLICIES;

fn impatient() -> Served {
    patient_memory(POLICIES, Duration::from_millis(100))
}

/// All that comes back until the host closes the connection.
fn answer(served: &Served, sent: &str) -> String {
    let address = served.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap(); // longer than any test takes
    stream.write_all(sent.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it is closed");
    answer
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
        assert!(answer.contains("expected the whole body within 100ms"), "{answer}");
    }
}
