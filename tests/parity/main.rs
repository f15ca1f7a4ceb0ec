//! The command replays the same traces on four backends and compares the decisions line by line.

mod everything;

use std::fs;
use std::process::{Command, Output};

use tidegate_tests::{POLICIES, file};

fn parity(trace: &std::path::Path, options: &[&str]) -> Output {
    parity_by("policies.toml", trace, options)
}

fn parity_by(policies: &str, trace: &std::path::Path, options: &[&str]) -> Output {
    Command::new(tidegate_tests::command())
        .arg("parity")
        .arg(trace)
        .arg("--policies")
        .arg(file("parity").join(policies))
        .args(options)
        .output()
        .unwrap()
}

#[track_caller]
fn agrees(output: &Output, lines: usize) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let last = text.lines().last();
    let expected = format!("mismatches 0 of {lines} across memory, redis, wasmtime, worker");
    assert_eq!(last, Some(expected.as_str()));
    text
}

/// Parity of one policy on the real log, whose clock often goes back.
fn agrees_on_the_log(policy: &str) {
    let output = parity(&file("data/access-2015.log.gz"), &["--policy", policy]);
    let text = agrees(&output, 10_000);
    assert!(text.contains("4915 went back in time"), "{text}");
}

#[test]
fn all_backends_agree_on_a_real_log_by_one_policy() {
    agrees_on_the_log("sliding");
}

#[test]
fn a_difference_is_found_and_shown() {
    // a Worker with other limits takes the place of a faulty backend
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.jsonl");
    let line = |t| format!("{{\"t_us\":{t},\"policy\":\"bucket\",\"key\":\"k\",\"cost\":3}}\n");
    fs::write(&trace, [7, 8, 9].map(line).concat()).unwrap();
    let wrong = tidegate::local::Workerd::start(&tidegate::local::WorkerdOptions {
        policies: POLICIES.replace("capacity = 7", "capacity = 8"),
        trust_caller_time: true,
        ..tidegate::local::WorkerdOptions::default()
    })
    .unwrap();
    let output = parity(&trace, &["--worker", wrong.url()]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let last = text.lines().last();
    assert_eq!(last, Some("mismatches 3 of 3 across memory, redis, wasmtime, worker"));
    assert!(text.contains("memory    state none"), "{text}");
    assert!(
        text.contains("memory    says  {\"allowed\":true,\"limit\":7,\"remaining\":4"),
        "{text}"
    );
    assert!(
        text.contains("worker    says  {\"allowed\":true,\"limit\":8,\"remaining\":5"),
        "{text}"
    );
}
