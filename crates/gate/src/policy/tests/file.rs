//! Errors in the file as a whole.

use std::string::{String, ToString};

use super::{JSON, TOML};
use crate::policy::Policies;

#[test]
fn a_mark_of_the_byte_order_is_no_part_of_the_file() {
    for text in [TOML, JSON] {
        let marked = std::format!("\u{feff}{text}");
        assert_eq!(Policies::parse(&marked).unwrap(), Policies::parse(text).unwrap());
    }
    let error = Policies::parse("\u{feff}[policies.a]\nlimits = []").unwrap_err();
    assert_eq!((error.line, error.column), (1, 1));
}

#[test]
fn what_is_no_json_has_the_path_that_led_there() {
    for (text, path) in [
        ("{", ""),
        ("{\"policies\":{\"a\":{\"limits\":[{\"algorithm\" x", "policies.a.limits[0]"),
        ("{\"policies\":{\"a\" x", "policies"),
    ] {
        let error = Policies::parse(text).unwrap_err();
        assert_eq!(error.path, path, "{error}");
    }
}

#[test]
fn errors_in_json_have_their_place() {
    let text = JSON.replace("\"5/15m\"", "\"0/s\"");
    let error = Policies::parse(&text).unwrap_err();
    assert_eq!((error.line, error.path.as_str()), (12, "policies.login.limits[0].rate"));
    assert!(error.message.ends_with("; found \"0/s\""), "{error}");
    assert!(!error.message.contains("at line"), "{error}");
}

#[test]
fn a_list_is_no_table_however_well_its_fields_are_ordered() {
    let limit = "{\"algorithm\":\"fixed_window\",\"limit\":1,\"period\":\"1s\"}";
    let limits = std::format!("\"limits\":[{limit}]");
    let file = |policies: &str| std::format!("{{\"policies\":{policies}}}");
    for (text, path) in [
        (file(&std::format!("{{\"a\":[null,[{limit}]]}}")), "policies.a"),
        (file("{\"a\":[]}"), "policies.a"),
        (file("{\"a\":{\"limits\":[[\"fixed_window\"]]}}"), "policies.a.limits[0]"),
        (
            file(&std::format!("{{\"a\":{{{limits},\"overrides\":{{\"k\":[null,null]}}}}}}")),
            "policies.a.overrides.k",
        ),
        (file(&std::format!("{{\"a\":{{{limits},\"cost\":[\"x-cost\"]}}}}")), "policies.a.cost"),
        ("policies = []".into(), "policies"),
        ("[policies]\na = ['d', []]".into(), "policies.a"),
    ] {
        let error = Policies::parse(&text).expect_err(&text);
        assert_eq!(error.path, path, "{error}");
        assert!(error.message.starts_with("expected a"), "{error}");
        assert!(error.message.ends_with(" found an array"), "{error}");
        assert!(!error.message.contains("struct"), "{error}");
    }
}

#[test]
fn null_stands_for_an_absent_field_that_has_no_default_value() {
    let limit = "{\"algorithm\":\"fixed_window\",\"limit\":9,\"period\":\"1s\"";
    let file = |nulls: [&str; 3]| {
        let [limits, policy, cost] = nulls;
        std::format!(
            "{{\"policies\":{{\"a\":{{\"limits\":[{limit}{limits}}}],\"cost\":{{\"header\":\"x\"{cost}}}{policy}}}}}}}"
        )
    };
    let without = Policies::parse(&file([""; 3])).unwrap();
    let null = file([",\"rate\":null", ",\"remember\":null", ",\"default\":null"]);
    assert_eq!(Policies::parse(&null).unwrap(), without);
    let error = Policies::parse(&file(["", ",\"shadow\":null", ""])).unwrap_err();
    assert_eq!(error.path, "policies.a.shadow");
    assert_eq!(error.message, "expected a boolean, found null");
}

#[test]
fn two_policies_of_one_name_are_an_error() {
    let limits = "{\"limits\":[{\"algorithm\":\"fixed_window\",\"limit\":1,\"period\":\"1s\"}]}";
    let text = std::format!("{{\"policies\":{{\"a\":{limits},\"a\":{limits}}}}}");
    let error = Policies::parse(&text).unwrap_err();
    assert_eq!(error.message, "expected each name once, found \"a\" twice");
    assert!(Policies::parse("[policies.a]\nlimits = []\n[policies.a]\nlimits = []").is_err());
}

#[test]
fn what_is_no_policy_file_is_an_error() {
    for text in
        ["", "x", "{", "{}", "[policies]\n\"a b\" = 1", "policies = 3", "{\"policies\":{}} x"]
    {
        assert!(Policies::parse(text).is_err() || text.is_empty(), "{text}");
    }
    assert_eq!(Policies::parse("").unwrap_err().message, "missing field `policies`");
    for empty in ["[policies]", "{\"policies\":{}}"] {
        let error = Policies::parse(empty).unwrap_err();
        assert_eq!(
            (error.line, error.message.as_str()),
            (1, "expected at least one policy, found none")
        );
    }
    let deep: String = core::iter::repeat_n('[', 100_000).collect();
    assert!(Policies::parse(&std::format!("a = {deep}")).is_err());
    assert!(Policies::parse(&std::format!("{{\"a\":{deep}")).is_err());
}

#[test]
fn an_error_reads_as_one_line() {
    let text =
        "[policies.api]\nlimits = [{ algorithm = 'fixed_window', limit = 0, period = '1s' }]";
    assert_eq!(
        Policies::parse(text).unwrap_err().to_string(),
        "line 2, column 49: policies.api.limits[0].limit: expected a whole number from 1 to \
         9007199254740991, found the integer `0`"
    );
}
