//! The errors that JavaScript catches.

use js_sys::{Error, Number, Object, RangeError, Reflect};
use tidegate_gate::{
    AskError, CostExceedsCapacity, InvalidKey, OperationError, PolicyError, TableError,
};
use wasm_bindgen::{JsCast, JsValue};

/// Why a call failed.
#[derive(Debug)]
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
    /// WebAssembly has no memory left for a policy.
    NoMemory,
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
            Self::Table(_) | Self::NoMemory => "TABLE_FULL",
            Self::Option(_) => "INVALID_OPTION",
            Self::Ask(_) => "INVALID_REQUEST",
            Self::NeedsLease => "NEEDS_LEASE",
        }
    }

    fn message(&self) -> String {
        match self {
            Self::Policy(error) => error.to_string(),
            Self::UnknownPolicy(message) | Self::Option(message) => message.clone(),
            Self::Ask(error) => error.to_string(),
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
            Self::NeedsLease => {
                "the limits on this key hold leases: call `acquire` and `release` instead".into()
            }
            Self::NoMemory => {
                "no memory is left for a policy: call `free` on limiters that are no longer needed"
                    .into()
            }
        }
    }

    fn is_out_of_range(&self) -> bool {
        match self {
            Self::Policy(_)
            | Self::UnknownPolicy(_)
            | Self::KeyEncoding
            | Self::NeedsLease
            | Self::Ask(AskError::NoRandomness)
            | Self::NoMemory => false,
            Self::Table(error) => matches!(error, TableError::Operation(OperationError::Cost(_))),
            _ => true,
        }
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

/// Defines a property, so that no setter on `Object.prototype` is called.
fn set(error: &JsValue, name: &str, value: JsValue) {
    let descriptor = Object::create(JsValue::NULL.unchecked_ref());
    let yes = JsValue::TRUE;
    for (field, value) in
        [("value", &value), ("configurable", &yes), ("enumerable", &yes), ("writable", &yes)]
    {
        // fails only for frozen objects and proxies
        let _ = Reflect::set(&descriptor, &field.into(), value);
    }
    let _ = Reflect::define_property(error.unchecked_ref::<Object>(), &name.into(), &descriptor);
}
