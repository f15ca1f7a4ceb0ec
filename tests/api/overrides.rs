//! Overrides of one key, which hold beside the policies until a time.

use serde_json::json;
use tempfile::tempdir;
use tidegate::local::WorkerdOptions;
use tidegate_tests::{Served, kept_memory, worker};

use crate::POLICIES;
use crate::faults::{arm, counted, later};
use crate::revisions::{edited, escaped, limit, worker_options};

/// The fields of an override of `open`, which ends this long after the server's clock.
fn until(served: &Served, capacity: u64, span_us: u64) -> (String, u64) {
    let now = served.api.check("open", "clock", 0, None).get("at_us").as_u64().unwrap();
    (json!({ "capacity": capacity, "until_us": now + span_us }).to_string(), now + span_us)
}

const HOUR_US: u64 = 3_600_000_000;

pub fn one_key_has_other_limits_until_a_time(served: &Served) {
    let (fields, until_us) = until(served, 90, HOUR_US);
    let actor = [("x-tidegate-actor", "alice")];
    let put = served.api.put_with("/v1/overrides/open/user%3A42", &actor, &fields);
    assert_eq!(
        (put.status, put.get("version"), put.get("previous")),
        (200, json!(2), json!(1)),
        "{put:?}"
    );
    assert_eq!((limit(served, "user:42"), limit(served, "user:43")), (json!(90), json!(5)));
    assert_eq!(served.api.check("open", "user:42", 80, None).get("remaining"), 10);
    let listed = served.api.get("/v1/overrides", &[]).get("overrides");
    let expected = json!([{
        "policy": "open", "key": "user:42", "until_us": until_us, "by": "alice",
        "override": { "capacity": 90, "until_us": until_us },
    }]);
    assert_eq!(listed, expected);
    // the file and the overrides change apart
    assert_eq!(served.api.get("/v1/policies/file", &[]).text, POLICIES);
    assert_eq!(served.api.put_policies(&edited(7)).status, 200);
    assert_eq!((limit(served, "user:42"), limit(served, "user:43")), (json!(90), json!(7)));
    assert_eq!(
        served.api.check("open", "user:42", 0, None).get("remaining"),
        10,
        "its state goes on"
    );
    let restored = served.api.post_with("/v1/policies/restore", &[("if-match", "*")], "");
    assert_eq!((restored.status, limit(served, "user:43")), (200, json!(5)));
    assert_eq!(limit(served, "user:42"), 90);
    assert_eq!(served.api.delete("/v1/overrides/open/user%3A42").status, 200);
    assert_eq!(limit(served, "user:42"), 5);
    assert_eq!(served.api.delete("/v1/overrides/open/user%3A42").status, 404);
    assert_eq!(served.api.get("/v1/overrides", &[]).get("overrides"), json!([]));
    // the same limits again, of which 80 were used
    assert_eq!(served.api.put("/v1/overrides/open/user%3A42", fields).status, 200);
    assert_eq!(served.api.check("open", "user:42", 0, None).get("remaining"), 10);
}

#[test]
fn a_host_goes_by_the_former_rule_from_the_end_of_an_override_on() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("policies.toml.revisions");
    let served = kept_memory(POLICIES, &path);
    let (long, _) = until(&served, 80, HOUR_US);
    assert_eq!(served.api.put("/v1/overrides/open/long", long).status, 200);
    let (fields, until_us) = until(&served, 90, 1_500_000);
    assert_eq!(served.api.put("/v1/overrides/open/k", fields).status, 200);
    loop {
        let said = served.api.check("open", "k", 0, None);
        let is_over = said.get("at_us").as_u64().unwrap() >= until_us;
        assert_eq!(said.get("limit"), if is_over { 5 } else { 90 }, "{said:?}");
        if is_over {
            break;
        }
    }
    assert_eq!(limit(&served, "long"), 80);
    drop(served);
    let restarted = kept_memory(POLICIES, &path);
    assert_eq!((limit(&restarted, "long"), limit(&restarted, "k")), (json!(80), json!(5)));
}

#[test]
fn a_worker_goes_by_the_former_rule_from_the_end_of_an_override_on() {
    let served = worker(worker_options(None));
    let (long, _) = until(&served, 80, HOUR_US);
    assert_eq!(served.api.put("/v1/overrides/open/long", long).status, 200);
    let (fields, _) = until(&served, 90, 60_000_000);
    assert_eq!(served.api.put("/v1/overrides/open/k", fields).status, 200);
    let remaining = |key: &str| served.api.check("open", key, 1, None).get("remaining");
    for (left, left_of_long) in [(89, 79), (88, 78)] {
        arm(&served, "forget the policies"); // as if the object was elsewhere
        assert_eq!(remaining("k"), left);
        arm(&served, "forget the policies");
        assert_eq!(remaining("long"), left_of_long);
    }
    later(&served, 60_000);
    for (left, left_of_long) in [(4, 77), (3, 76)] {
        arm(&served, "forget the policies");
        assert_eq!(remaining("k"), left, "by the policy's own limits");
        arm(&served, "forget the policies");
        assert_eq!(
            remaining("long"),
            left_of_long,
            "which object and isolate read at another time"
        );
    }
    let lines = counted(&served, "logged");
    assert!(!lines.to_string().contains("error"), "{lines}");
}

#[test]
fn an_isolate_hears_of_an_override_within_its_delay() {
    let variables = vec![("TIDEGATE_POLICIES_DELAY_MS".to_owned(), "3600000".to_owned())];
    let served = worker(WorkerdOptions { variables, ..worker_options(None) });
    assert_eq!(limit(&served, "k"), 5);
    let (fields, _) = until(&served, 90, 2 * HOUR_US);
    let body = format!("override\n\nelsewhere\n\nopen\n1\nk{fields}");
    let put = served.api.post(&format!("/fault/policies?{}", escaped(POLICIES)), body);
    assert_eq!((put.text.as_str(), limit(&served, "k")), ("200", json!(5)));
    later(&served, 3_600_000);
    assert_eq!(limit(&served, "k"), 90);
}
