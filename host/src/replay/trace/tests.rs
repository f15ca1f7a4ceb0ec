use std::io::Cursor;

use tidegate_gate::{Policies, Timestamp};

use super::{Event, Trace};

const POLICIES: &str = "
[policies.a]
limits = [{ algorithm = 'token_bucket', capacity = 5, rate = '1/s' }]
[policies.b]
limits = [{ algorithm = 'token_bucket', capacity = 5, rate = '1/s' }]
cost = 2
";

/// Policy, key, time and cost of an event, or what an error contains.
type Expected = Result<(usize, &'static str, u64, u64), &'static str>;

#[track_caller]
fn check(policy: Option<&str>, text: &[u8], expected: &[Expected]) {
    let policies = Policies::parse(POLICIES).unwrap();
    let mut trace = Trace::new(Box::new(Cursor::new(text.to_vec())), &policies, policy).unwrap();
    for expected in expected {
        let line = trace.next_line().unwrap().expect("a line");
        match (line, expected) {
            (Ok(event), Ok((policy, key, at, cost))) => assert_eq!(
                event,
                Event { policy: *policy, key: (*key).into(), at: Timestamp(*at), cost: *cost }
            ),
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
            Ok((1, "192.0.2.1", 1_431_857_103_000_000, 2)),
            Ok((1, "2001:db8::1", 1_431_857_103_000_000, 2)),
        ],
    );
}

#[test]
fn reads_json() {
    check(
        None,
        br#"{"t_us":7,"policy":"a","key":"k","cost":3}
{"t_us":8,"policy":"b","key":"k"}"#,
        &[Ok((0, "k", 7, 3)), Ok((1, "k", 8, 2))],
    );
}

#[test]
fn a_line_that_cannot_be_read_is_an_error_and_no_end() {
    let long = [b"{\"key\":\"".as_slice(), &[b'x'; 100_000], b"\"}\n"].concat();
    let mut text = b"hello\n\n{\n[]\n".to_vec();
    text.extend(b"192.0.2.1 - - [yesterday] \"GET /\" 200 1\n");
    text.extend(b"192.0.2.1 - - [17/May/1915:10:05:03 +0000] \"GET /\" 200 1\n");
    text.extend(long);
    text.extend(b"a\xff - - [17/May/2015:10:05:03 +0000] \"GET /\" 200 1\n");
    for json in [
        "{\"t_us\":1,\"policy\":\"c\",\"key\":\"k\"}",
        "{\"t_us\":-1,\"policy\":\"a\",\"key\":\"k\"}",
        "{\"t_us\":1.5,\"policy\":\"a\",\"key\":\"k\"}",
        "{\"t_us\":9007199254740992,\"policy\":\"a\",\"key\":\"k\"}",
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
            Err("neither"),
            Err("neither"),
            Err("EOF"),
            Err("neither"),
            Err("time \"yesterday\""),
            Err("before 1970"),
            Err("longer than 65536 bytes"),
            Err("the key is not UTF-8"),
            Err("found \"c\", there are: a, b"),
            Err("invalid value: integer `-1`"),
            Err("invalid type: floating point `1.5`"),
            Err("allowed are 0 to 9007199254740991"),
            Err("found 0 bytes"),
            Err("found \"ip:192.0.2.05\", allowed behind `ip:` is an address"),
            Err("the most at once is 5"),
            Err("unknown field `colour`"),
            Ok((0, "k", 1, 1)),
        ],
    );
}

#[test]
fn an_access_log_needs_a_policy_where_there_are_several() {
    let line = b"192.0.2.1 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 1";
    check(None, line, &[Err("say which with --policy")]);
    let policies = Policies::parse(POLICIES).unwrap();
    let Err(error) = Trace::new(Box::new(Cursor::new("")), &policies, Some("c")) else { panic!() };
    assert!(error.to_string().contains("there are: a, b"));
}
