//! The calls about the policies in force, up to the step in which the caller changes them.

use std::string::ToString;
use std::vec::Vec;

use super::{POLICIES, answer, json, send};
use crate::{Exchange, Response, Served, Step};

const ADMIN: (&str, &str) = ("authorization", "Bearer admin");

fn wanted(exchange: &mut Exchange) -> std::string::String {
    let Step::Change(call) = exchange.step() else { panic!("a change") };
    call.write()
}

fn body(exchange: &mut Exchange, text: &str) {
    assert!(matches!(exchange.step(), Step::Body));
    exchange.body(Ok(text.as_bytes().to_vec()), &mut || None);
}

#[test]
fn the_policies_in_force_are_shown_and_put_under_one_path() {
    let shown = answer(send("GET", "/v1/policies", &[ADMIN]));
    assert_eq!(shown.status, 200);
    assert_eq!(json(&shown)["policies"].as_array().unwrap().len(), 2);

    let mut put =
        send("PUT", "/v1/policies", &[ADMIN, ("if-match", "*"), ("x-tidegate-actor", "al")]);
    body(&mut put, POLICIES);
    assert_eq!(wanted(&mut put), std::format!("put\n\nal\n*\n{POLICIES}"));
    let coded = send("PUT", "/v1/policies", &[ADMIN, ("content-encoding", "gzip")]);
    assert_eq!(answer(coded).status, 415);
}

#[test]
fn who_changes_the_policies_gets_the_answer_of_the_place_that_keeps_them() {
    let said = || {
        let headers = Vec::from([("etag", "\"2-x\"".into())]);
        Response { status: 200, headers, body: "changed".to_string() }
    };
    for (method, target, is_sent, expected) in [
        ("PUT", "/v1/policies", true, "put\n\nadministration\n\ntext"),
        ("POST", "/v1/policies/restore?version=3", false, "restore\n3\nadministration\n\n"),
        ("GET", "/v1/policies/history", false, "history\n\n\n\n"),
        ("GET", "/v1/policies/file?version=2", false, "file\n2\n\n\n"),
        ("GET", "/v1/overrides", false, "overrides\n\n\n\n"),
        ("PUT", "/v1/overrides/api/a%2Fb", true, "override\n\nadministration\n\napi\n3\na/btext"),
        ("DELETE", "/v1/overrides/api/a/b", false, "no-override\n\nadministration\n\napi\n3\na/b"),
    ] {
        let mut exchange = send(method, target, &[ADMIN]);
        if method != "GET" {
            body(&mut exchange, if is_sent { "text" } else { "" });
        }
        assert_eq!(wanted(&mut exchange), expected, "{target}");
        exchange.changed(said());
        let Step::Done(Served::Response(response)) = exchange.step() else { panic!("{target}") };
        assert_eq!((response.status, response.body.as_str()), (200, "changed"), "{target}");
    }
}

#[test]
fn a_change_without_a_body_refuses_one_and_an_actor_can_stand_in_a_log() {
    let mut restore = send("POST", "/v1/policies/restore", &[ADMIN]);
    body(&mut restore, "text");
    let refused = answer(restore);
    assert_eq!(refused.status, 400);
    assert!(refused.body.contains("the body: expected none, found one"), "{}", refused.body);

    let longest = "a".repeat(crate::api::policies::MAX_ACTOR_BYTES);
    let actor =
        |actor: &str| crate::actor(&|name| (name == "x-tidegate-actor").then(|| actor.to_string()));
    assert_eq!(actor(&longest), Ok(longest.clone()));
    assert_eq!(crate::actor(&|_| None).as_deref(), Ok("administration"));
    for wrong in ["", "a\nb", "Zo\u{eb}", &(longest + "a")] {
        let refused = actor(wrong).unwrap_err();
        assert_eq!(refused.status, 400);
        assert!(refused.body.contains("the header `x-tidegate-actor`: expected"), "{refused:?}");
    }
}

#[test]
fn only_the_token_for_administration_changes_overrides() {
    let own = ("authorization", "Bearer secret");
    for (method, target) in [
        ("GET", "/v1/overrides"),
        ("PUT", "/v1/overrides/api/a"),
        ("DELETE", "/v1/overrides/api/a"),
    ] {
        let status = answer(send(method, target, &[own])).status;
        assert!(status == 401 || status == 403, "{method}: {status}");
    }
    for (method, target, status) in [
        ("POST", "/v1/overrides/api/a", 405),
        ("GET", "/v1/overrides/api/a", 405),
        ("PUT", "/v1/overrides", 405),
        ("PUT", "/v1/overrides/api", 404),
        ("PUT", "/v1/overrides/api/a/../b", 400),
    ] {
        assert_eq!(answer(send(method, target, &[ADMIN])).status, status, "{method} {target}");
    }
}
