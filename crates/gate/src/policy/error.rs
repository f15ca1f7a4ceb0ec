//! What is wrong with a policy file, and where.

use alloc::string::String;
use core::fmt;

use tidegate_form::Error;

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
        Self::at_path(String::new(), message)
    }

    pub(super) const fn at_path(path: String, message: String) -> Self {
        Self { line: 0, column: 0, path, message }
    }

    /// `map` is the format's word for a map.
    pub(super) fn new(text: &str, error: &Error, map: &str) -> Self {
        let (line, column) = error.line_and_column(text);
        Self { line, column, path: error.path(), message: error.message(map) }
    }
}
