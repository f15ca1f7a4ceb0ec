use std::string::{String, ToString};
use std::vec::Vec;

use tidegate_gate::Policies;

use super::{POLICIES, TOKEN, answer, header, json, policies, send, sent};
use crate::{Access, Exchange, Served, Step, Tokens, Watched, misconfigured};

#[test]
fn only_health_is_open_to_everyone() {
    assert_eq!(answer(send("GET", "/healthz", &[])).status, 200);
    for target in ["/v1/check", "/v1/gate?policy=api&key=k"] {
        let method = if target == "/v1/check" { "POST" } else { "GET" };
        for headers in [
            &[][..],
            &[("authorization", "Bearer wrong")],
            &[("authorization", "Bearer ")],
            &[("authorization", "secret")],
            &[("authorization", "Basic secret")],
        ] {
            let response = answer(send(method, target, headers));
            assert_eq!(response.status, 401, "{target} {headers:?}");
            assert_eq!(header(&response, "www-authenticate"), Some("Bearer"));
        }
        assert!(!is_unauthorized(send(method, target, &[TOKEN])));
        assert!(!is_unauthorized(send(method, target, &[("authorization", "bearer secret")])));
    }
}

#[test]
fn a_server_that_only_its_machine_can_reach_stays_open_under_another_file() {
    let open = Access::OPEN.under(&policies()).under(&policies());
    assert!(!is_unauthorized(sent(&policies(), &open, ADMINISTRATION[0], &[])));
    assert!(!open.is_shut());
}

#[test]
fn a_server_says_whether_its_store_can_decide() {
    let probed = |outcome: Result<Vec<String>, String>| {
        let mut exchange = send("GET", "/readyz", &[]);
        assert!(matches!(exchange.step(), Step::Probe), "no token is needed");
        exchange.probed(outcome);
        answer(exchange)
    };
    let ready = probed(Ok(Vec::new()));
    assert_eq!((ready.status, ready.body.contains("warnings")), (200, false));
    let warned = probed(Ok(["soon".to_string()].into()));
    assert!(warned.body.contains(r#""warnings":["soon"]"#), "{warned:?}");
    let away = probed(Err("the store is unavailable".to_string()));
    assert_eq!(away.status, 503);
    assert!(away.body.contains(r#""detail":"the store is unavailable""#), "{away:?}");
}

#[test]
fn a_server_tells_what_is_asked_about_it_or_why_it_cannot() {
    for (target, expected) in [
        ("/v1/top", (Watched::Top, false)),
        ("/v1/top?keys=clear", (Watched::Top, true)),
        ("/v1/status?keys=hashed", (Watched::Status, false)),
        ("/v1/status?keys=clear", (Watched::Status, true)),
    ] {
        let mut told = send("GET", target, &[("authorization", "Bearer admin")]);
        let Step::Watch { what, clear } = told.step() else { panic!("{target}") };
        assert_eq!((what, clear), expected, "{target}");
        told.watched(Ok("{}".to_string()));
        let told = answer(told);
        assert_eq!((told.status, told.body.as_str()), (200, "{}"));
        assert_eq!(header(&told, "content-type"), Some("application/json"));
    }
    let mut unknown = send("GET", "/v1/top", &[("authorization", "Bearer secret")]);
    unknown.watched(Err("the lists are away".to_string()));
    let unknown = answer(unknown);
    assert_eq!((unknown.status, &json(&unknown)["type"]), (503, &"urn:tidegate:not-ready".into()));
    assert_eq!(json(&unknown)["detail"], "the lists are away");
}

fn is_unauthorized(mut exchange: Exchange) -> bool {
    matches!(exchange.step(), Step::Done(Served::Response(response)) if response.status == 401)
}

const ADMINISTRATION: [(&str, &str); 2] =
    [("DELETE", "/v1/keys/api/k"), ("POST", "/v1/keys/api/k/block")];

fn access(file: &str, decisions: Option<&str>, administration: Option<&str>) -> Access {
    let policies = Policies::parse(&(file.to_string() + POLICIES)).unwrap();
    let tokens = Tokens {
        decisions: decisions.map(String::from),
        administration: administration.map(String::from),
    };
    Access::new(&policies, tokens).unwrap()
}

/// Whether a caller with this token may check a key, and whether it may reset and block the key.
fn rights(access: &Access, token: Option<&str>) -> (bool, bool) {
    let authorization = token.map(|token| std::format!("Bearer {token}"));
    let headers: Vec<_> = authorization.iter().map(|it| ("authorization", it.as_str())).collect();
    let may = |call: &(&str, &str)| !is_unauthorized(sent(&policies(), access, *call, &headers));
    let administration = ADMINISTRATION.each_ref().map(may);
    assert!(administration.iter().all(|may| *may == administration[0]), "{administration:?}");
    let decisions = [
        ("POST", "/v1/check"),
        ("GET", "/v1/keys/api/k"),
        ("GET", "/v1/top"),
        ("GET", "/v1/status?keys=hashed"),
    ];
    let decisions = decisions.each_ref().map(may);
    assert!(decisions.iter().all(|may| *may == decisions[0]), "{decisions:?}");
    (decisions[0], administration[0])
}

#[test]
fn a_token_that_no_header_could_bring_is_refused() {
    let tokens = |token: &str, administration: &str| Tokens {
        decisions: Some(token.into()),
        administration: Some(administration.into()),
    };
    for token in ["", " a", "a ", "a\n", "\ta", "a\tb", "a\u{7f}", "ä", " "] {
        let error = Access::new(&policies(), tokens(token, "a")).unwrap_err();
        assert!(error.to_string().starts_with("TIDEGATE_TOKEN: expected"), "{token:?}: {error}");
        let error = Access::new(&policies(), tokens("a", token)).unwrap_err();
        assert!(error.to_string().starts_with("TIDEGATE_ADMIN_TOKEN: expected"), "{error}");
    }
    let empty = Access::new(&policies(), tokens("", "a")).unwrap_err().to_string();
    assert!(empty.contains("found an empty text; leave it out"), "{empty}");
    for token in ["a", "a b", "a=", "!~"] {
        assert_eq!(rights(&access("", Some(token), None), Some(token)), (true, false), "{token}");
        assert_eq!(rights(&access("", None, Some(token)), Some(token)), (true, true), "{token}");
    }
}

#[test]
fn each_token_gives_the_rights_of_its_scope() {
    let nobody = access("", None, None);
    assert!(nobody.is_shut());
    let (one, both) = (access("", Some("t"), None), access("", Some("t"), Some("a")));
    let same = access("", Some("t"), Some("t"));
    for (access, token, expected) in [
        (&nobody, Some(""), (false, false)),
        (&nobody, None, (false, false)),
        (&one, None, (false, false)),
        (&one, Some("t"), (true, false)),
        (&both, None, (false, false)),
        (&both, Some("t"), (true, false)),
        (&both, Some("a"), (true, true)),
        (&both, Some("x"), (false, false)),
        (&both, Some(""), (false, false)),
        (&same, Some("t"), (true, true)),
    ] {
        assert_eq!(rights(access, token), expected, "{access:?} {token:?}");
    }
    let refusal =
        answer(sent(&policies(), &one, ADMINISTRATION[0], &[("authorization", "Bearer t")]));
    assert!(refusal.body.contains("set TIDEGATE_ADMIN_TOKEN"), "{}", refusal.body);
}

#[test]
fn the_file_opens_what_has_no_token() {
    let file = "auth = \"none\"\n";
    assert_eq!(rights(&Access::OPEN, None), (true, true));
    assert_eq!(rights(&access(file, None, None), None), (true, true));
    let administrated = access(file, None, Some("a"));
    assert_eq!(rights(&administrated, None), (true, false));
    assert_eq!(rights(&administrated, Some("a")), (true, true));
    assert_eq!(rights(&access(file, Some("t"), None), None), (false, false));
}

#[test]
fn no_page_of_a_browser_administrates_a_server_without_a_token() {
    let file = "auth = \"none\"\n";
    let of_a_page: [&[(&str, &str)]; 7] = [
        &[("origin", "https://evil.example")],
        &[("origin", "null")],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
        // a name that is bound to another address is of the same origin, too
        &[("origin", "http://evil.example:8080"), ("host", "evil.example:8080")],
        &[("sec-fetch-site", "same-origin"), ("host", "evil.example:8080")],
        &[("origin", "http://127.0.0.1:8080"), ("host", "127.0.0.1:8080")],
    ];
    let may = |access: &Access, call, headers: &[(&str, &str)]| {
        !is_unauthorized(sent(&policies(), access, call, headers))
    };
    for open in [&Access::OPEN, &access(file, None, None)] {
        for call in ADMINISTRATION {
            for headers in of_a_page {
                assert!(!may(open, call, headers), "{call:?} {headers:?}");
            }
            for headers in [&[][..], &[("sec-fetch-site", "none")], &[("host", "name")]] {
                assert!(may(open, call, headers), "no page sends {headers:?}");
            }
        }
        // a proxy that asks before it lets a request pass sends the fields of the request
        for headers in of_a_page {
            assert!(may(open, ("GET", "/v1/gate?policy=api&key=k"), headers), "{headers:?}");
        }
    }
    let administrated = access(file, None, Some("a"));
    for headers in of_a_page {
        let with_token = [headers, &[("authorization", "Bearer a")]].concat();
        assert!(may(&administrated, ADMINISTRATION[0], &with_token), "no page knows a token");
    }
    let headers = [("origin", "https://evil.example")];
    let refusal = answer(sent(&policies(), &Access::OPEN, ADMINISTRATION[1], &headers));
    let detail = super::json(&refusal)["detail"].to_string();
    assert!(
        detail.contains("found `Origin`") && detail.contains("TIDEGATE_ADMIN_TOKEN"),
        "{detail}"
    );
}

#[test]
fn what_is_not_there_is_said_to_be_not_there() {
    assert_eq!(answer(send("GET", "/", &[TOKEN])).status, 404);
    let response = answer(send("GET", "/v1/check", &[TOKEN]));
    assert_eq!((response.status, header(&response, "allow")), (405, Some("POST")));
}

#[test]
fn only_the_token_for_administration_may_change_the_policies_or_see_keys_in_clear() {
    let open = access("auth = 'none'\n", None, None);
    let both = access("", Some("secret"), Some("admin"));
    let may = |access: &Access, call: &(&str, &str), token: Option<&str>| {
        let authorization = token.map(|token| std::format!("Bearer {token}"));
        let headers: Vec<_> =
            authorization.iter().map(|it| ("authorization", it.as_str())).collect();
        !is_unauthorized(sent(&policies(), access, *call, &headers))
    };
    for call in [
        ("PUT", "/v1/policies"),
        ("POST", "/v1/policies/restore"),
        ("GET", "/v1/policies/history"),
        ("GET", "/v1/policies/file"),
        ("GET", "/v1/top?keys=clear"),
        ("GET", "/v1/status?keys=clear"),
    ] {
        for access in [&Access::OPEN, &open] {
            assert!(!may(access, &call, None), "{call:?}");
        }
        assert!(!may(&both, &call, Some("secret")), "{call:?}");
        assert!(may(&both, &call, Some("admin")), "{call:?}");
    }
    let shown = ("GET", "/v1/policies");
    assert!(may(&open, &shown, None) && may(&both, &shown, Some("secret")));
    assert!(!may(&both, &shown, None));
}

#[test]
fn a_server_without_its_configuration_tells_no_client_why() {
    for (path, status, body) in [
        ("/v1/check", 500, "\"urn:tidegate:internal-error\""),
        ("/healthz", 503, "{\"status\":\"unhealthy\"}"),
        ("/_tidegate/healthz", 503, "{\"status\":\"unhealthy\"}"),
    ] {
        let response = misconfigured(path);
        assert_eq!(response.status, status, "{path}");
        assert!(response.body.contains(body), "{path}: {response:?}");
    }
}

#[test]
fn who_may_change_the_policies_and_whether_anybody_may_do_anything() {
    for (decisions, administration, changes, is_shut) in [
        (None, None, false, true),
        (Some("t"), None, false, false),
        (None, Some("a"), true, false),
        (Some("t"), Some("a"), true, false),
    ] {
        let access = access("", decisions, administration);
        let found = (access.lets_policies_change(), access.is_shut());
        assert_eq!(found, (changes, is_shut), "{access:?}");
    }
    let open = access("auth = 'none'\n", None, None);
    assert_eq!((open.lets_policies_change(), open.is_shut()), (false, false));
}

#[test]
fn a_refusal_says_which_token_is_missing() {
    let bearer = |token: &str| std::format!("Bearer {token}");
    let detail = |access: &Access, call: (&str, &str), token: Option<&str>| {
        let authorization = token.map(bearer);
        let headers: Vec<_> =
            authorization.iter().map(|it| ("authorization", it.as_str())).collect();
        super::json(&answer(sent(&policies(), access, call, &headers)))["detail"].to_string()
    };
    let (check, reset) = (("POST", "/v1/check"), ADMINISTRATION[0]);
    let (nobody, callers) = (access("", None, None), access("", Some("t"), None));
    let administrators = access("", None, Some("a"));
    for (access, call, token, expected) in [
        (&nobody, check, None, "set TIDEGATE_TOKEN, or auth"),
        (&nobody, check, Some("x"), "set TIDEGATE_TOKEN, or auth"),
        (&nobody, reset, None, "set TIDEGATE_ADMIN_TOKEN"),
        (&callers, check, None, "found no bearer token"),
        (&callers, check, Some("x"), "expected the configured bearer token, found another"),
        (&callers, reset, Some("t"), "set TIDEGATE_ADMIN_TOKEN"),
        (&administrators, reset, None, "found no bearer token"),
        (&administrators, reset, Some("x"), "expected the bearer token for administration"),
    ] {
        let found = detail(access, call, token);
        assert!(found.contains(expected), "{call:?} {token:?}: {found}");
    }
}

#[test]
fn what_is_written_of_access_in_a_log_has_no_token() {
    let tokens = Tokens { decisions: Some("secret".into()), administration: None };
    let written = std::format!("{tokens:?}");
    assert_eq!(written, "Tokens { decisions: Some(\"…\"), administration: None }");
    let access = std::format!("{:?}", access("", Some("secret"), Some("admin")));
    assert!(access.starts_with("Access { tokens: Tokens {"), "{access}");
    assert!(access.ends_with("open_to_all: None }"), "{access}");
    assert!(!access.contains("secret") && !access.contains("admin\""), "{access}");
}

#[test]
fn the_version_of_a_file_is_read_from_the_query() {
    let wanted = |method: &str, target: &str| {
        let mut exchange = send(method, target, &[("authorization", "Bearer admin")]);
        match exchange.step() {
            Step::Body => {
                exchange.body(Ok(Vec::new()), &mut || None);
                std::format!("{:?}", exchange.step())
            }
            step => std::format!("{step:?}"),
        }
    };
    for (query, version) in [("", "None"), ("?version=3", "Some(3)")] {
        let file = wanted("GET", &std::format!("/v1/policies/file{query}"));
        assert_eq!(file, std::format!("Change(File({version}))"));
        let restored = wanted("POST", &std::format!("/v1/policies/restore{query}"));
        assert!(restored.contains(&std::format!("Version({version})")), "{restored}");
    }
    for query in ["?version=0", "?version=x", "?version=", "?other=1"] {
        let refused = answer(send(
            "GET",
            &std::format!("/v1/policies/file{query}"),
            &[("authorization", "Bearer admin")],
        ));
        assert_eq!(refused.status, 400, "{query}: {}", refused.body);
    }
}

#[test]
fn keys_are_hashed_or_clear() {
    let expected = "the query field `keys`: expected `hashed` or `clear`, found";
    for target in ["/v1/top?keys=", "/v1/status?keys=all"] {
        let response = answer(send("GET", target, &[TOKEN]));
        assert!(response.status == 400 && response.body.contains(expected), "{response:?}");
    }
}
