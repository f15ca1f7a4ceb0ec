//! The vectors of `tests/vectors`, by the gate in this process: the quickest test that notices a changed answer or state. Operations
//! and effects go through their numbers on the way, as they do between processes.

#![expect(clippy::unwrap_used, reason = "a failed unwrap ends its test")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_gate::{
    Ask, Effect, KeyHasher, Operation, Policy, Resolved, Rule, Table, Timestamp, Verdict, blob,
};

#[test]
fn all_vectors_hold() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors");
    let mut steps = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let name = path.file_stem().unwrap().to_str().unwrap();
            let file: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
            steps += replay(name, &file);
        }
    }
    assert!(steps > 1_000, "{steps} steps");
}

/// Does the steps of a file, and returns how many there are.
fn replay(name: &str, file: &Value) -> usize {
    let policy = Arc::new(Policy::parse(name, &file["policy"].to_string()).unwrap());
    let mut table = Table::new(1 << 20, KeyHasher::new(1));
    let steps = file["steps"].as_array().unwrap();
    for (number, step) in steps.iter().enumerate() {
        let (key, at) = (step["key"].as_str().unwrap(), step["at_us"].as_u64().unwrap());
        let operation = step["operation"].to_string();
        let asked = Ask::parse(&operation).and_then(|ask| ask.resolve(&policy, key, &mut || None));
        let answer = match asked {
            Ok(asked) => {
                let operation = Operation::from_words(&asked.operation().to_words()).unwrap();
                let verdict = table.ask(asked.resolved(), Timestamp(at), &operation).unwrap();
                let (kind, numbers) = verdict.effect.to_numbers();
                let effect = Effect::of_numbers(kind, numbers).unwrap();
                let answer = tidegate_http::operation_json(&asked, Verdict { effect, ..verdict });
                let mut answer: Value = serde_json::from_str(&answer).unwrap();
                answer.as_object_mut().unwrap().remove("policy");
                answer
            }
            Err(problem) => json!({ "error": tidegate_http::problem_type(&problem) }),
        };
        assert_eq!(answer, step["answer"], "{name}, step {number}");
    }
    for (key, states) in file["states"].as_object().unwrap() {
        assert_eq!(json!(stored(&table, &policy, key)), *states, "{name}, state of {key}");
    }
    steps.len()
}

/// The records of a key as they would be stored.
fn stored(table: &Table, policy: &Arc<Policy>, key: &str) -> Vec<String> {
    let Ok(resolved) = Resolved::new(policy, key) else { return Vec::new() };
    let Rule::Limited(limits, key) = resolved.rule() else { return Vec::new() };
    let words = table.words(limits, &key).unwrap_or_default().to_vec();
    let words = if words.is_empty() { vec![0; limits.words()] } else { words };
    let records = limits.split(&words);
    records.map(|(record, words)| hex(&blob::encode(policy, record, words))).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
