//! Refunds, budgets and reports: calls that tell what became of units.

use serde_json::{Value, json};
use tidegate_gate::MAX_QUANTITY;

use super::{SECOND, START, Server, about, answer, header, send};

const UNITS: &str = "
[policies.p]
limits = [{ algorithm = 'token_bucket', capacity = 100, rate = '10/s' }]
[policies.log]
limits = [{ algorithm = 'sliding_log', rates = ['5/h'] }]
[policies.spread]
limits = [
  { algorithm = 'fixed_window', name = 'hour', limit = 100, period = '1h' },
  { algorithm = 'budget', name = 'budget', most = 40, time = '10s' },
]
[policies.account]
limits = [{ algorithm = 'suppression', rate = '100/s' }]";

fn on(policy: &str, rest: &str) -> std::string::String {
    std::format!("{{\"policy\":\"{policy}\",\"key\":\"k\"{rest}}}")
}

#[test]
fn a_refund_returns_units_and_no_more_than_the_limits_count() {
    let mut server = Server::new(UNITS);
    server.post("/v1/check", &about(",\"cost\":50"));
    let some = server.call("POST", "/v1/refund", &about(",\"units\":30"));
    assert_eq!(super::json(&some)["remaining"], 80);
    assert_eq!(
        (&super::json(&some)["allowed"], super::json(&some).get("live")),
        (&json!(true), None)
    );
    assert_eq!(header(&some, "ratelimit"), Some("\"p\";r=80;t=2"));
    let most = std::format!(",\"units\":{MAX_QUANTITY}");
    assert_eq!(server.post("/v1/refund", &about(&most))["remaining"], 100);
}

#[test]
fn a_refund_that_names_its_grant_returns_what_still_counts_for_it() {
    let mut server = Server::new(UNITS);
    let granted = server.post("/v1/check", &about(",\"cost\":50"));
    let of = std::format!(",\"granted_at_us\":{},\"granted\":50", granted["at_us"]);
    server.wait(3); // 30 of the 50 have flowed in again
    let some = server.post("/v1/refund", &about(&std::format!(",\"units\":40{of}")));
    assert_eq!(some["remaining"], 100, "20 of the 40 come back");
    let at_once = server.post("/v1/check", &about(",\"cost\":100"));
    server.wait(4);
    let of = std::format!(",\"granted_at_us\":{},\"granted\":100", at_once["at_us"]);
    let rest = server.post("/v1/refund", &about(&std::format!(",\"units\":70{of}")));
    assert_eq!(rest["remaining"], 100, "60 come back: 40 have flowed in");

    let logged = server.post("/v1/check", &on("log", ",\"cost\":4"));
    server.wait(1);
    let unnamed = server.post("/v1/refund", &on("log", ",\"units\":3"));
    assert_eq!(unnamed["remaining"], 1, "an entry of another time is not found");
    let of = std::format!(",\"granted_at_us\":{},\"granted\":4", logged["at_us"]);
    let named = server.post("/v1/refund", &on("log", &std::format!(",\"units\":3{of}")));
    assert_eq!(named["remaining"], 4);
}

#[test]
fn bad_refunds_are_refused_and_nothing_comes_back() {
    let mut server = Server::new(UNITS);
    server.post("/v1/check", &about(",\"cost\":50"));
    let together = "`granted_at_us`, `granted`: expected both or neither, found one of them";
    for (rest, detail) in [
        ("", "missing field `units`"),
        (",\"units\":0", "`units`: expected a whole number from 1"),
        (",\"units\":1,\"granted_at_us\":1", together),
        (",\"units\":1,\"granted\":1", together),
        (
            ",\"units\":1,\"granted_at_us\":1,\"granted\":0",
            "`granted`: expected a whole number from 1",
        ),
        (
            ",\"units\":4,\"granted_at_us\":1,\"granted\":3",
            "`units`: expected at most 3, which the grant has not returned; found 4",
        ),
    ] {
        server.refuses(("POST", "/v1/refund"), &about(rest), detail);
    }
    assert_eq!(server.post("/v1/check", &about(",\"cost\":0"))["remaining"], 50);
}

#[test]
fn a_holder_takes_units_and_gives_back_what_is_left() {
    let mut server = Server::new(UNITS);
    let mut budget = |rest: &str| server.post("/v1/budget", &on("spread", rest));
    let first = budget(",\"lease\":\"node-1\",\"wants\":60");
    let granted = |answer: &Value| answer["budget"]["granted"].clone();
    assert_eq!(
        first["budget"],
        json!({ "granted": 40, "granted_at_us": START, "expires_at_us": START + 10 * SECOND }),
        "the most that a budget may hold"
    );
    assert_eq!((&first["lease"], first.get("live")), (&json!("node-1"), None));
    assert_eq!(first["limits"][0]["remaining"], 60, "taken out of the rate");
    let second = budget(",\"lease\":\"node-2\",\"wants\":30");
    assert_eq!((granted(&second), &second["limits"][0]["remaining"]), (json!(30), &json!(30)));

    let back = std::format!(",\"granted_at_us\":{START},\"left\":15");
    let returned = budget(&std::format!(",\"lease\":\"node-1\",\"wants\":0{back}"));
    assert_eq!((&returned["live"], granted(&returned)), (&json!(true), json!(0)));
    assert_eq!(returned["limits"][0]["remaining"], 45);
    let twice = budget(&std::format!(",\"lease\":\"node-1\",\"wants\":0{back}"));
    assert_eq!((&twice["live"], &twice["limits"][0]["remaining"]), (&json!(false), &json!(45)));
    let foreign = budget(&std::format!(",\"lease\":\"node-3\",\"wants\":0{back}"));
    assert_eq!((&foreign["live"], &foreign["limits"][0]["remaining"]), (&json!(false), &json!(45)));
}

#[test]
fn bad_budgets_are_refused_and_nothing_is_consumed() {
    let mut server = Server::new(UNITS);
    let holder = ",\"lease\":\"n\",\"wants\":1";
    let together = "`left`: expected both it and the time at which its budget was granted, or neither; found one of them";
    for (body, detail) in [
        (on("spread", ",\"lease\":\"n\""), "missing field `wants`"),
        (on("spread", ",\"wants\":1"), "missing field `lease`"),
        (on("spread", ",\"lease\":\"\",\"wants\":1"), "`lease`: expected 1 to 128 bytes, found 0"),
        (on("spread", ",\"lease\":\"n\",\"wants\":-1"), "`wants`: expected a whole number"),
        (on("spread", &std::format!("{holder},\"granted_at_us\":1")), together),
        (on("spread", &std::format!("{holder},\"left\":1")), together),
        (on("spread", &std::format!("{holder},\"cost\":1")), "found the field \"cost\""),
        (
            on("p", holder),
            "`policy`: expected a policy with a limit `budget`, found \"p\", which has none",
        ),
    ] {
        server.refuses(("POST", "/v1/budget"), &body, detail);
    }
    assert_eq!(server.post("/v1/check", &on("spread", ",\"cost\":0"))["remaining"], 100);
}

#[test]
fn a_report_is_answered_with_the_factor_that_now_holds() {
    let mut server = Server::new(UNITS);
    server.wait(2);
    let mut report = |rest: &str| server.call("POST", "/v1/report", &on("account", rest));
    let within = super::json(&report(",\"admitted\":600,\"suppressed\":0"));
    assert_eq!((&within["factor"], &within["allowed"]), (&json!(0), &json!(true)));
    // the 600 of the part, and 200 more in 2 s: 400 a second, three quarters too many
    let response = report(",\"admitted\":150,\"suppressed\":50");
    assert_eq!(super::json(&response)["factor"], 3_u64 << 30);
    assert_eq!(header(&response, "ratelimit"), None);
    let earlier =
        std::format!(",\"offered_at_us\":{},\"admitted\":600,\"suppressed\":0", START - 1);
    assert_eq!(super::json(&report(&earlier))["factor"], 3_u64 << 30, "within, in its own part");
    let longer_ago = std::format!(
        ",\"offered_at_us\":{},\"admitted\":9000000,\"suppressed\":0",
        START - 20 * SECOND
    );
    assert_eq!(super::json(&report(&longer_ago))["factor"], 3_u64 << 30, "of 24 s and more ago");
    server.wait(4);
    let looked = server.post("/v1/check", &on("account", ",\"cost\":0"));
    // 800 in 6 s: a quarter too many
    assert_eq!((&looked["factor"], &looked["allowed"]), (&json!(1_u64 << 30), &json!(true)));
    let shed = server.post("/v1/check", &on("account", ""));
    assert_eq!((&shed["allowed"], &shed["retry_after_us"]), (&json!(false), &json!(6 * SECOND)));
}

#[test]
fn in_shadow_reporters_are_told_to_refuse_nothing() {
    let mut server = Server::new(
        "[policies.account]
shadow = true
limits = [{ algorithm = 'suppression', rate = '100/s' }]",
    );
    server.wait(2);
    let report = on("account", ",\"admitted\":800,\"suppressed\":0");
    for answer in [
        server.post("/v1/report", &report),
        server.post("/v1/check", &on("account", ",\"cost\":0")),
    ] {
        assert_eq!((&answer["factor"], &answer["would_factor"]), (&json!(0), &json!(3_u64 << 30)));
    }
    let mut refusing = Server::new(UNITS);
    let answer = refusing.post("/v1/check", &on("account", ",\"cost\":0"));
    assert_eq!(answer.get("would_factor"), None);
}

#[test]
fn bad_reports_are_refused() {
    let mut server = Server::new(UNITS);
    for (body, detail) in [
        (on("account", ""), "missing field `admitted`"),
        (on("account", ",\"admitted\":1"), "missing field `suppressed`"),
        (
            on("account", ",\"admitted\":1.5,\"suppressed\":0"),
            "`admitted`: expected a whole number",
        ),
        (
            on("account", ",\"admitted\":1,\"suppressed\":-1"),
            "`suppressed`: expected a whole number",
        ),
        (
            on("account", ",\"admitted\":1,\"suppressed\":0,\"reporter\":1"),
            "found the field \"reporter\"",
        ),
        (
            on("p", ",\"admitted\":1,\"suppressed\":0"),
            "`policy`: expected a policy with a limit `suppression`, found \"p\", which has none",
        ),
    ] {
        server.refuses(("POST", "/v1/report"), &body, detail);
    }
}

#[test]
fn they_are_posted_with_the_token() {
    for path in ["/v1/refund", "/v1/budget", "/v1/report"] {
        let response = answer(send("GET", path, &[]));
        assert_eq!((response.status, header(&response, "allow")), (405, Some("POST")), "{path}");
        assert_eq!(answer(send("POST", path, &[])).status, 401, "{path}");
    }
}
