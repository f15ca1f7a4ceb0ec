//! Reservations: the calls, their answers, and bad input.

use alloc::sync::Arc;

use serde_json::{Value, json};

use super::{SECOND, START, Server, about, header, planned, sent};
use crate::{Access, AnswerEnd, Outcome, Reservation};

const TOKENS: &str = "
[policies.p]
limits = [{ algorithm = 'token_bucket', capacity = 60_000, rate = '60000/m' }]
reservations = { most = 3, largest_share = '50%' }
allow = ['free']
deny = ['bad']
[policies.plain]
limits = [{ algorithm = 'fixed_window', limit = 5, period = '1m' }]";

fn reserve(server: &mut Server, rest: &str) -> Value {
    server.post("/v1/reservations", &about(rest))
}

fn end(server: &mut Server, id: &str, end: &str, rest: &str) -> Value {
    server.post(&std::format!("/v1/reservations/{id}/{end}"), &about(rest))
}

#[test]
fn a_reservation_is_answered_as_a_check_is_with_its_id_and_its_end() {
    let mut server = Server::new(TOKENS);
    let response =
        server.call("POST", "/v1/reservations", &about(",\"cost\":20000,\"id\":\"a b\""));
    assert_eq!(header(&response, "ratelimit"), Some("\"p\";r=40000;t=20"));
    let first = super::json(&response);
    assert_eq!(
        (&first["allowed"], &first["remaining"], &first["id"], &first["reserved"]),
        (&json!(true), &json!(40_000), &json!("a b"), &json!(20_000))
    );
    assert_eq!(first["expires_at_us"], START + 300 * SECOND);
    assert_eq!((first.get("lease"), first.get("charged")), (None, None));
    assert_eq!(reserve(&mut server, ",\"cost\":20000,\"id\":\"a b\""), first, "repeated");

    let committed = end(&mut server, "a%20b", "commit", ",\"actual\":500");
    assert_eq!(
        (&committed["charged"], &committed["late"], &committed["remaining"], &committed["id"]),
        (&json!(500), &json!(false), &json!(59_500), &json!("a b"))
    );
    assert_eq!(end(&mut server, "a%20b", "commit", ",\"actual\":9"), committed, "taken once");
    assert_eq!(end(&mut server, "a%20b", "release", "")["charged"], 500);
}

#[test]
fn an_id_is_drawn_an_estimate_is_cut_and_a_release_gives_all_back() {
    let mut server = Server::new(TOKENS);
    let first = reserve(&mut server, ",\"cost\":64000,\"time_to_live\":\"7us\"");
    assert_eq!((&first["reserved"], &first["remaining"]), (&json!(30_000), &json!(30_000)));
    assert_eq!(first["expires_at_us"], START + 7);
    let id = first["id"].as_str().unwrap();
    assert_eq!(id.len(), 32);
    let released = end(&mut server, id, "release", "");
    assert_eq!((&released["charged"], &released["remaining"]), (&json!(0), &json!(60_000)));
    let late = end(&mut server, "unknown", "commit", ",\"actual\":10");
    assert_eq!((&late["charged"], &late["late"]), (&json!(10), &json!(true)));
    let listed = server.post("/v1/reservations", "{\"policy\":\"p\",\"key\":\"free\",\"cost\":9}");
    assert_eq!((&listed["allowed"], listed.get("reserved")), (&json!(true), Some(&json!(0))));
    assert_eq!(listed.get("expires_at_us"), None);
    for (key, allowed) in [("free", true), ("bad", false)] {
        let end = std::format!("{{\"policy\":\"p\",\"key\":\"{key}\",\"actual\":9}}");
        let listed = server.post("/v1/reservations/one/commit", &end);
        let said = ["allowed", "charged", "late", "id"].map(|field| &listed[field]);
        assert_eq!(said, [&json!(allowed), &json!(0), &json!(false), &json!("one")]);
    }
}

#[test]
fn a_refused_reservation_holds_nothing_and_says_when_it_passes() {
    let mut server = Server::new(TOKENS);
    for id in ["a", "b"] {
        reserve(&mut server, &std::format!(",\"cost\":30000,\"id\":\"{id}\""));
    }
    let refused = reserve(&mut server, ",\"cost\":1000,\"id\":\"c\"");
    assert_eq!(
        (&refused["allowed"], &refused["retry_after_us"], refused.get("reserved")),
        (&json!(false), &json!(SECOND), None)
    );
    end(&mut server, "a", "commit", ",\"actual\":29000");
    assert_eq!(reserve(&mut server, ",\"cost\":1000,\"id\":\"c\"")["allowed"], true);
}

#[test]
fn a_reservation_that_only_the_shadow_lets_pass_has_its_id() {
    let mut server = Server::new(
        "
[policies.p]
shadow = true
limits = [{ algorithm = 'token_bucket', capacity = 100, rate = '1/h' }]
reservations = { most = 3 }",
    );
    for cost in [100, 100, 500] {
        let answer = reserve(&mut server, &std::format!(",\"cost\":{cost},\"id\":\"r{cost}\""));
        let id = json!(std::format!("r{cost}"));
        assert_eq!((&answer["allowed"], &answer["id"]), (&json!(true), &id), "{answer}");
        assert_eq!(answer.get("lease"), None);
    }
}

#[test]
fn a_refund_returns_nothing_that_is_held_and_nothing_of_a_grant_in_the_future() {
    let mut server = Server::new(TOKENS);
    for id in ["a", "b"] {
        reserve(&mut server, &std::format!(",\"cost\":20000,\"id\":\"{id}\""));
    }
    let mut refund = |rest: &str| {
        let refunded = server.post("/v1/refund", &about(rest));
        (refunded["allowed"].clone(), refunded["remaining"].clone())
    };
    let all_held = (json!(true), json!(20_000));
    assert_eq!(refund(",\"units\":60000"), all_held, "all units that are taken are held");
    let of = |at: u64| std::format!(",\"units\":40000,\"granted\":40000,\"granted_at_us\":{at}");
    assert_eq!(refund(&of(START)), all_held, "also of a grant that is named");

    server.post("/v1/check", &about(",\"cost\":5000"));
    let mut refund = |rest: &str| server.post("/v1/refund", &about(rest))["remaining"].clone();
    let of = |at: u64| std::format!(",\"units\":3000,\"granted\":5000,\"granted_at_us\":{at}");
    assert_eq!(refund(&of(START + 1)), 15_000, "this grant lies in the future");
    assert_eq!(refund(&of(START)), 18_000);
    assert_eq!(refund(&of(START)), 20_000, "2,000 units are taken and not held");
    for id in ["a", "b"] {
        let committed = end(&mut server, id, "commit", ",\"actual\":20000");
        assert_eq!(
            (&committed["charged"], &committed["remaining"]),
            (&json!(20_000), &json!(20_000))
        );
    }
}

#[test]
fn bad_reservations_are_refused() {
    let mut server = Server::new(TOKENS);
    let plain = |rest: &str| about(rest).replace("\"p\"", "\"plain\"");
    for (call, body, detail) in [
        (
            "",
            about(",\"cost\":0"),
            "`cost`: expected a whole number from 1 to 9007199254740991, found",
        ),
        (
            "",
            about(",\"cost\":-1"),
            "`cost`: expected a whole number from 1 to 9007199254740991, found",
        ),
        ("", about(",\"cost\":1,\"id\":\"\""), "`id`: expected 1 to"),
        ("", about(",\"cost\":1,\"lease\":\"x\""), "found the field \"lease\""),
        ("", about(",\"cost\":1,\"time_to_live\":0"), "`time_to_live`: expected"),
        ("", plain(""), "`policy`: expected a policy with `reservations`, found \"plain\""),
        ("/x/commit", about(""), "missing field `actual`"),
        ("/x/commit", about(",\"actual\":-1"), "`actual`: expected a whole number"),
        ("/x/commit", plain(",\"actual\":1"), "expected a policy with `reservations`"),
        ("/x/release", about(",\"actual\":1"), "found the field \"actual\""),
    ] {
        server.refuses(("POST", &std::format!("/v1/reservations{call}")), &body, detail);
    }
    for path in [
        "/v1/reservations/x",
        "/v1/reservations/x/",
        "/v1/reservations//commit",
        "/v1/reservations/x/keep",
    ] {
        assert_eq!(server.call("POST", path, "{}").status, 404, "{path}");
    }
    let get = server.call("GET", "/v1/reservations/x/commit", "");
    assert_eq!((get.status, header(&get, "allow")), (405, Some("POST")));
}

#[test]
fn the_policies_in_force_say_what_a_key_may_reserve_and_how_far_a_calendar_reaches() {
    let calendar = "
[policies.day]
limits = [{ algorithm = 'calendar', limit = 5, period = 'day', timezone = 'Asia/Tokyo', zone_data = '2026a 0+32400 4102444800' }]";
    let mut server = Server::new(&std::format!("{TOKENS}{calendar}"));
    let shown = super::json(&server.call("GET", "/v1/policies", ""));
    let policy = |name: &str| {
        let all = shown["policies"].as_array().unwrap();
        all.iter().find(|policy| policy["name"] == name).unwrap().clone()
    };
    assert_eq!(policy("p")["reservations_most"], 3);
    assert_eq!(policy("plain")["reservations_most"], Value::Null);
    let limit = &policy("day")["limits"][0];
    assert_eq!((&limit["timezone"], &limit["zone_data"]), (&json!("Asia/Tokyo"), &json!("2026a")));
    // the last midnight of Tokyo before the data end
    assert_eq!(limit["last_boundary_us"], 4_102_412_400_000_000_u64);
}

#[test]
fn only_a_request_that_reserves_may_have_a_reservation_if_its_outcome_is_unknown() {
    let leases = "[policies.jobs]
limits = [{ algorithm = 'concurrency', capacity = 2, time_to_live = '30s' }]";
    let server = Server::new(&std::format!("{TOKENS}\n{leases}"));
    let units = |line, body: &str| {
        let mut exchange = sent(&server.policies, &Access::OPEN, ("POST", line), &[]);
        exchange.body(Ok(body.into()), &mut || Some(7));
        let (_, checks) = planned(exchange).unwrap();
        let unknown = Outcome::Unavailable("away".into());
        let held = Reservation::of(&Arc::default(), &checks[0].asked, &unknown);
        held.map(|held| held.meter.finish(AnswerEnd::CutOff))
    };
    assert_eq!(units("/v1/reservations", &about(",\"cost\":30")), Some(30));
    assert_eq!(units("/v1/check", r#"{"policy":"jobs","key":"k"}"#), None, "it has a lease");
}
