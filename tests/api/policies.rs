//! Limits that shed load.

use serde_json::{Value, json};
use tidegate_tests::{Reply, Served};

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
