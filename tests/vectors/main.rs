//! Every backend gives the same answers to the vectors and stores the same bytes.

mod guest;
mod redis;
mod worker;

use std::fs;

use serde_json::Value;
use tidegate_gate::Policy;
use tidegate_tests::file;
use tidegate_tests::vectors::{Backend, Native, Vectors};

fn replay<B: Backend>(mut start: impl FnMut(&[Vectors]) -> B) {
    let all = Vectors::all();
    let mut backend = start(&all);
    let mut mismatches = Vec::new();
    for vectors in &all {
        for (number, step) in (1..).zip(&vectors.steps) {
            let answer = backend.answer(vectors, step);
            let found = serde_json::from_str(&answer).expect("an answer in JSON");
            let [found, expected] = [found, step.answer.clone()].map(said::<B>);
            if found != expected {
                let name = &vectors.name;
                mismatches.push(format!(
                    "{name}, step {number}:\n  expected {expected}\n  found    {found}"
                ));
            }
        }
        for key in vectors.keys() {
            let (found, expected) = (backend.states(vectors, key), vectors.states.get(key));
            if found.is_some() && found.as_ref() != expected {
                let name = &vectors.name;
                mismatches.push(format!(
                    "{name}, state of {key:?}:\n  expected {expected:?}\n  found    {found:?}"
                ));
            }
        }
    }
    assert!(mismatches.is_empty(), "{} mismatches\n{}", mismatches.len(), mismatches.join("\n"));
}

/// The part of an answer that a backend has.
fn said<B: Backend>(mut answer: Value) -> Value {
    if let Some(fields) = answer.as_object_mut() {
        fields.retain(|field, _| !B::SILENT.contains(&field.as_str()));
    }
    answer
}

#[test]
fn native() {
    replay(|_| Native::default());
}

#[test]
fn on_redis() {
    replay(|_| redis::Redis::start());
}

#[test]
fn in_wasmtime() {
    replay(|_| guest::Guest::start());
}

#[test]
fn in_the_worker() {
    replay(worker::Worker::start);
}

#[test]
fn every_algorithm_has_vectors_and_a_policy_for_parity() {
    let unknown = "limits = [{ algorithm = '?' }]";
    let error = Policy::parse("unknown", unknown).expect_err("no such algorithm").to_string();
    let (_, names) = error.split_once("expected one of `").expect("the names of all algorithms");
    let (names, _) = names.split_once("`; found").expect("what was found");
    let files = Vectors::all().into_iter().map(|vectors| vectors.path);
    let texts = files.map(|path| fs::read_to_string(path).expect("a file")).collect::<String>();
    let parity = fs::read_to_string(file("parity/policies.toml")).expect("a file");
    for name in names.split("`, `") {
        for (place, all) in [("vectors", &texts), ("parity/policies.toml", &parity)] {
            assert!(all.contains(&format!("\"{name}\"")), "tests/{place} has no `{name}`");
        }
    }
}

#[test]
fn the_files_equal_what_the_generator_writes() {
    for vectors in Vectors::all() {
        let text = fs::read_to_string(&vectors.path).expect("a file");
        let name = &vectors.name;
        assert!(
            vectors.generated() == text,
            "{name}: run `cargo run -p tidegate-tests --bin vectors`"
        );
    }
}
