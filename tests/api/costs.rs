//! What a million checks cost at Cloudflare: what it bills is counted here and multiplied by its prices. The table in
//! docs/costs.md must be the one that is counted.

use serde_json::{Value, json};
use tidegate::local::{WorkerdOptions, workspace};
use tidegate_tests::{Reply, Served, worker};

/// Nothing comes back while the test runs, so that every run counts the same.
const POLICIES: &str = "auth = 'none'
[policies.strict]
limits = [BUCKET]
[policies.two]
limits = [BUCKET, { algorithm = 'fixed_window', limit = 100000, period = '365d', depth = 0 }]
[policies.sharded]
placement = 'shard:16'
limits = [BUCKET]
[policies.batched]
placement = 'shard:1'
limits = [BUCKET]
[policies.refused]
limits = [ONE]
[policies.remembered]
remember = '1h'
limits = [ONE]
[policies.ahead]
persist_ahead = { most = 100, time = '1h' }
limits = [BUCKET]
[policies.lent]
local = { most = 100, time = '1h' }
limits = [BUCKET]
[policies.reserving]
reservations = { remember = '1ms' }
limits = [BUCKET]
";

const BUCKET: &str = "{ algorithm = 'token_bucket', capacity = 100000, rate = '1/d' }";

const ONE: &str = "{ algorithm = 'fixed_window', limit = 1, period = '365d' }";

/// Dollars for a million of each, beyond what the paid plan includes.
const REQUEST: f64 = 0.30;
const CALL: f64 = 0.15;
const ROW_READ: f64 = 0.001;
const ROW_WRITTEN: f64 = 1.00;
/// For a million ms of an object, which is billed as if it took 128 MB.
const OBJECT_MS: f64 = 12.50 * 0.128 / 1_000.0;

/// The checks of a row.
const CHECKS: u32 = 200;

/// A mode, its policy, how many keys, and how many checks come in a request.
const ROWS: [(&str, &str, u32, u32); 12] = [
    ("strict, one key", "strict", 1, 1),
    ("strict, 100 keys", "strict", 100, 1),
    ("strict, 100 keys, 16 shards", "sharded", 100, 1),
    ("strict, a new key each time", "strict", CHECKS, 1),
    ("strict, a new key each time, 16 shards", "sharded", CHECKS, 1),
    ("strict, limits on two parts of the key", "two", 1, 1),
    ("strict, batches of 100 keys, one shard", "batched", 100, 100),
    ("strict, refused", "refused", 1, 1),
    ("remembered, refused", "remembered", 1, 1),
    ("persisted ahead, one key", "ahead", 1, 1),
    ("lent, one key", "lent", 1, 1),
    ("a reservation and its commit, one key", RESERVING, 1, 1),
];

/// A check of this policy is a reservation and its commit.
const RESERVING: &str = "reserving";

fn start() -> Served {
    let entry = Some(include_str!("costs.js").to_owned());
    let policies = POLICIES.replace("BUCKET", BUCKET).replace("ONE", ONE);
    worker(WorkerdOptions { policies, entry, ..WorkerdOptions::default() })
}

fn ask(served: &Served, policy: &str, keys: u32, batch: u32) {
    for request in 0..CHECKS / batch {
        let check = |place| json!({ "policy": policy, "key": format!("k{}", (request * batch + place) % keys) });
        let body = match batch {
            1 => check(0),
            _ => json!({ "checks": (0..batch).map(check).collect::<Vec<_>>() }),
        };
        let path = if policy == RESERVING { "/v1/reservations" } else { "/v1/check" };
        let reply = done(served, path, &body);
        if policy == RESERVING {
            assert_eq!(reply.get("allowed"), true, "{reply:?}");
            let path = format!("/v1/reservations/{}/commit", reply.get("id").as_str().unwrap());
            done(served, &path, &json!({ "policy": policy, "key": "k0", "actual": 1 }));
        }
    }
}

fn done(served: &Served, path: &str, body: &Value) -> Reply {
    let reply = served.api.post(path, body.to_string());
    assert_eq!(reply.status, 200, "{reply:?}");
    assert!(!reply.text.contains("degraded"), "{reply:?}");
    reply
}

/// What was counted since the last time, once no object does anything after its answer.
fn counted_since(served: &Served) -> Reply {
    loop {
        let counted = served.api.get("/costs/count", &[]);
        if counted.get("pending").is_null() {
            return counted;
        }
    }
}

/// A line of the table: what a million checks take, in millions, and the dollars.
#[expect(clippy::float_arithmetic, reason = "dollars, for people")]
fn line((mode, policy, keys, batch): (&str, &str, u32, u32)) -> String {
    let served = start();
    if keys < CHECKS {
        ask(&served, policy, keys, batch); // afterwards all keys are known
        counted_since(&served);
    }
    ask(&served, policy, keys, batch);
    let counted = counted_since(&served);
    let count = |what| counted.get(what).as_f64().unwrap() / f64::from(CHECKS);
    let [requests, calls, read] = ["requests", "calls", "rowsRead"].map(count);
    let written = count("rowsWritten") + count("alarms"); // an alarm that is set counts as a row
    let dollars =
        requests * REQUEST + calls * (CALL + OBJECT_MS) + read * ROW_READ + written * ROW_WRITTEN;
    format!("| {mode} | {requests} | {calls} | {read} | {written} | {dollars:.2} |")
}

#[test]
fn the_table_of_costs_is_the_one_that_is_counted() {
    let text = std::fs::read_to_string(workspace().join("docs/costs.md")).unwrap();
    let mut found = Vec::new();
    for row in ROWS {
        let line = line(row);
        println!("{line}");
        found.push(line);
    }
    let missing: Vec<_> = found.iter().filter(|line| !text.contains(*line)).collect();
    assert!(missing.is_empty(), "docs/costs.md: expected these lines:\n{missing:#?}");
}
