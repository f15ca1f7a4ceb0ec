use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

use proptest::prelude::*;
use serde_json::Value as Oracle;

use crate::{Error, Form, Node, Value, form, json, toml};

/// A whole number from 1 to 5.
#[derive(Debug, PartialEq)]
struct Stars(u64);

impl Form for Stars {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        node.whole(1, 5).map(Self)
    }
}

form! {
    #[derive(Debug, PartialEq)]
    struct Sample {
        cost: Option<Stars> = None,
        mode: Option<Mode> = None,
        forms: Vec<Sample> = Vec::new(),
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Open,
    Closed,
    Ajar,
}

impl Form for Mode {
    fn read(node: &Node<'_>) -> Result<Self, Error> {
        node.one_of(&[("open", Self::Open), ("closed", Self::Closed), ("ajar", Self::Ajar)])
    }
}

/// The path and the message of the error.
fn wrong<T: Form + core::fmt::Debug>(text: &str) -> (String, String) {
    let error = json(text).and_then(|node| node.read::<T>()).unwrap_err();
    (error.path(), error.message("an object"))
}

#[test]
fn the_path_of_an_error_has_a_few_steps_however_deep_it_is() {
    let path = |text: &str| {
        let error = json(text).unwrap_err();
        error.path()
    };
    let lists = |number: usize| format!("{{\"x\":{}", "[".repeat(number));
    assert_eq!(path(&lists(7)), "x[0][0][0][0][0][0][0]");
    assert_eq!(path(&lists(8)), "x[0][0][0]…[0][0][0][0]");
    assert_eq!(path(&lists(1_000)), "x[0][0][0]…[0][0][0][0]");
    let names = "{\"a\":{\"b\":".repeat(100);
    assert_eq!(path(&names), "a.b.a.b….a.b.a.b");
    let long = format!("{{\"{}\":", "n".repeat(1_000)).repeat(200);
    assert!(path(&long).len() <= 600 + '…'.len_utf8(), "{}", path(&long));
}

#[test]
fn both_formats_make_the_same_form() {
    let form = |node: Result<Node<'_>, Error>| node.unwrap().read::<Sample>().unwrap();
    let expected = Sample {
        cost: Some(Stars(5)),
        mode: Some(Mode::Ajar),
        forms: [Sample { cost: None, mode: Some(Mode::Open), forms: Vec::new() }].into(),
    };
    assert_eq!(form(toml("cost = 0x5\nmode = 'ajar'\n[[forms]]\nmode = 'open'")), expected);
    let text = r#" {"cost":5, "mode":"aj\u0061r","forms":[ {"mode":"open","cost":null}]}"#;
    assert_eq!(form(json(text)), expected);
}

#[test]
fn a_wrong_value_is_named_after_what_was_expected() {
    for (found, named) in [
        ("6", "the integer `6`"),
        ("-6", "the integer `-6`"),
        ("1.5", "the number `1.5`"),
        ("1e0", "the number `1e0`"),
        ("-0", "the number `-0`"),
        ("18446744073709551616", "the number `18446744073709551616`"),
        ("true", "the boolean `true`"),
        ("null", "null"),
        ("[1]", "an array"),
        ("{}", "an object"),
        (r#""a \", expected `b`""#, r#"the string "a \", expected `b`""#),
    ] {
        let expected = format!("expected a whole number from 1 to 5, found {named}");
        assert_eq!(wrong::<Stars>(found), (String::new(), expected));
    }
}

#[test]
fn a_wrong_kind_of_value_is_named_after_the_kind_that_was_expected() {
    for (text, path, message) in [
        ("3", "", "expected an object, found the integer `3`"),
        ("[]", "", "expected an object, found an array"),
        (r#"{"mode":3}"#, "mode", "expected a string, found the integer `3`"),
        (r#"{"mode":{"open":null}}"#, "mode", "expected a string, found an object"),
        (r#"{"forms":{}}"#, "forms", "expected an array, found an object"),
        (
            r#"{"forms":[{},{"forms":[7]}]}"#,
            "forms[1].forms[0]",
            "expected an object, found the integer `7`",
        ),
    ] {
        assert_eq!(wrong::<Sample>(text), (path.to_string(), message.to_string()));
    }
}

#[test]
fn a_wrong_name_is_named_after_those_that_were_expected() {
    for (text, path, message) in [
        (
            r#"{"coost":1}"#,
            "coost",
            "expected one of `cost`, `mode`, `forms`; found the field \"coost\"",
        ),
        (
            r#"{"`, expected `x":1}"#,
            "`, expected `x",
            "expected one of `cost`, `mode`, `forms`; found the field \"`, expected `x\"",
        ),
        (r#"{"mode":"shut"}"#, "mode", "expected one of `open`, `closed`, `ajar`; found \"shut\""),
        (r#"{"cost":1,"cost":1}"#, "", "expected the field `cost` once, found it twice"),
    ] {
        assert_eq!(wrong::<Sample>(text), (path.to_string(), message.to_string()));
    }
}

/// Whether the JSON says the same, and each of its places leads back to the same byte of the TOML.
fn leads_back(of: &Node<'_>, to: &Node<'_>, back: &dyn Fn(usize) -> usize) -> bool {
    let is_same = match (&of.value, &to.value) {
        (Value::List(of), Value::List(to)) => {
            of.len() == to.len() && of.iter().zip(to).all(|(of, to)| leads_back(of, to, back))
        }
        (Value::Map(of), Value::Map(to)) => {
            let mut both = of.iter().zip(to);
            of.len() == to.len()
                && both.all(|(of, to)| {
                    of.name == to.name
                        && of.name_at == back(to.name_at)
                        && leads_back(&of.node, &to.node, back)
                })
        }
        (of, to) => format!("{of:?}") == format!("{to:?}"),
    };
    is_same && back(to.at) == of.at
}

#[test]
fn toml_as_json_says_the_same_and_leads_back_to_its_places() {
    // the tables are in another order than their names, and names and texts have characters of several bytes
    let text = "\"é\" = '\"\\\u{1f980}'\n\n[b.\"x y\"]\nn = -1\nl = [1, true,\n  { k = 0x10 }]\nf = -1.5e3\n[a]\n[[a.c]]\nt = \"\"\"\n\\u0001\"\"\"\n[[a.c]]\n[b]\nq = 9\n";
    let tree = toml(text).unwrap();
    let translation = tree.as_json().unwrap();
    let characters = |byte: usize| translation.json[..byte].chars().count() + 1;
    let back = |at: usize| {
        let (line, column) = translation.place(characters(at), text);
        let start: usize = text.split_inclusive('\n').take(line - 1).map(str::len).sum();
        start + text[start..].chars().take(column - 1).map(char::len_utf8).sum::<usize>()
    };
    assert!(leads_back(&tree, &json(&translation.json).unwrap(), &back), "{}", translation.json);
    assert!(!translation.json.contains('\n'));
}

#[test]
fn what_json_cannot_write_is_refused_in_its_place() {
    for (value, found) in [
        ("nan", "the number `nan`"),
        ("-inf", "the number `-inf`"),
        ("0xffffffffffffffffff", "the number `0xffffffffffffffffff`"),
        ("07:32:00", "a date or a time"),
    ] {
        let text = format!("a = [\n 1, {{ b = {value} }}]");
        let error = toml(&text).unwrap().as_json().unwrap_err();
        assert_eq!((error.line_and_column(&text), error.path()), ((2, 11), "a[1].b".to_string()));
        let expected = "expected a string, a whole number, a boolean, an array or a table; found ";
        assert_eq!(error.message("a table"), format!("{expected}{found}"));
    }
}

#[test]
fn toml_and_json_differ_in_one_word() {
    let toml = |text: &str| {
        let error = toml(text).and_then(|node| node.read::<Sample>()).unwrap_err();
        error.message("a table")
    };
    let expected = |found| format!("expected a whole number from 1 to 5, found {found}");
    assert_eq!(toml("cost = 6"), expected("the integer `6`"));
    assert_eq!(toml("cost = 0xff_ff"), expected("the integer `65535`"));
    assert_eq!(toml("cost = 0xffffffffffffffffff"), expected("the number `0xffffffffffffffffff`"));
    assert_eq!(toml("cost = 1979-05-27"), expected("a date or a time"));
    assert_eq!(toml("cost = nan"), expected("the number `nan`"));
    assert_eq!(toml("cost = {}"), expected("a table"));
    assert_eq!(toml("cost = []"), expected("an array"));
    assert_eq!(toml("cost = \"a\\nb\""), expected("the string \"a\\nb\""));
    assert_eq!(toml("forms = [3]"), "expected a table, found the integer `3`");
}

#[test]
fn an_error_is_where_its_value_or_its_name_begins() {
    let place = |text: &str| {
        let error = json(text).and_then(|node| node.read::<Sample>()).unwrap_err();
        error.line_and_column(text)
    };
    assert_eq!(place(" []"), (1, 2));
    assert_eq!(place("{\n  \"cost\": 6}"), (2, 11));
    assert_eq!(place("{\"forms\":\n[{},\t{\"cost\":\"\u{e9}\"}]}"), (2, 14));
    assert_eq!(place("{\"forms\":[{\"\u{e9}\":0}]}"), (1, 12));
    assert_eq!(place("{\"mode\":\"\u{e9}\" 1"), (1, 13));
    assert_eq!(place("{\"cost\":1"), (1, 10));
}

#[test]
fn a_long_text_is_cut() {
    let long = "x".repeat(100_000);
    for (path, message) in [
        wrong::<Stars>(&format!("\"{long}\"")),
        wrong::<Stars>(&"9".repeat(100_000)),
        wrong::<Sample>(&format!("{{\"{long}\":1}}")),
        wrong::<Sample>(&format!("{{\"mode\":\"{long}\"}}")),
    ] {
        assert!(message.starts_with("expected "), "{message}");
        assert!(message.len() < 700 && path.len() < 700, "{path}: {message}");
    }
}

#[test]
fn no_text_exhausts_the_stack() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let text = |depth| format!("{}0{}", open.repeat(depth), close.repeat(depth));
        assert!(json(&text(128)).is_ok());
        for depth in [129, 100_000] {
            let error = json(&text(depth)).unwrap_err();
            let expected = "expected at most 128 arrays and objects within each other, found more";
            assert_eq!(error.message("an object"), expected);
        }
    }
}

#[test]
fn a_text_that_is_no_json_is_refused_where_it_stops_to_be() {
    for (text, column, message) in [
        ("", 1, "a value, found the end of the text"),
        ("tru", 1, "a value, found `t`"),
        ("nulls", 5, "the end of the text, found `s`"),
        ("01", 2, "the end of the text, found `1`"),
        ("-", 2, "a digit, found the end of the text"),
        ("1.e", 3, "a digit, found `e`"),
        ("1e+", 4, "a digit, found the end of the text"),
        ("[1,]", 4, "a value, found `]`"),
        ("[1 2]", 4, "`,` or `]`, found `2`"),
        ("{\"a\":1,}", 8, "a name in quotes, found `}`"),
        ("{\"a\" 1}", 6, "`:`, found `1`"),
        ("{\"a\":1 \"b\"", 8, "`,` or `}`, found `\\\"`"),
        ("\"a", 3, "`\"`, found the end of the text"),
        ("\"\n\"", 2, "an escape such as `\\n` for each control character, found `\\n`"),
        ("\"\\x\"", 3, "one of `\"`, `\\`, `/`, `b`, `f`, `n`, `r`, `t`, `u`; found `x`"),
        ("\"\\u12g\"", 6, "a hexadecimal digit, found `g`"),
        ("\"\\ud800\"", 3, "two surrogates for one character, found one of them"),
        ("\"\\udc00\"", 3, "two surrogates for one character, found one of them"),
        ("\"\\ud800\\u0041\"", 3, "two surrogates for one character, found one of them"),
    ] {
        let error = json(text).unwrap_err();
        let found = (error.line_and_column(text), error.message("an object"));
        assert_eq!(found, ((1, column), format!("expected {message}")), "{text}");
    }
}

/// The same value as serde_json reads, which has no place.
fn same(node: &Node<'_>, oracle: &Oracle) -> bool {
    match (&node.value, oracle) {
        (Value::Null, Oracle::Null) => true,
        (Value::Bool(value), Oracle::Bool(other)) => value == other,
        (Value::Natural(number), Oracle::Number(other)) => other.as_u64() == Some(*number),
        (Value::Negative(number), Oracle::Number(other)) => other.as_i64() == Some(*number),
        (Value::Number(_), Oracle::Number(other)) => other.is_f64(),
        (Value::Text(text), Oracle::String(other)) => text == other,
        (Value::List(values), Oracle::Array(others)) => {
            values.len() == others.len()
                && values.iter().zip(others).all(|(node, other)| same(node, other))
        }
        (Value::Map(entries), Oracle::Object(others)) => {
            // of entries with one name, serde_json keeps the last
            let last = |name: &str| entries.iter().rev().find(|entry| entry.name == name);
            others
                .iter()
                .all(|(name, other)| last(name).is_some_and(|entry| same(&entry.node, other)))
                && entries.iter().all(|entry| others.contains_key(&*entry.name))
        }
        _ => false,
    }
}

/// Texts that are JSON, or nearly.
fn text() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(
        &[
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "\"",
            "\\",
            "\"a\"",
            "\"\":",
            "null",
            "true",
            "false",
            "0",
            "-",
            "1",
            "12",
            ".",
            "e",
            "E",
            "+",
            " ",
            "\n",
            "\t",
            "\u{1}",
            "\u{e9}",
            "\\u00e9",
            "\\ud83d",
            "\\ude00",
            "\\n",
            "\\/",
            "\u{2028}",
            "9007199254740993",
            "18446744073709551616",
            "-9223372036854775808",
            "-9223372036854775809",
            "/",
            "nul",
        ][..],
    );
    let any = prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat());
    let leaf = prop_oneof![
        any.clone(),
        "\"[a\\\\\"u0-9]{0,6}\"",
        "-?[0-9]{1,22}",
        "-?[0-9]{1,2}(\\.[0-9]{0,3})?([eE][+-]?[0-9]{0,2})?",
        Just("null".to_string()),
    ];
    let nested = leaf.prop_recursive(4, 24, 4, |inner| {
        let name = prop::sample::select(&["\"a\"", " \"b\" ", "\"\\u0061\"", "a"][..]);
        let list = prop::collection::vec(inner.clone(), 0..4);
        let map = prop::collection::vec((name, inner), 0..4);
        let entry = |(name, value): &(&str, String)| format!("{name}:{value}");
        prop_oneof![
            list.prop_map(|values| format!("[{}]", values.join(" ,"))),
            map.prop_map(move |all| format!(
                "{{{}}}",
                all.iter().map(entry).collect::<Vec<_>>().join(",")
            )),
        ]
    });
    prop_oneof![any, nested]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_096))]

    #[test]
    fn a_text_means_what_it_means_to_serde_json(text in text()) {
        match (json(&text), serde_json::from_str::<Oracle>(&text)) {
            (Ok(node), Ok(oracle)) => prop_assert!(same(&node, &oracle), "{}: {:?}, {:?}", text, node, oracle),
            (Err(error), Err(_)) => {
                let message = error.message("an object");
                prop_assert!(message.starts_with("expected ") && message.contains(" found "), "{}", message);
                prop_assert!(error.line_and_column(&text) >= (1, 1));
            }
            // serde_json refuses numbers beyond those of a float; here forms refuse them
            (Ok(_), Err(oracle)) => prop_assert!(oracle.to_string().starts_with("number out of range"), "{}: {}", text, oracle),
            (Err(error), Ok(_)) => prop_assert!(false, "{}: {}", text, error),
        }
    }
}
