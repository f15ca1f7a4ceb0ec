//! The errors that JavaScript throws.

use js_sys::Number;
use tidegate_gate::{
    AskError, CallLimitsError, CostExceedsCapacity, DumpError, InvalidKey, OperationError,
    PolicyError, TableError,
};
use wasm_bindgen::JsValue;

/// Why a call failed.
#[derive(Debug)]
#[cfg_attr(
    feature = "objects",
    expect(dead_code, reason = "some failures are of a table in memory")
)]
pub(crate) enum Failure {
    /// The policy cannot be read.
    Policy(PolicyError),
    /// The policy file has no policy of this name, or the caller did not choose one of several.
    UnknownPolicy(String),
    /// A number is not a whole number in its range.
    Number { field: &'static str, code: &'static str, found: f64, least: u64, most: u64 },
    /// The key is empty or too long, or not an address after `ip:`.
    Key(InvalidKey),
    /// The key's bytes are not UTF-8.
    KeyEncoding,
    /// The table did not decide.
    Table(TableError),
    /// These units can never pass.
    Units(CostExceedsCapacity),
    /// An option has an invalid value.
    Option(String),
    /// The operation cannot be read, or does not fit the policy.
    Ask(AskError),
    /// A limit on the key holds leases, and `check` names no lease.
    NeedsLease,
    /// The limits of a call cannot be read, or are too many.
    Limits(CallLimitsError),
    /// The bytes are not a dump of this limiter's policy.
    Dump(DumpError),
    /// WebAssembly has no memory left.
    NoMemory,
    /// The store did not do an operation that must not look as if it were done.
    #[cfg(any(feature = "redis", feature = "objects"))]
    Unavailable(String),
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
            Self::Table(TableError::Operation(OperationError::Cost(_)))
            | Self::Units(_)
            | Self::Ask(AskError::Cost(_)) => "COST_EXCEEDS_CAPACITY",
            Self::Ask(AskError::Key(_)) => "INVALID_KEY",
            Self::Ask(AskError::NoRandomness) => "NO_RANDOMNESS",
            Self::Limits(CallLimitsError::TooMany) => "TOO_MANY_LIMITS",
            Self::Table(_)
            | Self::NoMemory
            | Self::Limits(CallLimitsError::NoMemory)
            | Self::Dump(DumpError::Full { .. }) => "TABLE_FULL",
            Self::Limits(_) => "INVALID_LIMITS",
            Self::Dump(_) => "INVALID_DUMP",
            Self::Option(_) => "INVALID_OPTION",
            Self::Ask(_) => "INVALID_REQUEST",
            Self::NeedsLease => "NEEDS_LEASE",
            #[cfg(any(feature = "redis", feature = "objects"))]
            Self::Unavailable(_) => "UNAVAILABLE",
        }
    }

    pub(crate) fn message(&self) -> String {
        match self {
            Self::Policy(error) => error.to_string(),
            Self::UnknownPolicy(message) | Self::Option(message) => message.clone(),
            Self::Ask(error) => error.to_string(),
            #[cfg(any(feature = "redis", feature = "objects"))]
            Self::Unavailable(message) => message.clone(),
            Self::Number { field, found, least, most, .. } => {
                // in JavaScript's notation, such as Infinity or 1e+21
                let found = Number::from(*found)
                    .to_string_with_radix(10)
                    .map_or_else(|_| "?".into(), String::from);
                format!("`{field}`: expected a whole number from {least} to {most}, found {found}")
            }
            Self::Key(error) => error.to_string(),
            Self::KeyEncoding => "`key`: expected UTF-8, found other bytes".into(),
            Self::Table(error) => error.to_string(),
            Self::Units(error) => error.to_string(),
            Self::Limits(CallLimitsError::Policy(error)) => {
                let PolicyError { path, message, .. } = error;
                match path.as_str() {
                    "" if message.starts_with("`limits`: ") => message.clone(),
                    "" => format!("`limits`: {message}"),
                    path => format!("`{path}`: {message}"),
                }
            }
            Self::Limits(error) => error.to_string(),
            Self::Dump(error) => error.to_string(),
            Self::NeedsLease => {
                "the limits on this key hold leases: call `acquire` and `release` instead".into()
            }
            Self::NoMemory => {
                "no memory is left: call `free` on limiters that are no longer needed".into()
            }
        }
    }
}

/// The code, the line, the column and the length of the path in UTF-16, each with a zero after it; then the path and the
/// message. `errors.js` makes an error of it.
impl From<Failure> for JsValue {
    fn from(failure: Failure) -> Self {
        let (code, message) = (failure.code(), failure.message());
        let (line, column, path) = match failure {
            Failure::Policy(PolicyError { line, column, path, .. }) => (line, column, path),
            _ => (0, 0, String::new()),
        };
        let units = path.encode_utf16().count();
        Self::from_str(&format!("{code}\0{line}\0{column}\0{units}\0{path}{message}"))
    }
}
