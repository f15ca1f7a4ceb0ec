//! The command replays the same traces on four backends and compares the decisions line by line.

use std::fs;
use std::process::{Command, Output};
use std::sync::Arc;

use tidegate::gate::{Kind, Policies, Policy};
use tidegate_tests::{POLICIES, file, generate};

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

#[test]
fn all_backends_agree_on_a_real_log_whose_clock_often_goes_back() {
    // a log names no leases and no organisations
    let is_of_requests = |policy: &&Arc<Policy>| {
        let has = |kind| policy.limits().iter().any(|each| each.limit.kind() == kind);
        has(Kind::Rate) && !has(Kind::Lease) && !has(Kind::Budget) && !policy.shares_states()
    };
    let policies = Policies::parse(POLICIES).unwrap();
    let policies: Vec<_> = policies.all().iter().filter(is_of_requests).collect();
    assert!(policies.len() >= 9, "{policies:?}");
    for policy in policies {
        let output = parity(&file("data/access-2015.log.gz"), &["--policy", policy.name()]);
        let text = agrees(&output, 10_000);
        assert!(text.contains("4915 went back in time"), "{text}");
    }
}

#[test]
fn all_backends_agree_on_a_generated_trace_that_hits_every_edge() {
    let policies = Policies::parse(POLICIES).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.jsonl");
    fs::write(&trace, generate(&policies, 100_000, 1)).unwrap();
    agrees(&parity(&trace, &[]), 100_000);
}

#[test]
fn a_cluster_agrees_with_memory_on_a_generated_trace() {
    let policies = Policies::parse(POLICIES).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.jsonl");
    fs::write(&trace, generate(&policies, 20_000, 2)).unwrap();
    let cluster = tidegate_tests::a_cluster();
    let url = cluster.url();
    let decisions = |file: &str, backend: &[&str]| {
        let file = folder.path().join(file);
        let mut replay = Command::new(tidegate_tests::command());
        replay
            .arg("replay")
            .arg(&trace)
            .arg("--policies")
            .arg(tidegate_tests::file("parity/policies.toml"));
        let output = replay.arg("--decisions").arg(&file).args(backend).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        fs::read_to_string(file).unwrap()
    };
    let in_memory = decisions("memory", &["--backend", "memory"]);
    let on_the_cluster = decisions("cluster", &["--backend", "redis", "--redis", &url]);
    assert_eq!(in_memory.lines().count(), 20_000);
    let differs = in_memory.lines().zip(on_the_cluster.lines()).find(|(one, other)| one != other);
    assert_eq!(differs, None);
    assert_eq!(in_memory.len(), on_the_cluster.len());
}

#[test]
fn rules_that_count_by_the_same_part_of_a_key_count_apart() {
    let text = fs::read_to_string(file("parity/rules.toml")).unwrap();
    let policies = Policies::parse(&text).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.jsonl");
    fs::write(&trace, generate(&policies, 10_000, 1)).unwrap();
    agrees(&parity_by("rules.toml", &trace, &[]), 10_000);
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
