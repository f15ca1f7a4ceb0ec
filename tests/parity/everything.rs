//! All policies, long traces, and a Cluster.

use std::fs;
use std::process::Command;
use std::sync::Arc;

use tidegate::gate::{Kind, Policies, Policy};
use tidegate_tests::{POLICIES, file, generate};

use super::{agrees, agrees_on_the_log, parity, parity_by};

#[test]
fn all_backends_agree_on_a_real_log_by_each_policy() {
    // a log names no leases and no organisations
    let is_of_requests = |policy: &&Arc<Policy>| {
        let has = |kind| policy.limits().iter().any(|each| each.limit.kind() == kind);
        has(Kind::Rate) && !has(Kind::Lease) && !has(Kind::Budget) && !policy.shares_states()
    };
    let policies = Policies::parse(POLICIES).unwrap();
    let policies: Vec<_> = policies.all().iter().filter(is_of_requests).collect();
    assert!(policies.len() >= 9, "{policies:?}");
    for policy in policies {
        agrees_on_the_log(policy.name());
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
