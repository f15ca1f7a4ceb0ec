use alloc::sync::Arc;
use std::string::{String, ToString};
use std::vec::Vec;

use serde_json::{Value, json};
use tidegate_gate::{KeyHasher, Policies, Table, Timestamp};

use super::{KeysAs, Limited};
use crate::tests::read_check;
use crate::{LogSecret, Metrics, Outcome, RevisionTag, Status};

const POLICIES: &str = r#"
    [policies.api]
    limits = [
        { algorithm = "fixed_window", name = "user", limit = 2, period = "1d" },
        { algorithm = "fixed_window", name = "team", depth = 1, limit = 3, period = "1d" },
        { algorithm = "fixed_window", name = "trial", limit = 1, period = "1d", shadow = true },
    ]
    deny = ["bad"]
    [policies.shadow]
    shadow = true
    limits = [{ algorithm = "fixed_window", limit = 1, period = "1d" }]
"#;

pub(super) const HOUR: u64 = 3_600_000_000;

/// A server that decides in a table.
pub(super) struct Server {
    policies: Arc<Policies>,
    table: Table,
    metrics: Metrics,
    pub(super) limited: Limited,
    pub(super) now: Timestamp,
}

impl Server {
    pub(super) fn new() -> Self {
        let policies = Arc::new(Policies::parse(POLICIES).unwrap());
        let metrics = Metrics::new(&policies, None);
        let table = Table::new(1 << 20, KeyHasher::new(0));
        Self { policies, table, metrics, limited: Limited::default(), now: Timestamp(HOUR * 9) }
    }

    fn check(&mut self, policy: &str, key: &str) {
        self.decide(policy, key, 1, None);
    }

    /// `down` is why the store does not answer.
    pub(super) fn decide(&mut self, policy: &str, key: &str, cost: u64, down: Option<&str>) {
        let body = std::format!(r#"{{"policy":"{policy}","key":"{key}","cost":{cost}}}"#);
        let (_, checks) = read_check(&self.policies, body).unwrap();
        let outcome = match down {
            Some(why) => Outcome::Unavailable(why.to_string()),
            None => {
                let verdict =
                    self.table.ask_once(checks[0].resolved(), self.now, &checks[0].operation());
                Outcome::Decided(verdict.unwrap())
            }
        };
        if self.metrics.count(&checks[0], &outcome) {
            self.limited.count(&checks[0], &outcome, self.now);
        }
    }

    fn top(&mut self) -> Value {
        serde_json::from_str(&self.limited.top(self.now, KeysAs::Clear)).unwrap()
    }

    pub(super) fn status(&mut self) -> Value {
        self.status_as(Some(KeysAs::Clear))
    }

    fn status_as(&mut self, shown: Option<KeysAs<'_>>) -> Value {
        let status = Status {
            policies: &self.policies,
            revision: &RevisionTag { version: 3, hash: "abc".to_string(), origin: None },
            metrics: &self.metrics,
            store: "memory",
            local: &[("lent", 5)],
        };
        serde_json::from_str(&self.limited.status(self.now, &status, shown)).unwrap()
    }
}

/// The policy, limit, all refusals, and the keys of each hour with their counts.
pub(super) type Row = (String, Value, u64, Vec<Vec<(String, u64)>>);

pub(super) fn rows(top: &Value) -> Vec<Row> {
    let text = |value: &Value| value.as_str().unwrap().to_string();
    let number = |value: &Value| value.as_u64().unwrap();
    let key = |key: &Value| (text(&key["key"]), number(&key["count"]));
    let hour = |hour: &Value| {
        let keys: Vec<_> = hour["keys"].as_array().unwrap().iter().map(key).collect();
        assert_eq!(number(&hour["refusals"]), keys.iter().map(|key| key.1).sum::<u64>());
        keys
    };
    let row = |row: &Value| {
        let hours = row["hours"].as_array().unwrap().iter().map(hour).collect();
        (text(&row["policy"]), row["limit"].clone(), number(&row["refusals"]), hours)
    };
    top["top"].as_array().unwrap().iter().map(row).collect()
}

pub(super) fn row(policy: &str, limit: &str, refusals: u64, hours: &[&[(&str, u64)]]) -> Row {
    let key = |(key, count): &(&str, u64)| (key.to_string(), *count);
    let hours = hours.iter().map(|keys| keys.iter().map(key).collect()).collect();
    let limit = if limit.is_empty() { Value::Null } else { json!(limit) };
    (policy.to_string(), limit, refusals, hours)
}

#[test]
fn each_limit_has_the_keys_that_it_refused_and_those_with_most_refusals_first() {
    let mut server = Server::new();
    for key in ["t/ann", "t/ann", "t/ann", "t/bob", "t/bob", "t/bob", "bad"] {
        server.check("api", key);
    }
    let expected = [
        row("api", "", 1, &[&[("bad", 1)]]),
        row("api", "team", 2, &[&[("t", 2)]]),
        row("api", "trial", 4, &[&[("t/ann", 2), ("t/bob", 2)]]),
        row("api", "user", 1, &[&[("t/ann", 1)]]),
    ];
    assert_eq!(rows(&server.top()), expected);
    for _ in 0..2 {
        server.check("api", "t/bob");
    }
    assert_eq!(rows(&server.top())[2], row("api", "trial", 6, &[&[("t/bob", 4), ("t/ann", 2)]]));
}

#[test]
fn a_request_that_passes_in_shadow_is_counted_and_a_peek_is_not() {
    let mut server = Server::new();
    server.check("shadow", "k");
    server.decide("shadow", "k", 0, None);
    assert_eq!(rows(&server.top()), []);
    server.check("shadow", "k");
    assert_eq!(rows(&server.top()), [row("shadow", "shadow", 1, &[&[("k", 1)]])]);
}

#[test]
fn keys_are_hashes_of_the_log_unless_they_are_asked_for() {
    let mut server = Server::new();
    for _ in 0..3 {
        server.check("api", "secret/key");
    }
    let secret = LogSecret::new(b"s");
    let text = server.limited.top(server.now, KeysAs::Hashes(&secret));
    assert!(!text.contains("secret"), "{text}");
    let hash = std::format!("\"hash\":\"{:016x}\"", secret.hash("api", "secret/key"));
    assert!(text.contains(&hash), "{text}");
    assert!(server.limited.top(server.now, KeysAs::Clear).contains("\"key\":\"secret/key\""));
}

#[test]
fn every_hour_begins_anew_and_the_hour_before_is_kept() {
    let mut server = Server::new();
    let start = server.now.0;
    for _ in 0..3 {
        server.check("shadow", "early");
    }
    server.now.0 += HOUR - 1;
    server.check("shadow", "early");
    let of = |refusals, hours: &[&[(&str, u64)]]| [row("shadow", "shadow", refusals, hours)];
    assert_eq!(rows(&server.top()), of(3, &[&[("early", 3)]]));
    server.now.0 += 1;
    assert_eq!(rows(&server.top()), of(3, &[&[("early", 3)]])); // the hour before
    server.check("shadow", "late");
    server.check("shadow", "late");
    let top = server.top();
    assert_eq!(rows(&top), of(4, &[&[("late", 1)], &[("early", 3)]]));
    let hours = &top["top"][0]["hours"];
    assert_eq!(
        (&hours[0]["since_us"], &hours[1]["since_us"]),
        (&json!(start + HOUR), &json!(start))
    );
    server.now.0 += 2 * HOUR;
    assert_eq!(rows(&server.top()), of(4, &[]));
    server.now.0 -= 4 * HOUR; // a clock that was wrong
    server.check("shadow", "early");
    assert_eq!(server.top()["top"][0]["hours"][0]["since_us"], json!(start - HOUR));
}

#[test]
fn policies_that_are_gone_are_forgotten() {
    let mut server = Server::new();
    for policy in ["api", "api", "shadow", "shadow"] {
        server.check(policy, "k");
    }
    assert_eq!(rows(&server.top()).len(), 2);
    let other =
        "[policies.api]\nlimits = [{ algorithm = 'fixed_window', limit = 9, period = '1d' }]";
    server.limited.keep(&Policies::parse(other).unwrap());
    assert_eq!(rows(&server.top()), [row("api", "trial", 1, &[&[("k", 1)]])]);
}

#[test]
fn the_memory_for_lists_is_bounded() {
    let mut limited = Limited::default();
    for number in 0..5_000 {
        limited.add("api", Some(&number.to_string()), "k");
    }
    assert_eq!(limited.lists.len(), super::MOST_LISTS);
}

#[test]
fn the_status_says_all_that_a_page_shows() {
    let mut server = Server::new();
    for _ in 0..3 {
        server.check("api", "k");
    }
    assert_eq!(server.status()["store"], json!({ "name": "memory", "answers": true }));
    server.decide("api", "k", 1, Some("away"));
    let mut status = server.status();
    let store = json!({ "name": "memory", "answers": false, "last_error": "away", "last_error_us": server.now.0 });
    assert_eq!(status["store"], store);
    assert_eq!((&status["version"], &status["hash"]), (&json!(3), &json!("abc")));
    assert_eq!(status["local_answers"], json!({ "lent": 5 }));
    let policy = json!({
        "name": "api",
        "description": null,
        "decisions": { "allowed": 1, "refused": 1, "shadow_refused": 1, "error": 1, "warned": 0 },
        "reservations": null,
    });
    let (mut said, mut hashed) = (status["policies"][0].take(), server.status_as(None));
    let words = said.as_object_mut().unwrap().remove("words").unwrap();
    assert_eq!(said, policy);
    let [name, listed] = [&words[0], &words[4]];
    assert_eq!((name, listed), (&json!("api: no description"), &json!("always denied: \"bad\"")));
    assert_eq!(hashed["policies"][0]["words"][4].take(), json!("always denied: 1"));
    assert_eq!(status["top"], server.top()["top"]);

    server.check("shadow", "k");
    assert_eq!(server.status()["store"]["answers"], json!(true));
}

#[test]
fn only_callers_for_administration_are_told_the_address_in_an_error() {
    let mut server = Server::new();
    server.decide("api", "k", 1, Some("away"));
    server.limited.explain("no answer (192.0.2.7:6379)".to_string());
    assert_eq!(server.status()["store"]["last_error"], "no answer (192.0.2.7:6379)");
    let secret = LogSecret::new(b"s");
    let hashed = server.status_as(Some(KeysAs::Hashes(&secret)));
    assert_eq!(hashed["store"]["last_error"], "away");
    assert_eq!(server.status_as(None)["store"]["last_error"], "away");
    server.decide("api", "k", 1, Some("away again"));
    assert_eq!(server.status()["store"]["last_error"], "away again");
}

#[test]
fn a_decision_by_a_share_is_no_answer_of_the_store() {
    let mut server = Server::new();
    let (_, checks) = read_check(&server.policies, r#"{"policy":"shadow","key":"k"}"#).unwrap();
    let decide = |server: &mut Server| {
        let verdict =
            server.table.ask_once(checks[0].resolved(), server.now, &checks[0].operation());
        let verdict = verdict.unwrap();
        let outcome = Outcome::Decided(tidegate_gate::Verdict { degraded: true, ..verdict });
        assert!(server.metrics.count(&checks[0], &outcome));
        server.limited.count(&checks[0], &outcome, server.now);
    };
    decide(&mut server);
    let status = server.status();
    assert_eq!(status["store"]["answers"], json!(false));
    assert_eq!(status["store"]["last_error"], json!(crate::answer::forms::BY_SHARE));
    assert_eq!(rows(&status), [], "it was granted");
    decide(&mut server);
    assert_eq!(rows(&server.top()), [row("shadow", "shadow", 1, &[&[("k", 1)]])]);
}
