//! The Worker whose policy file or secrets are missing or wrong: nothing passes, the log says why, and no client does.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate_tests::{Api, Served};

use crate::gateway::{ALICE, problem, start, start_with};
use crate::held::{later, wait_for};
use crate::hostile::{claims, encoded, signed};
use crate::upstream::send;

/// Gives the Worker a binding of this value; null takes the binding away.
fn bind(served: &Served, name: &str, value: &Value) {
    let target = format!("/test/bind?{name}&{}", encoded(&value.to_string()));
    assert_eq!(served.api.get(&target, &[]).text, "bound");
}

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

/// A valid token is no reason to let its request pass as another caller's, so without keys it is refused.
#[test]
fn no_token_counts_as_absent_for_want_of_keys() {
    let (served, upstream) = start();
    let token = signed(&served, "HS256", r#"{"alg":"HS256"}"#, &claims(r#""sub":"alice""#));
    let ask = |bearer: &str| {
        send(&served, "GET /users/echo", &[("authorization", bearer), ("x-api-key", "caller")])
    };
    let keys = |kty: &str| json!({ "kty": kty, "k": "A".repeat(64), "n": "AQAB", "e": "AQAB" });
    let seventeen = json!({ "keys": vec![keys("oct"); 17] });
    let valid = format!("Bearer {token}");
    for (bound, reason) in [
        (json!(null), "found no binding"),
        (json!(""), "found an empty text"),
        (json!("a secret that anybody can try"), "at least 32 bytes"),
        (json!("{ that anybody can try }"), "found another text that begins with `{`"),
        (json!("{\"keys\":[]}"), "found none"),
        (json!("{\"keys\":{}}"), "expected a list `keys`"),
        (json!("{\"keys\":[null]}"), "expected a list `keys` of objects"),
        (json!(keys("EC").to_string()), "found none"),
        (json!(seventeen.to_string()), "expected at most 16"),
        (json!("{\"kty\":\"oct\",\"k\":\"!\"}"), "JWT_KEYS"),
        (keys("oct"), "found a value of type object"),
    ] {
        bind(&served, "JWT_KEYS", &bound);
        let known = logged(&served).len();
        problem(&ask(&valid), 500, ":internal-error");
        let gate = served.api.get(
            "/_tidegate/v1/gate?policy=users",
            &[("authorization", &valid), ("x-api-key", "caller")],
        );
        assert_eq!(gate.status, 500, "{bound}: {gate:?}");
        for client in [ask(&valid).body, gate.text] {
            assert!(!client.contains("JWT_KEYS") && !client.contains("32 bytes"), "{client}");
        }
        let lines = logged(&served);
        let own = &lines[known..];
        assert!(own.iter().all(|line| line.starts_with("jwt: ")), "{own:?}");
        assert!(own.iter().all(|line| line.contains("JWT_KEYS")), "{own:?}");
        assert!(own.iter().any(|line| line.contains(reason)), "{bound}: {reason}: {own:?}");
        assert!(!own.iter().any(|line| line.contains("anybody")), "{own:?}");
        later(&served, Duration::from_secs(2)); // the next line is written
    }
    assert_eq!(upstream.seen(), 0);
    let key = served.api.get("/_tidegate/v1/keys/users/header:x-api-key:caller", &[]);
    assert_eq!(key.get("remaining"), 1, "nothing was counted: {key:?}");
    assert_eq!(ask("Bearer none").status, 200, "a text that is no token needs no keys");
}

/// The text of an object is the same in every Worker, so anybody would know such a secret.
#[test]
fn a_secret_that_is_no_text_opens_nothing() {
    let policies =
        "[policies.p]\nlimits = [{ algorithm = 'fixed_window', limit = 2, period = '1d' }]";
    for secret in [json!({ "a": 1 }), json!([]), json!(true)] {
        let (served, _upstream) = start_with(policies, None);
        bind(&served, "TIDEGATE_TOKEN", &secret);
        for token in ["[object Object]", "", "true", "{\"a\":1}"] {
            let reply = Api::new(&served.url, Some(token)).check("p", "k", 1, None);
            assert_eq!(reply.status, 500, "{secret}: {token}: {reply:?}");
        }
        assert_eq!(served.api.get("/healthz", &[]).status, 503);
        let lines = logged(&served);
        assert!(lines[0].starts_with("TIDEGATE_TOKEN: expected a text"), "{lines:?}");
    }
}

/// `on_error` is for outages. A binding that is missing never comes back, so an open policy would be open for ever.
#[test]
fn a_binding_that_is_missing_or_wrong_opens_nothing() {
    let policies = "auth = 'none'\n[policies.p]\non_error = 'open'\n\
        limits = [{ algorithm = 'fixed_window', limit = 2, period = '1d' }]";
    for (name, value, reason) in [
        ("KEYS", json!(null), "expected the binding of the Durable Objects, found none"),
        ("POLICIES", json!(null), "expected the binding of the Durable Objects, found none"),
        ("TIDEGATE_POLICIES_DELAY_MS", json!("5s"), "expected milliseconds, found 5s"),
        ("TIDEGATE_POLICIES_DELAY_MS", json!("-1"), "expected milliseconds, found -1"),
        ("TIDEGATE_POLICIES_DELAY_MS", json!(" "), "expected milliseconds, found a blank text"),
    ] {
        let (served, _upstream) = start_with(policies, None);
        bind(&served, name, &value);
        assert_eq!(served.api.check("p", "k", 1, None).status, 500, "{name}");
        assert_eq!(logged(&served), [format!("{name}: {reason}")]);
    }
}

/// As in the host: an empty token in a secret would be none, and none may open more than one.
#[test]
fn an_empty_token_opens_nothing() {
    let policies = "auth = 'none'\n[policies.p]\n\
        limits = [{ algorithm = 'fixed_window', limit = 2, period = '1d' }]";
    for name in ["TIDEGATE_TOKEN", "TIDEGATE_ADMIN_TOKEN"] {
        let (served, _upstream) = start_with(policies, None);
        bind(&served, name, &json!(""));
        assert_eq!(served.api.check("p", "k", 1, None).status, 500);
        let lines = logged(&served);
        assert!(
            lines[0].starts_with(name) && lines[0].contains("found an empty text"),
            "{lines:?}"
        );
    }
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
