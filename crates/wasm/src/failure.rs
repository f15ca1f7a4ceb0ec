//! What JavaScript catches.

use js_sys::{Error, Number, RangeError, Reflect};
use tidegate_gate::{InvalidKey, PolicyError, TableError};
use wasm_bindgen::JsValue;

/// Why there is no decision, or no limiter.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The policy cannot be read.
    Policy(PolicyError),
    /// The policy file has no such policy, or several to choose from.
    UnknownPolicy(String),
    /// A number is no whole number in its range.
    Number { field: &'static str, code: &'static str, found: f64, least: u64, most: u64 },
    /// The key is too short or too long.
    Key(InvalidKey),
    /// The key's bytes are no UTF-8.
    KeyEncoding,
    /// The table did not decide.
    Table(TableError),
}

impl Failure {
    pub(crate) fn without_line(self) -> Self {
        match self {
            Self::Policy(error) => Self::Policy(PolicyError { line: 0, column: 0, ..error }),
            other => other,
        }
    }

    const fn code(&self) -> &'static str {
        match self {
            Self::Policy(_) => "INVALID_POLICY",
            Self::UnknownPolicy(_) => "UNKNOWN_POLICY",
            Self::Number { code, .. } => code,
            Self::Key(_) | Self::KeyEncoding => "INVALID_KEY",
            Self::Table(TableError::Cost(_)) => "COST_EXCEEDS_CAPACITY",
            Self::Table(_) => "TABLE_FULL",
        }
    }

    fn message(&self) -> String {
        match self {
            Self::Policy(error) => error.to_string(),
            Self::UnknownPolicy(message) => message.clone(),
            Self::Number { field, found, least, most, .. } => {
                // as JavaScript writes it: Infinity, 1e+21
                let found = Number::from(*found)
                    .to_string_with_radix(10)
                    .map_or_else(|_| "?".into(), String::from);
                format!(
                    "`{field}`: found {found}, allowed are whole numbers from {least} to {most}"
                )
            }
            Self::Key(error) => error.to_string(),
            Self::KeyEncoding => "`key`: found bytes that are no UTF-8".into(),
            Self::Table(error) => error.to_string(),
        }
    }

    fn is_out_of_range(&self) -> bool {
        matches!(self, Self::Number { .. } | Self::Key(_) | Self::Table(TableError::Cost(_)))
    }
}

impl From<Failure> for JsValue {
    fn from(failure: Failure) -> Self {
        let message = failure.message();
        let error: Self = if failure.is_out_of_range() {
            RangeError::new(&message).into()
        } else {
            Error::new(&message).into()
        };
        set(&error, "code", failure.code().into());
        if let Failure::Policy(PolicyError { line, column, path, .. }) = failure {
            set(&error, "line", line.into());
            set(&error, "column", column.into());
            set(&error, "path", path.into());
        }
        error
    }
}

fn set(error: &JsValue, name: &str, value: JsValue) {
    // fails for frozen objects and proxies alone
    let _ = Reflect::set(error, &name.into(), &value);
}
