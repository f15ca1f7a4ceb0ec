//! What is wrong with a text or with a value in it.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::{self, Write};

use serde::de::{self, Expected, Unexpected};

use crate::quote::{Quoted, without_middle};

/// What is wrong with a text or with a value in it, and where.
///
/// The messages are in the words of all errors, "expected …, found …", and repeat no more of the text than a reader
/// needs.
#[derive(Debug)]
pub(crate) struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    at: Option<usize>,
    /// From the innermost to the outermost.
    path: Vec<Step>,
    message: Message,
}

#[derive(Debug)]
enum Step {
    Field(String),
    Place(usize),
}

#[derive(Debug)]
enum Message {
    Plain(String),
    Found { expected: Term, found: Term },
}

#[derive(Debug)]
pub(super) enum Term {
    /// TOML and JSON have their own words for a map.
    Map,
    Words(String),
}

impl Term {
    pub(super) fn of(words: impl fmt::Display) -> Self {
        Self::Words(words.to_string())
    }

    fn said<'a>(&'a self, map: &'a str) -> &'a str {
        match self {
            Self::Map => map,
            Self::Words(words) => words,
        }
    }
}

impl Error {
    pub(super) fn found(expected: Term, found: Term) -> Self {
        Self::new(Message::Found { expected, found })
    }

    pub(super) fn plain(message: String) -> Self {
        Self::new(Message::Plain(without_middle(message)))
    }

    fn new(message: Message) -> Self {
        Self(Box::new(Inner { at: None, path: Vec::new(), message }))
    }

    /// This error at the byte `at`, unless its place is known already.
    pub(super) fn at(mut self, at: usize) -> Self {
        self.0.at.get_or_insert(at);
        self
    }

    /// This error in the field of this name.
    pub(super) fn in_field(mut self, name: &str) -> Self {
        self.0.path.push(Step::Field(name.to_string()));
        self
    }

    /// This error in the value at this place of a list.
    pub(super) fn in_place(mut self, place: usize) -> Self {
        self.0.path.push(Step::Place(place));
        self
    }

    /// The line and the column of the error in its text, both from 1, the column in characters.
    pub(crate) fn line_and_column(&self, text: &str) -> (usize, usize) {
        let before = text.get(..self.0.at.unwrap_or(0)).unwrap_or(text);
        let start = before.rfind('\n').map_or(0, |at| at.saturating_add(1));
        let column = before.get(start..).unwrap_or_default().chars().count();
        (before.matches('\n').count().saturating_add(1), column.saturating_add(1))
    }

    /// The field, such as `policies.api.limits[0].rate`; empty at the top. A long path lacks its middle.
    pub(crate) fn path(&self) -> String {
        let mut path = String::new();
        for step in self.0.path.iter().rev() {
            let dot = if path.is_empty() { "" } else { "." };
            let _ = match step {
                Step::Field(name) => write!(path, "{dot}{name}"), // writing to a string cannot fail
                Step::Place(place) => write!(path, "[{place}]"),
            };
        }
        without_middle(path)
    }

    /// The message, such as "expected a number, found a text". `map` is the format's word for a map.
    pub(crate) fn message(&self, map: &str) -> String {
        let Message::Found { expected, found } = &self.0.message else {
            return self.to_string();
        };
        let (expected, found) = (expected.said(map), found.said(map));
        let stop = if expected.contains(", ") { ';' } else { ',' };
        format!("expected {expected}{stop} found {found}")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.message {
            Message::Plain(message) => f.write_str(message),
            Message::Found { .. } => f.write_str(&self.message("a map")),
        }
    }
}

impl core::error::Error for Error {}

impl de::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::plain(message.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::found(self::expected(expected), self::found(found))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn unknown_variant(found: &str, expected: &'static [&'static str]) -> Self {
        Self::found(Term::Words(one_of(expected)), Term::of(Quoted(found)))
    }

    fn unknown_field(found: &str, expected: &'static [&'static str]) -> Self {
        let found = format!("the field {}", Quoted(found));
        Self::found(Term::Words(one_of(expected)), Term::Words(found))
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self::plain(format!("expected the field `{field}` once, found it twice"))
    }
}

/// What serde expects, in the words of policy files and JSON. The code that serde derives names Rust's types.
pub(super) fn expected(expected: &dyn Expected) -> Term {
    match expected.to_string() {
        words if words.starts_with("struct ") => Term::Map,
        words if words.starts_with("enum ") => Term::of("a string"),
        words if words == "enum" => Term::of("one field"),
        words if words == "a sequence" => Term::of("an array"),
        words => Term::Words(words),
    }
}

/// What serde calls an unexpected value, in the words of policy files and JSON.
pub(super) fn found(found: Unexpected<'_>) -> Term {
    Term::Words(match found {
        Unexpected::Map => return Term::Map,
        Unexpected::Seq => "an array".to_string(),
        Unexpected::Unit | Unexpected::Option => "null".to_string(),
        Unexpected::Bool(value) => format!("the boolean `{value}`"),
        Unexpected::Unsigned(value) => format!("the integer `{value}`"),
        Unexpected::Signed(value) => format!("the integer `{value}`"),
        Unexpected::Str(value) => format!("the string {}", Quoted(value)),
        _ => "another value".to_string(), // no tree has any
    })
}

fn one_of(names: &[&str]) -> String {
    match names {
        [] => "no field".to_string(),
        [one] => format!("`{one}`"),
        [one, other] => format!("`{one}` or `{other}`"),
        _ => format!("one of `{}`", names.join("`, `")),
    }
}
