use alloc::sync::Arc;
use std::string::{String, ToString};
use std::vec::Vec;

use tidegate_gate::{Decision, Effect, Micros, Policies, Timestamp, Verdict};

use super::{POLICIES, Server, about, planned, read_check, sent};
use crate::{Access, Counted, Log, LogSecret, Metrics, Outcome};

fn policies() -> Arc<Policies> {
    let shadow = "[policies.trial]\nshadow = true\n\
        limits = [{ algorithm = 'fixed_window', limit = 5, period = '1m' }]\n";
    Policies::parse(&(POLICIES.to_string() + shadow)).unwrap().into()
}

fn decided(allowed: bool) -> Outcome {
    let wait = Micros(1);
    let decision = match allowed {
        true => Decision::Allow { limit: 5, remaining: 1, reset_after: wait },
        false => Decision::Deny { limit: 5, remaining: 0, retry_after: wait, reset_after: wait },
    };
    Outcome::Decided(Verdict::listed(Timestamp(0), decision))
}

fn down() -> Outcome {
    Outcome::Unavailable(String::new())
}

fn count(metrics: &Metrics, policies: &Arc<Policies>, policy: &str, cost: u64, outcome: &Outcome) {
    let body = std::format!(r#"{{"policy":"{policy}","key":"secret key","cost":{cost}}}"#);
    for check in read_check(policies, body).unwrap().1 {
        metrics.count(&check, outcome);
    }
}

#[test]
fn checks_are_counted_by_policy_and_outcome() {
    let policies = policies();
    let metrics = Metrics::new(&policies, None);
    for (policy, cost, outcome) in [
        ("api", 1, decided(true)),
        ("api", 3, decided(true)),
        ("api", 1, decided(false)),
        ("api", 0, decided(true)), // a peek
        ("trial", 1, decided(false)),
        ("open", 1, down()),
    ] {
        count(&metrics, &policies, policy, cost, &outcome);
    }
    metrics.count_ignored();
    let text = metrics.text(3, &[("remembered", 1), ("lent", 0)]);
    for line in [
        r#"tidegate_decisions_total{policy="api",outcome="allowed"} 2"#,
        r#"tidegate_decisions_total{policy="api",outcome="refused"} 1"#,
        r#"tidegate_decisions_total{policy="trial",outcome="shadow_refused"} 1"#,
        r#"tidegate_decisions_total{policy="open",outcome="error"} 1"#,
        r#"tidegate_local_answers_total{kind="remembered"} 1"#,
        r#"tidegate_local_answers_total{kind="lent"} 0"#,
        "tidegate_policies_version 3",
        "# HELP tidegate_policies_ignored_total Policy files that could not be used, edited or stored, so that earlier ones stayed in force.",
        "tidegate_policies_ignored_total 1",
        "# TYPE tidegate_decisions_total counter",
    ] {
        assert!(text.lines().any(|own| own == line), "{line}\n{text}");
    }
    assert!(!text.contains("secret"), "keys are no labels");
}

#[test]
fn a_check_that_just_passes_is_no_event_and_a_lease_is_counted_once() {
    let policies = policies();
    let metrics = Metrics::new(&policies, None);
    let (_, checks) = read_check(&policies, r#"{"policy":"api","key":"k"}"#).unwrap();
    let Outcome::Decided(passed) = decided(true) else { panic!() };
    let repeated = Outcome::Decided(Verdict { effect: Effect::OtherRequest, ..passed });
    for (outcome, is_event, counted) in [
        (&decided(true), false, true),
        (&decided(false), true, true),
        (&down(), true, true),
        (&Outcome::Unreadable(String::new()), false, true), // it concerns one key
        (&repeated, false, false),
    ] {
        assert_eq!(metrics.count(&checks[0], outcome), is_event, "{outcome:?}");
        assert_eq!(Counted::of(&checks[0], outcome).is_some(), counted, "{outcome:?}");
        assert_eq!(metrics.store_answers(), *outcome != down(), "{outcome:?}");
    }
}

#[test]
fn a_check_that_a_limit_warns_of_is_counted_and_says_so() {
    const FILE: &str = "[policies.p]\nlimits = [
        { algorithm = 'fixed_window', name = 'most', limit = 2, period = '1m', warn_at = '100%' },
        { algorithm = 'fixed_window', name = 'trial', limit = 1, period = '1m', shadow = true },
    ]";
    let mut server = Server::new(FILE);
    let metrics = Metrics::new(&server.policies, None);
    for (warns, outcome) in [(false, "allowed"), (true, "shadow_refused")] {
        let (exchange, checks) = read_check(&server.policies, about("")).unwrap();
        let said = server.decide(&checks[0]);
        metrics.count(&checks[0], &said);
        let counted = Counted::of(&checks[0], &said).unwrap();
        assert_eq!((counted.warned, counted.outcome), (warns, outcome));
        let answer = super::json(&super::decided(exchange, [said].into()));
        assert_eq!(answer.get("warned").is_some(), warns, "{answer}");
        assert_eq!(answer["would_allow"], !warns, "{answer}");
    }
    let text = metrics.text(1, &[]);
    assert!(text.contains("tidegate_warnings_total{policy=\"p\"} 1\n"), "{text}");
}

#[test]
fn every_answer_of_on_error_is_counted() {
    let more = "[policies.local]\non_error = 'local'\n\
        limits = [{ algorithm = 'fixed_window', limit = 5, period = '1m' }]\n";
    let policies: Arc<Policies> = Policies::parse(&(POLICIES.to_string() + more)).unwrap().into();
    let metrics = Metrics::new(&policies, None);
    let by_share = |allowed| match decided(allowed) {
        Outcome::Decided(verdict) => Outcome::Decided(Verdict { degraded: true, ..verdict }),
        other => other,
    };
    for (policy, outcome) in [
        ("open", down()),
        ("api", down()),
        ("api", decided(true)),
        ("local", by_share(true)),
        ("local", by_share(true)),
        ("local", by_share(false)),
        ("local", down()),
        ("local", decided(false)),
    ] {
        count(&metrics, &policies, policy, 1, &outcome);
    }
    let text = metrics.text(1, &[]);
    for line in [
        r#"tidegate_on_error_total{policy="open",answer="open"} 1"#,
        r#"tidegate_on_error_total{policy="open",answer="closed"} 0"#,
        r#"tidegate_on_error_total{policy="api",answer="closed"} 1"#,
        r#"tidegate_on_error_total{policy="local",answer="local_allowed"} 2"#,
        r#"tidegate_on_error_total{policy="local",answer="local_refused"} 1"#,
        r#"tidegate_on_error_total{policy="local",answer="closed"} 1"#,
        r#"tidegate_decisions_total{policy="local",outcome="allowed"} 2"#,
        r#"tidegate_decisions_total{policy="local",outcome="refused"} 2"#,
        r#"tidegate_decisions_total{policy="local",outcome="error"} 1"#,
    ] {
        assert!(text.lines().any(|own| own == line), "{line}\n{text}");
    }
}

#[test]
fn counters_go_on_after_an_edit() {
    let all = policies();
    let metrics = Metrics::new(&all, None);
    count(&metrics, &all, "api", 1, &decided(true));
    let fewer = Policies::parse(POLICIES).unwrap();
    let next = Metrics::new(&fewer, Some(&metrics));
    count(&metrics, &all, "api", 1, &decided(true)); // a request that was under way
    let text = next.text(2, &[]);
    assert!(text.contains(r#"{policy="api",outcome="allowed"} 2"#), "{text}");
    assert!(!text.contains("trial"), "{text}");
    count(&next, &all, "trial", 1, &decided(true)); // its policy is gone
}

#[test]
fn an_event_names_the_policy_the_outcome_and_the_cost() {
    let policies = policies();
    let (_, checks) = read_check(&policies, r#"{"policy":"api","key":"k","cost":3}"#).unwrap();
    let counted = Counted { policy: "api", outcome: "refused", cost: 3, warned: false };
    assert_eq!(Counted::of(&checks[0], &decided(false)), Some(counted));
}

#[test]
fn a_line_names_the_policy_and_a_hash_of_the_key_that_needs_the_secret() {
    let policies = policies();
    let line = |secret: &[u8], key: &str| {
        let body = std::format!(r#"{{"policy":"api","key":"{key}"}}"#);
        let (_, checks) = read_check(&policies, body).unwrap();
        LogSecret::new(secret).describe(checks[0].resolved(), &"away")
    };
    let first = line(b"one", "alice");
    assert!(first.starts_with("policy \"api\", key ") && first.ends_with(": away"), "{first}");
    assert!(!first.contains("alice"));
    assert_eq!(first, line(b"one", "alice"));
    assert_ne!(first, line(b"one", "bob"));
    assert_ne!(first, line(b"two", "alice"));
    assert_eq!(std::format!("{:?}", LogSecret::new(b"one")), "LogSecret(..)");
}

#[test]
fn lines_come_at_a_bounded_rate_and_the_others_are_counted() {
    let mut log = Log::default();
    let mut line = |ms: u64| log.line(Timestamp(ms * 1_000), &"away");
    let logged = |text: &str| Some(text.to_string());
    assert_eq!(line(500), logged("away"), "the first error has a line at any time");
    assert_eq!(line(8_900), logged("away"));
    assert_eq!([line(9_000), line(9_899)], [None, None], "another second is not a second later");
    assert_eq!(line(9_900), logged("away; 2 more errors since the last line"));
    assert_eq!(line(8_901), None);
    assert_eq!(log.rest().map(|more| more.to_string()), logged("1 more error since the last line"));
    assert_eq!(log.rest(), None);
    assert_eq!(log.line(Timestamp(12_000_000), &"away"), logged("away"));
}

#[test]
fn a_request_that_only_the_shadow_lets_pass_is_counted_whatever_it_costs() {
    const FILE: &str = "
[policies.p]
shadow = true
limits = [{ algorithm = 'token_bucket', capacity = 100, rate = '1/h' }]
reservations = { most = 3 }";
    let mut server = Server::new(FILE);
    let metrics = Metrics::new(&server.policies, None);
    for target in ["/v1/check", "/v1/reservations"] {
        let mut exchange = sent(&server.policies, &Access::OPEN, ("POST", target), &[]);
        exchange.body(Ok(about(",\"cost\":500").into()), &mut || Some(7));
        let check = planned(exchange).unwrap().1.remove(0);
        let outcome = server.decide(&check);
        assert!(metrics.count(&check, &outcome));
        assert_eq!(Counted::of(&check, &outcome).unwrap().outcome, "shadow_refused");
    }
    let text = metrics.text(1, &[]);
    for line in [
        r#"tidegate_decisions_total{policy="p",outcome="shadow_refused"} 2"#,
        r#"tidegate_decisions_total{policy="p",outcome="allowed"} 0"#,
        r#"tidegate_reservations_total{policy="p",outcome="refused"} 1"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

#[test]
fn reservations_are_counted_by_what_became_of_them() {
    const FILE: &str = "
[policies.p]
limits = [{ algorithm = 'token_bucket', capacity = 100, rate = '1/h' }]
reservations = { most = 3, time_to_live = '10s', remember = '5s' }
allow = ['free']
[policies.plain]
limits = [{ algorithm = 'fixed_window', limit = 5, period = '1m' }]";
    let mut server = Server::new(FILE);
    let metrics = Metrics::new(&server.policies, None);
    let call = |server: &mut Server, target: &str, body: &str| {
        let mut exchange = sent(&server.policies, &Access::OPEN, ("POST", target), &[]);
        exchange.body(Ok(body.into()), &mut || Some(7));
        for check in planned(exchange).unwrap().1 {
            let outcome = server.decide(&check);
            metrics.count(&check, &outcome);
        }
    };
    let reserve = |cost: u64, id: &str| about(&std::format!(",\"cost\":{cost},\"id\":\"{id}\""));
    for (cost, id) in [(40, "a"), (30, "b"), (50, "too much"), (10, "c"), (1, "no place")] {
        call(&mut server, "/v1/reservations", &reserve(cost, id));
    }
    call(&mut server, "/v1/reservations", r#"{"policy":"p","key":"free","cost":9}"#);
    call(&mut server, "/v1/check", &about(",\"cost\":99"));
    call(&mut server, "/v1/reservations/a/commit", &about(",\"actual\":25"));
    call(&mut server, "/v1/reservations/b/release", &about(""));
    server.wait(11); // c ends
    call(&mut server, "/v1/reservations/c/commit", &about(",\"actual\":7"));
    let text = metrics.text(1, &[]);
    let own = text.lines().filter(|line| line.contains("reserv") || line.contains("commit"));
    let own: Vec<&str> = own.filter(|line| !line.starts_with("# HELP")).collect();
    assert_eq!(
        own,
        [
            "# TYPE tidegate_reservations_total counter",
            r#"tidegate_reservations_total{policy="p",outcome="reserved"} 3"#,
            r#"tidegate_reservations_total{policy="p",outcome="refused"} 1"#,
            r#"tidegate_reservations_total{policy="p",outcome="no_place"} 1"#,
            "# TYPE tidegate_reserved_units_total counter",
            r#"tidegate_reserved_units_total{policy="p"} 80"#,
            "# TYPE tidegate_commits_total counter",
            r#"tidegate_commits_total{policy="p",late="false"} 2"#,
            r#"tidegate_commits_total{policy="p",late="true"} 1"#,
            "# TYPE tidegate_committed_units_total counter",
            r#"tidegate_committed_units_total{policy="p",late="false"} 25"#,
            r#"tidegate_committed_units_total{policy="p",late="true"} 7"#,
        ]
    );
    assert!(text.contains(r#"tidegate_decisions_total{policy="p",outcome="refused"} 3"#), "{text}");
    let in_status = metrics.reservations("p").unwrap();
    assert_eq!(in_status.map(|(_, count)| count), [3, 1, 1, 80, 2, 25, 1, 7], "{in_status:?}");
    assert_eq!(metrics.reservations("plain"), None);
    let next = Metrics::new(&server.policies, Some(&metrics)).text(2, &[]);
    assert!(next.contains(r#"tidegate_reserved_units_total{policy="p"} 80"#), "an edit: {next}");
    let none = Metrics::new(&policies(), None).text(1, &[]);
    assert!(!none.contains("reserv") && !none.contains("commit"), "{none}");
}
