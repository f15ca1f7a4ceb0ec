//! What is wrong with a policy file, and where.

use alloc::string::{String, ToString};
use core::fmt;
use core::ops::Range;

/// What is wrong with a policy file: the place, what was found and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError {
    /// From 1; 0 if the fault is in no line.
    pub line: usize,
    /// From 1, in characters; 0 if the fault is in no line.
    pub column: usize,
    /// Such as `policies.api.limits[0].rate`; empty at the top.
    pub path: String,
    /// What was found and what is allowed.
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
            message: error.message().trim_end().to_string(),
        }
    }

    pub(super) fn from_json(path: String, error: &serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        let place = alloc::format!(" at line {line} column {column}");
        let message = error.to_string();
        let message = message.strip_suffix(place.as_str()).unwrap_or(&message).to_string();
        Self { line, column, path, message }
    }
}
