//! The key of a request: what its sources find, and what hostile values may not do.

mod addresses;
mod spellings;

use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use proptest::prelude::*;
use tidegate_gate::{Policies, SignatureAlgorithm, Timestamp};

use super::cookie::cookie;
use super::{FoundKey, find};
use crate::Head;

const NOW: Timestamp = Timestamp(1_000_000_000_000);
const NOW_S: u64 = 1_000_000;

const JWT: &str = "[jwt]\nalgorithms = ['HS256', 'ES256']\nkeys = 'JWT_KEYS'\n";

fn policies(key: &str, rest: &str) -> Policies {
    let limits = "limits = [{ algorithm = 'fixed_window', limit = 5, period = '1s' }]";
    Policies::parse(&format!("{rest}\n[policies.p]\nkey = {key}\n{limits}")).unwrap()
}

#[derive(Default)]
struct Request<'a> {
    query: &'a str,
    headers: &'a [(&'a str, &'a str)],
    ip: Option<&'a str>,
    country: Option<&'a str>,
}

impl Request<'_> {
    fn find(&self, policies: &Policies) -> FoundKey {
        let header = |name: &str| {
            self.headers.iter().find(|header| header.0 == name).map(|header| header.1.to_string())
        };
        let (query, country) = (self.query, self.country);
        let client_ip = &|| self.ip?.parse().ok();
        let (header, now) = (&header, NOW);
        let head = Head { query, header, client_ip, country, now, ..Head::default() };
        find(policies.gateway(), policies.get("p").unwrap(), &head)
    }

    #[track_caller]
    fn key(&self, sources: &str) -> Option<String> {
        match self.find(&policies(sources, JWT)) {
            FoundKey::Known(key) => key,
            unverified => panic!("{unverified:?}"),
        }
    }
}

fn key_of_header(value: &str) -> Option<String> {
    Request { headers: &[("x", value)], ..Request::default() }.key("['header:x']")
}

#[test]
fn each_source_names_itself_in_the_key() {
    let request = Request {
        query: "a=b&api+key=secret%20one",
        headers: &[("x-tenant", "acme"), ("cookie", "theme=dark; sid=abc")],
        ip: Some("2001:db8:1:2:3::4"),
        country: Some("CH"),
    };
    for (sources, key) in [
        ("['header:X-Tenant']", "header:x-tenant:acme"),
        ("['cookie:sid']", "cookie:sid:abc"),
        ("['query:api key']", "query:api key:secret one"),
        ("['ip']", "ip:2001:db8:1:2:3::4"),
        ("['country']", "country:CH"),
        ("['cookie:none', 'query:none', 'ip']", "ip:2001:db8:1:2:3::4"),
        ("[['header:x-tenant', 'country']]", "header:x-tenant:acme/country:CH"),
        ("[['ip', 'cookie:sid']]", "address:2001:db8:1:2::%2F64/cookie:sid:abc"),
        ("[['header:none', 'ip'], 'country']", "country:CH"),
    ] {
        assert_eq!(request.key(sources).as_deref(), Some(key), "{sources}");
    }
    assert_eq!(request.key("['cookie:none']"), None);
    let nobody = Request { country: Some("XX"), ip: Some("unknown"), ..Request::default() };
    assert_eq!(nobody.key("['country', 'ip']"), None);
}

#[test]
fn no_value_names_the_key_of_another_caller() {
    let hash = "header:x:%sha256:";
    for (value, key) in [
        ("a/b", "header:x:a%2Fb".to_string()),
        ("a%2Fb", "header:x:a%252Fb".to_string()),
        ("acme/country:CH", "header:x:acme%2Fcountry:CH".to_string()),
        ("\u{7f}a\u{e9}", "header:x:%7Fa\u{e9}".to_string()),
        (&"v".repeat(80), format!("header:x:{}", "v".repeat(80))),
        (&format!("{hash}00"), format!("header:x:header:x:{}sha256:00", "%25")),
    ] {
        assert_eq!(key_of_header(value), Some(key), "{value}");
    }
    let long: Vec<_> =
        [81, 82, 1_000_000].map(|len| key_of_header(&"v".repeat(len)).unwrap()).into();
    assert!(long.iter().all(|key| key.starts_with(hash) && key.len() == hash.len() + 64));
    assert!(long[0] != long[1] && long[1] != long[2]);
    assert!(key_of_header(&"/".repeat(27)).unwrap().starts_with(hash), "escaped it is longer");
}

#[test]
fn the_longest_joined_key_is_a_key() {
    let (name, claim, value) = ("n".repeat(64), "/".repeat(21), "v".repeat(80));
    let token = unsigned(&format!("{{\"{claim}\":\"{value}\"}}"));
    let sources = format!("[['unverified_jwt:{claim}', 'header:{name}', 'cookie:{name}']]");
    let headers = [
        ("authorization", token.as_str()),
        (&name, &value),
        ("cookie", &format!("{name}={value}")),
    ];
    let key = Request { headers: &headers, ..Request::default() }.key(&sources).unwrap();
    assert!(key.len() <= 512 && key.matches('/').count() == 2, "{key}");
    let policies = policies(&sources, JWT);
    assert!(tidegate_gate::Resolved::new(policies.get("p").unwrap(), &key).is_ok());
}

#[test]
fn a_value_that_two_readers_may_read_differently_is_absent() {
    for query in ["k=a&k=b", "k=a&%6b=b", "k=", "k", "", "k=%ff", "x=1", "k=a&k=%ff"] {
        assert_eq!(Request { query, ..Request::default() }.key("['query:k']"), None, "{query}");
    }
    for (header, value) in [
        ("sid=abc", Some("abc")),
        (" a=1;sid = abc ;b=2", Some("abc")),
        ("sid=\"abc\"", Some("abc")),
        ("sid=a=b", Some("a=b")),
        ("Sid=abc", None),
        ("xsid=abc", None),
        ("a=1, sid=abc", Some("abc")),
        ("sid=abc, a=1; b=2, c=3", Some("abc")),
        ("a=1;, sid=abc", Some("abc")),
        ("a={\"b\":1, \"c\":2}; sid=abc", Some("abc")),
        ("sid=abc, sid=abc", None),
        ("a=1, sid=x; sid=abc", None),
        ("sid=abc, def", None),
        ("sid=abc,def", None),
        ("sid=\"a, b=c\"", None),
        ("sid=abc; sid=abc", None),
        ("sid=", None),
        ("sid=\"\"", None),
        ("sid=\"", None),
        ("a=\"x; sid=victim\"", None),
        ("sid=\"abc", None),
        ("sid=a\"b", None),
        ("sid=a\\b", None),
        ("sid=a b", None),
        ("sid", None),
        (";;;=;", None),
    ] {
        assert_eq!(cookie(header, "sid").as_deref(), value, "{header}");
    }
    assert_eq!(cookie(&"sid=a;".repeat(100_000), "sid"), None);
}

fn encoded(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(text)
}

fn token(head: &str, payload: &str, signature: usize) -> String {
    let signature = URL_SAFE_NO_PAD.encode(std::vec![7; signature]);
    format!("{}.{}.{signature}", encoded(head), encoded(payload))
}

fn unsigned(payload: &str) -> String {
    token(r#"{"alg":"none"}"#, payload, 0)
}

/// The key out of the token's claim `sub`; `None` if the token counts as absent.
fn verified(token: &str) -> Option<(String, SignatureAlgorithm, Option<String>)> {
    let headers = &[("authorization", token)];
    let request = Request { headers, ip: Some("192.0.2.1"), ..Request::default() };
    match request.find(&policies("['jwt:sub', 'ip']", JWT)) {
        FoundKey::IfVerified { token: verify, key, otherwise } => {
            assert_eq!(otherwise.as_deref(), Some("ip:192.0.2.1"));
            assert_eq!(verify.keys, "JWT_KEYS");
            let token = token.strip_prefix("Bearer ").unwrap_or(token);
            assert_eq!(format!("{}.{}", verify.signed, verify.signature), token);
            Some((key, verify.algorithm, verify.key_id))
        }
        FoundKey::Known(key) => {
            assert_eq!(key.as_deref(), Some("ip:192.0.2.1"), "{token}");
            None
        }
    }
}

const HS256: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

#[test]
fn a_claim_is_the_key_only_if_the_token_is_verified() {
    let key = |sub: &str| Some((format!("jwt:sub:{sub}"), SignatureAlgorithm::Hs256, None));
    let of = |payload: &str| verified(&format!("Bearer {}", token(HS256, payload, 32)));
    assert_eq!(of(r#"{"sub":"alice"}"#), key("alice"));
    assert_eq!(of(r#"{"sub":"a/b"}"#), key("a%2Fb"));
    assert_eq!(of(r#"{"sub":42,"deep":[[{"sub":"x"}],1.5,true,null]}"#), key("42"));
    assert_eq!(of(r#"{"sub":-42}"#), key("-42"));
    assert_eq!(verified(&token(HS256, r#"{"sub":"bare"}"#, 32)), key("bare"));
    let es256 = token(r#"{"alg":"ES256","kid":"key 1"}"#, r#"{"sub":"a"}"#, 64);
    let expected = ("jwt:sub:a".to_string(), SignatureAlgorithm::Es256, Some("key 1".to_string()));
    assert_eq!(verified(&es256), Some(expected));
    for payload in [
        r#"{"sub":""}"#,
        r#"{"sub":1.5}"#,
        r#"{"sub":["alice"]}"#,
        r#"{"sub":null}"#,
        r#"{"other":"alice"}"#,
        r#"{"sub":"bob","sub":"alice"}"#,
        r#"{"sub":"bob","\u0073ub":"alice"}"#,
        r#"["alice"]"#,
        r#""alice""#,
        "",
        r#"{"sub":"alice"} x"#,
        r#"{"sub":"alice""#,
    ] {
        assert_eq!(of(payload), None, "{payload}");
    }
}

#[test]
fn a_token_that_may_not_be_believed_is_absent() {
    let payload = r#"{"sub":"alice"}"#;
    for (head, signature) in [
        (r#"{"alg":"none"}"#, 0),
        (r#"{"alg":"none"}"#, 32),
        (r#"{"alg":"None"}"#, 32),
        (r#"{"alg":"hs256"}"#, 32),
        (r#"{"alg":"HS512"}"#, 64),
        (r#"{"alg":"RS256"}"#, 256),
        (r#"{"alg":["HS256"]}"#, 32),
        (r#"{"typ":"JWT"}"#, 32),
        (r#"{"alg":"HS256","alg":"none"}"#, 32),
        (r#"{"alg":"HS256","crit":["b64"],"b64":false}"#, 32),
        (r#"{"alg":"HS256","kid":7}"#, 32),
        (r#"{"alg":"HS256","kid":"a\nb"}"#, 32),
        (HS256, 0),
        (HS256, 31),
        (HS256, 64),
        (r#"{"alg":"ES256"}"#, 70),
    ] {
        assert_eq!(verified(&token(head, payload, signature)), None, "{head} {signature}");
    }
    let long_kid = format!(r#"{{"alg":"HS256","kid":"{}"}}"#, "k".repeat(129));
    assert_eq!(verified(&token(&long_kid, payload, 32)), None);
    let good = token(HS256, payload, 32);
    let [head, claims, signature] = good.split('.').collect::<Vec<_>>().try_into().unwrap();
    for broken in [
        String::new(),
        "..".into(),
        ".".into(),
        "a.b.c".into(),
        format!("{head}.{claims}"),
        format!("{head}.{claims}.{signature}.{signature}"),
        format!("{head}.{claims}=.{signature}"),
        format!("{head}.{claims}.{signature}="),
        format!("{head}.{claims}.{}", signature.replace('w', "+")),
        format!("{head}.{claims}.{}9", &signature[..signature.len() - 1]),
        format!("{head} .{claims}.{signature}"),
        format!("Basic {good}"),
        format!("é{good}"),
    ] {
        assert_eq!(verified(&broken), None, "{broken}");
    }
}

#[test]
fn a_token_has_its_time() {
    let of = |claims: String| {
        verified(&token(HS256, &format!(r#"{{"sub":"a",{claims}}}"#), 32)).is_some()
    };
    for (seconds, is_current) in [
        (NOW_S + 1, true),
        (NOW_S - 59, true),
        (NOW_S - 60, false),
        (0, false),
        (u64::MAX / 4, true),
    ] {
        assert_eq!(of(format!("\"exp\":{seconds}")), is_current, "exp {seconds}");
    }
    for (seconds, is_current) in [(0, true), (NOW_S + 60, true), (NOW_S + 61, false)] {
        assert_eq!(of(format!("\"nbf\":{seconds}")), is_current, "nbf {seconds}");
    }
    for claims in ["\"exp\":\"9999999999\"", "\"exp\":-1", "\"exp\":9e99", "\"exp\":null"] {
        assert!(!of(claims.to_string()), "{claims}");
    }
}

#[test]
fn a_token_is_for_its_audience() {
    let file = format!("{JWT}issuer = 'https://a.example'\naudience = 'api'\n");
    let policies = policies("['jwt:sub', 'ip']", &file);
    let is_valid = |claims: &str| {
        let token = token(HS256, &format!(r#"{{"sub":"a",{claims}}}"#), 32);
        let headers = &[("authorization", token.as_str())];
        let request = Request { headers, ip: Some("192.0.2.1"), ..Request::default() };
        matches!(request.find(&policies), FoundKey::IfVerified { .. })
    };
    for (claims, valid) in [
        (r#""iss":"https://a.example","aud":"api""#, true),
        (r#""iss":"https://a.example","aud":["other","api"]"#, true),
        (r#""iss":"https://a.example","aud":["other"]"#, false),
        (r#""iss":"https://a.example","aud":[]"#, false),
        (r#""iss":"https://a.example","aud":["api",1]"#, false),
        (r#""iss":"https://a.example","aud":[["api"]]"#, false),
        (r#""iss":"https://a.example","aud":"api2""#, false),
        (r#""iss":"https://a.example","aud":"API""#, false),
        (r#""iss":"https://a.example","aud":null"#, false),
        (r#""iss":"https://a.example""#, false),
        (r#""iss":"https://a.example/","aud":"api""#, false),
        (r#""iss":["https://a.example"],"aud":"api""#, false),
        (r#""aud":"api""#, false),
        (r#""iss":"https://a.example","aud":"x","aud":"api""#, false),
    ] {
        assert_eq!(is_valid(claims), valid, "{claims}");
    }
}

#[test]
fn an_enormous_or_deep_token_is_absent() {
    let deep = format!(r#"{{"sub":"a","x":{}{}}}"#, "[".repeat(2_900), "]".repeat(2_900));
    assert!(token(HS256, &deep, 32).len() < 8_192);
    let _ = verified(&token(HS256, &deep, 32)); // either is right, and nothing overflows
    let long = format!(r#"{{"sub":"a","x":"{}"}}"#, "x".repeat(6_200));
    assert_eq!(verified(&token(HS256, &long, 32)), None);
    assert_eq!(verified(&".".repeat(1_000_000)), None);
    let claims = |bytes: usize| format!(r#"{{"sub":"a","x":"{}"}}"#, "x".repeat(bytes));
    let lengths = (6_000..6_200).map(|bytes| token(HS256, &claims(bytes), 32));
    let longest = lengths.filter(|token| token.len() <= 8_192).max_by_key(String::len).unwrap();
    assert_eq!(longest.len(), 8_192, "a token of the greatest length");
    assert!(verified(&longest).is_some());
}

#[test]
fn a_country_has_two_characters_and_is_known() {
    let key = |country| Request { country: Some(country), ..Request::default() }.key("['country']");
    assert_eq!(key("T1").as_deref(), Some("country:T1"), "the Tor network");
    for absent in ["", "C", "CHE", "C-", "é", "XX"] {
        assert_eq!(key(absent), None, "{absent}");
    }
}

#[test]
fn an_unverified_claim_says_so() {
    let token = unsigned(r#"{"sub":"alice","https://acme.example/tenant":"t:1"}"#);
    let headers = &[("authorization", token.as_str())];
    let request = Request { headers, ..Request::default() };
    let key = |sources| request.key(sources).unwrap();
    assert_eq!(key("['unverified_jwt:sub']"), "unverified_jwt:sub:alice");
    assert_eq!(
        key("['unverified_jwt:https://acme.example/tenant']"),
        "unverified_jwt:https%3A%2F%2Facme.example%2Ftenant:t:1"
    );
}

#[test]
fn a_token_may_be_in_a_cookie() {
    let token = token(HS256, r#"{"sub":"alice"}"#, 32);
    let cookie = format!("session={token}");
    let request = Request { headers: &[("cookie", &cookie)], ..Request::default() };
    let found = request.find(&policies("['jwt:sub']", &format!("{JWT}source = 'cookie:session'")));
    let FoundKey::IfVerified { key, otherwise, .. } = found else { panic!("{found:?}") };
    assert_eq!((key.as_str(), otherwise), ("jwt:sub:alice", None));
}

proptest! {
    #[test]
    fn every_key_that_is_found_can_be_counted_by(
        header in ".{0,200}",
        cookie in "[ -~]{0,100}",
        query in "[ -~]{0,100}",
        head in "\\PC{0,40}",
        payload in "\\PC{0,60}",
    ) {
        let token = token(&head, &payload, 32);
        let (cookie, query) = (format!("c={cookie}"), format!("q={query}"));
        let headers = [("x", header.as_str()), ("cookie", &cookie), ("authorization", &token)];
        let request = Request { query: &query, headers: &headers, ..Request::default() };
        for sources in ["['header:x']", "['cookie:c']", "['query:q']", "[['header:x', 'query:q']]", "['unverified_jwt:sub']"] {
            if let Some(key) = request.key(sources) {
                prop_assert!(tidegate_gate::check_key(&key).is_ok(), "{key}");
            }
        }
    }

    #[test]
    fn different_values_are_different_keys(
        one in "[%/:a-c]{1,30}", two in "[%/:a-c]{1,30}", three in "[%/:a-c]{1,30}", four in "[%/:a-c]{1,30}",
    ) {
        let key = |one: &str, two: &str| {
            let headers = [("x", one), ("y", two)];
            Request { headers: &headers, ..Request::default() }.key("[['header:x', 'header:y']]")
        };
        prop_assert_eq!(key(&one, &two) == key(&three, &four), (&one, &two) == (&three, &four));
    }
}
