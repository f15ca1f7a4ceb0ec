//! The Worker whose policy file or secrets are missing or wrong: nothing passes, the log says why, and no client does.

use std::time::{Duration, Instant};

use tidegate_tests::Served;

use crate::gateway::{ALICE, problem, start, start_with};
use crate::held::{later, wait_for};
use crate::upstream::send;

fn logged(served: &Served) -> Vec<String> {
    let entries = served.api.get("/test/logged", &[]).json();
    entries.as_array().unwrap().iter().map(|entry| entry.as_str().unwrap().to_owned()).collect()
}

/// The number of errors that lines tell of.
fn errors(lines: &[String]) -> u64 {
    let more = |line: &String| {
        let (_, rest) = line.rsplit_once("; ")?;
        rest.strip_suffix(" since the last line")?.split(' ').next()?.parse::<u64>().ok()
    };
    lines.iter().map(|line| 1 + more(line).unwrap_or(0)).sum()
}

#[test]
fn the_fault_of_a_policy_file_is_told_to_the_log_alone() {
    let policies =
        "[policies.p]\nlimits = [{ algorithm = 'fixed_window', limit = 0, period = '1d' }]";
    let (served, _upstream) = start_with(policies, None);
    let begun = Instant::now();
    for path in ["/v1/check", "/api/echo", "/metrics"] {
        let reply = send(&served, &format!("GET {path}"), &[ALICE]);
        problem(&reply, 500, ":internal-error");
        for told in ["policies", "line", "column", "limit"] {
            assert!(!reply.body.contains(told), "{reply:?}");
        }
    }
    for path in ["/healthz", "/_tidegate/healthz"] {
        let health = served.api.get(path, &[]);
        assert_eq!((health.status, health.text.as_str()), (503, "{\"status\":\"unhealthy\"}"));
    }
    let lines = logged(&served);
    let place = "policies.toml: line 2, column 49: policies.p.limits[0].limit: ";
    assert!(lines[0].starts_with(place), "{lines:?}");
    assert!(lines.len() as u64 <= begun.elapsed().as_secs() + 1, "{lines:?}");
}

#[test]
fn at_most_one_line_a_second_is_logged_and_it_counts_the_others() {
    let (served, _upstream) = start();
    let begun = Instant::now();
    for broken in 1..=40 {
        let reply = send(&served, "GET /held/broken", &[ALICE]);
        assert!(!reply.body.contains("no length"), "{reply:?}");
        wait_for(&served, "released", broken);
    }
    let lines = logged(&served);
    let seconds = begun.elapsed().as_secs();
    assert!(!lines.is_empty() && lines.len() as u64 <= seconds + 1, "{seconds} s: {lines:?}");
    later(&served, Duration::from_secs(2));
    problem(&send(&served, "GET /down/x", &[ALICE]), 502, ":upstream-failed");
    let lines = logged(&served);
    assert_eq!(errors(&lines), 41, "{lines:?}");
    assert!(lines.iter().all(|line| !line.contains('\n')), "{lines:?}");
    assert!(lines.last().unwrap().starts_with("upstream: "), "{lines:?}");
}
