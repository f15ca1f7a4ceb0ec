use std::io::{BufReader, Cursor, Read, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use tidegate_gate::{Id, Operation, Policies, Request};

use super::{Event, Line, Trace};

const POLICIES: &str = "
[policies.a]
limits = [{ algorithm = 'token_bucket', capacity = 5, rate = '1/s' }]
[policies.b]
limits = [{ algorithm = 'token_bucket', capacity = 5, rate = '1/s' }]
cost = 2
";

/// The policy, key, time and cost of an event, or a part of the error's text.
type Expected = Result<(&'static str, &'static str, u64, u64), &'static str>;

#[track_caller]
fn check(policy: Option<&str>, text: &[u8], expected: &[Expected]) {
    let policies = Policies::parse(POLICIES).unwrap();
    let mut trace = Trace::new(Box::new(Cursor::new(text.to_vec())), &policies, policy).unwrap();
    for expected in expected {
        let line = trace.next_line().unwrap().expect("a line");
        match (line, expected) {
            (Ok(Event { asked, at, key, .. }), Ok(expected)) => {
                let Operation::Decide(request) = asked.operation() else { panic!("{asked:?}") };
                let policy = asked.resolved().policy().name();
                assert_eq!((policy, key.as_str(), at.0, request.cost), *expected);
            }
            (Err(found), Err(expected)) => assert!(found.contains(expected), "{found}"),
            (found, expected) => panic!("{found:?} is not {expected:?}"),
        }
    }
    assert!(trace.next_line().unwrap().is_none());
}

#[test]
fn reads_common_and_combined_access_logs() {
    check(
        Some("b"),
        b"192.0.2.1 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 1\n\
          2001:db8::1 - a user [17/May/2015:12:05:03 +0200] \"GET /\" 200 1 \"-\" \"\xff\"\r\n",
        &[
            Ok(("b", "ip:192.0.2.1", 1_431_857_103_000_000, 2)),
            Ok(("b", "ip:2001:db8::1", 1_431_857_103_000_000, 2)),
        ],
    );
}

/// Of a format that begins with the virtual host, the client comes second.
#[test]
fn the_client_of_an_access_log_is_an_address() {
    const AT: u64 = 1_431_857_103_000_000;
    for (line, expected) in [
        ("example.com:443 192.0.2.1 - -", Ok(("a", "ip:192.0.2.1", AT, 1))),
        ("192.0.2.9:443 2001:db8::1 - bob", Ok(("a", "ip:2001:db8::1", AT, 1))),
        ("2001:db8::9:443 192.0.2.1 - bob", Ok(("a", "ip:192.0.2.1", AT, 1))),
        ("::ffff:192.0.2.1 - -", Ok(("a", "ip:192.0.2.1", AT, 1))),
        ("192.0.2.1 192.0.2.2 - a b", Ok(("a", "ip:192.0.2.1", AT, 1))), // what a client calls itself
        ("example.com:443 - - -", Err("expected the client's address, found \"example.com:443\"")),
        ("example.com:443 host.example - -", Err("found \"example.com:443\"")),
        ("host.example - -", Err("expected the client's address, found \"host.example\"")),
        ("192.0.2.1:55 - -", Err("found \"192.0.2.1:55\"")),
        ("192.0.2.05 - -", Err("found \"192.0.2.05\"")),
        ("fe80::1%eth0 - -", Err("found \"fe80::1%eth0\"")),
        ("- - -", Err("found \"-\"")),
    ] {
        let line = format!("{line} [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 1");
        check(Some("a"), line.as_bytes(), &[expected]);
    }
}

#[test]
fn an_access_log_needs_a_policy_that_takes_its_key_from_the_address() {
    let limits = "limits = [{ algorithm = 'token_bucket', capacity = 5, rate = '1/s' }]";
    let line = "192.0.2.1 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 1";
    for (sources, is_readable) in [
        ("['ip']", true),
        ("['header:x-api-key', 'ip']", true),
        ("['header:x-api-key', ['cookie:sid', 'ip']]", false),
        ("['country']", false),
    ] {
        let policies =
            Policies::parse(&format!("[policies.p]\nkey = {sources}\n{limits}")).unwrap();
        let mut trace = Trace::new(Box::new(Cursor::new(line)), &policies, None).unwrap();
        match trace.next_line().unwrap().unwrap() {
            Ok(event) => assert!(is_readable && event.key == "ip:192.0.2.1", "{sources}"),
            Err(error) => {
                let expected = "expected a policy whose `key` has the source \"ip\"";
                assert!(!is_readable && error.contains(expected), "{sources}: {error}");
            }
        }
    }
}

/// A pipe may bring one byte at a time.
#[test]
fn reads_a_pipe_compressed_or_not() {
    let text = b"{\"now_us\":7,\"key\":\"k\"}\n".repeat(3);
    for end in ["\r", "\r\n"] {
        let ended = String::from_utf8_lossy(&text).replace('\n', end).into_bytes();
        let mut read = Vec::new();
        let pipe = BufReader::with_capacity(1, Cursor::new(ended));
        super::decompressed(pipe).unwrap().read_to_end(&mut read).unwrap();
        assert_eq!(read, text, "{end:?}");
    }
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&text).unwrap();
    for bytes in [text.clone(), packed.finish().unwrap(), Vec::new(), vec![0x1f], vec![0x1f, 0x8b]]
    {
        let is_whole = bytes.len() != 2;
        let expected = if bytes.len() > 2 { &text } else { &bytes };
        let mut read = Vec::new();
        let pipe = BufReader::with_capacity(1, Cursor::new(bytes.clone()));
        let result = super::decompressed(pipe).unwrap().read_to_end(&mut read);
        assert_eq!(result.is_ok(), is_whole);
        assert!(!is_whole || read == *expected);
    }
}

/// nginx writes `X-Forwarded-For` into the last field.
#[test]
fn a_proxy_that_is_trusted_names_the_client_in_the_last_field() {
    for (trusted, keys, behind) in [
        ("", ["ip:10.0.0.1"; 3], [Some("203.0.113.9"), Some("203.0.113.9"), None]),
        (
            "trusted_proxies = ['10.0.0.0/8']\n",
            ["ip:203.0.113.9", "ip:203.0.113.9", "ip:10.0.0.1"],
            [None; 3],
        ),
    ] {
        let policies = "[policies.a]\nkey = ['ip']\nlimits = [{ algorithm = 'fixed_window', limit = 5, period = '1s' }]\n";
        let policies = Policies::parse(&format!("{trusted}{policies}")).unwrap();
        let lines = ["203.0.113.9", "203.0.113.9, 10.0.0.7", "-"].map(|last| {
            format!("10.0.0.1 - - [17/May/2015:10:05:03 +0000] \"GET /\" 200 1 \"-\" \"curl\" \"{last}\"\n")
        });
        let mut trace = Trace::new(Box::new(Cursor::new(lines.concat())), &policies, None).unwrap();
        for (key, behind) in keys.into_iter().zip(behind) {
            let event = trace.next_line().unwrap().unwrap().unwrap();
            assert_eq!(
                (event.key.as_str(), event.behind),
                (key, behind.map(|it| it.parse().unwrap()))
            );
        }
    }
}

#[test]
fn reads_json() {
    check(
        None,
        b"\xef\xbb\xbf{\"t_us\":7,\"policy\":\"a\",\"key\":\"k\",\"cost\":3}
{\"t_us\":7,\"policy\":\"a\",\"key\":\"open
{\"t_us\":8,\"policy\":\"b\",\"key\":\"k\"}
{\"policy\":\"a\",\"key\":\"k\",\"now_us\":9}",
        &[
            Ok(("a", "k", 7, 3)),
            Err("column 34: EOF while parsing a string"),
            Ok(("b", "k", 8, 2)),
            Ok(("a", "k", 9, 1)),
        ],
    );
}

#[test]
fn an_unreadable_line_is_an_error_and_does_not_end_the_trace() {
    let long = [b"{\"key\":\"".as_slice(), &[b'x'; 100_000], b"\"}\n"].concat();
    let mut text = b"hello\n\n{\n[]\n".to_vec();
    text.extend(b"192.0.2.1 - - [yesterday] \"GET /\" 200 1\n");
    text.extend(b"192.0.2.1 - - [17/May/1915:10:05:03 +0000] \"GET /\" 200 1\n");
    text.extend(long);
    text.extend(b"a\xff - - [17/May/2015:10:05:03 +0000] \"GET /\" 200 1\n");
    text.extend(b"{\"t_us\":1,\"policy\":\"a\",\"key\":\"\xff\"}\n");
    for json in [
        "{\"t_us\":1,\"policy\":\"c\",\"key\":\"k\"}",
        "{\"t_us\":-1,\"policy\":\"a\",\"key\":\"k\"}",
        "{\"t_us\":1.5,\"policy\":\"a\",\"key\":\"k\"}",
        "{\"now_us\":9007199254740992,\"policy\":\"a\",\"key\":\"k\"}",
        "{\"t_us\":1,\"policy\":\"a\",\"key\":\"\"}",
        "{\"t_us\":1,\"policy\":\"a\",\"key\":\"ip:192.0.2.05\"}",
        "{\"t_us\":1,\"policy\":\"a\",\"key\":\"k\",\"cost\":6}",
        "{\"t_us\":1,\"policy\":\"a\",\"key\":\"k\",\"colour\":6}",
        "{\"t_us\":1,\"policy\":\"a\",\"key\":\"k\"}",
    ] {
        text.extend(json.as_bytes());
        text.push(b'\n');
    }
    check(
        Some("a"),
        &text,
        &[
            Err("expected a line of an access log or a JSON object"),
            Err("expected a line of an access log or a JSON object"),
            Err("column 1: EOF while parsing an object"),
            Err("expected a line of an access log or a JSON object"),
            Err("time \"yesterday\""),
            Err("expected a time from 1970 on"),
            Err("longer than 65536 bytes"),
            Err("expected the client's address, found"),
            Err("`key`: expected UTF-8, found other bytes"),
            Err("`policy`: expected one of a, b; found \"c\""),
            Err("`t_us`: expected a whole number from 0 to 9007199254740991, found -1"),
            Err("found 1.5"),
            Err(
                "`now_us`: expected a whole number from 0 to 9007199254740991, found 9007199254740992",
            ),
            Err("expected 1 to 512 bytes, found 0"),
            Err("after `ip:`, found \"ip:192.0.2.05\""),
            Ok(("a", "k", 1, 0)), // a cost of 6 can never be granted, so the line becomes a peek
            Err("found the field \"colour\""),
            Ok(("a", "k", 1, 1)),
        ],
    );
}

/// The errors name the fields of the line and nothing that the line does not have.
#[test]
fn a_wrong_field_is_named_as_the_line_has_it() {
    for (fields, expected) in [
        (
            "\"cost\":\"x\"",
            "`cost`: expected a whole number from 0 to 9007199254740991, found the string \"x\"",
        ),
        ("\"class\":3", "`class`: expected a string, found the integer `3`"),
        ("\"check\":{\"class\":3}", "`check.class`: expected a string, found the integer `3`"),
        ("\"check\":[]", "`check`: expected an object, found []"),
        ("\"release\":3", "`release`: expected an object, found 3"),
        ("\"release\":{}", "`release`: missing field `lease`"),
        (
            "\"refund\":{\"units\":true}",
            "`refund.units`: expected a whole number from 1 to 9007199254740991, \
             found the boolean `true`",
        ),
        ("\"reset\":{},\"cost\":1", "expected no field beside `reset`, found \"cost\""),
        ("\"reset\":{},\"peek\":{}", "expected no field beside `peek`, found \"reset\""),
    ] {
        let policies = Policies::parse(POLICIES).unwrap();
        let line = format!("{{\"t_us\":1,\"key\":\"k\",{fields}}}");
        let mut trace = Trace::new(Box::new(Cursor::new(line)), &policies, Some("a")).unwrap();
        assert_eq!(trace.next_line().unwrap(), Some(Err(expected.to_owned())));
    }
    check(
        Some("a"),
        b"{\"t_us\":1}\n{\"key\":\"k\"}\n{\"t_us\":1,\"now_us\":1,\"key\":\"k\"}\n{\"t_us\":1,\"key\":\"k\"} x\n",
        &[
            Err("missing field `key`"),
            Err("missing field `now_us`"),
            Err("expected `now_us` or `t_us`, found both"),
            Err("column 22: trailing characters"),
        ],
    );
}

#[test]
fn an_access_log_needs_a_policy_if_the_file_has_several() {
    let line = b"192.0.2.1 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 1";
    check(None, line, &[Err("choose one with --policy")]);
    let policies = Policies::parse(POLICIES).unwrap();
    let Err(error) = Trace::new(Box::new(Cursor::new("")), &policies, Some("c")) else { panic!() };
    assert!(error.to_string().contains("expected one of a, b; found \"c\""));
}

#[test]
fn reads_the_other_operations() {
    let policies = "
[policies.p]
limits = [{ algorithm = 'concurrency', capacity = 1, time_to_live = '1m' }]";
    let policies = Policies::parse(policies).unwrap();
    let text = r#"{"t_us":1,"key":"k","lease":"a"}
{"t_us":1,"key":"k","release":{"lease":"a"}}
{"t_us":1,"key":"k","refund":{"units":1}}
{"t_us":1,"key":"k","reset":{}}
{"t_us":1,"key":"k"}
{"t_us":1,"key":"k","release":{"lease":"a"},"cost":1}
{"t_us":1,"key":"k","cost":2,"lease":"a","class":"critical","signal_ppm":1,"draw":7}
192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 1"#;
    let mut trace = Trace::new(Box::new(Cursor::new(text)), &policies, None).unwrap();
    let mut next = || trace.next_line().unwrap().expect("a line");
    let lease = |line: Line| match line.unwrap().asked.operation() {
        Operation::Decide(Request { lease: Some(id), .. }) | Operation::Release(id) => id,
        other => panic!("{other:?}"),
    };
    let id: Id = lease(next());
    assert_eq!(lease(next()), id);
    assert!(matches!(next().unwrap().asked.operation(), Operation::Refund(1)));
    assert!(matches!(next().unwrap().asked.operation(), Operation::Reset(_)));
    assert!(next().unwrap_err().contains("`lease`: expected the name of a lease"));
    assert!(next().is_err(), "a line may have only one operation");
    assert_eq!(lease(next()), id);
    assert!(next().unwrap_err().contains("`lease`: expected the name of a lease"));
}
