//! Behaviour that every server must have.

use std::cmp::Reverse;

use serde_json::{Value, json};
use tidegate_tests::{Api, Served};

const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400 * SECOND;

pub fn grants_until_the_limit_and_says_when(served: &Served) {
    let first = served.api.check("day", "k", 2, None);
    assert_eq!(first.status, 200, "{first:?}");
    assert_eq!(
        (first.get("allowed"), first.get("remaining")),
        (json!(true), json!(1)),
        "{first:?}"
    );
    assert_eq!(first.header("content-type"), Some("application/json"));
    assert_eq!(
        first.header("ratelimit-policy"),
        Some("\"burst\";q=3;w=86400, \"year\";q=5;w=31536000")
    );
    let second = served.api.check("day", "k", 2, None);
    assert_eq!((second.status, second.get("allowed")), (200, json!(false)));
    // two thirds of a day after the first request, which is less than an hour ago
    let retry = second.get("retry_after_us").as_u64().unwrap();
    assert!((DAY / 3 - 3_600 * SECOND..=DAY / 3).contains(&retry), "{retry}");
    let seconds: u64 = second.header("retry-after").unwrap().parse().unwrap();
    assert_eq!(seconds, retry.div_ceil(SECOND));
    assert!(second.header("ratelimit").unwrap().contains(&format!("\"burst\";r=1;t={seconds}")));
    let limits = second.get("limits");
    assert_eq!((&limits[0]["allowed"], &limits[1]["allowed"]), (&json!(false), &json!(true)));
    assert_eq!(limits[1]["remaining"], 3, "the refusal consumed nothing of the other limit");
    assert_eq!(
        served.api.check("day", "k", 1, None).get("allowed"),
        true,
        "a cheaper request passes"
    );
}

/// The keys of a list of who is limited, with their counts over its hours, one of which may end while a test refuses.
pub fn keys_of(list: &Value) -> Vec<Value> {
    let mut keys: Vec<Value> = Vec::new();
    let hours = list["hours"].as_array().unwrap().iter();
    for found in hours.flat_map(|hour| hour["keys"].as_array().unwrap()) {
        match keys.iter_mut().find(|it| it["key"] == found["key"] && it["hash"] == found["hash"]) {
            Some(same) => {
                let [before, now] = [&*same, found].map(|it| it["count"].as_u64().unwrap());
                same["count"] = json!(before + now);
            }
            None => keys.push(found.clone()),
        }
    }
    keys.sort_by_key(|key| Reverse(key["count"].as_u64()));
    keys
}

pub fn a_refused_key_is_in_the_list_of_its_limit(served: &Served) {
    for _ in 0..4 {
        served.api.check("tree", "refused/often", 2, None);
    }
    let of_tree = |target: &str| {
        let answer = served.api.get(target, &[]);
        assert_eq!(answer.status, 200, "{answer:?}");
        let lists = answer.get("top");
        let lists = lists.as_array().unwrap().iter();
        let lists = lists.filter(|list| list["policy"] == "tree");
        let keys = |list: &Value| {
            let keys = keys_of(list).into_iter();
            keys.map(|key| (list["limit"].clone(), key)).collect::<Vec<_>>()
        };
        lists.flat_map(keys).collect::<Vec<_>>()
    };
    let top = of_tree("/v1/top?keys=clear");
    for (limit, key) in [("organisation", "refused"), ("user", "refused/often")] {
        let said = json!({ "key": key, "count": 3, "error": 0 });
        assert!(top.contains(&(json!(limit), said)), "{top:?}");
    }
    let hashed = of_tree("/v1/status");
    assert!(hashed.len() >= 2 && hashed.iter().all(|(_, key)| key["key"].is_null()), "{hashed:?}");
    let status = served.api.get("/v1/status", &[]);
    assert_eq!(status.get("store")["answers"], true);
    let policies = status.get("policies");
    let mut policies = policies.as_array().unwrap().iter();
    let tree = policies.find(|policy| policy["name"] == "tree").unwrap();
    assert!(tree["decisions"]["refused"].as_u64().unwrap() >= 3, "{tree}");
    let sentence =
        "organisation: bursts of 3, then every 1 d; full after 3 d, by the first part of the key";
    assert!(tree["words"].as_array().unwrap().contains(&json!(sentence)), "{tree}");
    let told = |target: &str, words: &str| served.api.get(target, &[]).text.contains(words);
    assert!(told("/v1/status?keys=clear", "bot-*"));
    assert!(told("/v1/status", "always denied: 2") && !told("/v1/status", "bot-*"));
}

pub fn a_gate_answers_204_or_429(served: &Served) {
    let gate = |headers: &[(&str, &str)]| served.api.get("/v1/gate?policy=day", headers);
    let keyed = [("x-api-key", "alice"), ("x-cost", "3")];
    let passed = gate(&keyed);
    assert_eq!((passed.status, passed.text.as_str()), (204, ""));
    assert_eq!(passed.header("content-type"), None);
    let refused = gate(&keyed);
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    assert_eq!(refused.header("cache-control"), Some("no-store"));
    assert_eq!(
        refused.get("type"),
        "https://iana.org/assignments/http-problem-types#quota-exceeded"
    );
    assert_eq!(refused.get("violated-policies"), json!(["burst", "year"]));
    assert!(refused.header("retry-after").is_some());
    assert_eq!(gate(&[("x-api-key", "bob"), ("x-cost", "3")]).status, 204);
    let named = served.api.get("/v1/gate?policy=day&key=header:x-api-key:bob&cost=1", &[]);
    assert_eq!(named.status, 429, "the key is the same if the query names it");
}

pub fn middleware_is_told_what_becomes_of_a_request(served: &Served) {
    let admit = |policy: &str, more: &str| {
        let body = format!("{{\"policy\":\"{policy}\",\"key\":\"behind\"{more}}}");
        served.api.post("/v1/admit", body)
    };
    let passed = admit("day", ",\"cost\":3");
    assert_eq!((passed.status, passed.header("ratelimit")), (200, None), "{passed:?}");
    assert_eq!(passed.get("headers")[0]["name"], "ratelimit-policy");
    assert_eq!((&passed.get("grant")["units"], passed.get("remaining")), (&json!(3), json!(0)));
    let refused = admit("day", ",\"one_of_several\":true");
    assert_eq!((refused.status, &refused.get("refusal")["status"]), (200, &json!(429)));
    assert!(
        refused.get("refusal")["body"].as_str().unwrap().contains("\"day/burst\""),
        "{refused:?}"
    );
    let body = json!({
        "policy": "day", "key": "behind", "units": 3,
        "granted_at_us": passed.get("grant")["at_us"], "granted": 3,
    });
    assert_eq!(served.api.post("/v1/refund", body.to_string()).get("remaining"), 2, "of the year");

    let held = admit("jobs", "");
    let name = held.get("lease")["name"].as_str().unwrap().to_owned();
    assert_eq!(held.get("lease")["renew_every_us"], DAY / 3);
    let path = format!("/v1/leases/{name}?policy=jobs&key=behind");
    assert_eq!(served.api.delete(&path).get("live"), true);
    let reserved = admit("orders", ",\"cost\":4,\"reserves\":true,\"may_come_back\":true");
    assert_eq!(reserved.get("reservation")["units"], 4, "{reserved:?}");
    let wrong = admit("day", ",\"reserves\":true");
    assert_eq!((wrong.status, wrong.get("type")), (400, json!("urn:tidegate:invalid-request")));
}

pub fn a_repeated_header_is_no_key_and_no_cost(served: &Served) {
    let gate = |headers: &[(&str, &str)]| served.api.get("/v1/gate?policy=day", headers);
    let twice = gate(&[("x-api-key", "eve"), ("x-cost", "1"), ("x-cost", "3")]);
    assert_eq!(twice.status, 400, "{twice:?}");
    assert!(twice.get("detail").as_str().unwrap().contains("found \"1, 3\""), "{twice:?}");
    assert_eq!(
        gate(&[("x-api-key", "eve"), ("x-cost", "0")]).status,
        400,
        "a header must not make a request free"
    );
    let proxy = [("cf-connecting-ip", "127.0.0.1"), ("x-forwarded-for", "203.0.113.77")];
    let invented =
        |headers: &[(&'static str, &'static str)]| gate(&[&proxy[..], headers].concat()).status;
    assert_eq!(invented(&[("x-api-key", "eve"), ("x-api-key", "bob"), ("x-cost", "3")]), 204);
    for headers in [
        [("x-api-key", "eve"), ("x-api-key", "eve")],
        [("x-api-key", "mallory"), ("x-api-key", "bob")],
        [("x-api-key", "eve"), ("x_api_key", "bob")],
        [("x-api-key", "eve"), ("x_api-key", "bob")],
        [("x-api-key", ""), ("x-theme", "dark")],
    ] {
        assert_eq!(invented(&headers), 429, "the address is the key: {headers:?}");
    }
}

pub fn a_gate_joins_the_sources_of_a_key(served: &Served) {
    let gate = |tenant: &str, session: &str| {
        let cookie = format!("theme=dark; sid={session}");
        let headers = [("x-tenant", tenant), ("cookie", cookie.as_str())];
        served.api.get("/v1/gate?policy=tenants", &headers)
    };
    assert_eq!(gate("acme", "a").status, 204);
    assert_eq!(gate("acme", "a").get("violated-policies"), json!(["session"]));
    assert_eq!(gate("acme/x", "b").status, 204, "a value does not end its part of the key");
    assert_eq!(gate("acme", "b").status, 204);
    assert_eq!(gate("acme", "c").get("violated-policies"), json!(["tenant"]));
    let peek = served.api.get("/v1/keys/tenants/header:x-tenant:acme%252Fx%2Fcookie:sid:b", &[]);
    assert_eq!(peek.get("remaining"), 0, "{peek:?}");
}

pub fn a_gate_finds_the_client_behind_a_trusted_proxy(served: &Served) {
    // the host goes by the address of the connection, and the Worker by what Cloudflare says of it
    let gate = |forwarded: &str| {
        let headers = [("cf-connecting-ip", "127.0.0.1"), ("x-forwarded-for", forwarded)];
        served.api.get("/v1/gate?policy=tenants", &headers).status
    };
    assert_eq!(gate("6.6.6.6, 203.0.113.9, 127.0.0.2"), 204);
    assert_eq!(
        gate("7.7.7.7, 203.0.113.9"),
        429,
        "what a client has put before it is not believed"
    );
    assert_eq!(gate("203.0.113.10"), 204);
    assert_eq!(served.api.check("tenants", "ip:203.0.113.9", 0, None).get("remaining"), 0);
}

pub fn a_batch_keeps_its_order(served: &Served) {
    let check =
        |policy: &str, key: &str, cost: u64| json!({ "policy": policy, "key": key, "cost": cost });
    let checks = [
        check("open", "a", 4),
        check("day", "b", 3),
        check("open", "a", 2),
        check("open", "c", 5),
        check("open", "a", 1),
    ];
    let reply = served.api.post("/v1/check", json!({ "checks": checks }).to_string());
    let decisions = reply.get("decisions");
    let seen: Vec<_> = decisions
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["policy"].as_str().unwrap(), one["allowed"].as_bool().unwrap()))
        .collect();
    let expected = [("open", true), ("day", true), ("open", false), ("open", true), ("open", true)];
    assert_eq!(seen, expected);
}

/// Of all servers one table, one Redis or one object has all these keys, because they share a limit.
pub fn a_policy_keeps_more_keys_than_a_part_of_a_table(served: &Served) {
    const BATCHES: usize = 15; // a part has room for 14,336 keys
    for (round, allowed) in [true, false].into_iter().enumerate() {
        for batch in 0..BATCHES {
            let check = |key| json!({ "policy": "crowd", "key": format!("user:{batch}-{key}") });
            let checks: Vec<_> = (0..1_000).map(check).collect();
            let reply = served.api.post("/v1/check", json!({ "checks": checks }).to_string());
            let decisions = reply.get("decisions");
            let decisions = decisions.as_array().unwrap();
            let same = decisions.iter().filter(|one| one["allowed"] == allowed).count();
            assert_eq!(same, 1_000, "round {round}, batch {batch}: {:?}", decisions.first());
        }
    }
}

pub fn checks_are_granted_together_or_not_at_all(served: &Served) {
    let ask = |checks: &[(&str, &str, u64)]| {
        let check = |(policy, key, cost): &(&str, &str, u64)| json!({ "policy": policy, "key": key, "cost": cost });
        let checks: Vec<_> = checks.iter().map(check).collect();
        let body = json!({ "checks": checks, "all_or_nothing": true });
        let reply = served.api.post("/v1/check", body.to_string());
        assert_eq!(reply.status, 200, "{reply:?}");
        let decisions = reply.get("decisions");
        let each = decisions.as_array().unwrap().iter();
        let each =
            each.map(|one| (one["allowed"].as_bool().unwrap(), one.get("returned").cloned()));
        (reply.get("allowed").as_bool().unwrap(), each.collect::<Vec<_>>())
    };
    assert_eq!(ask(&[("open", "t", 2), ("day", "t", 2)]), (true, vec![(true, None), (true, None)]));
    let returned = Some(json!(true));
    let refused = ask(&[("open", "t", 3), ("jobs", "t", 1), ("day", "t", 2), ("open", "u", 1)]);
    assert_eq!(refused, (false, vec![(true, returned.clone()), (true, returned), (false, None)]));
    for (policy, key, remaining) in
        [("open", "t", 3), ("day", "t", 1), ("jobs", "t", 2), ("open", "u", 5)]
    {
        assert_eq!(
            served.api.check(policy, key, 0, None).get("remaining"),
            remaining,
            "{policy} {key}"
        );
    }
    let nine = json!({ "checks": vec![json!({ "policy": "open", "key": "t" }); 9], "all_or_nothing": true });
    assert_eq!(served.api.post("/v1/check", nine.to_string()).status, 400);
}

pub fn keys_and_policies_are_counted_apart(served: &Served) {
    for key in ["a", "a:b", ":a", "a\u{0}", "ключ", &"k".repeat(512), "../../x", "' OR 1=1 --"]
    {
        for policy in ["day", "open"] {
            assert_eq!(
                served.api.check(policy, key, 3, None).get("allowed"),
                true,
                "{policy} {key}"
            );
            assert_eq!(served.api.check(policy, key, 3, None).get("allowed"), false);
        }
    }
}

pub fn a_peek_changes_nothing(served: &Served) {
    for _ in 0..3 {
        let peek = served.api.check("open", "p", 0, None);
        assert_eq!((peek.get("allowed"), peek.get("remaining")), (json!(true), json!(5)));
    }
    assert_eq!(served.api.check("open", "p", 5, None).get("allowed"), true);
    let peek = served.api.check("open", "p", 0, None);
    assert_eq!((peek.get("allowed"), peek.get("remaining")), (json!(true), json!(0)));
}

pub fn an_explanation_names_what_refuses_and_takes_nothing(served: &Served) {
    let explain = |policy: &str, key: &str, cost: u64| {
        let body = json!({ "policy": policy, "key": key, "cost": cost }).to_string();
        let said = served.api.post("/v1/explain", body);
        assert_eq!(said.status, 200, "{said:?}");
        ["allowed", "limit_name", "bound", "text"].map(|field| said.get(field))
    };
    let passes =
        "The request passes. After it `log` has the least left (100 in any 365 d): 1 of 100.";
    for _ in 0..2 {
        let [allowed, limit, bound, text] = explain("log", "why", 99);
        assert_eq!((allowed, limit, text), (json!(true), json!("log"), json!(passes)));
        assert_eq!(bound, "100 in any 365 d");
    }
    assert_eq!(served.api.check("log", "why", 99, None).get("allowed"), true);
    let [allowed, _, _, text] = explain("log", "why", 2);
    let refuses = "`log` refuses (100 in any 365 d): 1 of 100 are left and the request costs 2; it passes in ";
    assert!(allowed == false && text.as_str().unwrap().starts_with(refuses), "{text}");
    let [_, limit, bound, text] = explain("special", "bot-7", 1);
    let listed = "The key is on the list `deny`, so its requests are refused and are not counted.";
    assert_eq!((limit, bound, text), (json!(null), json!(""), json!(listed)));
    let block = served.api.post("/v1/keys/log/why/block", r#"{"for":"1d"}"#);
    assert_eq!(block.status, 200, "{block:?}");
    let [_, _, _, text] = explain("log", "why", 1);
    assert!(text.as_str().unwrap().starts_with("The key is blocked for another "), "{text}");
}

pub fn nobody_gets_in_without_the_token(served: &Served) {
    let body = json!({ "policy": "open", "key": "k", "cost": 5 }).to_string();
    for token in
        [None, Some(""), Some("token"), Some("token of the tests."), Some("Token of the tests")]
    {
        let stranger = Api::new(&served.url, token);
        assert_eq!(stranger.post("/v1/check", &body).status, 401, "{token:?}");
        assert_eq!(stranger.get("/v1/gate?policy=open&key=k", &[]).status, 401);
        assert_eq!(stranger.get("/healthz", &[]).status, 200);
    }
    assert_eq!(served.api.post("/v1/check", &body).get("allowed"), true, "nothing was consumed");
}

pub fn bad_input_is_refused_and_nothing_is_consumed(served: &Served) {
    let check = |rest: &str| format!("{{\"policy\":\"open\",\"key\":\"k\"{rest}}}");
    let key = |key: &str| json!({ "policy": "open", "key": key }).to_string();
    for (body, status, r#type) in [
        ("no json".to_owned(), 400, "urn:tidegate:invalid-request"),
        (String::new(), 400, "urn:tidegate:invalid-request"),
        (check(",\"colour\":1"), 400, "urn:tidegate:invalid-request"),
        (check(",\"cost\":-1"), 400, "urn:tidegate:invalid-request"),
        (check(",\"cost\":1.5"), 400, "urn:tidegate:invalid-request"),
        (check(",\"cost\":NaN"), 400, "urn:tidegate:invalid-request"),
        (check(",\"cost\":9007199254740992"), 400, "urn:tidegate:invalid-request"),
        (check(",\"cost\":6"), 400, "urn:tidegate:cost-exceeds-capacity"),
        ("{\"policy\":\"none\",\"key\":\"k\"}".to_owned(), 404, "urn:tidegate:unknown-policy"),
        (key(""), 400, "urn:tidegate:invalid-key"),
        (key(&"k".repeat(10_240)), 400, "urn:tidegate:invalid-key"),
        (key("ip:192.0.2.05"), 400, "urn:tidegate:invalid-key"),
        ("[\"open\",\"k\"]".to_owned(), 400, "urn:tidegate:invalid-request"),
        (format!("{{\"checks\":[{},{}]}}", check(""), key("")), 400, "urn:tidegate:invalid-key"),
    ] {
        let reply = served.api.post("/v1/check", &body);
        assert_eq!(reply.status, status, "{body}: {reply:?}");
        assert_eq!(reply.header("content-type"), Some("application/problem+json"), "{body}");
        assert_eq!(reply.get("type"), r#type, "{body}");
        assert!(!reply.get("detail").as_str().unwrap().is_empty(), "{body}");
    }
    assert_eq!(served.api.get("/v1/check", &[]).status, 405);
    assert_eq!(served.api.get("/v1/nothing", &[]).status, 404);
    assert_eq!(served.api.check("open", "k", 0, None).get("remaining"), 5);
}

pub fn a_body_of_10_mb_is_refused(served: &Served) {
    let reply = served.api.post("/v1/check", vec![b' '; 10_000_000]);
    assert_eq!((reply.status, reply.get("type")), (413, json!("urn:tidegate:body-too-large")));
    assert_eq!(reply.get("detail"), "expected a body of at most 262144 bytes, found 10000000");
    assert_eq!(
        served.api.check("open", "k", 5, None).get("allowed"),
        true,
        "the server still serves"
    );
}

pub fn a_long_text_is_shortened_in_answers(served: &Served) {
    let long = "\u{7f}".repeat(262_000);
    for body in [
        json!({ "policy": long, "key": "k" }),
        json!({ "policy": "open", "key": "k", "class": long }),
        json!({ "policy": "open", "key": "k", "cost": long }),
        json!({ "policy": "open", "key": "k", long: 1 }),
    ] {
        let reply = served.api.post("/v1/check", body.to_string());
        assert!([400, 404].contains(&reply.status), "{}", reply.status);
        assert!(reply.text.len() < 4_000, "{} bytes", reply.text.len());
    }
}

pub fn concurrent_requests_share_one_limit(served: &Served) {
    let granted: u64 = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let granted =
                        |_: &u64| served.api.check("open", "k", 1, None).get("allowed") == true;
                    u64::try_from((0..10).filter(granted).count()).unwrap()
                })
            })
            .collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).sum()
    });
    assert_eq!(granted, 5);
}

pub fn the_time_of_a_caller_is_ignored(served: &Served) {
    let year = |n: u64| Some(n * 365 * DAY);
    assert_eq!(served.api.check("open", "k", 5, year(1)).get("allowed"), true);
    for n in 2..50 {
        assert_eq!(served.api.check("open", "k", 1, year(n)).get("allowed"), false, "year {n}");
    }
}
