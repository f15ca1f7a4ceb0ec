//! The meter and its parsers: every split, every cut, hostile bytes, memory.

use alloc::sync::Arc;
use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

use proptest::prelude::*;
use serde_json::Value;
use tidegate_gate::{MAX_QUANTITY, Metering};

use super::{AnswerEnd, Meter};

const TOTAL: &str = r#"{ "actual": { "field": "usage.total_tokens" } }"#;
const SEEN: &str = r#"{ "actual": { "field": "usage.total_tokens" }, "if_unknown": "seen" }"#;
const JSON: &str = "application/json; charset=utf-8";
const EVENTS: &str = "text/event-stream";

fn metering(text: &str) -> Arc<Metering> {
    Metering::parse(text).unwrap().unwrap().into()
}

/// The units to commit for an answer in pieces, of a request that has reserved 4,000.
fn metered(text: &str, kind: &str, pieces: &[&[u8]], end: AnswerEnd) -> u64 {
    let mut meter = Meter::new(&metering(text), 4_000);
    meter.answered(200, &|name| (name == "content-type").then(|| kind.to_string()));
    pieces.iter().for_each(|piece| meter.push(piece));
    meter.finish(end)
}

fn whole(kind: &str, body: &str) -> u64 {
    metered(SEEN, kind, &[body.as_bytes()], AnswerEnd::Whole)
}

const ANSWER: &str = r#"{"id":"c-1","choices":[{"message":{"content":"\"usage\":{\"total_tokens\":9}",
"usage":{"total_tokens":8}},"a":[1,[2,{"b":3}]]}], "us\u0061ge" : { "details":{"total_tokens":7},"prompt_tokens":10,
"total_tokens" :1212 , "other":[{"total_tokens":6}]},"total_tokens":5,"x":{"usage":{"total_tokens":4}},"n":null,"t":true}"#;

const STREAM: &str = "\u{feff}: hello\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"\\\"usage\\\"\"}}],\"usage\":null}\r\n\r\n\
event: x\ndata:{\"usage\":{\"total_tokens\":11}}\n\nid: 7\rdata: {\"usage\":\rdata: {\"total_tokens\":\rdata:1212}}\r\r\
datum: {\"usage\":{\"total_tokens\":3}}\n\ndata\n\ndata: [DONE]\n\n";

#[test]
fn a_field_is_found_at_its_path_alone() {
    assert_eq!(whole(JSON, ANSWER), 1_212);
    assert_eq!(whole("application/problem+json", ANSWER), 1_212);
    assert_eq!(whole("text/html", ANSWER), 0, "a page may say what a client wrote");
    assert_eq!(whole(EVENTS, STREAM), 1_212);
    let lines =
        "{\"a\":{\"\n{\"usage\":{\"total_tokens\":2}}\n{\"usage\":{\"total_tokens\":1}}\n{}\n";
    assert_eq!(whole("application/x-ndjson", lines), 2, "whatever the first line has opened");
}

#[test]
fn an_event_is_read_by_itself() {
    let cut = "data: {\"usage\":{\"total_tokens\":1\n\ndata: {\"usage\":{\"total_tokens\":2}}\n\n";
    assert_eq!(whole(EVENTS, cut), 2, "whatever the one before has opened");
    let open = "data: \"\n\ndata: {\"usage\":{\"total_tokens\":3}}\n\n";
    assert_eq!(whole(EVENTS, open), 3);
    for other in ["dbta", "datas", "dat", "\u{feff}x"] {
        let stream = format!("{other}: {{\"usage\":{{\"total_tokens\":4}}}}\n\n");
        assert_eq!(whole(EVENTS, &stream), 0, "the field {other}");
    }
    let marked = "\u{feff}data: {\"usage\":{\"total_tokens\":5}}\n\n";
    assert_eq!(whole(EVENTS, marked), 5, "a byte order mark");
}

#[test]
fn a_coded_body_is_not_read() {
    for (kind, body) in [(JSON, ANSWER), (EVENTS, STREAM)] {
        for (coding, units) in [("identity", 1_212), ("IDENTITY", 1_212), ("gzip", 0)] {
            let mut meter = Meter::new(&metering(SEEN), 4_000);
            assert!(meter.seeks());
            meter.answered(200, &|name| match name {
                "content-type" => Some(kind.to_string()),
                "content-encoding" => Some(coding.to_string()),
                _ => None,
            });
            assert_eq!(meter.reads(), units > 0, "{kind} {coding}");
            meter.push(body.as_bytes());
            assert_eq!(meter.finish(AnswerEnd::Whole), units, "{kind} {coding}");
        }
    }
    let by_header = Meter::new(&metering(r#"{ "actual": { "header": "X-Cost" } }"#), 1);
    assert!(!by_header.seeks());
    assert!(
        Meter::new(&metering(r#"{ "actual": { "bytes": 10 } }"#), 1).seeks(),
        "coded bytes are others"
    );
}

#[test]
fn pieces_may_end_anywhere() {
    for (kind, body) in [(JSON, ANSWER.as_bytes()), (EVENTS, STREAM.as_bytes())] {
        for first in 0..=body.len() {
            let (start, rest) = body.split_at(first);
            assert_eq!(metered(SEEN, kind, &[start, rest], AnswerEnd::Whole), 1_212, "{first}");
            for second in (0..=rest.len()).step_by(7) {
                let (middle, end) = rest.split_at(second);
                let pieces = [start, middle, end];
                assert_eq!(
                    metered(SEEN, kind, &pieces, AnswerEnd::Whole),
                    1_212,
                    "{first} {second}"
                );
            }
        }
        let bytes: Vec<&[u8]> = body.chunks(1).collect();
        assert_eq!(metered(SEEN, kind, &bytes, AnswerEnd::Whole), 1_212);
    }
}

#[test]
fn an_answer_that_breaks_off_counts_as_the_policy_says() {
    for (kind, body, places) in [(JSON, ANSWER, [1_212, 0, 0]), (EVENTS, STREAM, [1_212, 11, 0])] {
        for cut in 0..body.len() {
            let pieces: &[&[u8]] = &[&body.as_bytes()[..cut]];
            let seen = metered(SEEN, kind, pieces, AnswerEnd::CutOff);
            assert!(places.contains(&seen), "no part of a number counts: {seen} at {cut}");
            let is_done = body.find("[DONE]").is_some_and(|at| cut >= at + 6);
            let units = metered(TOTAL, kind, pieces, AnswerEnd::CutOff);
            assert_eq!(units, if is_done { 1_212 } else { 4_000 }, "{cut}");
        }
        assert_eq!(metered(TOTAL, kind, &[body.as_bytes()], AnswerEnd::Whole), 1_212);
    }
    for other in ["[DONE", "[[DONE]", " [DONE]", "x[DONE]"] {
        let stream = format!("data: {{\"usage\":{{\"total_tokens\":7}}}}\n\ndata: {other}\n\n");
        assert_eq!(
            metered(TOTAL, EVENTS, &[stream.as_bytes()], AnswerEnd::CutOff),
            4_000,
            "{other}"
        );
    }
    let much = "{\"usage\":{\"total_tokens\":5000}";
    assert_eq!(
        metered(TOTAL, JSON, &[much.as_bytes()], AnswerEnd::CutOff),
        5_000,
        "what is more counts"
    );
    for end in [AnswerEnd::CutOff, AnswerEnd::Whole] {
        let open = b"{\"usage\":{\"total_tokens\":7}";
        assert_eq!(metered(TOTAL, JSON, &[open], end), 4_000, "the last brace is missing");
    }
    assert_eq!(metered(TOTAL, JSON, &[b"{}"], AnswerEnd::Whole), 4_000);
    assert_eq!(metered(SEEN, JSON, &[b"{}"], AnswerEnd::Whole), 0);
}

#[test]
fn only_whole_numbers_count() {
    let of = |number: &str| whole(JSON, &format!("{{\"usage\":{{\"total_tokens\":{number}}}}}"));
    for (number, found) in [
        ("0", 0),
        ("7", 7),
        ("9007199254740991", MAX_QUANTITY),
        ("9007199254740992", MAX_QUANTITY),
        ("99999999999999999999999999999999", MAX_QUANTITY),
        ("1.0", 0),
        ("1e3", 0),
        ("-5", 0),
        ("5-", 0),
        ("5+1", 0),
        ("5E1", 0),
        ("12x", 0),
        ("\"12\"", 0),
        ("[12]", 0),
        ("{\"total_tokens\":12}", 0),
        ("true", 0),
        ("null", 0),
    ] {
        assert_eq!(of(number), found, "{number}");
    }
}

#[test]
fn names_are_compared_as_json_means_them() {
    let name = |path: &str, name: &str| {
        let text = format!(r#"{{ "actual": {{ "field": "{path}" }}, "if_unknown": "seen" }}"#);
        metered(&text, JSON, &[format!("{{\"{name}\":1}}").as_bytes()], AnswerEnd::Whole) == 1
    };
    assert!(name("é", "\\u00e9") && name("é", "\\u00E9") && name("é", "é"));
    assert!(name("\u{1f600}", "\\ud83d\\ude00"));
    assert!(name("a/b", "a\\/b") && name("a\\\"", "a\\\""));
    for escape in ["\\b", "\\f", "\\n", "\\r", "\\t"] {
        assert!(name(&format!("a{escape}"), &format!("a{escape}")), "{escape}");
    }
    for other in [
        "\\ud83d",
        "\\ude00",
        "\\ud83d\\ud83d\\ude00",
        "\\ud83d\\u0061",
        "\\ud83da",
        "\\u00zz",
        "\\x",
    ] {
        assert!(!name("\u{1f600}", other) && !name("a", other), "{other}");
    }
    assert!(!name("ab", "a") && !name("a", "ab") && !name("a", "b"));
    let both =
        r#"{ "actual": { "field": ["message.usage.in", "usage.in"] }, "if_unknown": "seen" }"#;
    let body = "{\"message\":{\"usage\":{\"in\":5}}}{\"usage\":{\"in\":6}}{\"message\":{\"in\":7}}";
    assert_eq!(metered(both, JSON, &[body.as_bytes()], AnswerEnd::Whole), 6);
}

#[test]
fn kinds_of_units_have_weights() {
    let weighted = r#"{ "actual": [{ "field": "usage.input_tokens" }, { "field": "usage.output_tokens", "weight": 5 }] }"#;
    let of = |input: u64, output: u64| {
        let body = format!("{{\"usage\":{{\"input_tokens\":{input},\"output_tokens\":{output}}}}}");
        metered(weighted, JSON, &[body.as_bytes()], AnswerEnd::Whole)
    };
    // as Amazon Bedrock counts them
    assert_eq!((of(10, 750), of(2_005, 200), of(6, 12)), (3_760, 3_005, 66));
    assert_eq!(of(0, 10_000), 50_000);
    assert_eq!(of(MAX_QUANTITY, 1), MAX_QUANTITY, "a sum has a bound");
    assert_eq!(of(1, MAX_QUANTITY), MAX_QUANTITY);
    let input = "{\"usage\":{\"input_tokens\":9000}}";
    assert_eq!(
        metered(weighted, JSON, &[input.as_bytes()], AnswerEnd::Whole),
        9_000,
        "half is known"
    );
    let free = r#"{ "actual": [20, { "field": "used" }, { "field": "cached", "weight": 2, "otherwise": 3 }] }"#;
    assert_eq!(metered(free, JSON, &[b"{\"used\":4000}"], AnswerEnd::Whole), 4_026);
    assert_eq!(metered(free, JSON, &[b"{\"used\":1,\"cached\":0}"], AnswerEnd::Whole), 21);
}

#[test]
fn headers_and_bytes_tell_costs_too() {
    let header = |value: Option<&str>, body: &[u8], text: &str| {
        let mut meter = Meter::new(&metering(text), 50);
        meter.answered(200, &|name| value.filter(|_| name == "x-cost").map(String::from));
        let reads = meter.reads();
        meter.push(body);
        let cut_off = meter.clone().finish(AnswerEnd::CutOff);
        assert!(reads || cut_off == meter.clone().finish(AnswerEnd::Whole), "the head is enough");
        (meter.finish(AnswerEnd::Whole), reads)
    };
    let cost = r#"{ "actual": { "header": "X-Cost" } }"#;
    for (value, found) in [
        (" 12 ", 12),
        ("0", 0),
        ("-1", 50),
        ("1.5", 50),
        ("", 50),
        ("99999999999999999999", MAX_QUANTITY),
    ] {
        assert_eq!(header(Some(value), b"", cost), (found, false), "{value}");
    }
    assert_eq!(header(None, b"", cost), (50, false));
    let bytes = r#"{ "actual": { "bytes": 4 } }"#;
    assert_eq!(header(None, b"123456789", bytes), (3, true), "a cost rounds up");
    assert_eq!(header(None, b"", bytes), (0, true));
}

#[test]
fn some_answers_do_not_count() {
    let status = |rule: &str, status: u16| {
        let mut meter = Meter::new(&metering(&format!("{{ \"count_if\": {{ {rule} }} }}")), 1);
        meter.answered(status, &|name| (name == "x-login").then(|| "failed".to_string()));
        assert!(!meter.reads());
        meter.finish(AnswerEnd::Whole)
    };
    for (code, counts) in [(200, 0), (400, 0), (401, 1), (403, 0), (499, 0), (500, 1), (599, 1)] {
        assert_eq!(status(r#""status": [401, "500-599"]"#, code), counts, "{code}");
    }
    assert_eq!(status(r#""header": "X-Login""#, 200), 1);
    assert_eq!(status(r#""header": "x-login", "value": "failed""#, 200), 1);
    assert_eq!(status(r#""header": "x-login", "value": "ok""#, 200), 0);
    assert_eq!(status(r#""header": "x-other""#, 200), 0);

    let both = r#"{ "actual": { "field": "n" }, "count_if": { "status": "200-299" } }"#;
    let ended = |end| Meter::new(&metering(both), 9).finish(end);
    assert_eq!(ended(AnswerEnd::Failed), 0, "the client gets a 502");
    assert_eq!(ended(AnswerEnd::CutOff), 9, "the client left before the answer came");
    let mut refused = Meter::new(&metering(both), 9);
    refused.answered(429, &|_| Some("application/json".into()));
    refused.push(b"{\"n\":7}");
    assert_eq!((refused.reads(), refused.finish(AnswerEnd::Whole)), (false, 0));
    assert_eq!(Meter::new(&metering(TOTAL), 9).finish(AnswerEnd::Failed), 9, "all answers count");
}

#[test]
fn memory_does_not_grow() {
    let many = r#"{ "actual": [{ "field": ["a.b.c", "d", "e", "f"] }, { "field": ["a", "b", "c", "d"] }] }"#;
    let mut meter = Meter::new(&metering(many), 9);
    meter.answered(200, &|_| Some("text/event-stream".into()));
    let room = |meter: &Meter| meter.actual.as_ref().unwrap().room();
    let before = room(&meter);
    let deep = ["data: ", &"[{\"a\":".repeat(10_000), &"9".repeat(10_000)].concat();
    meter.push(deep.as_bytes());
    let shallow = ["\n\ndata: ", &"]}".repeat(10_000), &"\"\\ud83d".repeat(10_000)].concat();
    meter.push(shallow.as_bytes());
    assert_eq!(room(&meter), before);
    assert!(size_of::<Meter>() + before <= 512, "{} + {before}", size_of::<Meter>());
    // 8 terms of 4 paths
    assert!(size_of::<Meter>() + 8 * (16 + 4 * 4) <= 512);
}

/// What JSON says at `usage.total_tokens`, by a parser that keeps all of it.
fn expected(value: &Value) -> Option<u64> {
    value.get("usage")?.get("total_tokens")?.as_u64()
}

fn json() -> impl Strategy<Value = Value> {
    let name = prop_oneof![
        Just("usage".to_string()),
        Just("total_tokens".to_string()),
        "[a-z\"\\\\:{}é😀]{0,4}"
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..MAX_QUANTITY).prop_map(Value::from),
        any::<i64>().prop_map(|number| Value::from(number >> 11)),
        any::<f64>().prop_map(Value::from),
        "[ -~é😀]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name.clone(), inner), 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_json_is_read_as_another_parser_reads_it(value in json(), pretty: bool, piece in 1..20_usize) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
        let pieces: Vec<&[u8]> = text.as_bytes().chunks(piece).collect();
        let found = metered(SEEN, JSON, &pieces, AnswerEnd::Whole);
        prop_assert_eq!(found, expected(&value).unwrap_or(0).min(MAX_QUANTITY), "{}", text);
        let lines: String = text.lines().map(|line| format!("data: {line}\r\n")).collect();
        let events = format!("{lines}\r\ndata: [DONE]\r\n\r\n");
        let pieces: Vec<&[u8]> = events.as_bytes().chunks(piece).collect();
        prop_assert_eq!(metered(SEEN, EVENTS, &pieces, AnswerEnd::Whole), found, "{}", events);
    }

    #[test]
    fn any_bytes_are_read(bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'"'), Just(b'\\'), Just(b'{'), Just(b'}'), Just(b':'), Just(b'u'), Just(b'd'), Just(b'\n'), Just(b'1')], 0..300), piece in 1..20_usize) {
        for kind in [JSON, EVENTS] {
            let all = metered(SEEN, kind, &[&bytes], AnswerEnd::Whole);
            let pieces: Vec<&[u8]> = bytes.chunks(piece).collect();
            prop_assert_eq!(metered(SEEN, kind, &pieces, AnswerEnd::Whole), all);
        }
    }
}
