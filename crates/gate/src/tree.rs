//! A TOML or JSON text as one tree of values, from which all forms are read.
//!
//! Both formats become a tree first, and [forms](Form) are read from the tree alone. So the code of a form exists once.

mod error;
mod form;
mod json;
#[cfg(test)]
mod tests;
#[cfg(feature = "toml")]
mod toml;

use alloc::borrow::Cow;
use alloc::vec::Vec;

pub(crate) use error::Error;
pub(crate) use form::{Form, fields, form, name_of, repeated};
pub(crate) use json::json;
#[cfg(feature = "toml")]
pub(crate) use toml::toml;

/// Reads no TOML.
#[cfg(not(feature = "toml"))]
pub(crate) fn toml(_: &str) -> Result<Node<'_>, Error> {
    Err(Error::plain("expected JSON, found another text; this build reads no TOML".into()).at(0))
}

/// A value, and the byte of the text at which it begins.
#[derive(Debug)]
pub(crate) struct Node<'t> {
    at: usize,
    pub(crate) value: Value<'t>,
}

#[derive(Debug)]
pub(crate) enum Value<'t> {
    Null,
    Bool(bool),
    Natural(u64),
    Negative(i64),
    /// Any other number as written. No field accepts one, so it is only ever quoted in an error.
    Number(Cow<'t, str>),
    /// A date, a time, or both.
    #[cfg_attr(not(feature = "toml"), expect(dead_code, reason = "JSON has no dates"))]
    Date,
    Text(Cow<'t, str>),
    List(Vec<Node<'t>>),
    /// In the order in which the entries were read. Names may repeat; forms refuse that.
    Map(Vec<Entry<'t>>),
}

#[derive(Debug)]
pub(crate) struct Entry<'t> {
    name_at: usize,
    name: Cow<'t, str>,
    node: Node<'t>,
}

impl<'t> Value<'t> {
    /// The whole number that `digits` stand for; the number as written if it does not fit.
    fn whole(digits: &str, radix: u32, written: impl FnOnce() -> Cow<'t, str>) -> Self {
        if let Ok(number) = u64::from_str_radix(digits, radix) {
            return Self::Natural(number);
        }
        match i64::from_str_radix(digits, radix) {
            Ok(0) => Self::Natural(0),
            Ok(number) => Self::Negative(number),
            Err(_) => Self::Number(written()),
        }
    }
}
