mod overrides;

use alloc::string::{String, ToString};
use std::format;
use std::vec::Vec;

use serde_json::Value;
use tidegate_gate::{Policies, Timestamp};

use super::{Change, ChangeTo, Changed, PolicyCall, RevisionTag, Revisions, Source, show};
use crate::response::Response;

const NOW: Timestamp = Timestamp(7);

fn file(limit: u64) -> String {
    format!(
        "[policies.api]\nlimits = [{{ algorithm = 'fixed_window', limit = {limit}, period = '1s' }}]\n"
    )
}

fn call(revisions: &mut Revisions, to: ChangeTo, if_match: Option<&str>) -> Changed {
    let (if_match, by) = (if_match.map(Into::into), "alice".to_string());
    revisions.handle(PolicyCall::Change(Change { to, if_match, by }), &file(1), NOW)
}

fn put(revisions: &mut Revisions, limit: u64) -> Response {
    call(revisions, ChangeTo::File(file(limit)), Some("*")).response
}

fn json(response: &Response) -> Value {
    serde_json::from_str(&response.body).unwrap()
}

fn history(revisions: &mut Revisions, deployed: &str) -> Vec<(u64, bool, Option<u64>)> {
    let all = json(&revisions.handle(PolicyCall::History, deployed, NOW).response);
    let listed = all["versions"].as_array().unwrap().iter();
    listed
        .map(|one| {
            let in_force = one["in_force"].as_bool().unwrap();
            (one["version"].as_u64().unwrap(), in_force, one["restores"].as_u64())
        })
        .collect()
}

#[test]
fn a_file_is_put_over_the_deployed_one_and_restored() {
    let revisions = &mut Revisions::default();
    let changed = call(revisions, ChangeTo::File(file(2)), Some("*"));
    assert_eq!(changed.policies.unwrap().policies.get("api").unwrap().limits().capacity(), 2);
    let put = json(&changed.response);
    assert_eq!((&put["version"], &put["previous"]), (&2.into(), &1.into()));
    assert_eq!(revisions.file(&Revisions::hash(&file(1))), Some(file(2).as_str()));
    assert_eq!(history(revisions, &file(1)), [(2, true, None), (1, false, None)]);

    assert_eq!(call(revisions, ChangeTo::Version(None), Some("*")).response.status, 200);
    assert_eq!(revisions.file(&Revisions::hash(&file(1))), Some(file(1).as_str()));
    let restored = [(3, true, Some(1)), (2, false, None), (1, false, None)];
    assert_eq!(history(revisions, &file(1)), restored);
    call(revisions, ChangeTo::Version(Some(2)), Some("*"));
    assert_eq!(revisions.file(&Revisions::hash(&file(1))), Some(file(2).as_str()));
}

#[test]
fn a_change_must_name_the_file_that_it_replaces() {
    let revisions = &mut Revisions::default();
    assert_eq!(call(revisions, ChangeTo::File(file(2)), None).response.status, 428);
    let deployed = revisions.tag(&Revisions::hash(&file(1))).hash;
    let tag = format!("\"{deployed}\"");
    assert_eq!(
        call(revisions, ChangeTo::File(file(2)), Some(&format!("\"x\", {tag}"))).response.status,
        200
    );
    let late = call(revisions, ChangeTo::File(file(3)), Some(&tag)).response;
    assert_eq!(late.status, 412);
    let in_force = format!("\"{}\"", revisions.tag(&Revisions::hash(&file(1))).hash);
    assert!(late.headers.contains(&("etag", in_force.into())), "{late:?}");
    assert_eq!(revisions.file(&Revisions::hash(&file(1))), Some(file(2).as_str()));
    // a weak tag never matches
    assert_eq!(
        call(revisions, ChangeTo::File(file(3)), Some(&format!("W/{tag}"))).response.status,
        412
    );
}

#[test]
fn a_wrong_file_changes_nothing_and_the_problem_names_the_place() {
    let revisions = &mut Revisions::default();
    let wrong = file(1).replace("limit = 1", "limit = 0");
    let problem = call(revisions, ChangeTo::File(wrong), Some("*")).response;
    assert_eq!(problem.status, 400);
    let problem = json(&problem);
    assert_eq!(problem["type"], "urn:tidegate:invalid-policies");
    assert_eq!(
        (&problem["line"], &problem["path"]),
        (&2.into(), &"policies.api.limits[0].limit".into())
    );
    assert!(problem["column"].as_u64().unwrap() > 1, "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("expected a whole number"), "{problem}");
    assert_eq!(*revisions, Revisions::default());
}

#[test]
fn the_same_file_again_is_no_new_revision() {
    let revisions = &mut Revisions::default();
    assert_eq!(json(&put(revisions, 1))["version"], 1);
    assert_eq!(*revisions, Revisions::default());
}

#[test]
fn nothing_is_restored_before_something_was_put() {
    let revisions = &mut Revisions::default();
    for to in [ChangeTo::Version(None), ChangeTo::Version(Some(1))] {
        assert_eq!(call(revisions, to, Some("*")).response.status, 404);
    }
    put(revisions, 2);
    assert_eq!(call(revisions, ChangeTo::Version(Some(9)), Some("*")).response.status, 404);
}

#[test]
fn another_deployed_file_is_in_force_until_a_file_is_put_over_it() {
    let revisions = &mut Revisions::default();
    put(revisions, 2);
    assert_eq!(revisions.file(&Revisions::hash(&file(5))), None);
    assert_eq!(revisions.tag(&Revisions::hash(&file(5))).version, 3);
    let (if_match, by) = (Some("*".into()), "bob".into());
    let change = PolicyCall::Change(Change { to: ChangeTo::File(file(6)), if_match, by });
    assert_eq!(json(&revisions.handle(change, &file(5), NOW).response)["version"], 4);
    assert_eq!(revisions.file(&Revisions::hash(&file(5))), Some(file(6).as_str()));
    assert_eq!(
        revisions.file(&Revisions::hash(&file(1))),
        Some(file(2).as_str()),
        "a deployment is rolled back"
    );
}

#[test]
fn an_edit_of_the_file_is_a_revision_and_the_last_change_wins() {
    let revisions = &mut Revisions::default();
    let in_force = |revisions: &Revisions, read: u64| {
        let tag = revisions.tag(&Revisions::hash(&file(read)));
        (tag.version, tag.hash == Revisions::hash(&file(9)), tag.origin.map(|own| own.source))
    };
    assert_eq!(revisions.edit(Some(&file(1)), &file(9), NOW).response.status, 200);
    assert_eq!(in_force(revisions, 9), (2, true, Some(Source::File)));
    let to = ChangeTo::File(file(20));
    let change = Change { to, if_match: Some("*".to_string()), by: "alice".to_string() };
    let put = revisions.handle(PolicyCall::Change(change), &file(9), NOW);
    assert_eq!(put.response.status, 200);
    assert_eq!(in_force(revisions, 9), (3, false, Some(Source::Put)));
    assert!(revisions.are_over(&file(9)) && !revisions.are_over(&file(11)));
    let _ = revisions.edit(Some(&file(9)), &file(11), NOW);
    assert_eq!(in_force(revisions, 11), (4, false, Some(Source::File)));
    let _ = revisions.edit(None, &file(9), NOW); // as at a start, when the earlier file is not known
    assert_eq!(in_force(revisions, 9), (5, true, Some(Source::File)));
    assert_eq!(*revisions, Revisions::read(&revisions.write()).unwrap());
    // a file that is in force already makes no revision, and is the file that was read last
    let again = revisions.edit(Some("unknown"), &file(9), NOW);
    assert!(again.policies.is_none() && revisions.are_over(&file(9)));
    let before = revisions.clone();
    assert_eq!(revisions.edit(Some(&file(9)), "wrong", NOW).response.status, 400);
    assert_eq!(*revisions, before);
}

#[test]
fn files_are_kept_within_bounds() {
    let revisions = &mut Revisions::default();
    for limit in 2..100 {
        put(revisions, limit);
    }
    let kept = history(revisions, &file(1));
    assert_eq!((kept.len(), kept[0].0), (20, 99));
    let large = |limit: u64| format!("{}# {}", file(limit), "x".repeat(250_000));
    for limit in 2..10 {
        call(revisions, ChangeTo::File(large(limit)), Some("*"));
    }
    assert_eq!(history(revisions, &file(1)).len(), 3);
    assert!(revisions.write().len() < 2_000_000);
}

#[test]
fn the_bound_on_all_files_together_is_exact() {
    for (beyond, kept) in [(0, 3), (1, 2)] {
        let revisions = &mut Revisions::default();
        let spare = super::revisions::MOST_BYTES - file(1).len() + beyond;
        for (limit, bytes) in [(2, spare / 2), (3, spare - spare / 2)] {
            let text = file(limit);
            let text = format!("{text}#{}", "x".repeat(bytes - text.len() - 1));
            call(revisions, ChangeTo::File(text), Some("*"));
        }
        assert_eq!(history(revisions, &file(1)).len(), kept, "{beyond} bytes beyond the bound");
    }
    let revisions = &mut Revisions::default();
    let large = format!("{}#{}", file(2), "x".repeat(super::revisions::MOST_BYTES));
    call(revisions, ChangeTo::File(large), Some("*"));
    assert_eq!(history(revisions, &file(1)).len(), 2, "the one before can be restored");
}

#[test]
fn a_file_is_shown_as_it_was_written() {
    let revisions = &mut Revisions::default();
    let deployed = revisions.handle(PolicyCall::File(Some(1)), &file(1), NOW).response;
    assert_eq!((deployed.status, deployed.body), (200, file(1)), "it is in force, though not kept");
    put(revisions, 2);
    for (version, limit) in [(None, 2), (Some(1), 1), (Some(2), 2)] {
        let shown = revisions.handle(PolicyCall::File(version), &file(1), NOW).response;
        assert_eq!((shown.status, shown.body), (200, file(limit)));
    }
    let missing = revisions.handle(PolicyCall::File(Some(3)), &file(1), NOW).response;
    assert_eq!(missing.status, 404);
}

#[test]
fn stored_revisions_are_read_or_refused() {
    let revisions = &mut Revisions::default();
    put(revisions, 2);
    assert_eq!(Revisions::read(&revisions.write()).as_ref(), Ok(&*revisions));
    for wrong in
        ["", "{}", "[]", r#"{"format":2,"revisions":[]}"#, r#"{"format":1,"revisions":[1]}"#]
    {
        let error = Revisions::read(wrong).unwrap_err().to_string();
        assert!(error.starts_with("expected the revisions of a policy file, found \""), "{error}");
    }
}

#[test]
fn a_revision_says_how_it_came_into_force() {
    let revisions = &mut Revisions::default();
    let in_force =
        |revisions: &Revisions, read: &str| revisions.tag(&Revisions::hash(read)).to_string();
    assert_eq!(in_force(revisions, &file(1)), "revision 1");
    put(revisions, 2);
    assert_eq!(in_force(revisions, &file(1)), "revision 2 (put by \"alice\")");
    call(revisions, ChangeTo::Version(None), Some("*"));
    assert_eq!(in_force(revisions, &file(1)), "revision 3 (restored by \"alice\")");
    let _ = revisions.edit(Some(&file(1)), &file(4), NOW);
    assert_eq!(in_force(revisions, &file(4)), "revision 4 (file)");
    for limit in [1, 2, 4] {
        let kept = revisions.file_of(&Revisions::hash(&file(limit)));
        assert_eq!(kept, Some(file(limit).as_str()));
    }
    assert_eq!(revisions.file_of(&Revisions::hash(&file(3))), None);
}

#[test]
fn each_limit_is_shown_by_the_number_that_its_answers_have() {
    let policies = Policies::parse(
        "[policies.jobs]
        limits = [{ algorithm = 'concurrency', capacity = 2, time_to_live = '1s' }]
        [policies.lent]
        local = { most = 5, time = '1s' }
        limits = [{ algorithm = 'token_bucket', capacity = 9, rate = '1/s' }]",
    );
    let shown = json(&show(&policies.unwrap(), &RevisionTag::default()));
    let limits = |policy: usize| {
        let limits = shown["policies"][policy]["limits"].as_array().unwrap();
        limits.iter().map(|limit| limit["limit"].as_u64()).collect::<Vec<_>>()
    };
    assert_eq!(limits(0), [Some(2)]);
    assert_eq!(limits(1), [Some(9), Some(5)], "`local` adds its budget");
}

#[test]
fn a_call_is_written_and_read() {
    for (key, fields) in [("a\nb\n3\n", Some("{\"until_us\":5}")), ("ü", None), ("x", Some(""))] {
        let (key, fields) = (key.to_string(), fields.map(ToString::to_string));
        let to = ChangeTo::Override { policy: "api".into(), key, fields };
        let change = Change { to, if_match: None, by: "bob".to_string() };
        let call = PolicyCall::Change(change);
        assert_eq!(PolicyCall::read(&call.write()), Some(call));
    }
    let change = |to, if_match: Option<&str>| {
        let if_match = if_match.map(ToString::to_string);
        PolicyCall::Change(Change { to, if_match, by: "bob".to_string() })
    };
    for call in [
        PolicyCall::Overrides,
        PolicyCall::History,
        PolicyCall::File(None),
        PolicyCall::File(Some(3)),
        change(ChangeTo::Version(None), Some("*")),
        change(ChangeTo::Version(Some(2)), None),
        change(ChangeTo::File("a\n\nb\n".to_string()), Some("\"x\"")),
    ] {
        assert_eq!(PolicyCall::read(&call.write()), Some(call));
    }
    assert_eq!(PolicyCall::read("override\n\nbob\n\napi\n9\na"), None);
}

#[test]
fn a_log_says_who_changed_what_and_names_no_key() {
    let secret = crate::LogSecret::new(b"secret");
    let said = |to| {
        let change = Change { to, if_match: None, by: "bob \"x\"".to_string() };
        PolicyCall::Change(change).audited(&secret).unwrap().to_string()
    };
    let own = |fields: Option<&str>| ChangeTo::Override {
        policy: "api".into(),
        key: "user:42".into(),
        fields: fields.map(Into::into),
    };
    let put = said(own(Some("{\"limit\":1,\"until_us\":5}")));
    assert!(
        put.starts_with("policies: the override of a key was put, policy \"api\", key "),
        "{put}"
    );
    assert!(put.ends_with(", until 5 µs, by \"bob \\\"x\\\"\""), "{put}");
    let deleted = said(own(None));
    assert!(
        deleted.contains(" was deleted, policy \"api\", key ") && !deleted.contains("user"),
        "{deleted}"
    );
    assert_eq!(
        said(ChangeTo::File(file(1))),
        "policies: another file was put in force, by \"bob \\\"x\\\"\""
    );
    assert_eq!(PolicyCall::Overrides.audited(&secret), None);
}
