//! Text of the caller's in answers: what is valid is read as it is, what is wrong is quoted in part.

use std::string::{String, ToString};

use serde_json::json;

use super::{Server, answer, json, send};

const POLICIES: &str = "
[policies.p]
limits = [{ algorithm = 'concurrency', capacity = 1, time_to_live = '1d' }]
[policies.rate]
limits = [{ algorithm = 'token_bucket', capacity = 9, rate = '1/d' }]
cost = { header = 'x-cost' }
";

#[test]
fn a_key_of_any_characters_is_released_by_query() {
    let mut server = Server::new(POLICIES);
    for (key, encoded) in [
        ("\u{fffd}", "%EF%BF%BD"),
        ("\u{fffd}", "%ef%bf%bd"),
        ("\u{fffd}", "\u{fffd}"), // not encoded at all
        ("a\u{fffd}b c+d&e=f", "a%EF%BF%BDb+c%2Bd%26e=f"),
        ("\u{10ffff}\0", "%F4%8F%BF%BF%00"),
        ("100%", "100%"),
        ("%zz", "%zz"),
    ] {
        let body = json!({ "policy": "p", "key": key, "lease": "a" });
        let body = body.to_string().replace('\u{fffd}', "\\ufffd"); // a body must not contain it
        let acquired = server.post("/v1/leases", &body);
        assert_eq!(acquired["allowed"], true, "{key:?}");
        let target = std::format!("/v1/leases/a?&policy=p&&key={encoded}&");
        let released = server.json("DELETE", &target, "");
        assert_eq!(released["live"], true, "{key:?}");
    }
}

#[test]
fn a_query_that_is_not_utf_8_is_refused() {
    // a stray byte, an overlong form, a surrogate, a character cut short, one beyond the last
    for bytes in ["%ff", "%C0%AF", "%ED%A0%80", "%EF%BF", "%F4%90%80%80", "%EF%BF%BD%FF"] {
        for query in [
            std::format!("policy=rate&key=k{bytes}"),
            std::format!("policy=rate&key=k&class={bytes}"),
            std::format!("policy=rate{bytes}&key=k"),
            std::format!("policy=rate&key=k&{bytes}=1"),
        ] {
            let step = send("GET", &std::format!("/v1/gate?{query}"), &[super::TOKEN]);
            let response = answer(step);
            assert_eq!(response.status, 400, "{query}");
            assert!(response.body.contains("expected UTF-8"), "{query}: {}", response.body);
        }
    }
}

#[test]
fn what_a_caller_wrote_is_quoted_in_part() {
    let mut server = Server::new(POLICIES);
    for character in ["a", "\u{7f}", "\"", "\u{301}", "\u{e000}"] {
        let long = character.repeat(262_000 / character.len() / 8);
        let quoted = serde_json::to_string(&long).unwrap();
        let encoded = form_urlencoded::byte_serialize(long.as_bytes()).collect::<String>();
        let get = |query: &str| ("GET", std::format!("/v1/gate?{query}"), String::new());
        let post = |path: &str, body: String| ("POST", String::from(path), body);
        for (method, target, body) in [
            post("/v1/check", std::format!("{{\"policy\":{quoted},\"key\":\"k\"}}")),
            post(
                "/v1/check",
                std::format!("{{\"checks\":[{{\"policy\":{quoted},\"key\":\"k\"}}]}}"),
            ),
            post("/v1/check", std::format!("{{\"policy\":\"p\",\"key\":{quoted}}}")),
            post(
                "/v1/check",
                std::format!("{{\"policy\":\"rate\",\"key\":\"k\",\"class\":{quoted}}}"),
            ),
            post(
                "/v1/check",
                std::format!("{{\"policy\":\"rate\",\"key\":\"k\",\"cost\":{quoted}}}"),
            ),
            post("/v1/check", std::format!("{{\"policy\":\"rate\",\"key\":\"k\",{quoted}:1}}")),
            post("/v1/check", std::format!("{{\"checks\":[{{{quoted}:1}}]}}")),
            post("/v1/check", quoted.clone()),
            post(
                "/v1/leases",
                std::format!("{{\"policy\":\"p\",\"key\":\"k\",\"lease\":{quoted}}}"),
            ),
            post("/v1/refund", std::format!("{{\"policy\":{quoted},\"key\":\"k\"}}")),
            ("DELETE", std::format!("/v1/leases/{encoded}?policy=p&key=k"), String::new()),
            ("DELETE", std::format!("/v1/leases/a?policy={encoded}&key=k"), String::new()),
            get(&std::format!("policy={encoded}&key=k")),
            get(&std::format!("policy=rate&key=k&cost={encoded}")),
            get(&std::format!("policy=rate&key=k&class={encoded}")),
            get(&std::format!("policy=rate&key=k&{encoded}=1")),
            get(&std::format!("policy=rate&key=k&{encoded}=%ff")),
            ("GET", std::format!("/v1/{encoded}"), String::new()),
            ("GET", std::format!("/v1/keys/{encoded}/k"), String::new()),
            ("DELETE", std::format!("/v1/keys/p/{encoded}"), String::new()),
            (&long, String::from("/v1/check"), String::new()),
        ] {
            let response = server.call(method, &target, &body);
            let detail = json(&response)["detail"].as_str().unwrap().chars().count();
            let place = target.get(..40).unwrap_or(&target);
            assert!((400..=405).contains(&response.status), "{place} {}", response.status);
            assert!(detail <= 1_300, "{place}: the detail has {detail} characters");
        }
        let headers = [super::TOKEN, ("x-cost", long.as_str())];
        let response = answer(send("GET", "/v1/gate?policy=api&key=k", &headers));
        assert_eq!(response.status, 400);
        assert!(response.body.len() < 2_400, "{} bytes", response.body.len());
    }
}
