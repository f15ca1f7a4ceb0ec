//! Settling, budgets and reports: calls that tell what became of units.

use serde_json::{Value, json};
use tidegate_gate::MAX_QUANTITY;

use super::{SECOND, START, Server, about, answer, header, send};

const UNITS: &str = "
[policies.p]
limits = [{ algorithm = 'token_bucket', capacity = 100, rate = '10/s' }]
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
fn what_was_reserved_is_settled() {
    let mut server = Server::new(UNITS);
    let reserved = server.post("/v1/check", &about(",\"cost\":50"));
    assert_eq!((&reserved["remaining"], &reserved["at_us"]), (&json!(50), &json!(START)));
    let mut settle = |reserved: u64, actual: u64| {
        let rest =
            std::format!(",\"granted_at_us\":{START},\"reserved\":{reserved},\"actual\":{actual}");
        server.call("POST", "/v1/settle", &about(&rest))
    };
    let less = settle(50, 20);
    assert_eq!(super::json(&less)["remaining"], 80, "what was not needed comes back");
    assert_eq!(super::json(&less)["allowed"], true);
    assert_eq!(super::json(&less).get("live"), None);
    assert_eq!(header(&less, "ratelimit"), Some("\"p\";r=80;t=2"));
    assert_eq!(super::json(&settle(20, 20))["remaining"], 80);
    assert_eq!(super::json(&settle(20, 50))["remaining"], 50, "more is taken now");
    assert_eq!(super::json(&settle(0, 70))["remaining"], 0, "also what is not there");
    assert_eq!(server.post("/v1/check", &about(""))["allowed"], false);
}

#[test]
fn what_was_settled_above_the_capacity_is_settled_again() {
    for limit in [
        "{ algorithm = 'token_bucket', capacity = 5, rate = '1/h' }",
        "{ algorithm = 'fixed_window', limit = 5, period = '1h' }",
        "{ algorithm = 'sliding_window', limit = 5, period = '1h' }",
        "{ algorithm = 'sliding_log', rates = ['5/h'] }",
    ] {
        for actual in [0, 2, 5] {
            let policy = std::format!("[policies.p]\nlimits = [{limit}]");
            let mut server = Server::new(&policy);
            server.post("/v1/check", &about(",\"cost\":3"));
            let mut settle = |reserved: u64, actual: u64| {
                let rest = std::format!(
                    ",\"granted_at_us\":{START},\"reserved\":{reserved},\"actual\":{actual}"
                );
                server.post("/v1/settle", &about(&rest))["remaining"].as_u64().unwrap()
            };
            assert_eq!(settle(3, 8), 0);
            assert_eq!(settle(8, actual), 5 - actual, "{policy}");
        }
    }
}

#[test]
fn a_settlement_may_concern_more_than_the_limits_grant_since_an_edit() {
    let limits = [
        "{ algorithm = 'token_bucket', capacity = 40, rate = '10/s' }",
        "{ algorithm = 'fixed_window', limit = 40, period = '1h' }",
    ];
    for (limit, keeps) in limits.into_iter().flat_map(|limit| [(limit, true), (limit, false)]) {
        let rule = if keeps { "keep" } else { "reset" };
        let policy = std::format!("[policies.p]\non_change = '{rule}'\nlimits = [{limit}]");
        let mut server = Server::new(&policy);
        let mut settle = |reserved: u64, actual: u64| {
            let rest = std::format!(
                ",\"granted_at_us\":{START},\"reserved\":{reserved},\"actual\":{actual}"
            );
            server.post("/v1/settle", &about(&rest))["remaining"].as_u64().unwrap()
        };
        assert_eq!(settle(100, 20), 40, "nothing is counted, so nothing comes back");
        assert_eq!(settle(100, 130), 10, "what is beyond the estimate is taken");
        assert_eq!(settle(100, 90), 10, "20 of the 100 were forgotten: 80 is all that counts");
        assert_eq!(settle(100, 70), if keeps { 20 } else { 10 }, "the rest comes back");
        assert_eq!(settle(MAX_QUANTITY, 0), if keeps { 40 } else { 10 });
        assert_eq!(settle(0, 40), 0);
        assert_eq!(server.post("/v1/check", &about(""))["allowed"], false, "{policy}");
    }
}

#[test]
fn bad_settlements_are_refused() {
    let mut server = Server::new(UNITS);
    let good = ",\"granted_at_us\":1,\"reserved\":2,\"actual\":1";
    for (body, detail) in [
        (on("p", ""), "missing field `granted_at_us`"),
        (on("p", ",\"granted_at_us\":1"), "missing field `reserved`"),
        (on("p", ",\"granted_at_us\":1,\"reserved\":2"), "missing field `actual`"),
        (
            on("p", &good.replace('1', "-1")),
            "`granted_at_us`: expected a whole number from 0 to 9007199254740991, found the integer `-1`",
        ),
        (
            on("p", &good.replace("\":2", "\":9007199254740992")),
            "`reserved`: expected a whole number",
        ),
        (on("p", &good.replace("\":2", "\":\"2\"")), "`reserved`: expected a whole number"),
        (on("p", &good.replace("\":2", "\":2.5")), "`reserved`: expected a whole number"),
        (on("p", &std::format!("{good},\"cost\":1")), "found the field \"cost\""),
        ("[]".into(), "expected an object, found an array"),
    ] {
        server.refuses(("POST", "/v1/settle"), &body, detail);
    }
    assert_eq!(server.call("POST", "/v1/settle", &on("none", good)).status, 404);
    let nobody = on("p", good).replace("\"k\"", "\"\"");
    assert_eq!(server.call("POST", "/v1/settle", &nobody).status, 400);
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
    let together = "`granted_at_us`, `left`: expected both or neither, found one of them";
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
    for path in ["/v1/settle", "/v1/budget", "/v1/report"] {
        let response = answer(send("GET", path, &[]));
        assert_eq!((response.status, header(&response, "allow")), (405, Some("POST")), "{path}");
        assert_eq!(answer(send("POST", path, &[])).status, 401, "{path}");
    }
}
