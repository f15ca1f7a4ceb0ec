//! What a client of Redis has returned.

use js_sys::{Array, Error, Uint8Array};
use wasm_bindgen::{JsCast, JsValue};

use super::script::bytes_of;
use crate::number::to_quantity;

/// A reply of Redis, as far as the commands make one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// The number 0.
    Zero,
    /// Another whole number.
    Number(u64),
    Nil,
    Bytes(Vec<u8>),
    List(Vec<Self>),
    /// What Redis said instead.
    Error(String),
    /// Anything else.
    Other,
}

impl Reply {
    /// What the script has written as a text.
    fn of_text(text: &str) -> Self {
        match text.split_at_checked(1) {
            Some(("x", digits)) => bytes_of(digits).map_or(Self::Other, Self::Bytes),
            Some(("e", error)) => Self::Error(error.to_owned()),
            Some(("n", "")) => Self::Nil,
            _ => Self::Other,
        }
    }

    /// Reads the value of a client that returns bytes as a `Buffer`, or of one that carries texts alone. A list is read to the depth
    /// that the script has.
    pub(super) fn read(value: &JsValue, has_texts: bool) -> Self {
        Self::read_to(value, has_texts, 2)
    }

    fn read_to(value: &JsValue, has_texts: bool, depth: usize) -> Self {
        // a client may be told to return numbers as texts
        let in_text = || value.as_string()?.parse().ok();
        match value.as_f64().and_then(to_quantity).or_else(in_text) {
            Some(0) => return Self::Zero,
            Some(number) => return Self::Number(number),
            None => {}
        }
        if let Some(text) = value.as_string().filter(|_| has_texts) {
            return Self::of_text(&text);
        }
        if value.is_null() || value.is_undefined() {
            return Self::Nil;
        }
        if let Some(bytes) = value.dyn_ref::<Uint8Array>() {
            return Self::Bytes(bytes.to_vec());
        }
        if let Some(error) = value.dyn_ref::<Error>() {
            return Self::Error(error.message().into());
        }
        match value.dyn_ref::<Array>() {
            Some(list) if depth > 0 => Self::List(
                list.iter().map(|value| Self::read_to(&value, has_texts, depth - 1)).collect(),
            ),
            _ => Self::Other,
        }
    }
}
