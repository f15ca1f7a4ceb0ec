//! Costs that only the answer tells: the built Worker in front of a language model.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;

use serde_json::json;
use tidegate::local::WorkerdOptions;
use tidegate_tests::{Served, blocks, file, until, worker};

use crate::faults::arm;
use crate::gateway::problem;
use crate::held::wait_for;
use crate::model::Model;
use crate::upstream::{RawReply, connect, read};

const BUDGET: u64 = 100_000;
const LEDGER: u64 = 1_000_000_000;

/// The second limit refuses nobody: it counts what is charged, also above the first.
const POLICIES: &str = r#"
auth = "none"
api_path = "/_tidegate"
routes = [
  { match = "/v1/*", policy = "tokens", upstream = "http://MODEL", estimate = { field = "max_tokens", otherwise = 1_000 }, actual = { field = "usage.total_tokens" }, count_if = { status = "200-299" } },
  { match = "/seen/*", policy = "tokens", upstream = "http://MODEL", estimate = 1_000, actual = { field = "usage.total_tokens" }, if_unknown = "seen" },
  { match = "/weighted/*", policy = "tokens", upstream = "http://MODEL", estimate = 1_000, actual = [{ field = "usage.prompt_tokens" }, { field = "usage.completion_tokens", weight = 5 }] },
  { match = "/down/*", policy = "tokens", upstream = "http://127.0.0.1:1", estimate = 1_000, actual = { field = "usage.total_tokens" } },
  { match = "/down-free/*", policy = "tokens", upstream = "http://127.0.0.1:1", count_if = { status = "200-299" } },
  { match = "/bytes/*", policy = "tokens", upstream = "http://MODEL", actual = { bytes = 10 } },
  { match = "/failures/*", policy = "tokens", upstream = "http://MODEL", count_if = { status = [401, "500-599"] } },
]

[policies.tokens]
key = ["header:x-api-key"]
limits = [
  { algorithm = "fixed_window", name = "budget", limit = 100_000, period = "365d" },
  { algorithm = "fixed_window", name = "ledger", limit = 1_000_000_000, period = "365d" },
]
reservations = { most = 1_000, remember = "1s" }
"#;

fn start(used: fn(u64, u64) -> u64) -> (Served, Model) {
    start_with(used, include_str!("gateway.js"))
}

fn start_with(used: fn(u64, u64) -> u64, entry: &str) -> (Served, Model) {
    let model = Model::start(used);
    let served = worker(WorkerdOptions {
        policies: POLICIES.replace("MODEL", &model.address),
        entry: Some(entry.to_owned()),
        reaches_private: true,
        ..WorkerdOptions::default()
    });
    (served, model)
}

fn begin(served: &Served, path: &str, body: &str) -> TcpStream {
    let mut stream = connect(served);
    let head = "host: h\r\nx-api-key: alice\r\nconnection: close\r\ncontent-type: application/json";
    write!(
        stream,
        "POST {path} HTTP/1.1\r\n{head}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    stream
}

/// Reads until the answer has begun.
fn read_the_head(stream: &mut TcpStream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
}

fn ask(served: &Served, path: &str, body: &serde_json::Value) -> RawReply {
    read(&mut begin(served, path, &body.to_string()))
}

fn charged(served: &Served) -> u64 {
    let key = served.api.get("/_tidegate/v1/keys/tokens/header:x-api-key:alice", &[]);
    LEDGER - key.get("limits")[1]["remaining"].as_u64().unwrap()
}

fn wait_for_charge(served: &Served, expected: u64) {
    until(format_args!("{expected} units are charged"), || charged(served) == expected);
}

const CHAT: &str = "/v1/chat/completions";

/// Lets 64 clients ask until each of them was refused three times, and returns what was charged.
fn ask_with_64_clients(served: &Served, model: &Model) -> u64 {
    let passed: u64 = thread::scope(|scope| {
        let client = |client: u64| {
            let (mut passed, mut refused) = (0, 0);
            while refused < 3 {
                let body = json!({ "messages": [], "stream": client.is_multiple_of(2), "max_tokens": 500 + client });
                let reply = ask(served, CHAT, &body);
                match reply.status {
                    200 => passed += 1,
                    429 => refused += 1,
                    _ => panic!("{reply:?}"),
                }
                assert!(reply.status == 429 || reply.body.contains("total_tokens\":"), "{reply:?}");
            }
            passed
        };
        let all: Vec<_> = (0..64).map(|number| scope.spawn(move || client(number))).collect();
        all.into_iter().map(|one| one.join().unwrap()).sum()
    });
    assert_eq!(passed, u64::try_from(model.calls().len()).unwrap());
    wait_for(served, "released", passed);
    wait_for_charge(served, model.used());
    println!("{passed} answers, {} charged", model.used());
    model.used()
}

#[test]
fn sixty_four_clients_are_charged_what_the_model_says_and_never_above_the_budget() {
    let (served, model) = start(|call, max_tokens| 1 + call * 7_919 % max_tokens);
    let charged = ask_with_64_clients(&served, &model);
    assert!(charged <= BUDGET, "no answer exceeds its estimate: {charged}");
    assert!(charged > BUDGET - 64 * 564, "refused while there was room: {charged}");
    let lines = [
        format!(
            r#"tidegate_commits_total{{policy="tokens",late="false"}} {}"#,
            model.calls().len()
        ),
        format!(r#"tidegate_committed_units_total{{policy="tokens",late="false"}} {charged}"#),
    ];
    until(format_args!("the isolate has heard of the last commit: {lines:?}"), || {
        let metrics = served.api.get("/_tidegate/metrics", &[]).text;
        lines.iter().all(|line| metrics.lines().any(|own| own == line))
    });
}

#[test]
fn answers_exceed_the_budget_by_no_more_than_they_exceed_their_estimates() {
    const MORE: u64 = 50;
    let (served, model) = start(|call, max_tokens| max_tokens + call * 7_919 % (MORE + 1));
    let charged = ask_with_64_clients(&served, &model);
    assert!(
        charged <= BUDGET + 64 * MORE,
        "each answer under way exceeds by at most {MORE}: {charged}"
    );
}

#[test]
fn the_cost_is_that_of_the_answer() {
    let (served, model) = start(|_, max_tokens| max_tokens + 12);
    let mut sum = 0;
    for stream in [false, true] {
        let reply = ask(&served, CHAT, &json!({ "stream": stream, "max_tokens": 300 }));
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(reply.body.contains("data: [DONE]\n\n"), stream, "{reply:?}");
        sum += 312;
        wait_for_charge(&served, sum);
    }
    // 104 in + 208 out × 5
    assert_eq!(ask(&served, "/weighted/x", &json!({ "max_tokens": 300 })).status, 200);
    wait_for_charge(&served, sum + 104 + 208 * 5);
    sum += 104 + 208 * 5;
    let reply = ask(&served, "/bytes/x", &json!({}));
    sum += u64::try_from(reply.body.len()).unwrap().div_ceil(10);
    wait_for_charge(&served, sum);
    let _ = model;
}

#[test]
fn the_page_about_language_models_is_true() {
    let page = std::fs::read_to_string(file("../docs/llm.md")).unwrap();
    let files: Vec<_> =
        blocks(&page).into_iter().filter(|block| block.mark == "accepted").collect();
    let model = Model::start(|_, max_tokens| max_tokens + 12);
    let upstream = format!("http://{}", model.address);
    let start = |file: &str| {
        let policies = file
            .replace("https://api.openai.com", &upstream)
            .replace("https://api.anthropic.com", &upstream);
        let policies = format!("auth = 'none'\napi_path = '/_tidegate'\n{policies}");
        worker(WorkerdOptions { policies, reaches_private: true, ..WorkerdOptions::default() })
    };
    let left = |served: &Served, expected: u64| {
        until(format_args!("{expected} are left"), || {
            served.api.get("/_tidegate/v1/keys/tokens/ip:192.0.2.1", &[]).get("remaining")
                == expected
        });
    };
    let call = |served: &Served, body: &str| {
        let head = "host: h\r\ncf-connecting-ip: 192.0.2.1\r\nconnection: close";
        let mut stream = connect(served);
        write!(
            stream,
            "POST {CHAT} HTTP/1.1\r\n{head}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        read(&mut stream)
    };
    let first = start(&files[0].text);
    let reply = call(&first, "{\"max_tokens\":200}");
    assert!(reply.all("ratelimit")[0].contains(";r=99795;"), "200 + 18 bytes ÷ 4: {reply:?}");
    left(&first, 100_000 - 212);
    // neither the client's `max_tokens` nor its silence about the usage is the price
    let stream = "{\"stream\":true,\"model\":\"breaks\",\"max_tokens\":1,\"n\":128}";
    assert_eq!(call(&first, stream).status, 200);
    left(&first, 100_000 - 212 - 128 - u64::try_from(stream.len()).unwrap().div_ceil(4));
}

#[test]
fn some_answers_are_free() {
    let (served, _model) = start(|_, _| 77);
    problem(&ask(&served, "/down/x", &json!({})), 502, ":upstream-failed");
    wait_for_charge(&served, 1_000);
    problem(&ask(&served, "/down-free/x", &json!({})), 502, ":upstream-failed");
    assert_eq!(ask(&served, CHAT, &json!({ "model": "overloaded" })).status, 503);
    assert_eq!(ask(&served, "/failures/x", &json!({})).status, 200);
    wait_for(&served, "released", 4);
    wait_for_charge(&served, 1_000);
    assert_eq!(ask(&served, "/failures/x", &json!({ "model": "overloaded" })).status, 503);
    wait_for_charge(&served, 1_001);
}

#[test]
fn an_answer_that_breaks_off_and_a_client_that_leaves_are_charged() {
    let (served, model) = start(|_, _| 77);
    let broken = json!({ "stream": true, "model": "breaks", "max_tokens": 400 });
    assert_eq!(ask(&served, CHAT, &broken).status, 200);
    wait_for_charge(&served, 400);
    assert_eq!(ask(&served, "/seen/x", &broken).status, 200);
    wait_for(&served, "released", 2);
    wait_for_charge(&served, 400);

    let waits = json!({ "stream": true, "model": "waits", "max_tokens": 500 });
    let mut stream = begin(&served, CHAT, &waits.to_string());
    read_the_head(&mut stream);
    assert_eq!(charged(&served), 900, "the estimate is held");
    drop(stream);
    let _ = model.go.send(()); // the runtime notices when it writes
    wait_for(&served, "released", 3);
    wait_for_charge(&served, 900);
}

/// Without a second try the estimate would stay charged until the reservation ends, and then nothing.
#[test]
fn a_commit_whose_object_fails_is_repeated_and_taken_once() {
    let (served, model) = start_with(|_, _| 77, include_str!("faults.js"));
    let waits = json!({ "stream": true, "model": "waits", "max_tokens": 500 }).to_string();
    for (round, fault) in (1..).zip(["throw before", "throw after"]) {
        let mut stream = begin(&served, CHAT, &waits);
        read_the_head(&mut stream);
        arm(&served, fault);
        model.go.send(()).unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        crate::faults::wait_for(&served, "armed", 0); // before a look at the charge could get the fault
        wait_for_charge(&served, 77 * round);
    }
}

#[test]
fn the_model_gets_the_body_as_it_was_sent_if_the_gateway_can_read_it() {
    let (served, model) = start(|_, max_tokens| max_tokens);
    let sent = |head: &str, body: &[u8]| {
        let mut stream = connect(&served);
        let fields =
            "host: h\r\nx-api-key: alice\r\nconnection: close\r\naccept-encoding: gzip, zstd";
        write!(stream, "POST {CHAT} HTTP/1.1\r\n{fields}\r\n{head}\r\n\r\n").unwrap();
        stream.write_all(body).unwrap();
        read(&mut stream)
    };
    let passed = |head: &str, body: &[u8]| {
        let reply = sent(head, body);
        assert_eq!(reply.status, 200, "{reply:?}");
        model.calls().pop().unwrap()
    };
    let short = br#"{ "max_tokens": 300, "messages": ["\u00e9"] }"#;
    let call = passed(&format!("content-length: {}", short.len()), short);
    assert_eq!(
        (call.body.as_slice(), call.field("content-length")),
        (&short[..], Some(&*short.len().to_string()))
    );
    assert_eq!(call.field("accept-encoding"), Some("identity"), "the gateway reads the answer");
    wait_for_charge(&served, 300);

    let chunks = b"15\r\n{ \"max_tokens\": 20, \"\r\n3\r\n\":1\r\n1\r\n}\r\n0\r\n\r\n";
    let call = passed("transfer-encoding: chunked", chunks);
    assert_eq!(call.body, b"{ \"max_tokens\": 20, \"\":1}");
    wait_for_charge(&served, 320);

    let coded = format!("content-encoding: gzip\r\ncontent-length: {}", short.len());
    assert_eq!(sent(&coded, short).status, 415);
    assert_eq!((model.calls().len(), charged(&served)), (2, 320), "the model has not heard of it");
}
