//! Which heads the host accepts (RFC 9112). A Worker has no such tests: its runtime reads the heads.

use serde_json::Value;
use tidegate_tests::{TOKEN, memory};

use crate::POLICIES;
use crate::patience::answer;

pub(crate) const LATER: &str = "GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";

#[test]
fn a_wrong_head_gets_a_problem_and_closes_its_connection() {
    let served = memory(POLICIES);
    let body = "{\"policy\":\"open\",\"key\":\"k\"}";
    let post = |version: &str, fields: &str| {
        let length = body.len();
        format!(
            "POST /v1/check {version}\r\nauthorization: Bearer {TOKEN}\r\n{fields}\
             content-length: {length}\r\n\r\n{body}"
        )
    };
    let host = |host: &str| post("HTTP/1.1", &format!("host: {host}\r\n"));
    let coded = |fields: &str| {
        let length = body.len();
        format!(
            "POST /v1/check HTTP/1.1\r\nauthorization: Bearer {TOKEN}\r\nhost: x\r\n{fields}\r\n\
             {length:x}\r\n{body}\r\n0\r\n\r\n"
        )
    };
    let early = |path: &str, token: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nauthorization: Bearer {token}\r\nhost: x\r\ncontent-length: 99\r\n\r\n"
        )
    };
    let long = "x/".repeat(10_000);
    for (sent, status, detail) in [
        (post("HTTP/1.1", ""), 400, "`host`: expected one field, found 0"),
        (post("HTTP/1.1", "host: x\r\nhost: x\r\n"), 400, "`host`: expected one field, found 2"),
        (post("HTTP/1.0", "host: x\r\nHost: y\r\n"), 400, "`host`: expected one field, found 2"),
        (host("x y"), 400, "`host`: expected a host, with or without a port, found \"x y\""),
        (host("x, y"), 400, "found \"x, y\""),
        (host("user@x"), 400, "found \"user@x\""),
        (host("http://x"), 400, "found \"http://x\""),
        (host("x:80a"), 400, "found \"x:80a\""),
        (host("x:80:90"), 400, "found \"x:80:90\""),
        (host("[::1"), 400, "found \"[::1\""),
        (host("[::1]x"), 400, "found \"[::1]x\""),
        (host("[x]"), 400, "found \"[x]\""),
        (host("::1"), 400, "found \"::1\""),
        (host("%zz"), 400, "found \"%zz\""),
        (host("\u{e9}"), 400, "`host`: expected a host"),
        (host(&long), 400, "… (20000 bytes)"),
        (
            coded("transfer-encoding: gzip, chunked\r\n"),
            501,
            "expected chunked, found \"gzip, chunked\"",
        ),
        (
            coded("transfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n"),
            501,
            "\"gzip, chunked\"",
        ),
        (coded("transfer-encoding: chunked, chunked\r\n"), 501, "\"chunked, chunked\""),
        (coded(&format!("transfer-encoding: {long}, chunked\r\n")), 501, "… (20009 bytes)"),
        // the rest of these bodies never comes, so the next request could not be told from it
        (early("/v1/check", "x"), 401, ""),
        (early("/v1/none", TOKEN), 404, ""),
        (early("/v1/check?a=b", TOKEN), 400, ""),
    ] {
        let answer = answer(
            &served,
            if sent.contains(": 99\r\n") { sent.clone() } else { sent.clone() + LATER },
        );
        let line = answer.split_once(' ').map(|(_version, rest)| rest).unwrap_or_default();
        assert!(line.starts_with(&status.to_string()), "{sent}: {answer}");
        assert_eq!(answer.matches("HTTP/1.").count(), 1, "{sent}: {answer}");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("content-type: application/problem+json"), "{sent}: {head}");
        assert!(head.contains("connection: close"), "{sent}: {head}");
        let problem: Value = serde_json::from_str(body).unwrap();
        assert_eq!(problem["status"], status);
        assert!(problem["detail"].as_str().unwrap().contains(detail), "{sent}: {problem}");
    }
    assert_eq!(served.api.check("open", "k", 0, None).get("remaining"), 5, "nothing was consumed");
}

#[test]
fn a_valid_head_is_served() {
    let served = memory(POLICIES);
    let hosts =
        ["", "x", "x:", "x:8080", "192.0.2.7:80", "[::1]", "[2001:db8::7]:80", "a_b.c-d~!", "%41"];
    for host in hosts {
        let sent = format!("GET /healthz HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        let answer = answer(&served, sent);
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{host:?}: {answer}");
    }
    let body = "{\"policy\":\"open\",\"key\":\"k\"}";
    let length = body.len();
    let chunked = format!(
        "POST /v1/check HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n\
         transfer-encoding: Chunked\r\nconnection: close\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\r\n"
    );
    for sent in [
        "GET /healthz HTTP/1.0\r\n\r\n",
        "GET /healthz HTTP/1.0\r\nhost: x\r\n\r\n",
        "GET http://x/healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        "GET http://x:80/healthz?a=b HTTP/1.1\r\nhost: another\r\nconnection: close\r\n\r\n",
        &chunked,
    ] {
        let answer = answer(&served, sent);
        let line = answer.lines().next().unwrap_or_default();
        assert!(line.ends_with(" 200 OK"), "{sent}: {answer}");
    }
}
