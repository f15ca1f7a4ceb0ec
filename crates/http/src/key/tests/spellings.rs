//! Values that are written in several ways: each value has one key, and a value that two servers may read differently is
//! absent.

use std::format;

use super::Request;

#[track_caller]
fn check(source: &str, query: &str, headers: &[(&str, &str)], value: Option<&str>) {
    let expected = value.map(|value| format!("{source}:{value}"));
    let found = Request { query, headers, ..Request::default() }.key(&format!("['{source}']"));
    assert_eq!(found, expected, "{source} {query} {headers:?}");
}

#[test]
fn a_source_that_connection_names_is_absent() {
    for (connection, value) in [
        ("close", Some("a")),
        ("", Some("a")),
        ("x-api", Some("a")),
        ("x-api-key-2, keep-alive", Some("a")),
        ("x-api-key", None),
        ("close, X-Api-Key", None),
        ("keep-alive ,\tx-API-key ,", None),
    ] {
        let headers = [("x-api-key", "a"), ("connection", connection)];
        check("header:x-api-key", "", &headers, value);
    }
    let cookie = |connection| [("cookie", "sid=a"), ("connection", connection)];
    check("cookie:sid", "", &cookie("close"), Some("a"));
    check("cookie:sid", "", &cookie("close, Cookie"), None);
    let token = super::unsigned(r#"{"sub":"a"}"#);
    let bearer = format!("bearer\t {token} ");
    let token = |connection| [("authorization", bearer.as_str()), ("connection", connection)];
    check("unverified_jwt:sub", "", &token("close"), Some("a"));
    check("unverified_jwt:sub", "", &token("authorization"), None);
}

/// The proxies that the file trusts say who the client is, so no client may silence them.
#[test]
fn connection_does_not_hide_the_address_of_a_client() {
    let headers = &[("x-forwarded-for", "203.0.113.9"), ("connection", "x-forwarded-for")];
    let request = Request { headers, ip: Some("10.0.0.1"), ..Request::default() };
    let policies = super::policies("['ip']", "trusted_proxies = ['10.0.0.0/8']");
    let super::FoundKey::Known(key) = request.find(&policies) else { panic!() };
    assert_eq!(key.unwrap(), "ip:203.0.113.9");
}

#[test]
fn a_header_that_is_repeated_or_spelled_in_two_ways_is_absent() {
    for (value, found) in [
        ("a", Some("a")),
        ("a b;c=\"d\"", Some("a b;c=\"d\"")),
        ("a, b", None),
        ("a,b", None),
        ("a,", None),
    ] {
        check("header:x-api-key", "", &[("x-api-key", value)], found);
    }
    let browser = "Mozilla (X11) AppleWebKit (KHTML, like Gecko)";
    check("header:user-agent", "", &[("user-agent", browser)], Some(browser));
    for (other, value) in [
        ("x_api_key", None),
        ("x-api_key", None),
        ("x_api-key", None),
        ("x_apikey", Some("a")),
        ("x_api_key_", Some("a")),
    ] {
        check("header:x-api-key", "", &[("x-api-key", "a"), (other, "b")], value);
    }
    check("header:x_tenant", "", &[("x_tenant", "a"), ("x-tenant", "b")], None);
    check("header:x-api-key", "", &[("x_api_key", "a")], None);
    let longest = "a-b-c-d-e-f-g";
    check(&format!("header:{longest}"), "", &[(longest, "a"), ("a-b-c-d_e-f_g", "b")], None);
}

#[test]
fn a_cookie_has_one_key_however_it_is_encoded() {
    for (header, value) in [
        ("sid=abc", Some("abc")),
        ("sid=%61bc", Some("abc")),
        ("sid=%61%62%63", Some("abc")),
        ("sid=\"%61bc\"", Some("abc")),
        ("sid=s%3Aab%2b%2Fc.d", Some("s:ab+%2Fc.d")),
        ("sid=s%3aab+/c.d", Some("s:ab+%2Fc.d")),
        ("sid=%2561bc", Some("%2561bc")),
        ("sid=j%3A%7B%22a%22%3A%22b%22%7D", Some("j:{\"a\":\"b\"}")),
        ("sid=%c3%a9", Some("\u{e9}")),
        ("sid=%e9", None),
        ("sid=%c1%a1bc", None), // an overlong `a`
        ("sid=%zz", None),
        ("sid=100%", None),
        ("sid=%6", None),
        ("sid=a%20b", None),
        ("sid=abc%00", None),
        ("sid=%0aabc", None),
        ("sid=%22abc%22", None),
        ("sid=%", None),
    ] {
        check("cookie:sid", "", &[("cookie", header)], value);
    }
}

#[test]
fn a_name_that_some_server_reads_as_this_one_makes_the_source_ambiguous() {
    for header in [
        "s_d=a; s_d=b",
        "s_d=a; %73_d=b",
        "%73_d=b; s_d=a",
        "s_d=a; s%5fd=b",
        "s_d=a; S_D=b",
        "s_d=a; s.d=b",
        "s_d=a; s%2ed=b",
        "s_d=a; s d=b",
        "s_d=a; s+d=b",
        "s_d=a; s[d=b",
        "s_d=a; %20s_d=b",
        "%73_d=a",
        "S_D=a",
        "s.d=a",
    ] {
        check("cookie:s_d", "", &[("cookie", header)], None);
    }
    check("cookie:s_d", "", &[("cookie", "s_d=a; s-d=b; s_d2=c; xs_d=d")], Some("a"));
    for query in ["s_d=a&S_D=b", "s_d=a&s.d=b", "s_d=a&s+d=b", "s_d=a&s%5Bd=b", "s.d=a", "S_D=a"] {
        check("query:s_d", query, &[], None);
    }
    check("query:s_d", "s_d=a&s-d=b&s_d2=c", &[], Some("a"));
}

#[test]
fn a_field_of_the_query_has_one_value_for_every_server() {
    for (query, value) in [
        ("tok=a", Some("a")),
        ("tok=%61", Some("a")),
        ("%74ok=a", Some("a")), // every server decodes names
        ("x=1&tok=a+b", Some("a b")),
        ("x=1&tok=a%20b", Some("a b")),
        ("tok=a%3Bb", Some("a;b")),
        ("tok=a&x=1;y=2", Some("a")),
        ("x=1;y=2&tok=a", Some("a")),
        ("tok=a;tok=b", None),
        ("tok=a;x=1", None),
        ("tok=a;", None),
        ("x=1;tok=a", None),
        ("x=1;tok=a&tok=b", None),
        ("tok=a&x=1;tok=a", None),
        ("tok=a&tok=b", None),
        ("tok=%zz", None),
        ("tok=a%", None),
        ("tok=%ff", None),
        ("tok=", None),
        ("tok", None),
        ("tok&tok=a", None),
    ] {
        check("query:tok", query, &[], value);
    }
}

#[test]
fn credentials_have_one_key_however_they_are_written() {
    for (header, value) in [
        ("Bearer abc", Some("bearer abc")),
        ("bearer abc", Some("bearer abc")),
        ("BEARER   abc", Some("bearer abc")),
        ("Bearer\tabc", Some("bearer abc")),
        (" Bearer abc ", Some("bearer abc")),
        ("Bearer abc==", Some("bearer abc")),
        ("abc", Some("bearer abc")), // some servers take only the word `Bearer` off
        ("Bearer 7|Ab-c.d", Some("bearer 7|Ab-c.d")),
        ("Bearer abc def", None),
        ("Bearer \"abc\"", None),
        ("Bearer abc, Bearer def", None),
        ("Token abc", Some("token abc")),
        ("Basic dTpwPw==", Some("basic dTpwPw")),
        ("basic  dTpwPw", Some("basic dTpwPw")),
        ("Basic dTpwPw=", Some("basic dTpwPw")),
        ("Basic dTpwPx==", Some("basic dTpwPw")), // the last bits mean nothing
        ("Basic dTo_Pw==", Some("basic dTo_Pw")),
        ("Basic dTo/Pw==", Some("basic dTo_Pw")),
        ("Basic dTpw!Pw", None),
        ("Basic dTpwPwA=A", None),
        ("=", None),
        ("", None),
    ] {
        for name in ["authorization", "x-authorization"] {
            check(
                &format!("header:{name}"),
                "",
                &[(name, header)],
                value.map(|value| value.replace('/', "%2F")).as_deref(),
            );
        }
    }
    let headers = &[("host", "API.Example.com.")];
    check("header:host", "", headers, Some("api.example.com"));
}
