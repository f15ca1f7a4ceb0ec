//! What is wrong with a policy file, and where.

use alloc::string::{String, ToString};
use core::fmt;
use core::ops::Range;

use crate::quote::without_middle;
use crate::wording::{reworded, without_place};

/// What is wrong with a policy file: the place, what was expected and what was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError {
    /// The line, from 1; 0 if the error is in no line.
    pub line: usize,
    /// The column, from 1, in characters; 0 if the error is in no line.
    pub column: usize,
    /// The field, such as `policies.api.limits[0].rate`; empty at the top.
    pub path: String,
    /// What was expected and what was found.
    pub message: String,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}, column {}: ", self.line, self.column)?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

impl core::error::Error for PolicyError {}

impl PolicyError {
    pub(super) fn at_start(message: String) -> Self {
        Self { line: 0, column: 0, path: String::new(), message }
    }

    pub(super) fn from_toml(text: &str, path: String, error: &toml::de::Error) -> Self {
        let Range { start, .. } = error.span().unwrap_or_default();
        let before = text.get(..start).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |at| at.saturating_add(1));
        Self {
            line: before.matches('\n').count().saturating_add(1),
            column: before.get(line_start..).unwrap_or("").chars().count().saturating_add(1),
            path,
            message: worded(error.message().trim_end(), "a table"),
        }
    }

    pub(super) fn from_json(path: String, error: &serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        let message = worded(without_place(&error.to_string(), error), "an object");
        Self { line, column, path, message }
    }
}

fn worded(message: &str, map: &str) -> String {
    reworded(message, map).unwrap_or_else(|| without_middle(message.to_string()))
}
