//! Behaviour that every server must have.

use std::cmp::Reverse;

use serde_json::{Value, json};
use tidegate_tests::{Api, Served};

const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400 * SECOND;

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

pub fn nobody_gets_in_without_the_token(served: &Served) {
    let body = json!({ "policy": "open", "key": "k", "cost": 5 }).to_string();
    for token in
        [None, Some(""), Some("token"), Some("token of the tests."), Some("Token of the tests")]
    {
        let stranger = Api::new(&served.url, token);
        assert_eq!(stranger.post("/v1/check", &body).status, 401, "{token:?}");
        assert_eq!(stranger.put_policies("").status, 401);
        assert_eq!(stranger.post("/v1/policies/restore", "").status, 401);
        assert_eq!(stranger.put("/v1/overrides/open/k", "").status, 401);
        for target in ["/v1/gate?policy=open&key=k", "/v1/policies/file", "/v1/overrides"] {
            assert_eq!(stranger.get(target, &[]).status, 401, "{target}");
        }
        assert_eq!(stranger.get("/healthz", &[]).status, 200);
    }
    assert_eq!(served.api.post("/v1/check", &body).get("allowed"), true, "nothing was consumed");
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
