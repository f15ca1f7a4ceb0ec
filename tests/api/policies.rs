//! The fields of a policy beside its limits, and the limits that shed load or punish.

use serde_json::{Value, json};
use tidegate_tests::{Reply, Served};

const DAY: u64 = 86_400_000_000;

const TYPES: &str = "https://iana.org/assignments/http-problem-types#";

/// The status, the end of the problem's type, and the limits that refused.
fn refusal(reply: &Reply) -> (u16, String, Value) {
    let name = reply.get("type").as_str().unwrap_or_default().replace(TYPES, "");
    (reply.status, name, reply.get("violated-policies"))
}

pub fn a_report_is_answered_with_the_factor_and_suppresses(served: &Served) {
    let report = |admitted: u64| {
        let body = json!({
            "policy": "account", "key": "k", "admitted": admitted, "suppressed": 0,
        });
        served.api.post("/v1/report", body.to_string())
    };
    let within = report(1);
    assert_eq!((within.status, within.get("factor")), (200, json!(0)), "{within:?}");
    assert_eq!(within.header("ratelimit"), None, "{within:?}");
    // all but one in 2^32 requests are to be refused
    assert_eq!(report(9_007_199_254_740_991).get("factor"), u64::from(u32::MAX));
    let check = served.api.check("account", "k", 1, None);
    assert_eq!((check.status, check.get("allowed")), (200, json!(false)), "{check:?}");
    let gate = served.api.get("/v1/gate?policy=account&key=k", &[]);
    let shed = (503, "temporary-reduced-capacity".to_owned(), json!(["account"]));
    assert_eq!(refusal(&gate), shed, "{gate:?}");
    assert!(gate.header("retry-after").is_some());
    assert_eq!(served.api.check("account", "other", 1, None).get("allowed"), true);
    let foreign = json!({ "policy": "day", "key": "k", "admitted": 1, "suppressed": 0 });
    assert_eq!(served.api.post("/v1/report", foreign.to_string()).status, 400);
}

pub fn load_is_shed_by_class_while_the_signal_is_bad(served: &Served) {
    let check = |class: &str, signal_ppm: u64| {
        let body =
            json!({ "policy": "busy", "key": "k", "class": class, "signal_ppm": signal_ppm });
        served.api.post("/v1/check", body.to_string())
    };
    let gate = |class: &str| served.api.get(&format!("/v1/gate?policy=busy&key=k{class}"), &[]);
    assert_eq!(
        check("batch", 1_000_000).get("allowed"),
        true,
        "the signal has only just become bad"
    );
    // after 2 s without a request the shedder starts over, which may happen on a slow machine: then these are asked again
    let refused = (0..).map(|_| check("default", 1_000_000));
    let refused = { refused }.find(|reply| reply.get("allowed") == false).unwrap();
    assert_eq!(refused.header("ratelimit"), None, "{refused:?}");
    assert!(refused.header("retry-after").is_some());
    assert_eq!(check("critical", 1_000_000).get("allowed"), true);
    let shed = (0..).map(|_| (check("default", 1_000_000), gate("")).1);
    let shed = { shed }.find(|reply| reply.status != 204).unwrap();
    let expected = (503, "temporary-reduced-capacity".to_owned(), json!(["busy"]));
    assert_eq!(refusal(&shed), expected, "a request without a class has the lowest one");
    assert_eq!(gate("&class=critical").status, 204);
    for bad in [check("vip", 0), check("batch", 1_000_001), gate("&class=vip")] {
        assert_eq!((bad.status, bad.get("type")), (400, json!("urn:tidegate:invalid-request")));
    }
}

pub fn users_are_counted_within_their_organisation(served: &Served) {
    let check = |key: &str| served.api.check("tree", key, 1, None);
    assert_eq!(check("acme/alice").get("allowed"), true);
    let second = check("acme/alice");
    let limits = second.get("limits");
    assert_eq!((&limits[0]["name"], &limits[0]["remaining"]), (&json!("organisation"), &json!(1)));
    assert_eq!((&limits[1]["name"], &limits[1]["remaining"]), (&json!("user"), &json!(0)));
    let refused = check("acme/alice").get("limits");
    assert_eq!((&refused[0]["allowed"], &refused[1]["allowed"]), (&json!(true), &json!(false)));
    assert_eq!(check("acme/bob").get("allowed"), true, "the refusal took nothing from acme");
    let refused = check("acme/bob").get("limits");
    assert_eq!((&refused[0]["allowed"], &refused[1]["allowed"]), (&json!(false), &json!(true)));
    assert_eq!(check("acme").get("allowed"), false, "a shorter key is the organisation itself");
    assert_eq!(check("other/alice").get("allowed"), true);
    let gate = served.api.get("/v1/gate?policy=tree&key=acme/carol", &[]);
    assert_eq!(refusal(&gate), (429, "quota-exceeded".to_owned(), json!(["organisation"])));
}

pub fn overrides_and_lists_hold_for_some_keys(served: &Served) {
    let check = |key: &str, cost: u64| served.api.check("special", key, cost, None);
    assert_eq!(check("user:42", 3).get("limit"), 3);
    assert_eq!(check("user:43", 2).status, 400, "without the override the limit can never grant 2");
    assert_eq!(check("user:43", 1).get("limit"), 1);
    let leased = check("worker-1", 1);
    assert_eq!((leased.get("allowed"), leased.get("lease").is_string()), (json!(true), true));
    assert_eq!(check("worker-1", 1).get("allowed"), false);
    for _ in 0..2 {
        for key in ["monitor", "ip:2001:db8::7"] {
            let passed = check(key, 1);
            assert_eq!((passed.get("allowed"), passed.get("limits")), (json!(true), json!([])));
            assert_eq!(passed.header("ratelimit"), None);
        }
        for key in ["bot-7", "ip:192.0.2.9"] {
            let denied = check(key, 1);
            assert_eq!((denied.status, denied.get("allowed")), (200, json!(false)), "{denied:?}");
            assert_eq!(denied.get("denied"), true);
            assert_eq!(denied.header("retry-after"), None);
        }
    }
    assert!(check("worker-1", 1).get("denied").is_null(), "another refusal does not say it");
    let gate = |key: &str| served.api.get(&format!("/v1/gate?policy=special&key={key}"), &[]);
    assert_eq!((gate("bot-7").status, gate("monitor").status), (403, 204));
    assert_eq!(gate("bot-7").get("type"), "urn:tidegate:denied");
    assert_eq!(gate("bot-7").header("retry-after"), None);
}

pub fn addresses_are_counted_by_their_network(served: &Served) {
    let check = |key: &str| served.api.check("special", key, 1, None).get("allowed");
    assert_eq!(check("ip:2001:db9::1"), true);
    assert_eq!(check("ip:2001:DB9:0:0:ffff::2"), false, "the address is in the same /64");
    assert_eq!(check("ip:2001:db9:0:1::1"), true);
    assert_eq!(check("ip:198.51.100.1"), true);
    assert_eq!(check("ip:198.51.100.2"), true);
    assert_eq!(check("ip:::ffff:198.51.100.1"), false, "this is the same address, mapped to IPv6");
}

pub fn in_shadow_nobody_is_refused(served: &Served) {
    for would_allow in [true, false, false] {
        let reply = served.api.check("trial", "k", 1, None);
        assert_eq!(
            (reply.get("allowed"), reply.get("would_allow")),
            (json!(true), json!(would_allow))
        );
        assert_eq!(reply.header("retry-after"), None, "nobody is told to wait");
        assert_eq!(reply.header("ratelimit-policy"), Some("\"trial\";q=1;w=86400"));
    }
    assert_eq!(served.api.get("/v1/gate?policy=trial&key=k", &[]).status, 204);
    assert_eq!(served.api.check("day", "k", 1, None).json().get("would_allow"), None);
}

pub fn a_limit_in_shadow_refuses_nobody_and_a_limit_warns(served: &Served) {
    for (allowed, would_allow, warned) in [
        (true, true, None),
        (true, false, Some(true)),
        (true, false, Some(true)),
        (true, false, Some(true)),
        (false, false, Some(true)),
    ] {
        let reply = served.api.check("planned", "k", 1, None);
        let answer = reply.json();
        assert_eq!(
            (&answer["allowed"], &answer["would_allow"], answer.get("warned")),
            (&json!(allowed), &json!(would_allow), warned.map(Into::into).as_ref())
        );
        let [now, planned] = answer["limits"].as_array().unwrap().as_slice() else {
            panic!("{answer}")
        };
        assert_eq!((now.get("shadow"), &planned["shadow"]), (None, &json!(true)));
        assert_eq!(now.get("warned"), answer.get("warned"));
        assert_eq!(reply.header("ratelimit-policy"), Some("\"now\";q=4;w=345600"), "{answer}");
    }
    let refused = served.api.get("/v1/gate?policy=planned&key=k", &[]);
    assert_eq!(refusal(&refused), (429, "quota-exceeded".to_owned(), json!(["now"])));
    let metrics = served.api.get("/metrics", &[]).text;
    for line in [
        r#"tidegate_decisions_total{policy="planned",outcome="allowed"} 1"#,
        r#"tidegate_decisions_total{policy="planned",outcome="shadow_refused"} 3"#,
        r#"tidegate_decisions_total{policy="planned",outcome="refused"} 2"#,
        r#"tidegate_warnings_total{policy="planned"} 5"#,
    ] {
        assert!(metrics.lines().any(|own| own == line), "{line}\n{metrics}");
    }
}

pub fn a_caller_who_is_refused_too_often_gets_a_penalty(served: &Served) {
    let gate = || served.api.get("/v1/gate?policy=login&key=k", &[]);
    assert_eq!((gate().status, gate().status), (204, 204));
    assert_eq!(refusal(&gate()), (429, "quota-exceeded".to_owned(), json!(["attempts"])));
    let penalty = (429, "abnormal-usage-detected".to_owned(), json!(["attempts", "penalty"]));
    let begun = gate();
    assert_eq!(refusal(&begun), penalty, "the second refusal begins the penalty");
    let wait = begun.get("retry_after_us").as_u64().unwrap();
    assert!(wait > 29 * 86_400_000_000, "{wait}");
    assert_eq!(begun.header("ratelimit-policy"), Some("\"attempts\";q=2;w=172800"));
    let checked = served.api.check("login", "k", 1, None);
    assert_eq!((checked.status, checked.get("allowed")), (200, json!(false)));
    assert_eq!(served.api.check("login", "other", 1, None).get("allowed"), true);
}

pub fn a_blocked_key_is_refused_at_every_cost(served: &Served) {
    let refused = |reply: &Reply, what: &str| {
        let wait = reply.get("retry_after_us").as_u64().unwrap();
        assert!((1..=DAY).contains(&wait), "{what}: {reply:?}");
        assert_eq!(
            (reply.get("allowed"), reply.get("remaining")),
            (json!(false), json!(0)),
            "{what}"
        );
    };
    let path = "/v1/keys/day/k";
    let block = |for_us: u64| {
        let body = json!({ "for": for_us }).to_string();
        served.api.post(&format!("{path}/block"), body)
    };
    refused(&block(DAY), "the answer to the block");
    for cost in [0, 1] {
        refused(&served.api.check("day", "k", cost, None), "a check");
        refused(&served.api.get(&format!("{path}?cost={cost}"), &[]), "a peek");
        let gate = served.api.get(&format!("/v1/gate?policy=day&key=k&cost={cost}"), &[]);
        assert_eq!(gate.status, 429, "{gate:?}");
    }
    let refund = json!({ "policy": "day", "key": "k", "units": 1 }).to_string();
    assert_eq!(served.api.post("/v1/refund", refund).get("allowed"), true, "this asks for nothing");
    assert_eq!(block(0).get("allowed"), true);
    assert_eq!(served.api.get(path, &[]).get("remaining"), 3);
}
