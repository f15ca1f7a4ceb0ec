//! Overrides of one key beside the file.

use alloc::string::{String, ToString};
use std::format;
use std::vec::Vec;

use tidegate_gate::{TimedOverride, TimedPolicies, Timestamp};

use super::super::{Change, ChangeTo, Changed, PolicyCall, Revisions};
use super::{NOW, call, file, history, json, put};

fn put_override(revisions: &mut Revisions, key: &str, fields: &str, now: u64) -> Changed {
    let (policy, key, fields) = ("api".into(), key.into(), Some(fields.into()));
    let to = ChangeTo::Override { policy, key, fields };
    let change = Change { to, if_match: None, by: "bob".to_string() };
    revisions.handle(PolicyCall::Change(change), &file(1), Timestamp(now))
}

fn delete_override(revisions: &mut Revisions, key: &str, now: u64) -> Changed {
    let to = ChangeTo::Override { policy: "api".into(), key: key.into(), fields: None };
    let change = Change { to, if_match: None, by: "bob".to_string() };
    revisions.handle(PolicyCall::Change(change), &file(1), Timestamp(now))
}

fn overrides(revisions: &mut Revisions, now: u64) -> Vec<(String, u64)> {
    let listed = revisions.handle(PolicyCall::Overrides, &file(1), Timestamp(now)).response;
    let listed = json(&listed);
    let all = listed["overrides"].as_array().unwrap().iter();
    all.map(|own| (own["key"].as_str().unwrap().into(), own["until_us"].as_u64().unwrap()))
        .collect()
}

/// The capacity for a key by the text in force at a time.
fn capacity(revisions: &Revisions, key: &str, now: u64) -> u64 {
    let text = revisions.file(&Revisions::hash(&file(1))).map_or(file(1), Into::into);
    let timed = TimedPolicies::parse(&text, Timestamp(now)).unwrap();
    let policy = timed.policies.get("api").unwrap();
    policy.limits_of_rule(policy.rule_number(key).unwrap()).unwrap().capacity()
}

#[test]
fn an_override_holds_beside_the_file_until_it_ends_or_is_deleted() {
    let revisions = &mut Revisions::default();
    let put_a = put_override(revisions, "a", r#"{"limit":50,"until_us":100}"#, 7);
    assert_eq!((put_a.response.status, put_a.policies.unwrap().ends), (200, Some(Timestamp(100))));
    assert_eq!(json(&put_a.response)["version"], 2);
    assert_eq!(
        put_override(revisions, "b", r#"{"limit":60,"until_us":200}"#, 8).response.status,
        200
    );
    assert_eq!((capacity(revisions, "a", 99), capacity(revisions, "a", 100)), (50, 1));
    assert_eq!(overrides(revisions, 99), [("a".into(), 100), ("b".into(), 200)]);
    assert_eq!(overrides(revisions, 100), [("b".into(), 200)]);
    // the file and the overrides change apart
    put(revisions, 2);
    assert_eq!((capacity(revisions, "a", 9), capacity(revisions, "c", 9)), (50, 2));
    let shown = revisions.handle(PolicyCall::File(None), &file(1), NOW).response;
    assert_eq!(shown.body, file(2), "without overrides");
    assert_eq!(call(revisions, ChangeTo::Version(None), Some("*")).response.status, 200);
    assert_eq!((capacity(revisions, "b", 9), capacity(revisions, "c", 9)), (60, 1));
    assert_eq!(delete_override(revisions, "b", 9).response.status, 200);
    assert_eq!(
        (capacity(revisions, "b", 9), overrides(revisions, 9)),
        (1, [("a".into(), 100)].into())
    );
    assert_eq!(delete_override(revisions, "b", 9).response.status, 404);
    assert_eq!(delete_override(revisions, "a", 100).response.status, 404, "it has ended");
    // the file before is another file, not the same one with other overrides
    put_override(revisions, "b", r#"{"limit":60,"until_us":200}"#, 9);
    assert_eq!(call(revisions, ChangeTo::Version(None), Some("*")).response.status, 200);
    assert_eq!(capacity(revisions, "c", 9), 2);
    delete_override(revisions, "a", 9);
    delete_override(revisions, "b", 9);
    assert_eq!(call(revisions, ChangeTo::Version(None), Some("*")).response.status, 200);
    assert_eq!(capacity(revisions, "c", 9), 1);
    // an ended override is dropped at the next change
    put_override(revisions, "c", r#"{"limit":3,"until_us":300}"#, 150);
    let text = revisions.file(&Revisions::hash(&file(1))).unwrap();
    assert_eq!(TimedOverride::split(text).1.len(), 1);
    assert_eq!(Revisions::read(&revisions.write()).as_ref(), Ok(&*revisions));
    let again = put_override(revisions, "c", r#"{"limit":3,"until_us":300}"#, 150);
    assert!(again.policies.is_none(), "nothing has changed");
    assert_eq!(history(revisions, &file(1)).first().unwrap().0, json(&again.response)["version"]);
}

#[test]
fn an_edit_of_the_file_keeps_the_overrides_that_hold() {
    let revisions = &mut Revisions::default();
    put_override(revisions, "k", "{\"until_us\":100,\"limit\":50}", 7);
    let _ = revisions.edit(Some(&file(1)), &file(3), NOW);
    let text = revisions.file(&Revisions::hash(&file(3))).unwrap();
    let policies = TimedPolicies::parse(text, NOW).unwrap().policies;
    assert_eq!(policies.get("api").unwrap().overrides().len(), 1);
    assert_eq!(policies.get("api").unwrap().limits().capacity(), 3);
}

#[test]
fn an_override_of_a_policy_that_a_new_file_lacks_is_dropped() {
    let revisions = &mut Revisions::default();
    put_override(revisions, "a", r#"{"limit":50,"until_us":100}"#, 7);
    let other = file(3).replace("policies.api", "policies.other");
    assert_eq!(call(revisions, ChangeTo::File(other), Some("*")).response.status, 200);
    assert_eq!(overrides(revisions, 8), []);
    let revisions = &mut Revisions::default();
    put_override(revisions, "a", r#"{"limit":50,"until_us":100}"#, 7);
    let bucket =
        "[policies.api]\nlimits = [{ algorithm = 'token_bucket', capacity = 5, rate = '1/s' }]\n";
    let refused = call(revisions, ChangeTo::File(bucket.into()), Some("*")).response;
    assert_eq!(refused.status, 400);
    assert!(refused.body.contains("`rate`, `start`; found the field"), "{}", refused.body);
}

#[test]
fn a_wrong_override_changes_nothing() {
    let revisions = &mut Revisions::default();
    for (key, fields, status, expected) in [
        (
            "a",
            r#"{"limit":0,"until_us":100}"#,
            400,
            "the override: policies.api.overrides.a.limit: ",
        ),
        (
            "a",
            r#"{"limit":"x","until_us":100}"#,
            400,
            "the override: policies.api.overrides.a.limit: ",
        ),
        ("a", r#"{"limit":5}"#, 400, "missing field `until_us`"),
        ("a", r#"{"limit":5,"until_us":7}"#, 400, "`until_us`: expected a time after 7, found 7"),
        ("a*", r#"{"limit":5,"until_us":9}"#, 400, "expected one key"),
        ("a", "limit = 5", 400, "expected"),
    ] {
        let refused = put_override(revisions, key, fields, 7).response;
        assert_eq!(refused.status, status, "{fields}");
        assert!(refused.body.contains(expected), "{}", refused.body);
    }
    let to = ChangeTo::Override { policy: "gone".into(), key: "a".into(), fields: None };
    let change = |if_match| Change { to: to.clone(), if_match, by: "bob".to_string() };
    let gone = revisions.handle(PolicyCall::Change(change(None)), &file(1), NOW).response;
    assert!(gone.body.contains("urn:tidegate:unknown-policy"), "{}", gone.body);
    let late = revisions.handle(PolicyCall::Change(change(Some("\"x\"".into()))), &file(1), NOW);
    assert_eq!(late.response.status, 412, "a caller may still name the file");
    assert_eq!(*revisions, Revisions::default());
}

#[test]
fn files_are_kept_longer_than_overrides() {
    let revisions = &mut Revisions::default();
    put(revisions, 2);
    for number in 0..40 {
        let fields = format!("{{\"limit\":{},\"until_us\":90000000000000}}", number + 10);
        put_override(revisions, "a", &fields, 8);
    }
    let kept = history(revisions, &file(1));
    assert_eq!((kept.len(), kept[19].0, kept[18].0, kept[0].0), (20, 1, 2, 42));
    for (limit, now, expected) in [
        (5, 3_600_000_009, &[43, 42, 2, 1][..]), // 42 was replaced now, and a node may still ask by it
        (6, 3_600_000_010, &[44, 43, 42, 2, 1]),
        (7, 7_200_000_009, &[45, 44, 43, 42, 2, 1]), // 42 was replaced an hour ago
        (8, 7_200_000_010, &[46, 45, 44, 43, 2, 1]),
    ] {
        let fields = format!("{{\"limit\":{limit},\"until_us\":90000000000000}}");
        put_override(revisions, "a", &fields, now);
        let kept = history(revisions, &file(1)).into_iter().map(|(version, ..)| version);
        assert_eq!(kept.collect::<Vec<_>>(), expected);
    }
}
