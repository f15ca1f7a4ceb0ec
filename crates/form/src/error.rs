//! What is wrong with a text or with a value in it.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::{self, Write};

use crate::quote::{start_of, without_middle};

/// What is wrong with a text or with a value in it, and where.
///
/// The messages are in the words of all errors, "expected …, found …", and repeat no more of the text than a reader
/// needs.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    at: Option<usize>,
    /// From the innermost to the outermost.
    path: Vec<PathStep>,
    message: Message,
}

/// The most steps of a path that an error repeats.
const MOST_STEPS: usize = 8;

#[derive(Debug)]
enum PathStep {
    Field(String),
    Place(usize),
}

#[derive(Debug)]
enum Message {
    Plain(String),
    Found { expected: Term, found: Term },
}

#[derive(Debug)]
pub(crate) enum Term {
    /// TOML and JSON have their own words for a map.
    Map,
    Words(String),
}

impl Term {
    pub(crate) fn of(words: impl fmt::Display) -> Self {
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
    pub(crate) fn found(expected: Term, found: Term) -> Self {
        Self::new(Message::Found { expected, found })
    }

    /// An error with this message.
    pub fn plain(message: String) -> Self {
        Self::new(Message::Plain(without_middle(message)))
    }

    fn new(message: Message) -> Self {
        Self(Box::new(Inner { at: None, path: Vec::new(), message }))
    }

    /// This error at the byte `at`, unless its place is known already.
    pub(crate) fn at(mut self, at: usize) -> Self {
        self.0.at.get_or_insert(at);
        self
    }

    /// This error in the field of this name.
    #[must_use]
    pub fn in_field(mut self, name: &str) -> Self {
        self.0.path.push(PathStep::Field(name.to_string()));
        self
    }

    /// This error in the value at this place of a list.
    pub(crate) fn in_place(mut self, place: usize) -> Self {
        self.0.path.push(PathStep::Place(place));
        self
    }

    /// The line and the column of the error in its text, both from 1, the column in characters.
    pub fn line_and_column(&self, text: &str) -> (usize, usize) {
        line_and_column(self.0.at.unwrap_or(0), text)
    }

    /// The field, such as `policies.api.limits[0].rate`; empty at the top. A long name lacks its end. A path of more than
    /// eight steps, which is longer than those of any form, has the first and the last four.
    pub fn path(&self) -> String {
        let mut path = String::new();
        let steps = &self.0.path;
        let hidden = MOST_STEPS / 2..steps.len().saturating_sub(MOST_STEPS / 2);
        for (place, step) in steps.iter().rev().enumerate() {
            if hidden.contains(&place) {
                if place == hidden.start {
                    path.push('…');
                }
                continue;
            }
            let dot = if path.is_empty() { "" } else { "." };
            let _ = match step {
                // writing to a string cannot fail
                PathStep::Field(name) => match start_of(name) {
                    Some(start) => write!(path, "{dot}{start}…"),
                    None => write!(path, "{dot}{name}"),
                },
                PathStep::Place(place) => write!(path, "[{place}]"),
            };
        }
        without_middle(path)
    }

    /// The message, such as "expected a number, found a text". `map` is the format's word for a map.
    pub fn message(&self, map: &str) -> String {
        let Message::Found { expected, found } = &self.0.message else {
            return self.to_string();
        };
        let (expected, found) = (expected.said(map), found.said(map));
        // the code of `contains` is large
        let lists = expected.as_bytes().windows(2).any(|pair| pair == b", ");
        let stop = if lists { ';' } else { ',' };
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

/// The line and the column of a byte, both from 1, the column in characters.
pub(crate) fn line_and_column(at: usize, text: &str) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let start = before.rfind('\n').map_or(0, |at| at.saturating_add(1));
    let column = before.get(start..).unwrap_or_default().chars().count();
    (before.matches('\n').count().saturating_add(1), column.saturating_add(1))
}

/// Names as errors list them.
pub(crate) fn one_of(names: &[&str]) -> String {
    match names {
        [] => "no field".to_string(),
        [one] => format!("`{one}`"),
        [one, other] => format!("`{one}` or `{other}`"),
        _ => format!("one of `{}`", names.join("`, `")),
    }
}
