use std::string::{String, ToString};

use super::{POLICIES, TOKEN, answer, header, policies, send};
use crate::http::{Access, Step};
use crate::policy::Policies;

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
        assert!(!matches!(send(method, target, &[TOKEN]), Step::Answer(_)));
        assert!(!matches!(
            send(method, target, &[("authorization", "bearer secret")]),
            Step::Answer(_)
        ));
    }
}

#[test]
fn a_token_that_no_header_could_bring_is_refused() {
    for token in [" a", "a ", "a\n", "\ta", "a\tb", "a\u{7f}", "ä", " "] {
        assert!(Access::new(&policies(), Some(token.into())).is_err(), "{token:?}");
    }
    for token in ["a", "a b", "a=", "!~"] {
        let access = Access::new(&policies(), Some(token.into())).unwrap();
        let authorization = std::format!("Bearer {token}");
        assert!(access.check(Some(&authorization)).is_ok(), "{token}");
    }
}

#[test]
fn without_a_token_all_is_shut_unless_the_file_says_otherwise() {
    let shut = Access::new(&policies(), None).unwrap();
    assert!(matches!(shut, Access::Shut));
    assert_eq!(shut.check(Some("Bearer ")).unwrap_err().status, 401);
    assert!(matches!(Access::new(&policies(), Some(String::new())), Ok(Access::Shut)));
    let open = Policies::parse(&("auth = \"none\"\n".to_string() + POLICIES)).unwrap();
    assert!(matches!(Access::new(&open, None), Ok(Access::Open)));
    assert!(matches!(Access::new(&open, Some("t".into())), Ok(Access::Token(_))));
}

#[test]
fn what_is_not_there_is_said_to_be_not_there() {
    assert_eq!(answer(send("GET", "/", &[TOKEN])).status, 404);
    let response = answer(send("GET", "/v1/check", &[TOKEN]));
    assert_eq!((response.status, header(&response, "allow")), (405, Some("POST")));
}
