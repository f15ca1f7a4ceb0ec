//! serde's messages in the words of all other errors: "expected …, found …".

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString};

use crate::quote::{Quoted, without_middle};

/// serde's message about a value or a field as "expected …, found …". `None` for any other message.
///
/// serde repeats the caller's text in full; this repeats no more of it than a reader needs. `map` is
/// the format's own word for a map: "an object" in JSON, "a table" in TOML.
pub(crate) fn reworded(message: &str, map: &str) -> Option<String> {
    // what was found may contain this too, but what is expected never does
    let (found, expected) = message.rsplit_once(", expected ")?;
    let named = |prefix| found.strip_prefix(prefix)?.strip_suffix('`').map(Quoted);
    let found = if let Some(field) = named("unknown field `") {
        format!("the field {field}")
    } else if let Some(variant) = named("unknown variant `") {
        variant.to_string()
    } else {
        let types = ["invalid type: ", "invalid value: "];
        value(types.iter().find_map(|prefix| found.strip_prefix(prefix))?, map)
    };
    let stop = if expected.contains(", ") { ';' } else { ',' };
    Some(format!("expected {expected}{stop} found {found}"))
}

/// A JSON error in these words. Where they do not apply, the message keeps its line and column.
pub(crate) fn of_json(error: &serde_json::Error) -> String {
    let message = error.to_string();
    reworded(without_place(&message, error), "an object").unwrap_or_else(|| without_middle(message))
}

/// The message without its line and column.
pub(crate) fn without_place<'a>(message: &'a str, error: &serde_json::Error) -> &'a str {
    let place = format!(" at line {} column {}", error.line(), error.column());
    message.strip_suffix(place.as_str()).unwrap_or(message)
}

/// What serde calls an unexpected value, in the words of policy files and JSON.
fn value(found: &str, map: &str) -> String {
    let plain: Cow<'_, str> = match found {
        "map" => return map.to_string(),
        "sequence" => return "an array".to_string(),
        "null" | "unit value" => return "null".to_string(),
        _ => match found.strip_prefix("floating point ") {
            Some(number) => format!("number {number}").into(),
            None => found.into(),
        },
    };
    without_middle(format!("the {plain}"))
}

#[cfg(test)]
mod tests {
    use std::format;
    use std::string::ToString;

    use serde::Deserialize;
    use serde::de::DeserializeOwned;

    use super::{of_json, reworded};
    use crate::policy::Whole;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Form {
        #[serde(rename = "cost")]
        _cost: Option<Whole<1, 5>>,
        #[serde(rename = "mode")]
        _mode: Option<Mode>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Mode {
        Open,
        Closed,
        Ajar,
    }

    fn json<T: DeserializeOwned + std::fmt::Debug>(text: &str) -> std::string::String {
        of_json(&serde_json::from_str::<T>(text).unwrap_err())
    }

    #[test]
    fn a_wrong_value_is_named_after_what_was_expected() {
        for (found, named) in [
            ("6", "the integer `6`"),
            ("-6", "the integer `-6`"),
            ("1.5", "the number `1.5`"),
            ("true", "the boolean `true`"),
            ("null", "null"),
            ("[1]", "an array"),
            ("{}", "an object"),
            (r#""a \", expected `b`""#, r#"the string "a \", expected `b`""#),
        ] {
            let expected = format!("expected a whole number from 1 to 5, found {named}");
            assert_eq!(json::<Whole<1, 5>>(found), expected);
        }
    }

    #[test]
    fn a_wrong_name_is_named_after_those_that_were_expected() {
        assert_eq!(
            json::<Form>(r#"{"coost":1}"#),
            "expected `cost` or `mode`, found the field \"coost\""
        );
        assert_eq!(
            json::<Form>(r#"{"mode":"shut"}"#),
            "expected one of `open`, `closed`, `ajar`; found \"shut\""
        );
        let hostile = r#"{"`, expected `x":1}"#;
        assert!(json::<Form>(hostile).starts_with("expected `cost` or `mode`, found the field"));
    }

    #[test]
    fn toml_and_json_differ_in_one_word() {
        let toml = |text: &str| {
            let error = toml::from_str::<Form>(text).unwrap_err();
            reworded(error.message().trim_end(), "a table")
        };
        let expected = |found| Some(format!("expected a whole number from 1 to 5, found {found}"));
        assert_eq!(toml("cost = 6"), expected("the integer `6`"));
        assert_eq!(toml("cost = {}"), expected("a table"));
        assert_eq!(toml("cost = []"), expected("an array"));
        assert_eq!(toml("cost = \"a\\nb\""), expected("the string \"a\\nb\""));
    }

    #[test]
    fn a_long_text_is_cut() {
        let long = "x".repeat(100_000);
        for json in [
            json::<Whole<1, 5>>(&format!("\"{long}\"")),
            json::<Form>(&format!("{{\"{long}\":1}}")),
            json::<Form>(&format!("{{\"mode\":\"{long}\"}}")),
        ] {
            assert!(json.starts_with("expected ") && json.len() < 700, "{json}");
        }
    }

    #[test]
    fn any_other_message_stays_as_it_is() {
        for other in ["", "missing field `cost`", "expected `,`, expected `}`", "unknown field `x`"]
        {
            assert_eq!(reworded(other, "a table"), None, "{other}");
        }
        assert_eq!(json::<Form>("{"), "EOF while parsing an object at line 1 column 1");
        let twice = json::<Form>(r#"{"cost":1,"cost":1}"#);
        assert_eq!(twice.to_string(), "duplicate field `cost` at line 1 column 16");
    }
}
